"""A connection pool for one server.

Owns: `Pool`: which connections are open, and which one a request gets. Must never: read or write on them itself.

httpcore's own pool compares every pair of its connections for each request (with 32 at once that was half of the
proxy's time), because it serves many servers. For one server a stack of idle connections is enough: the one used last
is taken first, and only that one is checked.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpcore

_KEPT = 200
"""Idle connections that are kept open."""
_EXPIRY = 30.0
"""Seconds that an idle connection is kept."""


class Pool:
    """Connections to one server. Belongs to one event loop."""

    def __init__(self, origin: httpcore.Origin, trusted: ssl.SSLContext) -> None:
        self._origin, self._trusted = origin, trusted
        self._idle: list[httpcore.AsyncHTTPConnection] = []
        self._busy: set[httpcore.AsyncHTTPConnection] = set()

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send a request; the caller closes the response."""
        connection = await self._take()
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            await self.release(connection)
            raise
        content = _PooledStream(self, connection, response.stream)
        return httpcore.Response(
            response.status, headers=response.headers, content=content, extensions=response.extensions
        )

    async def aclose(self) -> None:
        """Close every connection."""
        for connection in (*self._idle, *self._busy):
            await connection.aclose()
        self._idle.clear()

    async def _take(self) -> httpcore.AsyncHTTPConnection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed() and not connection.has_expired():
                break
            await connection.aclose()
        else:
            connection = httpcore.AsyncHTTPConnection(self._origin, self._trusted, keepalive_expiry=_EXPIRY)
        self._busy.add(connection)
        return connection

    async def release(self, connection: httpcore.AsyncHTTPConnection) -> None:
        """Return a connection to the pool, or close it."""
        self._busy.discard(connection)
        if self._idle and self._idle[0].has_expired():  # the one unused for longest
            await self._idle.pop(0).aclose()
        if connection.is_idle() and len(self._idle) < _KEPT:
            self._idle.append(connection)
        else:
            await connection.aclose()


class _PooledStream:
    """The bytes of a response; closing it returns the connection."""

    def __init__(self, pool: Pool, connection: httpcore.AsyncHTTPConnection, stream: Any) -> None:
        self._pool, self._connection, self._stream = pool, connection, stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield part

    async def aclose(self) -> None:
        """Close the response, read or not."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            try:
                await stream.aclose()
            finally:
                await self._pool.release(self._connection)
