"""The upstream: the one server that requests are sent to.

Owns: the connections to it, the URL of every request, and which headers pass. Must never: let a request choose another
host, follow a redirect, keep a cookie, or read the environment.

It uses httpcore, the connection layer of httpx: a client above it would share cookies between users, add headers and
normalize URLs, and all of that would have to be turned off.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpcore

from ..errors import ConfigError
from .connections import Pool

Headers = list[tuple[bytes, bytes]]

FAILURES = httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException
"""Errors of a connection to the upstream."""

_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding "
    b"upgrade expect".split()
)
"""Headers that concern one connection only."""


def forwardable_headers(headers: Iterable[tuple[bytes, bytes]], *without: bytes) -> Headers:
    """The headers to pass on: without those of the connection, those of compact, and those in `without`."""
    given = [(name.lower(), name, value) for name, value in headers]
    listed = (value for lower, _, value in given if lower == b"connection")
    named = {part.strip().lower() for value in listed for part in value.split(b",")}
    dropped = _HOP | named | set(without)
    return [
        (name, value) for lower, name, value in given if lower not in dropped and not lower.startswith(b"x-compact-")
    ]


class Upstream:
    """A server with a base URL. Belongs to one event loop."""

    def __init__(self, base: str, *, timeout: float, connect_timeout: float, ca_file: str | None = None) -> None:
        parts = urlsplit(base)
        self.base = base.rstrip("/")
        self.host = parts.hostname or ""
        self._scheme, self._host = parts.scheme.encode(), (parts.hostname or "").encode("idna")
        self._port = parts.port
        self._prefix = parts.path.rstrip("/").encode()
        self._origin = parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme]
        name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        self._named = (name if parts.port is None else f"{name}:{parts.port}").encode()
        self._timeout = {"connect": connect_timeout, "read": timeout, "write": timeout, "pool": connect_timeout}
        try:
            trusted = ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"proxy.ca_file: {ca_file} cannot be read ({error}); name a PEM file") from None
        origin = httpcore.Origin(self._scheme, self._host, parts.port or _PORTS[parts.scheme])
        self._pool = Pool(origin, trusted)

    def leaves_prefix(self, target: bytes) -> bool:
        """Whether a path leads out of the base URL's path."""
        return bool(self._prefix) and _DOTS.search(target) is not None

    async def send(self, method: str, target: bytes, headers: Headers, content: bytes) -> httpcore.Response:
        """Send a request for a path of this server; the caller closes the response."""
        sent = [(b"Host", self._named), *headers]
        if content or method in ("POST", "PUT", "PATCH"):
            sent.append((b"Content-Length", str(len(content)).encode()))
        request = httpcore.Request(
            method.encode(),
            httpcore.URL(scheme=self._scheme, host=self._host, port=self._port, target=self._prefix + target),
            headers=sent,
            content=content,
            extensions={"timeout": self._timeout},
        )
        return await self._pool.handle_async_request(request)

    async def ask(
        self, path: str, headers: Headers, body: Mapping[str, Any], timeout: float
    ) -> tuple[int, Headers, bytes]:
        """Send JSON to a path of this server, and read the whole response."""
        content = json.dumps(body).encode()
        kind = [(b"Content-Type", b"application/json"), (b"Accept-Encoding", b"identity")]
        async with asyncio.timeout(timeout):
            answer = await self.send("POST", path.encode("latin-1"), [*headers, *kind], content)
            try:
                return answer.status, list(answer.headers), await answer.aread()
            finally:
                await answer.aclose()

    def rewrite_location(self, value: bytes) -> bytes | None:
        """The target of a redirect as a path of the proxy; None when it leads to another server."""
        try:
            parts = urlsplit(value.decode("ascii"))
            port = parts.port or _PORTS.get(parts.scheme)
        except ValueError:
            return None
        if not parts.scheme and not parts.netloc and not value.startswith((b"//", b"/\\", b"\\")):
            return value
        if (parts.scheme, parts.hostname, port) != self._origin or "@" in parts.netloc:
            return None
        place = parts.path.removeprefix(self._prefix.decode()) or "/"
        return (place + (f"?{parts.query}" if parts.query else "")).encode()

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.aclose()


_PORTS = {"http": 80, "https": 443}
_DOTS = re.compile(rb"(?:^|[/\\]|%2f|%5c)(?:\.|%2e){1,2}(?:$|[/\\]|%2f|%5c)", re.IGNORECASE)
