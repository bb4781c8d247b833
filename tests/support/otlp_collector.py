"""An OpenTelemetry collector of the tests' own: OTLP over HTTP, read as protobuf.

Owns: `Collector`, what it received as plain values, and the ways in which it may misbehave.
Must never: import `compact`, or accept what is not OTLP.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from gzip import decompress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

__all__ = ["Collector", "SpanEvent", "SpanSeen"]

PATIENCE = 30.0
"""Seconds after which a test gives up: a guard, never a measure."""
KINDS = {trace_pb2.Span.SPAN_KIND_INTERNAL: "internal", trace_pb2.Span.SPAN_KIND_CLIENT: "client"}
STATUSES = {
    trace_pb2.Status.STATUS_CODE_UNSET: "unset",
    trace_pb2.Status.STATUS_CODE_OK: "ok",
    trace_pb2.Status.STATUS_CODE_ERROR: "error",
}


@dataclass(frozen=True)
class SpanEvent:
    """An event on a span."""

    name: str
    time: int
    attributes: dict[str, Any]


@dataclass(frozen=True)
class SpanSeen:
    """A span as it arrived."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    status: str
    start: int
    end: int
    attributes: dict[str, Any]
    events: list[SpanEvent]
    resource: dict[str, Any]


class Collector:
    """A server on loopback. `mode` is a status to answer with, or `silent`, `redirect`, `long`, `drip` (a body that
    never ends) or `slow` (a head that hardly begins). `metrics` is the mode for those, when it is another."""

    def __init__(self, mode: int | str = 200, port: int = 0, *, metrics: int | str | None = None) -> None:
        self.mode = mode
        self._metrics = metrics
        self.refusing: Callable[[SpanSeen], bool] = lambda span: False
        """Spans with which it takes none of a request."""
        self.spans: list[SpanSeen] = []
        self.metrics: dict[str, list[tuple[dict[str, Any], Any]]] = {}
        """The newest points of each metric: attributes, and a number or (count, sum)."""
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        """Path, headers and body of everything that came."""
        self.problems: list[str] = []
        self._changed = threading.Condition()
        self._leave = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)

    def wait_for(self, ready: Callable[[], Any]) -> None:
        """Until something has arrived."""
        with self._changed:
            assert self._changed.wait_for(ready, PATIENCE), f"{len(self.requests)} requests came, not what was awaited"

    def named(self, name: str) -> list[SpanSeen]:
        """All spans of one name, in the order of their ends."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.end)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Take one request in, and answer it as the mode says."""
        body = request.rfile.read(int(request.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in request.headers.items()}
        with self._changed:
            self.requests.append((request.path, headers, body))
            mode = self._metrics if self._metrics and request.path == "/v1/metrics" else self.mode
            status = mode if isinstance(mode, int) else 307 if mode == "redirect" else 200
            if status == 200 and mode in (200, "long", "drip"):
                status = self._read(request.path, headers, body)
            self._changed.notify_all()
        if mode == "silent":
            self._leave.wait(PATIENCE)
            return
        while mode == "slow" and not self._leave.wait(0.2):
            request.wfile.write(b"H")
        request.send_response(status)
        if mode == "redirect":
            request.send_header("Location", f"{self.url}/elsewhere")
        length = {"long": 100_000_000, "drip": 10_000}.get(str(mode), 0)
        request.send_header("Content-Length", str(length))
        request.end_headers()
        with suppress(OSError):
            for _ in range(length // 1_000_000):
                request.wfile.write(b"x" * 1_000_000)
            while mode == "drip" and not self._leave.wait(0.05):
                request.wfile.write(b"x")

    def _read(self, path: str, headers: dict[str, str], body: bytes) -> int:
        if headers.get("content-type") != "application/x-protobuf":
            return self._refused(f"content type {headers.get('content-type')}")
        body = decompress(body) if headers.get("content-encoding") == "gzip" else body
        try:
            path = path.partition("?")[0]
            if path == "/v1/traces":
                spans = list(_spans(ExportTraceServiceRequest.FromString(body)))
                if any(self.refusing(span) for span in spans):
                    return 400
                self.spans += spans
            elif path == "/v1/metrics":
                self.metrics |= _points(ExportMetricsServiceRequest.FromString(body))
            else:
                return self._refused(f"path {path}")
        except DecodeError as error:
            return self._refused(f"no protobuf: {error}")
        return 200

    def _refused(self, problem: str) -> int:
        self.problems.append(problem)
        return 400


def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            with suppress(OSError):
                collector.answer(self)
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _spans(request: ExportTraceServiceRequest) -> Iterable[SpanSeen]:
    for group in request.resource_spans:
        resource = _plain(group.resource.attributes)
        for scope in group.scope_spans:
            for span in scope.spans:
                yield SpanSeen(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    KINDS[span.kind],
                    STATUSES[span.status.code],
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    _plain(span.attributes),
                    [SpanEvent(event.name, event.time_unix_nano, _plain(event.attributes)) for event in span.events],
                    resource,
                )


def _points(request: ExportMetricsServiceRequest) -> dict[str, list[tuple[dict[str, Any], Any]]]:
    found: dict[str, list[tuple[dict[str, Any], Any]]] = {}
    for group in request.resource_metrics:
        for scope in group.scope_metrics:
            for metric in scope.metrics:
                points = found.setdefault(metric.name, [])
                for point in metric.sum.data_points:
                    points.append((_plain(point.attributes), getattr(point, point.WhichOneof("value"))))
                for spread in metric.histogram.data_points:
                    points.append((_plain(spread.attributes), (spread.count, spread.sum)))
    return found


def _plain(attributes: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in attributes}


def unused_port() -> int:
    """A port where nobody listens."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        return server.server_port


def until(ready: Callable[[], Any]) -> None:
    """Until something holds that nobody announces."""
    give_up = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.005)
