"""What every sink needs: an event as one line of JSON, and redaction in front of any sink.

Owns: `event_json`, `plain`, `described`, `redacting`.
Must never: open a file or a socket, or raise because of what an event holds.

Rules:
- A sink is any callable that takes an `Event`; one with a `close()` is closed with the manager.
- What JSON cannot say becomes text that a reader understands: NaN, bytes, objects, cycles, what is nested too deep.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Set
from typing import Any

from .._redaction import Redactor
from .event import Event, Sink

__all__ = ["described", "event_json", "plain", "redacting"]

_DEEPEST = 100
_LARGEST_BITS = 1024


def event_json(event: Event) -> str:
    """The event as one line of JSON, without a newline at its end. Never raises."""
    fields = {
        "name": event.name,
        "session_id": event.session_id,
        "step": event.step,
        "time": event.time,
        "duration": event.duration,
        "status": event.status,
        "data": event.data,
    }
    # ASCII only: it survives lone surrogates, and readers that split lines at more than "\n".
    return json.dumps(plain(fields), ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    """A copy of any value made of what JSON knows: dict, list, str, int, float, bool, None. Never raises."""
    return _plain(value, frozenset())


def redacting(sink: Sink, redactor: Redactor) -> Sink:
    """The same sink behind a redactor: it gets a copy of each event with plain, redacted data."""
    return _Redacting(sink, redactor)


class _Redacting:
    """A class and not a closure, so that closing it closes what it wraps."""

    __slots__ = ("_redactor", "_sink")

    def __init__(self, sink: Sink, redactor: Redactor) -> None:
        self._sink = sink
        self._redactor = redactor

    def __call__(self, event: Event) -> None:
        # Plain first: a secret inside an object's text is out of the redactor's reach until it is text.
        clean = self._redactor.redact
        data = clean(plain(event.data))
        if event.name == "compact.archival":
            # Ours, and how an auditor finds a file: to a user's pattern a hash may look like a secret.
            data = data | {field: event.data[field] for field in ("key", "sha256") if field in event.data}
        self._sink(event._replace(session_id=clean(event.session_id), data=data))

    def close(self) -> None:
        close = getattr(self._sink, "close", None)
        if callable(close):
            close()


def _plain(value: Any, above: frozenset[int]) -> Any:
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _LARGEST_BITS else hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if not isinstance(value, (Mapping, list, tuple, Set)):
        return described(value)
    if id(value) in above:
        return f"<{type(value).__name__} inside itself>"
    if len(above) >= _DEEPEST:
        return _deep(value)
    inside = above | {id(value)}
    try:
        if isinstance(value, Mapping):
            return {_key(key): _plain(item, inside) for key, item in value.items()}
        if isinstance(value, Set):
            return [_plain(item, inside) for item in sorted(value, key=repr)]
        return [_plain(item, inside) for item in value]
    except Exception:
        # A container that cannot be walked is still worth a line.
        return described(value)


def _deep(value: Any) -> str:
    """What lies too deep to be walked, as JSON in a text: nothing is lost, and a redactor can read it."""
    try:
        return json.dumps(value, default=described)
    except Exception:
        return f"<{type(value).__name__} nested deeper than {_DEEPEST}>"


def _key(key: Any) -> str:
    return key if isinstance(key, str) else described(key)


def described(value: Any) -> str:
    """Its `repr`, whatever that does."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
