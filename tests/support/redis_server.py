"""A real Redis for the tests, which can be killed, held and started again.

Owns: `RedisServer`, and what happens where none is installed. Must never: leave a process or a file behind.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

__all__ = ["RedisServer", "redis_server"]


class RedisServer:
    """A Redis on loopback that keeps nothing on disk; `url` for TCP, `socket_url` for its socket."""

    def __init__(self, program: str, folder: Path, *, password: str | None = None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port = int(listener.getsockname()[1])
        self._socket = folder / "s"
        user = f":{password}@" if password else ""
        self.url = f"redis://{user}127.0.0.1:{self._port}/0"
        self.socket_url = f"unix://{user}{self._socket}"
        self._command = [program, "--bind", "127.0.0.1", "--port", str(self._port), "--unixsocket", str(self._socket)]
        self._command += ["--save", "", "--appendonly", "no", "--dir", str(folder)]
        self._command += ["--requirepass", password] if password else []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run it, empty, and wait until it listens."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
                return
            assert self._process.poll() is None, f"redis-server ended with {self._process.returncode}"
            assert time.monotonic() < deadline, "redis-server does not listen"
            time.sleep(0.02)

    def kill(self) -> None:
        """End it at once, whatever it is doing, held or not."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def hold(self) -> None:
        """Let it do nothing: it takes connections and does not answer."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End `hold`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


@contextmanager
def redis_server(*, password: str | None = None) -> Iterator[RedisServer]:
    """A running Redis. Where it is not installed the tests are skipped, but not in CI."""
    program = shutil.which("redis-server")
    if program is None:
        if os.environ.get("CI"):
            raise FileNotFoundError("redis-server: not installed; run scripts/parts.sh as root")
        pytest.skip("redis-server is not installed; see scripts/parts.sh")
    with tempfile.TemporaryDirectory(prefix="redis") as folder:  # a short path: a socket's has 107 characters at most
        server = RedisServer(program, Path(folder), password=password)
        try:
            server.start()
            yield server
        finally:
            server.kill()
