"""A call under way, as a value.

Owns: `Call`, from the list a host passed to the fold it will commit, and `Terms`, what calls have in common.
Must never: read a host's list, wake a session, do I/O, or emit an event: `_engine.open_call` puts a call together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .._compaction.trigger import Decision, decide
from .._conversation.tokens import TokenCounter
from .._engine.live_sessions import LiveSession
from .._session.entries import FoldReplay, Reader
from .._session.host_list import HostList
from .._session.session import FoldRecord
from ..config import CompactConfig
from ..config.limits import Limits
from .job import Job, Outcome

__all__ = ["Call", "Terms", "growth"]


class Terms(NamedTuple):
    """What holds for all calls that ask for the same model, window and room for output under one configuration."""

    config: CompactConfig
    asked: tuple[str | None, int | None, int | None]
    named: str
    """The model."""
    tally: TokenCounter
    lines: Limits


@dataclass(slots=True)
class Call:
    """One call under way: what it is judged on, and the job it becomes when a fold is due. Most never do."""

    to_job: Callable[[Call], Job]
    """Makes it the flow's value."""
    terms: Terms
    room: LiveSession
    track: HostList
    messages: Sequence[Any]
    tools_cost: int
    factor: float
    decision: Decision
    lines: Limits
    reader: Reader
    made: Job | None = None
    fold: tuple[FoldRecord, FoldReplay] | None = None
    """What it will commit."""
    again: bool = False
    """Whether it is opened anew because the session had changed under it."""
    swapped: bool = False
    """Whether a fold that was made ahead of need went into force in this call."""

    @property
    def job(self) -> Job:
        """What the flow is given."""
        if self.made is None:
            self.made = self.to_job(self)
        return self.made

    def change(self, **changes: Any) -> None:
        """Make the job another one."""
        self.made = replace(self.job, **changes)

    def forced(self, reason: str, **changes: Any) -> Call:
        """The same call as a fold that was asked for."""
        self.change(forced=True, **changes)
        job = self.job
        self.track.reread(self.messages, job.reader)
        usage = self.track.usage(self.tools_cost).scaled(job.factor)
        self.lines = job.lines
        self.decision = decide(usage, self.track.counters(), job.policy, job.lines, forced=reason)
        self.change(decision=self.decision)
        return self

    def once_more(self) -> Call:
        """The same call on a session that was read back anew."""
        self.again = True
        self.change(again=True)
        return self

    def keep(self, outcome: Outcome) -> tuple[FoldRecord, FoldReplay]:
        """What a fold leaves in the session's history, and what replays it: to be committed."""
        assert outcome.plan is not None
        job, track = self.job, self.track
        if job.prepared is not None:
            job.session.claim(job.prepared)
            self.fold = job.prepared.fold, job.prepared.record
        else:
            record = track.record_of(outcome.slots, outcome.gone, outcome.step, outcome.version)
            self.fold = job.session.fold_record(job.decision.reasons, job.note, outcome.plan, outcome), record
        return self.fold

    @property
    def early(self) -> bool:
        """Whether nothing is due and a fold should be made ahead of need."""
        line = self.lines.prepare
        if line is None or self.decision or self.decision.usage.total < max(line, self.room.session.prepare_from):
            return False
        return self.room.preparation is None or self.room.preparation.failed

    def ahead(self) -> Call:
        """The list as it is now, to be folded ahead of need: on a shadow of the session, so that nobody waits."""
        job, track, messages = self.job, self.track.clone(), list(self.messages)
        for entry in track.entries:
            entry.content()  # now, since the host may go on writing on its messages
        reader = job.reader.with_tally(job.reader.tally)
        room = LiveSession(job.session.id)
        room.session = job.session.shadow(reader)
        lines, total = job.lines, job.usage.total
        decision = Decision(("prepare",), job.usage, lines.window, lines.trigger)
        job = replace(
            job,
            session=room.session,
            reader=reader,
            decision=decision,
            outgoing=lambda: track.outgoing(messages),
            again=True,
            # The call that crosses the trigger lands somewhere above it.
            ahead=lines.trigger - total + min(growth(lines), total // 4),
        )
        return replace(self, room=room, track=track, messages=messages, decision=decision, made=job)


def growth(lines: Limits) -> int:
    """The tokens by which a list must have grown since a fold before the next one is made ahead of need."""
    return lines.window // 20
