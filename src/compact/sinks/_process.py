"""What sinks share in one process: lines on stderr, and forks.

Owns: `report`, at most one line a minute for each destination; `renew_after_fork`.
Must never: raise, or print the content of an event.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet

_SECONDS_BETWEEN = 60.0
_MAX_PLACES = 1_000


def report(label: str, place: str, text: str) -> bool:
    """Write `[label] text.` to stderr, unless this place had a line in the last minute; return whether it did."""
    now = time.monotonic()
    with _mutex:
        if now - _reported_at.get((label, place), -_SECONDS_BETWEEN) < _SECONDS_BETWEEN:
            return False
        if len(_reported_at) >= _MAX_PLACES:
            _reported_at.clear()
        _reported_at[label, place] = now
    write_line(f"[{label}] {text}.")
    return True


def write_line(line: str) -> None:
    """Write a line to stderr, if that is possible."""
    with suppress(Exception):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


_mutex = threading.RLock()  # a signal handler may report while it is held
_reported_at: dict[tuple[str, str], float] = {}


class _Renewable(Protocol):
    def _renew(self) -> None: ...


_renewable: WeakSet[_Renewable] = WeakSet()


def renew_after_fork(renewable: _Renewable) -> None:
    """Have `_renew()` called on an object in every forked child, as long as the object lives."""
    _renewable.add(renewable)


def _after_fork() -> None:
    global _mutex
    _mutex = threading.RLock()
    for renewable in list(_renewable):
        renewable._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
