"""The lines of a summary: which there are, which of them stay, and how they are written down.

Owns: the headings and what they are worth, the lines taken over from an earlier summary, and the choice within a room.
Must never: look into a message, iterate over a set, or keep a line twice.

Rules:
- Every line ends with the session position it stood at: `[#12]`, or `[#12-18]`.
- The budget goes to the lines of highest value per length. The newest goal is always there.
- Lines of an earlier summary keep their section, come first in it, and are repeated only once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ._evidence import BULLET, WIDTH, WORDS, clean, cut, facts_of, sentences_of

__all__ = ["SECTIONS", "Line", "carried_lines", "choose", "fit", "render", "unique"]

SECTIONS = {
    "Earlier": 2.0, "Brief": 2.0, "Goals": 2.0, "Rules": 3.0, "Decisions": 2.0, "Decision log": 2.0, "Changes": 2.5,
    "Why": 1.5, "Follow-ups": 1.5, "Files": 1.5, "Facts": 1.0, "Errors": 1.5, "Open": 1.2, "Done": 1.0,
}  # fmt: skip
"""Every heading, in the order of the output, with what a line under it is worth."""
_CARRIED = 4.0
"""The speaker's worth for a line of the earlier summary: it has been chosen once."""
_CITED = re.compile(r"\s*\[#(\d+)(?:-(\d+))?\]$")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the summary: `first` and `last` are session positions, below zero when unknown."""

    section: str
    text: str
    value: float
    first: int = -1
    last: int = -1
    facts: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.section == "Decision log":
            return self.text
        span = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"- {self.text}" + (f" [#{span}]" if self.first >= 0 else "")


def carried_lines(previous: str) -> list[Line]:
    """The lines of an earlier summary, under the headings they had; under Earlier where it had none of ours."""
    section, lines = "Earlier", []
    for raw in clean(previous).split("\n"):
        heading = raw.strip(" #*:")
        if heading in SECTIONS:
            section = heading
            continue
        cited = _CITED.search(raw)
        span = (int(cited[1]), int(cited[2] or cited[1])) if cited else (-1, -1)
        body = BULLET.sub("", raw[: cited.start()] if cited else raw, count=1).strip()
        # A line of ours is never split: its second half would lose the words that say whose it is.
        texts = (body,) if 0 < len(body) <= WIDTH else sentences_of(body)
        lines += [Line(section, text, _CARRIED * SECTIONS[section], *span, facts_of(text)) for text in texts]
    return lines


def unique(lines: Iterable[Line]) -> list[Line]:
    """Each thing once, where it was first said; what happened to one file comes together in one line."""
    kept: dict[tuple[str, ...], Line] = {}
    for line in lines:
        path, _, verb = line.text.rpartition(": ")
        files = line.section == "Files" and path != ""
        key = ("Files", path) if files else tuple(WORDS.findall(line.text.lower())) or (line.text,)
        earlier = kept.get(key)
        if earlier is None:
            kept[key] = line
        elif files:
            verbs = dict.fromkeys([*earlier.text.rpartition(": ")[2].split(", "), *verb.split(", ")])
            first = min((p for p in (earlier.first, line.first) if p >= 0), default=-1)
            kept[key] = replace(
                earlier,
                text=f"{path}: {', '.join(verbs)}",
                value=max(earlier.value, line.value),
                first=first,
                last=max(earlier.last, line.last),
            )
    return list(kept.values())


def choose(lines: Sequence[Line], goal: int, room: int, count: Callable[[str], int]) -> list[int]:
    """The lines to keep, best first: the newest goal, then by value per length; a fact line only for a new fact."""
    mentions = Counter(fact for line in lines for fact in line.facts)

    def worth(i: int) -> float:
        line = lines[i]
        return line.value * (1 + sum(min(mentions[f], 3) for f in line.facts[:6]) / 4) / (len(line.text) + 20)

    order = sorted(range(len(lines)), key=lambda i: (i != goal, -worth(i), i))
    chosen: list[int] = []
    there: set[str] = set()
    headings: set[str] = set()
    for _ in range(2):  # lines weigh less together than one by one; the second round spends the difference
        left = room - count(render(lines, chosen))
        later: list[int] = []
        for i in order:
            line = lines[i]
            if line.section == "Facts" and line.first >= 0 and line.facts and there.issuperset(line.facts):
                continue
            if left < 8:
                break
            cost = count(f"{line}\n") + (count(f"{line.section}\n") if line.section not in headings else 0)
            if cost > left:
                later.append(i)
                continue
            left -= cost
            chosen.append(i)
            headings.add(line.section)
            there.update(line.facts)
        order = later
    return chosen


def render(lines: Sequence[Line], chosen: Iterable[int]) -> str:
    """The chosen lines under their headings, each heading with its lines in the order they were found."""
    sections: dict[str, list[str]] = {name: [] for name in SECTIONS}
    for i in sorted(chosen):
        sections[lines[i].section].append(str(lines[i]))
    return "\n".join("\n".join([name, *texts]) for name, texts in sections.items() if texts)


def fit(text: str, limit: int, count: Callable[[str], int]) -> str:
    """The beginning of a text that is within a limit, cut at a word."""
    while text and count(text) > limit:
        text = cut(text, len(text) * 3 // 4) if len(text) > 8 else text[: len(text) // 2]
    return text
