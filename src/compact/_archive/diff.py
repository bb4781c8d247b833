"""What a compaction did to a list, for people: what stayed, what was removed, what replaced it.

Owns: `Diff`, and how it reads. Must never: read the archive; it is made from one record and its transcript.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Literal

from .._conversation.formats import FORMATS, detect
from .._conversation.message import readable_text
from ..errors import InvalidMessage

_PREVIEW = 96
_RUN = 12
"""Folded messages in a row that are shown one by one; of a longer run the first and last few are."""
_ENDS = 4

Mark = Literal[" ", "-", "~", "+"]


@dataclass(frozen=True, slots=True)
class Change:
    """One message: kept (" "), folded ("-"), shortened ("~"), or made by the compaction ("+")."""

    mark: Mark
    position: int
    role: str
    text: str
    """One line; of what was made the whole text."""


@dataclass(frozen=True, slots=True)
class Diff:
    """A compaction as a list of changes, in the order of the list. `print(diff)` shows it."""

    session_id: str
    step: int
    time: float
    reasons: tuple[str, ...]
    note: str | None
    fallback: str | None
    tokens_before: int
    tokens_after: int
    score: float | None
    """How much of what mattered the summaries kept, 0 to 100."""
    changes: tuple[Change, ...]

    def count(self, mark: Mark) -> int:
        """How many messages carry this mark."""
        return sum(change.mark == mark for change in self.changes)

    def __str__(self) -> str:
        return "\n".join([*self._head(), "", *self._body()])

    def _head(self) -> Iterator[str]:
        when = datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        saved = 100 * (self.tokens_before - self.tokens_after) / max(1, self.tokens_before)
        yield f"compaction {self.step} of session {self.session_id!r}, {when}"
        yield f"because  {', '.join(self.reasons)}" + (f" ({self.note})" if self.note else "")
        yield f"tokens   {self.tokens_before:,} -> {self.tokens_after:,} ({saved:.0f} % less)"
        kinds = (" ", "kept"), ("-", "folded"), ("~", "shortened"), ("+", "written")
        yield "messages " + ", ".join(f"{self.count(mark):,} {word}" for mark, word in kinds)  # type: ignore[arg-type]
        if self.score is not None:
            yield f"fidelity {self.score:.0f} of 100"
        if self.fallback:
            yield f"fallback {self.fallback}"

    def _body(self) -> Iterator[str]:
        width = len(str(max((change.position for change in self.changes), default=0))) + 1
        for mark, run in groupby(self.changes, key=lambda change: change.mark):
            lines = [line for change in run for line in _lines(change, width)]
            if mark == "-" and len(lines) > _RUN:
                hidden = len(lines) - 2 * _ENDS
                lines[_ENDS:-_ENDS] = [f"-  {'':{width}} … {hidden:,} more messages folded"]
            yield from lines


def diff_of(record: Mapping[str, Any], transcript: Sequence[Any]) -> Diff:
    """The diff of one compaction, from its record and the transcript before it."""
    message_format = detect(transcript) or FORMATS["openai-chat"]
    positions = record["positions"]
    waiting = [line for line in record["gone"] if line < len(transcript)]

    def change(mark: Mark, position: int, raw: Any) -> Change:
        role, text = _role_and_text(raw, message_format)
        return Change(mark, position, role, text if mark == "+" else _preview(text))

    changes: list[Change] = []

    def add_folded(until: int) -> None:
        """Add the lines before this one that folded."""
        while waiting and waiting[0] < until:
            line = waiting.pop(0)
            changes.append(change("-", positions[line], transcript[line]))

    for slot in record["left"]:
        if isinstance(slot, int):
            add_folded(slot)
            changes.append(change(" ", positions[slot], transcript[slot]))
            continue
        made = record["made"][slot["made"]]
        line = next((n for n in waiting if positions[n] == made["position"]), None)
        if not made["summary"] and line is not None:
            add_folded(line)
            waiting.remove(line)
            changes.append(change("~", positions[line], transcript[line]))
            continue
        add_folded(next((n for n in waiting if positions[n] > made["position"]), len(transcript)))
        changes.append(change("+", made["position"], made["message"]))
    add_folded(len(transcript))
    return Diff(
        session_id=record["session_id"],
        step=record["step"],
        time=record["time"],
        reasons=tuple(record["reasons"]),
        note=record["note"],
        fallback=record["fallback"],
        tokens_before=record["tokens_before"],
        tokens_after=record["tokens_after"],
        score=record["report"]["score"] if record["report"] else None,
        changes=tuple(changes),
    )


def _lines(change: Change, width: int) -> list[str]:
    position = f"#{change.position}"
    if change.mark != "+":
        return [f"{change.mark}  {position:<{width}} {change.role:<9} {change.text}".rstrip()]
    return [f"+  {position:<{width}} {change.role}", *(f"+    {line}".rstrip() for line in change.text.splitlines())]


def _role_and_text(raw: Any, message_format: Any) -> tuple[str, str]:
    try:
        message = message_format.read(raw)
    except InvalidMessage:
        return "?", str(raw)
    return message.role, readable_text(message)


def _preview(text: str) -> str:
    line = " ".join(text[: 4 * _PREVIEW].split())
    return line if len(line) <= _PREVIEW else f"{line[: _PREVIEW - 1]}…"
