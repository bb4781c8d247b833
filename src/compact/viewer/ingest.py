"""Parsing and validating the body of `POST /ingest`, which follows the contract of Ariadne's viewer.

Owns: `parse_body`: from a body to events, or an `IngestError` with its status and answer.
Must never: store, do I/O, or put the content of an event into an answer.

- A body is one event, or `{"batch": [event, …]}`. One invalid event refuses the whole batch, as in Ariadne.
- Unknown keys are dropped, long strings are cut with a mark, and null is not valid for any field.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

LIMIT = 262_144
"""Bytes of a body."""
_LONGEST_NAME = 1_024
_LONGEST_VALUE = 100 * 1_024
_CUT = "... [truncated]"
_MAX_DETAILS = 20
"""Problems listed in an answer."""
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?Z")


class IngestError(Exception):
    """A body that is refused: the status and the JSON of the answer."""

    def __init__(self, status: int, error: str, **more: Any) -> None:
        super().__init__(error)
        self.status = status
        self.answer = {"error": error, **more}


def body_too_large(size: int) -> IngestError:
    """The error for a body over the limit."""
    return IngestError(
        413,
        "Payload too large",
        message=f"The body has {size:,} bytes or more, and at most {LIMIT:,} are accepted. Send it as several batches.",
    )


def parse_body(body: bytes) -> list[dict[str, Any]]:
    """The events of a body, each with the fields of the contract only; `IngestError` when any of them is invalid."""
    if len(body) > LIMIT:
        raise body_too_large(len(body))
    try:
        value = json.loads(body.decode("utf-8", "replace"), parse_constant=_refuse_constant, parse_float=_parse_float)
        return list(_events(value))
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else "it is not JSON"
        raise IngestError(
            500, "Internal server error", message=f"The body of {len(body):,} bytes cannot be read: {why}."
        ) from None


def parse_timestamp(stamp: Any) -> float | None:
    """A timestamp of the contract in seconds since the epoch; None without one."""
    return datetime.fromisoformat(stamp).timestamp() if stamp else None


def _events(value: Any) -> Iterator[dict[str, Any]]:
    batch = value.get("batch") if isinstance(value, dict) else None
    if isinstance(batch, list):
        events, places = batch, [["batch", number] for number in range(len(batch))]
    else:
        events, places = [value], [[]]
    problems: list[dict[str, Any]] = []
    accepted: list[dict[str, Any]] = []
    for event, place in zip(events, places, strict=True):
        fields, wrong = _read_event(event)
        accepted.append(fields)
        problems += [{"path": [*place, name] if name else place, "message": message} for name, message in wrong]
    if problems:
        raise IngestError(400, "Validation failed", details=problems[:_MAX_DETAILS])
    yield from accepted


def _read_event(event: Any) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The known fields of an event, long ones cut, and its problems as field and message."""
    kind = event.get("type") if isinstance(event, dict) else None
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        return {}, [("type", 'must be an object with "type": "trace" or "span"')]
    known: dict[str, Any] = {"type": kind}
    wrong: list[tuple[str, str]] = []
    for name, (needed, check) in fields.items():
        if name not in event:
            if needed:
                wrong.append((name, "is missing"))
            continue
        value = event[name]
        if (problem := check(value)) is not None:
            wrong.append((name, problem))
        else:
            known[name] = value
    if not wrong:
        known = _cut_strings(known)
        started, ended = known.get("started_at"), known.get("ended_at")
        if started and ended and datetime.fromisoformat(ended) < datetime.fromisoformat(started):
            wrong.append(("", "ended_at must be >= started_at"))
    return known, wrong


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else "must be a string; leave the key out when there is none"


def _id(value: Any) -> str | None:
    return _text(value) or (None if value else "must not be empty")


def _stamp(value: Any) -> str | None:
    if isinstance(value, str) and _TIMESTAMP.fullmatch(value):
        try:
            datetime.fromisoformat(value)
            return None
        except ValueError:
            pass
    return "Invalid datetime: must read 2026-01-31T12:00:00.000000Z, ending in Z"


def _status(value: Any) -> str | None:
    return None if value in ("ok", "error") else 'must be "ok" or "error"'


def _object(value: Any) -> str | None:
    return None if isinstance(value, dict) else "must be an object"


def _strings(value: Any) -> str | None:
    if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
        return None
    return "must be an object of strings"


_Check = Callable[[Any], str | None]
_COMMON: Mapping[str, tuple[bool, _Check]] = {
    "name": (False, _text),
    "started_at": (False, _stamp),
    "ended_at": (False, _stamp),
}
_FIELDS: Mapping[str, Mapping[str, tuple[bool, _Check]]] = {
    "trace": {"trace_id": (True, _id), **_COMMON, "group_id": (False, _text), "metadata": (False, _strings)},
    "span": {
        "trace_id": (True, _id),
        "span_id": (True, _id),
        "parent_id": (False, _text),
        "kind": (False, _text),
        **_COMMON,
        "status": (False, _status),
        "data": (False, _object),
    },
}
"""The fields of each type of event: whether it is required, and a check that returns the problem of a value."""


def _cut_strings(event: dict[str, Any]) -> dict[str, Any]:
    """The event with long strings cut; arrays are not changed, as in Ariadne."""
    if len(event.get("name", "")) > _LONGEST_NAME:
        event["name"] = event["name"][:_LONGEST_NAME] + _CUT
    if "data" in event:
        event["data"] = _cut_values(event["data"])
    return event


def _cut_values(data: dict[str, Any]) -> dict[str, Any]:
    for key, value in data.items():
        if isinstance(value, str):
            if len(value) > _LONGEST_VALUE:
                data[key] = value[:_LONGEST_VALUE] + _CUT
        elif isinstance(value, dict):
            _cut_values(value)
    return data


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _parse_float(text: str) -> float | None:
    """A number; None where it overflows, as JavaScript writes it."""
    number = float(text)
    return number if math.isfinite(number) else None
