"""Parts of a text: the mark, the spans that it replaces, and the slices that patterns run over.

Owns: `REDACTED`; replacing spans; where a value ends that is longer than a pattern reads; where a long text is cut.
Must never: import another module of the package, or cut through a secret and keep its second half.

`re` holds the interpreter's lock while it runs: a pattern over a megabyte would stop every other thread and the event
loop. So a text is cut at the end of a line, or else at a space, a comma or a quote. Where none is near, as in a line of
base64, the cut may fall into a value: if the redacted slice ends with the mark, the rest of that value is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

REDACTED = "<REDACTED>"
"""What replaces a secret."""

LARGEST_SLICE = 32_768
"""The most characters a pattern is given at once."""

_SEPARATORS = ("\n\n", "\n", "\\n", '", ', '",', " ", ",", "&", ";")
_REST_OF_VALUE = re.compile(r"[^\s\"'`,;&<>\\]*")
_GOES_ON = re.compile(r"[\w+/=~%-]|[.:](?=\w)")
_SHORTEST_BOUND = 32


class SecretSpan(NamedTuple):
    """A secret from `start` to `end` of a text, and its replacement."""

    start: int
    end: int
    mark: str = REDACTED


def replace_spans(text: str, spans: list[SecretSpan]) -> str:
    """The text with its spans replaced, which are in order and do not overlap; the same object when there are none."""
    if not spans:
        return text
    parts: list[str] = []
    done = 0
    for start, end, mark in spans:
        parts += text[done:start], mark
        done = end
    return "".join([*parts, text[done:]])


def end_of_value(text: str, start: int, end: int) -> int:
    """Where a value really ends that a pattern found from `start` to `end`: the bound of a pattern may cut a value."""
    if end - start < _SHORTEST_BOUND or not _GOES_ON.match(text, end):
        return end
    rest = _REST_OF_VALUE.match(text, end)
    return rest.end() if rest else end


class Slices:
    """A text in slices. Add each slice, redacted, before taking the next one; `join` returns them as one text."""

    __slots__ = ("_largest", "_redacted", "_text")

    def __init__(self, text: str, largest: int = LARGEST_SLICE) -> None:
        self._text = text
        self._largest = largest
        self._redacted: list[str] = []

    def __iter__(self) -> Iterator[str]:
        text, largest = self._text, self._largest
        at = 0
        while at < len(text):
            end, torn = _cut(text, at, largest)
            yield text[at:end]
            at = end
            while torn and at < len(text) and self._redacted[-1].endswith(REDACTED):
                rest = _REST_OF_VALUE.match(text, at, at + largest)
                if not rest or not rest[0]:
                    break
                at = rest.end()

    def add(self, part: str) -> None:
        """Keep a redacted slice."""
        self._redacted.append(part)

    def join(self) -> str:
        """The whole redacted text."""
        return "".join(self._redacted)


def _cut(text: str, at: int, largest: int) -> tuple[int, bool]:
    """Where the slice that starts here ends, and whether a value may continue behind it."""
    end = at + largest
    if end >= len(text):
        return len(text), False
    for separator in _SEPARATORS:
        found = text.rfind(separator, at + largest // 2, end)
        if found >= 0:
            return found + len(separator), False
    return end, True
