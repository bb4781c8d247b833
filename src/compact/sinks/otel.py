"""Folds as OpenTelemetry spans and metrics, to any collector that takes OTLP over HTTP.

Owns: `OtelSink`, and the names of our metrics; `_otel_spans` draws a fold.
Must never: set a global provider, make the caller wait, or put a conversation's text into a span unless asked to.

    compact_messages          a fold, child of the span that was current where the agent called
    ├─ chat gpt-4o-mini       a call of the summarizer (`extract` for the built-in one)
    └─ events                 ours, each with its numbers and names as flat attributes

A span needs its end, so it is made when its fold is over, in the queue's thread; only the caller's place in the trace
is taken down where the agent runs. Providers and connections belong to one process and are made anew after a fork.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from .._events.event import Event
from .._events.trace import CallTracer, TracedCall, has_times
from .._redaction import Redactor
from ..errors import MissingExtra
from ._otel_spans import draw, kind_of, scalars, scores_of
from ._queue import Queued, Undelivered

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import SpanContext, Tracer, TracerProvider

    from ._otlp import Collector

__all__ = ["OtelSink"]

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SCORES = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100)


class _Placed(Event):
    """The first event of a call, with the span that was current where it happened."""

    parent: SpanContext

    def _replace(self, **changed: Any) -> _Placed:
        """The same place, told otherwise: redaction must not lose it."""
        other: _Placed = super()._replace(**changed)
        other.parent = self.parent
        return other


class OtelSink(Queued):
    """Each fold as a span with its summarizer's calls, and as metrics.

    With an `endpoint` (a base address; `/v1/traces` and `/v1/metrics` are added) they go there, right after the fold.
    Without one they go to the application's own providers: those given, or else the global ones. A provider that is
    given takes the endpoint's place for what it provides.
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
            # All of it now: an import in the queue's thread could meet an interpreter that is going down.
            from opentelemetry import trace

            from ._otlp import Address, resource_of_ours
        except ImportError:
            raise MissingExtra(
                "OpenTelemetry needs its SDK and its OTLP exporter: pip install 'agent-compact[otel]'"
            ) from None
        self._address = Address(endpoint, headers or {}) if endpoint else None
        self.endpoint = self._address.place if self._address else None
        self._resource = resource_of_ours() if endpoint else None
        self._given = tracer_provider, meter_provider
        self._capture_content = capture_content
        self._current_span = trace.get_current_span
        super().__init__(
            self._export,
            label="OTLP",
            place=self.endpoint or "the application's own providers",
            afterwards=self._export_numbers,
            closing=self._let_go_of_connections,
        )

    def _renew(self) -> None:
        """As new, in a forked child too: connections and locks of the parent's are no use there."""
        super()._renew()
        self._calls = CallTracer()
        self._taken: dict[int, tuple[Event, bool]] = {}
        """Of the batch in hand, in case it comes once more: events whose news wait in the collector already, or who
        had none that could be told."""
        self._news = False
        self._way: _Way | None = None

    def _put(self, redactor: Redactor | None, event: Event) -> None:
        """On the caller's thread: the first event of a call takes its place in the caller's trace along."""
        if event.name == "compact.token_estimate":
            parent = self._current_span().get_span_context()
            if parent.is_valid:
                event = _Placed(*event)
                event.parent = parent
        super()._put(redactor, event)

    def _export(self, events: Sequence[Event]) -> None:
        """In the queue's thread: what these events end becomes spans and numbers, and leaves."""
        way = self._way = self._way or self._opened()
        self._taken = {id(event): self._taken.get(id(event)) or (event, self._tried(event, way)) for event in events}
        lost, reason = sum(not told for _, told in self._taken.values()), "it has no valid time or no valid numbers"
        if self._news and way.collector:
            refused, answer = way.collector.export()
            lost, reason = lost + refused, answer if refused else reason
        self._taken = {}
        if lost:
            raise Undelivered(f"{reason}; all others went through", lost=lost)

    def _export_numbers(self) -> None:
        """In the queue's thread, when a batch is done with."""
        if self._news and self._way is not None and self._way.collector is not None:
            self._news = False
            self._way.collector.export_numbers()

    def _tried(self, event: Event, way: _Way) -> bool:
        """Whether an event could be told. One without a time is none of a call's: it would cost the others theirs."""
        if not has_times(event):
            return False
        try:
            self._news |= self._told(event, way)
        except Exception:
            return False
        return True

    def _told(self, event: Event, way: _Way) -> bool:
        """Draw and count what an event ends; whether there is something to send."""
        call = self._calls.add(event)
        if event.name == "compact.error":
            way.metrics.failed(event)
        if call is None or not (call.is_done and call.is_triggered):
            return False
        first = call.events[0]
        draw(call, first.parent if isinstance(first, _Placed) else None, way.tracer, self._capture_content)
        way.metrics.folded(call)
        return True

    def _opened(self) -> _Way:
        """A way out for this process. The application's providers are asked for now, because they may be set late."""
        from opentelemetry import metrics, trace

        from ._otlp import Collector

        collector = Collector(self._address, self._resource) if self._address and self._resource else None
        tracers, meters = self._given
        tracers = tracers or (collector.tracers if collector else trace.get_tracer_provider())
        meters = meters or (collector.meters if collector else metrics.get_meter_provider())
        return _Way(tracers.get_tracer("compact"), _Metrics(meters.get_meter("compact"), ref(self)), collector)

    def _let_go_of_connections(self) -> None:
        way, self._way = self._way, None
        if way is not None and way.collector is not None:
            way.collector.close()


class _Way(NamedTuple):
    """Where the spans and numbers of one process go."""

    tracer: Tracer
    metrics: _Metrics
    collector: Collector | None


class _Metrics:
    """Our metrics. Their attributes have few values: never a session's id."""

    def __init__(self, meter: Meter, queue: ref[Queued]) -> None:
        from opentelemetry.metrics import Observation

        def dropped(_: CallbackOptions) -> Iterable[Observation]:
            alive = queue()
            return [] if alive is None else [Observation(alive.dropped)]

        self._folds = meter.create_counter("compact.folds", "{fold}", "Folds that left")
        self._saved = meter.create_counter("compact.tokens.saved", "{token}", "Tokens before folds minus after")
        self._failures = meter.create_counter("compact.failures", "{failure}", "Failures, those got over included")
        self._seconds = meter.create_histogram(
            "compact.fold.duration", "s", "From the estimate to the end", explicit_bucket_boundaries_advisory=_SECONDS
        )
        self._score = meter.create_histogram(
            "compact.fidelity.score", "1", "What summaries keep, of 100", explicit_bucket_boundaries_advisory=_SCORES
        )
        meter.create_observable_counter("compact.events.dropped", [dropped], "{event}", "Events that were not exported")

    def failed(self, event: Event) -> None:
        """Count a failure, whatever was done about it."""
        told = {"error.type": event.data.get("error_type"), "compact.fallback": event.data.get("fallback")}
        self._failures.add(1, scalars(told))

    def folded(self, call: TracedCall) -> None:
        """Count a fold, if one left."""
        kind = scalars(kind_of(call))
        self._seconds.record(max(0.0, call.ended - call.started), kind)
        if call.is_compacted:
            pruned = call.data("pruned_messages")
            self._folds.add(1, kind)
            self._saved.add(max(0, pruned["tokens_before"] - pruned["tokens_after"]), kind)
        for score in scores_of(call):
            self._score.record(score, kind)
