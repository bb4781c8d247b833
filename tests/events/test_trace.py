"""Events sorted into calls and spans: what every trace viewer is given."""

from __future__ import annotations

import gc
import json
import re
import weakref
from collections import Counter
from datetime import datetime
from typing import Any

import pytest
from event_spans import all_spans
from hypothesis import given
from hypothesis import strategies as st

from compact import CompactConfig, CompactManager, InsufficientBudget
from compact._events.event import EVENT_NAMES, Event
from compact._events.serialize import parse_event
from compact._events.trace import CallTracer, TracedCall, has_times, spans_of, stamp, trace_of
from compact.errors import ModelUnavailable
from compact.sinks import event_json
from compact.testing import Recorder, ScriptedModel, chat

YEAR_1 = -62_135_596_800.0
"""The first second that a calendar has."""


class Told(dict[str, Any]):
    """Data that can be watched."""


def folded(*sessions: str, summarizer: Any = None, pattern: str = "su" + "tr" * 60 + "ua") -> Recorder:
    """The events of sessions that folded once each, their calls interleaved."""
    recorder = Recorder()
    config = CompactConfig(model="gpt-4o", max_context_tokens=8_000, storage={"adapter": "none"})
    config = config.changed(summary={"max_retries": 0})
    messages = chat(pattern, words=60)
    with CompactManager(config, summarizer=summarizer, sinks=[recorder]) as manager:
        for part in (messages[:3], messages):
            for session in sessions:
                manager.preflight(session, part)
    return recorder


def calls_in(events: list[Event]) -> list[TracedCall]:
    calls, found = CallTracer(), []
    for event in events:
        call = calls.add(event)
        if call is not None and call not in found:
            found.append(call)
    return found


class TestCalls:
    def test_an_idle_call_and_a_fold(self) -> None:
        idle, fold = calls_in(folded("s").events)
        assert (idle.name, idle.is_done, idle.is_triggered, idle.is_compacted) == ("preflight", True, False, False)
        assert (fold.name, fold.is_done, fold.is_triggered, fold.is_compacted) == ("fold 1", True, True, True)
        assert [event.name.removeprefix("compact.") for event in fold.events] == [
            "token_estimate",
            "trigger_decision",
            "summary_call",
            "summary_created",
            "pruned_messages",
        ]
        assert fold.started == fold.events[0].time
        assert fold.ended == fold.events[-1].time
        assert fold.failure is None
        assert (idle.cost_usd, fold.cost_usd) == (None, 0.0), "nobody was asked; the built-in summarizer is free"

    def test_sessions_do_not_mix(self) -> None:
        calls = calls_in(folded("a", "b", "c").events)
        assert Counter(call.session_id for call in calls) == {"a": 2, "b": 2, "c": 2}
        assert all({event.session_id for event in call.events} == {call.session_id} for call in calls)

    def test_a_summarizer_that_fails_leaves_the_failure_in_the_call(self) -> None:
        (_, fold) = calls_in(
            folded("s", summarizer=ScriptedModel(ModelUnavailable("down"), ModelUnavailable("down"))).events
        )
        assert fold.is_compacted
        assert fold.failure is not None
        assert fold.failure["error_type"] == "ModelUnavailable"
        assert [span.status for span in spans_of(fold.events[-1], fold)] == ["error", "ok"]

    def test_why_nothing_was_done_belongs_to_the_call(self) -> None:
        recorder = Recorder()
        config = CompactConfig(model="gpt-4o", max_context_tokens=4_000, storage={"adapter": "none"})
        with CompactManager(config, sinks=[recorder]) as manager, pytest.raises(InsufficientBudget):
            manager.preflight("s", chat("ssssu", words=2_000))
        (call,) = calls_in(recorder.events)
        assert [event.name for event in call.events][-2:] == ["compact.trigger_decision", "compact.error"]
        assert call.is_done
        assert call.is_triggered, "a fold was due, and an error stood in its way"
        assert call.failure is not None
        assert call.failure["error_type"] == "InsufficientBudget"

    def test_what_happens_outside_of_a_call_stands_alone(self) -> None:
        calls = CallTracer()
        for event in folded("s").events:
            calls.add(event)
        alone = Event("compact.archival", "s", 1, 12.5, data={"key": "s/undo-001.json"})
        assert calls.add(alone) is None
        assert [span.parent_id for span in spans_of(alone, None)] == [None]

    def test_a_call_without_an_end_is_known_as_such(self) -> None:
        *_, call = calls_in(folded("s").events[:-1])
        assert (call.session_id, call.is_done) == ("s", False)

    def test_what_is_over_is_let_go(self) -> None:
        """A fold's call holds the summary; it is kept no longer than its events come."""
        gone = []
        for ends in (
            [("trigger_decision", {"triggered": True}), ("pruned_messages", {})],
            [("trigger_decision", {"triggered": True}), ("error", {"fallback": "raise"})],
            [("trigger_decision", {"triggered": False}), ("archival", {})],
        ):
            calls, told = CallTracer(), Told(t_est=1)
            calls.add(Event("compact.token_estimate", "s", 0, 1.0, data=told))
            for number, (name, data) in enumerate(ends):
                calls.add(Event(f"compact.{name}", "s", 0, 2.0 + number, data=data))
            held, told = weakref.ref(told), Told()
            gc.collect()
            gone.append(held())
        assert gone == [None] * 3

    def test_many_sessions_do_not_pile_up(self) -> None:
        calls = CallTracer()
        for n in range(3_000):
            calls.add(Event("compact.token_estimate", f"s{n}", 0, float(n)))
        gc.collect()
        assert sum(isinstance(held, TracedCall) for held in gc.get_objects()) <= 1_100, (
            "a few of other tests may live on"
        )


class TestSpans:
    def test_the_tree_has_calls_above_events(self) -> None:
        spans = all_spans(folded("s").events)
        roots = [span for span in spans if span.parent_id is None]
        assert [span.name for span in roots] == ["preflight", "fold 1"]
        assert {span.parent_id for span in spans} - {None} == {span.span_id for span in roots}
        assert len({span.span_id for span in spans}) == len(spans)

    def test_the_summary_is_where_a_viewer_looks_for_a_response(self) -> None:
        recorder = folded(
            "s",
            summarizer=ScriptedModel("Goal: the parser reads three tokens ahead. Next: flush what the reader left."),
        )
        spans = {span.name: span.as_dict() for span in all_spans(recorder.events)}
        created = recorder["summary_created"][0].data["summary"]
        assert spans["compact.summary_created"]["data"]["output"] == created
        assert spans["fold 1"]["data"]["output"] == created

    def test_a_duration_bar_has_two_ends(self) -> None:
        for span in all_spans(folded("s").events):
            value = span.as_dict()
            started, ended = (datetime.fromisoformat(value[end]) for end in ("started_at", "ended_at"))
            assert started <= ended
            assert all(
                re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", value[e]) for e in ("started_at", "ended_at")
            )

    def test_reading_events_back_gives_the_same_spans(self) -> None:
        events = folded("s").events
        again = [parse_event(json.loads(event_json(event))) for event in events]
        assert [span.span_id for span in all_spans(again)] == [span.span_id for span in all_spans(events)]

    @pytest.mark.parametrize(
        ("time", "duration", "wanted"),
        [
            (0.0, 0.0, True),
            (YEAR_1, 0.0, True),
            (YEAR_1, 1.0, False),
            (YEAR_1 + 1, 1.0, True),
            (1e18, 0.0, False),
            (float("nan"), 0.0, False),
        ],
    )
    def test_a_bar_that_begins_before_time_has_no_ends(self, time: float, duration: float, wanted: bool) -> None:
        assert wanted is has_times(Event("compact.archival", "s", 1, time, duration))

    def test_a_trace_is_a_session(self) -> None:
        value = trace_of(Event("compact.warning", "", 0, 0.0))
        assert value["trace_id"] == value["name"] == "session"
        assert all(isinstance(text, str) for text in value["metadata"].values())
        assert stamp(0.0) == "1970-01-01T00:00:00.000000Z"

    @given(
        st.lists(
            st.builds(
                Event,
                name=st.sampled_from([*EVENT_NAMES, "other.event"]),
                session_id=st.text(max_size=3),
                step=st.integers(0, 5),
                time=st.floats(0, 4e9),
                duration=st.floats(0, 1e6),
                status=st.sampled_from(["ok", "error"]),
                data=st.dictionaries(
                    st.sampled_from(["triggered", "fallback", "summary", "cost_usd", "report", "message"]),
                    st.sampled_from([None, True, "unchanged", "none", 0.5, {"a": None}, [None, 1]]),
                ).map(lambda data: {**data, "cost_usd": 0.5}),
            ),
            max_size=30,
        )
    )
    def test_any_stream_becomes_spans_that_ariadne_takes(self, events: list[Event]) -> None:
        spans = all_spans(events)
        ids = {span.span_id for span in spans}
        for span in spans:
            value = span.as_dict()
            assert value["trace_id"]
            assert value["span_id"]
            assert value["started_at"] <= value["ended_at"]
            assert value.get("parent_id", span.span_id) in ids
            assert "null" not in json.dumps(value, default=str).replace('"null"', "")
