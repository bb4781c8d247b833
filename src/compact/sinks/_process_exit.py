"""The exit of a process: queues are flushed, and losses are reported.

Owns: the set of live queues, what happens at exit, and the losses of queues that were garbage collected.
Must never: wait longer than two seconds in all, or report a loss twice.

Rules:
- `atexit` runs the last registered function first. A queue that starts to work registers again, so that it is flushed
  before the application's exporters, which it may feed, shut down.
- A child of `multiprocessing` ends without `atexit`; it has separate finalizers.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from typing import TYPE_CHECKING

from ._process import renew_after_fork, write_line

if TYPE_CHECKING:
    from ._queue import Queued

CLOSE_SECONDS = 2.0
"""Seconds that closing, or the exit of the interpreter, waits for queued events."""

busy_queues: set[Queued] = set()
"""Queues with waiting events: this may be the only reference to them."""
_alive: weakref.WeakSet[Queued] = weakref.WeakSet()


class _ExitState:
    """The state of one process."""

    def __init__(self) -> None:
        self._renew()
        renew_after_fork(self)

    def _renew(self) -> None:
        self.until: float | None = None
        """The deadline of the exit, once it has begun."""
        self.finalized_in = 0
        """The process in which a finalizer of `multiprocessing` is registered."""
        self.unreported: dict[tuple[str, str], tuple[int, str]] = {}
        """Losses of queues that no longer exist, by label and place, with a reason."""


_state = _ExitState()


def flush_at_exit(queue: Queued) -> None:
    """Flush this queue at exit."""
    _alive.add(queue)


def register_exit() -> None:
    """Register the exit again: a queue starts to work."""
    atexit.unregister(_at_exit_first)
    atexit.register(_at_exit_first)
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None and _state.finalized_in != os.getpid():
        _state.finalized_in = os.getpid()
        multiprocessing.Finalize(None, _at_exit, exitpriority=0)


def record_losses(queue: Queued) -> None:
    """Keep for the exit the losses of a queue that were not reported, and its undelivered events."""
    lost, reason = queue._unreported()
    lost += queue.queued
    if lost > 0:
        place = queue._label, queue._destination
        _state.unreported[place] = _state.unreported.get(place, (0, ""))[0] + lost, reason
        queue._reported += lost


def describe_loss(count: int, to: str) -> str:
    """The text that reports a loss."""
    return f"{count:,} events were not delivered{to}" if count != 1 else f"1 event was not delivered{to}"


def _at_exit() -> None:
    """Flush all queues within the same two seconds; write one line of unreported losses for each place."""
    _state.until = until = _state.until or time.monotonic() + CLOSE_SECONDS
    queues = list(_alive)
    for queue in queues:
        queue._close_by = until
        queue.flush(0)
    for queue in queues:
        if not queue.flush(max(0.0, until - time.monotonic())):
            queue._reason = queue._reason or f"no answer within {CLOSE_SECONDS:g} s"
        record_losses(queue)
    while _state.unreported:
        (label, to), (lost, reason) = _state.unreported.popitem()
        write_line(f"[{label}] {describe_loss(lost, to)} before exit: {reason}.")


def _at_exit_first() -> None:
    _at_exit()


# Stays registered: functions that are registered during an exit are not run.
atexit.register(_at_exit)
