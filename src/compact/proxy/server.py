"""Starting and stopping the proxy's server.

Owns: the server, its signals, and its shutdown. Must never: listen beyond loopback without a token, let a library of
this process print request data, or abort a request that may still finish in time.

After the first SIGTERM or Ctrl-C no request is accepted, running ones have `proxy.drain` seconds, and the exit code is
0. The second one ends the process at once.
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
from .access import LONGEST_HEAD, ProxyGuard
from .app import Proxy
from .operations import Operations

_NO_UPSTREAM = (
    "no upstream given: name the API that requests are sent to, such as compact proxy --upstream "
    "https://api.openai.com or compact proxy --upstream https://api.anthropic.com"
)

_TURN = 0.0005
"""Seconds after which a thread yields to the event loop; Python's default of five milliseconds is what a whole request
takes."""
_OFFER = re.compile(rb"\r\nupgrade:[ \t]*h2c[ \t]*(?=\r\n)", re.IGNORECASE)
"""Java's client offers HTTP/2 with every request; a parser that sees the header loses the body."""

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:  # httptools is faster, and not built for every platform; h11 checks all of this itself
    _PROTOCOL: type | str = "h11"
else:

    class _Protocol(HttpToolsProtocol):
        """Adds what httptools does not check: the target, and the length and the time of a head."""

        _head = 0
        """Bytes of the head so far, or -1 after its end."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._head = 0

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._head >= 0:  # a trailer after the body is ignored: the headers were checked before
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._head = -1
            super().on_headers_complete()  # the request's task starts later
            if not self.url.startswith(b"/"):  # uvicorn keeps only the path of a whole address
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
    """Serve until a signal; `started` is called with the address once the proxy answers."""
    operations = Operations(level=log_level)
    operations.log_libraries()
    with _open_server(config, operations, token, None) as (server, listening):

        def ready() -> None:
            gc.freeze()  # objects of the start stay: collections during requests can skip them
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
    """Run a proxy in a thread of this process, and yield its address; it stops with the block, as after a signal."""
    with (
        _open_server(config, Operations(level=log_level), token, manager) as (server, listening),
        server.in_thread(listening, "compact-proxy", config.proxy.drain + 10) as address,
    ):
        yield address


class _ProxyServer(Server):
    """A server that starts and stops the application, so that an error of its start is raised as it is."""

    def __init__(self, config: uvicorn.Config, proxy: Proxy, operations: Operations) -> None:
        super().__init__(config)
        self._proxy = proxy
        self._operations = operations

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then the server."""
        await self._proxy.startup()
        await super().startup(sockets)

    def report_started(self) -> None:
        """Log the start."""
        self._operations.log("info", "started")
        super().report_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more requests, wait for the running ones, and close."""
        self._operations.log("info", "draining", requests=len(self.server_state.tasks))
        await super().shutdown(sockets)
        await self._proxy.shutdown()
        self._operations.log("info", "stopped")

    def end(self) -> None:
        """Stop accepting requests."""
        self._operations.draining = True
        super().end()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal. uvicorn does not record it, because it would raise it again at the end."""
        if self.should_exit:
            os._exit(128 + sig)
        self.end()


@contextmanager
def _open_server(
    config: CompactConfig, operations: Operations, token: str | None, manager: CompactManager | None
) -> Iterator[tuple[_ProxyServer, socket.socket]]:
    policy = config.proxy
    if policy.upstream is None:
        raise ConfigError(_NO_UPSTREAM)
    danger = "any client that finds the port could send requests through it and spend what the summaries cost"
    check_address(policy.host, token, variable="COMPACT_PROXY_TOKEN", danger=danger)
    listening = listen(policy.host, policy.port)
    try:
        proxy = Proxy(config, operations, manager)
        settings = uvicorn.Config(
            ProxyGuard(proxy, operations, host=policy.host, token=token),
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
        yield _ProxyServer(settings, proxy, operations), listening
    finally:
        listening.close()
