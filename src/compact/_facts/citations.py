"""Where a line of a summary comes from: `[#12]`, `[#12-18]`.

Owns: how a citation is written and read. Must never: know what was folded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["cited", "citing", "spans", "uncited", "unciting"]

_CITED = re.compile(r"\[#\d{1,9}(?:(?: ?[-–] ?|, ?)#?\d{1,9})*\]")
_TO = r"\s{0,3}(?:[-–—]|\.\.|to)\s{0,3}#?"
_MARKED = re.compile(rf"#\d{{1,9}}(?:(?:{_TO}|,\s{{0,3}}#?)\d{{1,9}})*(?!\d)")
_SPAN = re.compile(rf"(?<!\d)(\d{{1,9}})(?!\d)(?:{_TO}(\d{{1,9}})(?!\d))?")


def citing(text: str, first: int, last: int) -> str:
    """A line with the session positions it comes from; as it is where they are unknown, below zero."""
    if first < 0:
        return text
    return f"{text} [#{first}]" if first == last else f"{text} [#{first}-{last}]"


def cited(text: str) -> Iterator[tuple[str, tuple[tuple[int, int], ...]]]:
    """The citations in a text, each with the stretches of session positions it names."""
    for found in _CITED.finditer(text):
        spans = _SPAN.findall(found.group())
        yield found.group(), tuple((int(first), int(last or first)) for first, last in spans)


def spans(text: str) -> list[tuple[int, int]]:
    """The stretches of session positions that somebody names, first and last of each, however they are written.

    Citations in brackets count alone; where there are none, what stands behind a `#` does; else every number.
    """
    named = _CITED.findall(text) or _MARKED.findall(text) or [text]
    found = (span for one in named for span in _SPAN.findall(one))
    return [(min(ends), max(ends)) for first, last in found for ends in [(int(first), int(last or first))]]


def unciting(text: str) -> str:
    """Somebody's words without anything that could pass for a citation of ours."""
    return _CITED.sub(lambda found: f"({found.group()[1:-1]})", text) if "[#" in text else text


def uncited(text: str) -> str:
    """The text without its citations."""
    return _CITED.sub("", text)
