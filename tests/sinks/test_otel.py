"""Folds as OpenTelemetry spans and metrics, as they arrive at a collector that reads protobuf over HTTP."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import textwrap
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from otlp_collector import Collector, SpanSeen, until, unused_port
from project_paths import environment

from compact import CompactConfig, CompactManager, Event, InsufficientBudget
from compact.errors import ConfigError, ContentFilter, ModelUnavailable
from compact.models import Written
from compact.sinks.otel import OtelSink
from compact.testing import Recorder, ScriptedModel, chat

pytestmark = pytest.mark.slow  # servers and processes of their own

SUMMARY = "goal: ship the walrus release"
NOON = 1_700_000_000.0
LONG = "s" + "utra" * 20


def manager_for(sink: Any, summarizer: Any = None, *more: Any, **settings: Any) -> CompactManager:
    """A manager with a small window that sends its events to this sink."""
    policy = {"hard_cap_buffer": 100, **settings.pop("policy", {})}
    summary = {"max_retries": 0, "min_score": 0, **settings.pop("summary", {})}
    defaults = {"model": "gpt-4o", "max_context_tokens": 2_000, "storage": {"adapter": "none"}}
    config = CompactConfig(**{**defaults, **settings}, policy=policy, summary=summary)
    return CompactManager(config, summarizer=summarizer or ScriptedModel(SUMMARY), sinks=[sink, *more])


def fold(sink: OtelSink, session: str, at: float, *, decided: float | None = None, summary: str = "") -> None:
    """The events of a fold, three or, with a summary, four."""
    sink(Event("compact.token_estimate", session, 0, at, data={"t_est": 9}))
    sink(Event("compact.trigger_decision", session, 0, decided or at + 0.1, data={"triggered": True, "reason": "x"}))
    if summary:
        sink(Event("compact.summary_created", session, 0, at + 0.2, data={"summary": summary}))
    pruned = {"step": 1, "tokens_before": 9, "tokens_after": 1}
    sink(Event("compact.pruned_messages", session, 1, at + 0.3, data=pruned))


def only(spans: list[SpanSeen]) -> SpanSeen:
    """The one span there is."""
    (span,) = spans
    return span


def books(sink: OtelSink) -> tuple[int, int]:
    """Events that came, and events accounted for."""
    return sink.emitted, sink.delivered + sink.dropped + sink.queued


# -- spans -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("S18", "S19")
def test_a_fold_is_one_span_with_its_numbers() -> None:
    """Names, kinds, times, attributes and events, by the conventions where they have a name for it."""
    recorder = Recorder()

    def writes(ask: Any) -> Written:
        return Written(SUMMARY, input_tokens=900, output_tokens=12, model="gpt-4o-mini")

    with Collector() as collector, manager_for(OtelSink(collector.url), writes, recorder) as manager:
        manager.manual_compact("s-1", chat(LONG), note="by hand")
        collector.wait_for(lambda: collector.named("compact_messages"))
    assert [] == collector.problems
    fold, called = only(collector.named("compact_messages")), only(collector.named("chat gpt-4o-mini"))
    pruned = recorder["pruned_messages"][0].data
    expected = {
        "gen_ai.conversation.id": "s-1",
        "gen_ai.conversation.compacted": True,
        "compaction.strategy": "task_state",
        "compaction.messages_before": 81,
        "compaction.messages_after": pruned["messages_after"],
        "compaction.tokens_before": pruned["tokens_before"],
        "compaction.tokens_after": pruned["tokens_after"],
        "compact.model": "gpt-4o",
        "compact.strategy": "task_state",
        "compact.reason": recorder["trigger_decision"][0].data["reason"],
        "compact.step": 1,
        "compact.window_tokens": 2_000,
        "compact.note": "by hand",
        "compact.folded_messages": pruned["folded"],
        "compact.fidelity.score": recorder["summary_created"][0].data["report"]["score"],
        "compact.summary_tokens": recorder["summary_created"][0].data["summary_tokens"],
        "openinference.span.kind": "CHAIN",
    }
    assert expected == {name: fold.attributes.get(name) for name in expected}
    assert ("internal", "unset", "") == (fold.kind, fold.status, fold.parent_id)
    assert "compact" == fold.resource["service.name"]
    assert [event.name for event in recorder] == [event.name for event in fold.events]
    assert all(fold.start <= event.time <= fold.end for event in fold.events)
    decision = next(event for event in fold.events if event.name == "compact.trigger_decision")
    assert (True, 0.85) == (decision.attributes["compact.triggered"], decision.attributes["compact.policy.trigger_pct"])

    assert ("client", fold.span_id, fold.trace_id) == (called.kind, called.parent_id, called.trace_id)
    assert fold.start <= called.start <= called.end <= fold.end
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.usage.input_tokens": 900,
        "gen_ai.usage.output_tokens": 12,
        "gen_ai.conversation.id": "s-1",
        "openinference.span.kind": "LLM",
    }
    assert expected == {name: called.attributes.get(name) for name in expected}


def test_the_built_in_summarizer_is_no_chat() -> None:
    """Where no model was asked, no span says so."""
    with Collector() as collector:
        config = CompactConfig(max_context_tokens=2_000, policy={"hard_cap_buffer": 100}, storage={"adapter": "none"})
        with CompactManager(config, sinks=[OtelSink(collector.url)]) as manager:
            manager.preflight("s", chat(LONG))
    assert {"compact_messages", "extract"} == {span.name for span in collector.spans}
    told = only(collector.named("extract"))
    assert "internal" == told.kind
    assert not any(name.startswith("gen_ai.usage") or name == "gen_ai.operation.name" for name in told.attributes)


def test_nothing_due_nothing_sent() -> None:
    """A preflight below the trigger is no span, and costs no request."""
    with Collector() as collector:
        sink = OtelSink(collector.url)
        with manager_for(sink) as manager:
            for _ in range(20):
                manager.preflight("s", chat("sua"))
    assert [] == collector.requests
    assert (40, 40) == (sink.emitted, sink.delivered)


def test_each_fold_of_each_session_is_a_span() -> None:
    """Sessions that fold side by side do not get into each other's spans."""
    with Collector() as collector, manager_for(OtelSink(collector.url)) as manager:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: manager.preflight(f"s-{n % 8}", chat(LONG, first=100 * (n // 8))), range(16)))
        collector.wait_for(lambda: len(collector.named("compact_messages")) == 16)
    folds = {span.span_id: span.attributes["gen_ai.conversation.id"] for span in collector.named("compact_messages")}
    steps = [span.attributes["compact.step"] for span in collector.named("compact_messages")]
    assert sorted([(f"s-{n}", step) for n in range(8) for step in (1, 2)]) == sorted(
        zip([s.attributes["gen_ai.conversation.id"] for s in collector.named("compact_messages")], steps, strict=True)
    )
    calls = collector.named("chat")
    assert 16 == len({call.parent_id for call in calls}) == len(calls)
    assert all(folds[call.parent_id] == call.attributes["gen_ai.conversation.id"] for call in calls)


# -- the caller's trace ------------------------------------------------------------------------------------------------


def test_a_fold_belongs_to_the_span_of_its_caller() -> None:
    """In threads: the span that was current around `preflight` is the parent, whoever else is traced meanwhile."""
    tracer = TracerProvider().get_tracer("agent")
    expected: dict[str, tuple[str, str]] = {}

    def work(manager: CompactManager, session: str) -> None:
        with tracer.start_as_current_span(session) as span:
            context = span.get_span_context()
            expected[session] = f"{context.trace_id:032x}", f"{context.span_id:016x}"
            manager.preflight(session, chat(LONG))

    with Collector() as collector, manager_for(OtelSink(collector.url)) as manager:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, [manager] * 8, [f"s-{n}" for n in range(8)]))
        collector.wait_for(lambda: len(collector.named("compact_messages")) == 8)
    folds = collector.named("compact_messages")
    assert expected == {s.attributes["gen_ai.conversation.id"]: (s.trace_id, s.parent_id) for s in folds}


def test_a_fold_belongs_to_the_task_of_its_caller() -> None:
    """In asyncio: tasks that fold at the same time on one thread each have their own parent."""
    tracer = TracerProvider().get_tracer("agent")
    expected: dict[str, str] = {}

    async def summarize(ask: Any) -> str:
        await asyncio.sleep(0.01)
        return SUMMARY

    async def work(manager: CompactManager, session: str) -> None:
        with tracer.start_as_current_span(session) as span:
            expected[session] = f"{span.get_span_context().span_id:016x}"
            await manager.apreflight(session, chat(LONG))

    async def all_at_once(manager: CompactManager) -> None:
        await asyncio.gather(*(work(manager, f"s-{n}") for n in range(8)))

    with Collector() as collector, manager_for(OtelSink(collector.url), summarize) as manager:
        asyncio.run(all_at_once(manager))
        collector.wait_for(lambda: len(collector.named("compact_messages")) == 8)
    folds = collector.named("compact_messages")
    assert expected == {s.attributes["gen_ai.conversation.id"]: s.parent_id for s in folds}


def test_the_applications_own_providers() -> None:
    """Without an endpoint spans and numbers go where the application's go; nothing global is set."""
    kept, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(shutdown_on_exit=False), MeterProvider([reader], shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(kept))
    before = trace.get_tracer_provider(), metrics.get_meter_provider()
    with manager_for(OtelSink(tracer_provider=tracers, meter_provider=meters)) as manager:
        manager.preflight("s", chat(LONG))
    assert ["chat", "compact_messages"] == [span.name for span in kept.get_finished_spans()]
    numbers = reader.get_metrics_data()
    assert numbers is not None
    names = {metric.name for metric in numbers.resource_metrics[0].scope_metrics[0].metrics}
    assert {"compact.folds", "compact.tokens.saved", "compact.fold.duration", "compact.events.dropped"} <= names
    with Collector() as collector, manager_for(OtelSink(collector.url)) as manager:
        manager.preflight("s", chat(LONG))
    assert before == (trace.get_tracer_provider(), metrics.get_meter_provider())


GLOBAL = """
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

sink = OtelSink()
kept = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(kept))
manager = manager_for(sink)
manager.preflight("s", chat(LONG))
manager.close()
print(sorted(span.name for span in kept.get_finished_spans()))
"""


def script(tmp_path: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of its own that has this file's names."""
    (tmp_path / "program.py").write_text("from test_otel import *\n" + textwrap.dedent(text))
    command = [sys.executable, str(tmp_path / "program.py"), *arguments]
    own = environment(Path(__file__).parent)
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=own)


def test_global_providers_may_come_late(tmp_path: Path) -> None:
    """A provider that the application sets after the sink was made is found."""
    assert ("['chat', 'compact_messages']\n", "") == (
        (done := script(tmp_path, GLOBAL)).stdout,
        done.stderr,
    )


# -- failures of folds -------------------------------------------------------------------------------------------------


@pytest.mark.spec("S20")
def test_a_summarizer_that_fails() -> None:
    """Its call is an error with its type; the fold says what was done instead, and is an error if it did not leave."""
    with Collector() as collector:
        with manager_for(OtelSink(collector.url), ScriptedModel(ModelUnavailable("nobody there"))) as manager:
            manager.preflight("pruned", chat(LONG))
        failing = ScriptedModel(ContentFilter("no"))
        with (
            manager_for(OtelSink(collector.url), failing, policy={"on_failure": "raise"}) as manager,
            pytest.raises(ContentFilter),
        ):
            manager.preflight("raised", chat(LONG))
    pruned, raised = collector.named("compact_messages")
    assert ("unset", "pruning-only", "ModelUnavailable", None) == (
        pruned.status,
        pruned.attributes["compact.fallback"],
        pruned.attributes["compact.error_type"],
        pruned.attributes.get("error.type"),
    )
    assert pruned.attributes["gen_ai.conversation.compacted"] is True
    assert ("error", "ContentFilter", "raise") == (
        raised.status,
        raised.attributes["error.type"],
        raised.attributes["compact.fallback"],
    )
    assert "gen_ai.conversation.compacted" not in raised.attributes
    calls = collector.named("chat")
    assert [("error", "ModelUnavailable"), *[("error", "ContentFilter")] * 2] == [
        (call.status, call.attributes["error.type"]) for call in calls
    ]
    error = next(event for event in pruned.events if event.name == "compact.error")
    assert ("ModelUnavailable", "pruning-only") == (
        error.attributes["compact.error_type"],
        error.attributes["compact.fallback"],
    )
    failures = {told["error.type"]: count for told, count in collector.metrics["compact.failures"]}
    assert failures["ContentFilter"] >= 1


def test_a_failure_that_was_got_over() -> None:
    """A retry that helped leaves an error on its call, and none on the fold."""
    script = ScriptedModel(ModelUnavailable("nobody there", retry_after=0.001), SUMMARY)
    with Collector() as collector, manager_for(OtelSink(collector.url), script, summary={"max_retries": 1}) as manager:
        manager.preflight("s", chat(LONG))
        collector.wait_for(lambda: collector.named("compact_messages"))
    fold = only(collector.named("compact_messages"))
    assert ("unset", False, False) == (
        fold.status,
        "compact.fallback" in fold.attributes,
        "error.type" in fold.attributes,
    )
    assert ["error", "unset"] == [call.status for call in collector.named("chat")]


@pytest.mark.spec("S20")
def test_pins_that_do_not_fit() -> None:
    """A fold that could not be planned is a span too, with the reason and no text of a message."""
    with Collector() as collector, manager_for(OtelSink(collector.url)) as manager:
        with pytest.raises(InsufficientBudget):
            manager.preflight("s", chat("p" * 60))
        collector.wait_for(lambda: collector.named("compact_messages"))
    fold = only(collector.spans)
    assert ("error", "InsufficientBudget") == (fold.status, fold.attributes["error.type"])


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_metrics_add_up() -> None:
    """Counts and sums over two sessions, told apart by few-valued attributes and never by session."""
    recorder = Recorder()
    with Collector() as collector:
        with manager_for(OtelSink(collector.url), None, recorder) as manager:
            manager.preflight("one", chat(LONG))
            manager.preflight("two", chat(LONG))
            manager.preflight("two", chat("sua"))
        folds = [event.data for event in recorder["pruned_messages"]]
        ((told, count),) = collector.metrics["compact.folds"]
        ((_, saved),) = collector.metrics["compact.tokens.saved"]
        ((_, (durations, seconds)),) = collector.metrics["compact.fold.duration"]
        ((_, (scores, total)),) = collector.metrics["compact.fidelity.score"]
        ((_, dropped),) = collector.metrics["compact.events.dropped"]
    assert (2, 2, 2, 0) == (count, durations, scores, dropped)
    assert sum(data["tokens_before"] - data["tokens_after"] for data in folds) == saved
    assert seconds > 0
    assert total == pytest.approx(sum(event.data["report"]["score"] for event in recorder["summary_created"]))
    assert {"compact.model": "gpt-4o", "compact.strategy": "task_state"}.items() <= told.items()
    assert {"compact.model", "compact.layout", "compact.strategy", "compact.reason"} >= told.keys()
    assert [] == [
        told
        for points in collector.metrics.values()
        for told, _ in points
        if "one" in told.values() or "two" in told.values()
    ]


# -- content and secrets -----------------------------------------------------------------------------------------------


@pytest.mark.spec("T13")
@pytest.mark.parametrize("capture_content", [False, True])
def test_text_only_on_demand_and_without_secrets(capture_content: bool) -> None:
    """The summary is sent when asked for; a secret in a summary, a note, an error or an id never is."""
    secret = "sk-abc123def456ghi789jkl012"

    def fails(ask: Any) -> str:
        raise ModelUnavailable(f"the proxy said api_key={secret}")

    with Collector() as collector:
        sink = OtelSink(collector.url, capture_content=capture_content)
        writes = ScriptedModel(f"{SUMMARY}; api_key={secret}")
        with manager_for(sink, writes) as manager:
            manager.manual_compact(f"api_key={secret}", chat(LONG), note=f"password: {secret}")
        with manager_for(OtelSink(collector.url), fails) as manager:
            manager.preflight("s", chat(LONG))
    first, second = collector.named("compact_messages")
    assert capture_content is ("walrus" in first.attributes.get("output.value", ""))
    created = next(event for event in first.events if event.name == "compact.summary_created")
    assert capture_content is ("walrus" in created.attributes.get("compact.summary", ""))
    assert "<REDACTED>" in first.attributes["compact.note"]
    assert "<REDACTED>" in first.attributes["gen_ai.conversation.id"]
    error = next(event for event in second.events if event.name == "compact.error")
    assert "<REDACTED>" in error.attributes["compact.message"]
    everything = b"".join(body for _, _, body in collector.requests)
    assert secret.encode() not in everything
    assert capture_content is (b"walrus" in everything)
    # Words of the messages themselves: the fidelity report quotes them, and lists stay at home.
    assert b"look ahead" not in everything


@pytest.mark.spec("T30")
def test_odd_values_are_carried() -> None:
    """Half a surrogate, a huge number, a long line: none of them loses the span it stands on."""
    with Collector() as collector:
        sink = OtelSink(collector.url)
        with manager_for(sink, ScriptedModel(SUMMARY)) as manager:
            manager.manual_compact("s-\ud800", chat(LONG), note="x" * 100_000 + "\udfff")
        now = time.time()
        sink(
            Event("compact.token_estimate", "odd", 0, now, data={"t_est": 1 << 70, "model": None, "nan": float("nan")})
        )
        odd = {"triggered": True, "reason": "\ud800", "policy": {}, "kept": {"deep": {"er": [1, 2]}}}
        sink(Event("compact.trigger_decision", "odd", 0, now, data=odd))
        sink(
            Event("compact.error", "odd", 0, now - 60, data={"fallback": "none", "error_type": "Odd", "message": "\0"})
        )
        sink.close()
    odd_span, sound = sorted(
        collector.named("compact_messages"), key=lambda span: str(span.attributes["gen_ai.conversation.id"])
    )
    assert ("odd", "?", hex(1 << 70)) == (
        odd_span.attributes["gen_ai.conversation.id"],
        odd_span.attributes["compact.reason"],
        odd_span.attributes["compaction.tokens_before"],
    )
    assert odd_span.start <= odd_span.end
    assert ("s-?", 4_096) == (sound.attributes["gen_ai.conversation.id"], len(sound.attributes["compact.note"]))
    assert (0, *[sink.emitted] * 2) == (sink.dropped, *books(sink))


# -- a collector that misbehaves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/", "/v1/traces", "/v1/metrics", "/v1/traces/"])
def test_the_paths_are_added_once(path: str) -> None:
    """A base address, or that of one signal, leads to both; headers go along."""
    with Collector() as collector:
        sink = OtelSink(collector.url + path, headers={"X-Team": "walrus"})
        with manager_for(sink) as manager:
            manager.preflight("s", chat(LONG))
    assert ["/v1/traces", "/v1/metrics"] == [path for path, _, _ in collector.requests]
    assert {"walrus"} == {headers["x-team"] for _, headers, _ in collector.requests}
    assert collector.url == sink.endpoint


@pytest.mark.spec("T10", "S40")
@pytest.mark.parametrize("mode", ["refused", "unresolved", 500, 400, "redirect", "long", "drip", "silent"])
def test_a_collector_that_fails(
    mode: int | str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """No exception, one `[OTLP]` line, nothing of OpenTelemetry's own in the log, and every event accounted for."""
    with Collector("silent" if isinstance(mode, str) and mode in ("refused", "unresolved") else mode) as collector:
        url = {"refused": f"http://127.0.0.1:{unused_port()}", "unresolved": "http://nowhere.invalid:4318"}
        sink = OtelSink(url.get(str(mode), collector.url))
        caplog.set_level(logging.WARNING)
        manager = manager_for(sink)
        for session in ("one", "two"):
            out = manager.preflight(session, chat(LONG))
            assert len(out) < len(chat(LONG))
        manager.close()
        until(lambda: sink.queued == 0)
    assert books(sink)[0] == books(sink)[1] == sink.emitted
    said = capsys.readouterr().err.splitlines()
    if mode in ("long", "drip"):
        assert (0, []) == (sink.dropped, said)
    else:
        assert sink.dropped > 0
        assert all(line.startswith("[OTLP] ") for line in said)
        assert 1 <= len(said) <= 2, said  # what is wrong, and at the end what was lost
    assert [] == [record.name for record in caplog.records if record.name.startswith(("opentelemetry", "urllib3"))]
    assert not [path for path, _, _ in collector.requests if path == "/elsewhere"]


@pytest.mark.slow
@pytest.mark.spec("T10")
def test_a_reply_that_drips_is_given_up() -> None:
    """A byte now and then does not extend the time for a request: there is a second try."""
    with Collector("slow") as collector:
        sink = OtelSink(collector.url)
        fold(sink, "s", NOON)
        collector.wait_for(lambda: len(collector.requests) > 1)
        collector.mode = 200
        sink.close()


def test_a_collector_that_comes_back_gets_everything() -> None:
    """Folds made while nobody listens arrive, once, when somebody does; so do the numbers."""
    port = unused_port()
    sink = OtelSink(f"http://127.0.0.1:{port}")
    with manager_for(sink) as manager:
        manager.preflight("early", chat(LONG))
        until(lambda: sink._failures)
        manager.preflight("later", chat(LONG))
        with Collector(503, port) as collector:
            collector.wait_for(lambda: collector.requests)
            collector.mode = 200
            collector.wait_for(lambda: "compact.folds" in collector.metrics)
            until(lambda: sink.queued == 0)
    assert ["early", "later"] == sorted(
        span.attributes["gen_ai.conversation.id"] for span in collector.named("compact_messages")
    )
    assert [2] == [count for _, count in collector.metrics["compact.folds"]]
    assert (0, sink.emitted) == (sink.dropped, sink.delivered)


def test_a_fold_that_a_collector_refuses_costs_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    """400 comes for a whole request; what is refused is found, and its events alone are lost, counted and told of."""
    with Collector() as collector:
        collector.refusing = lambda span: span.attributes.get("gen_ai.conversation.id") == "s-3"
        sink = OtelSink(collector.url)
        for number in range(10):
            fold(sink, f"s-{number}", NOON + number)
        sink.close()
    sessions = [span.attributes["gen_ai.conversation.id"] for span in collector.named("compact_messages")]
    assert [f"s-{number}" for number in range(10) if number != 3] == sessions
    assert (30, 27, 3, 0) == sink.counts()
    assert "3 events were not delivered" in capsys.readouterr().err


def test_an_event_without_a_time_costs_no_other() -> None:
    """It is lost alone: other folds are drawn, and its own with what is left of it."""
    with Collector() as collector:
        sink = OtelSink(collector.url)
        for number in range(10):
            fold(sink, f"s-{number}", NOON + number, decided=float("nan") if number == 3 else None)
        sink.close()
    assert 9 == len(collector.named("compact_messages"))
    assert (30, 29, 1, 0) == sink.counts()


def test_metrics_hold_no_span_back() -> None:
    """A collector that never answers a request for metrics gets every span, is asked once, and nothing is lost."""
    with Collector(metrics="silent") as collector:
        sink = OtelSink(collector.url)
        for number in range(3):
            fold(sink, f"s-{number}", NOON + number)
            assert sink.flush(30)
        sink.close()
    assert 3 == len(collector.named("compact_messages"))
    assert ["/v1/traces", "/v1/metrics", "/v1/traces", "/v1/traces"] == [path for path, _, _ in collector.requests]
    assert (9, 9, 0, 0) == sink.counts()


def test_a_collector_that_stays_away_costs_little_memory() -> None:
    """What is tried again is remembered as long as it is queued, and not longer."""
    sink = OtelSink(f"http://127.0.0.1:{unused_port()}")
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for batch in range(8):
        for number in range(60):
            fold(sink, f"s-{number % 5}", NOON + 60 * batch + number, summary=f"{batch} {number} " + "word " * 20_000)
        assert not sink.flush(30)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    sink.close()
    assert grown < 25_000_000


def test_an_address_that_is_none() -> None:
    """Said when the sink is made, with how to write one; a bare host and port is one."""
    for address in ("ftp://127.0.0.1", "http://", "http://[::1"):
        with pytest.raises(ConfigError, match=r"write it as http://127\.0\.0\.1:4318"):
            OtelSink(address)
    assert "http://localhost:4318" == OtelSink("localhost:4318").endpoint


@pytest.mark.spec("T13")
def test_what_is_secret_in_an_address_is_sent_and_not_shown() -> None:
    """User, password and query go to the collector; no message and no attribute shows them."""
    with Collector() as collector:
        sink = OtelSink(collector.url.replace("://", "://me:hunter2@") + "/v1/traces?key=hunter2")
        fold(sink, "s", NOON)
        sink.close()
    assert ["/v1/traces?key=hunter2", "/v1/metrics?key=hunter2"] == [path for path, _, _ in collector.requests]
    assert {"Basic bWU6aHVudGVyMg=="} == {headers["authorization"] for _, headers, _ in collector.requests}
    assert (collector.url, f"<OtelSink OTLP to {collector.url}>") == (sink.endpoint, repr(sink))
    with pytest.raises(ConfigError) as error:
        OtelSink("http://me:hunter2@host:99999/?key=hunter2@")
    assert "hunter2" not in str(error.value)


def test_no_proxy_and_no_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment and a server say about other places is not heard."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{unused_port()}")
    with Collector("redirect") as collector:
        sink = OtelSink(collector.url.replace("127.0.0.1", "localhost"))
        fold(sink, "s", NOON)
        assert not sink.flush(30)
        collector.mode = 200
        assert sink.flush(30)
        sink.close()
    assert ["/v1/traces", "/v1/traces", "/v1/metrics"] == [path for path, _, _ in collector.requests]


def test_a_collector_without_metrics_gets_spans() -> None:
    """Some viewers take spans alone. They are asked for the rest once."""
    with Collector(metrics=405) as collector:
        sink = OtelSink(collector.url)
        with manager_for(sink) as manager:
            for session in ("one", "two"):
                manager.preflight(session, chat(LONG))
                sink.flush(30)
    assert 2 == len(collector.named("compact_messages"))
    assert ["/v1/traces", "/v1/metrics", "/v1/traces"] == [path for path, _, _ in collector.requests]
    assert (0, sink.emitted) == (sink.dropped, sink.delivered)


def test_the_applications_own_exporters_may_still_complain(caplog: pytest.LogCaptureFixture) -> None:
    """Only our exports are kept out of the log."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    address = f"http://127.0.0.1:{unused_port()}"
    with manager_for(OtelSink(address)) as manager:
        manager.preflight("s", chat(LONG))
    assert [] == caplog.records
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{address}/v1/traces", timeout=0.2)))
    tracers.get_tracer("app").start_span("theirs").end()
    assert caplog.records


@pytest.mark.spec("T09", "S40")
def test_a_collector_that_never_answers_holds_nobody_up() -> None:
    """The caller's part is done while the collector has not answered a single request."""
    with Collector("silent") as collector:
        sink = OtelSink(collector.url)
        manager = manager_for(sink)
        manager.preflight("first", chat(LONG))
        collector.wait_for(lambda: collector.requests)
        for at in range(10_000):
            sink(Event("compact.warning", "s", 0, 1.0, data={"code": "x", "n": at}))
        assert sink.queued > 0, "the queue's thread was not held up, so this shows nothing"
        assert books(sink)[0] == books(sink)[1] > 10_000
        assert sink.dropped > 0
        manager.close()


EXIT = """
if __name__ == "__main__":
    manager = manager_for(OtelSink(sys.argv[1]))
    manager.preflight("s", chat(LONG))
    print(time.time())
"""


@pytest.mark.slow
@pytest.mark.spec("T12")
def test_leaving_without_close(tmp_path: Path) -> None:
    """What is queued is delivered at exit, or its loss is told within the time allowed."""
    with Collector() as collector:
        done = script(tmp_path, EXIT, collector.url)
    assert (0, "") == (done.returncode, done.stderr)
    assert 1 == len(collector.named("compact_messages"))
    with Collector("silent") as collector:
        done = script(tmp_path, EXIT, collector.url)
    assert 0 == done.returncode
    assert "[OTLP] " in done.stderr
    assert "Traceback" not in done.stderr


FORK = """
import os
if __name__ == "__main__":
    manager = manager_for(OtelSink(sys.argv[1]))
    manager.preflight("before", chat(LONG))
    for number in range(10):
        if os.fork() == 0:
            manager.preflight(f"child-{number}", chat(LONG))
            manager.close()
            os._exit(0)
        manager.preflight(f"parent-{number}", chat(LONG))
    for number in range(10):
        assert 0 == os.waitstatus_to_exitcode(os.wait()[1])
    manager.close()
"""


@pytest.mark.spec("T11")
def test_forks_while_exporting(tmp_path: Path) -> None:
    """Parent and children each deliver their own folds, once."""
    with Collector() as collector:
        done = script(tmp_path, FORK, collector.url)
    assert (0, "") == (done.returncode, done.stderr)
    sessions = [span.attributes["gen_ai.conversation.id"] for span in collector.named("compact_messages")]
    expected = ["before", *(f"{who}-{number}" for who in ("child", "parent") for number in range(10))]
    assert sorted(expected) == sorted(sessions)


ABSENT = """
import sys
sys.modules["opentelemetry"] = None
from compact.errors import MissingExtra
from compact.sinks.otel import OtelSink
try:
    OtelSink("http://127.0.0.1:4318")
except MissingExtra as error:
    print("agent-compact[otel]" in str(error))
"""


def test_its_absence_is_told() -> None:
    """Without OpenTelemetry the error names the extra, when the sink is made."""
    done = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True, timeout=60, check=False)
    assert ("True\n", "") == (done.stdout, done.stderr)


@pytest.mark.parametrize("more", [{}, {"capture_content": True}])
def test_as_configured(more: dict[str, Any]) -> None:
    """`tracing.otlp_endpoint` is all that it takes; for the text it takes a word more."""
    with Collector() as collector:
        config = CompactConfig(
            max_context_tokens=2_000,
            policy={"hard_cap_buffer": 100},
            storage={"adapter": "none"},
            tracing={"otlp_endpoint": collector.url, **more},
        )
        with CompactManager(config) as manager:
            manager.preflight("s", chat(LONG))
    assert bool(more) is ("output.value" in only(collector.named("compact_messages")).attributes)


LATE = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

class Printing(SpanExporter):
    def export(self, spans):
        print(sorted(span.name for span in spans), flush=True)
        return SpanExportResult.SUCCESS

sink = OtelSink()
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(Printing()))
trace.set_tracer_provider(provider)
fold(sink, "s", NOON)
"""


@pytest.mark.spec("T12")
def test_the_applications_own_providers_at_exit(tmp_path: Path) -> None:
    """A fold right before the exit reaches them before they shut down."""
    done = script(tmp_path, LATE)
    assert ("['compact_messages']\n", "") == (done.stdout, done.stderr)
