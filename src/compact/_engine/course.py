"""The one path a call takes through the library.

Owns: `Course`: run the flow, do what it wants, commit what it did; on a thread or on a loop.
Must never: hold a rule of compaction (what may fold, fail or leave is the core's), or take a session's turn: whoever
calls has taken it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from .._pipeline.effects import Effect, Emit, Refresh, SaveSummary, SaveTranscript, Work, warning
from .._pipeline.events import decision_data, estimate_data
from .._pipeline.fold import flow
from .._pipeline.job import UNCHANGED, Outcome
from .._pipeline.underway import Call, growth
from .._session.make_valid import make_valid
from ..errors import ArchiveError
from ..summarizers import Summarizer
from .live_config import LiveConfig
from .open_call import Desk
from .recorder import EventRecorder
from .run import drive

if TYPE_CHECKING:
    from .background_fold import BackgroundFolds

__all__ = ["Course"]


class Course:
    """Runs calls that are open. One per manager; all methods are called with the session's turn taken."""

    def __init__(
        self, desk: Desk, journal: EventRecorder, parameters: LiveConfig, summarizer: Summarizer | None
    ) -> None:
        self._desk = desk
        self._journal = journal
        self._parameters = parameters
        self._summarizer = summarizer

    def run(self, open_call: Callable[[], Call]) -> Any:
        """The list to send. `open_call` opens the call, and opens it again when the session has changed under it."""
        call = open_call()
        if self._journal.overdue(call.room):
            self._journal.write_events(call.room)
        try:
            while True:
                if call.room.preparation is not None:
                    self._preparations.meet(call)
                if not self._due(call):
                    outcome = UNCHANGED
                    break
                outcome = drive(flow(call.job), partial(self._perform, call), self._summarizer, call.job.summary)
                if not outcome.stale:
                    break
                call = self._reopened(call, outcome, open_call)
        finally:
            self._parameters.settle()
        messages = self._finish(call, outcome)
        if outcome.changed:
            self._journal.write_events(call.room)
        if call.early:
            self._preparations.start(call)
        return messages

    async def arun(self, open_call: Callable[[], Call]) -> Any:
        """`run` for async hosts."""
        import asyncio  # here, because only async hosts need it

        from .run_async import adrive, to_the_end

        call = open_call()
        if self._journal.overdue(call.room):
            await to_the_end(asyncio.to_thread(self._journal.write_events, call.room))
        try:
            while True:
                if call.room.preparation is not None:
                    await self._preparations.ameet(call)
                if not self._due(call):
                    outcome = UNCHANGED
                    break
                outcome = await adrive(flow(call.job), partial(self._perform, call), self._summarizer, call.job.summary)
                if not outcome.stale:
                    break
                call = self._reopened(call, outcome, open_call)
        finally:
            self._parameters.settle()
        messages = self._finish(call, outcome)
        if outcome.changed:
            await to_the_end(asyncio.to_thread(self._journal.write_events, call.room))
        if call.early:
            self._preparations.astart(call)
        return messages

    def _due(self, call: Call) -> bool:
        """Whether the flow has something to do. What the list weighs is told in any case, and that nothing is due."""
        journal, room, due = self._journal, call.room, bool(call.decision)
        if journal.watched:
            terms, decision = call.terms, call.decision
            if not call.again:
                journal.tell(room, "compact.token_estimate", estimate_data(terms.named, decision.usage, call.lines))
            if not due:
                data = decision_data(terms.config.policy, call.lines, decision, "below every threshold")
                journal.tell(room, "compact.trigger_decision", data)
        if not due:
            room.session.machine.need(False)
        return due

    @cached_property
    def _preparations(self) -> BackgroundFolds:
        """Makes folds ahead of need; loaded when a policy first asks for that."""
        from .background_fold import BackgroundFolds

        return BackgroundFolds(self._desk, self._journal, self._summarizer)

    @staticmethod
    def _reopened(call: Call, outcome: Outcome, open_call: Callable[[], Call]) -> Call:
        """The call on a session that has changed: it was read back anew, or a fold made ahead went into force."""
        if not outcome.changed:
            again = open_call().once_more()
            again.swapped = call.swapped
            return again
        assert call.job.prepared is not None
        call.room.session.swap_in(call.job.prepared)
        call.room.preparation = None
        again = open_call()
        again.swapped = True
        return again

    def _perform(self, call: Call, effect: Effect) -> Any:
        """Do what the flow wants, except asking and waiting, which differ between drivers."""
        if isinstance(effect, Emit):
            return self._journal.emit(call.room, effect)
        if isinstance(effect, Work):
            return effect.run()
        if isinstance(effect, Refresh):
            return self._desk.refresh(self._parameters.config, call.room)
        try:
            if isinstance(effect, SaveTranscript):
                return self._journal.save_transcript(call.room, effect.raws)
            if isinstance(effect, SaveSummary):
                return self._journal.save_summary(call.room, effect.outcome, *call.keep(effect.outcome))
        except ArchiveError as error:
            return error
        raise AssertionError(f"unknown effect {effect!r}")

    def _finish(self, call: Call, outcome: Outcome) -> Any:
        """Commit what the flow did, and give back the list to send."""
        session, track = call.room.session, call.track
        total = outcome.tokens_after if outcome.changed else call.decision.usage.total
        session.sent = round(total / call.factor)
        if outcome.changed or call.swapped:
            session.prepare_from = total + growth(call.lines)
        if outcome.changed:
            assert call.fold is not None
            call.room.give_up()
            session.commit(track, *call.fold, outcome)
            return outcome.raws
        if track.record is None and not track.unjudged:
            return call.messages
        raws, entries = track.outgoing(call.messages)
        if track.unjudged:
            mended = make_valid(call.job.reader, raws, entries)
            if mended.sentences:
                self._journal.emit(call.room, warning("repaired_history", "low", "; ".join(mended.sentences)))
            raws, entries = mended.raws, mended.entries
        if call.swapped:
            # As after any fold, nobody knows yet whether the host keeps the list that it is given.
            session.tracks = [track.handed_out(raws, entries), track]
        return raws
