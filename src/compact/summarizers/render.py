"""A summary as text: headings, lines, citations; and reading an earlier summary back.

Owns: the headings and their order, the form of a line, and the pieces of an earlier summary.
Must never: choose pieces, or write a line without its citation when its position is known.

- A line ends with the session positions it comes from: `[#12]`, or `[#12-18]`.
- Neighbouring pieces stay neighbours; ` … ` marks an omission between two.
- Short lines of neighbouring messages share a line, and a citation that names the range.
- What a tool said stands under `Tools said` only, in every later summary too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .._facts.citations import add_citation
from .._facts.speech_acts import speech_acts_of
from .._facts.text import clean, cut, sentences_of
from .pieces import TOOLS, Speaker, TextPiece

HEADINGS = (
    "Earlier", "Brief", "Goals", "Rules", "Said", "Decisions", "Decision log", "Changes", "Why", "Follow-ups", "Done",
    "Running", "Entities", "Files", "Errors", "Open", "Facts", "Pasted", TOOLS,
)  # fmt: skip
"""Every heading, in the order of the output; the built-in summarizer does not write all of them, models do."""

_SPEAKER: dict[str, Speaker] = {
    "Goals": "user", "Rules": "user", "Why": "user", "Brief": "user", "Earlier": "user", "Said": "user",
    "Pasted": "pasted", TOOLS: "tool",
}  # fmt: skip
_ROWS = ("Brief", "Decision log", "Changes")
"""Sections with a line for each piece."""
_GAP = " … "
_SHARED = 400
"""Characters up to which lines of neighbouring messages share a line."""
_NEAR = 8
"""How far apart such messages may be."""
_CITED = re.compile(r"\s*\[#(\d{1,9})(?:-#?(\d{1,9}))?\]$")
_BULLET = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+")
_HEADING = re.compile(r"[\s#*]*([A-Za-z][A-Za-z -]{1,30}?)[\s:*]*")
_TOOL_SAID = re.compile(r"\btools? (?:said|says|reported|returned)\b", re.I)
_ROOT = "Paths are from "
_ROOT_LINE = re.compile(rf"{_ROOT}(/\S{{1,400}}/)")


class _SummaryLine(NamedTuple):
    text: str
    group: int
    first: int
    last: int

    def __str__(self) -> str:
        return add_citation(self.text, self.first, self.last)


def render(pieces: Sequence[TextPiece], chosen: Iterable[int], folder: str = "") -> str:
    """The chosen pieces under their headings, in the order they were said."""
    sections: dict[str, list[TextPiece]] = {name: [] for name in HEADINGS}
    for i in sorted(chosen, key=lambda i: (pieces[i].group, pieces[i].place)):
        sections[pieces[i].section].append(pieces[i])
    out: list[str] = []
    for name, members in sections.items():
        if members:
            lines = _message_lines(members)
            out += [name, *map(str, lines if name in _ROWS else _join_short_lines(lines))]
    if folder and out:
        out.insert(0, f"{_ROOT}{folder}")
    return "\n".join(out)


def read_common_folder(previous: str) -> str:
    """The folder that the paths of an earlier summary are relative to; empty when it names none."""
    found = _ROOT_LINE.fullmatch(previous.split("\n", 1)[0].strip())
    return found[1] if found else ""


def read_summary(previous: str) -> list[TextPiece]:
    """The lines of an earlier summary under the headings they had, in groups below zero: they come first."""
    section, pieces = "Earlier", list[TextPiece]()
    lines = [line for line in clean(previous).split("\n") if line.strip()]
    for number, raw in enumerate(lines):
        group = number - len(lines)
        heading = None if _BULLET.match(raw) else _HEADING.fullmatch(raw)
        if heading and heading[1].capitalize() in HEADINGS:
            section = heading[1].capitalize()
            continue
        cited = _CITED.search(raw)
        first, last = (int(cited[1]), int(cited[2] or cited[1])) if cited else (-1, -1)
        body = _BULLET.sub("", raw[: cited.start()] if cited else raw, count=1).strip()
        if not body or body.capitalize() in HEADINGS or (number == 0 and read_common_folder(previous)):
            continue  # a bullet that reads like a heading would be one in the next summary
        under = TOOLS if _TOOL_SAID.search(body) and section not in _ROWS else section
        place = 0
        for part in [body] if under in _ROWS else body.split(_GAP):
            # Split, a row would lose its form, and a tool's words their label.
            for text in [cut(part, 2 * _SHARED)] if under in _ROWS or under == TOOLS else sentences_of(part):
                speaker = _SPEAKER.get(under, "assistant")
                acts: frozenset[str] = frozenset() if speaker in ("tool", "pasted") else speech_acts_of(text)
                pieces.append(TextPiece(text, under, speaker, group, place, first, last, acts, len(body), carried=True))
                place += 1
            place += 1
    return pieces


def _message_lines(pieces: Sequence[TextPiece]) -> Iterator[_SummaryLine]:
    """One line for each message."""
    line: _SummaryLine | None = None
    place = 0
    for piece in pieces:
        if line and piece.group == line.group and len(line.text) + len(piece.text) <= _SHARED:
            gap = " " if piece.place == place + 1 else _GAP
            line = line._replace(text=f"{line.text}{gap}{piece.text}")
        else:
            if line:
                yield line
            line = _SummaryLine(piece.text, piece.group, piece.first, piece.last)
        place = piece.place
    if line:
        yield line


def _join_short_lines(lines: Iterable[_SummaryLine]) -> Iterator[_SummaryLine]:
    """Short neighbours on one line."""
    held: _SummaryLine | None = None
    for line in lines:
        near = held and 0 <= held.last and held.last <= line.first <= held.last + _NEAR
        if held and near and len(held.text) + len(line.text) <= _SHARED:
            held = held._replace(text=f"{held.text}{_GAP}{line.text}", last=line.last)
            continue
        if held:
            yield held
        held = line
    if held:
        yield held
