"""Starting and stopping the proxy.

Owns: the server, its signals, and how a running proxy comes to its end. Must never: listen beyond loopback without a
token, let a library of this process print what passes, or cut a request off that may still end in time.

The first SIGTERM or Ctrl-C: nobody new is let in, what runs has `proxy.drain` seconds to end, and the exit code is 0.
The second ends at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from .._engine.manager import CompactManager
from .._http.access import check_address
from .._http.listening import address_of, listen
from .._http.serving import Server
from ..config import CompactConfig
from ..errors import ConfigError
from .access import LONGEST_HEAD, Guard
from .app import Proxy
from .operations import Operations

__all__ = ["running", "serve"]

_NO_UPSTREAM = (
    "no upstream is given: name the API that requests are sent to, such as compact proxy --upstream "
    "https://api.openai.com or compact proxy --upstream https://api.anthropic.com"
)

_TURN = 0.0005
"""Seconds after which a thread that folds lets the event loop go on, when it wants to; the usual five milliseconds are
what a whole request takes."""
_OFFER = re.compile(rb"\r\nupgrade:[ \t]*h2c[ \t]*(?=\r\n)", re.IGNORECASE)
"""Java's client offers HTTP/2 with every request; a parser that sees the offer loses the body."""

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:  # httptools is faster, and not built for every platform; h11 does all of this itself
    _PROTOCOL: type | str = "h11"
else:

    class _Protocol(HttpToolsProtocol):
        """What httptools lets pass: a target that is no path, a head without an end, a client that never sends one."""

        _head = 0
        """Bytes so far, or -1 when there is no head to come."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._head = 0

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._head >= 0:  # what comes behind a body is no header: it could be any, after all were judged
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._head = -1
            super().on_headers_complete()  # the request's task begins after this turn of the loop
            if not self.url.startswith(b"/"):  # of an address, only the path was left
                self.scope["raw_path"] = self.url.partition(b"?")[0]

        def data_received(self, data: bytes) -> None:
            if self.cycle is None or not self.cycle.more_body:
                offer = _OFFER.search(data, 0, data.find(b"\r\n\r\n") + 2)
                data = data[: offer.start()] + data[offer.end() :] if offer else data
            super().data_received(data)
            if self._head >= 0 and not self.transport.is_closing():
                self._head += len(data)
                self._wait()
                if self._head > LONGEST_HEAD:
                    self.send_400_response(f"The head of the request has more than {LONGEST_HEAD} bytes.")

        def _wait(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                wait, leave = self.timeout_keep_alive, self.timeout_keep_alive_handler
                self.timeout_keep_alive_task = self.loop.call_later(wait, leave)

    _PROTOCOL = _Protocol


def serve(
    config: CompactConfig,
    *,
    token: str | None = None,
    log_level: str = "info",
    started: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until a signal; `started` is told the address as soon as it answers."""
    operations = Operations(level=log_level)
    operations.own_process()
    with _server(config, operations, token, None) as (server, listening):

        def ready() -> None:
            gc.freeze()  # what a start leaves is for good: nobody needs to look through it while a request waits
            sys.setswitchinterval(_TURN)
            started(address_of(listening, named=True))

        server.ready = ready
        server.run(sockets=[listening])


@contextmanager
def running(
    config: CompactConfig,
    *,
    token: str | None = None,
    manager: CompactManager | None = None,
    log_level: str = "error",
) -> Iterator[str]:
    """A proxy in a thread of this process, and its address; it ends with the block, as after a signal."""
    with (
        _server(config, Operations(level=log_level), token, manager) as (server, listening),
        server.in_thread(listening, "compact-proxy", config.proxy.drain + 10) as address,
    ):
        yield address


class _Server(Server):
    """A server that starts and ends the application with it: what hinders the start is then told as what it is."""

    def __init__(self, config: uvicorn.Config, proxy: Proxy, operations: Operations) -> None:
        super().__init__(config)
        self._proxy = proxy
        self._operations = operations

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start."""
        await self._proxy.startup()
        await super().startup(sockets)

    def report_started(self) -> None:
        """Log the start."""
        self._operations.say("info", "started")
        super().report_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let nobody in, wait for what runs, and close."""
        self._operations.say("info", "draining", requests=len(self.server_state.tasks))
        await super().shutdown(sockets)
        await self._proxy.shutdown()
        self._operations.say("info", "stopped")

    def end(self) -> None:
        """Begin to end."""
        self._operations.draining = True
        super().end()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal; not noted as caught, because the server would raise it again when all is done."""
        if self.should_exit:
            os._exit(128 + sig)
        self.end()


@contextmanager
def _server(
    config: CompactConfig, operations: Operations, token: str | None, manager: CompactManager | None
) -> Iterator[tuple[_Server, socket.socket]]:
    policy = config.proxy
    if policy.upstream is None:
        raise ConfigError(_NO_UPSTREAM)
    danger = "whoever finds the port could send requests through it and spend what the summaries cost"
    check_address(policy.host, token, variable="COMPACT_PROXY_TOKEN", danger=danger)
    listening = listen(policy.host, policy.port)
    try:
        proxy = Proxy(config, operations, manager)
        settings = uvicorn.Config(
            Guard(proxy, operations, host=policy.host, token=token),
            http=_PROTOCOL,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=policy.drain,
        )
        yield _Server(settings, proxy, operations), listening
    finally:
        listening.close()
