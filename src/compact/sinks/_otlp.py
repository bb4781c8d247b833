"""Spans and metrics to one OTLP collector over HTTP.

Owns: `Collector`: private providers, and sending their spans and metrics. It belongs to one process.
Must never: set a global provider, start a thread, or hold spans back because of metrics.

OpenTelemetry encodes the bodies and `Post` sends them, because OpenTelemetry's exporters have no total deadline. These
variables apply: OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES.
"""

from __future__ import annotations

import logging
import os
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from urllib.parse import unquote, urlsplit, urlunsplit

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.util.re import parse_env_headers

from ._batching import BatchSender
from ._http_post import ConnectionLost, Post

log = logging.getLogger("compact")

_TRACES, _METRICS = "/v1/traces", "/v1/metrics"
_MOST_SPANS = 512
"""Spans that may wait for a collector that is down."""
_METRICS_PAUSE = 60.0
"""Seconds without metrics after a collector failed: the next ones include these."""


class CollectorAddress:
    """The URL and the headers of a collector. `place` is the URL without credentials."""

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        example = "http://127.0.0.1:4318"
        endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
        Post(endpoint, example=example)  # raises if the URL is not valid
        parts = urlsplit(endpoint)
        path = parts.path.rstrip("/").removesuffix(_TRACES).removesuffix(_METRICS).rstrip("/")
        user, _, host = parts.netloc.rpartition("@")
        self._base = urlunsplit((parts.scheme, host, path, parts.query, ""))
        self._headers = {**parse_env_headers(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", ""), liberal=True)}
        if user:
            self._headers["authorization"] = "Basic " + b64encode(unquote(user).encode()).decode()
        self._headers |= {name.lower(): value for name, value in headers.items()}
        self._headers["content-type"] = "application/x-protobuf"
        self.place = self.post("").place.rstrip("/")

    def post(self, end: str) -> Post:
        """A connection for traces or for metrics."""
        return Post(self._base, end, headers=self._headers)


class _SpanSender(BatchSender[ReadableSpan]):
    drops_refused = True

    def body(self, items: Sequence[ReadableSpan]) -> bytes:
        """The export request."""
        return bytes(encode_spans(items).SerializeToString())


class Collector:
    """A tracer provider and a meter provider, and the export of their spans and metrics."""

    def __init__(self, address: CollectorAddress, resource: Resource) -> None:
        self._spans = _SpanSender(address.post(_TRACES), "tracing.otlp_endpoint")
        self._post_metrics = address.post(_METRICS)
        self._ended = _EndedSpans()
        self.tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.tracers.add_span_processor(self._ended)
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader], resource=resource, shutdown_on_exit=False)
        self._metrics_from = 0.0

    def export(self) -> tuple[int, str]:
        """Send the spans that have ended; return how many of their events were refused, and the answer.

        Spans that the collector may accept later are kept; then this raises `Undelivered`.
        """
        spans = self._ended.spans
        refused = self._spans.send([list(spans)]) if spans else []
        spans.clear()
        return sum(len(span.events) for span in refused), self._spans.answer

    def export_metrics(self) -> None:
        """Send the metrics. A failure is ignored, because some collectors take no metrics."""
        if time.monotonic() < self._metrics_from:
            return
        metrics = self._reader.get_metrics_data()
        if metrics is None:
            return
        body, status = bytes(encode_metrics(metrics).SerializeToString()), 0
        try:
            try:
                status = self._post_metrics(body)
            except ConnectionLost:
                status = self._post_metrics(body)
        except (OSError, HTTPException) as error:
            log.debug("%s did not answer", self._post_metrics.place, exc_info=error)
        if not 200 <= status < 300:
            # After a final refusal no more metrics are sent.
            never = 300 <= status < 500 and status not in (408, 429)
            self._metrics_from = float("inf") if never else time.monotonic() + _METRICS_PAUSE
            log.info("%s took no metrics (%s); spans are sent on", self._post_metrics.place, status or "no answer")

    def close(self) -> None:
        """Close the connections."""
        self._spans.post.close()
        self._post_metrics.close()


class _EndedSpans(SpanProcessor):
    """The newest spans that have ended and wait for export."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span."""
        self.spans.append(span)
        del self.spans[:-_MOST_SPANS]


def make_resource() -> Resource:
    """The resource of the environment, named `compact` by default. Detection uses threads, so not at exit."""
    found = Resource.create()
    if str(found.attributes.get("service.name", "")).startswith("unknown_service"):
        return found.merge(Resource({"service.name": "compact"}))
    return found
