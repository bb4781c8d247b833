"""The OpenAI Agents SDK: the real one, with a model of the test's own; nothing is uploaded."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import runpy
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from agent_story import SYSTEM, TOOLS, Call, Play, Step, judge, managed, story
from ariadne_server import StandIn
from project_paths import EXAMPLES
from provider_rules import problems

from compact import CompactManager, InsufficientBudget
from compact.adapters import before_model_call
from compact.errors import ConfigError
from compact.testing import chat

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(autouse=True)
def _no_upload(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces are made, and nobody exports them."""
    from agents import set_trace_processors

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    set_trace_processors([])


def output_of(step: Step, number: int) -> list[Any]:
    """A step of the story as the items a Responses model gives."""
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
    from openai.types.responses.response_reasoning_item import ResponseReasoningItem, Summary

    items: list[Any] = []
    if step.reasoning:
        summary = [Summary(text=step.reasoning, type="summary_text")]
        items.append(ResponseReasoningItem(id=f"rs_{number}", summary=summary, type="reasoning"))
    if step.text:
        text = ResponseOutputText(annotations=[], text=step.text, type="output_text", logprobs=[])
        items.append(
            ResponseOutputMessage(
                id=f"msg_{number}", content=[text], role="assistant", status="completed", type="message"
            )
        )
    for call in step.calls:
        arguments = json.dumps(call.arguments)
        items.append(
            ResponseFunctionToolCall(
                id=f"fc_{call.id}", call_id=call.id, name=call.name, arguments=arguments, type="function_call"
            )
        )
    return items


def model_of(answer: Any, tokens: Any = lambda items: 0) -> Any:
    """A model of the SDK: `answer(items, instructions)` gives its next step, `tokens(items)` what it reports."""
    from agents import Model, ModelResponse
    from agents.usage import Usage
    from openai.types.responses import Response, ResponseCompletedEvent, ResponseUsage

    class Scripted(Model):
        def __init__(self) -> None:
            self.number = 0
            self.inputs: list[Any] = []
            self.instructions: list[Any] = []

        async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
            self.inputs.append(copy.deepcopy(input))
            self.instructions.append(system_instructions)
            self.number += 1
            step = answer(input)
            counted = tokens(input)
            usage = Usage(requests=1, input_tokens=counted, output_tokens=1, total_tokens=counted + 1)
            return ModelResponse(output_of(step, self.number), usage if counted else Usage(), f"resp_{self.number}")

        async def stream_response(self, *given: Any, **others: Any) -> Any:
            made = await self.get_response(*given, **others)
            details: Any = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {}}
            counted = made.usage.input_tokens
            response = Response.model_construct(
                id=made.response_id,
                output=made.output,
                usage=ResponseUsage.model_construct(
                    input_tokens=counted, output_tokens=1, total_tokens=counted + 1, **details
                )
                if counted
                else None,
            )
            yield ResponseCompletedEvent.model_construct(type="response.completed", response=response)

    return Scripted()


def said(text: str) -> Any:
    """A model that always says the same."""
    return model_of(lambda items: Step(text))


def tool_of(name: str, result: Any) -> Any:
    """One of the story's tools for the SDK: `result(name, arguments, context)` is what it returns."""
    from agents import FunctionTool

    async def invoke(context: Any, arguments: str) -> Any:
        given = result(name, json.loads(arguments), context)
        return await given if inspect.isawaitable(given) else given

    properties = {key: {"type": "string", "description": what} for key, what in TOOLS[name].items()}
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return FunctionTool(name=name, description=f"{name}.", params_json_schema=schema, on_invoke_tool=invoke)


def searching(play: Play, received: list[Any]) -> Any:
    """The story's search as an agent used as a tool, which reads a file before it answers."""
    from agents import Agent

    def answer(items: Any) -> Step:
        received.append(copy.deepcopy(items))
        query = items[0]["content"]
        if len(items) == 1:
            return Step("", (Call(f"inner_{query}", "read_file", {"path": query}),), "I read it first.")
        return Step(play.result("search", {"query": query}))

    reading = tool_of("read_file", lambda *_: "nothing of interest")
    tool = Agent("Search helper", instructions="Search.", model=model_of(answer), tools=[reading]).as_tool(None, None)
    return tool_of(
        "search", lambda _, given, context: tool.on_invoke_tool(context, json.dumps({"input": given["query"]}))
    )


def engineer(play: Play, **settings: Any) -> tuple[Any, list[Any]]:
    """The story's agent, whose search is an agent of its own, and what that one received."""
    from agents import Agent

    inner: list[Any] = []
    model = model_of(lambda items: play.answer("openai-responses", items))
    tools = [tool_of(name, lambda name, given, _: play.result(name, given)) for name in ("read_file", "run")]
    agent = Agent("engineer", instructions=SYSTEM, model=model, tools=[*tools, searching(play, inner)], **settings)
    return agent, inner


def run(way: str, agent: Any, said: Any, **settings: Any) -> Any:
    """A run in one of the SDK's three ways."""
    from agents import Runner

    async def streamed() -> Any:
        result = Runner.run_streamed(agent, said, max_turns=100, **settings)
        async for _ in result.stream_events():
            pass
        return result

    if way == "run_sync":
        try:
            return Runner.run_sync(agent, said, max_turns=100, **settings)
        finally:  # it leaves its loop behind
            asyncio.get_event_loop_policy().get_event_loop().close()
            asyncio.set_event_loop(None)
    return asyncio.run(streamed() if way == "run_streamed" else Runner.run(agent, said, max_turns=100, **settings))


def play_through(play: Play, agent: Any, filtering: Any, session: Any, way: str = "run") -> list[Any]:
    """The whole story, and what is stored of it at the end."""
    from agents import RunConfig

    hooks = filtering and filtering.hooks
    for part in play.rounds:
        config = RunConfig(call_model_input_filter=filtering)
        run(way, agent, part.user, session=session, run_config=config, hooks=hooks)
    return asyncio.run(session.get_items())


def as_chat(items: list[Any]) -> list[Any]:
    """What a provider of chat completions would get."""
    from agents.models.chatcmpl_converter import Converter

    return json.loads(json.dumps(Converter.items_to_messages(items)))


@cache
def whole(calls: int = 60) -> list[Any]:
    """What is stored of the story when nothing is compacted."""
    from agents import SQLiteSession

    play = story(calls)
    return play_through(play, engineer(play)[0], None, SQLiteSession("plain"))


@pytest.mark.spec("S29")
@pytest.mark.parametrize(("way", "calls"), [("run", 60), ("run_sync", 24), ("run_streamed", 24)])
def test_a_long_run_stays_within_the_window(way: str, calls: int) -> None:
    """60 calls of the model, parallel tools, reasoning, and an agent used as a tool; nothing stored is lost."""
    from agents import SQLiteSession

    from compact.adapters.agents_sdk import CompactFilter

    play = story(calls)
    manager, summarizer, recorder = managed()
    agent, inner = engineer(play)
    stored = play_through(play, agent, CompactFilter(manager, "chat"), SQLiteSession("chat"), way)
    judge(play, manager, "chat", folds=calls // 20, asked=len(summarizer.asks))
    assert stored == whole(calls)
    assert max(len(request.messages) for request in play.received) < 90
    assert [] == [found for request in play.received for found in problems("openai-chat", as_chat(request.messages))]
    assert {SYSTEM} == set(agent.model.instructions)
    # The agent used as a tool had conversations of its own, and none of them was touched.
    assert len(inner) > calls / 3
    assert all(len(items) in (1, 4) and problems("openai-responses", items) == [] for items in inner)
    apart = {event.session_id for event in recorder.events} - {"chat"}
    assert len(inner) / 2 == len(apart)
    assert all(name.startswith("chat.Search helper.") for name in apart)


def given_to(filtering: Any, items: list[Any], instructions: str | None = None, **agent: Any) -> Any:
    """What a filter makes of a list outside of a run."""
    from agents import Agent
    from agents.run import CallModelData, ModelInputData

    data = CallModelData(ModelInputData(items, instructions), Agent("agent", **agent), None)
    return asyncio.run(filtering(data)).input


def test_kept_items_are_the_same_objects() -> None:
    """Every kind of item goes through whole; only the summary is new, and a list with nothing due is as it was."""
    from compact.adapters.agents_sdk import CompactFilter

    picture = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAAA"}
    recent = [
        {"role": "user", "content": [{"type": "input_text", "text": "See"}, picture], "type": "message"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc", "status": "completed"},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "look",
            "arguments": "{}",
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": "c1", "output": [picture]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Seen.", "annotations": [], "logprobs": []}],
        },
    ]
    manager, _, _ = managed()
    before = copy.deepcopy(recent)
    items = [*chat("utrtrtra" * 20, dialect="openai-responses"), *recent]
    sent = given_to(CompactFilter(manager, "s", on_error="raise"), items)
    assert 1 == len(manager.session("s").folds)
    assert all(one is other for one, other in zip(sent[-6:], recent, strict=True))
    assert before == recent
    assert 1 == sum(all(one is not other for other in items) for one in sent)
    assert recent == given_to(CompactFilter(manager, "t"), recent)


def test_what_the_meter_hears_of_the_request() -> None:
    """Instructions, tools and handoffs are counted, with the agent's model or the one given; max_tokens is room."""
    from agents import Agent, ModelSettings, RunConfig

    from compact.adapters.agents_sdk import CompactFilter

    manager, _, recorder = managed(window=100_000)
    agent = Agent("a", model=said("done"))
    agent.model.model = "gpt-4.1"

    def go(model: str | None = None) -> None:
        filtering = CompactFilter(manager, lambda data: data.agent.name, model=model)
        run("run", agent, "go", run_config=RunConfig(call_model_input_filter=filtering))

    go()
    agent.instructions = "word " * 1_000
    go()
    agent.tools = [tool_of(name, None) for name in TOOLS]
    agent.handoffs = [Agent("another", handoff_description="word " * 500)]
    agent.model_settings = ModelSettings(max_tokens=30_000)
    go("gpt-4o-mini")
    told = [event.data for event in recorder["token_estimate"]]
    assert ["gpt-4.1", "gpt-4.1", "gpt-4o-mini"] == [each["model"] for each in told]
    tools = [each["breakdown"]["tools_schema"] for each in told]
    assert (0, True, True) == (tools[0], 1_000 <= tools[1] <= 1_010, tools[1] + 560 < tools[2])
    budgets = [event.data["budget"] for event in recorder["trigger_decision"]]
    assert [0, 0, 30_000] == [budgets[0] - each for each in budgets]


@pytest.mark.parametrize("way", ["run", "run_sync", "run_streamed"])
def test_what_the_provider_counted_calibrates(way: str) -> None:
    """The hooks tell it, of the session that asked: also for an agent used as a tool, when it has them too."""
    from agents import Agent, RunConfig

    from compact.adapters.agents_sdk import CompactFilter

    manager, _, recorder = managed(window=100_000)

    def estimates(name: str = "") -> list[int]:
        return [event.data["t_est"] for event in recorder["token_estimate"] if name in event.session_id]

    def play(name: str, hooked: bool, inner_hooked: bool) -> list[int]:
        """What was estimated of the three requests of the one agent, and the two of the other."""
        steps = [Step("", (Call("c", "search", {"query": "x"}),)), Step("", (Call("d", "run", {"command": "x"}),))]
        inner_steps = [Step("", (Call("e", "run", {"command": "x"}),)), Step("found")]
        compact = CompactFilter(manager, name)
        ran = tool_of("run", lambda *_: "done")
        # The first request costs 1.3 times as much as was estimated, the other agent's 0.8 times; then nothing is told.
        inner_model = model_of(lambda _: inner_steps.pop(0), lambda items: inner_told(items))
        inner_told = lambda items: round(0.8 * estimates(f"{name}.inner")[0]) if len(items) == 1 else 0  # noqa: E731
        inner = Agent("inner", model=inner_model, tools=[ran])
        asked = inner.as_tool("inner", "", hooks=compact.hooks if inner_hooked else None)
        text = json.dumps({"input": "other " * 2_000})
        tool = tool_of("search", lambda _, given, context: asked.on_invoke_tool(context, text))
        told = lambda items: round(1.3 * estimates(name)[0]) if len(items) == 1 else 0  # noqa: E731
        agent = Agent("a", model=model_of(lambda _: (steps or [Step("done")]).pop(0), told), tools=[tool, ran])
        config = RunConfig(call_model_input_filter=compact)
        run(way, agent, "word " * 2_000, run_config=config, hooks=compact.hooks if hooked else None)
        return estimates(name)

    first, inner_first, inner_second, second, third = play("both", True, True)
    assert 1.28 < second / first < third / first < 1.36
    assert 0.78 < inner_second / inner_first < 0.84
    first, inner_first, inner_second, second, third = play("outer", True, False)
    assert 1.28 < second / first < third / first < 1.36
    assert 1.0 < inner_second / inner_first < 1.05
    first, inner_first, inner_second, second, third = play("none", False, False)
    assert 1.0 < second / first < third / first < 1.05


def test_a_usage_is_told_once() -> None:
    """A response that comes without a request of the filter, as when a run is resumed, calibrates nobody's session."""
    from agents import Agent, ModelResponse
    from agents.run import CallModelData, ModelInputData
    from agents.usage import Usage

    from compact.adapters.agents_sdk import CompactFilter

    manager, _, recorder = managed(window=100_000)
    items = [{"role": "user", "content": "word " * 2_000}]

    async def use() -> None:
        names = ["s", "s", None, "s"]
        compact = CompactFilter(manager, lambda data: names.pop(0))

        async def ask(*factors: float) -> None:
            await compact(CallModelData(ModelInputData(items, None), Agent("a"), None))
            for factor in factors:
                tokens = round(factor * recorder["token_estimate"][0].data["t_est"])
                await compact.hooks.on_llm_end(None, None, ModelResponse([], Usage(input_tokens=tokens), None))

        await ask(1.3, 0.7)
        await ask()  # the model failed
        await ask(0.7)  # and this request was left alone
        await ask()

    asyncio.run(use())
    first, _, last = (event.data["t_est"] for event in recorder["token_estimate"])
    assert 1.28 < last / first < 1.33


def test_a_pinned_item_stays() -> None:
    """`meta` pins it, stays in the session, also in a compacted one, and never reaches the model."""
    from agents import Agent, RunConfig, SQLiteSession

    from compact.adapters.agents_sdk import CompactFilter, CompactSession

    manager, _, _ = managed()
    model = said("word " * 800)
    session = CompactSession(SQLiteSession("chat"), manager)
    config = RunConfig(call_model_input_filter=CompactFilter(manager, "chat"))
    pinned = {"role": "user", "content": "Never delete the walrus.", "meta": {"protected": True}}
    agent = Agent("a", model=model)
    run("run", agent, [{"role": "user", "content": "start"}, pinned], session=session, run_config=config)
    for _ in range(20):
        run("run", agent, "go", session=session, run_config=config)
    assert len(manager.session("chat").folds) >= 2
    bare = {key: value for key, value in pinned.items() if key != "meta"}
    assert all(items.count(bare) == 1 for items in model.inputs)
    assert not any("meta" in item for items in model.inputs for item in items)
    assert 1 == asyncio.run(session.get_items()).count(pinned)


def test_an_error_ends_the_run_only_by_policy() -> None:
    """By default the list goes out as it is, with a warning."""
    from agents import Agent, RunConfig

    from compact.adapters.agents_sdk import CompactFilter

    manager, _, recorder = managed(window=2_000)
    agent = Agent("a", model=said("done"), instructions="word " * 3_000)
    run("run", agent, "go", run_config=RunConfig(call_model_input_filter=CompactFilter(manager, "s")))
    assert [[{"role": "user", "content": "go"}]] == agent.model.inputs
    assert "sent_unchanged" in {event.data["code"] for event in recorder["warning"]}
    with pytest.raises(InsufficientBudget):
        run("run", agent, "go", run_config=RunConfig(call_model_input_filter=CompactFilter(manager, "s", "raise")))
    strange = [{"role": "user", "content": "go"}, ["no", "item"]]  # what the SDK makes of an object in its input
    assert strange == given_to(CompactFilter(manager, "t"), strange)
    assert {"s", "t"} == {event.session_id for event in recorder["warning"]}


def test_whose_conversation_it_is() -> None:
    """The context's, else the trace's group or id, else the filter's own; a function may leave a request alone."""
    from agents import Agent, RunConfig, trace

    from compact.adapters.agents_sdk import CompactFilter

    manager, _, recorder = managed(window=100_000)

    def name(session_id: Any = None, disabled: bool = False, **settings: Any) -> str:
        filtering = CompactFilter(manager, session_id)
        config = RunConfig(call_model_input_filter=filtering, tracing_disabled=disabled, group_id="group")
        run("run", Agent("a", model=said("done")), "go", run_config=config, **settings)
        return recorder["token_estimate"][-1].session_id

    assert "text" == name("text", context={"session_id": "of the context"})
    assert "of a" == name(lambda data: f"of {data.agent.name}")
    assert "of the context" == name(context={"session_id": "of the context"})
    assert "of the context" == name(context=SimpleNamespace(session_id="of the context"))
    assert "group" == name(context=SimpleNamespace()) == name()
    with trace("mine", trace_id="trace_0123") as outer:
        outer.group_id = None  # type: ignore[attr-defined]
        assert "trace_0123" == name()
    own = name(disabled=True)
    assert (True, True) == (own.startswith("agents-"), own != name(disabled=True))
    count = len(recorder.events)
    name(lambda data: None)
    assert count == len(recorder.events)


def test_a_handoff_goes_on_with_the_conversation() -> None:
    """Another agent with other instructions and tools continues it: no fold is paid twice."""
    from agents import Agent, RunConfig

    from compact.adapters.agents_sdk import CompactFilter

    manager, summarizer, recorder = managed()
    steps = [Step("", (Call(f"c{k}", "run", {"command": "x"}),)) for k in range(40)]
    over = [Step("", (Call(f"over_{k}", f"transfer_to_{'second' if k % 2 == 0 else 'first'}", {}),)) for k in range(9)]
    script = [step for k in range(9) for step in (*steps[4 * k : 4 * k + 4], over[k])] + [Step("done")]
    model = model_of(lambda items: script.pop(0))
    tools = [tool_of("run", lambda *_: "word " * 500)]
    first = Agent("first", instructions="First.", model=model, tools=tools)
    second = Agent("second", instructions="Second.", model=model, tools=[*tools, tool_of("search", None)])
    first.handoffs, second.handoffs = [second], [first]
    result = run("run", first, "go", run_config=RunConfig(call_model_input_filter=CompactFilter(manager, "s")))
    assert (True, "second") == (script == [], result.last_agent.name)
    assert {"First.", "Second."} == set(model.instructions)
    assert {"s"} == {event.session_id for event in recorder.events}
    assert 2 <= len(manager.session("s").folds) == len(summarizer.asks)
    assert [] == [found for items in model.inputs for found in problems("openai-responses", items)]


@pytest.mark.parametrize("way", ["run", "run_streamed"])
@pytest.mark.parametrize(
    "server", [{"conversation_id": "conv_1"}, {"previous_response_id": "resp_0"}, {"auto_previous_response_id": True}]
)
def test_it_stands_aside_when_the_server_holds_the_conversation(way: str, server: dict[str, Any]) -> None:
    """Only new items are sent then, and they go out as they are, whatever they weigh."""
    from agents import Agent, RunConfig

    from compact.adapters.agents_sdk import CompactFilter

    received = []
    for filtered in (False, True):
        manager, _, recorder = managed(window=2_000)
        steps = [Step("", (Call(f"c{k}", "run", {"command": "x"}),)) for k in range(3)] + [Step("done")]
        model = model_of(lambda items, steps=steps: steps.pop(0))
        agent = Agent("a", model=model, tools=[tool_of("run", lambda *_: "word " * 3_000)])
        config = RunConfig(call_model_input_filter=CompactFilter(manager, "s", "raise") if filtered else None)
        run(way, agent, "go", run_config=config, **server)
        received.append(agent.model.inputs)
        assert filtered == len(recorder["token_estimate"])  # the first request, which looks like any other
    assert received[0] == received[1]
    assert [1, 1, 1, 1] == [len(items) for items in received[0]]


def test_an_old_orphan_does_not_stop_it() -> None:
    """A history that was cut between a call and its output is mended and folded; the newest output has its call."""
    from compact.adapters.agents_sdk import CompactFilter

    manager, _, _ = managed(window=2_000)
    items = chat("utrtrtra" * 20, dialect="openai-responses")
    cut = next(at for at, item in enumerate(items) if item.get("type") == "function_call_output")
    sent = given_to(CompactFilter(manager, "s", "raise"), items[cut:])
    assert (1, []) == (len(manager.session("s").folds), problems("openai-responses", sent))


# -- between runs ------------------------------------------------------------------------------------------------------


def test_a_session_and_a_filter_agree() -> None:
    """One summary per fold whoever made it; the store shrinks, and the archive has everything that left it."""
    from agents import SQLiteSession

    from compact.adapters.agents_sdk import CompactFilter, CompactSession

    play = story()
    manager, summarizer, recorder = managed()
    inside = SQLiteSession("chat")
    agent, _ = engineer(play)
    stored = play_through(play, agent, CompactFilter(manager, "chat"), CompactSession(inside, manager))
    judge(play, manager, "chat", folds=3, asked=len(summarizer.asks))
    assert stored == asyncio.run(inside.get_items())
    assert len(stored) < len(whole()) / 2
    assert [] == problems("openai-responses", stored)
    # A summary is no item of the story; all others are in the store, or in a transcript of the archive.
    steps = {event.data["step"] for event in recorder["archival"] if event.session_id == "chat"}
    kept = [*stored, *(item for step in steps for item in manager.restore("chat", step))]
    assert all(item in kept for item in whole())
    assert "chat" in {event.session_id for event in recorder.events}
    assert all(name == "chat" or "Search helper" in name for name in {event.session_id for event in recorder.events})


def test_a_session_without_a_filter_is_compacted_once() -> None:
    """At the beginning of a run, when its list has grown too long; by another process it is known as compacted."""
    from agents import Agent, SQLiteSession

    from compact.adapters.agents_sdk import CompactSession

    manager, summarizer, _ = managed()
    inside = SQLiteSession("inside", "store.db")
    agent = Agent("a", model=said("word " * 400))
    for number in range(30):
        run("run_streamed", agent, f"go {number}", session=CompactSession(inside, manager, "outside"))
    folds = len(manager.session("outside").folds)
    assert 2 <= folds == len(summarizer.asks)
    assert all(len(items) < 30 and problems("openai-responses", items) == [] for items in agent.model.inputs)
    stored = asyncio.run(inside.get_items())
    assert len(stored) < 30
    manager.close()
    again, asked, _ = managed()
    assert stored == asyncio.run(CompactSession(inside, again, "outside").get_items())
    assert (0, folds) == (len(asked.asks), len(again.session("outside").folds))
    inside.close()


def test_a_session_is_a_session_of_the_sdk() -> None:
    """The protocol holds; a read of the newest items, or a session that reads no others, changes nothing."""
    from agents import Session, SessionSettings, SQLiteSession

    from compact.adapters.agents_sdk import CompactSession

    async def use() -> None:
        manager, _, recorder = managed(window=2_000)
        items = chat("utrtrtra" * 20, dialect="openai-responses")
        for settings in (None, SessionSettings(limit=7)):
            inside = SQLiteSession("chat", session_settings=settings)
            session = CompactSession(inside, manager)
            assert isinstance(session, Session)
            assert ("chat", inside.session_settings) == (session.session_id, session.session_settings)
            await session.add_items(items)
            assert items[-3:] == await session.get_items(3)
            assert items[-1] == await session.pop_item()
            await session.add_items(items[-1:])
        assert items[-7:] == await session.get_items()
        assert items == await inside.get_items(1_000)
        assert [] == recorder.events
        await session.clear_session()
        assert [] == await session.get_items()

    asyncio.run(use())


def test_a_call_that_waits_for_approval_stays() -> None:
    """Neither is an output made up for it when the session is read, nor is one lost that comes later."""
    from agents import Agent, Runner, SQLiteSession, function_tool

    from compact.adapters.agents_sdk import CompactSession

    @function_tool(needs_approval=True)
    def erase(path: str) -> str:
        return "erased"

    async def use() -> None:
        manager, _, _ = managed()
        inside = SQLiteSession("chat")
        session = CompactSession(inside, manager, on_error="raise")
        steps = [Step("", (Call("c", "erase", {"path": "x"}),), "It has to go."), Step("done"), Step("more")]
        agent = Agent("a", model=model_of(lambda items: steps.pop(0)), tools=[erase])
        await inside.add_items(chat("utrtrtra" * 3, dialect="openai-responses"))
        waiting = await Runner.run(agent, "go", session=session)
        before = await inside.get_items()
        assert ("c", before) == (before[-1]["call_id"], await session.get_items())
        await inside.clear_session()
        long = [*chat("utrtrtra" * 20, dialect="openai-responses"), *before]
        await inside.add_items(long)
        assert long == await session.get_items() == await inside.get_items()
        state = waiting.to_state()
        state.approve(waiting.interruptions[0])
        await Runner.run(agent, state, session=session)
        await Runner.run(agent, "more", session=session)
        stored = await inside.get_items()
        assert ["erased"] == [item["output"] for item in stored if item.get("output") and item["call_id"] == "c"]
        assert (True, []) == (len(stored) < len(long), problems("openai-responses", agent.model.inputs[-1]))

    asyncio.run(use())


def test_nothing_leaves_a_store_that_no_archive_keeps() -> None:
    """The error says what to do."""
    from agents import SQLiteSession

    from compact.adapters.agents_sdk import CompactSession

    manager, _, _ = managed(storage={"adapter": "none"})
    with pytest.raises(ConfigError, match="CompactFilter alone"):
        CompactSession(SQLiteSession("chat"), manager)


def broken(failures: int) -> Any:
    """A session whose store refuses to be written to so many times, after it took half of the items."""
    from agents import SQLiteSession

    class Broken(SQLiteSession):
        left = 0

        async def add_items(self, items: list[Any]) -> None:
            self.left -= 1
            await super().add_items(items if self.left < 0 else items[: len(items) // 2])
            if self.left >= 0:
                raise OSError("the disk is full")

    session = Broken("chat")
    items = chat("utrtrtra" * 30, dialect="openai-responses")
    asyncio.run(session.add_items(items))
    session.left = failures
    return session, items


def test_a_store_that_cannot_be_rewritten_is_as_it_was() -> None:
    """The run goes on with the whole list, or ends with the store's error by policy; what is lost is always said."""
    from compact.adapters.agents_sdk import CompactSession

    manager, _, recorder = managed()
    session, items = broken(1)
    assert items == asyncio.run(CompactSession(session, manager).get_items())
    assert items == asyncio.run(session.get_items())
    assert "sent_unchanged" in {event.data["code"] for event in recorder["warning"]}
    assert len(asyncio.run(CompactSession(session, manager).get_items())) < 30  # and the next run tries again
    session, items = broken(1)
    with pytest.raises(OSError, match="full"):
        asyncio.run(CompactSession(session, manager, "b", on_error="raise").get_items())
    assert items == asyncio.run(session.get_items())
    session, _ = broken(2)
    with pytest.raises(OSError, match="full"):
        asyncio.run(CompactSession(session, manager, "c").get_items())


def test_nothing_that_is_added_meanwhile_is_lost() -> None:
    """Neither by the same process, which waits, nor by another one, which makes the rewriting wait for the next run."""
    from agents import SQLiteSession

    from compact.adapters.agents_sdk import CompactSession

    class Slow(SQLiteSession):
        clearing = asyncio.Event()

        async def clear_session(self) -> None:
            self.clearing.set()
            await super().clear_session()
            await asyncio.sleep(0.05)

    async def use() -> None:
        manager, summarizer, _ = managed()
        items = chat("utrtrtra" * 20, dialect="openai-responses")
        late, later = {"role": "user", "content": "late"}, {"role": "user", "content": "later"}
        inside = Slow("chat")
        session = CompactSession(inside, manager)
        await session.add_items(items)
        reading = asyncio.create_task(session.get_items())
        await inside.clearing.wait()
        await CompactSession(inside, manager).add_items([late])  # another object, the same store
        assert [*await reading, late] == await inside.get_items()

        async def summarize(ask: Any) -> str:
            await elsewhere.add_items([later])
            return summarizer(ask)

        elsewhere = Slow("other")
        await elsewhere.add_items(items)
        another = CompactManager(manager.config, summarizer=summarize)
        assert later not in await CompactSession(elsewhere, another).get_items()
        assert [*items, later] == await elsewhere.get_items()
        stored = await CompactSession(elsewhere, another).get_items()
        assert (later, True) == (stored[-1], len(stored) < len(items))
        assert stored == await elsewhere.get_items()
        assert 1 == len(another.session("other").folds)

    asyncio.run(use())


@pytest.mark.parametrize("folder", ["filter", "session"])
def test_a_process_that_dies_while_it_rewrites_loses_nothing(folder: str) -> None:
    """The archive has what was in the store, whoever made the fold."""
    from agents import SQLiteSession

    from compact.adapters.agents_sdk import CompactFilter, CompactSession

    class Died(BaseException):
        """Nobody handles the end of a process."""

    class Dying(SQLiteSession):
        async def clear_session(self) -> None:
            await super().clear_session()
            raise Died

    manager, _, _ = managed()
    items = chat("utrtrtra" * 20, dialect="openai-responses")
    if folder == "filter":
        given_to(CompactFilter(manager, "chat"), items)
        items = [*items, {"role": "user", "content": "after the fold"}]
    session = Dying("chat")
    asyncio.run(session.add_items(items))
    with pytest.raises(Died):
        asyncio.run(CompactSession(session, manager).get_items())
    assert [] == asyncio.run(session.get_items())
    another, _, _ = managed()
    assert items == another.restore("chat")


# -- few lines ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("S29")
def test_the_hook_of_the_specification() -> None:
    """Two lines with any object that has a session id and messages; the ready hook does the same."""
    manager, _, _ = managed()

    def two_lines(ctx: Any) -> None:
        ctx.messages = manager.preflight(ctx.session_id, ctx.messages)

    play = story()
    received = []
    for hook, name in ((two_lines, "one"), (before_model_call(manager), "two")):
        messages: list[Any] = [{"role": "user", "content": play.rounds[0].user}]
        for step in play.steps:
            ctx = SimpleNamespace(session_id=name, messages=list(messages))
            hook(ctx)
            received.append(ctx.messages)
            assert [] == problems("openai-responses", ctx.messages)
            for call in step.calls:
                arguments = json.dumps(call.arguments)
                messages.append(
                    {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}
                )
            for call in step.calls:
                output = play.result(call.name, call.arguments)
                messages.append({"type": "function_call_output", "call_id": call.id, "output": output})
        assert len(manager.session(name).folds) >= 3
    assert received[: len(play.steps)] == received[len(play.steps) :]


@pytest.mark.spec("S30")
def test_fewer_than_ten_lines_enable_it() -> None:
    """The lines of the smallest example that would not be there without it."""
    lines = (EXAMPLES / "agents_sdk_minimal.py").read_text().splitlines()
    ours = [line for line in lines if any(word in line for word in ("compact", "Compact", "manager"))]
    assert 3 <= len([line for line in ours if not line.startswith(('"', "print"))]) < 10


@pytest.mark.spec("S44")
def test_the_folds_of_the_coding_session_arrive_at_ariadne(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a server that listens, every fold is there with its summary."""
    with StandIn() as server:
        monkeypatch.setenv("ARIADNE_URL", server.url)
        runpy.run_path(str(EXAMPLES / "coding_session.py"))
        assert {200} == set(server.answers)
        created = server.spans("compact.summary_created")
        assert f" {len(created)} folds" in capsys.readouterr().out
        assert all(span["data"]["output"] for span in created)
