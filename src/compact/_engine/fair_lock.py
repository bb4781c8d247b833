"""One at a time, first come first served, for threads and for tasks alike.

Owns: `FairLock`. Must never: block an event loop, or lose its turn when a waiting task is cancelled.

A `threading.Lock` would stop the event loop it is waited for on, and an `asyncio.Lock` knows nothing of threads; a
session may be called from both.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ..errors import ConfigError

__all__ = ["FairLock"]


class FairLock:
    """A fair lock. Waiters get their turn in the order they came, whatever kind they are."""

    __slots__ = ("_busy", "_guard", "_waiting")

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._busy = False
        self._waiting: deque[Callable[[], None]] = deque()

    def enter(self) -> None:
        """Wait for a turn on this thread. Whoever enters must leave."""
        with self._guard:
            if not self._busy:
                self._busy = True
                return
        _check_no_loop()
        ready = threading.Event()
        if not self._enter(ready.set):
            try:
                ready.wait()
            except BaseException:  # a signal while waiting: hand the turn on if it was already ours
                self._abandon(ready.set)
                raise

    def leave(self) -> None:
        """Hand the turn to whoever waits longest."""
        while True:
            with self._guard:
                if not self._waiting:
                    self._busy = False
                    return None
                grant = self._waiting.popleft()
            try:
                return grant()
            except RuntimeError:  # the event loop it waited on was closed: the next one, then
                continue

    @asynccontextmanager
    async def aturn(self) -> AsyncIterator[None]:
        """Wait for a turn without stopping the event loop."""
        import asyncio  # here, because importing it costs more than the rest of the library, and sync hosts need none

        loop = asyncio.get_running_loop()
        ready = asyncio.Event()

        def grant() -> None:
            loop.call_soon_threadsafe(ready.set)

        if not self._enter(grant):
            try:
                await ready.wait()
            except BaseException:  # cancelled while waiting
                self._abandon(grant)
                raise
        try:
            yield
        finally:
            self.leave()

    def _enter(self, grant: Callable[[], None]) -> bool:
        """Go in when nobody is inside; otherwise queue up to be told."""
        with self._guard:
            if not self._busy:
                self._busy = True
                return True
            self._waiting.append(grant)
            return False

    def _abandon(self, grant: Callable[[], None]) -> None:
        """Give up a place in the queue, or hand the turn on when it had just been granted."""
        with self._guard:
            if grant in self._waiting:
                self._waiting.remove(grant)
                return
        self.leave()


def _check_no_loop() -> None:
    """Waiting here would stop the event loop of this thread, and for ever when one of its tasks is inside."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError(
        "this session is busy with another call, and a sync verb would stop the event loop until that is done, perhaps "
        "for ever; await the async form (apreflight), or run the sync one with asyncio.to_thread"
    )
