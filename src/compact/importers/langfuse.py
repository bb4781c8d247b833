"""Exports of Langfuse: observations, of which those of type `GENERATION` are calls to a model.

Owns: where an observation keeps its request, its answer and what it belongs to. Must never: read one that is no call.

An observation has `type`, `traceId`, `input`, `output`, `model`, `modelParameters` (exports to a bucket write
`trace_id`, `provided_model_name`, `model_parameters`, and values as JSON in text). A trace has a list of
`observations`. Input is a list of messages, or an object with `messages` and `tools`. Observations of one session
(`sessionId`), else of one trace, may be one conversation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ._conversation import Importer
from ._exchanges import Exchange, exchange_of, unpacked
from ._traces import read_traces

__all__ = ["IMPORTER"]

_KINDS = frozenset("GENERATION SPAN EVENT AGENT TOOL CHAIN RETRIEVER EVALUATOR EMBEDDING GUARDRAIL".split())


def _is_observation(row: Any) -> bool:
    kind = row.get("type") if isinstance(row, dict) else None
    return isinstance(kind, str) and kind.upper() in _KINDS and ("traceId" in row or "trace_id" in row)


def _recognizes(rows: Sequence[Any]) -> bool:
    return any(_is_observation(row) or any(map(_is_observation, _inside(row))) for row in rows)


def _inside(row: Any) -> list[Any]:
    found = row.get("observations") if isinstance(row, dict) else None
    return found if isinstance(found, list) else []


def _calls(row: Any, skipped: Counter[str]) -> Iterator[Mapping[str, Any]]:
    trace = row.get("trace") if isinstance(row, dict) and isinstance(row.get("trace"), dict) else row
    session = trace.get("sessionId") if isinstance(trace, dict) else None
    for one in _inside(row) or [row]:
        if not _is_observation(one):
            skipped["rows that are no observations"] += 1
        elif one["type"].upper() == "GENERATION":
            yield {"sessionId": session, **one} if session else one
        else:
            skipped[f"observations of type {one['type'][:40]}"] += 1


def _exchange(one: Mapping[str, Any]) -> Exchange | None:
    request = unpacked(one.get("input"))
    if isinstance(request, Mapping) and "role" in request:
        request = [request]
    if isinstance(request, str) and request:
        request = [{"role": "user", "content": request}]
    found = exchange_of(request, unpacked(one.get("output")))
    if found is None:
        return None
    options = unpacked(one.get("modelParameters") or one.get("model_parameters"))
    names = ("sessionId", "session_id", "traceId", "trace_id")
    found.group = next((str(one[name]) for name in names if one.get(name)), "")
    found.model = one.get("model") or one.get("provided_model_name") or found.model
    found.tools = found.tools or (options.get("tools") if isinstance(options, Mapping) else None)
    return found


IMPORTER = Importer(
    name="langfuse",
    title="Langfuse exports",
    kept="observations or traces, exported from its page, its API or to a bucket, as JSON or JSON lines",
    recognized="rows with a `type` such as `GENERATION` and a `traceId`, or with `observations`",
    omitted="observations that are no calls of a model; calls that are the beginning of a later one",
    recognizes=_recognizes,
    read=partial(read_traces, format="langfuse", calls=_calls, exchange=_exchange),
)
