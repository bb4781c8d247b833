"""Compactions as spans of the OpenAI Agents SDK, inside the run that they belong to.

Owns: `agents_sdk_sink`, and the data of such a span.
Must never: raise into a run, import the SDK before it is used, or put text into a span unless `capture_content` is set:
the SDK's processor uploads spans, and its setting for sensitive data does not apply to custom ones.

The SDK sets the times of a span when it is started and finished, and finds its parent in the caller's context, so this
sink runs on the agent's thread: a span is open from the decision to compact until the end of the compaction.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from importlib.util import find_spec
from threading import RLock
from typing import Any

from .._events.event import Event, Sink
from .._events.trace import CallTracer, TracedCall
from ..errors import MissingExtra
from ._process import renew_after_fork

__all__ = ["agents_sdk_sink"]

log = logging.getLogger("compact")

_SESSIONS = 1_000
"""Compactions that are open at once; one that never ends must not be remembered for ever."""


def agents_sdk_sink(capture_content: bool = False) -> Sink:
    """A sink that adds a span `compact_messages` per compaction to the SDK's current trace, if there is one.

    `capture_content` adds the summary and the note, redacted as for every sink.
    """
    if find_spec("agents") is None:
        raise MissingExtra(
            "spans of the OpenAI Agents SDK need the package openai-agents: pip install 'agent-compact[agents]'"
        )
    return _CompactionSpans(capture_content)


class _CompactionSpans:
    """The open spans of compactions, by session."""

    def __init__(self, capture_content: bool) -> None:
        self._capture_content = capture_content
        self._warned = False
        self._renew()
        renew_after_fork(self)

    def _renew(self) -> None:
        """Reset, also in a forked child: its lock may be held for ever, and the spans are the parent's."""
        self._lock = RLock()
        self._calls = CallTracer()
        self._open: OrderedDict[str, Any] = OrderedDict()

    def __call__(self, event: Event) -> None:
        """Start or finish the span of a compaction, or do nothing."""
        tracing = sys.modules.get("agents.tracing")
        if tracing is None:
            return  # the SDK is not imported, so no trace of it is open
        try:
            self._update_span(event, tracing)
        except Exception as error:
            if not self._warned:
                self._warned = True
                log.warning("a compaction has no span in the Agents SDK's trace: %s", type(error).__name__)

    def _update_span(self, event: Event, tracing: Any) -> None:
        with self._lock:
            call = self._calls.add(event)
            started = self._open.get(event.session_id)
        if event.name == "compact.token_estimate" and started is not None:
            # The call before was cancelled, or ended by an error elsewhere, without an event.
            self._finish(event.session_id, {}, tracing.SpanError(message="the compaction did not end", data=None))
        elif call is not None and call.is_triggered:
            if started is None and tracing.get_current_trace() is not None:
                self._start(event.session_id, tracing)
            if call.is_done:
                data = _span_data(call, self._capture_content)
                failed = not call.is_compacted
                error = tracing.SpanError(message=data.get("error_type", "error"), data=None) if failed else None
                self._finish(event.session_id, data, error)

    def _start(self, session_id: str, tracing: Any) -> None:
        span = tracing.custom_span("compact_messages", {})
        span.start()
        with self._lock:
            self._open[session_id] = span
            if len(self._open) > _SESSIONS:
                self._open.popitem(last=False)

    def _finish(self, session_id: str, data: dict[str, Any], error: Any) -> None:
        with self._lock:
            span = self._open.pop(session_id, None)
        if span is not None:
            span.span_data.data.update(data)
            if error is not None:
                span.set_error(error)
            span.finish()


def _span_data(call: TracedCall, capture_content: bool) -> dict[str, Any]:
    """A compaction in numbers and names; its texts only with `capture_content`."""
    estimate, decision, pruned = (
        call.data("token_estimate"),
        call.data("trigger_decision"),
        call.data("pruned_messages"),
    )
    created, failure = call.data("summary_created"), call.failure or {}
    data = {
        "session_id": call.session_id,
        "step": call.step,
        "folded": call.is_compacted,
        "reason": decision.get("reason"),
        "model": estimate.get("model"),
        "window": estimate.get("max_tokens"),
        "layout": decision.get("policy", {}).get("layout"),
        "strategy": created.get("strategy") or decision.get("policy", {}).get("strategy"),
        **{name: pruned.get(name) for name in ("messages_before", "messages_after", "tokens_before", "tokens_after")},
        "summary_tokens": created.get("summary_tokens"),
        "compression_ratio": created.get("compression_ratio"),
        "fidelity_score": (created.get("report") or {}).get("score"),
        "summary_calls": sum(1 for _ in call.events_named("summary_call")),
        "cost_usd": call.cost_usd,
        "error_type": failure.get("error_type"),
        "fallback": failure.get("fallback"),
    }
    if capture_content:
        data |= {"summary": created.get("summary"), "note": decision.get("note")}
    return {name: value for name, value in data.items() if value is not None}
