"""A summary as text: headings, lines, citations; and an earlier summary read back.

Owns: the headings and their order, what a line looks like, and the lines taken over from an earlier summary.
Must never: choose, or write a line without saying where it stood when that is known.

- A line ends with the session positions it comes from: `[#12]`, or `[#12-18]`.
- What stood side by side stands side by side; ` … ` marks what was left out between.
- Short lines of neighbouring messages share a line, and a citation that names the stretch.
- What a tool said stands under `Tools said` and nowhere else, fold after fold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .._facts.citations import citing
from .._facts.speech_acts import sorts_of
from .._facts.text import clean, cut, sentences_of
from .pieces import TOOLS, Speaker, Unit

__all__ = ["HEADINGS", "carried_units", "render", "root_of"]

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
_ROOTED = re.compile(rf"{_ROOT}(/\S{{1,400}}/)")


class _Line(NamedTuple):
    text: str
    group: int
    first: int
    last: int

    def __str__(self) -> str:
        return citing(self.text, self.first, self.last)


def render(units: Sequence[Unit], chosen: Iterable[int], folder: str = "") -> str:
    """The chosen pieces under their headings, in the order they were said."""
    sections: dict[str, list[Unit]] = {name: [] for name in HEADINGS}
    for i in sorted(chosen, key=lambda i: (units[i].group, units[i].place)):
        sections[units[i].section].append(units[i])
    out: list[str] = []
    for name, members in sections.items():
        if members:
            lines = _lines(members)
            out += [name, *map(str, lines if name in _ROWS else _shared(lines))]
    if folder and out:
        out.insert(0, f"{_ROOT}{folder}")
    return "\n".join(out)


def root_of(previous: str) -> str:
    """The folder that an earlier summary gives its paths from; empty when it names none."""
    found = _ROOTED.fullmatch(previous.split("\n", 1)[0].strip())
    return found[1] if found else ""


def carried_units(previous: str) -> list[Unit]:
    """The lines of an earlier summary under the headings they had, in groups below zero: they come first."""
    section, units = "Earlier", list[Unit]()
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
        if not body or body.capitalize() in HEADINGS or (number == 0 and root_of(previous)):
            continue  # a bullet that reads like a heading would be one in the next summary
        under = TOOLS if _TOOL_SAID.search(body) and section not in _ROWS else section
        place = 0
        for part in [body] if under in _ROWS else body.split(_GAP):
            # Cut, a row would lose its form, and a tool's words the label that says whose they are.
            for text in [cut(part, 2 * _SHARED)] if under in _ROWS or under == TOOLS else sentences_of(part):
                speaker = _SPEAKER.get(under, "assistant")
                sorts: frozenset[str] = frozenset() if speaker in ("tool", "pasted") else sorts_of(text)
                units.append(Unit(text, under, speaker, group, place, first, last, sorts, len(body), carried=True))
                place += 1
            place += 1
    return units


def _lines(units: Sequence[Unit]) -> Iterator[_Line]:
    """One line for each message."""
    line: _Line | None = None
    place = 0
    for unit in units:
        if line and unit.group == line.group and len(line.text) + len(unit.text) <= _SHARED:
            gap = " " if unit.place == place + 1 else _GAP
            line = line._replace(text=f"{line.text}{gap}{unit.text}")
        else:
            if line:
                yield line
            line = _Line(unit.text, unit.group, unit.first, unit.last)
        place = unit.place
    if line:
        yield line


def _shared(lines: Iterable[_Line]) -> Iterator[_Line]:
    """Short neighbours on one line."""
    held: _Line | None = None
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
