"""HTTP POST with a total deadline.

Owns: `Post`: a connection to one URL that is kept between requests, its deadline, and how much of a response is read.
Must never: follow a redirect, use a proxy, read more than 64 KiB of a response, or take longer than its deadline,
however slowly the server sends. (The system's name lookup has no deadline.)
"""

from __future__ import annotations

import io
import selectors
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ..errors import ConfigError

_MAX_RESPONSE = 65_536
_BODY_SECONDS = 0.2
"""Seconds to read the body of a response."""


class ConnectionLost(Exception):
    """The server had closed a kept connection; the next request opens another."""


class Post:
    """Requests to `url`, one at a time, each done within `timeout` seconds.

    A URL without a scheme is http; `end` is appended to its path unless the path ends with it. A password in it,
    `http://token:…@host`, is sent as a bearer token and never shown. `headers` replace the default ones.
    """

    def __init__(
        self,
        url: str,
        end: str = "",
        timeout: float = 2.0,
        *,
        headers: Mapping[str, str] | None = None,
        example: str = "http://127.0.0.1:5175",
    ) -> None:
        self._socket: socket.socket | None = None
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            port, host = parts.port, parts.hostname or ""
            host = host if host.isascii() else host.encode("idna").decode("ascii")
        except ValueError as error:
            raise ConfigError(f"{_without_credentials(url)!r} is not a URL: {error}; write it as {example}") from None
        if parts.scheme not in ("http", "https") or not host or port == 0:
            raise ConfigError(f"{_without_credentials(url)!r} is not a URL for events; write it as {example}")
        self._tls = parts.scheme == "https"
        self._host = host
        self._port = port or (443 if self._tls else 80)
        path = parts.path.rstrip("/")
        path = path if path.endswith(end) else path + end
        path = quote(path or "/", safe="/%:@!$&'()*+,;=~-._")
        self._target = f"{path}?{quote(parts.query, safe='/?%:@!$&()*+,;=~-._')}" if parts.query else path
        self._authority = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
        lines = {"content-type": "application/json", "user-agent": "compact"}
        if parts.password:
            lines["authorization"] = f"Bearer {unquote(parts.password)}"
        lines |= {name.lower(): value for name, value in (headers or {}).items()}
        for name, value in lines.items():
            if not (name + value).isascii() or not (name + value).isprintable() or ":" in name:
                raise ConfigError(
                    f"the header {name!r} for events, or the token in their URL, has characters that no "
                    "header takes; make a new one"
                )
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.place = urlunsplit((parts.scheme, self._authority, path, "", ""))
        """The URL without credentials and query."""
        self._timeout = timeout
        self._context: ssl.SSLContext | None = None

    def __call__(self, body: bytes) -> int:
        """Send a body; return the status. Raises `ConnectionLost`, `OSError` or `HTTPException`."""
        until = time.monotonic() + self._timeout
        kept = self._socket
        connection = _DeadlineSocket(kept or self._connect(until), until)
        try:
            head = (
                f"POST {self._target} HTTP/1.1\r\nHost: {self._authority}\r\n"
                f"Content-Length: {len(body)}\r\n{self._headers}\r\n"
            )
            with suppress(BrokenPipeError, ConnectionResetError):  # the server may respond before it has read all
                connection.send(head.encode("ascii") + body)
            with HTTPResponse(connection, method="POST") as response:  # type: ignore[arg-type]
                response.begin()
                status = response.status
                # Only the status matters; the body is read so that the connection can be used again.
                connection.until = min(until, time.monotonic() + _BODY_SECONDS)
                with suppress(OSError, HTTPException):
                    response.read(_MAX_RESPONSE)
                # A server that responds 413 may have left the request body unread, and would read it as a request.
                connection.keep = response.isclosed() and not (response.will_close or connection.ended or status == 413)
            return status
        except (OSError, HTTPException) as error:
            if kept is not None and not connection.heard and not isinstance(error, TimeoutError):
                raise ConnectionLost from None
            raise
        finally:
            if not connection.keep:
                self.close()

    @property
    def connected(self) -> bool:
        """Whether a connection is open, and the server has not closed it."""
        if self._socket is not None:
            # Between requests only the end of the stream can be read.
            with suppress(OSError, ValueError), selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                if not selector.select(0):
                    return True
            self.close()
        return False

    def close(self) -> None:
        """Close the connection; the next request opens one."""
        kept, self._socket = self._socket, None
        if kept is not None:
            with suppress(OSError):
                kept.close()

    def __del__(self) -> None:
        self.close()

    def _connect(self, until: float) -> socket.socket:
        failure: OSError = OSError(f"no address is known for {self._host}")
        # As bytes: a str would import its codec here, and a child forked meanwhile would wait for that forever.
        host = self._host.encode("ascii")
        for family, kind, protocol, _, address in socket.getaddrinfo(host, self._port, type=socket.SOCK_STREAM):
            opened = socket.socket(family, kind, protocol)
            try:
                opened.settimeout(_seconds_left(until))
                opened.connect(address)
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls:
                    self._context = self._context or ssl.create_default_context()
                    opened.settimeout(_seconds_left(until))
                    opened = self._context.wrap_socket(opened, server_hostname=self._host)
                self._socket = opened
                return opened
            except OSError as error:
                opened.close()
                failure = error
        raise failure


def _without_credentials(url: str) -> str:
    """A URL without credentials and query, also when it is not valid."""
    return url.partition("?")[0].partition("#")[0].rpartition("@")[2]


class _DeadlineSocket(io.RawIOBase):
    """A socket under a deadline, in the form that `HTTPResponse` reads."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection = connection
        self.until = until
        self.heard = 0
        self.ended = self.keep = False

    def send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            self._connection.settimeout(_seconds_left(self.until))
            left = left[self._connection.send(left) :]

    def makefile(self, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        room = min(len(buffer), _MAX_RESPONSE - self.heard)
        if room <= 0:
            self.ended = True
            return 0
        self._connection.settimeout(_seconds_left(self.until))
        got = self._connection.recv_into(buffer, room)
        self.heard += got
        self.ended = self.ended or not got
        return got


def _seconds_left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline has passed")
    return left
