"""The path of a call: open it, compact when it is due, commit what was done, return the list to send.

Owns: `CallRunner`, on a thread and on an event loop.
Must never: hold a rule of compaction, or take a session's lock: the caller holds it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from .._pipeline import events
from .._pipeline.call import PREFLIGHT, Call, Purpose
from .._pipeline.effects import Steps
from .._pipeline.outcome import UNCHANGED, Outcome
from .._session.make_valid import make_valid
from ..summarizers import Summarizer
from .drive import drive
from .live_config import LiveConfig
from .live_sessions import LiveSession
from .open_call import CallOpener, Overrides
from .perform import EffectPerformer
from .recorder import EventRecorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .background_fold import BackgroundFolds


class CallRunner:
    """Opens and runs calls. One per manager; all methods are called with the session's lock held."""

    def __init__(
        self, opener: CallOpener, recorder: EventRecorder, live_config: LiveConfig, summarizer: Summarizer | None
    ) -> None:
        self._opener = opener
        self._recorder = recorder
        self._live_config = live_config
        self._summarizer = summarizer

    def open(
        self,
        live: LiveSession,
        messages: Sequence[Any],
        tools: Sequence[Any] | None = None,
        overrides: Overrides = (None, None, None),
        purpose: Purpose = PREFLIGHT,
    ) -> Call:
        """A call, once the session has acknowledged changes of the configuration."""
        self._live_config.acknowledge(live)
        return self._opener.open(self._live_config.config, live, messages, tools, overrides, purpose)

    def run(self, live: LiveSession, call: Call) -> Any:
        """The list to send. The call is opened again when the session changed meanwhile."""
        if self._recorder.holds_many(live):
            self._recorder.write_events(live)
        try:
            while True:
                if live.background is not None:
                    call = self._background.meet(live, call)
                if not self._is_due(live, call):
                    outcome = UNCHANGED
                    break
                try:
                    outcome = drive(_start_pipeline(call), self._performer(live, call), self._summarizer, call.summary)
                finally:
                    call.session.machine.rest(needed=call.due)
                if not outcome.stale:
                    break
                call = self._reopen(live, call, outcome)
        finally:
            self._live_config.apply_pending()
        messages = self._finish(live, call, outcome)
        if outcome.compacted is not None:
            self._recorder.write_events(live)
        if call.limits.prepare is not None:
            self._background.start(live, call)
        return messages

    async def arun(self, live: LiveSession, call: Call) -> Any:
        """`run` for async applications."""
        from .drive_async import adrive, in_thread_to_end  # here, because importing asyncio takes long

        if self._recorder.holds_many(live):
            await in_thread_to_end(self._recorder.write_events, live)
        try:
            while True:
                if live.background is not None:
                    call = await self._background.ameet(live, call)
                if not self._is_due(live, call):
                    outcome = UNCHANGED
                    break
                try:
                    performer = self._performer(live, call)
                    outcome = await adrive(_start_pipeline(call), performer, self._summarizer, call.summary)
                finally:
                    call.session.machine.rest(needed=call.due)
                if not outcome.stale:
                    break
                call = self._reopen(live, call, outcome)
        finally:
            self._live_config.apply_pending()
        messages = self._finish(live, call, outcome)
        if outcome.compacted is not None:
            await in_thread_to_end(self._recorder.write_events, live)
        if call.limits.prepare is not None:
            self._background.astart(live, call)
        return messages

    def _performer(self, live: LiveSession, call: Call) -> EffectPerformer:
        return EffectPerformer(self._opener, self._recorder, self._live_config.config, live, call)

    @cached_property
    def _background(self) -> BackgroundFolds:
        """Background compactions; loaded when a policy first asks for one."""
        from .background_fold import BackgroundFolds

        return BackgroundFolds(self._opener, self._recorder, self._summarizer)

    def _is_due(self, live: LiveSession, call: Call) -> bool:
        """Whether the pipeline has something to do. The usage is reported in any case, and that nothing is due."""
        decision, limits, recorder = call.decision, call.limits, self._recorder
        due = bool(decision)
        if recorder.watched:
            if not call.reopened:
                recorder.emit(live, events.token_estimate(call.model, decision.usage, limits))
            if not due:
                recorder.emit(live, events.not_due(call.policy, limits, decision))
        if not due:
            call.session.machine.need(False)
        return due

    def _reopen(self, live: LiveSession, call: Call, outcome: Outcome) -> Call:
        """The call on a session that has changed: it was read back, or a background compaction was activated."""
        activated = outcome.compacted is not None
        if outcome.compacted is not None:
            _remember_attempt(call, outcome)
            call.session.activate_prepared(outcome.compacted.change)
            live.background = None
        self._live_config.acknowledge(live)
        again = self._opener.reopen(self._live_config.config, live, call)
        return again._replace(reopened=not activated, used_prepared=activated or call.used_prepared)

    def _finish(self, live: LiveSession, call: Call, outcome: Outcome) -> Any:
        """Commit what the pipeline did, and return the list to send."""
        session, host_list, compacted = call.session, call.host_list, outcome.compacted
        if outcome is not UNCHANGED:
            _remember_attempt(call, outcome)
        if outcome.error is not None:
            raise outcome.error
        total = call.usage.total if compacted is None else compacted.change.fold.tokens_after
        session.sent_tokens = round(total / call.factor)
        if compacted is not None or call.used_prepared:
            session.prepare_from = total + call.limits.growth
        if compacted is not None:
            live.drop_background()
            session.commit(host_list, compacted.change)
            return compacted.change.raws
        if host_list.replay is None and not host_list.needs_check:
            return call.messages
        raws, entries = call.outgoing()
        if host_list.needs_check:
            valid = make_valid(call.reader, raws, entries)
            if valid.sentences:
                self._recorder.emit(live, events.repaired_history(valid.sentences))
            raws, entries = valid.raws, valid.entries
        if call.used_prepared:
            # As after any compaction, the application may pass its own list next time, or the one it is given.
            session.lists = [host_list.as_output(raws, entries), host_list]
        return raws


def _start_pipeline(call: Call) -> Steps:
    """The steps of a compaction; the modules behind it are loaded with the first one."""
    from .._pipeline.fold import compact_list

    return compact_list(call)


def _remember_attempt(call: Call, outcome: Outcome) -> None:
    """What the session keeps of an attempt, whether or not it changed the list."""
    session = call.session
    session.above_trigger, session.failed_fold, session.warned = (
        outcome.above_trigger,
        outcome.failed_fold,
        outcome.warned,
    )
