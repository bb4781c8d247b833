"""Folds in the traces of the OpenAI Agents SDK: the real SDK, a model of the test's own, and nothing uploaded."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, RunConfig, Runner, function_tool
from agents.run import CallModelData, ModelInputData
from agents.tracing import Span, Trace, TracingProcessor, get_trace_provider, trace
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from compact import CompactConfig, CompactManager, Event, InsufficientBudget
from compact.errors import ModelUnavailable
from compact.sinks.agents_sdk import agents_sdk_sink
from compact.testing import ScriptedModel, chat

pytestmark = pytest.mark.slow  # servers and processes of their own

SUMMARY = "goal: ship the walrus release"


class Kept(TracingProcessor):
    """Keeps what the SDK traces."""

    def __init__(self) -> None:
        self.spans: list[Span[Any]] = []
        self.started: list[Span[Any]] = []

    def on_trace_start(self, trace: Trace) -> None:
        pass

    def on_trace_end(self, trace: Trace) -> None:
        pass

    def on_span_start(self, span: Span[Any]) -> None:
        self.started.append(span)

    def on_span_end(self, span: Span[Any]) -> None:
        self.spans.append(span)

    def shutdown(self) -> None:
        pass

    def force_flush(self) -> None:
        pass

    @property
    def folds(self) -> list[Span[Any]]:
        return [span for span in self.spans if getattr(span.span_data, "name", "") == "compact_messages"]


@pytest.fixture
def traced() -> Iterator[Kept]:
    """The SDK's tracing with one processor, this one, so that nothing is uploaded; then as it was."""
    provider = get_trace_provider()
    before = provider._multi_processor._processors  # type: ignore[attr-defined]
    kept = Kept()
    provider.set_processors([kept])
    provider.set_disabled(False)
    try:
        yield kept
    finally:
        provider.set_processors(list(before))


class Scripted(Model):
    """A model that calls a tool so many times and then answers."""

    def __init__(self, calls: int) -> None:
        self.left = calls
        self.inputs: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        self.inputs.append(input)
        self.left -= 1
        item: Any
        if self.left >= 0:
            item = ResponseFunctionToolCall(
                arguments="{}", call_id=f"call_{self.left}", name="look", type="function_call", id=f"fc_{self.left}"
            )
        else:
            text = ResponseOutputText(annotations=[], text="done", type="output_text")
            item = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


@function_tool
def look() -> str:
    """Look around."""
    return "a walrus lies on the beach and looks at the sea " * 12


def manager_for(summarizer: Callable[..., Any], capture_content: bool = False, **policy: Any) -> CompactManager:
    """A manager with a small window and spans in the SDK's traces."""
    config = CompactConfig(
        max_context_tokens=1_500,
        policy={"hard_cap_buffer": 100, "keep_tool_io_pairs": 2, **policy},
        summary={"max_retries": 0, "min_score": 0},
        storage={"adapter": "none"},
    )
    return CompactManager(config, summarizer=summarizer, sinks=[agents_sdk_sink(capture_content)])


def run(manager: CompactManager, *, calls: int = 10) -> Scripted:
    """An agent's run with compaction before every model call."""
    model = Scripted(calls)

    async def compacted(data: CallModelData[Any]) -> ModelInputData:
        messages = await manager.apreflight("beach", data.model_data.input)
        return ModelInputData(input=list(messages), instructions=data.model_data.instructions)

    agent = Agent(name="watcher", instructions="Watch.", model=model, tools=[look])
    config = RunConfig(call_model_input_filter=compacted)
    asyncio.run(Runner.run(agent, "what is on the beach?", run_config=config, max_turns=calls + 5))
    return model


@pytest.mark.spec("S18", "S19")
def test_a_fold_is_a_span_of_the_run(traced: Kept) -> None:
    """Each fold is one span inside the SDK's own, with its numbers and no word of the conversation."""
    with manager_for(ScriptedModel(SUMMARY)) as manager:
        run(manager)
        folds = manager.session("beach").folds
    assert len(traced.folds) == len(folds) > 0
    others = {span.span_id: span for span in traced.spans if span not in traced.folds}
    for span, fold in zip(traced.folds, folds, strict=True):
        assert span.parent_id in others, "not a child of a span of the SDK's"
        assert span.trace_id == others[span.parent_id].trace_id
        assert others[span.parent_id].started_at <= span.started_at <= span.ended_at  # type: ignore[operator]
        told = span.span_data.data
        assert (fold.step, fold.tokens_before, fold.tokens_after) == (
            told["step"],
            told["tokens_before"],
            told["tokens_after"],
        )
        assert (True, "trigger_pct", "task_state", 1) == (
            told["folded"],
            told["reason"],
            told["strategy"],
            told["summary_calls"],
        )
        assert span.error is None
        assert "walrus" not in str(span.export())


def test_below_the_trigger_no_span_is_started(traced: Kept) -> None:
    """Calls that fold nothing leave nothing in the trace, not even a span that was begun."""
    with manager_for(ScriptedModel(SUMMARY)) as manager:
        run(manager, calls=1)
    assert traced.spans
    assert [] == [span for span in traced.started if getattr(span.span_data, "name", "") == "compact_messages"]


def test_content_on_demand(traced: Kept) -> None:
    """The summary is in the span when asked for, without its secrets."""
    secret = "api_key=sk-abc123def456ghi789jkl012"
    with manager_for(ScriptedModel(f"{SUMMARY}; {secret}"), True) as manager:
        run(manager)
    exported = str(traced.folds[0].export())
    assert "walrus release" in exported
    assert "api_key=<REDACTED>" in exported
    assert "sk-abc123" not in exported


@pytest.mark.spec("S20")
def test_failures_are_told(traced: Kept) -> None:
    """A fold that left without its summary says so; one that could not be made is an error."""
    history = chat("s" + "ua" * 30, dialect="openai-responses")
    with trace("test"):
        with manager_for(ScriptedModel(ModelUnavailable("nobody there"))) as manager:
            manager.preflight("pruned", history)
        with (
            manager_for(ScriptedModel(ModelUnavailable("nobody there")), on_failure="raise") as manager,
            pytest.raises(ModelUnavailable),
        ):
            manager.preflight("raised", history)
        with manager_for(ScriptedModel(SUMMARY)) as manager, pytest.raises(InsufficientBudget):
            manager.preflight("pinned", chat("p" * 40, dialect="openai-responses"))
    pruned, raised, pinned = traced.folds
    assert ("ModelUnavailable", "pruning-only", True) == tuple(
        pruned.span_data.data[name] for name in ("error_type", "fallback", "folded")
    )
    assert pruned.error is None
    assert raised.error is not None
    assert ("ModelUnavailable", False) == (raised.error["message"], raised.span_data.data["folded"])
    assert pinned.error is not None
    assert "InsufficientBudget" == pinned.error["message"]


def test_a_fold_that_was_cancelled_is_closed_by_the_next(traced: Kept) -> None:
    """Nothing tells the end of a cancelled fold, so its span ends when the session is heard of again."""
    history = chat("s" + "ua" * 30, dialect="openai-responses")
    asked = asyncio.Event()

    async def hangs(ask: Any) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    async def cancelled(manager: CompactManager) -> None:
        task = asyncio.create_task(manager.apreflight("s", history))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await manager.apreflight("s", history[:3])

    with trace("test"), manager_for(hangs) as manager:
        asyncio.run(cancelled(manager))
    (span,) = traced.folds
    assert span.error == {"message": "the compaction did not end", "data": None}


def test_outside_of_a_trace_nothing_happens(traced: Kept) -> None:
    """A manager outside of the SDK folds as ever, and no span is begun."""
    with manager_for(ScriptedModel(SUMMARY)) as manager:
        manager.preflight("s", chat("s" + "ua" * 30))
        assert 1 == manager.session("s").step
    assert [] == traced.started


def test_no_error_reaches_the_run(traced: Kept, caplog: pytest.LogCaptureFixture) -> None:
    """Events of which no span can be made cost their spans, and one line in the log that says what kind of error."""
    sink = agents_sdk_sink()
    with trace("test"):
        for number in range(2):
            for name in ("token_estimate", "trigger_decision", "pruned_messages"):
                sink(Event(f"compact.{name}", f"s-{number}", 0, 1.7e9, data={"triggered": True, "policy": "odd"}))
    (record,) = caplog.records
    assert "a compaction has no span in the Agents SDK's trace: AttributeError" == record.getMessage()


WITHOUT = """
import sys
from compact import CompactConfig, CompactManager
from compact.errors import MissingExtra
from compact.sinks.agents_sdk import agents_sdk_sink
from compact.testing import chat

config = CompactConfig(max_context_tokens=1500, policy={"hard_cap_buffer": 100}, storage={"adapter": "none"})
with CompactManager(config, sinks=[agents_sdk_sink()]) as manager:
    manager.preflight("s", chat("s" + "ua" * 30))
    print(manager.session("s").step, "agents" in sys.modules)
sys.meta_path.insert(0, type("No", (), {"find_spec": staticmethod(lambda *_: None)}))
sys.path[:], sys.path_importer_cache = [], {}
try:
    agents_sdk_sink()
except MissingExtra as error:
    print("agent-compact[agents]" in str(error))
"""


def test_the_sdk_is_never_imported_and_its_absence_is_told() -> None:
    """Where nobody imported the SDK no trace can be open; where it is not installed the error names the extra."""
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60, check=False)
    assert ("1 False\nTrue\n", "") == (done.stdout, done.stderr)
