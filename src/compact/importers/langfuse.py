"""Exports of Langfuse: observations, of which those of type `GENERATION` are calls to a model.

Owns: where an observation has its request, its answer and its session.
Must never: read an observation that is not a call to a model.

An observation has `type`, `traceId`, `input`, `output`, `model` (or `providedModelName`), `modelParameters` and
`toolDefinitions` (a definition by each name); exports to a bucket write `trace_id`, `provided_model_name` and so on,
and values as JSON in text. A trace has a list of `observations`, an answer of the API one of `data`. Input is a list of
messages, or an object with `messages` and `tools`. Observations of one session (`sessionId`), else of one trace, may be
one conversation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ._importer import Importer
from ._recorded_calls import RecordedCall, parse_json_text, read_call
from ._trace_exports import read_traces

__all__ = ["IMPORTER"]

_KINDS = frozenset("GENERATION SPAN EVENT AGENT TOOL CHAIN RETRIEVER EVALUATOR EMBEDDING GUARDRAIL".split())


def _is_observation(row: Any) -> bool:
    kind = row.get("type") if isinstance(row, dict) else None
    return isinstance(kind, str) and kind.upper() in _KINDS and ("traceId" in row or "trace_id" in row)


def _recognizes(rows: Sequence[Any]) -> bool:
    return any(_is_observation(row) or any(map(_is_observation, _observations_in(row))) for row in rows)


def _observations_in(row: Any) -> list[Any]:
    listed = (row.get(name) for name in ("observations", "data")) if isinstance(row, dict) else ()
    return next((found for found in listed if isinstance(found, list)), [])


def _calls(row: Any, skipped: Counter[str]) -> Iterator[Mapping[str, Any]]:
    trace = row.get("trace") if isinstance(row, dict) and isinstance(row.get("trace"), dict) else row
    session = trace.get("sessionId") if isinstance(trace, dict) else None
    for one in _observations_in(row) or [row]:
        if not _is_observation(one):
            skipped["rows that are no observations"] += 1
        elif one["type"].upper() == "GENERATION":
            yield {"sessionId": session, **one} if session else one
        else:
            skipped[f"observations of type {one['type'][:40]}"] += 1


def _read_observation(one: Mapping[str, Any]) -> RecordedCall | None:
    request = parse_json_text(one.get("input"))
    if isinstance(request, Mapping) and "role" in request:
        request = [request]
    if isinstance(request, str) and request:
        request = [{"role": "user", "content": request}]
    found = read_call(request, parse_json_text(one.get("output")))
    if found is None:
        return None
    options = parse_json_text(one.get("modelParameters") or one.get("model_parameters"))
    tools = parse_json_text(one.get("toolDefinitions") or one.get("tool_definitions"))
    names = ("sessionId", "session_id", "traceId", "trace_id")
    found.group = next((str(one[name]) for name in names if one.get(name)), "")
    models = ("model", "providedModelName", "provided_model_name")
    found.model = next((one[name] for name in models if one.get(name)), found.model)
    found.tools = found.tools or (options.get("tools") if isinstance(options, Mapping) else None)
    if not found.tools and isinstance(tools, Mapping):
        found.tools = [_tool(name, parse_json_text(definition)) for name, definition in tools.items()]
    return found


def _tool(name: str, definition: Any) -> dict[str, Any]:
    """A tool in the form of the chat API."""
    if isinstance(definition, dict) and isinstance(definition.get("function"), dict):
        return definition
    return {"type": "function", "function": {"name": name, **(definition if isinstance(definition, dict) else {})}}


IMPORTER = Importer(
    name="langfuse",
    title="Langfuse exports",
    kept="observations or traces, exported from its page, its API or to a bucket, as JSON or JSON lines",
    recognized="rows with a `type` such as `GENERATION` and a `traceId`; or lists of them in `observations` or `data`",
    omitted="observations that are no calls of a model; calls that are the beginning of a later one",
    recognizes=_recognizes,
    read=partial(read_traces, format="langfuse", calls=_calls, read=_read_observation),
)
