"""Everything a session remembers.

Owns: `Session`, and the history of its folds. Must never: do I/O, decide, or keep a message text of its own.

A session follows up to two lists, the one that came in and the one that went out, and drops the one that the host did
not choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .._conversation.message import History
from .._conversation.tokens import TokenCounter
from .._facts.report import Report
from .entries import KEPT_RECORDS, Entry, FoldReplay, Memory, Reader
from .host_list import HostList, rounds_of
from .states import StateMachine

if TYPE_CHECKING:
    from .._compaction.plan import Plan
    from .._pipeline.job import Outcome

__all__ = ["FoldRecord", "Ledger", "Prepared", "Session"]


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


@dataclass(frozen=True, slots=True)
class Prepared:
    """A fold that was made ahead of need: its transcript is archived, and nobody knows of it yet."""

    outcome: Outcome
    fold: FoldRecord
    record: FoldReplay
    shadow: Session
    """What the fold was made on."""
    waited: float = 0.0
    """Seconds that the call which uses it had to wait for it."""


class Session:
    """Everything remembered of one session. Its lock is the manager's business."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.machine = StateMachine()
        self.step = 0
        self.version = 0
        self.tracks: list[HostList] = []
        self.memory = Memory()
        self.folds: list[FoldRecord] = []
        self.reader: Reader | None = None
        self.factor: float | None = None
        self.sent = 0
        self.unseen = 0
        """Tokens the provider counts that we never see: tools or instructions the host does not pass."""
        self.prepare_from = 0
        """Tokens below which no fold is made ahead of need: something new must have come since the last one."""
        self.pressed = False
        self.failed_at: tuple[bytes, ...] | None = None
        """The messages of a fold whose answers could not be used: nobody asks again until something new can fold."""
        self.warned: set[str] = set()
        self.tools: tuple[TokenCounter, Any, int, int] | None = None
        self.ledger = Ledger()

    def track(
        self, messages: Sequence[Any], reader: Reader, tools: Sequence[Any] | None, *, peek: bool = False
    ) -> HostList:
        """The track of this list, brought up to date; with `peek`, a copy that leaves no trace."""
        chosen, same = self._choose(messages)
        if peek:
            counted_alike = self.reader is not None and reader.tally is self.reader.tally
            chosen, same = (chosen.clone(), same) if counted_alike else (HostList(self.memory), 0)
        track = chosen
        if not reader.settled and reader.settle(messages[same:], tools):
            track, same = HostList(self.memory), 0
        track.follow(messages, same, reader)
        track.unread += 1
        if track.unread > max(64, len(track.entries) // 4):
            track.reread(messages, reader)
        if not track.searched and (self.memory.records or self.memory.lists):
            track.recall()
        if not peek:
            self.tracks = [track]
        return track

    def _choose(self, messages: Sequence[Any]) -> tuple[HostList, int]:
        for track in self.tracks:
            if track.continues(messages):
                return track, len(track.entries)
        best, same = HostList(self.memory), 0
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
        elif len(plan.folds) == 1 and outcome.setting.get("layout") != "in_place":
            # One summary for all that is old, also for a pair that was kept and will fold into it later.
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

    def commit(self, track: HostList, fold: FoldRecord, record: FoldReplay, outcome: Outcome) -> None:
        """A fold has left: follow both the list the host has and the one it was given."""
        self._know(fold, record, outcome)
        rounds = rounds_of(outcome.entries)
        track.attach(record, record.size)
        track.rest_here(rounds)
        given = HostList.given(outcome.raws, outcome.entries, track.next_position, self.memory)
        given.rest_here(rounds)
        self.tracks = [given, track]

    def _know(self, fold: FoldRecord, record: FoldReplay, outcome: Outcome) -> None:
        for entry in outcome.entries:
            if entry.summary:
                self.memory.sign(entry.message, entry.position)
        self.memory.remember(record)
        self.memory.gone_calls |= outcome.abandoned
        self._in_force(fold)

    def _in_force(self, fold: FoldRecord) -> None:
        self.step, self.version = max(self.step, fold.step), max(self.version, fold.version)
        self.ledger.in_force = fold.step
        if self.folds and (report := self.folds[-1].report):
            self.folds[-1] = replace(self.folds[-1], report=report.in_short())
        self.folds.append(fold)

    # -- folds made elsewhere ----------------------------------------------------------------------------------------

    def shadow(self, reader: Reader) -> Session:
        """The session as it is now, for a fold that is made beside it. It reads what this one remembers."""
        other = Session(self.id)
        other.step, other.version, other.memory, other.reader = self.step, self.version, self.memory, reader
        other.folds, other.ledger = list(self.folds), replace(self.ledger)
        other.pressed, other.failed_at, other.warned = self.pressed, self.failed_at, {*self.warned, "cannot_fit"}
        return other

    def still(self, shadow: Session) -> bool:
        """Whether no fold was made, undone or learned of since the shadow was taken."""
        return (self.version, self.ledger.in_force) == (shadow.version, shadow.ledger.in_force)

    def claim(self, prepared: Prepared) -> None:
        """The archive is about to be told of a fold made ahead: it belongs to the transcript written then."""
        made = prepared.shadow.ledger
        self.ledger.transcript, self.ledger.previous = made.transcript, made.previous

    def swap_in(self, prepared: Prepared) -> None:
        """A fold made ahead is in force from now on, wherever a list begins with what it consumed."""
        self._know(prepared.fold, prepared.record, prepared.outcome)
        for track in self.tracks:
            track.look_again()

    def adopt(self, fold: FoldRecord, record: FoldReplay, gone_calls: Iterable[str]) -> FoldRecord | None:
        """Know a fold that another process made. Of two folds of the same messages that one stays; returns ours.

        A fold of fewer messages than one of ours is known too, and ours stays in force.
        """
        same = [known for known in self.memory.records if known.reach_chain == record.reach_chain]
        lost = next((fold for fold in self.folds if fold.step in {known.step for known in same}), None)
        others = [known for known in self.memory.records if known not in same]
        at = 1 + max((i for i, known in enumerate(others) if known.reach <= record.reach), default=-1)
        self.memory.records = [*others[:at], record, *others[at:]][-KEPT_RECORDS:]
        self.memory.gone_calls |= set(gone_calls)
        self.folds = [known for known in self.folds if known is not lost]
        self.step, self.version = max(self.step, fold.step), max(self.version, fold.version)
        if at == len(others):
            self._in_force(fold)
        for track in self.tracks:
            track.look_again()
        return lost
