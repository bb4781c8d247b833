"""LangChain and LangGraph: what the model of a real `create_agent` received, and what its state holds afterwards.

Owns: the proof that the middleware compacts each request once, ephemeral and persistent, without loss.
Must never: reach a network, or patch LangChain.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest
from agent_story import SYSTEM, TOOLS, Play, Step, judge, managed, story

from compact import InsufficientBudget

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

Answer = Callable[[list[Any], list[Any]], Any]
THREAD = {"configurable": {"thread_id": "afternoon"}}


@pytest.fixture(autouse=True)
def _untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.setenv(name, "false")


def fake(answer: Answer, **fields: Any) -> Any:
    """A chat model that answers what `answer` says to the messages and tools it was sent."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessageChunk
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
    from langchain_core.utils.function_calling import convert_to_openai_tool

    class Fake(BaseChatModel):
        model_name: str = "gpt-4o"
        max_tokens: int | None = None
        _llm_type = "fake"

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

        def _generate(self, messages: Any, *_: Any, tools: Any = (), **__: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=answer(messages, list(tools)))])

        def _stream(self, messages: Any, *_: Any, tools: Any = (), **__: Any) -> Any:
            said = answer(messages, list(tools))
            calls = [
                {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": at}
                for at, call in enumerate(said.tool_calls)
            ]
            yield ChatGenerationChunk(message=AIMessageChunk(said.content, tool_call_chunks=calls))

    return Fake(**fields)


def said(step: Step) -> Any:
    """A step as Claude says it through LangChain: blocks as soon as it thought, with its calls among them."""
    from langchain_core.messages import AIMessage

    calls = [{"id": call.id, "name": call.name, "args": call.arguments} for call in step.calls]
    if not step.reasoning:
        return AIMessage(step.text, tool_calls=calls)
    content: list[Any] = [{"type": "thinking", "thinking": step.reasoning, "signature": "c2lnbmVk"}]
    content += [{"type": "text", "text": step.text}] if step.text else []
    content += [{"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]} for call in calls]
    return AIMessage(content, tool_calls=calls)


def tools_of(play: Play) -> list[Any]:
    """The tools of the story."""
    from langchain_core.tools import StructuredTool

    def tool(name: str) -> Any:
        def run(**arguments: Any) -> str:
            return play.result(name, arguments)

        properties = {key: {"type": "string", "description": about} for key, about in TOOLS[name].items()}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        return StructuredTool(name=name, description=f"Use {name}.", args_schema=schema, func=run)

    return [tool(name) for name in TOOLS]


def agent_for(play: Play, middleware: Sequence[Any], checkpointer: Any = None) -> Any:
    """An agent that plays the story."""
    from langchain.agents import create_agent
    from langchain_core.messages import convert_to_openai_messages

    def answer(messages: list[Any], tools: list[Any]) -> Any:
        return said(play.answer("openai-chat", convert_to_openai_messages(messages), tools))

    return create_agent(
        fake(answer), tools_of(play), system_prompt=SYSTEM, middleware=middleware, checkpointer=checkpointer
    )


def played(play: Play, middleware: Sequence[Any], how: str = "invoke") -> list[Any]:
    """Play the story; gives back the messages of the thread."""
    from langchain_core.messages import HumanMessage
    from langgraph.checkpoint.memory import InMemorySaver

    agent = agent_for(play, middleware, InMemorySaver())
    for part in play.rounds:
        wish = {"messages": [HumanMessage(part.user)]}
        if how == "invoke":
            agent.invoke(wish, THREAD)
        elif how == "ainvoke":
            asyncio.run(agent.ainvoke(wish, THREAD))
        else:
            list(agent.stream(wish, THREAD, stream_mode="messages"))
    return list(agent.get_state(THREAD).values["messages"])


def once(middleware: Any, messages: Sequence[Any], config: Any = None, **run: Any) -> tuple[list[Any], list[Any]]:
    """One model call of an agent with this history: what the model received, and what the state holds afterwards."""
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage

    received: list[Any] = []

    def answer(messages: list[Any], _: list[Any]) -> Any:
        received.extend(messages)
        return AIMessage("done")

    agent = create_agent(fake(answer), middleware=[middleware])
    return received, agent.invoke({"messages": list(messages)}, config, **run)["messages"]


def talk(turns: int, *, words: int = 150) -> list[Any]:
    """A conversation of so many turns."""
    from langchain_core.messages import AIMessage, HumanMessage

    text = " ".join(f"word{n}" for n in range(words))
    return [
        kind(f"{at}: {text}", id=f"{kind.__name__}{at}") for at in range(turns) for kind in (HumanMessage, AIMessage)
    ]


# -- the story -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "calls"), [("invoke", 60), ("ainvoke", 20), ("stream", 20)])
def test_the_story_is_sent_compacted_and_kept_whole(how: str, calls: int) -> None:
    """Every request is valid and fits, each fold is paid once, and the thread still has every message."""
    from compact.adapters.langchain import CompactMiddleware

    play, (manager, summarizer, _) = story(calls), managed()
    state = played(play, [CompactMiddleware(manager, on_error="raise")], how)
    judge(play, manager, "afternoon", folds=calls // 20, asked=len(summarizer.asks))
    assert len(play.rounds) + len(play.steps) + sum(len(step.calls) for step in play.steps) == len(state)
    assert all(1 == sum(raw["role"] == "system" for raw in request.messages) for request in play.received)


@pytest.mark.parametrize(("how", "calls"), [("invoke", 20), ("ainvoke", 60)])
def test_the_story_is_kept_compacted_and_archived_whole(how: str, calls: int) -> None:
    """The thread itself stays small, and what left it is in the archive, message by message."""
    from compact.adapters.langchain import CompactMiddleware

    play, (manager, summarizer, recorder) = story(calls), managed()
    state = played(play, [CompactMiddleware(manager, persistent=True, on_error="raise")], how)
    judge(play, manager, "afternoon", folds=calls // 20, asked=len(summarizer.asks))
    assert len(state) < 40
    assert len({message.id for message in state}) == len(state)
    archived = [manager.restore("afternoon", step=fold.step) for fold in manager.session("afternoon").folds]
    results = {raw["content"] for raws in archived for raw in raws if raw["role"] == "tool"}
    results |= {message.content for message in state if "tool" == message.type}
    assert set(play.results.values()) == results
    assert [] == recorder["warning"]


def test_a_state_is_written_only_when_it_changes() -> None:
    """Between folds nothing is written, kept messages keep their ids, and what is streamed has its usual shape."""
    from langchain_core.messages import HumanMessage

    from compact.adapters.langchain import CompactMiddleware

    play, (manager, summarizer, _) = story(calls=20, rounds=1), managed()
    agent = agent_for(play, [CompactMiddleware(manager, persistent=True, on_error="raise")])
    written, seen = 0, {"wish"}
    for update in agent.stream({"messages": [HumanMessage(play.rounds[0].user, id="wish")]}, THREAD):
        for node, change in update.items():
            if "CompactMiddleware.after_model" == node:
                written += change is not None
                kept = [one for one in (change or {"messages": ()})["messages"][1:] if not one.additional_kwargs]
                assert {message.id for message in kept} <= seen
            else:
                seen |= {message.id for message in change["messages"]}
    assert written == len(summarizer.asks) == len(manager.session("afternoon").folds) > 0
    ephemeral = agent_for(story(), [CompactMiddleware(manager)])
    assert {"__start__", "model", "tools", "__end__"} == set(ephemeral.get_graph().nodes)


def test_instructions_that_change_do_not_cost_a_fold() -> None:
    """A prompt that tells the time is new at every call; what was folded is not paid again."""
    from langchain.agents.middleware import dynamic_prompt

    from compact.adapters.langchain import CompactMiddleware

    hours = count()

    @dynamic_prompt
    def clock(_: Any) -> str:
        return f"{SYSTEM} It is {next(hours)} o'clock."

    play, (manager, summarizer, _) = story(calls=20), managed()
    played(play, [clock, CompactMiddleware(manager, on_error="raise")])
    judge(play, manager, "afternoon", folds=1, asked=len(summarizer.asks))
    assert len(summarizer.asks) < 3


# -- messages ------------------------------------------------------------------------------------------------------


def every_kind() -> list[Any]:
    """Messages with everything LangChain has a field for."""
    from langchain_core.messages import AIMessage, FunctionMessage, HumanMessage, SystemMessage, ToolMessage

    source = {"type": "base64", "media_type": "image/png", "data": "aWNvbg=="}
    call = {"name": "look", "args": {"at": ["Zürich", 1.5, None]}, "id": "c1", "type": "tool_call"}
    broken = {"name": "look", "args": '{"at": ', "id": "c2", "error": "cut off", "type": "invalid_tool_call"}
    return [
        SystemMessage("Be brief.", additional_kwargs={"__openai_role__": "developer"}, id="1"),
        HumanMessage("Look.", name="anna", id="2", response_metadata={"seen": True}),
        HumanMessage(["What is it?", {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}], id="3"),
        HumanMessage(
            [
                {"type": "text", "text": "And these?", "cache_control": {"type": "ephemeral"}},
                {"type": "image", "base64": "aWNvbg==", "mime_type": "image/png"},
                {"type": "image", "source": source},
                {"type": "audio", "base64": "aWNvbg==", "mime_type": "audio/wav"},
                {"type": "input_audio", "input_audio": {"data": "aWNvbg==", "format": "wav"}},
                {"type": "file", "base64": "aWNvbg==", "mime_type": "application/pdf"},
                {"type": "file", "file": {"file_id": "f1"}},
                {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
                {"type": "video", "base64": "aWNvbg==", "mime_type": "video/mp4"},
                {"type": "thinking", "thinking": "of somebody else"},
                {"type": "of next year", "value": 1},
                {"no": "type"},
            ],
            id="4",
        ),
        AIMessage(
            [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "c2ln"},
                {"type": "reasoning", "reasoning": "So."},
                {"type": "text", "text": "Looking.", "annotations": [{"type": "citation"}]},
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "icons"}},
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
                {"type": "tool_use", "id": "c1", "name": "look", "input": call["args"]},
            ],
            tool_calls=[call],
            invalid_tool_calls=[broken],
            id="5",
            response_metadata={"model_name": "claude", "stop_reason": "tool_use"},
            usage_metadata={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
        ),
        ToolMessage("An icon.", tool_call_id="c1", name="look", id="6", artifact={"pixels": [1, 2]}),
        ToolMessage([{"type": "text", "text": "no"}], tool_call_id="c2", status="error", id="7"),
        AIMessage("", additional_kwargs={"reasoning_content": "Hm.", "refusal": "I will not."}, id="8"),
        AIMessage("", additional_kwargs={"function_call": {"name": "old", "arguments": "{}"}}, id="9"),
        FunctionMessage("done", name="old", id="10"),
        HumanMessage("Remember this.", additional_kwargs={"protected": True}, id="11"),
    ]


def test_every_kind_of_message_crosses_without_loss() -> None:
    """What is read is a chat message, also out of an archive, and gives the same LangChain message again."""
    from compact._conversation.formats import FORMATS, detect
    from compact.adapters._langchain_messages import read, write

    chat = FORMATS["openai-chat"]
    wires = [wire for message in every_kind() for wire in read(message)]
    assert chat is detect(wires)
    assert [[], [], ["c1", "c2"]] == [[call.id for call in chat.read(wire).calls] for wire in wires[2:5]]
    assert "Looking.\n[block: " == chat.read(wires[4]).text[:17]
    assert "Zürich" not in chat.read(wires[4]).text
    assert '{"at": ["Zürich", 1.5, null]}' == chat.read(wires[4]).calls[0].arguments
    assert ("Hm.\nSo.", "Hm.") == (chat.read(wires[4]).hidden, chat.read(wires[7]).hidden)
    assert [False] * 10 + [True] == [chat.read(wire).pinned for wire in wires]
    archived = json.loads(json.dumps(wires))
    written = [write([wire], None) for wire in archived]
    assert every_kind() == written
    assert wires == [wire for message in written for wire in read(message)]


def test_a_shortened_result_stays_what_it_was() -> None:
    """Id, name, artifact and status stay when a result is cut, in this process and out of the archive."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    from compact.adapters.langchain import CompactMiddleware

    class Table:
        def __bool__(self) -> bool:
            raise ValueError("neither true nor false")

    artifact = Table()
    result = ToolMessage(
        [{"type": "text", "text": "word " * 9_000}], tool_call_id="c1", name="look", artifact=artifact, status="error"
    )
    calls = [{"id": "c1", "name": "look", "args": {}}]
    given = [
        HumanMessage("Look.", id="1"),
        AIMessage("", tool_calls=calls, id="2"),
        result.model_copy(update={"id": "3"}),
    ]
    for archived in (False, True):
        manager, _, _ = managed()
        received, state = once(CompactMiddleware(manager, "icons", on_error="raise"), given)
        assert archived or artifact is received[2].artifact
        assert ["1", "2", "3"] == [message.id for message in received]
        assert ("look", "error", "c1") == (received[2].name, received[2].status, received[2].tool_call_id)
        assert len(received[2].content[0]["text"]) < 30_000
        assert given[2] is state[2]
    assert 1 == len(manager.session("icons").folds)


def handed_on(middleware: Any, request: Any) -> Any:
    """The request that a middleware hands on."""
    from langchain.agents.middleware import ModelResponse

    requests: list[Any] = []

    def handler(given: Any) -> Any:
        requests.append(given)
        return ModelResponse(result=[])

    middleware.wrap_model_call(request, handler)
    return requests[0]


def test_kept_messages_are_the_very_same() -> None:
    """What is not folded goes on as the object that it is, and below the line so does the whole request."""
    from langchain.agents.middleware import ModelRequest
    from langchain_core.messages import HumanMessage, SystemMessage

    from compact.adapters.langchain import CompactMiddleware

    given = [*talk(40), *every_kind()[2:8], HumanMessage("Go on.", id="12")]
    instructions = SystemMessage("Be brief.", id="0")
    request = ModelRequest(model=fake(lambda *_: None), messages=given, system_message=instructions)
    assert request is handed_on(CompactMiddleware(managed(window=100_000)[0], on_error="raise"), request)
    manager, _, _ = managed(window=20_000, policy={"keep_recent_turns": 3})
    sent = handed_on(CompactMiddleware(manager, on_error="raise"), request)
    assert 10 == len(sent.messages)
    assert all(one is other for one, other in zip(sent.messages[-9:], given[-9:], strict=True))
    assert {"lc_source": "summarization"} == sent.messages[0].additional_kwargs
    assert instructions is sent.system_message
    assert 87 == len(request.messages)


def test_a_pinned_message_stays() -> None:
    """`additional_kwargs={"protected": True}` keeps a message through every fold."""
    from langchain_core.messages import HumanMessage

    from compact.adapters.langchain import CompactMiddleware

    manager, _, _ = managed()
    pinned = HumanMessage("Never on a Friday.", additional_kwargs={"protected": True}, id="pinned")
    received, _ = once(CompactMiddleware(manager, on_error="raise"), [*talk(3), pinned, *talk(20)[6:]])
    assert len(received) < 20
    assert any(message is pinned for message in received)


# -- what the meter hears ------------------------------------------------------------------------------------------


def test_instructions_tools_model_and_output_are_counted() -> None:
    """The meter hears the agent's own model, prompt and tools, and leaves room for its answer."""
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage

    from compact.adapters.langchain import CompactMiddleware

    for answer, folds in ((None, 0), (3_000, 1)):
        manager, _, recorder = managed(window=8_000)
        model = fake(lambda *_: AIMessage("done"), model_name="gpt-4.1", max_tokens=answer)
        middleware = CompactMiddleware(manager, "s", on_error="raise")
        agent = create_agent(model, tools_of(story()), system_prompt="word " * 500, middleware=[middleware])
        agent.invoke({"messages": talk(8)})
        heard = recorder["token_estimate"][0].data
        assert "gpt-4.1" == heard["model"]
        assert 500 <= heard["breakdown"]["system"] < 600
        assert 50 < heard["breakdown"]["tools_schema"] < 200
        assert folds == len(manager.session("s").folds)


def test_reported_usage_calibrates() -> None:
    """What the provider counted is what the next estimate is made with."""
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage, HumanMessage

    from compact.adapters.langchain import CompactMiddleware

    def estimates(share: float) -> list[int]:
        manager, _, recorder = managed(window=100_000)

        def answer(*_: Any) -> Any:
            counted = round(share * recorder["token_estimate"][-1].data["t_est"])
            usage = {"input_tokens": counted, "output_tokens": 1, "total_tokens": counted + 1}
            return AIMessage("done", usage_metadata=usage)

        agent = create_agent(fake(answer), middleware=[CompactMiddleware(manager, "s", on_error="raise")])
        state = agent.invoke({"messages": talk(10)})
        agent.invoke({"messages": [*state["messages"], HumanMessage("More.")]})
        return [event.data["t_est"] for event in recorder["token_estimate"]]

    plain, higher = estimates(1), estimates(1.3)
    assert plain[0] == higher[0]
    assert higher[1] == pytest.approx(1.3 * plain[1], rel=0.01)


# -- who is who ----------------------------------------------------------------------------------------------------


def sessions_of(recorder: Any) -> list[str]:
    """The sessions that were heard of, each once, in order."""
    return list(dict.fromkeys(event.session_id for event in recorder["token_estimate"]))


def test_sessions_are_named() -> None:
    """By a text, by what makes one, by the thread; without any by the first message, so nobody shares by chance."""
    from compact.adapters.langchain import CompactMiddleware

    manager, _, recorder = managed(window=100_000)
    given = talk(2)
    once(CompactMiddleware(manager, "named"), given, THREAD)
    once(CompactMiddleware(manager, lambda runtime: runtime.context["user"]), given, context={"user": "anna"})
    once(CompactMiddleware(manager), given, THREAD)
    once(CompactMiddleware(manager), given)
    once(CompactMiddleware(manager), given[1:])
    assert ["named", "anna", "afternoon", "HumanMessage0", "AIMessage0"] == sessions_of(recorder)


@pytest.mark.parametrize("persistent", [False, True])
def test_an_agent_inside_a_tool_is_another_conversation(persistent: bool) -> None:
    """Parent and children share middleware and thread; each child has a session of its own, with its own folds."""
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.tools import tool
    from langgraph.checkpoint.memory import InMemorySaver

    from compact.adapters.langchain import CompactMiddleware

    manager, summarizer, recorder = managed()
    middleware = CompactMiddleware(manager, persistent=persistent, on_error="raise")
    plays = [story(calls=20, rounds=1, seed=seed) for seed in (1, 2)]
    asked = iter(plays)

    @tool
    def delegate(task: str) -> str:
        """Let somebody else do it."""
        play = next(asked)
        state = agent_for(play, [middleware]).invoke({"messages": [HumanMessage(play.rounds[0].user)]})
        return str(state["messages"][-1].content)

    def answer(messages: list[Any], _: list[Any]) -> Any:
        done = sum("tool" == message.type for message in messages)
        calls = [{"id": f"d{done}", "name": "delegate", "args": {"task": "all"}}]
        return AIMessage("", tool_calls=calls) if done < 2 else AIMessage("done")

    parent = create_agent(fake(answer), [delegate], middleware=[middleware], checkpointer=InMemorySaver())
    parent.invoke({"messages": [HumanMessage("Go.")]}, THREAD)
    thread, *children = sessions_of(recorder)
    assert "afternoon" == thread
    assert [] == list(manager.session(thread).folds)
    assert 2 == len(children)
    assert all(child.startswith("afternoon.tools.") for child in children)
    for play, child in zip(plays, children, strict=True):
        judge(play, manager, child, folds=1)
    assert len(summarizer.asks) == sum(len(manager.session(child).folds) for child in children)


def test_a_conversation_without_a_thread_keeps_its_name() -> None:
    """Also when its first message has left the state: the summary says which one that was."""
    from langchain_core.messages import HumanMessage

    from compact.adapters.langchain import CompactMiddleware

    manager, _, recorder = managed()
    middleware = CompactMiddleware(manager, persistent=True, on_error="raise")
    _, state = once(middleware, talk(20))
    assert len(state) < 10
    once(middleware, [*state, HumanMessage("And?", id="and")])
    assert 2 == manager.session("HumanMessage0").counters.messages
    _, state = once(middleware, [*state, *talk(40)[40:], HumanMessage("More.", id="more")])
    assert "HumanMessage0" not in {message.id for message in state}
    assert ["HumanMessage0"] == sessions_of(recorder)
    assert 2 == len(manager.session("HumanMessage0").folds)


def test_runs_at_the_same_time_under_one_name_keep_their_own_messages() -> None:
    """Two conversations were given one name, and both wait to be kept: neither gets the messages of the other."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import wrap_model_call
    from langchain_core.messages import AIMessage, HumanMessage

    from compact.adapters.langchain import CompactMiddleware

    manager, _, _ = managed()
    shared = CompactMiddleware(manager, "s", persistent=True, on_error="raise")
    answered, ended = threading.Event(), threading.Event()
    states: dict[str, list[Any]] = {}

    def run(name: str, *others: Any) -> None:
        agent = create_agent(fake(lambda *_: AIMessage(name)), middleware=[*others, shared])
        given = [HumanMessage(f"This is {name}.", id=f"{name}-0"), *talk(20), HumanMessage("Go.", id=f"{name}-1")]
        states[name] = agent.invoke({"messages": given})["messages"]

    @wrap_model_call
    def pause(request: Any, handler: Any) -> Any:
        response = handler(request)
        answered.set()
        assert ended.wait(20)
        return response

    second = threading.Thread(target=run, args=("second", pause))

    @wrap_model_call
    def overtaken(request: Any, handler: Any) -> Any:
        response = handler(request)
        second.start()
        assert answered.wait(20)
        return response

    run("first", overtaken)
    ended.set()
    second.join()
    for name, other in (("first", "second"), ("second", "first")):
        assert f"{name}-1" in {message.id for message in states[name]}
        assert other not in str(states[name])


# -- when it cannot be ---------------------------------------------------------------------------------------------


def test_what_cannot_fit_is_sent_as_it_is_or_ends_the_run() -> None:
    """By default the agent goes on and the trace says why; `on_error="raise"` ends it."""
    from langchain_core.messages import HumanMessage

    from compact.adapters.langchain import CompactMiddleware

    given = [HumanMessage("word " * 9_000, additional_kwargs={"protected": True}, id="1")]
    manager, _, recorder = managed()
    received, state = once(CompactMiddleware(manager), given)
    assert given[0] is received[0]
    assert 2 == len(state)
    assert "sent_unchanged" in {event.data["code"] for event in recorder["warning"]}
    with pytest.raises(InsufficientBudget):
        once(CompactMiddleware(manager, persistent=True, on_error="raise"), given)


def test_a_tool_without_a_schema_does_not_end_the_run() -> None:
    """What cannot be counted is the model's to refuse; here it takes the tool."""
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.tools import StructuredTool
    from pydantic import create_model

    from compact.adapters.langchain import CompactMiddleware

    model = fake(lambda *_: AIMessage("done"))
    lenient = type("Lenient", (type(model),), {"bind_tools": lambda self, *_, **__: self})()
    schema = create_model("Arguments", each=(Callable[[int], int], ...))
    tool = StructuredTool(name="each", description="Call it.", args_schema=schema, func=str)
    agent = create_agent(lenient, [tool], middleware=[CompactMiddleware(managed()[0])])
    assert "done" == agent.invoke({"messages": [HumanMessage("Go.")]})["messages"][-1].content


def test_what_other_middleware_did_to_one_call_is_not_kept() -> None:
    """A list that was edited on its way is compacted for the call, and the state keeps what the agent said."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import wrap_model_call
    from langchain_core.messages import AIMessage, HumanMessage

    from compact.adapters.langchain import CompactMiddleware

    @wrap_model_call
    def hint(request: Any, handler: Any) -> Any:
        return handler(request.override(messages=[*request.messages, HumanMessage("A hint.", id="hint")]))

    manager, _, _ = managed()
    ours = CompactMiddleware(manager, "s", persistent=True, on_error="raise")
    given = talk(20)
    agent = create_agent(fake(lambda *_: AIMessage("done")), middleware=[hint, ours])
    assert given == agent.invoke({"messages": given})["messages"][:-1]
    assert 1 == len(manager.session("s").folds)
    agent = create_agent(fake(lambda *_: AIMessage("done")), middleware=[ours, hint])
    assert len(agent.invoke({"messages": given})["messages"]) < 20
    assert 1 == len(manager.session("s").folds)
