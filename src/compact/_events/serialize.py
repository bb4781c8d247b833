"""Events as JSON: plain data, redacted data, one line of JSON; a line read back.

Owns: `plain`, `described`, `escape_controls`, `redact_event`, `redacting`, `event_json`, `parse_event`.
Must never: open a file or a socket, or raise because of the data of an event that is written.

Values that JSON does not have become text that a reader understands: NaN, bytes, objects, cycles, deep nesting.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Set
from typing import Any

from .._redaction import Redactor
from .event import Event, Sink

_MAX_DEPTH = 100
_MAX_BITS = 1024


def escape_controls(text: str, keep: str = "") -> str:
    """Text for a terminal: control characters as escapes, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def event_json(event: Event) -> str:
    """The event as one line of JSON, without a newline at its end. Never raises."""
    # ASCII only: it survives lone surrogates, and readers that split lines at more than "\n".
    return json.dumps(plain(event._asdict()), ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def parse_event(value: Mapping[str, Any]) -> Event:
    """The event of a decoded line of `events.jsonl` or of a JSONL sink; raises on anything else."""
    return Event(
        name=str(value["name"]),
        session_id=str(value["session_id"]),
        step=int(value["step"]),
        time=float(value["time"]),
        duration=float(value["duration"]),
        status="error" if value["status"] == "error" else "ok",
        data=dict(value["data"]),
    )


def plain(value: Any) -> Any:
    """A copy of any value made of JSON's types: dict, list, str, int, float, bool, None. Never raises."""
    return _plain(value, frozenset())


def redact_event(event: Event, redactor: Redactor) -> Event:
    """A copy of the event with plain, redacted data."""
    # Plain first: a secret inside an object's text is out of the redactor's reach until it is text.
    data = redactor.redact(plain(event.data))
    if event.name == "compact.archival":
        # An auditor finds a file by these two, and to a user's pattern a hash may look like a secret.
        data = data | {field: event.data[field] for field in ("key", "sha256") if field in event.data}
    return event._replace(session_id=redactor.redact(event.session_id), data=data)


def redacting(sink: Sink, redactor: Redactor) -> Sink:
    """The same sink behind a redactor: it gets a copy of each event with plain, redacted data."""
    return _RedactingSink(sink, redactor)


class _RedactingSink:
    """A class and not a closure, so that closing it closes the sink."""

    __slots__ = ("_redactor", "_sink")

    def __init__(self, sink: Sink, redactor: Redactor) -> None:
        self._sink = sink
        self._redactor = redactor

    def __call__(self, event: Event) -> None:
        self._sink(redact_event(event, self._redactor))

    def close(self) -> None:
        close = getattr(self._sink, "close", None)
        if callable(close):
            close()


def _plain(value: Any, above: frozenset[int]) -> Any:
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _MAX_BITS else hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if not isinstance(value, (Mapping, list, tuple, Set)):
        return described(value)
    if id(value) in above:
        return f"<{type(value).__name__} inside itself>"
    if len(above) >= _MAX_DEPTH:
        return _describe_deep(value)
    inside = above | {id(value)}
    try:
        if isinstance(value, Mapping):
            return {_key(key): _plain(item, inside) for key, item in value.items()}
        if isinstance(value, Set):
            return [_plain(item, inside) for item in sorted(value, key=repr)]
        return [_plain(item, inside) for item in value]
    except Exception:
        # A container that cannot be read is described.
        return described(value)


def _describe_deep(value: Any) -> str:
    """A value that is nested too deep, as JSON in a text: nothing is lost, and a redactor can read it."""
    try:
        return json.dumps(value, default=described)
    except Exception:
        return f"<{type(value).__name__} nested deeper than {_MAX_DEPTH}>"


def _key(key: Any) -> str:
    return key if isinstance(key, str) else described(key)


def described(value: Any) -> str:
    """The `repr` of a value, or its type when that raises."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
