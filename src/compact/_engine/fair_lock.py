"""A fair lock for threads and tasks alike: first come, first served.

Owns: `FairLock`. Must never: block an event loop, or lose its turn when a waiting task is cancelled.

A `threading.Lock` would block the event loop it is waited for on, and an `asyncio.Lock` does not work between threads;
a session may be called from both.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ..errors import ConfigError


class FairLock:
    """A fair lock: waiters get it in the order they came, whatever kind they are."""

    __slots__ = ("_busy", "_guard", "_waiting")

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._busy = False
        self._waiting: deque[Callable[[], None]] = deque()

    def acquire(self) -> None:
        """Wait for the lock on this thread. The caller must release it."""
        with self._guard:
            if not self._busy:
                self._busy = True
                return
        _check_no_loop()
        ready = threading.Event()
        if not self._acquire_or_queue(ready.set):
            try:
                ready.wait()
            except BaseException:  # a signal while waiting: pass the lock on if it was already ours
                self._leave_queue(ready.set)
                raise

    def release(self) -> None:
        """Pass the lock to the caller that waits longest."""
        while True:
            with self._guard:
                if not self._waiting:
                    self._busy = False
                    return None
                grant = self._waiting.popleft()
            try:
                return grant()
            except RuntimeError:  # the event loop it waited on was closed: try the next one
                continue

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Hold the lock, waiting for it without blocking the event loop."""
        import asyncio  # here, because importing it costs more than the rest of the library

        loop = asyncio.get_running_loop()
        ready = asyncio.Event()

        def grant() -> None:
            loop.call_soon_threadsafe(ready.set)

        if not self._acquire_or_queue(grant):
            try:
                await ready.wait()
            except BaseException:  # cancelled while waiting
                self._leave_queue(grant)
                raise
        try:
            yield
        finally:
            self.release()

    def _acquire_or_queue(self, grant: Callable[[], None]) -> bool:
        """Take the lock when it is free; otherwise queue up."""
        with self._guard:
            if not self._busy:
                self._busy = True
                return True
            self._waiting.append(grant)
            return False

    def _leave_queue(self, grant: Callable[[], None]) -> None:
        """Give up a place in the queue, or pass the lock on when it had just been granted."""
        with self._guard:
            if grant in self._waiting:
                self._waiting.remove(grant)
                return
        self.release()


def _check_no_loop() -> None:
    """Waiting here would block the event loop of this thread, for ever when one of its tasks holds the lock."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError(
        "this session is busy with another call, and a sync verb would block the event loop until that is done, "
        "perhaps for ever; await the async form (apreflight), or run the sync one with asyncio.to_thread"
    )
