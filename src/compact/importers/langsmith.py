"""Exports of LangSmith: runs, of which those of type `llm` are calls to a model.

Owns: where a run has its request, its answer and its thread. Must never: read a run that is not a call to a model.

A run has `run_type`, `inputs`, `outputs`, `trace_id`, `extra` (`metadata`, `invocation_params`), and in a tree
`child_runs`; an answer of the API has a list of `runs`. Inputs hold `messages` (LangChain's serialized ones, in one
more list, or an API's own), outputs `generations` or the API's answer. Runs of one thread (`thread_id`, `session_id` or
`conversation_id` in the metadata), else of one trace, may be one conversation.
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

_THREAD_FIELDS = ("thread_id", "session_id", "conversation_id")


def _is_run(row: Any) -> bool:
    return isinstance(row, dict) and "run_type" in row and ("inputs" in row or "trace_id" in row)


def _recognizes(rows: Sequence[Any]) -> bool:
    return any(_is_run(run) for row in rows for run in _runs(row))


def _runs(row: Any) -> list[Any]:
    listed = row.get("runs") if isinstance(row, dict) else None
    return listed if isinstance(listed, list) else [row]


def _calls(row: Any, skipped: Counter[str]) -> Iterator[Mapping[str, Any]]:
    waiting = [*reversed(_runs(row))]
    while waiting:
        run = waiting.pop()
        if not isinstance(run, dict) or "run_type" not in run:
            skipped["rows that are no runs"] += 1
            continue
        if run["run_type"] == "llm":
            yield run
        else:
            skipped[f"runs of type {str(run['run_type'])[:40]}"] += 1
        children = run.get("child_runs")
        waiting += reversed(children) if isinstance(children, list) else []


def _read_run(run: Mapping[str, Any]) -> RecordedCall | None:
    found = read_call(parse_json_text(run.get("inputs")), parse_json_text(run.get("outputs")))
    if found is None:
        return None
    extra = parse_json_text(run.get("extra"))
    metadata = _mapping(_mapping(extra).get("metadata")) | _mapping(run.get("metadata"))
    options = _mapping(_mapping(extra).get("invocation_params"))
    named = (metadata.get(name) for name in _THREAD_FIELDS)
    found.group = next((str(name) for name in (*named, run.get("trace_id")) if name), "")
    found.model = found.model or options.get("model") or options.get("model_name") or metadata.get("ls_model_name")
    found.tools = found.tools or options.get("tools")
    return found


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


IMPORTER = Importer(
    name="langsmith",
    title="LangSmith exports",
    kept="the runs you list with its client or its API, as JSON or JSON lines; its bulk exports are Parquet, which is "
    "not read",
    recognized="rows with `run_type` and `inputs`, or with a list of them in `runs`",
    omitted="runs that are no calls of a model; calls that are the beginning of a later one",
    recognizes=_recognizes,
    read=partial(read_traces, format="langsmith", calls=_calls, read=_read_run),
)
