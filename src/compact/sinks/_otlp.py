"""Spans and metrics of our own to one collector, over HTTP.

Owns: `Collector`: providers that nobody else sees, and the way from them to the collector. It belongs to one process.
Must never: set a global provider, start a thread, or hold spans back because of metrics.

OpenTelemetry makes the bodies, and we send them: its exporters wait for as long as a reply drips. The environment
speaks here too: OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES.
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

from ._batching import Offer
from ._http_post import Post, Stale

__all__ = ["Address", "Collector", "resource_of_ours"]

log = logging.getLogger("compact")

_TRACES, _METRICS = "/v1/traces", "/v1/metrics"
_MOST_SPANS = 512
"""Spans that may wait for a collector to come back."""
_PAUSE = 60.0
"""Seconds without metrics after a collector failed to take them: the next ones tell all that these did."""


class Address:
    """Where a collector listens, and what it wants to be told to let somebody in. `place` has no secret in it."""

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        example = "http://127.0.0.1:4318"
        endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
        Post(endpoint, example=example)  # whether it is an address at all
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
        """A connection for one signal."""
        return Post(self._base, end, headers=self._headers)


class _Spans(Offer[ReadableSpan]):
    denies_for_good = True

    def body(self, items: Sequence[ReadableSpan]) -> bytes:
        """A request to export them."""
        return bytes(encode_spans(items).SerializeToString())


class Collector:
    """A tracer provider and a meter provider, and `export…` for what has come together in them."""

    def __init__(self, address: Address, resource: Resource) -> None:
        self._spans = _Spans(address.post(_TRACES), "tracing.otlp_endpoint")
        self._post_numbers = address.post(_METRICS)
        self._ended = _Ended()
        self.tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.tracers.add_span_processor(self._ended)
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader], resource=resource, shutdown_on_exit=False)
        self._numbers_from = 0.0

    def export(self) -> tuple[int, str]:
        """Send the spans that have ended; how many of their events were refused, and why.

        What a peer may take later stays for the next time, and is `Undelivered` until then.
        """
        spans = self._ended.spans
        refused = self._spans.offer([list(spans)]) if spans else []
        spans.clear()
        return sum(len(span.events) for span in refused), self._spans.answer

    def export_numbers(self) -> None:
        """Send all numbers as they stand. Should that fail, the next ones do: there are collectors without metrics."""
        if time.monotonic() < self._numbers_from:
            return
        numbers = self._reader.get_metrics_data()
        if numbers is None:
            return
        body, status = bytes(encode_metrics(numbers).SerializeToString()), 0
        try:
            try:
                status = self._post_numbers(body)
            except Stale:
                status = self._post_numbers(body)
        except (OSError, HTTPException) as error:
            log.debug("%s did not answer", self._post_numbers.place, exc_info=error)
        if not 200 <= status < 300:
            # What it never takes it is not asked again.
            never = 300 <= status < 500 and status not in (408, 429)
            self._numbers_from = float("inf") if never else time.monotonic() + _PAUSE
            log.info("%s took no metrics (%s); spans are sent on", self._post_numbers.place, status or "no answer")

    def close(self) -> None:
        """Let the connections go."""
        self._spans.post.close()
        self._post_numbers.close()


class _Ended(SpanProcessor):
    """Spans that have ended and wait for their export, the newest ones."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span."""
        self.spans.append(span)
        del self.spans[:-_MOST_SPANS]


def resource_of_ours() -> Resource:
    """Who sends: what the environment says, or else `compact`. It takes threads to find out, so not at exit."""
    found = Resource.create()
    if str(found.attributes.get("service.name", "")).startswith("unknown_service"):
        return found.merge(Resource({"service.name": "compact"}))
    return found
