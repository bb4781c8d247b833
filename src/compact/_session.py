"""Everything a session remembers.

Owns: `Session`, and the history of its folds. Must never: do I/O, decide, or keep a message text of its own.

A session follows up to two lists, the one that came in and the one that went out, and drops the one that the host did
not choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ._entries import Entry, Memory, Reader, Record
from ._fidelity import Report
from ._messages import History
from ._meter import Tally
from ._states import Machine
from ._track import Track, rounds_of

if TYPE_CHECKING:
    from ._job import Outcome
    from ._plan import Plan

__all__ = ["FoldRecord", "Ledger", "Session"]


@dataclass(frozen=True, slots=True)
class FoldRecord:
    """A fold in the session's history. `range` is the stretch of session positions its summaries stand for."""

    step: int
    version: int
    reasons: tuple[str, ...]
    range: tuple[int, int]
    folded: int
    tokens_before: int
    tokens_after: int
    fallback: str | None = None
    note: str | None = None
    report: Report | None = None
    """What its summaries kept of what mattered, of folds before the newest only the sums; None without a summary."""


@dataclass(slots=True)
class Ledger:
    """How the archive of a session stood when it was last written or read; None where that has to be looked up."""

    in_force: int = 0
    """The newest fold that was not undone."""
    transcript: tuple[int, str] | None = None
    """Step and hash of the newest transcript."""
    previous: str | None = None
    """Hash of the transcript before it."""
    record: tuple[str, str] | None = None
    """Name and hash of the newest record."""
    seen: tuple[int, int, int] = (0, 0, 0)
    """The newest transcript, fold and undo that this process knows of: others mean that somebody else wrote."""


class Session:
    """Everything remembered of one session. Its lock is the manager's business."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.machine = Machine()
        self.step = 0
        self.version = 0
        self.tracks: list[Track] = []
        self.memory = Memory()
        self.folds: list[FoldRecord] = []
        self.reader: Reader | None = None
        self.factor: float | None = None
        self.sent = 0
        self.unseen = 0
        """Tokens the provider counts that we never see: tools or instructions the host does not pass."""
        self.pressed = False
        self.failed_at: tuple[bytes, ...] | None = None
        """The messages of a fold whose answers could not be used: nobody asks again until something new can fold."""
        self.warned: set[str] = set()
        self.tools: tuple[Tally, Any, int, int] | None = None
        self.ledger = Ledger()

    def track(
        self, messages: Sequence[Any], reader: Reader, tools: Sequence[Any] | None, *, peek: bool = False
    ) -> Track:
        """The track of this list, brought up to date; with `peek`, a copy that leaves no trace."""
        chosen, same = self._choose(messages)
        if peek:
            counted_alike = self.reader is not None and reader.tally is self.reader.tally
            chosen, same = (chosen.clone(), same) if counted_alike else (Track(self.memory), 0)
        track = chosen
        if not reader.settled and reader.settle(messages[same:], tools):
            track, same = Track(self.memory), 0
        track.follow(messages, same, reader)
        track.unread += 1
        if track.unread > max(64, len(track.entries) // 4):
            track.reread(messages, reader)
        if not track.searched and (self.memory.records or self.memory.lists):
            track.recall()
        if not peek:
            self.tracks = [track]
        return track

    def _choose(self, messages: Sequence[Any]) -> tuple[Track, int]:
        for track in self.tracks:
            if track.continues(messages):
                return track, len(track.raws)
        best, same = Track(self.memory), 0
        for track in self.tracks:
            common = track.common(messages)
            if common > same:
                best, same = track, common
        return best, same

    def history(self, entries: Sequence[Entry], pinned_roles: Iterable[str]) -> History:
        """Entries as the core's value."""
        return History(
            [entry.message for entry in entries],
            [entry.tokens for entry in entries],
            [entry.position for entry in entries],
            frozenset(i for i, entry in enumerate(entries) if entry.summary),
            frozenset(pinned_roles),
            self.reader.tally.count if self.reader is not None else len,
        )

    def fold_record(self, reasons: tuple[str, ...], note: str | None, plan: Plan, outcome: Outcome) -> FoldRecord:
        """The fold as the session's history keeps it."""
        history = outcome.history
        assert history is not None
        folded = [history.positions[i] for i in (plan.folded or {clip.index for clip in plan.clips})]
        start = min(folded)
        if history.summaries & plan.folded and self.folds:
            start = self.folds[-1].range[0]
        elif len(plan.folds) == 1 and plan.folds[0].indices != tuple(range(min(plan.folded), max(plan.folded) + 1)):
            start = min(p for i, p in enumerate(history.positions) if i not in history.pinned)
        if self.folds and start < self.folds[-1].range[0] <= max(folded):
            start = self.folds[-1].range[0]  # a run that an earlier fold left as too short, gone at last
        return FoldRecord(
            step=outcome.step,
            version=outcome.version,
            reasons=reasons,
            range=(start, max(folded)),
            folded=len(plan.folded),
            tokens_before=outcome.tokens_before,
            tokens_after=outcome.tokens_after,
            fallback=outcome.fallback,
            note=note,
            report=outcome.report,
        )

    def commit(self, track: Track, fold: FoldRecord, record: Record, outcome: Outcome) -> None:
        """A fold has left: follow both the list the host has and the one it was given."""
        for entry in outcome.entries:
            if entry.summary:
                self.memory.sign(entry.message, entry.position)
        self.step, self.version = fold.step, fold.version
        self.ledger.in_force = fold.step
        if self.folds and (report := self.folds[-1].report):
            self.folds[-1] = replace(self.folds[-1], report=report.in_short())
        self.folds.append(fold)
        self.memory.remember(record)
        self.memory.gone_calls |= outcome.abandoned
        rounds = rounds_of(outcome.entries)
        track.attach(record, record.size)
        track.rest_here(rounds)
        given = Track.given(outcome.raws, outcome.entries, track.next_position, self.memory)
        given.rest_here(rounds)
        self.tracks = [given, track]
