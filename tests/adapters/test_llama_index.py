"""LlamaIndex's own agents and chat engines, unmodified, with its own fake model: `compact.adapters.llama_index`."""

from __future__ import annotations

import asyncio
import copy
import io
import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from agent_story import SYSTEM, TOOLS, Play, Round, Step, judge, managed, story
from provider_rules import problems

from compact import CompactConfig, CompactManager, InsufficientBudget
from compact.errors import ConfigError
from compact.testing import Recorder

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

Answer = Callable[..., Any]


def model(answer: Answer, *, prompt_tokens: int = 0, **settings: Any) -> Any:
    """The framework's fake model with a name, which reports usage like a provider: streams say it once, at the end."""
    from llama_index.core.llms import LLMMetadata
    from llama_index.core.llms.mock import MockFunctionCallingLLM

    raw = {"usage": {"prompt_tokens": prompt_tokens}} if prompt_tokens else None

    class Fake(MockFunctionCallingLLM):
        max_tokens: int | None = None

        @property
        def metadata(self) -> Any:
            return LLMMetadata(is_function_calling_model=True, is_chat_model=True, model_name="gpt-4o")

        def chat(self, messages: Any, **kwargs: Any) -> Any:
            response = super().chat(messages, **kwargs)
            response.raw = raw
            return response

        def stream_chat(self, messages: Any, **kwargs: Any) -> Any:
            stream = super().stream_chat(messages, **kwargs)

            def parts() -> Any:
                for response in stream:
                    yield response
                    yield response.model_copy(update={"raw": raw})

            return parts()

        async def astream_chat(self, messages: Any, **kwargs: Any) -> Any:
            stream = self.stream_chat(messages, **kwargs)

            async def parts() -> Any:
                for response in stream:
                    yield response

            return parts()

    return Fake(response_generator=answer, is_chat_model=True, **settings)


def as_sent(message: Any) -> dict[str, Any]:
    """A message as the integration of OpenAI sends it: whatever is in `additional_kwargs` goes along."""
    sent = {"role": message.role.value, "content": message.content, **message.additional_kwargs}
    calls = [block for block in message.blocks if block.block_type == "tool_call"]
    if calls:
        sent["tool_calls"] = [
            {
                "id": call.tool_call_id,
                "type": "function",
                "function": {"name": call.tool_name, "arguments": json.dumps(call.tool_kwargs)},
            }
            for call in calls
        ]
    return sent


def plays(play: Play, seen: list[list[Any]] | None = None) -> Answer:
    """The model's side of a play: thoughts, words and calls as blocks."""
    from llama_index.core.base.llms.types import ChatMessage, TextBlock, ThinkingBlock, ToolCallBlock

    def answer(messages: Sequence[Any], **kwargs: Any) -> Any:
        if seen is not None:
            seen.append(list(messages))
        step = play.answer("openai-chat", [as_sent(message) for message in messages])
        blocks: list[Any] = [ThinkingBlock(content=step.reasoning)] if step.reasoning else []
        blocks += [TextBlock(text=step.text)] if step.text else []
        blocks += [ToolCallBlock(tool_call_id=c.id, tool_name=c.name, tool_kwargs=c.arguments) for c in step.calls]
        return ChatMessage(role="assistant", blocks=blocks)

    return answer


def tools(play: Play) -> list[Any]:
    """The tools of the story."""
    from llama_index.core.tools import FunctionTool

    def read_file(path: str) -> str:
        return play.result("read_file", {"path": path})

    def run(command: str) -> str:
        return play.result("run", {"command": command})

    def search(query: str) -> str:
        return play.result("search", {"query": query})

    named = {"read_file": read_file, "run": run, "search": search}
    return [FunctionTool.from_defaults(named[name], description=f"{TOOLS[name]}") for name in TOOLS]


def talk(size: int, words: int = 200) -> Play:
    """A conversation without tools."""
    said = [f"Question {k}: " + " ".join(f"word{k}x{n}" for n in range(words // 4)) for k in range(size)]
    return Play([Round(text, (Step(f"Answer {k}: ticket AB-{k} is open."),)) for k, text in enumerate(said)], {})


def texts(messages: Sequence[Any]) -> list[str]:
    return [message.content or "" for message in messages]


def says(text: str) -> Answer:
    """A model that always says the same."""
    from llama_index.core.llms import ChatMessage

    return lambda messages, **kwargs: ChatMessage(role="assistant", content=text)


# -- whole runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [False, True])
def test_sixty_calls_of_an_agent_stay_inside_the_window(streaming: bool) -> None:
    """The steps of a run are compacted too, each fold asks once, and the memory loses nothing."""
    from llama_index.core.agent.workflow import FunctionAgent

    from compact.adapters.llama_index import CompactMemory, compacting

    play, seen = story(20 if streaming else 60), list[list[Any]]()
    manager, summarizer, _ = managed()
    memory = CompactMemory(manager, "s")
    llm = compacting(model(plays(play, seen)), memory)
    agent = FunctionAgent(llm=llm, tools=tools(play), system_prompt=SYSTEM, streaming=streaming)

    async def main() -> None:
        for part in play.rounds:
            await agent.run(user_msg=part.user, memory=memory, max_iterations=100)

    asyncio.run(main())
    judge(play, manager, "s", folds=1 if streaming else 3, asked=len(summarizer.asks))
    assert {"user"} == {request.messages[1]["role"] for request in play.received}  # as Anthropic and Gemini want it
    kept = memory.get_all()
    assert [part.user for part in play.rounds] == [m.content for m in kept if m.role == "user"]
    assert [step.text for step in play.steps] == [m.content or "" for m in kept if m.role == "assistant"]
    answered = sorted(m.additional_kwargs["tool_call_id"] for m in kept if m.role == "tool")
    assert sorted(call.id for step in play.steps for call in step.calls) == answered
    # Between two folds a request begins as the one before, and all but the summaries are the memory's own objects.
    assert len(manager.session("s").folds) >= sum(one != other[: len(one)] for one, other in pairwise(seen))
    own = {id(message) for message in kept}
    written = {message.content for request in seen for message in request[1:] if id(message) not in own}
    assert len(manager.session("s").folds) == len(written)
    assert all(text.startswith("<COMPACT-SUMMARY") for text in written)


def test_an_agent_that_reasons_in_text() -> None:
    """ReActAgent sends its steps as words, and puts one long message into its memory at the end of a run."""
    from llama_index.core.agent.workflow import ReActAgent
    from llama_index.core.llms import ChatMessage

    from compact.adapters.llama_index import CompactMemory, compacting

    play = story(calls=36)

    def answer(messages: Sequence[Any], **kwargs: Any) -> Any:
        step = play.answer("openai-chat", [as_sent(message) for message in messages])
        thought = f"Thought: {step.reasoning or 'On we go.'}\n"
        if not step.calls:
            return ChatMessage(role="assistant", content=f"{thought}Answer: {step.text}")
        call = step.calls[0]
        action = f"Action: {call.name}\nAction Input: {json.dumps(call.arguments)}"
        return ChatMessage(role="assistant", content=thought + action)

    manager, summarizer, _ = managed(window=4_000)
    memory = CompactMemory(manager, "s")
    agent = ReActAgent(llm=compacting(model(answer), memory), tools=tools(play), system_prompt=SYSTEM)

    async def main() -> None:
        for part in play.rounds:
            await agent.run(user_msg=part.user, memory=memory, max_iterations=100)

    asyncio.run(main())
    judge(play, manager, "s", folds=2, asked=len(summarizer.asks))
    assert 2 * len(play.rounds) == len(memory.get_all())


def test_a_chat_engine_needs_only_the_memory() -> None:
    """What it gives is a compacted view; what it holds is everything. Sync, async and streams."""
    from llama_index.core.chat_engine import SimpleChatEngine

    from compact.adapters.llama_index import CompactMemory

    play = talk(60)
    manager, summarizer, _ = managed(window=3_000)
    memory = CompactMemory(manager, "s")
    engine = SimpleChatEngine(llm=model(plays(play)), memory=memory, prefix_messages=[])

    async def main() -> None:
        for part in play.rounds[40:]:
            await engine.achat(part.user)

    for part in play.rounds[:20]:
        engine.chat(part.user)
    for part in play.rounds[20:40]:
        list(engine.stream_chat(part.user).response_gen)
    asyncio.run(main())
    judge(play, manager, "s", folds=3, asked=len(summarizer.asks))
    assert [part.user for part in play.rounds] == [m.content for m in memory.get_all() if m.role == "user"]


def test_what_an_engine_puts_before_its_memory_counts() -> None:
    """With a model that compacts, the lists are within the window with it."""
    from llama_index.core.chat_engine import SimpleChatEngine
    from llama_index.core.llms import ChatMessage

    from compact.adapters.llama_index import CompactMemory, compacting

    play = talk(20)
    manager, summarizer, _ = managed(window=3_000)
    memory = CompactMemory(manager, "s")
    before = [ChatMessage(role="system", content="word " * 1_000)]
    engine = SimpleChatEngine(llm=compacting(model(plays(play)), memory), memory=memory, prefix_messages=before)
    for part in play.rounds:
        engine.chat(part.user)
    judge(play, manager, "s", folds=1, asked=len(summarizer.asks))


# -- messages ----------------------------------------------------------------------------------------------------------


def every_kind() -> list[Any]:
    """A message of each kind that the framework has."""
    from llama_index.core.base.llms import types as li

    png = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    cached = li.CachePoint(cache_control={"type": "ephemeral"})
    thought = li.ThinkingBlock(content="hm", num_tokens=7, additional_information={"signature": "abc="})
    return [
        *(li.ChatMessage(role=role, content=f"said by {role}") for role in li.MessageRole if role != "tool"),
        li.ChatMessage(role="user", blocks=[]),
        li.ChatMessage(role="user", blocks=[li.TextBlock(text="one"), li.TextBlock(text="two")]),
        li.ChatMessage(role="user", blocks=[li.TextBlock(text="see"), li.ImageBlock(image=png, detail="low")]),
        li.ChatMessage(role="user", blocks=[li.ImageBlock(url="https://example.org/a.png")]),
        li.ChatMessage(role="user", blocks=[li.AudioBlock(audio=png), li.VideoBlock(video=png)]),
        li.ChatMessage(role="user", blocks=[li.DocumentBlock(data=png, title="Plan"), cached]),
        li.ChatMessage(role="user", blocks=[li.CitableBlock(title="T", source="S", content="quoted")]),
        li.ChatMessage(role="user", content="pinned", additional_kwargs={"protected": True, "name": "ann"}),
        li.ChatMessage(
            role="assistant",
            blocks=[
                thought,
                li.TextBlock(text="so"),
                li.ToolCallBlock(tool_call_id="a", tool_name="f", tool_kwargs={"x": [1, None]}),
                thought,
                li.ToolCallBlock(tool_call_id="b", tool_name="g", tool_kwargs='{"x":1}'),
            ],
        ),
        li.ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [call], "session_id": "z"}),
        li.ChatMessage(role="tool", content="done", additional_kwargs={"tool_call_id": "a", "is_error": False}),
        li.ChatMessage(role="tool", blocks=[li.ImageBlock(image=png)], additional_kwargs={"tool_call_id": "b"}),
    ]


def test_every_kind_of_message_is_read_and_written_without_loss() -> None:
    """Through the archive's form and back, it is equal and reads the same; a file is read, not lost."""
    from llama_index.core.base.llms.types import ChatMessage, ImageBlock

    from compact.adapters._llama_index_messages import read, write

    for message in every_kind():
        (wire,) = read(message)
        back = write([json.loads(json.dumps(wire))], None)
        assert (message, [wire]) == (back, read(back))
    one, other = (read(ChatMessage(blocks=[ImageBlock(image=io.BytesIO(data))])) for data in (b"\xff1", b"\xff2"))
    assert one != other
    assert b"\xff1" == write(one, None).blocks[0].resolve_image().read()
    # A file is left as it was, and one that cannot be read is no reason to fail.
    file = io.BytesIO(b"\xff1")
    message = ChatMessage(blocks=[ImageBlock(image=b"")])
    message.blocks[0].image = file
    file.seek(1)
    read(message)
    assert 1 == file.tell()
    file.close()
    assert "user" == read(message)[0]["role"]


def test_tool_calls_are_read_wherever_an_integration_puts_them() -> None:
    """As blocks, or beside the text in the shapes of several providers, once when they are in both."""
    from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
    from llama_index.core.tools import ToolSelection
    from openai.types.chat import ChatCompletionMessageToolCall

    from compact.adapters._llama_index_messages import read

    of_openai = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
    block = ToolCallBlock(tool_call_id="c1", tool_name="look", tool_kwargs={"a": 1})
    shapes: list[Any] = [
        of_openai,
        ChatCompletionMessageToolCall.model_validate(of_openai),
        {"id": "c1", "type": "tool_use", "name": "look", "input": {"a": 1}},
        {"id": "fc_9", "call_id": "c1", "type": "function_call", "name": "look", "arguments": '{"a": 1}'},
        {"toolUseId": "c1", "name": "look", "input": {"a": 1}},
        ToolSelection(tool_id="c1", tool_name="look", tool_kwargs={"a": 1}),
    ]
    for message in (
        *(ChatMessage(role="assistant", additional_kwargs={"tool_calls": [shape]}) for shape in shapes),
        ChatMessage(role="assistant", blocks=[block]),
        ChatMessage(role="assistant", blocks=[block], additional_kwargs={"tool_calls": [of_openai]}),
    ):
        assert [of_openai] == read(message)[0]["tool_calls"]
    # Without ids a call goes by its name, and so does its result.
    nameless = {"function": {"name": "look", "arguments": {"a": 1}}}
    (wire,) = read(ChatMessage(role="assistant", additional_kwargs={"tool_calls": [nameless]}))
    (result,) = read(ChatMessage(role="function", content="x", additional_kwargs={"name": "look"}))
    assert ("look", "look") == (wire["tool_calls"][0]["id"], result["tool_call_id"])


def test_a_pinned_message_stays_and_its_mark_is_not_sent() -> None:
    """By the model and by the memory's view; the memory itself keeps the mark."""
    from llama_index.core.llms import ChatMessage

    from compact.adapters.llama_index import CompactMemory, compacting

    for whole in (True, False):
        play = talk(20)
        manager, _, _ = managed(window=2_000)
        memory = CompactMemory(manager, "s")
        llm = compacting(model(plays(play)), memory) if whole else model(plays(play))
        memory.put(ChatMessage(content="Keep this.", additional_kwargs={"protected": True}))
        for part in play.rounds:
            memory.put(ChatMessage(content=part.user))
            memory.put(llm.chat(memory.get()).message)
        judge(play, manager, "s", folds=1)
        pinned = {"role": "user", "content": "Keep this."}
        assert all(pinned in request.messages for request in play.received)
        assert {"protected": True} == memory.get_all()[0].additional_kwargs


def test_a_kept_answer_that_comes_first_stays_an_answer() -> None:
    """Only a summary of ours changes its role; before another there is a word of the user's."""
    from llama_index.core.llms import ChatMessage

    from compact.adapters.llama_index import compacting

    play = talk(20)
    manager, _, _ = managed(window=1_500)
    llm = compacting(model(plays(play)), manager, "s")
    pinned = ChatMessage(role="assistant", content="The code is 4711.", additional_kwargs={"protected": True})
    history = [ChatMessage(content="What is the code?"), pinned]
    for part in play.rounds:
        history.append(ChatMessage(content=part.user))
        history.append(llm.chat(history).message)
    judge(play, manager, "s", folds=1)
    first, second = play.received[-1].messages[:2]
    assert ("user", {"role": "assistant", "content": "The code is 4711."}) == (first["role"], second)


# -- what else passes --------------------------------------------------------------------------------------------------


def test_tools_model_and_output_limit_reach_the_meter() -> None:
    """Whatever shape an integration gives the tools, and whether the limit is the model's or the call's."""
    from llama_index.core.llms import ChatMessage

    from compact.adapters.llama_index import compacting

    manager, _, recorder = managed(window=8_000)
    play = story()
    llm = compacting(model(says("Yes."), max_tokens=500), manager, "s")
    asked = [ChatMessage(role="system", content=SYSTEM), ChatMessage(content="Well?")]
    of_openai = [tool.metadata.to_openai_tool() for tool in tools(play)]
    of_anthropic = [{"input_schema": t["function"]["parameters"], **t["function"]} for t in of_openai]
    llm.chat(asked[1:])
    llm.chat(asked)
    llm.chat_with_tools(tools(play), chat_history=asked)
    llm.chat(asked, tools=of_openai)
    llm.chat(asked, tools=of_anthropic, max_tokens=1_000)
    events = [event.data for event in recorder["token_estimate"]]
    assert {"gpt-4o"} == {event["model"] for event in events}
    bare, *instructed = (event["breakdown"]["system"] for event in events)
    assert (True, 1) == (bare < 5 < 15 < instructed[0] < 25, len(set(instructed)))
    none, without, *tooled = (event["breakdown"]["tools_schema"] for event in events)
    assert (0, 0, 1) == (none, without, len(set(tooled)))
    assert tooled[0] > 50
    budgets = [event.data["budget"] for event in recorder["trigger_decision"]]
    assert [8_000 - 200 - 500] * 4 + [8_000 - 200 - 1_000] == budgets


def test_tools_of_another_provider_do_not_change_how_messages_are_read() -> None:
    """Seen first with plain words, they would make everything look like that provider's: a result could not be cut."""
    from llama_index.core.base.llms.types import ChatMessage, ThinkingBlock

    from compact.adapters.llama_index import compacting

    received: list[Any] = []

    def listens(messages: Any, **kwargs: Any) -> Any:
        received[:] = map(as_sent, messages)
        return says("Yes.")(messages)

    manager, _, recorder = managed()
    llm = compacting(model(listens), manager, "s")
    of_anthropic = [{"name": "run", "description": "Run it.", "input_schema": {"type": "object", "properties": {}}}]
    call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    step = ChatMessage(role="assistant", additional_kwargs={"tool_calls": [call]})
    result = ChatMessage(role="tool", content="x " * 9_000, additional_kwargs={"tool_call_id": "c"})
    asked = [ChatMessage(content="Well?")]
    llm.chat(asked, tools=of_anthropic)
    llm.chat([*asked, step, result], tools=of_anthropic)
    assert [] == problems("openai-chat", received)
    assert ("c", True) == (received[-1]["tool_call_id"], len(received[-1]["content"]) < 18_000)
    # And thoughts count, though they are never summarized.
    thought = ChatMessage(role="assistant", blocks=[ThinkingBlock(content="hm " * 500)])
    llm.chat([*asked, thought, *asked])
    assert recorder["token_estimate"][-1].data["t_est"] > 500


def test_what_the_provider_counted_calibrates_the_meter() -> None:
    """However the model is called."""
    from llama_index.core.llms import ChatMessage

    from compact.adapters.llama_index import compacting

    asked = [ChatMessage(content="word " * 1_000)]

    async def stream(llm: Any) -> None:
        async for _ in await llm.astream_chat(asked):
            pass

    ways: list[Callable[[Any], Any]] = [
        lambda llm: llm.chat(asked),
        lambda llm: asyncio.run(llm.achat(asked)),
        lambda llm: list(llm.stream_chat(asked)),
        lambda llm: asyncio.run(stream(llm)),
    ]
    for way in ways:
        manager, _, recorder = managed()
        llm = compacting(model(says("Yes."), prompt_tokens=1_300), manager, "s")
        way(llm)
        way(llm)
        first, second = (event.data["t_est"] for event in recorder["token_estimate"])
        assert first < 1_100
        assert abs(second - 1_300) < 10


def test_an_engine_that_changes_its_instructions_does_not_pay_again() -> None:
    """A chat engine writes what it found into the system message of each call; of several agents some have none."""
    from llama_index.core.llms import ChatMessage

    from compact.adapters.llama_index import compacting

    play = talk(40)
    manager, summarizer, _ = managed(window=3_000)
    llm = compacting(model(plays(play)), manager, "s")
    history: list[Any] = []
    for number, part in enumerate(play.rounds):
        history.append(ChatMessage(content=part.user))
        found = [ChatMessage(role="system", content=f"Found {number}: " + "a page about it. " * 20)] * (number % 3 > 0)
        history.append(llm.chat([*found, *history]).message)
        sent = [message["content"] for message in play.received[-1].messages if message["role"] == "system"]
        assert texts(found) == sent
    judge(play, manager, "s", folds=2, asked=len(summarizer.asks))
    assert len(summarizer.asks) < 5


@pytest.mark.parametrize("whole", [True, False])
def test_what_cannot_be_compacted_is_sent_or_raises(whole: bool) -> None:
    """A policy of the memory, or of the model."""
    from llama_index.core.llms import ChatMessage

    from compact.adapters.llama_index import CompactMemory, compacting

    recorder = Recorder()
    config = CompactConfig(max_context_tokens=2_000, policy={"hard_cap_buffer": 100}, storage={"adapter": "none"})
    manager = CompactManager(config, sinks=[recorder])
    pinned = ChatMessage(content="word " * 3_000, additional_kwargs={"protected": True})
    for on_error in ("unchanged", "raise"):
        memory = CompactMemory(manager, "s", on_error)
        memory.put(pinned)
        memory.put(ChatMessage(content="Go."))
        llm = compacting(model(says("Yes.")), memory) if whole else model(says("Yes."))
        if on_error == "raise":
            with pytest.raises(InsufficientBudget):
                asyncio.run(llm.achat(asyncio.run(memory.aget())))
        else:
            assert "Yes." == llm.chat(memory.get()).message.content
            assert ["sent_unchanged"] == [event.data["code"] for event in recorder["warning"]]
    with pytest.raises(ConfigError, match="on_error"):
        compacting(model(says("Yes.")), manager, on_error="never")  # type: ignore[arg-type]


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_a_conversation_has_its_name_and_others_of_the_model_stand_beside_it() -> None:
    """By text, function, or the framework's tag; an agent inside a tool shares the model, not the session."""
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
    from llama_index.core.instrumentation.dispatcher import instrument_tags
    from llama_index.core.tools import FunctionTool

    from compact.adapters.llama_index import CompactMemory, compacting

    manager, _, recorder = managed()

    def names() -> list[str]:
        found = list(dict.fromkeys(event.session_id for event in recorder.events))
        recorder.events.clear()
        return found

    def answer(messages: Sequence[Any], **kwargs: Any) -> Any:
        if messages[-1].content == "Go.":
            called = ToolCallBlock(tool_call_id="c", tool_name="helper", tool_kwargs={"task": "count"})
            return ChatMessage(role="assistant", blocks=[called])
        return ChatMessage(role="assistant", content="Done.")

    memory = CompactMemory(manager, "main")
    llm = compacting(model(answer), memory)

    async def helper(task: str) -> str:
        return str(await FunctionAgent(llm=llm, tools=[]).run(user_msg=task))

    async def main() -> None:
        llm.chat([ChatMessage(content="Hello.")])
        agent = FunctionAgent(llm=llm, tools=[FunctionTool.from_defaults(async_fn=helper)])
        names()
        await agent.run(user_msg="Go.", memory=memory)

    async def tagged(llm: Any) -> None:
        with instrument_tags({"session_id": "tagged"}):
            await FunctionAgent(llm=llm, tools=[]).run(user_msg="Go.")

    memory.put(ChatMessage(content="Before."))
    memory.get()
    asyncio.run(main())
    main_name, beside = names()
    assert ("main", True) == (main_name, beside.startswith("main."))
    asyncio.run(tagged(compacting(model(says("Yes.")), manager)))
    assert ["tagged"] == names()
    compacting(model(says("Yes.")), manager, lambda messages: messages[0].content).chat([ChatMessage(content="named")])
    assert ["named"] == names()
    for _ in range(2):
        compacting(model(says("Yes.")), manager).chat([ChatMessage(content="Go.")])
    assert 2 == len([name for name in names() if name.startswith("llama-index-")])


def test_the_model_is_the_same_but_for_what_it_sends() -> None:
    """Its class and its state, both ways; its spans, no more of them; it can be copied."""
    from llama_index.core.instrumentation import get_dispatcher
    from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
    from llama_index.core.llms import ChatMessage

    from compact.adapters.llama_index import compacting

    plain = model(says("Yes."))
    llm = compacting(plain, managed()[0], "s")
    assert (True, plain.to_dict()) == (isinstance(llm, type(plain)), llm.to_dict())
    llm.max_tokens = 100
    plain.response_generator = says("No.")
    assert (100, "No.") == (plain.max_tokens, llm.chat([ChatMessage(content="Go.")]).message.content)
    for other in (copy.deepcopy(llm), llm.model_copy()):
        other.response_generator = says("Other.")
        assert "Other." == other.chat([ChatMessage(content="Go.")]).message.content
    assert "No." == llm.chat([ChatMessage(content="Go.")]).message.content
    spans = {name: SimpleSpanHandler() for name in ("plain", "ours")}
    for each, handler in zip((plain, llm), spans.values(), strict=True):
        get_dispatcher().add_span_handler(handler)
        each.chat([ChatMessage(content="Go.")])
        get_dispatcher().span_handlers.remove(handler)
    names = {name: [span.id_.partition("-")[0] for span in each.completed_spans] for name, each in spans.items()}
    assert names["plain"] == names["ours"]


def test_a_memory_does_what_the_framework_expects_of_one() -> None:
    """Put, set, reset, both ways; a store of one's own; and out of a dict again, where the manager is given anew."""
    from llama_index.core.llms import ChatMessage
    from llama_index.core.storage.chat_store import SimpleChatStore

    from compact.adapters.llama_index import CompactMemory

    manager, _, _ = managed()
    store = SimpleChatStore()
    one, two = ChatMessage(content="one"), ChatMessage(role="assistant", content="two")
    memory = CompactMemory.from_defaults([one], manager=manager, session_id="s", chat_store=store)
    memory.put(two)
    assert [one, two] == memory.get() == store.get_messages("s") == asyncio.run(memory.aget(input="one"))
    asyncio.run(memory.aset([two]))
    asyncio.run(memory.aput_messages([one]))
    assert [two, one] == asyncio.run(memory.aget_all())
    memory.reset()
    assert [] == memory.get() == asyncio.run(memory.aget())
    assert CompactMemory(manager).chat_store_key != CompactMemory(manager).chat_store_key
    written = {**memory.to_dict(), "chat_store": {"store": {"s": [one.model_dump()]}, "class_name": "SimpleChatStore"}}
    assert [one] == CompactMemory.from_dict(written, manager=manager).get()
    with pytest.raises(ConfigError, match=r"from_dict\(data, manager="):
        CompactMemory.from_dict(written).get()
    assert [one] == CompactMemory.from_dict({**written, "whole": True}).get()
