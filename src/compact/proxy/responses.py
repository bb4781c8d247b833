"""What the client gets, and what we overhear of it.

Owns: `Answer` (the client's side of an exchange), `Refused` (an answer of our own), `Listener`.
Must never: change what an upstream answered.
"""

from __future__ import annotations

import json
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .conversations import Conversations, Exchange
from .operations import Record
from .upstream import Headers

if TYPE_CHECKING:
    from starlette.types import Send

__all__ = ["Answer", "Listener", "Refused", "header_of", "json_of", "refusal_value"]

_LONGEST_HEARD = 1 << 20
"""Bytes of an answer, or of a line of a stream, that are looked at for what the provider counted."""


class Refused(Exception):
    """A request that is not sent on, or whose answer is not handed back."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


class Answer:
    """What the client gets."""

    def __init__(self, send: Send, record: Record) -> None:
        self._send = send
        self.record = record
        self.status = 0
        self._bytes = 0

    async def start(self, status: int, headers: Headers, kind: bytes) -> None:
        """The status and the headers."""
        self.status = status
        self.record.stream = kind.startswith(b"text/event-stream")
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def part(self, part: bytes) -> None:
        """Some bytes."""
        if not self._bytes:
            self.record.first_byte = perf_counter()
        self._bytes += len(part)
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def end(self) -> None:
        """Nothing more."""
        await self._send({"type": "http.response.body", "body": b""})
        self.record.done(status=self.status, bytes_out=self._bytes)

    async def refuse(self, refusal: Refused, *headers: tuple[bytes, bytes]) -> None:
        """An answer of ours."""
        content = json.dumps(refusal_value(str(refusal))).encode()
        kind = (b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())
        await self._send({"type": "http.response.start", "status": refusal.status, "headers": [*kind, *headers]})
        await self._send({"type": "http.response.body", "body": content})
        self.record.done(status=refusal.status, bytes_out=len(content))


class Listener:
    """Looks for what the provider counted, in an answer or in the events of a stream."""

    def __init__(self, conversations: Conversations, exchange: Exchange, session: str) -> None:
        self._conversations = conversations
        self._exchange = exchange
        self._session = session
        self._held = b""

    def hear(self, part: bytes) -> None:
        """Some bytes of the answer."""
        *lines, self._held = (self._held + part).split(b"\n")
        for line in lines:
            self._understand(line.removeprefix(b"data:"))
        if len(self._held) > _LONGEST_HEARD:
            self._held = b""

    def end(self) -> None:
        """That was all."""
        self._understand(self._held)

    def _understand(self, text: bytes) -> None:
        answer = json_of(text) if b'"usage"' in text else None
        if isinstance(answer, dict):
            with suppress(Exception):  # an answer is the client's, whatever is in it and becomes of our books
                self._conversations.heard(self._exchange, self._session, answer)


def refusal_value(said: str) -> dict[str, Any]:
    """An error of ours, in the form that the clients of both providers show."""
    return {"type": "error", "error": {"type": "compact_proxy", "message": f"compact proxy: {said}"}}


def header_of(headers: Headers, wanted: bytes) -> bytes:
    """The value of a header in small letters, empty when it is not there."""
    return next((value.strip().lower() for name, value in headers if name.lower() == wanted), b"")


def json_of(text: bytes) -> Any:
    """The value that a text is; None when it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
