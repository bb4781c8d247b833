"""Compactions as OpenTelemetry spans and metrics, to any collector that takes OTLP over HTTP.

Owns: `OtelSink`, and the names of the metrics; `_otel_spans` draws the spans.
Must never: set a global provider, make the caller wait, or put text of a conversation into a span unless
`capture_content` is set.

    compact_messages          a compaction, child of the span that was current where the agent called
    ├─ chat gpt-4o-mini       a call of the summarizer (`extract` for the built-in one)
    └─ events                 each with its numbers and texts as flat attributes

A span is created when its compaction is over, in the queue's thread; only its parent is read on the agent's thread.
Providers and connections belong to one process and are created again after a fork.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from .._events.event import Event
from .._events.trace import CallTracer, TracedCall, has_times
from .._redaction import Redactor
from ..errors import MissingExtra
from ._otel_spans import call_attributes, draw_spans, fidelity_scores, scalar_attributes
from ._queue import Queued, Undelivered

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import SpanContext, Tracer, TracerProvider

    from ._otlp import Collector

__all__ = ["OtelSink"]

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SCORES = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100)


class _EventWithParent(Event):
    """The first event of a call, with the span that was current when it was emitted."""

    parent: SpanContext

    def _replace(self, **changed: Any) -> _EventWithParent:
        """Redaction replaces data, and must not lose the parent."""
        other: _EventWithParent = super()._replace(**changed)
        other.parent = self.parent
        return other


class OtelSink(Queued):
    """Sends each compaction as a span with the summarizer's calls, and as metrics.

    With an `endpoint` (a base URL; `/v1/traces` and `/v1/metrics` are appended) they are sent there, right after the
    compaction. Without one they go to the providers that are passed, or else to the global ones. A provider that is
    passed is used instead of the endpoint.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        capture_content: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        try:
            # Imported now: an import in the queue's thread could happen while the interpreter shuts down.
            from opentelemetry import trace

            from ._otlp import CollectorAddress, make_resource
        except ImportError:
            raise MissingExtra(
                "OpenTelemetry needs its SDK and its OTLP exporter: pip install 'agent-compact[otel]'"
            ) from None
        self._address = CollectorAddress(endpoint, headers or {}) if endpoint else None
        self.endpoint = self._address.place if self._address else None
        self._resource = make_resource() if endpoint else None
        self._providers = tracer_provider, meter_provider
        self._capture_content = capture_content
        self._current_span = trace.get_current_span
        super().__init__(
            self._export_batch,
            label="OTLP",
            place=self.endpoint or "the application's own providers",
            afterwards=self._export_metrics,
            closing=self._close_collector,
        )

    def _renew(self) -> None:
        """Reset, also in a forked child, which cannot use the parent's connections and locks."""
        super()._renew()
        self._calls = CallTracer()
        self._taken: dict[int, tuple[Event, bool]] = {}
        """Events of the batch, in case it is delivered again, with whether each could be exported."""
        self._has_unsent = False
        self._exporters: _Exporters | None = None

    def _put(self, redactor: Redactor | None, event: Event) -> None:
        """On the caller's thread: the first event of a call carries the caller's current span."""
        if event.name == "compact.token_estimate":
            parent = self._current_span().get_span_context()
            if parent.is_valid:
                event = _EventWithParent(*event)
                event.parent = parent
        super()._put(redactor, event)

    def _export_batch(self, events: Sequence[Event]) -> None:
        """In the queue's thread: create and send the spans and metrics of compactions that these events end."""
        exporters = self._exporters = self._exporters or self._open_exporters()
        self._taken = {
            id(event): self._taken.get(id(event)) or (event, self._try_export(event, exporters)) for event in events
        }
        lost, reason = (
            sum(not exported for _, exported in self._taken.values()),
            "it has no valid time or no valid numbers",
        )
        if self._has_unsent and exporters.collector:
            refused, answer = exporters.collector.export()
            lost, reason = lost + refused, answer if refused else reason
        self._taken = {}
        if lost:
            raise Undelivered(f"{reason}; all others went through", lost=lost)

    def _export_metrics(self) -> None:
        """In the queue's thread, when a batch is done."""
        if self._has_unsent and self._exporters is not None and self._exporters.collector is not None:
            self._has_unsent = False
            self._exporters.collector.export_metrics()

    def _try_export(self, event: Event, exporters: _Exporters) -> bool:
        """Whether an event could be exported. One without a valid time belongs to no call: it would break the call."""
        if not has_times(event):
            return False
        try:
            self._has_unsent |= self._export_event(event, exporters)
        except Exception:
            return False
        return True

    def _export_event(self, event: Event, exporters: _Exporters) -> bool:
        """Create the spans and metrics of the compaction that an event ends; return whether there is one."""
        call = self._calls.add(event)
        if event.name == "compact.error":
            exporters.metrics.count_failure(event)
        if call is None or not (call.is_done and call.is_triggered):
            return False
        first = call.events[0]
        draw_spans(
            call, first.parent if isinstance(first, _EventWithParent) else None, exporters.tracer, self._capture_content
        )
        exporters.metrics.count_call(call)
        return True

    def _open_exporters(self) -> _Exporters:
        """The providers of this process. Global providers are read now, because they may be set late."""
        from opentelemetry import metrics, trace

        from ._otlp import Collector

        collector = Collector(self._address, self._resource) if self._address and self._resource else None
        tracers, meters = self._providers
        tracers = tracers or (collector.tracers if collector else trace.get_tracer_provider())
        meters = meters or (collector.meters if collector else metrics.get_meter_provider())
        return _Exporters(
            tracers.get_tracer("compact"), _CompactionMetrics(meters.get_meter("compact"), ref(self)), collector
        )

    def _close_collector(self) -> None:
        exporters, self._exporters = self._exporters, None
        if exporters is not None and exporters.collector is not None:
            exporters.collector.close()


class _Exporters(NamedTuple):
    """The tracer, the metrics and the collector of one process."""

    tracer: Tracer
    metrics: _CompactionMetrics
    collector: Collector | None


class _CompactionMetrics:
    """The metrics. Their attributes have few values: never a session's id."""

    def __init__(self, meter: Meter, queue: ref[Queued]) -> None:
        from opentelemetry.metrics import Observation

        def dropped(_: CallbackOptions) -> Iterable[Observation]:
            alive = queue()
            return [] if alive is None else [Observation(alive.dropped)]

        self._folds = meter.create_counter("compact.folds", "{fold}", "Compactions completed")
        self._saved = meter.create_counter("compact.tokens.saved", "{token}", "Tokens before compactions minus after")
        self._failures = meter.create_counter("compact.failures", "{failure}", "Failures, recovered ones included")
        self._seconds = meter.create_histogram(
            "compact.fold.duration", "s", "From the estimate to the end", explicit_bucket_boundaries_advisory=_SECONDS
        )
        self._score = meter.create_histogram(
            "compact.fidelity.score",
            "1",
            "How much summaries keep, of 100",
            explicit_bucket_boundaries_advisory=_SCORES,
        )
        meter.create_observable_counter("compact.events.dropped", [dropped], "{event}", "Events that were not exported")

    def count_failure(self, event: Event) -> None:
        """Count a failure."""
        attributes = {"error.type": event.data.get("error_type"), "compact.fallback": event.data.get("fallback")}
        self._failures.add(1, scalar_attributes(attributes))

    def count_call(self, call: TracedCall) -> None:
        """Count a call that was triggered, and its compaction if there was one."""
        kind = scalar_attributes(call_attributes(call))
        self._seconds.record(max(0.0, call.ended - call.started), kind)
        if call.is_compacted:
            pruned = call.data("pruned_messages")
            self._folds.add(1, kind)
            self._saved.add(max(0, pruned["tokens_before"] - pruned["tokens_after"]), kind)
        for score in fidelity_scores(call):
            self._score.record(score, kind)
