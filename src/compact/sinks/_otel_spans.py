"""A compaction as OpenTelemetry spans.

Owns: the names of spans and attributes (`gen_ai.*` where the conventions have one), and which values OTLP can carry.
Must never: send anything, or put text of a conversation into a span unless `capture_content` is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._events.trace import TracedCall

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanContext, Tracer

_MAX_TEXT = 4_096
_INT_LIMIT = 1 << 63
_FALLBACKS = frozenset({"pruning-only", "extract", "unchanged", "none", "raise"})
"""Final fallbacks; other fallbacks are another try."""

Scalar = str | bool | int | float


def draw_spans(call: TracedCall, parent: SpanContext | None, tracer: Tracer, capture_content: bool) -> None:
    """Create the spans of one compaction, below the span that was current when its call began."""
    from opentelemetry import trace
    from opentelemetry.trace import SpanKind, Status, StatusCode

    span = tracer.start_span(
        "compact_messages",
        trace.set_span_in_context(trace.NonRecordingSpan(parent or trace.INVALID_SPAN_CONTEXT)),
        SpanKind.INTERNAL,
        scalar_attributes(_span_attributes(call, capture_content)),
        start_time=_nanoseconds(call.started),
    )
    if not call.is_compacted:
        failure = call.failure or {}
        span.set_status(Status(StatusCode.ERROR, _shorten(str(failure.get("message", "")))))
    for event in call.events:
        data = {name: value for name, value in event.data.items() if capture_content or name != "summary"}
        span.add_event(event.name, _flat(data), _nanoseconds(event.time))
    for at, event in enumerate(call.events):
        if event.name == "compact.summary_call":
            _draw_summary_call(call, at, tracer, trace.set_span_in_context(span))
    span.end(_nanoseconds(max(call.started, call.ended)))


def _draw_summary_call(call: TracedCall, at: int, tracer: Tracer, inside: Context) -> None:
    """Create the span of a call of the summarizer. The built-in one is not a chat with a model."""
    from opentelemetry.trace import SpanKind, Status, StatusCode

    event = call.events[at]
    model, built_in = event.data.get("model"), event.data.get("model") == "extract"
    attributes = {
        "gen_ai.conversation.id": call.session_id,
        "compact.kind": event.data.get("kind"),
        "compaction.strategy": event.data.get("strategy"),
        "compact.cost_usd": event.data.get("cost_usd"),
        "openinference.span.kind": "CHAIN" if built_in else "LLM",
    }
    if not built_in:
        attributes |= {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.usage.input_tokens": event.data.get("input_tokens"),
            "gen_ai.usage.output_tokens": event.data.get("output_tokens"),
        }
    if event.status == "error":
        later = (after.data.get("error_type") for after in call.events[at:] if after.name == "compact.error")
        attributes["error.type"] = next(later, None) or "_OTHER"
    span = tracer.start_span(
        "extract" if built_in else _shorten(f"chat {model}") if model else "chat",
        inside,
        SpanKind.INTERNAL if built_in else SpanKind.CLIENT,
        scalar_attributes(attributes),
        start_time=_nanoseconds(max(call.started, event.time - event.duration)),
    )
    if event.status == "error":
        span.set_status(Status(StatusCode.ERROR))
    span.end(_nanoseconds(max(call.started, event.time)))


def _span_attributes(call: TracedCall, capture_content: bool) -> dict[str, Any]:
    """The attributes of a compaction's span."""
    estimate, decision, pruned = (
        call.data("token_estimate"),
        call.data("trigger_decision"),
        call.data("pruned_messages"),
    )
    created, failure = call.data("summary_created"), call.failure or {}
    attributes = {
        "gen_ai.conversation.id": call.session_id,
        "gen_ai.conversation.compacted": True if call.is_compacted else None,
        "compaction.strategy": created.get("strategy") or decision.get("policy", {}).get("strategy"),
        "compaction.messages_before": pruned.get("messages_before"),
        "compaction.messages_after": pruned.get("messages_after"),
        "compaction.tokens_before": pruned.get("tokens_before", estimate.get("t_est")),
        "compaction.tokens_after": pruned.get("tokens_after"),
        **call_attributes(call),
        "compact.step": call.step,
        "compact.window_tokens": estimate.get("max_tokens"),
        "compact.trigger_tokens": decision.get("trigger"),
        "compact.budget_tokens": decision.get("budget"),
        "compact.folded_messages": pruned.get("folded"),
        "compact.clipped_messages": pruned.get("clipped"),
        "compact.summary_tokens": created.get("summary_tokens"),
        "compact.compression_ratio": created.get("compression_ratio"),
        "compact.fidelity.score": min(fidelity_scores(call), default=None),
        "compact.cost_usd": call.cost_usd,
        "compact.note": decision.get("note"),
        "openinference.span.kind": "CHAIN",
    }
    if failure.get("fallback") in _FALLBACKS:
        # A compaction that was completed despite a failure did not fail, and `error.type` is for those that did.
        attributes["compact.fallback"] = failure["fallback"]
        attributes["compact.error_type" if call.is_compacted else "error.type"] = failure.get("error_type")
    if capture_content and "summary" in created:
        attributes |= {"output.value": created["summary"], "output.mime_type": "text/plain"}
    return attributes


def call_attributes(call: TracedCall) -> dict[str, Any]:
    """Attributes that group compactions: few values each."""
    decision = call.data("trigger_decision")
    rules = decision.get("policy", {})
    return {
        "compact.model": call.data("token_estimate").get("model"),
        "compact.layout": rules.get("layout"),
        "compact.strategy": rules.get("strategy"),
        "compact.reason": decision.get("reason"),
    }


def fidelity_scores(call: TracedCall) -> list[float]:
    """The fidelity scores of a compaction's summaries, of 100."""
    reports = (event.data.get("report") or {} for event in call.events_named("summary_created"))
    return [float(report["score"]) for report in reports if "score" in report]


def _flat(data: Mapping[str, Any], prefix: str = "compact.") -> dict[str, Scalar]:
    """Numbers and texts at any depth as flat attributes. Lists are left out: they quote the conversation."""
    flat: dict[str, Scalar] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{_shorten(name)}.")
        else:
            flat |= scalar_attributes({f"{prefix}{_shorten(name)}": value})
    return flat


def scalar_attributes(attributes: Mapping[str, Any]) -> dict[str, Scalar]:
    """The values that OTLP can carry as attributes."""
    carried: dict[str, Scalar] = {}
    for name, value in attributes.items():
        if isinstance(value, str):
            # A summary has a separate limit.
            carried[name] = (
                _replace_surrogates(value) if name in ("output.value", "compact.summary") else _shorten(value)
            )
        elif isinstance(value, bool | float):
            carried[name] = value
        elif isinstance(value, int):
            carried[name] = value if -_INT_LIMIT <= value < _INT_LIMIT else _shorten(hex(value))
    return carried


def _shorten(value: str) -> str:
    value = _replace_surrogates(value)
    return value if len(value) <= _MAX_TEXT else value[: _MAX_TEXT - 1] + "…"


def _replace_surrogates(value: str) -> str:
    """The text without lone surrogates, which cannot be encoded and would lose the whole request."""
    return value.encode("utf-8", "replace").decode()


def _nanoseconds(seconds: float) -> int:
    return max(0, int(seconds * 1e9))
