"""Citations: which messages a line of a summary comes from, `[#12]` or `[#12-18]`.

Owns: writing and parsing citations.
Must never: decide whether a cited message exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_CITATION = re.compile(r"\[#\d{1,9}(?:(?: ?[-–] ?|, ?)#?\d{1,9})*\]")
_TO = r"\s{0,3}(?:[-–—]|\.\.|to)\s{0,3}#?"
_NUMBER_SIGN = re.compile(rf"#\d{{1,9}}(?:(?:{_TO}|,\s{{0,3}}#?)\d{{1,9}})*(?!\d)")
_SPAN = re.compile(rf"(?<!\d)(\d{{1,9}})(?!\d)(?:{_TO}(\d{{1,9}})(?!\d))?")


def add_citation(text: str, first: int, last: int) -> str:
    """A line with the session positions it comes from; as it is where they are unknown, below zero."""
    if first < 0:
        return text
    return f"{text} [#{first}]" if first == last else f"{text} [#{first}-{last}]"


def parse_citations(text: str) -> Iterator[tuple[str, tuple[tuple[int, int], ...]]]:
    """The citations in a text, each with the ranges of session positions it names."""
    for found in _CITATION.finditer(text):
        spans = _SPAN.findall(found.group())
        yield found.group(), tuple((int(first), int(last or first)) for first, last in spans)


def parse_positions(text: str) -> list[tuple[int, int]]:
    """The ranges of session positions in a text, first and last of each, however they are written.

    Citations in brackets count alone; without any, numbers behind a `#` do; else every number.
    """
    named = _CITATION.findall(text) or _NUMBER_SIGN.findall(text) or [text]
    found = (span for one in named for span in _SPAN.findall(one))
    return [(min(ends), max(ends)) for first, last in found for ends in [(int(first), int(last or first))]]


def escape_citations(text: str) -> str:
    """The text, with round brackets around anything that reads as a citation."""
    return _CITATION.sub(lambda found: f"({found.group()[1:-1]})", text) if "[#" in text else text


def strip_citations(text: str) -> str:
    """The text without its citations."""
    return _CITATION.sub("", text)
