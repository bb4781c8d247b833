"""Daemon threads for work that may never end, such as a request to a store that does not answer.

Owns: `Workers`. Must never: keep the process from ending, or use the event loop's default threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Workers:
    """A fixed number of daemon threads with one queue."""

    def __init__(self, count: int) -> None:
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._count = count
        for _ in range(count):
            threading.Thread(target=self._run, name="compact-view-archive", daemon=True).start()

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run a function in a thread; cancel the returned future when the result is not needed any more."""
        future: Future[T] = Future()
        self._work.put((future, work))
        return asyncio.wrap_future(future)

    def close(self) -> None:
        """End each thread after its current work."""
        for _ in range(self._count):
            self._work.put(None)

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            future, work = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
