"""Connections to one server.

Owns: `Pool`: which connections are open, and which one a request gets. Must never: read or write on them itself.

httpcore's own pool looks at every pair of its connections for each request (with 32 at once that was half of the
proxy's time), because it serves many servers. Here is one, so a stack of those that nobody uses is enough: the one that
was used last is taken first, and only that one is looked at.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpcore

__all__ = ["Pool"]

_KEPT = 200
"""Connections kept open while nobody uses them."""
_EXPIRY = 30.0
"""Seconds that one is kept."""


class Pool:
    """Connections to one server. Belongs to one event loop."""

    def __init__(self, origin: httpcore.Origin, trusted: ssl.SSLContext) -> None:
        self._origin, self._trusted = origin, trusted
        self._idle: list[httpcore.AsyncHTTPConnection] = []
        self._busy: set[httpcore.AsyncHTTPConnection] = set()

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send a request; the answer is open and must be closed."""
        connection = await self._taken()
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            await self.take_back(connection)
            raise
        content = _Stream(self, connection, response.stream)
        return httpcore.Response(
            response.status, headers=response.headers, content=content, extensions=response.extensions
        )

    async def aclose(self) -> None:
        """Close every connection."""
        for connection in (*self._idle, *self._busy):
            await connection.aclose()
        self._idle.clear()

    async def _taken(self) -> httpcore.AsyncHTTPConnection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed() and not connection.has_expired():
                break
            await connection.aclose()
        else:
            connection = httpcore.AsyncHTTPConnection(self._origin, self._trusted, keepalive_expiry=_EXPIRY)
        self._busy.add(connection)
        return connection

    async def take_back(self, connection: httpcore.AsyncHTTPConnection) -> None:
        """Nobody uses this one any more."""
        self._busy.discard(connection)
        if self._idle and self._idle[0].has_expired():  # the one that nobody has used for longest
            await self._idle.pop(0).aclose()
        if connection.is_idle() and len(self._idle) < _KEPT:
            self._idle.append(connection)
        else:
            await connection.aclose()


class _Stream:
    """An answer's bytes; closing it gives the connection back."""

    def __init__(self, pool: Pool, connection: httpcore.AsyncHTTPConnection, stream: Any) -> None:
        self._pool, self._connection, self._stream = pool, connection, stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part

    async def aclose(self) -> None:
        """Whatever was not read is not wanted."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            try:
                await stream.aclose()
            finally:
                await self._pool.take_back(self._connection)
