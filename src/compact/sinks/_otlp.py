"""Spans and metrics of our own to one collector, over HTTP.

Owns: `Collector`: providers that nobody else sees, and the exporters behind them. It belongs to one process.
Must never: set a global provider, start a thread, follow a redirect, read a reply beyond its head, or let
OpenTelemetry's exporters fill the log: whoever exports says once what is wrong.

The exporters are OpenTelemetry's, so the environment speaks here too: OTEL_EXPORTER_OTLP_HEADERS, _CERTIFICATE,
_COMPRESSION, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 (else at the first connection, where a fork could cut the import in two)
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from io import BytesIO
from threading import get_ident
from typing import Any
from urllib.parse import urlsplit

import requests
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, detach, set_value
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from ..errors import ConfigError
from ._queue import Undelivered

__all__ = ["Collector", "base_of", "place_of", "resource_of_ours"]

log = logging.getLogger("compact")

TIMEOUT = 2.0
"""Seconds for one export, its retries included."""
_TRACES, _METRICS = "/v1/traces", "/v1/metrics"
_MOST_SPANS = 512
"""Spans that may wait for a collector to come back."""
_MOST_REFUSALS = 12
"""Answers after which spans that a peer chokes on give way to others."""
_ADVICE = {401: "; check the headers", 403: "; check the headers", 404: "; check the address"}
_LOGGERS = ("proto.http.trace_exporter", "proto.http.metric_exporter", "common.http")


def base_of(endpoint: str) -> str:
    """The address without the path of one signal."""
    base = endpoint if "://" in endpoint else f"http://{endpoint}"
    base = base.rstrip("/").removesuffix(_TRACES).removesuffix(_METRICS).rstrip("/")
    try:
        parts = urlsplit(base)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{endpoint!r} is no address of a collector; write it as http://127.0.0.1:4318")
    return base


def place_of(base: str) -> str:
    """The address without what may be secret in it."""
    parts = urlsplit(base)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class Collector:
    """A tracer provider and a meter provider, and `export` for what has come together in them."""

    def __init__(self, base: str, headers: Mapping[str, str], resource: Resource) -> None:
        self._place = place_of(base)
        self._session = _Session(base)
        self._span_exporter = OTLPSpanExporter(
            base + _TRACES, headers=dict(headers), timeout=TIMEOUT, session=self._session
        )
        self._metric_exporter = OTLPMetricExporter(
            base + _METRICS, headers=dict(headers), timeout=TIMEOUT, session=self._session
        )
        self._ended = _Ended()
        self.tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.tracers.add_span_processor(self._ended)
        self._reader = InMemoryMetricReader(
            self._metric_exporter._preferred_temporality, self._metric_exporter._preferred_aggregation
        )
        self.meters = MeterProvider([self._reader], resource=resource, shutdown_on_exit=False)
        self._takes_numbers = True

    def export(self) -> str | None:
        """Send the spans that have ended, and all numbers as they stand; why the spans were refused, if they were.

        What a peer may take later stays for the next time, and is `Undelivered` until then. Numbers that are refused
        are not sent any more: there are collectors that take spans alone.
        """
        session = self._session
        with _quiet():
            if (spans := self._ended.spans) and not self._taken(lambda: self._span_exporter.export(spans)):
                spans.clear()
                return session.outcome
            spans.clear()
            numbers = self._reader.get_metrics_data() if self._takes_numbers else None
            if numbers is not None and not self._taken(lambda: self._metric_exporter.export(numbers)):
                self._takes_numbers = False
                log.info("%s%s takes no metrics: %s; spans are sent on", self._place, _METRICS, session.outcome)
        return None

    def _taken(self, export: Callable[[], Enum]) -> bool:
        """Whether an export succeeded; False when another try is of no use."""
        session = self._session
        session.worth_another_try, session.outcome = False, "it could not be encoded"
        try:
            if export().name == "SUCCESS":
                session.refusals = 0
                return True
        except Exception:  # some versions of the exporters raise where others say FAILURE
            log.debug("an export to %s failed", self._place, exc_info=True)
        if session.worth_another_try and session.refusals < _MOST_REFUSALS:
            raise Undelivered(session.outcome)
        session.refusals = 0
        return False

    def close(self) -> None:
        """Let the connections go; an export under way ends its retries."""
        with _quiet():
            exporters: tuple[Any, ...] = self._span_exporter, self._metric_exporter
            for exporter in exporters:
                exporter.shutdown()


class _Ended(SpanProcessor):
    """Spans that have ended and wait for their export, the newest ones."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span, unless the trace it belongs to is not recorded."""
        if span.context is not None and span.context.trace_flags.sampled:
            self.spans.append(span)
            del self.spans[:-_MOST_SPANS]


class _Session(requests.Session):
    """Connections for single requests: folds are rare, and a kept connection would be shared after a fork."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.outcome = "no answer"
        """How the last request went, and what to do about it."""
        self.worth_another_try = True
        self.refusals = 0
        """Answers in a row that asked to come back later."""
        self.headers["Connection"] = "close"
        # No proxy stands between a process and its own machine, whatever the environment says.
        self.trust_env = urlsplit(base).hostname not in ("localhost", "127.0.0.1", "::1")

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send, and keep how that went. The status says it all: a reply may be as long, or slow, as a peer likes."""
        try:
            response = super().send(request, **options | {"stream": True, "allow_redirects": False})
        except Exception as error:
            self.worth_another_try = True
            self.outcome = f"{type(error).__name__}; check that a collector listens there"
            raise
        status = response.status_code
        self.worth_another_try = status in (408, 429) or status >= 500
        self.refusals += self.worth_another_try
        self.outcome = f"it answers {status}{_ADVICE.get(status, '')}"
        response.close()
        response.raw = BytesIO()
        if 300 <= status < 400:  # to the exporters it would be a success
            response.status_code = 400
        return response


def resource_of_ours() -> Resource:
    """Who sends: what the environment says, or else `compact`. It takes threads to find out, so not at exit."""
    found = Resource.create()
    if str(found.attributes.get("service.name", "")).startswith("unknown_service"):
        return found.merge(Resource({"service.name": "compact"}))
    return found


_exporting: set[int] = set()
"""Threads in an export of ours."""


class _Hush(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the application's own exports say it."""
        return record.thread not in _exporting


_HUSH = _Hush()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without log lines of the exporters, and without spans about our requests from an instrumented HTTP client."""
    for name in _LOGGERS:
        logging.getLogger(f"opentelemetry.exporter.otlp.{name}").addFilter(_HUSH)
    me, token = get_ident(), attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
    _exporting.add(me)
    try:
        yield
    finally:
        _exporting.discard(me)
        detach(token)
