"""An Ariadne server for the tests: real sockets, and answers exactly as the real one was measured to give them.

Owns: `StandIn`, which keeps what it accepted, and the ways in which a server can fail (`mode`).
Must never: import `compact`, or be kinder than the real one.

    correct, one event or {"batch": [...]}                                      200 {"success": true, "count": n}
    {"events": [...]}, a bare array                                             400
    a stamp that does not end in Z, any null field, a status but ok and error,
    metadata that is no string, an end before its start                         400, and the whole batch with it
    a key nobody knows                                                          200, and the key is gone
    over 262,144 bytes by Content-Length                                        413
    a string in `data` over 100 KiB, a name over 1 KiB                          200, cut; arrays are not walked
    not JSON                                                                    500

Modes besides "strict": "500", "413" (to any size, and the connection stays), "redirect", "drip" (one byte a second),
"flood" (a reply of 100 MB), "silent" (takes a request and never answers), "closing" (every answer is the connection's
last, and it does not say so).
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["UNRESOLVED", "StandIn", "refused_url"]

UNRESOLVED = "http://no-such-host.invalid:5175"
LARGEST = 262_144
LONGEST_STRING = 100 * 1024
LONGEST_NAME = 1024
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_TEXTS = {"trace": ("name", "group_id"), "span": ("parent_id", "kind", "name")}


class Malformed(Exception):
    """What the real server answers 400 to."""


def refused_url() -> str:
    """An address on loopback where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


class StandIn:
    """The server, as a context manager. `accepted` are the events it took, in order, as it would show them."""

    def __init__(
        self,
        mode: str = "strict",
        *,
        refusing: Callable[[dict[str, Any]], bool] | None = None,
        port: int = 0,
        certificate: Path | None = None,
    ) -> None:
        self.mode = mode
        self.refusing = refusing or (lambda event: False)
        """Events that it calls malformed besides those that are."""
        self.stumbling: Callable[[dict[str, Any]], bool] = lambda event: False
        """Events that it answers 500 to."""
        self.accepted: list[dict[str, Any]] = []
        self.arrived: list[float] = []
        """When each of `accepted` came."""
        self.answers: list[int] = []
        """The status of each answer."""
        self.bodies: list[int] = []
        """The size of each body."""
        self.connections = 0
        self.flooded = 0
        """Bytes of a reply that somebody let it send."""
        self.paths: list[str] = []
        self.largest = LARGEST
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.stand_in = self
        self.port = self._server.server_port
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.port}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> StandIn:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._server.shutdown()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()

    def spans(self, name: str | None = None) -> list[dict[str, Any]]:
        """The accepted spans, of one name if it is given."""
        with self._changed:
            return [e for e in self.accepted if e["type"] == "span" and name in (None, e.get("name"))]

    def traces(self) -> list[dict[str, Any]]:
        """The accepted traces."""
        with self._changed:
            return [event for event in self.accepted if event["type"] == "trace"]

    def wait_for(self, happened: Callable[[StandIn], object], seconds: float = 30.0) -> None:
        """Come back when something has happened; fails when it does not."""
        with self._changed:
            if not self._changed.wait_for(lambda: happened(self), seconds):
                raise AssertionError(
                    f"not within {seconds} s: {len(self.accepted)} accepted, answers {self.answers[-9:]}"
                )

    def _take(self, body: bytes) -> tuple[int, Any]:
        try:
            value = json.loads(body)
        except ValueError:
            return 500, {"error": "Internal server error"}
        try:
            if not isinstance(value, dict):
                raise Malformed("a bare array")
            batch = value.get("batch", [value])
            if not isinstance(batch, list):
                raise Malformed("batch")
            events = [self._checked(event) for event in batch]
            if any(self.stumbling(event) for event in events):
                return 500, {"error": "Internal server error"}
        except Malformed as error:
            return 400, {"success": False, "error": str(error)}
        with self._changed:
            self.accepted += events
            self.arrived += [time.time()] * len(events)
        return 200, {"success": True, "count": len(events)}

    def _checked(self, event: Any) -> dict[str, Any]:
        kind = event.get("type") if isinstance(event, dict) else None
        if kind not in ("trace", "span") or self.refusing(event):
            raise Malformed("type")
        ids = ("trace_id",) if kind == "trace" else ("trace_id", "span_id")
        kept: dict[str, Any] = {"type": kind}
        for name in (*ids, *_TEXTS[kind]):
            if name in event:
                kept[name] = _text(name, event[name])
        if not all(kept.get(name) for name in ids):
            raise Malformed("an id is missing or empty")
        for name in ("started_at", "ended_at"):
            if name in event:
                kept[name] = _stamp(name, event[name])
        if "ended_at" in kept and "started_at" in kept and _time(kept["ended_at"]) < _time(kept["started_at"]):
            raise Malformed("it ends before it starts")
        if kind == "trace" and "metadata" in event:
            given = event["metadata"]
            if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
                raise Malformed("metadata")
            kept["metadata"] = given
        if kind == "span" and "data" in event:
            if not isinstance(event["data"], dict):
                raise Malformed("data")
            kept["data"] = _shortened(event["data"])
        if kind == "span" and "status" in event:
            if event["status"] not in ("ok", "error"):
                raise Malformed("status")
            kept["status"] = event["status"]
        if len(kept.get("name", "")) > LONGEST_NAME:
            kept["name"] = kept["name"][:LONGEST_NAME] + "... [truncated]"
        return kept


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Malformed(name)
    return value


def _stamp(name: str, value: Any) -> str:
    if not isinstance(value, str) or not _STAMP.fullmatch(value):
        raise Malformed(f"{name}: Invalid datetime")
    return value


def _time(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, str) and len(value) > LONGEST_STRING:
        return value[:LONGEST_STRING] + "... [truncated]"
    return value


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    stand_in: StandIn

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is none."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.stand_in.connections += 1
        self.server.stand_in._open.add(self.connection)

    def finish(self) -> None:
        self.server.stand_in._open.discard(self.connection)
        super().finish()

    def do_POST(self) -> None:
        stand_in = self.server.stand_in
        stand_in.paths.append(self.path)
        size = int(self.headers["Content-Length"])
        if size > stand_in.largest:
            self.close_connection = True  # the body is left unread
            return self._answer(413, {"error": "Payload too large"})
        body = self.rfile.read(size)
        stand_in.bodies.append(size)
        if stand_in.mode in ("strict", "closing"):
            status, answer = (404, {}) if self.path != "/ingest" else stand_in._take(body)
            return self._answer(status, answer)
        return getattr(self, f"_{stand_in.mode}")()

    def do_GET(self) -> None:
        if self.path != "/healthz":
            return self._answer(404, {})
        return self._answer(200, {"status": "ok", "events": len(self.server.stand_in.accepted)})

    def _answer(self, status: int, answer: Any, **headers: str) -> None:
        said = json.dumps(answer).encode()
        stand_in = self.server.stand_in
        self.close_connection = self.close_connection or stand_in.mode == "closing"
        with stand_in._changed:  # noted first: whoever reads the answer may ask at once
            stand_in.answers.append(status)
            stand_in._changed.notify_all()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)
        self.wfile.flush()

    def _413(self) -> None:
        self._answer(413, {"error": "Payload too large"})

    def _500(self) -> None:
        self._answer(500, {"error": "Internal server error"})

    def _redirect(self) -> None:
        self._answer(307, {}, Location=f"{self.server.stand_in.url}/elsewhere")

    def _drip(self) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}":
            self.wfile.write(bytes([byte]))
            if self.server.stand_in._over.wait(1):
                return

    def _flood(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100000000")
        self.end_headers()
        with suppress(OSError):
            for _ in range(1_000):
                self.wfile.write(b" " * 100_000)
                self.server.stand_in.flooded += 100_000
        self.close_connection = True

    def _silent(self) -> None:
        self.server.stand_in._over.wait()

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody wants to read it."""
