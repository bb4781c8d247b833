"""Folds made ahead of need, in the background, so that the call that crosses the trigger finds one ready.

Owns: `BackgroundFold` (one such fold, from its start until it is used or given up) and `BackgroundFolds` (starting
them, waiting for them). Must never: hold a session's turn, change the session it prepares for beyond the step it took,
or
write or say anything once it was given up.

    below the trigger, above `prepare_pct`   the list goes out as it came; a fold of it begins, on a shadow of the
                                             session: planned, archived, summarized, judged, and held back
    the first call that is due               waits for it if it still runs; when the list begins with what it consumed
                                             and no other fold was made meanwhile, it goes into force (`_pipeline.fold`)

A fold is recorded in the archive when it goes into force, not before: the archive takes the newest record to be in
force, so one that nobody used would be undone, replayed and shown as if somebody had. What a preparation leaves that
is never used is a transcript without a record, as a fold does that failed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._pipeline.effects import Effect, Emit, Refresh, SaveTranscript, Work
from .._pipeline.fold import flow
from .._pipeline.job import Outcome
from .._pipeline.underway import Call, growth
from .._session.entries import FoldReplay
from .._session.session import Prepared
from ..errors import ArchiveError, CompactError
from ..summarizers import Summarizer
from .live_sessions import LiveSession
from .open_call import Desk
from .recorder import EventRecorder
from .run import drive

if TYPE_CHECKING:
    from asyncio import Task

__all__ = ["BackgroundFold", "BackgroundFolds"]


class _GivenUpError(Exception):
    """Nobody wants this fold any more."""


class BackgroundFold:
    """One fold made ahead of need. `made` is what came of it, None before the end and after a failure."""

    def __init__(self, room: LiveSession, call: Call, desk: Desk, journal: EventRecorder) -> None:
        from concurrent.futures import Future  # here, because only folds made ahead need it

        self.made: Prepared | None = None
        self.task: Task[None] | None = None
        """What runs it on an event loop; None in a thread."""
        self._room = room
        self._call = call
        self._desk = desk
        self._journal = journal
        self._given_up = False
        self._writing = threading.RLock()
        self._ended: Future[None] = Future()
        self._ended.set_running_or_notify_cancel()

    @property
    def failed(self) -> bool:
        """Whether it ended with nothing to use."""
        return self._ended.done() and self.made is None

    # -- making it ---------------------------------------------------------------------------------------------------

    def run(self, summarizer: Summarizer | None) -> None:
        """Make the fold on this thread."""
        try:
            self._keep(drive(self._flow(), self._perform, summarizer, self._call.job.summary))
        except Exception as error:
            self._complain(error)
        finally:
            self._end()

    async def arun(self, summarizer: Summarizer | None) -> None:
        """Make the fold on this event loop."""
        import asyncio

        from .run_async import adrive, to_the_end

        try:
            outcome = await adrive(self._flow(), self._perform, summarizer, self._call.job.summary)
            await to_the_end(asyncio.to_thread(self._keep, outcome))
        except Exception as error:
            self._complain(error)
        finally:
            self._end()

    def _flow(self) -> Generator[Effect, Any, Outcome]:
        if (yield Refresh()):
            return Outcome()  # somebody else folded this session: the next fold will look first
        return (yield from flow(self._call.job))

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Work):
            return effect.run()
        with self._writing:
            if self._given_up:
                raise _GivenUpError
            if isinstance(effect, Emit):
                return self._journal.emit(self._call.room, replace(effect, data={**effect.data, "ahead": True}))
            if isinstance(effect, Refresh):
                return self._desk.outdated(self._call.room.session)
            assert isinstance(effect, SaveTranscript)
            try:
                return self._took(self._journal.save_transcript(self._call.room, effect.raws))
            except ArchiveError as error:
                return error

    def _took(self, step: int) -> int:
        """The session's archive has a transcript more, and it is ours: nobody else wrote to it."""
        if self._call.job.archived:
            session = self._room.session
            session.step = max(session.step, step)
            session.ledger.seen = max(session.ledger.seen[0], step), *session.ledger.seen[1:]
        return step

    def _keep(self, outcome: Outcome) -> None:
        """Hold the fold until it is needed; one without a proper summary is not worth holding."""
        if outcome.changed and outcome.fallback is None:
            fold, record = self._call.keep(outcome)
            self.made = Prepared(outcome, fold, record, self._call.room.session)
        with self._writing:
            if not self._given_up:
                self._journal.write_events(self._call.room)

    def _complain(self, error: Exception) -> None:
        """What the library raises was told as an event; anything else is somebody's bug, and named without its text."""
        if not isinstance(error, CompactError | _GivenUpError):
            session = self._call.room.session.id
            self._journal.complain(f"no fold of session {session!r} could be made ahead: {type(error).__name__}")

    def _end(self, task: Any = None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    # -- using it ----------------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Wait on this thread until it has ended, unless it needs this very thread for that."""
        if self._stands or (self.task is not None and self.task.get_loop() is _loop_here()):
            return
        with suppress(TimeoutError):
            self._ended.result(seconds)

    async def await_end(self, seconds: float) -> None:
        """Wait until it has ended, without stopping the event loop."""
        import asyncio

        if not self._stands:
            await asyncio.wait([asyncio.wrap_future(self._ended)], timeout=seconds)

    @property
    def _stands(self) -> bool:
        """Whether nothing drives it on: its event loop has stopped."""
        return self.task is not None and not self.task.get_loop().is_running()

    def give_up(self) -> None:
        """Stop it; when this returns, nothing more is written or said."""
        self._given_up = True
        if self.task is not None and not self.task.done():
            with suppress(RuntimeError):  # its loop is closed
                self.task.get_loop().call_soon_threadsafe(self.task.cancel)
        with self._writing:
            pass


class BackgroundFolds:
    """Makes folds ahead of need for a manager. All methods are called with the session's turn taken."""

    def __init__(self, desk: Desk, journal: EventRecorder, summarizer: Summarizer | None) -> None:
        self._desk = desk
        self._journal = journal
        self._summarizer = summarizer

    def start(self, call: Call) -> None:
        """Begin a fold of this list in a thread of its own, with the caller's context variables."""
        preparation = self._begun(call)
        work = threading.Thread(
            target=copy_context().run, args=(preparation.run, self._summarizer), name="compact-prepare", daemon=True
        )
        try:
            work.start()
        except RuntimeError:  # no thread to be had: then the fold is made when it is due
            call.room.preparation = None

    def astart(self, call: Call) -> None:
        """Begin a fold of this list on the event loop."""
        import asyncio

        preparation = self._begun(call)
        preparation.task = asyncio.get_running_loop().create_task(preparation.arun(self._summarizer))
        preparation.task.add_done_callback(preparation._end)  # also when it is cancelled before it began

    def meet(self, call: Call) -> None:
        """Give the call the fold that was made ahead for it, when it needs one."""
        if (preparation := _wanted(call)) is not None:
            started = time.perf_counter()
            preparation.wait(_patience(call))
            _give(call, preparation, time.perf_counter() - started)

    async def ameet(self, call: Call) -> None:
        """`meet` for event loops."""
        if (preparation := _wanted(call)) is not None:
            started = time.perf_counter()
            await preparation.await_end(_patience(call))
            _give(call, preparation, time.perf_counter() - started)

    def _begun(self, call: Call) -> BackgroundFold:
        # Whatever comes of it, the next one must find something new.
        call.room.session.prepare_from = call.decision.usage.total + growth(call.lines)
        preparation = BackgroundFold(call.room, call.ahead(), self._desk, self._journal)
        call.room.preparation = preparation
        return preparation


def _loop_here() -> Any:
    """The event loop of this thread, if one is running."""
    asyncio = sys.modules["asyncio"]  # somebody has a task, so it is there
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _wanted(call: Call) -> BackgroundFold | None:
    """The fold made ahead, when this call needs one: not when a person or a provider asked for another."""
    return call.room.preparation if call.decision and not call.job.forced else None


def _patience(call: Call) -> float:
    """Seconds to wait for a fold made ahead: those that a fold made now may spend on one summary."""
    return call.job.summary.timeout * (1 + call.job.summary.max_retries)


def _give(call: Call, preparation: BackgroundFold, waited: float) -> None:
    """Let the call use the fold; one that it cannot use is given up."""
    made = preparation.made
    if made is not None and call.room.session.still(made.shadow) and _fits(call, made.record):
        call.change(prepared=replace(made, waited=waited))
    else:
        call.room.give_up()


def _fits(call: Call, record: FoldReplay) -> bool:
    """Whether a list begins with what a fold consumed, and what came since is not broken: a fold of now mends it."""
    size = call.track.begins_with(record)
    if size < record.size:
        return size > 0  # then what goes out is mended at every call
    track = call.track.clone()
    track.attach(record, size)
    _, entries = track.outgoing(call.messages)
    return not call.job.reader.dialect.problems([entry.message for entry in entries])
