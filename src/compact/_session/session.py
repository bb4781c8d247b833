"""What is remembered of one session between calls.

Owns: `Session`, the records of its compactions, and how it takes over what a compaction changed.
Must never: do I/O, decide whether to compact, or hold a copy of a message's text.

After a compaction a session follows two lists, the one that came in and the one that went out, and drops the one that
the application does not pass again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._conversation.message import History
from .._conversation.tokens import TokenCounter
from .._facts.report import Report
from .entries import KEPT_REPLAYS, Entry, FoldReplay, Memory, Reader
from .host_list import HostList, count_rounds
from .states import StateMachine


@dataclass(frozen=True, slots=True)
class FoldRecord:
    """One compaction in the session's history. `range` are the session positions its summaries stand for."""

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
    """What its summaries kept, for older compactions only the sums; None without a summary."""


@dataclass(frozen=True, slots=True)
class SessionChange:
    """What a compaction changes in its session."""

    fold: FoldRecord
    replay: FoldReplay
    raws: list[Any]
    """The list that goes out, as objects of the application."""
    entries: list[Entry]
    """The same list, as entries."""
    abandoned: frozenset[str] = frozenset()
    """Ids of calls that got no result and are not waited for."""


@dataclass(slots=True)
class ArchiveState:
    """The archive of a session as this process last wrote or read it; None where it has to be looked up."""

    active_step: int = 0
    """The newest compaction that is not undone."""
    transcript: tuple[int, str] | None = None
    """Step and hash of the newest transcript."""
    previous: str | None = None
    """Hash of the transcript before it."""
    record: tuple[str, str] | None = None
    """Name and hash of the newest record."""
    known: tuple[int, int, int] = (0, 0, 0)
    """The newest transcript, compaction and undo that this process knows; others mean that another process wrote."""


class Session:
    """Everything remembered of one session. The engine holds its lock."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.machine = StateMachine()
        self.step = 0
        self.version = 0
        self.lists: list[HostList] = []
        self.memory = Memory()
        self.folds: list[FoldRecord] = []
        self.reader: Reader | None = None
        self.factor: float | None = None
        """Tokens that the provider counts for each token that we count; None before it reported."""
        self.sent_tokens = 0
        """What we counted for the last request."""
        self.unseen_tokens = 0
        """Tokens that the provider counts and we never see: tools or instructions that are not passed to us."""
        self.prepare_from = 0
        """Tokens below which no background compaction starts: the list must have grown since the last one."""
        self.above_trigger = False
        """Whether the last compaction could not get below the trigger."""
        self.failed_fold: tuple[bytes, ...] | None = None
        """The messages of a compaction whose answers were unusable: it is not tried again before others can fold."""
        self.warned: frozenset[str] = frozenset()
        """Codes of warnings that are given once per session."""
        self.tools: tuple[TokenCounter, Any, int, int] | None = None
        self.archive_state = ArchiveState()

    def follow(
        self, messages: Sequence[Any], reader: Reader, tools: Sequence[Any] | None, *, peek: bool = False
    ) -> HostList:
        """The list as last seen, brought up to date; with `peek`, a copy, and the session stays as it is."""
        chosen, same = self._choose_list(messages)
        if peek:
            counted_alike = self.reader is not None and reader.counter is self.reader.counter
            chosen, same = (chosen.clone(), same) if counted_alike else (HostList(self.memory), 0)
        followed = chosen
        if not reader.settled and reader.settle(messages[same:], tools):
            followed, same = HostList(self.memory), 0
        followed.follow(messages, same, reader)
        followed.unread += 1
        if followed.unread > max(64, len(followed.entries) // 4):
            followed.reread(messages, reader)
        if not followed.searched and (self.memory.replays or self.memory.lists):
            followed.find_replay()
        if not peek:
            self.lists = [followed]
        return followed

    def _choose_list(self, messages: Sequence[Any]) -> tuple[HostList, int]:
        for known in self.lists:
            if known.is_continued_by(messages):
                return known, len(known.entries)
        best, same = HostList(self.memory), 0
        for known in self.lists:
            common = known.common_prefix(messages)
            if common > same:
                best, same = known, common
        return best, same

    def history(self, entries: Sequence[Entry], pinned_roles: Iterable[str]) -> History:
        """Entries as the conversation that the rules of compaction work on."""
        return History(
            [entry.message for entry in entries],
            [entry.tokens for entry in entries],
            [entry.position for entry in entries],
            frozenset(i for i, entry in enumerate(entries) if entry.summary),
            frozenset(pinned_roles),
            self.reader.counter.count if self.reader is not None else len,
        )

    def commit(self, host_list: HostList, change: SessionChange) -> None:
        """Take a compaction over; from now on follow the list of the application and the one it was given."""
        self._remember(change)
        rounds = count_rounds(change.entries)
        host_list.attach(change.replay, change.replay.size)
        host_list.reset_counters(rounds)
        output = HostList.of_output(change.raws, change.entries, host_list.next_position, self.memory)
        output.reset_counters(rounds)
        self.lists = [output, host_list]

    def _remember(self, change: SessionChange) -> None:
        for entry in change.entries:
            if entry.summary:
                self.memory.sign(entry.message, entry.position)
        self.memory.remember(change.replay)
        self.memory.gone_calls |= change.abandoned
        self._activate(change.fold)

    def _activate(self, fold: FoldRecord) -> None:
        self.step, self.version = max(self.step, fold.step), max(self.version, fold.version)
        self.archive_state.active_step = fold.step
        if self.folds and (report := self.folds[-1].report):
            self.folds[-1] = replace(self.folds[-1], report=report.in_short())
        self.folds.append(fold)

    # -- compactions made elsewhere ----------------------------------------------------------------------------------

    def shadow(self, reader: Reader) -> Session:
        """A copy for a background compaction. It shares the memory of this session."""
        other = Session(self.id)
        other.step, other.version, other.memory, other.reader = self.step, self.version, self.memory, reader
        other.folds, other.archive_state = list(self.folds), replace(self.archive_state)
        other.above_trigger, other.failed_fold = self.above_trigger, self.failed_fold
        other.warned = self.warned | {"cannot_fit"}
        return other

    def is_unchanged_since(self, shadow: Session) -> bool:
        """Whether no compaction was made, undone or adopted since the shadow was taken."""
        mine, its = self.archive_state, shadow.archive_state
        return (self.version, mine.active_step) == (shadow.version, its.active_step)

    def claim_transcript(self, shadow: Session) -> None:
        """The next record belongs to the transcript that a background compaction wrote."""
        state, its = self.archive_state, shadow.archive_state
        state.transcript, state.previous = its.transcript, its.previous

    def activate_prepared(self, change: SessionChange) -> None:
        """Use a background compaction from now on, wherever a list begins with what it replaced."""
        self._remember(change)
        for known in self.lists:
            known.search_again()

    def adopt(self, fold: FoldRecord, replay: FoldReplay, gone_calls: Iterable[str]) -> FoldRecord | None:
        """Take over a compaction of another process. Of two compactions of the same messages that one stays.

        Returns ours that gave way. A compaction of fewer messages than one of ours is remembered too, and ours stays
        active.
        """
        same = [known for known in self.memory.replays if known.reach_chain == replay.reach_chain]
        lost = next((fold for fold in self.folds if fold.step in {known.step for known in same}), None)
        others = [known for known in self.memory.replays if known not in same]
        at = 1 + max((i for i, known in enumerate(others) if known.reach <= replay.reach), default=-1)
        self.memory.replays = [*others[:at], replay, *others[at:]][-KEPT_REPLAYS:]
        self.memory.gone_calls |= set(gone_calls)
        self.folds = [known for known in self.folds if known is not lost]
        self.step, self.version = max(self.step, fold.step), max(self.version, fold.version)
        if at == len(others):
            self._activate(fold)
        for known in self.lists:
            known.search_again()
        return lost
