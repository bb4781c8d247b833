"""Compactions made in the background, so that the call that crosses the trigger finds one ready.

Owns: `BackgroundFold` (one of them, until it is used or dropped) and `BackgroundFolds` (starting and awaiting them).
Must never: hold a session's lock, change the session beyond the step it took, or write or emit anything once dropped.

    below the trigger, above `prepare_pct`   the list goes out as it came; a compaction of it starts on a copy of the
                                             session: planned, archived, summarized, checked, and held back
    the first call that is due               waits for it if it still runs; it is used when the list begins with what
                                             it replaced and no other compaction was made meanwhile

It is recorded in the archive when it is used, not before: the newest record is the active one, so an unused one would
be undone, replayed and shown. An unused one leaves a transcript without a record, as a failed compaction does.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._compaction.trigger import Decision
from .._pipeline.call import Call
from .._pipeline.effects import Effect, Emit, Move, Refresh, SaveTranscript, Steps
from .._pipeline.fold import compact_list
from .._pipeline.outcome import Outcome, Prepared
from .._session.entries import FoldReplay
from ..errors import ArchiveError, CompactError
from ..summarizers import Summarizer
from .drive import drive
from .live_sessions import LiveSession
from .open_call import CallOpener
from .recorder import EventRecorder

if TYPE_CHECKING:
    from asyncio import Task


class _DroppedError(Exception):
    """The compaction was dropped while it ran."""


class BackgroundFold:
    """One background compaction. `prepared` is its result, None before the end and after a failure."""

    def __init__(self, owner: LiveSession, call: Call, opener: CallOpener, recorder: EventRecorder) -> None:
        from concurrent.futures import Future  # here, because only background compactions need it

        self.prepared: Prepared | None = None
        self.task: Task[None] | None = None
        """What runs it on an event loop; None in a thread."""
        self._owner = owner
        self._live = LiveSession(call.session.id)
        self._live.session = call.session
        self._call = call
        self._opener = opener
        self._recorder = recorder
        self._dropped = False
        self._writing = threading.RLock()
        self._ended: Future[None] = Future()
        self._ended.set_running_or_notify_cancel()

    @property
    def has_failed(self) -> bool:
        """Whether it ended with nothing to use."""
        return self._ended.done() and self.prepared is None

    # -- making it ---------------------------------------------------------------------------------------------------

    def run(self, summarizer: Summarizer | None) -> None:
        """Make the compaction on this thread."""
        try:
            self._keep(drive(self._steps(), self._perform, summarizer, self._call.summary))
        except Exception as error:
            self._log(error)
        finally:
            self._end()

    async def arun(self, summarizer: Summarizer | None) -> None:
        """Make the compaction on this event loop."""
        from .drive_async import adrive, in_thread_to_end

        try:
            outcome = await adrive(self._steps(), self._perform, summarizer, self._call.summary)
            await in_thread_to_end(self._keep, outcome)
        except Exception as error:
            self._log(error)
        finally:
            self._end()

    def _steps(self) -> Steps:
        if (yield Refresh()):
            return Outcome()  # another process compacted this session: the next compaction will look first
        return (yield from compact_list(self._call))

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Move):
            return self._call.session.machine.move(effect.state, effect.phase, effect.summary_state)
        with self._writing:
            if self._dropped:
                raise _DroppedError
            if isinstance(effect, Emit):
                return self._recorder.emit(self._live, effect._replace(data={**effect.data, "ahead": True}))
            if isinstance(effect, Refresh):
                return self._opener.is_outdated(self._call.session)
            assert isinstance(effect, SaveTranscript)
            try:
                return self._claim_step(self._recorder.save_transcript(self._live, effect.raws))
            except ArchiveError as error:
                return error

    def _claim_step(self, step: int) -> int:
        """Tell the session that the new transcript in its archive is ours."""
        if self._call.archived:
            session = self._owner.session
            session.step = max(session.step, step)
            state = session.archive_state
            state.known = max(state.known[0], step), *state.known[1:]
        return step

    def _keep(self, outcome: Outcome) -> None:
        """Hold the compaction until it is needed; one without a proper summary is not held."""
        if outcome.error is not None:
            raise outcome.error
        if outcome.compacted is not None and outcome.compacted.change.fold.fallback is None:
            self.prepared = Prepared(outcome.compacted, self._call.session)
        with self._writing:
            if not self._dropped:
                self._recorder.write_events(self._live)

    def _log(self, error: Exception) -> None:
        """Our own errors were emitted as events; any other is a bug and is named without its text."""
        if not isinstance(error, CompactError | _DroppedError):
            session = self._call.session.id
            self._recorder.log(f"no compaction of session {session!r} could be prepared: {type(error).__name__}")

    def _end(self, task: Any = None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    # -- using it ----------------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Wait on this thread until it has ended, unless it needs this very thread for that."""
        if self._is_stuck or (self.task is not None and self.task.get_loop() is _running_loop()):
            return
        with suppress(TimeoutError):
            self._ended.result(seconds)

    async def await_end(self, seconds: float) -> None:
        """Wait until it has ended, without blocking the event loop."""
        import asyncio

        if not self._is_stuck:
            await asyncio.wait([asyncio.wrap_future(self._ended)], timeout=seconds)

    @property
    def _is_stuck(self) -> bool:
        """Whether its event loop has stopped."""
        return self.task is not None and not self.task.get_loop().is_running()

    def drop(self) -> None:
        """Stop it; when this returns, nothing more is written or emitted."""
        self._dropped = True
        if self.task is not None and not self.task.done():
            with suppress(RuntimeError):  # its loop is closed
                self.task.get_loop().call_soon_threadsafe(self.task.cancel)
        with self._writing:
            pass


class BackgroundFolds:
    """Background compactions of a manager. All methods are called with the session's lock held."""

    def __init__(self, opener: CallOpener, recorder: EventRecorder, summarizer: Summarizer | None) -> None:
        self._opener = opener
        self._recorder = recorder
        self._summarizer = summarizer

    def start(self, live: LiveSession, call: Call) -> None:
        """Start a compaction in a new thread, with the caller's context variables, where one should be prepared."""
        if (fold := self._new_fold(live, call)) is None:
            return
        work = threading.Thread(
            target=copy_context().run, args=(fold.run, self._summarizer), name="compact-prepare", daemon=True
        )
        try:
            work.start()
        except RuntimeError:  # no thread is available: the compaction is made when it is due
            live.background = None

    def astart(self, live: LiveSession, call: Call) -> None:
        """Start a compaction on the event loop, where one should be prepared."""
        if (fold := self._new_fold(live, call)) is None:
            return
        import asyncio

        fold.task = asyncio.get_running_loop().create_task(fold.arun(self._summarizer))
        fold.task.add_done_callback(fold._end)  # also when it is cancelled before it began

    def meet(self, live: LiveSession, call: Call) -> Call:
        """The call with the compaction that was prepared for it, when it needs one."""
        fold = live.background
        if fold is None or not call.decision or call.forced:
            return call
        started = time.perf_counter()
        fold.wait(_patience(call))
        return _use(live, call, fold, time.perf_counter() - started)

    async def ameet(self, live: LiveSession, call: Call) -> Call:
        """`meet` for event loops."""
        fold = live.background
        if fold is None or not call.decision or call.forced:
            return call
        started = time.perf_counter()
        await fold.await_end(_patience(call))
        return _use(live, call, fold, time.perf_counter() - started)

    def _new_fold(self, live: LiveSession, call: Call) -> BackgroundFold | None:
        """A new compaction of this list, when nothing is due and the list has grown enough."""
        prepare, total = call.limits.prepare, call.usage.total
        if prepare is None or call.decision or total < max(prepare, call.session.prepare_from):
            return None
        if live.background is not None and not live.background.has_failed:
            return None
        # Whatever comes of it, the next one must find a longer list.
        call.session.prepare_from = total + call.limits.growth
        live.background = BackgroundFold(live, _background_call(call), self._opener, self._recorder)
        return live.background


def _background_call(call: Call) -> Call:
    """The same call on a copy of the session, to be compacted ahead of need."""
    host_list, messages = call.host_list.clone(), list(call.messages)
    for entry in host_list.entries:
        entry.content()  # now, because the application may go on editing its messages
    reader = call.reader.with_counter(call.reader.counter)
    limits, total = call.limits, call.usage.total
    return call._replace(
        session=call.session.shadow(reader),
        reader=reader,
        host_list=host_list,
        messages=messages,
        decision=Decision(("prepare",), call.usage, limits.window, limits.trigger),
        reopened=True,
        # The call that crosses the trigger ends somewhere above it.
        headroom=limits.trigger - total + min(limits.growth, total // 4),
    )


def _running_loop() -> Any:
    """The event loop of this thread, if one is running."""
    asyncio = sys.modules["asyncio"]  # there is a task, so it is loaded
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _patience(call: Call) -> float:
    """Seconds to wait for a background compaction: those that one made now may spend on one summary."""
    return call.summary.timeout * (1 + call.summary.max_retries)


def _use(live: LiveSession, call: Call, fold: BackgroundFold, waited: float) -> Call:
    """The call with its prepared compaction; one that it cannot use is dropped."""
    made = fold.prepared
    if made is not None and call.session.is_unchanged_since(made.shadow) and _fits(call, made.compacted.change.replay):
        return call._replace(prepared=replace(made, waited=waited))
    live.drop_background()
    return call


def _fits(call: Call, replay: FoldReplay) -> bool:
    """Whether a list begins with what a compaction replaced, and what came since is valid: only a new one repairs."""
    size = call.host_list.replayable_size(replay)
    if size < replay.size:
        return size > 0  # then what goes out is made valid at every call
    host_list = call.host_list.clone()
    host_list.attach(replay, size)
    _, entries = host_list.outgoing(call.messages)
    return not call.reader.format.problems([entry.message for entry in entries])
