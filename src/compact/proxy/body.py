"""A request's body with the place of everything in it, so that what stays is sent byte for byte as it came.

Owns: `Body`. Must never: judge what it reads, or write a kept message anew: numbers, escapes and the order of fields
are the client's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Body", "Span"]

Span = tuple[int, int]
"""Where a value stands in the text."""

_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_blank = re.compile(r"[ \t\n\r]*").match


@dataclass(frozen=True, slots=True)
class Body:
    """A JSON object that has a list of messages in one of its fields."""

    text: str
    size: int
    """Bytes that it came in: no fewer than it has tokens, which characters may be."""
    fields: Mapping[str, Any]
    places: Mapping[str, Span]
    """Where the value of each field stands."""
    messages: list[Any]
    spans: list[Span]
    """Where each message stands."""

    @classmethod
    def read(cls, raw: bytes, listed: str) -> Body | None:
        """The body in these bytes; None when it is none, or has no list of objects in the field `listed`."""
        try:
            return _read(raw.decode("utf-8"), len(raw), listed)
        except (ValueError, StopIteration, IndexError, RecursionError):
            return None  # whoever gets it will say what is wrong with it

    def slice(self, span: Span) -> bytes:
        """What stands there."""
        return self.text[span[0] : span[1]].encode()

    @property
    def end(self) -> bytes:
        """What stands behind the last message."""
        return self.slice((self.spans[-1][1], len(self.text)))

    def carrying(self, messages: Sequence[Any]) -> bytes:
        """The same body with these messages; those that were in it before stand as they did."""
        known = {id(message): span for message, span in zip(self.messages, self.spans, strict=True)}
        listed = (
            self.text[known[id(message)][0] : known[id(message)][1]] if id(message) in known else json.dumps(message)
            for message in messages
        )
        start, end = self.places[_LISTED]
        return "".join((self.text[:start], "[", ",".join(listed), "]", self.text[end:])).encode()


_LISTED = ""
"""The place of the list itself: no field of an API has this name."""


def _read(text: str, size: int, listed: str) -> Body | None:
    fields: dict[str, Any] = {}
    places: dict[str, Span] = {}
    spans: list[Span] = []
    at = _skip(text, 0, "{")
    while text[at] != "}":
        name, at = _scan(text, at)
        at = _skip(text, _skip(text, at), ":")
        if not isinstance(name, str) or name in fields or name == _LISTED:
            return None  # a field twice: readers differ in which one counts
        start = at
        if name == listed and text[at] == "[":
            fields[name], spans, at = _items(text, at)
            places[_LISTED] = start, at
        else:
            fields[name], at = _scan(text, at)
        places[name] = start, at
        at = _next(text, at, "}")
    messages = fields.get(listed)
    if _skip(text, at + 1) != len(text) or not messages or not all(isinstance(one, dict) for one in messages):
        return None
    return Body(text, size, fields, places, messages, spans) if _LISTED in places else None


def _items(text: str, at: int) -> tuple[list[Any], list[Span], int]:
    """The items of the list that starts here, their places, and where it ends."""
    items: list[Any] = []
    spans: list[Span] = []
    at = _skip(text, at, "[")
    while text[at] != "]":
        item, end = _scan(text, at)
        items.append(item)
        spans.append((at, end))
        # Nearly everybody writes a list in one of two ways, and there may be a thousand messages.
        more = 2 if text.startswith(", {", end) else 1 if text.startswith(",{", end) else 0
        at = end + more if more else _next(text, end, "]")
    return items, spans, at + 1


def _next(text: str, at: int, closing: str) -> int:
    """Where the next item starts, or the closing bracket stands."""
    at = _skip(text, at)
    if text[at] == closing:
        return at
    at = _skip(text, at, ",")
    if text[at] == closing:
        raise ValueError("a comma and nothing after it")
    return at


def _skip(text: str, at: int, expected: str = "") -> int:
    """Past blanks; and when a character is expected here after them, past it and the blanks behind it."""
    found = _blank(text, at)
    at = found.end() if found else at
    if not expected:
        return at
    if text[at] != expected:
        raise ValueError(f"no {expected} here")
    return _skip(text, at + 1)
