"""A uvicorn server that reports when it answers, and runs in a thread for the length of a `with` block.

Owns: `Server`. Must never: know which application it serves.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from .listening import address_of


class Server(uvicorn.Server):
    """Calls `ready` as soon as it accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and report it."""
        await super().startup(sockets)
        self.report_started()

    def report_started(self) -> None:
        """Called once, as soon as connections are accepted."""
        self.ready()

    def end(self) -> None:
        """Begin to shut down."""
        self.should_exit = True

    @contextmanager
    def in_thread(self, listening: socket.socket, name: str, patience: float) -> Iterator[str]:
        """Serve in a thread until the block ends, and give the URL. The end waits at most `patience` seconds."""
        ready, failures = threading.Event(), list[BaseException]()

        def run() -> None:
            try:
                self.run(sockets=[listening])
            except BaseException as error:  # raised in the thread that waits for the start
                failures.append(error)
            ready.set()

        self.ready = ready.set
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        try:
            ready.wait()
            if failures:
                raise failures[0]
            yield address_of(listening)
        finally:
            self.end()
            thread.join(patience)
