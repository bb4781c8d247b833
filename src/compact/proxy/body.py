"""A request's JSON body with the position of every field and message in its text.

Owns: `Body`. Must never: validate what it reads, or serialize a kept message again: kept messages are sent byte for
byte, with the client's numbers, escapes and order of fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TextRange = tuple[int, int]
"""Start and end of a value in the text."""

_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_blank = re.compile(r"[ \t\n\r]*").match


@dataclass(frozen=True, slots=True)
class Body:
    """A JSON object with a list of messages in one of its fields."""

    text: str
    size: int
    """Bytes of the body. A text never has more tokens than bytes; it may have more tokens than characters."""
    fields: Mapping[str, Any]
    places: Mapping[str, TextRange]
    """The range of each field's value."""
    messages: list[Any]
    spans: list[TextRange]
    """The range of each message."""

    @classmethod
    def read(cls, raw: bytes, listed: str) -> Body | None:
        """Parse a body; None when it is invalid, or has no list of objects in the field `listed`."""
        try:
            return _parse(raw.decode("utf-8"), len(raw), listed)
        except (ValueError, StopIteration, IndexError, RecursionError):
            return None  # the upstream reports what is wrong with it

    def slice(self, span: TextRange) -> bytes:
        """The bytes in a range."""
        return self.text[span[0] : span[1]].encode()

    @property
    def ending(self) -> bytes:
        """The bytes after the last message."""
        return self.slice((self.spans[-1][1], len(self.text)))

    def with_messages(self, messages: Sequence[Any]) -> bytes:
        """The same body with these messages; those that it has already stay byte for byte."""
        known = {id(message): span for message, span in zip(self.messages, self.spans, strict=True)}
        listed = (
            self.text[known[id(message)][0] : known[id(message)][1]] if id(message) in known else json.dumps(message)
            for message in messages
        )
        start, end = self.places[_LISTED]
        return "".join((self.text[:start], "[", ",".join(listed), "]", self.text[end:])).encode()


_LISTED = ""
"""The key of the list's range in `places`; no field of an API has this name."""


def _parse(text: str, size: int, listed: str) -> Body | None:
    fields: dict[str, Any] = {}
    places: dict[str, TextRange] = {}
    spans: list[TextRange] = []
    at = _skip(text, 0, "{")
    while text[at] != "}":
        name, at = _scan(text, at)
        at = _skip(text, _skip(text, at), ":")
        if not isinstance(name, str) or name in fields or name == _LISTED:
            return None  # a field twice: parsers differ in which one they use
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


def _items(text: str, at: int) -> tuple[list[Any], list[TextRange], int]:
    """The items of the list that starts here, their ranges, and where the list ends."""
    items: list[Any] = []
    spans: list[TextRange] = []
    at = _skip(text, at, "[")
    while text[at] != "]":
        item, end = _scan(text, at)
        items.append(item)
        spans.append((at, end))
        # Most clients write a list in one of two ways, and there may be a thousand messages.
        more = 2 if text.startswith(", {", end) else 1 if text.startswith(",{", end) else 0
        at = end + more if more else _next(text, end, "]")
    return items, spans, at + 1


def _next(text: str, at: int, closing: str) -> int:
    """The position of the next item, or of the closing bracket."""
    at = _skip(text, at)
    if text[at] == closing:
        return at
    at = _skip(text, at, ",")
    if text[at] == closing:
        raise ValueError("a comma and nothing after it")
    return at


def _skip(text: str, at: int, expected: str = "") -> int:
    """The position after blanks; with `expected`, after that character and the blanks that follow it."""
    found = _blank(text, at)
    at = found.end() if found else at
    if not expected:
        return at
    if text[at] != expected:
        raise ValueError(f"no {expected} here")
    return _skip(text, at + 1)
