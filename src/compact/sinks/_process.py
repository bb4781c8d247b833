"""What exporters share with the whole process: its stderr, and that it may fork.

Owns: `say`, at most one line a minute for each place; `renewed_in_child`.
Must never: raise, or print what an event holds.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet

__all__ = ["renewed_in_child", "say", "write_line"]

_QUIET = 60.0
_PLACES = 1_000


def say(label: str, place: str, text: str) -> bool:
    """`[label] text.` on stderr, unless this place had a line within the last minute; whether it was said."""
    now = time.monotonic()
    with _mutex:
        if now - _said.get((label, place), -_QUIET) < _QUIET:
            return False
        if len(_said) >= _PLACES:
            _said.clear()
        _said[label, place] = now
    write_line(f"[{label}] {text}.")
    return True


def write_line(line: str) -> None:
    """A line on stderr, if there is one that can be written to."""
    with suppress(Exception):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


_mutex = threading.RLock()  # whoever holds it may be interrupted, and speak again
_said: dict[tuple[str, str], float] = {}


class _Renewable(Protocol):
    def _renew(self) -> None: ...


_renewable: WeakSet[_Renewable] = WeakSet()


def renewed_in_child(thing: _Renewable) -> None:
    """Have `_renew()` called on a thing in every forked child, as long as the thing lives."""
    _renewable.add(thing)


def _after_fork() -> None:
    global _mutex
    _mutex = threading.RLock()
    for thing in list(_renewable):
        thing._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
