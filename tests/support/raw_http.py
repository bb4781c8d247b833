"""HTTP as bytes: an upstream that says exactly what a test wants said, a client that does, and a proxy between them.

Owns: `Upstream` (what came, byte for byte, and who is still there), `talk` (a client without manners), and `Process` (a
proxy as people start it). Must never: mend or judge what passes.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE = 20.0
"""Seconds after which something that was to come does not."""


# -- the upstream ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    line: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def target(self) -> str:
        """What stands between the method and the version."""
        return self.line.split(b" ")[1].decode("latin-1")

    def all(self, name: bytes) -> list[bytes]:
        """Every value of a header."""
        return [value for given, value in self.headers if given.lower() == name]


Play = Callable[[Asked, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answer(body: bytes = b'{"ok": true}', *headers: str, status: str = "200 OK") -> bytes:
    """A whole answer with its length."""
    lines = (f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers)
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1") + body


def says(*parts: bytes, closes: bool = False) -> Play:
    """Say these bytes, in as many writes, to whoever asks."""

    async def play(asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts or (answer(),):
            writer.write(part)
            await writer.drain()
        if closes:
            writer.close()

    return play


@dataclass
class Upstream:
    """A server on a port of this machine that does what `play` does with each request."""

    play: Play
    url: str = ""
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    left: threading.Event = field(default_factory=threading.Event)
    """Somebody closed a connection."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
                line, *fields = head.split(b"\r\n")
                pairs = [(name, value.strip()) for name, _, value in (one.partition(b":") for one in fields)]
                length = next((int(value) for name, value in pairs if name.lower() == b"content-length"), 0)
                asked = Asked(line, pairs, await reader.readexactly(length))
                self.asked.append(asked)
                await self.play(asked, reader, writer)
        self.left.set()
        writer.close()


@contextmanager
def upstream(play: Play | None = None) -> Iterator[Upstream]:
    """An upstream in a thread of its own."""
    server, ready = Upstream(play or says()), threading.Event()
    ended: Callable[[], object] = ready.clear

    async def main() -> None:
        nonlocal ended
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 24)
        server.port = listening.sockets[0].getsockname()[1]
        server.url = f"http://127.0.0.1:{server.port}"
        ended = lambda: loop.call_soon_threadsafe(over.set)  # noqa: E731
        ready.set()
        await over.wait()
        listening.close()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        ended()
        thread.join()


# -- the client --------------------------------------------------------------------------------------------------------


def connect(port: int) -> socket.socket:
    """A connection to a server of this machine."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def talk(port: int, *parts: bytes, leaves: bool = False) -> bytes:
    """Send this, and give what comes until the other side closes; `leaves` says first that no more will be sent."""
    heard = b""
    with connect(port) as connection:
        with suppress(OSError):  # it may have been closed in the middle
            for part in parts:
                connection.sendall(part)
            if leaves:
                connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while part := connection.recv(65_536):
                heard += part
    return heard


def request(
    target: str = "/v1/models", body: bytes | None = None, *headers: str, method: str = "", host: str = "127.0.0.1"
) -> bytes:
    """A request that ends its connection."""
    sized = () if body is None else (f"Content-Length: {len(body)}",)
    lines = (f"{method or ('GET' if body is None else 'POST')} {target} HTTP/1.1", f"Host: {host}", *sized, *headers)
    return "".join(f"{line}\r\n" for line in (*lines, "Connection: close", "")).encode("latin-1") + (body or b"")


def statuses(heard: bytes) -> list[int]:
    """The statuses of the answers in what was heard; empty when there was none."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", heard)]


# -- the proxy ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    """A proxy in a process of its own. What it prints stands in files of the folder it works in."""

    pid: int
    url: str
    folder: Path

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def memory(self) -> int:
        """The most bytes it had in memory since `calm`."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found
        return int(found[1]) * 1024

    def calm(self) -> int:
        """Forget the most, and give what it is now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self.memory()


@contextmanager
def proxy(
    folder: Path, upstream: str, *options: str, run: tuple[str, ...] = ("-m", "compact"), **environment: str
) -> Iterator[Process]:
    """`compact proxy`, which must end well when it is told to."""
    folder.mkdir(parents=True, exist_ok=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("COMPACT_", "COV_"))}
    command = [sys.executable, *run, "proxy", "--upstream", upstream, "--port", "0", *options]
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=out,
            stderr=err,
            env={**inherited, "COMPACT_PROXY_DRAIN": "1", **environment},
        )
    try:
        found = None
        for _ in range(int(PATIENCE / 0.02)):
            found = re.search(r"http://\S+:\d+", (folder / "stdout").read_text())
            if found or process.poll() is not None:
                break
            time.sleep(0.02)
        assert found, (folder / "stderr").read_text()
        yield Process(process.pid, found[0], folder)
        assert process.poll() is None, "it ended by itself"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
