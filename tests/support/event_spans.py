"""The spans of a stream of events, as a trace viewer receives them."""

from __future__ import annotations

from collections.abc import Iterable

from compact import Event
from compact._events.trace import CallTracer, TracedSpan, spans_of


def all_spans(events: Iterable[Event]) -> list[TracedSpan]:
    """The tree of a whole stream, each span once."""
    calls, spans = CallTracer(), dict[str, TracedSpan]()
    for event in events:
        for span in spans_of(event, calls.add(event)):
            spans[span.span_id] = span
    return list(spans.values())
