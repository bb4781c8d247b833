"""The clients of `proxy.py`: conversations as bytes, and connections that do little but write them.

Owns: `Conversation`, `Client`, `side_by_side`. Must never: be the bottleneck (no HTTP library, no JSON on the way), or
retry by itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from random import uniform
from statistics import quantiles
from time import perf_counter

from measuring import Speaker
from proxy_servers import KEY, Server

__all__ = ["Answer", "Client", "Conversation", "Target", "p50", "p99", "side_by_side"]


@dataclass(frozen=True, slots=True)
class Target:
    """Something to send requests to."""

    name: str
    server: Server
    path: str = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, and seconds from the first byte sent to the first and to the last byte of the body."""

    status: int
    head: bytes
    body: bytes
    first: float
    whole: float

    @property
    def fold(self) -> str:
        """What the proxy says it did: `new`, `prepared`, `replayed`, or nothing."""
        _, _, rest = self.head.partition(b"x-compact-fold: ")
        return rest.partition(b"\r\n")[0].decode()


class Conversation:
    """A chat of about so many tokens that grows turn by turn; every message holds `mark`, when there is one."""

    def __init__(self, speaker: Speaker, tokens: int, *, mark: str = "", words: int = 0, stream: bool = False) -> None:
        self._speaker, self._mark, self._words = speaker, mark, words
        texts = round(tokens / 128) // 2 * 2
        self._parts = self._said("system")
        for number in range(texts - 1):
            self._parts += self._said("assistant" if number % 2 else "user")
        self._tail = b'], "stream": true}' if stream else b'], "temperature": 0}'

    def grow(self, turns: int = 1) -> None:
        """The model has answered, and the user says more."""
        for _ in range(turns):
            self._parts += self._said("assistant") + self._said("user")

    def body(self) -> bytes:
        """The request as it is now."""
        return b'{"model": "gpt-4o", "messages": [' + b", ".join(self._parts) + self._tail

    def branch(self) -> Conversation:
        """The same beginning, to be continued otherwise."""
        other = copy(self)
        other._parts = self._parts.copy()
        return other

    def growing(self, requests: int, turns: int = 1) -> list[bytes]:
        """So many requests, each a turn longer than the one before."""
        bodies = []
        for _ in range(requests):
            bodies.append(self.body())
            self.grow(turns)
        return bodies

    def _said(self, role: str) -> list[bytes]:
        """One text, as one message or in pieces of so many words."""
        words = self._speaker.text().split()
        size = self._words or len(words)
        pieces = (
            " ".join([*[self._mark] * bool(self._mark), *words[at : at + size]]) for at in range(0, len(words), size)
        )
        return [json.dumps({"role": role, "content": piece}).encode() for piece in pieces]


class Client:
    """One connection that is kept, and opened anew when it is gone."""

    def __init__(self, target: Target) -> None:
        self._host, _, port = target.server.address.removeprefix("http://").partition(":")
        self._port = int(port)
        head = f"POST {target.path} HTTP/1.1\r\nHost: {self._host}:{port}\r\nAuthorization: Bearer {KEY}\r\n"
        self._head = f"{head}Content-Type: application/json\r\nContent-Length: ".encode()
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, body: bytes) -> Answer:
        """Send a request and read the whole answer. Raises `OSError` or `EOFError` when the server goes away."""
        if self._writer is not None and (self._writer.is_closing() or self._reader.at_eof()):
            self.close()  # the server left since; every client looks before it sends
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=1 << 20)
        try:
            return await self._asked(self._reader, self._writer, body)
        except BaseException:
            self.close()
            raise

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> Answer:
        began = perf_counter()
        writer.write(b"%s%d\r\n\r\n" % (self._head, len(body)))
        writer.write(body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        _, _, length = head.partition(b"\r\ncontent-length: ")
        if length:
            content = await reader.readexactly(int(length.partition(b"\r\n")[0]))
            first = perf_counter() - began
        else:
            first, parts = 0.0, []
            while size := int(await reader.readline(), 16):
                parts.append((await reader.readexactly(size + 2))[:-2])
                first = first or perf_counter() - began
            await reader.readline()
            content = b"".join(parts)
        return Answer(int(head[9:12]), head, content, first, perf_counter() - began)

    def close(self) -> None:
        """Leave."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


async def side_by_side(
    clients: Sequence[Client],
    bodies: Sequence[Iterable[bytes]],
    seen: Callable[[Answer], object],
    longest_pause: float = 0.0,
) -> None:
    """Each client sends its own requests, one after the other; all of them at once. Every answer must be a 200.

    With a pause, of random length, before each request the clients do not fall into step.
    """

    async def one(client: Client, own: Iterable[bytes]) -> None:
        for body in own:
            if longest_pause:
                await asyncio.sleep(uniform(0, longest_pause))
            answer = await client.ask(body)
            if answer.status != 200:
                raise RuntimeError(f"status {answer.status}: {answer.body[:300]!r}")
            seen(answer)

    await together(one(client, own) for client, own in zip(clients, bodies, strict=True))


async def together(works: Iterable[Awaitable[None]]) -> None:
    """All at once; the first failure ends the rest."""

    async def one(work: Awaitable[None]) -> None:
        await work

    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(one(work))


def p50(seconds: Sequence[float]) -> float:
    """The median, in milliseconds."""
    return quantiles(seconds, n=2)[0] * 1e3


def p99(seconds: Sequence[float]) -> float:
    """What one in a hundred is above, in milliseconds."""
    return quantiles(seconds, n=100, method="inclusive")[98] * 1e3
