"""The end of a process, as exporters meet it.

Owns: which queues there are, what is done at exit, and the losses of queues that nobody holds any more.
Must never: wait longer than two seconds in all, whatever ends the process, or tell of a loss twice.

Rules:
- `atexit` runs what was registered last first. A queue that starts to work registers anew, so that it is emptied before
  an application's own exporters, which it may feed, shut down.
- A child of `multiprocessing` ends without `atexit`; it has finalizers of its own.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from typing import TYPE_CHECKING

from ._process import renewed_in_child, write_line

if TYPE_CHECKING:
    from ._queue import Queued

__all__ = ["PATIENCE", "expect", "know", "not_delivered", "remember", "waiting"]

PATIENCE = 2.0
"""Seconds that closing, or the interpreter's exit, waits for what is queued."""

waiting: set[Queued] = set()
"""Queues in which something waits: nobody else may be holding them any more."""
_alive: weakref.WeakSet[Queued] = weakref.WeakSet()


class _State:
    """What belongs to one process."""

    def __init__(self) -> None:
        self._renew()
        renewed_in_child(self)

    def _renew(self) -> None:
        self.until: float | None = None
        """When the exit has to be done, once it has begun."""
        self.finalized_in = 0
        """The process that `multiprocessing` was told of."""
        self.untold: dict[tuple[str, str], tuple[int, str]] = {}
        """Losses of queues that are gone, by label and place, with a reason."""


_state = _State()


def know(queue: Queued) -> None:
    """Empty this queue at exit."""
    _alive.add(queue)


def expect() -> None:
    """A queue has something to do from now on, which an exit must not cut off."""
    atexit.unregister(_before_others)
    atexit.register(_before_others)
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None and _state.finalized_in != os.getpid():
        _state.finalized_in = os.getpid()
        multiprocessing.Finalize(None, _at_exit, exitpriority=0)


def remember(queue: Queued) -> None:
    """Keep for the exit what a queue lost, or will have lost by then, without saying so."""
    lost, reason = queue._untold()
    lost += queue.queued
    if lost > 0:
        place = queue._label, queue._to
        _state.untold[place] = _state.untold.get(place, (0, ""))[0] + lost, reason
        queue._admitted += lost


def not_delivered(count: int, to: str) -> str:
    """How a loss is told."""
    return f"{count:,} events were not delivered{to}" if count != 1 else f"1 event was not delivered{to}"


def _at_exit() -> None:
    """All queues have the same two seconds; what is lost, and was not said before, is one line for each place."""
    _state.until = until = _state.until or time.monotonic() + PATIENCE
    queues = list(_alive)
    for queue in queues:
        queue._by = until
        queue.flush(0)
    for queue in queues:
        if not queue.flush(max(0.0, until - time.monotonic())):
            queue._reason = queue._reason or f"no answer within {PATIENCE:g} s"
        remember(queue)
    while _state.untold:
        (label, to), (lost, reason) = _state.untold.popitem()
        write_line(f"[{label}] {not_delivered(lost, to)} before exit: {reason}.")


def _before_others() -> None:
    _at_exit()


# This one stays: what is registered while an exit is under way is not run any more.
atexit.register(_at_exit)
