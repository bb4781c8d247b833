"""The queue that every exporter stands behind: whoever emits an event pays for an append, and no more.

Owns: `Queued`, `queued`, `Undelivered`; the thread that delivers. (What happens at the exit: `_process_exit`.)
Must never: block or fail who emits, hold more than its bounds, lose an event without counting it, or pass an event on
that was not redacted first when there is a redactor.

    emit ──append──▶ waiting ──▶ its own thread, 20 times a second: make plain, redact ──▶ deliver(batch)
                        │                                          ▲ kept: 1, 2, 4 … 30 s, then again │
                        └─ full: the oldest is dropped and counted └──────────────────────────────────┘

Rules:
- emitted = delivered + dropped + queued, at every moment (`counts`).
- An event may come in the middle of another: from a signal handler, or a finalizer that the collector runs. So the
  lock lets its holder in again, and nothing under it minds an append between any two of its steps.
- To wake a thread costs who does it twenty times what an append costs. So the thread looks by itself, and sleeps until
  an event wakes it only after ten seconds without any.
- The thread starts with the first event and ends with `close()`, or when nobody holds the queue any more; a queue in
  which something waits is held by this module.
- A forked child starts with an empty queue and counts from zero: what was queued is its parent's to deliver.
- Stderr gets one line a minute and place at most; only at exit is a loss said in any case.

One idea, so one file: its counts hold only if everything that adds, takes and drops does so under one lock.
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
from .._events.serialize import plain, redacting
from .._redaction import Redactor
from ._event_size import FLAT, ROUTINE, weight_of
from ._process import renewed_in_child, say
from ._process_exit import PATIENCE, expect, know, not_delivered, remember
from ._process_exit import waiting as _busy

__all__ = ["PATIENCE", "Counts", "Queued", "Undelivered", "close_all", "queued"]

log = logging.getLogger("compact")

_BATCH = 256
_TICK = 0.05
_ATTENTIVE = 10.0
_HEAVIEST = 8_000_000
"""Characters that may wait, about: strings count by their length, the rest by rule of thumb."""
_LONGEST_PAUSE = 30.0
_CLEAN = object()
"""Stands where an entry's redactor stood once it has been at work."""


class Undelivered(Exception):
    """Raised by `deliver`. Without `lost`: nothing was taken, keep the batch and try again later. With `lost`: so many
    of the batch are lost for good, and the others were taken. The message says why, and what to do."""

    def __init__(self, reason: str, *, lost: int | None = None) -> None:
        super().__init__(reason)
        self.lost = lost


class Counts(NamedTuple):
    """What became of the events, all at one moment."""

    emitted: int
    delivered: int
    dropped: int
    queued: int


class Queued:
    """A sink whose events go to `deliver` in batches, in a thread of its own.

    `deliver` is never called twice at a time. When it raises `Undelivered`, that says what is kept and what is lost;
    any other exception costs the batch. `afterwards` is called when a batch is done with: it is waited for, but loses
    no event. `closing` is called by `close()`, or, when a delivery hangs, by the thread once that is over. `place`
    says in messages where events go.
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
        self._by: float | None = None
        """When closing has to be done; None while nobody closes."""
        self._renew()
        renewed_in_child(self)
        know(self)

    def _renew(self) -> None:
        """As new: at the start, and in a forked child, where locks may be held by threads that are not there."""
        _busy.discard(self)
        self._lock = threading.RLock()
        self._settled = threading.Condition(self._lock)
        self._wake = threading.Lock()
        """Free when somebody wants something done: to set it free costs a third of what an `Event` costs."""
        self._wake.acquire()
        self._thread: threading.Thread | None = None
        self._asleep, self._stop, self._company = True, False, False
        self._making_room = self._finishing = self._unclosed = False
        self._idle = 0.0
        self._waiting: deque[list[Any]] = deque()
        """Entries of event, weight, and the redactor still to be applied."""
        self._held = 0
        """How many entries at the front are being delivered: those cannot be dropped."""
        self._given_up = 0
        """How many are being delivered that `close` has counted as dropped."""
        self._weight = 0
        self._failures = self._in_a_row = self._admitted = 0
        self._reason = ""
        self.delivered = self.dropped = 0

    # -- on the agent's thread ---------------------------------------------------------------------------------------

    def __call__(self, event: Event) -> None:
        """Take an event; it is delivered later. Never blocks and never raises."""
        self._put(self._redactor, event)

    def redact_with(self, redactor: Redactor) -> Sink:
        """This queue for events that are to be redacted so; it happens in the queue's own thread.

        A queue may serve several managers. Events that come by calling the queue itself are redacted with the newest
        redactor that was given, one that is switched off least of all.
        """
        if self._redactor is None or redactor.enabled:
            self._redactor = redactor
        # Its rules are loaded now: a child forked while the thread imports them would wait for that for ever.
        redactor.redact("a=b")
        # A subclass that wants to see events on the caller's thread must.
        return partial(self._put, redactor) if type(self).__call__ is Queued.__call__ else self

    def _put(self, redactor: Redactor | None, event: Event) -> None:
        weight = ROUTINE if event.name in FLAT else weight_of(event)
        with self._lock:
            waiting = self._waiting
            if not waiting:
                _busy.add(self)
            waiting.append([event, weight, redactor])
            self._weight += weight
            if len(waiting) > self._limit or self._weight > _HEAVIEST:
                self._make_room()
            if self._asleep:
                self._company = True
                self._rouse()

    def _make_room(self) -> None:
        """Drop the oldest. What is being delivered stays, and so does the newest."""
        if self._making_room:
            return  # an event inside this very method: the next one makes room
        self._making_room = True
        waiting, held = self._waiting, self._held
        try:
            while len(waiting) - held > 1 and (len(waiting) > self._limit or self._weight > _HEAVIEST):
                self._weight -= waiting[held][1]
                self.dropped += 1
                del waiting[held]
        finally:
            self._making_room = False

    def _rouse(self) -> None:
        """Set the thread to work, or start it. Under the lock."""
        if self._thread is None:
            expect()
            wake, name = self._wake, f"compact {self._label}"
            own = weakref.ref(self, lambda _: _signal(wake))
            try:
                self._thread = threading.Thread(target=_work, args=(own, wake), name=name, daemon=True)
                self._thread.start()
            except BaseException as error:
                self._thread = None
                if not isinstance(error, RuntimeError):
                    raise
                return  # no thread to be had: the next event tries again
        self._asleep = self._stop = False
        _signal(self._wake)

    # -- in its own thread -------------------------------------------------------------------------------------------

    def _serve(self) -> float | None:
        """Deliver until nothing waits; when to look again (-1: when woken), or None when the thread is to end."""
        if self._company:
            self._company = False
            self._pause(self._wait)
        while True:
            with self._lock:
                if self._thread is not threading.current_thread():
                    _signal(self._wake)  # given up while it was being started: another one is meant
                    return None
                self._held = min(len(self._waiting), self._batch)
                if not self._held:
                    pause = self._rest()
                    break
                self._idle = 0.0
                batch = list(islice(self._waiting, self._held))
            self._pause(self._hand_over(batch))
        if pause is None and self._unclosed:
            self._unclosed = False
            self._close_up()
        return pause

    def _rest(self) -> float | None:
        """Nothing waits. Under the lock."""
        _busy.discard(self)
        self._settled.notify_all()
        self._idle += _TICK
        self._asleep = self._stop or self._idle > _ATTENTIVE
        if self._stop:
            self._thread = None
            return None
        return -1.0 if self._asleep else _TICK

    def _deserted(self) -> None:
        """Somebody has ended the thread from outside: the next event starts another."""
        with self._lock:
            if self._thread is threading.current_thread():
                self._thread, self._asleep, self._held = None, True, 0

    def _pause(self, seconds: float) -> None:
        """Wait, unless somebody wants things done."""
        if seconds:
            self._wake.acquire(timeout=seconds)

    def _hand_over(self, batch: list[list[Any]]) -> float:
        """Deliver a batch; how long to wait before the next."""
        events = [event for entry in batch if (event := _cleaned(entry)) is not None]
        lost, reason = len(batch) - len(events), "it could not be redacted, so it was withheld"
        try:
            if events:
                self._deliver(events)
        except Undelivered as error:
            if error.lost is None:
                return self._keep(str(error))
            lost, reason = lost + error.lost, str(error)
        except BaseException as error:
            lost, reason = len(batch), _why(error)
        with self._lock:
            self._in_a_row = 0
            self._reason = reason if lost else ""
            self._let_go(lost)
            self._finishing = self._afterwards is not None
        self._own_up()
        if self._afterwards is not None:
            try:
                self._afterwards()
            except Exception as error:
                log.debug("%s: what follows a delivery failed", self._label, exc_info=error)
            finally:
                self._finishing = False
        return 0.0

    def _let_go(self, lost: int) -> None:
        """The batch is done with. When `close` was faster nothing is held, and all of it counts as dropped already."""
        held = self._held
        taken = max(0, held + self._given_up - lost)
        for _ in range(held):
            self._weight -= self._waiting.popleft()[1]
        self.delivered += taken
        self.dropped += held - taken
        self._admitted = min(self._admitted, self.dropped)
        self._held = self._given_up = 0

    def _keep(self, reason: str) -> float:
        """The batch stays where it is; how long to wait."""
        with self._lock:
            self._held = self._given_up = 0
            self._failures += 1
            self._in_a_row += 1
            self._reason = reason
            self._settled.notify_all()
            pause = min(2.0 ** min(self._in_a_row - 1, 10), _LONGEST_PAUSE)
            waiting, dropped = len(self._waiting), self.dropped
        # The first failure may be a server that restarts. Should it be all there is, closing tells of it.
        if waiting and self._in_a_row > 1 and self._by is None:
            lost = f", {dropped:,} were dropped" if dropped else ""
            text = (
                f"{_events(waiting)} wait for {self._place or 'delivery'}{lost}: {reason}. Tried again in {pause:.0f} s"
            )
            if say(self._label, self._place, text):
                self._admitted = dropped
        return pause

    def _own_up(self) -> None:
        """Say what was lost since that was last said."""
        lost, reason = self._untold()
        if lost > 0 and say(self._label, self._place, f"{not_delivered(lost, self._to)}: {reason}"):
            self._admitted += lost

    def _untold(self) -> tuple[int, str]:
        """How many events were lost of which nothing was said, and why."""
        return self.dropped - self._admitted, self._reason or self._too_many

    # -- on anybody's thread -----------------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """Events not yet delivered, those under way included."""
        return len(self._waiting)

    @property
    def emitted(self) -> int:
        """Events that ever came."""
        return self.counts().emitted

    def counts(self) -> Counts:
        """All four numbers at one moment. The first follows from the others, so that nothing can come between them."""
        with self._lock:
            delivered, dropped, waiting = self.delivered, self.dropped, len(self._waiting)
            return Counts(delivered + dropped + waiting, delivered, dropped, waiting)

    def flush(self, timeout: float = PATIENCE) -> bool:
        """Deliver now; whether all was. It gives up when the time is over, or when a delivery fails meanwhile."""
        until = time.monotonic() + timeout
        with self._lock:
            failures = self._failures
            if self._waiting:
                self._rouse()
            while (
                (self._waiting or self._finishing)
                and self._failures == failures
                and (left := until - time.monotonic()) > 0
            ):
                self._settled.wait(left)
            return not self._waiting

    def close(self) -> None:
        """Flush, count what is left as dropped, and say what was lost. An event that comes later opens it again."""
        if self._by is None:
            self._by = time.monotonic() + PATIENCE
        delivered = self.flush(max(0.0, self._by - time.monotonic()))
        with self._lock:
            if not delivered:
                self._reason = self._reason or f"no answer within {PATIENCE:g} s"
                self.dropped += len(self._waiting)
                self._waiting.clear()
                self._given_up = self._held or self._given_up
                self._held = self._weight = 0
            self._stop, self._by = True, None
            self._unclosed = not delivered and self._thread is not None
            _signal(self._wake)
        if not self._unclosed:
            self._close_up()
        self._own_up()

    def _close_up(self) -> None:
        try:
            if self._closing is not None:
                self._closing()
        except Exception as error:
            say(self._label, self._place, f"closing failed: {_why(error)}")

    def __del__(self) -> None:
        with suppress(Exception):  # at the very end there may be nothing left to tell it to
            remember(self)

    @property
    def _to(self) -> str:
        return f" to {self._place}" if self._place else ""

    @property
    def _too_many(self) -> str:
        return f"they came faster than they could be delivered, and no more than {self._limit:,} may wait"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._label}{self._to}>"


def queued(sink: Sink, *, label: str = "sink", place: str = "", limit: int = 8_192) -> Queued:
    """Any sink off the agent's thread. An event that it raises on is lost and counted; the others are not."""

    def deliver(events: Sequence[Event]) -> None:
        lost, reason = 0, ""
        for event in events:
            try:
                sink(event)
            except Exception as error:
                lost, reason = lost + 1, _why(error)
        if lost:
            raise Undelivered(reason, lost=lost)

    return _Wrapping(sink, deliver, label=label, place=place, limit=limit, closing=getattr(sink, "close", None))


class _Wrapping(Queued):
    """A queue in front of somebody's sink; one that sends says where."""

    def __init__(self, sink: Sink, deliver: Callable[[Sequence[Event]], None], **settings: Any) -> None:
        self.endpoint = getattr(sink, "endpoint", None)
        super().__init__(deliver, **settings)


def close_all(queues: Iterable[Queued]) -> None:
    """Close queues that share one deadline, so that two peers that never answer take no longer than one."""
    until = time.monotonic() + PATIENCE
    queues = list(queues)
    for queue in queues:
        queue._by = until
        queue.flush(0)
    for queue in queues:
        queue.close()


def _work(own: weakref.ref[Queued], wake: threading.Lock) -> None:
    """The thread: it holds its queue only while it is at work, so that an idle one can be collected."""
    pause: float | None = -1.0
    try:
        while pause is not None:
            wake.acquire(timeout=pause)
            queue = own()
            pause = None if queue is None else queue._serve()
            del queue
    finally:
        if pause is not None and (queue := own()) is not None:
            queue._deserted()


def _signal(wake: threading.Lock) -> None:
    if wake.locked():
        with suppress(RuntimeError):  # somebody else was faster
            wake.release()


def _cleaned(entry: list[Any]) -> Event | None:
    """The entry's event, plain and without secrets; None when that cannot be had. Done once for all tries."""
    event, _, redactor = entry
    if redactor is _CLEAN:
        return event  # type: ignore[no-any-return]
    clean: list[Event] = []
    with suppress(BaseException):  # what a payload's own methods raise must not end the thread
        if redactor is None:
            clean.append(event._replace(data=plain(event.data)))
        else:
            redacting(clean.append, redactor)(event)
    entry[0], entry[2] = (clean[0] if clean else None), _CLEAN
    return entry[0]  # type: ignore[no-any-return]


def _why(error: BaseException) -> str:
    """What went wrong, without a word of what was sent."""
    said = error.strerror if isinstance(error, OSError) else None
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _events(count: int) -> str:
    return "1 event" if count == 1 else f"{count:,} events"
