"""Folds as OpenTelemetry spans and metrics, to any collector that takes OTLP over HTTP.

Owns: `OtelSink`, and the names of our spans, attributes and metrics (`gen_ai.*` where the conventions have one).
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

from .._calls import Call, Calls, has_times
from .._events import Event
from .._redact import Redactor
from ..errors import MissingExtra
from ._queue import Queued, Undelivered

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import SpanContext, Tracer, TracerProvider

    from ._otlp import Collector

__all__ = ["OtelSink"]

_LONGEST_TEXT = 4_096
_LARGEST = 1 << 63
_FALLBACKS = frozenset({"pruning-only", "extract", "unchanged", "none", "raise"})
"""What is done when nothing more is tried; other fallbacks are another try."""
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SCORES = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100)

Scalar = str | bool | int | float


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
        self._calls = Calls()
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
        call = self._calls.of(event)
        if event.name == "compact.error":
            way.metrics.failed(event)
        if call is None or not (call.done and call.triggered):
            return False
        _draw(call, way.tracer, self._capture_content)
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
        self._failures.add(1, _scalars(told))

    def folded(self, call: Call) -> None:
        """Count a fold, if one left."""
        kind = _scalars(_kind(call))
        self._seconds.record(max(0.0, call.ended - call.started), kind)
        if call.folded:
            pruned = call.data("pruned_messages")
            self._folds.add(1, kind)
            self._saved.add(max(0, pruned["tokens_before"] - pruned["tokens_after"]), kind)
        for score in _scores(call):
            self._score.record(score, kind)


def _draw(call: Call, tracer: Tracer, capture_content: bool) -> None:
    """The spans of one fold."""
    from opentelemetry import trace
    from opentelemetry.trace import SpanKind, Status, StatusCode

    first = call.events[0]
    parent = first.parent if isinstance(first, _Placed) else trace.INVALID_SPAN_CONTEXT
    span = tracer.start_span(
        "compact_messages",
        trace.set_span_in_context(trace.NonRecordingSpan(parent)),
        SpanKind.INTERNAL,
        _scalars(_told(call, capture_content)),
        start_time=_nanoseconds(call.started),
    )
    if not call.folded:
        failure = call.failure or {}
        span.set_status(Status(StatusCode.ERROR, _text(str(failure.get("message", "")))))
    for event in call.events:
        told = {name: value for name, value in event.data.items() if capture_content or name != "summary"}
        span.add_event(event.name, _flat(told), _nanoseconds(event.time))
    for at, event in enumerate(call.events):
        if event.name == "compact.summary_call":
            _draw_chat(call, at, tracer, trace.set_span_in_context(span))
    span.end(_nanoseconds(max(call.started, call.ended)))


def _draw_chat(call: Call, at: int, tracer: Tracer, inside: Context) -> None:
    """A call of the summarizer. What the built-in one does is no chat with a model."""
    from opentelemetry.trace import SpanKind, Status, StatusCode

    event = call.events[at]
    model, built_in = event.data.get("model"), event.data.get("model") == "extract"
    told = {
        "gen_ai.conversation.id": call.session_id,
        "compact.kind": event.data.get("kind"),
        "compaction.strategy": event.data.get("strategy"),
        "compact.cost_usd": event.data.get("cost_usd"),
        "openinference.span.kind": "CHAIN" if built_in else "LLM",
    }
    if not built_in:
        told |= {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.usage.input_tokens": event.data.get("input_tokens"),
            "gen_ai.usage.output_tokens": event.data.get("output_tokens"),
        }
    if event.status == "error":
        later = (after.data.get("error_type") for after in call.events[at:] if after.name == "compact.error")
        told["error.type"] = next(later, None) or "_OTHER"
    span = tracer.start_span(
        "extract" if built_in else _text(f"chat {model}") if model else "chat",
        inside,
        SpanKind.INTERNAL if built_in else SpanKind.CLIENT,
        _scalars(told),
        start_time=_nanoseconds(max(call.started, event.time - event.duration)),
    )
    if event.status == "error":
        span.set_status(Status(StatusCode.ERROR))
    span.end(_nanoseconds(max(call.started, event.time)))


def _told(call: Call, capture_content: bool) -> dict[str, Any]:
    """What a fold's span says of it."""
    estimate, decision, pruned = (
        call.data("token_estimate"),
        call.data("trigger_decision"),
        call.data("pruned_messages"),
    )
    created, failure = call.data("summary_created"), call.failure or {}
    told = {
        "gen_ai.conversation.id": call.session_id,
        "gen_ai.conversation.compacted": True if call.folded else None,
        "compaction.strategy": created.get("strategy") or decision.get("policy", {}).get("strategy"),
        "compaction.messages_before": pruned.get("messages_before"),
        "compaction.messages_after": pruned.get("messages_after"),
        "compaction.tokens_before": pruned.get("tokens_before", estimate.get("t_est")),
        "compaction.tokens_after": pruned.get("tokens_after"),
        **_kind(call),
        "compact.step": call.step,
        "compact.window_tokens": estimate.get("max_tokens"),
        "compact.trigger_tokens": decision.get("trigger"),
        "compact.budget_tokens": decision.get("budget"),
        "compact.folded_messages": pruned.get("folded"),
        "compact.clipped_messages": pruned.get("clipped"),
        "compact.summary_tokens": created.get("summary_tokens"),
        "compact.compression_ratio": created.get("compression_ratio"),
        "compact.fidelity.score": min(_scores(call), default=None),
        "compact.cost_usd": call.cost_usd,
        "compact.note": decision.get("note"),
        "openinference.span.kind": "CHAIN",
    }
    if failure.get("fallback") in _FALLBACKS:
        # A fold that left in spite of a failure did not fail; the conventions keep `error.type` for those that did.
        told["compact.fallback"] = failure["fallback"]
        told["compact.error_type" if call.folded else "error.type"] = failure.get("error_type")
    if capture_content and "summary" in created:
        told |= {"output.value": created["summary"], "output.mime_type": "text/plain"}
    return told


def _kind(call: Call) -> dict[str, Any]:
    """What tells folds of one sort from others: few values each."""
    decision = call.data("trigger_decision")
    rules = decision.get("policy", {})
    return {
        "compact.model": call.data("token_estimate").get("model"),
        "compact.layout": rules.get("layout"),
        "compact.strategy": rules.get("strategy"),
        "compact.reason": decision.get("reason"),
    }


def _scores(call: Call) -> list[float]:
    reports = (event.data.get("report") or {} for event in call.named("summary_created"))
    return [float(report["score"]) for report in reports if "score" in report]


def _flat(data: Mapping[str, Any], prefix: str = "compact.") -> dict[str, Scalar]:
    """Numbers and names at any depth, under one name each. Lists are left out: they hold quotes."""
    flat: dict[str, Scalar] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{_text(name)}.")
        else:
            flat |= _scalars({f"{prefix}{_text(name)}": value})
    return flat


def _scalars(told: Mapping[str, Any]) -> dict[str, Scalar]:
    """What OTLP can carry of it."""
    carried: dict[str, Scalar] = {}
    for name, value in told.items():
        if isinstance(value, str):
            # A summary is bounded by its own limit.
            carried[name] = _utf8(value) if name in ("output.value", "compact.summary") else _text(value)
        elif isinstance(value, bool | float):
            carried[name] = value
        elif isinstance(value, int):
            carried[name] = value if -_LARGEST <= value < _LARGEST else _text(hex(value))
    return carried


def _text(value: str) -> str:
    value = _utf8(value)
    return value if len(value) <= _LONGEST_TEXT else value[: _LONGEST_TEXT - 1] + "…"


def _utf8(value: str) -> str:
    """Half a surrogate pair cannot be sent, and would lose everything beside it."""
    return value.encode("utf-8", "replace").decode()


def _nanoseconds(seconds: float) -> int:
    return max(0, int(seconds * 1e9))
