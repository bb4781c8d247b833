"""Events grouped into calls, and calls as spans.

Owns: `CallTracer`, `TracedCall`, `TracedSpan`, and the tree that the Ariadne sink sends and the viewer draws.
Must never: send, store, redact, or read a clock. Redact events before.

    trace                 a session
    └─ preflight, fold 3  a call: from its `token_estimate` to the event that ends it
       └─ an event        with its duration, if it has one: calls of the summarizer do

The id of a span is derived from its event, so the same event read twice, live and from an archive, is one span.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from .event import Event

_SESSIONS = 1_000
"""Sessions whose newest call is remembered; later events of a forgotten call have no parent in the tree."""
_ENDS = frozenset({"unchanged", "none", "raise"})
"""Fallbacks after which a call does nothing more."""


@dataclass(slots=True)
class TracedCall:
    """One call on a session, built from its events."""

    events: list[Event] = field(default_factory=list)

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.events[0].session_id

    @property
    def started(self) -> float:
        """When the call began, in seconds since the epoch."""
        return self.events[0].time

    @property
    def ended(self) -> float:
        """When its last event happened."""
        return self.events[-1].time

    @property
    def is_done(self) -> bool:
        """Whether no more events follow."""
        last = self.events[-1]
        if last.name == "compact.trigger_decision":
            return not last.data.get("triggered")
        return last.name == "compact.pruned_messages" or (
            last.name == "compact.error" and last.data.get("fallback") in _ENDS
        )

    @property
    def is_triggered(self) -> bool:
        """Whether a compaction began, or an error prevented it."""
        return bool(self.data("trigger_decision").get("triggered")) or self.failure is not None

    @property
    def is_compacted(self) -> bool:
        """Whether a compaction was completed."""
        return self.events[-1].name == "compact.pruned_messages"

    @property
    def step(self) -> int:
        """The number of the compaction, or of the one before."""
        return int(self.data("pruned_messages").get("step", self.events[-1].step))

    @property
    def name(self) -> str:
        """Its name in a tree."""
        if self.is_compacted:
            return f"fold {self.step}"
        return "fold" if self.is_triggered else "preflight"

    @property
    def failure(self) -> Mapping[str, Any] | None:
        """The data of the last error, if there was one."""
        return self.data("error") or None

    @property
    def cost_usd(self) -> float | None:
        """The cost of its summaries, as far as prices are known; None when none is, or no summarizer was called."""
        known = [
            cost for event in self.events_named("summary_call") if (cost := event.data.get("cost_usd")) is not None
        ]
        return sum(known) if known else None

    def is_refused_by(self, event: Event) -> bool:
        """Whether an event is the error of a call that did nothing: it follows the decision, which else ends a call."""
        return event.name == "compact.error" and self.events[-1].name == "compact.trigger_decision"

    def events_named(self, name: str) -> Iterator[Event]:
        """Its events of one name, written without `compact.`."""
        return (event for event in self.events if event.name == f"compact.{name}")

    def data(self, name: str) -> Mapping[str, Any]:
        """The data of the last event of this name; empty when there was none."""
        return next((event.data for event in reversed(self.events) if event.name == f"compact.{name}"), {})


class CallTracer:
    """Groups a stream of events, of many sessions, into calls. For one thread."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, TracedCall] = OrderedDict()

    def add(self, event: Event) -> TracedCall | None:
        """Add an event, and return the call that it belongs to; None for one outside of any call."""
        if event.data.get("ahead"):
            return None  # a background compaction is not part of a call
        if event.name == "compact.token_estimate":
            self._open[event.session_id] = TracedCall()
            if len(self._open) > _SESSIONS:
                self._open.popitem(last=False)
        call = self._open.get(event.session_id)
        if call is None:
            return None
        if call.events and call.is_done and not call.is_refused_by(event):
            del self._open[event.session_id]
            return None
        self._open.move_to_end(event.session_id)
        call.events.append(event)
        # It holds its summary, so it is forgotten once no event can follow; an error may follow a decision.
        if call.is_done and event.name != "compact.trigger_decision":
            del self._open[event.session_id]
        return call


@dataclass(frozen=True, slots=True)
class TracedSpan:
    """A named period of time with its data. Times are seconds since the epoch."""

    trace_id: str
    span_id: str
    name: str
    started: float
    ended: float
    status: str
    data: Mapping[str, Any]
    parent_id: str | None = None
    kind: str = "compact"

    def as_dict(self) -> dict[str, Any]:
        """The span in the form of Ariadne's `/ingest`: timestamps end in Z, and None is left out."""
        value = {
            "type": "span",
            "trace_id": self.trace_id,
            "span_id": self.span_id,
            "kind": self.kind,
            "name": self.name,
            "started_at": stamp(self.started),
            "ended_at": stamp(max(self.started, self.ended)),
            "status": self.status,
            "data": _without_none(self.data),
        }
        if self.parent_id is not None:
            value["parent_id"] = self.parent_id
        return value


def trace_of(event: Event) -> dict[str, Any]:
    """The session in the form of Ariadne's `/ingest`."""
    return {
        "type": "trace",
        "trace_id": event.session_id or "session",
        "name": event.session_id or "session",
        "started_at": stamp(event.time),
        "metadata": {"source": "compact"},
    }


def spans_of(event: Event, call: TracedCall | None) -> list[TracedSpan]:
    """The spans that an event adds or changes: its call's, which grows, and its own."""
    parent = _id(call.events[0], "call") if call is not None else None
    own = TracedSpan(
        trace_id=event.session_id or "session",
        span_id=_id(event, event.name),
        name=event.name,
        started=event.time - event.duration,
        ended=event.time,
        status=event.status,
        data={**_event_data(event), "event": event.name, "step": event.step, "duration": event.duration},
        parent_id=parent,
        kind="llm" if event.name == "compact.summary_call" else "compact",
    )
    if call is None or parent is None:
        return [own]
    whole = TracedSpan(
        trace_id=own.trace_id,
        span_id=parent,
        name=call.name,
        started=call.started,
        ended=call.ended,
        status="error" if call.failure else "ok",
        data=_call_data(call),
    )
    return [whole, own]


def _event_data(event: Event) -> dict[str, Any]:
    """The event's data, with the summary where Ariadne expects a response."""
    data = dict(event.data)
    if event.name == "compact.summary_created" and "summary" in data:
        data["output"] = data.pop("summary")
    return data


def _call_data(call: TracedCall) -> dict[str, Any]:
    """A call in short: its tokens, the decision and its reason, the result, and the summary."""
    estimate, decision, pruned = (
        call.data("token_estimate"),
        call.data("trigger_decision"),
        call.data("pruned_messages"),
    )
    created = call.data("summary_created")
    data = {"step": call.step, **estimate, **decision, **pruned}
    if call.is_triggered:
        data |= {"cost_usd": call.cost_usd, "output": created.get("summary"), "report": created.get("report")}
    if call.failure is not None:
        data |= {name: call.failure.get(name) for name in ("error_type", "message", "fallback")}
    return data


def has_times(event: Event) -> bool:
    """Whether its start and its end have timestamps, which NaN and the year 0 do not."""
    try:
        return bool(stamp(event.time - event.duration) and stamp(event.time))
    except (ValueError, OverflowError, OSError):
        return False


def stamp(seconds: float) -> str:
    """A time in the form of Ariadne."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _id(event: Event, name: str) -> str:
    parts = "\x00".join((event.session_id, name, repr(event.time), str(event.step)))
    return blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(item) for item in value if item is not None]
    return value
