"""A long text in slices.

Owns: where a text is cut, so that no pattern runs over more than one slice, and where a value ends that is longer than
a pattern reads.
Must never: cut through a secret and let its second half go.

`re` holds the interpreter's lock while it runs: a pattern over a megabyte would stop every other thread and the event
loop with it. So a text is cut where a line ends, or else at a blank, a comma or a quote. Where none is near, as in a
line of base64, the cut may fall into a value: if the slice ends in a secret, the rest of that value is withheld too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .mark import REDACTED

__all__ = ["LARGEST", "in_slices", "whole_value"]

LARGEST = 32_768
"""The most characters a pattern is given at once."""

_SEPARATORS = ("\n\n", "\n", "\\n", '", ', '",', " ", ",", "&", ";")
_REST_OF_VALUE = re.compile(r"[^\s\"'`,;&<>\\]*")
_GOES_ON = re.compile(r"[\w+/=~%-]|[.:](?=\w)")
_SHORTEST_BOUND = 32


def in_slices(text: str, clean: Callable[[str], str], largest: int = LARGEST) -> str:
    """The text cleaned slice by slice."""
    if len(text) <= largest:
        return clean(text)
    return "".join(_cleaned(text, clean, largest))


def _cleaned(text: str, clean: Callable[[str], str], largest: int) -> Iterator[str]:
    at = 0
    while at < len(text):
        end, torn = _cut(text, at, largest)
        piece = clean(text[at:end])
        yield piece
        at = end
        while torn and piece.endswith(REDACTED) and at < len(text):
            rest = _REST_OF_VALUE.match(text, at, at + largest)
            if not rest or not rest[0]:
                break
            at = rest.end()


def whole_value(text: str, start: int, end: int) -> int:
    """Where a value ends that was found from `start` to `end`: a pattern has a bound, and no bound may cut a value."""
    if end - start < _SHORTEST_BOUND or not _GOES_ON.match(text, end):
        return end
    rest = _REST_OF_VALUE.match(text, end)
    return rest.end() if rest else end


def _cut(text: str, at: int, largest: int) -> tuple[int, bool]:
    """Where the slice that starts here ends, and whether a value may go on behind it."""
    end = at + largest
    if end >= len(text):
        return len(text), False
    for separator in _SEPARATORS:
        found = text.rfind(separator, at + largest // 2, end)
        if found >= 0:
            return found + len(separator), False
    return end, True
