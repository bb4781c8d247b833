"""Metrics, log and health of a proxy.

Owns: the metrics, the form of a log line, `/metrics` and `/healthz`. Must never: keep or print content of a request:
no message, path, query, header or id, and no text of another library, which may quote any of them.

- A request is `record = operations.begin(endpoint)`, then `record.finish(…)`; a second `finish` does nothing.
- Labels are words of this code, so that clients cannot create series.
- A log line that cannot be written (a full disk, a closed pipe) is lost; the request is not affected.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from time import perf_counter
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, TextIO

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import JSONResponse, Response

from .fingerprint import loggable_session

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from .conversations import CompactedRequest

PATHS = frozenset({"/healthz", "/metrics"})
"""Paths that the proxy answers itself; all others go to the upstream."""
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_FOLDS = ("new", "replayed", "recovered", "prepared")
"""Made for this request; known already; made after the upstream refused the size; made ahead of need."""
_ENDPOINTS = ("openai-chat", "openai-responses", "anthropic", "other")
_HEADERS = {"server": "compact proxy", "cache-control": "no-store"}
_SECONDS = (0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Operations:
    """The metrics and the log of one proxy. As an ASGI application it answers `PATHS`."""

    def __init__(self, *, level: str = "info", out: TextIO | None = None) -> None:
        self.draining = False
        self.state: object = None
        """The shared state. One that can fail has `away` and `failures`; None for one in this process."""
        self._least = LEVELS[level]
        self._out = out or sys.stderr
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(_StateCollector(self))

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(f"compact_proxy_{name}", help, labels, registry=registry)

        def histogram(name: str, help: str) -> dict[str, Histogram]:
            all_ = Histogram(f"compact_proxy_{name}", help, ["endpoint"], buckets=_SECONDS, registry=registry)
            return {endpoint: all_.labels(endpoint) for endpoint in _ENDPOINTS}

        self._requests = counter("requests_total", "Requests answered.", "endpoint", "status")
        self._seconds = histogram("request_seconds", "From the request's head to the end of its answer.")
        self._first = histogram("first_byte_seconds", "From the request's head to the first byte of its answer.")
        moved = counter("bytes_total", "Bytes of bodies, from clients (in) and to them (out).", "direction")
        self._in, self._sent = moved.labels("in"), moved.labels("out")
        self._folds = counter("folds_total", "Requests that were sent with a compacted history.", "kind")
        tokens = counter("tokens_total", "Tokens of compacted requests, before and after.", "when")
        self._before, self._after = tokens.labels("before"), tokens.labels("after")
        for kind in _FOLDS:  # a series that exists from the start shows its first increase
            self._folds.labels(kind)
        self._troubles = counter("troubles_total", "Warnings and errors of the log, by their event.", "event")
        self._running = Gauge("compact_proxy_in_flight", "Requests being answered now.", registry=registry)
        self.buffered = Gauge("compact_proxy_buffered_bytes", "Bytes of bodies held now.", registry=registry)

    def begin(self, endpoint: str) -> RequestRecord:
        """Start the record of a request."""
        self._running.inc()
        return RequestRecord(self, endpoint if endpoint in _ENDPOINTS else "other")

    def log(self, level: str, event: str, **fields: Any) -> None:
        """Write one log line; fields that are None are left out. `event` is a word of the code, never of a client, and
        the values must be safe to publish."""
        if LEVELS[level] >= LEVELS["warning"]:
            self._troubles.labels(event if event.isidentifier() else "other").inc()
        self._write(level, event, fields)

    def _write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        if LEVELS[level] < self._least:
            return
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": time, "level": level, "event": event}
        line.update((name, value) for name, value in fields.items() if value is not None)
        with suppress(OSError, ValueError):
            self._out.write(json.dumps(line) + "\n")
            self._out.flush()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one of `PATHS`."""
        if scope["method"] not in ("GET", "HEAD"):
            answer = Response(status_code=405, headers={**_HEADERS, "allow": "GET, HEAD"})
        elif scope["path"] == "/metrics":
            numbers = generate_latest(self._registry)
            answer = Response(numbers, headers=_HEADERS, media_type="text/plain; version=0.0.4")
        else:
            answer = self._health()
        await answer(scope, receive, send)

    def _health(self) -> Response:
        """Whether requests may be sent here. A shared state that fails costs summaries only, so the status is ok."""
        if self.draining:
            return JSONResponse({"status": "draining"}, 503, _HEADERS)
        away = getattr(self.state, "away", None)
        state = "memory" if away is None else "away" if away else "ok"
        return JSONResponse({"status": "ok", "state": state}, headers=_HEADERS)

    def log_libraries(self) -> None:
        """Send the warnings of all libraries through `log`, without their text. For a process that only runs a proxy.

        Also leaves out when each metric was created, which doubles the series.
        """
        logging.root.handlers[:] = [_LibraryWarnings(self)]
        logging.captureWarnings(True)
        threading.excepthook = lambda args: self.log("error", "library", raised=args.exc_type.__name__)
        disable_created_metrics()  # type: ignore[no-untyped-call]


class RequestRecord:
    """One request, from its head to the end of its response."""

    __slots__ = ("_began", "_endpoint", "_fold", "_is_open", "_operations", "bytes_in", "first_byte", "stream")

    def __init__(self, operations: Operations, endpoint: str) -> None:
        self._operations = operations
        self._endpoint = endpoint
        self._fold: CompactedRequest | None = None
        self._is_open = True
        self._began = perf_counter()
        self.bytes_in = 0
        self.first_byte: float | None = None
        """When the first byte was sent to the client, by `perf_counter`."""
        self.stream = False

    def add_compaction(self, fold: CompactedRequest) -> None:
        """Note that the request was compacted."""
        self._fold = fold

    def finish(self, *, status: int, bytes_out: int = 0, error: str | None = None) -> None:
        """Count the request and write its log line. `error` is a word of the code for why it failed."""
        if not self._is_open:
            return
        self._is_open = False
        seconds = perf_counter() - self._began
        first = None if self.first_byte is None else self.first_byte - self._began
        operations, endpoint, fold = self._operations, self._endpoint, self._fold
        operations._running.dec()
        operations._requests.labels(endpoint, f"{status // 100}xx" if 100 <= status < 600 else "none").inc()
        operations._seconds[endpoint].observe(seconds)
        operations._in.inc(self.bytes_in)
        operations._sent.inc(bytes_out)
        if first is not None:
            operations._first[endpoint].observe(first)
        line = {
            "endpoint": endpoint,
            "status": status,
            "ms": round(seconds * 1e3, 1),
            "first_byte_ms": None if first is None else round(first * 1e3, 1),
            "bytes_in": self.bytes_in,
            "bytes_out": bytes_out,
            "stream": self.stream,
            "error": error,
        }
        if fold is not None:
            operations._folds.labels(fold.kind if fold.kind in _FOLDS else "other").inc()
            operations._before.inc(fold.before)
            operations._after.inc(fold.after)
            line |= {"fold": fold.kind, "session": loggable_session(fold.session)}
            line |= {"tokens_before": fold.before, "tokens_after": fold.after}
        operations._write("warning" if status >= 500 or error is not None else "info", "request", line)


class _StateCollector(Collector):
    """Metrics of the shared state, read when they are collected."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def collect(self) -> Iterator[Metric]:
        failures, away = (getattr(self._operations.state, name, 0) for name in ("failures", "away"))
        yield CounterMetricFamily("compact_proxy_state_failures", "Calls of the shared state that failed.", failures)
        yield GaugeMetricFamily("compact_proxy_state_away", "1 while the shared state is not reached.", int(away))


class _LibraryWarnings(logging.Handler):
    """Logs that a library warned, and where; never its text, which may hold a URL, a header or a body."""

    def __init__(self, operations: Operations) -> None:
        super().__init__(logging.WARNING)
        self._operations = operations

    def emit(self, record: logging.LogRecord) -> None:
        raised, _, frames = record.exc_info or (None, None, None)
        at = [f"{frame.f_globals.get('__name__')}:{line}" for frame, line in walk_tb(frames)]
        self._operations.log(
            "error" if record.levelno >= logging.ERROR else "warning",
            "library",
            library=record.name,
            at=at[-1] if at else f"{record.module}:{record.lineno}",
            raised=raised.__name__ if raised else None,
        )
