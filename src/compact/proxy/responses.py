"""Responses to the client, and reading the usage that a response reports.

Owns: `ClientResponse`, `RequestRefused` (an error that the proxy answers itself), `UsageListener`.
Must never: change what an upstream answered.
"""

from __future__ import annotations

import json
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .conversations import Conversations, ProxyExchange
from .operations import RequestRecord
from .upstream import Headers

if TYPE_CHECKING:
    from starlette.types import Send

_LONGEST_LINE = 1 << 20
"""Bytes of a response, or of a line of a stream, that are searched for the provider's usage."""


class RequestRefused(Exception):
    """A request that is not sent on, or whose response is not passed back."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ClientResponse:
    """The response to the client, and its log record."""

    def __init__(self, send: Send, record: RequestRecord) -> None:
        self._send = send
        self.record = record
        self.status = 0
        self._bytes = 0

    async def start(self, status: int, headers: Headers, kind: bytes) -> None:
        """Send the status and the headers."""
        self.status = status
        self.record.stream = kind.startswith(b"text/event-stream")
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send_part(self, part: bytes) -> None:
        """Send some bytes of the body."""
        if not self._bytes:
            self.record.first_byte = perf_counter()
        self._bytes += len(part)
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def end(self) -> None:
        """End the body."""
        await self._send({"type": "http.response.body", "body": b""})
        self.record.finish(status=self.status, bytes_out=self._bytes)

    async def refuse(self, refusal: RequestRefused, *headers: tuple[bytes, bytes]) -> None:
        """Send an error of the proxy."""
        content = json.dumps(error_body(str(refusal))).encode()
        kind = (b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())
        await self._send({"type": "http.response.start", "status": refusal.status, "headers": [*kind, *headers]})
        await self._send({"type": "http.response.body", "body": content})
        self.record.finish(status=refusal.status, bytes_out=len(content))


class UsageListener:
    """Reads the provider's usage from a response, or from the events of a stream."""

    def __init__(self, conversations: Conversations, exchange: ProxyExchange, session: str) -> None:
        self._conversations = conversations
        self._exchange = exchange
        self._session = session
        self._held = b""

    def feed(self, part: bytes) -> None:
        """Read some bytes of the response."""
        *lines, self._held = (self._held + part).split(b"\n")
        for line in lines:
            self._read_usage(line.removeprefix(b"data:"))
        if len(self._held) > _LONGEST_LINE:
            self._held = b""

    def end(self) -> None:
        """Read the last line."""
        self._read_usage(self._held)

    def _read_usage(self, text: bytes) -> None:
        answer = parse_json(text) if b'"usage"' in text else None
        if isinstance(answer, dict):
            with suppress(Exception):  # the response must reach the client whatever is in it
                self._conversations.observe(self._exchange, self._session, answer)


def error_body(reason: str) -> dict[str, Any]:
    """An error of the proxy, in the form that the clients of both providers show."""
    return {"type": "error", "error": {"type": "compact_proxy", "message": f"compact proxy: {reason}"}}


def header_value(headers: Headers, wanted: bytes) -> bytes:
    """The value of a header in lower case; empty when it is missing."""
    return next((value.strip().lower() for name, value in headers if name.lower() == wanted), b"")


def parse_json(text: bytes) -> Any:
    """The value of a JSON text; None when it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
