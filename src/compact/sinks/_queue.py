"""The queue in front of every exporter: emitting an event costs the caller one append.

Owns: `Queued`, `queued`, `Undelivered`, and the thread that delivers. (`_process_exit` flushes at exit.)
Must never: block or fail the caller, hold more than its limits, lose an event without counting it, or deliver an event
that was not redacted when there is a redactor.

    emit ──append──▶ waiting ──▶ the queue's thread, 20 times a second: make plain, redact ──▶ deliver(batch)
                        │                                          ▲ kept: 1, 2, 4 … 30 s, then again │
                        └─ full: the oldest is dropped and counted └──────────────────────────────────┘

Rules:
- emitted = delivered + dropped + queued, at every moment (`counts`).
- An event may be emitted while another one is: by a signal handler, or a finalizer that the garbage collector runs. So
  the lock is reentrant, and the code under it allows an append between any two of its steps.
- Waking a thread costs the caller twenty times as much as an append. So the thread polls, and sleeps until an event
  wakes it only after ten seconds without any.
- The thread starts with the first event and ends with `close()`, or when the queue is garbage collected; a queue with
  waiting events is referenced by `_process_exit`.
- A forked child starts with an empty queue and counts from zero: its parent delivers what was queued.
- Stderr gets at most one line a minute for each place; only at exit is every loss reported.
- Everything that adds, takes or drops an event does so under one lock, so that the counts hold.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from .._events.event import Event, Sink
from .._events.serialize import plain, redact_event
from .._redaction import Redactor
from ._event_size import ROUTINE_EVENTS, ROUTINE_SIZE, event_size
from ._process import renew_after_fork, report
from ._process_exit import CLOSE_SECONDS, busy_queues, describe_loss, flush_at_exit, record_losses, register_exit

log = logging.getLogger("compact")

_BATCH = 256
_TICK = 0.05
_POLL_SECONDS = 10.0
_MAX_SIZE = 8_000_000
"""About how many characters may wait (see `_event_size`)."""
_MAX_PAUSE = 30.0
_REDACTED = object()
"""Replaces the redactor of an entry that is redacted."""


class Undelivered(Exception):
    """Raised by `deliver`. Without `lost`: nothing was delivered, keep the batch and try again later. With `lost`: that
    many of the batch are lost, and the others were delivered. The message has the reason and what to do."""

    def __init__(self, reason: str, *, lost: int | None = None) -> None:
        super().__init__(reason)
        self.lost = lost


class Counts(NamedTuple):
    """The counts of events, all at one moment."""

    emitted: int
    delivered: int
    dropped: int
    queued: int


class Queued:
    """A sink that passes its events to `deliver` in batches, in a separate thread.

    `deliver` is never called twice at a time. When it raises `Undelivered`, that decides what is kept and what is lost;
    any other exception loses the batch. `afterwards` is called when a batch is done: `flush` waits for it, but it loses
    no event. `closing` is called by `close()`, or, when a delivery hangs, by the thread once that is over. `place` is
    the destination in messages.
    """

    def __init__(
        self,
        deliver: Callable[[Sequence[Event]], None],
        *,
        label: str,
        limit: int = 2_048,
        wait: float = 0.02,
        redactor: Redactor | None = None,
        place: str = "",
        afterwards: Callable[[], None] | None = None,
        closing: Callable[[], None] | None = None,
    ) -> None:
        self._deliver = deliver
        self._label = label
        self._place = place
        self._limit = max(limit, 2)
        self._batch = min(_BATCH, self._limit // 2)
        self._wait = wait
        self._redactor = redactor
        self._afterwards = afterwards
        self._closing = closing
        self._close_by: float | None = None
        """The deadline of closing; None while the queue is open."""
        self._renew()
        renew_after_fork(self)
        flush_at_exit(self)

    def _renew(self) -> None:
        """Reset: at the start, and in a forked child, where locks may be held by threads that do not exist."""
        busy_queues.discard(self)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._wake = threading.Lock()
        """Released to wake the thread: releasing it costs a third of setting a `threading.Event`."""
        self._wake.acquire()
        self._thread: threading.Thread | None = None
        self._asleep, self._stop, self._collecting = True, False, False
        self._making_room = self._finishing = self._closing_left = False
        self._idle_seconds = 0.0
        self._waiting: deque[list[Any]] = deque()
        """Entries of event, size, and the redactor still to be applied."""
        self._held = 0
        """How many entries at the front are being delivered: these cannot be dropped."""
        self._given_up = 0
        """How many are being delivered that `close` has counted as dropped."""
        self._size = 0
        self._failures = self._failures_in_a_row = self._reported = 0
        self._reason = ""
        self.delivered = self.dropped = 0

    # -- on the agent's thread ---------------------------------------------------------------------------------------

    def __call__(self, event: Event) -> None:
        """Take an event; it is delivered later. Never blocks and never raises."""
        self._put(self._redactor, event)

    def redact_with(self, redactor: Redactor) -> Sink:
        """This queue as a sink that redacts with `redactor`, in the queue's thread.

        A queue may serve several managers. An event that is passed to the queue itself is redacted with the newest
        redactor; one that is switched off never replaces another.
        """
        if self._redactor is None or redactor.enabled:
            self._redactor = redactor
        # Load its rules now: a child forked while the thread imports them would wait for ever.
        redactor.redact("a=b")
        # A subclass that overrides `__call__` must see events on the caller's thread.
        return partial(self._put, redactor) if type(self).__call__ is Queued.__call__ else self

    def _put(self, redactor: Redactor | None, event: Event) -> None:
        size = ROUTINE_SIZE if event.name in ROUTINE_EVENTS else event_size(event)
        with self._lock:
            waiting = self._waiting
            if not waiting:
                busy_queues.add(self)
            waiting.append([event, size, redactor])
            self._size += size
            if len(waiting) > self._limit or self._size > _MAX_SIZE:
                self._make_room()
            if self._asleep:
                self._collecting = True
                self._wake_thread()

    def _make_room(self) -> None:
        """Drop the oldest. What is being delivered stays, and so does the newest."""
        if self._making_room:
            return  # an event emitted inside this method: the next one makes room
        self._making_room = True
        waiting, held = self._waiting, self._held
        try:
            while len(waiting) - held > 1 and (len(waiting) > self._limit or self._size > _MAX_SIZE):
                self._size -= waiting[held][1]
                self.dropped += 1
                del waiting[held]
        finally:
            self._making_room = False

    def _wake_thread(self) -> None:
        """Wake the thread, or start it. Under the lock."""
        if self._thread is None:
            register_exit()
            wake, name = self._wake, f"compact {self._label}"
            own = weakref.ref(self, lambda _: _release(wake))
            try:
                self._thread = threading.Thread(target=_run_thread, args=(own, wake), name=name, daemon=True)
                self._thread.start()
            except BaseException as error:
                self._thread = None
                if not isinstance(error, RuntimeError):
                    raise
                return  # no thread can be started: the next event tries again
        self._asleep = self._stop = False
        _release(self._wake)

    # -- in the queue's thread ----------------------------------------------------------------------------------------

    def _deliver_waiting(self) -> float | None:
        """Deliver until nothing waits; return seconds to the next poll (-1: when woken), or None to end the thread."""
        if self._collecting:
            self._collecting = False
            self._wait_unless_woken(self._wait)
        while True:
            with self._lock:
                if self._thread is not threading.current_thread():
                    _release(self._wake)  # it was replaced while it was being started: wake the other one
                    return None
                self._held = min(len(self._waiting), self._batch)
                if not self._held:
                    pause = self._go_idle()
                    break
                self._idle_seconds = 0.0
                batch = list(islice(self._waiting, self._held))
            self._wait_unless_woken(self._deliver_batch(batch))
        if pause is None and self._closing_left:
            self._closing_left = False
            self._call_closing()
        return pause

    def _go_idle(self) -> float | None:
        """Nothing waits: notify who flushes, and go to sleep when idle. Under the lock."""
        busy_queues.discard(self)
        self._changed.notify_all()
        self._idle_seconds += _TICK
        self._asleep = self._stop or self._idle_seconds > _POLL_SECONDS
        if self._stop:
            self._thread = None
            return None
        return -1.0 if self._asleep else _TICK

    def _on_thread_ended(self) -> None:
        """The thread was ended from outside: the next event starts another."""
        with self._lock:
            if self._thread is threading.current_thread():
                self._thread, self._asleep, self._held = None, True, 0

    def _wait_unless_woken(self, seconds: float) -> None:
        """Wait, unless the thread is woken."""
        if seconds:
            self._wake.acquire(timeout=seconds)

    def _deliver_batch(self, batch: list[list[Any]]) -> float:
        """Deliver a batch; return seconds to wait before the next."""
        events = [event for entry in batch if (event := _redacted_event(entry)) is not None]
        lost, reason = len(batch) - len(events), "it could not be redacted, so it was withheld"
        try:
            if events:
                self._deliver(events)
        except Undelivered as error:
            if error.lost is None:
                return self._keep_batch(str(error))
            lost, reason = lost + error.lost, str(error)
        except BaseException as error:
            lost, reason = len(batch), _describe_error(error)
        with self._lock:
            self._failures_in_a_row = 0
            self._reason = reason if lost else ""
            self._finish_batch(lost)
            self._finishing = self._afterwards is not None
        self._report_losses()
        if self._afterwards is not None:
            try:
                self._afterwards()
            except Exception as error:
                log.debug("%s: the call after a delivery failed", self._label, exc_info=error)
            finally:
                self._finishing = False
        return 0.0

    def _finish_batch(self, lost: int) -> None:
        """Count a batch that is done. If `close` was faster, nothing is held, and it counts as dropped already."""
        held = self._held
        taken = max(0, held + self._given_up - lost)
        for _ in range(held):
            self._size -= self._waiting.popleft()[1]
        self.delivered += taken
        self.dropped += held - taken
        self._reported = min(self._reported, self.dropped)
        self._held = self._given_up = 0

    def _keep_batch(self, reason: str) -> float:
        """Keep the batch; return seconds to wait."""
        with self._lock:
            self._held = self._given_up = 0
            self._failures += 1
            self._failures_in_a_row += 1
            self._reason = reason
            self._changed.notify_all()
            pause = min(2.0 ** min(self._failures_in_a_row - 1, 10), _MAX_PAUSE)
            waiting, dropped = len(self._waiting), self.dropped
        # The first failure may be a restart of the server; if it is the only one, closing reports it.
        if waiting and self._failures_in_a_row > 1 and self._close_by is None:
            lost = f", {dropped:,} were dropped" if dropped else ""
            place = self._place or "delivery"
            text = f"{_count_events(waiting)} wait for {place}{lost}: {reason}. Tried again in {pause:.0f} s"
            if report(self._label, self._place, text):
                self._reported = dropped
        return pause

    def _report_losses(self) -> None:
        """Report what was lost since the last report."""
        lost, reason = self._unreported()
        if lost > 0 and report(self._label, self._place, f"{describe_loss(lost, self._destination)}: {reason}"):
            self._reported += lost

    def _unreported(self) -> tuple[int, str]:
        """How many lost events were not reported, and the reason."""
        return self.dropped - self._reported, self._reason or self._overflow_reason

    # -- on any thread -----------------------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """Events not yet delivered, the batch being delivered included."""
        return len(self._waiting)

    @property
    def emitted(self) -> int:
        """All events since the start."""
        return self.counts().emitted

    def counts(self) -> Counts:
        """All four counts at one moment. The first is the sum of the others, so they always agree."""
        with self._lock:
            delivered, dropped, waiting = self.delivered, self.dropped, len(self._waiting)
            return Counts(delivered + dropped + waiting, delivered, dropped, waiting)

    def flush(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Deliver now; return whether all was delivered. Gives up after `timeout`, or when a delivery fails."""
        until = time.monotonic() + timeout
        with self._lock:
            failures = self._failures
            if self._waiting:
                self._wake_thread()
            while (
                (self._waiting or self._finishing)
                and self._failures == failures
                and (left := until - time.monotonic()) > 0
            ):
                self._changed.wait(left)
            return not self._waiting

    def close(self) -> None:
        """Flush, count what is left as dropped, and report losses. A later event opens the queue again."""
        if self._close_by is None:
            self._close_by = time.monotonic() + CLOSE_SECONDS
        delivered = self.flush(max(0.0, self._close_by - time.monotonic()))
        with self._lock:
            if not delivered:
                self._reason = self._reason or f"no answer within {CLOSE_SECONDS:g} s"
                self.dropped += len(self._waiting)
                self._waiting.clear()
                self._given_up = self._held or self._given_up
                self._held = self._size = 0
            self._stop, self._close_by = True, None
            self._closing_left = not delivered and self._thread is not None
            _release(self._wake)
        if not self._closing_left:
            self._call_closing()
        self._report_losses()

    def _call_closing(self) -> None:
        try:
            if self._closing is not None:
                self._closing()
        except Exception as error:
            report(self._label, self._place, f"closing failed: {_describe_error(error)}")

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be shutting down
            record_losses(self)

    @property
    def _destination(self) -> str:
        return f" to {self._place}" if self._place else ""

    @property
    def _overflow_reason(self) -> str:
        return f"they came faster than they could be delivered, and no more than {self._limit:,} may wait"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._label}{self._destination}>"


def queued(sink: Sink, *, label: str = "sink", place: str = "", limit: int = 8_192) -> Queued:
    """Run any sink off the agent's thread. An event on which it raises is lost and counted; the others are not."""

    def deliver(events: Sequence[Event]) -> None:
        lost, reason = 0, ""
        for event in events:
            try:
                sink(event)
            except Exception as error:
                lost, reason = lost + 1, _describe_error(error)
        if lost:
            raise Undelivered(reason, lost=lost)

    return _QueuedSink(sink, deliver, label=label, place=place, limit=limit, closing=getattr(sink, "close", None))


class _QueuedSink(Queued):
    """A queue in front of a sink, with the sink's `endpoint`."""

    def __init__(self, sink: Sink, deliver: Callable[[Sequence[Event]], None], **settings: Any) -> None:
        self.endpoint = getattr(sink, "endpoint", None)
        super().__init__(deliver, **settings)


def close_all(queues: Iterable[Queued]) -> None:
    """Close queues within one deadline, so that two servers that never answer take no longer than one."""
    until = time.monotonic() + CLOSE_SECONDS
    queues = list(queues)
    for queue in queues:
        queue._close_by = until
        queue.flush(0)
    for queue in queues:
        queue.close()


def _run_thread(own: weakref.ref[Queued], wake: threading.Lock) -> None:
    """The thread: it references its queue only while it works, so that an idle queue can be garbage collected."""
    pause: float | None = -1.0
    try:
        while pause is not None:
            wake.acquire(timeout=pause)
            queue = own()
            pause = None if queue is None else queue._deliver_waiting()
            del queue
    finally:
        if pause is not None and (queue := own()) is not None:
            queue._on_thread_ended()


def _release(wake: threading.Lock) -> None:
    if wake.locked():
        with suppress(RuntimeError):  # another thread was faster
            wake.release()


def _redacted_event(entry: list[Any]) -> Event | None:
    """The entry's event, plain and redacted; None when that failed. Done once for all tries."""
    event, _, redactor = entry
    if redactor is _REDACTED:
        return event  # type: ignore[no-any-return]
    clean: Event | None = None
    with suppress(BaseException):  # an exception from a method of the payload must not end the thread
        clean = redact_event(event, redactor) if redactor else event._replace(data=plain(event.data))
    entry[0], entry[2] = clean, _REDACTED
    return clean


def _describe_error(error: BaseException) -> str:
    """What went wrong, without any content of an event."""
    reason = error.strerror if isinstance(error, OSError) else None
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__


def _count_events(count: int) -> str:
    return "1 event" if count == 1 else f"{count:,} events"
