"""Pydantic AI: what a real server on this machine received from its own model classes, and what its history keeps.

Owns: the proof that `CompactCapability` compacts requests or the stored history, and changes nothing that it keeps.
Must never: reach a network, or replace a part of the framework.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from agent_story import RULE, SYSTEM, TOOLS, Play, Step, judge, managed, story

from compact import InsufficientBudget
from compact._conversation.formats import FORMATS
from compact._conversation.tokens import counter_for, message_tokens
from compact._conversation.tool_schemas import tools_tokens
from compact.adapters._bridge import Bridge

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _own_loop() -> Iterator[None]:
    """`run_sync` leaves its event loop open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


# -- a provider on this machine ----------------------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """Chat completions, plain and streamed, and Anthropic's messages: answers by the play, or "ok" without one."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.play: Play | None = None
        self.prompt_tokens = 0
        self.bodies: list[dict[str, Any]] = []

    def answer(self, path: str, body: dict[str, Any]) -> bytes:
        """The body of the response."""
        dialect = "anthropic" if path.endswith("/messages") else "openai-chat"
        self.bodies.append(body)
        step = self.play.answer(dialect, body["messages"], body.get("tools", ())) if self.play else Step("ok")
        made = _anthropic(step) if dialect == "anthropic" else _chat(step, body, self.prompt_tokens)
        return made if isinstance(made, bytes) else json.dumps(made).encode()


class Handler(BaseHTTPRequestHandler):
    """One request, one answer, one connection: none is left open when the loop that opened it ends."""

    server: Server

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        """Answer, as a stream when that was asked for."""
        data = self.server.answer(self.path, json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if data.startswith(b"data:") else "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _chat(step: Step, body: dict[str, Any], prompt_tokens: int) -> Any:
    calls: list[dict[str, Any]] = [
        {"index": k, "id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
        for k, c in enumerate(step.calls)
    ]
    message = {"role": "assistant", "content": step.text or None, "reasoning_content": step.reasoning or None}
    message |= {"tool_calls": calls} if calls else {}
    reason = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 1, "total_tokens": prompt_tokens + 1}
    made = {"id": "c", "created": 1, "model": body["model"], "usage": usage if prompt_tokens else None}
    if not body.get("stream"):
        choice = {"index": 0, "finish_reason": reason, "message": message}
        return {**made, "object": "chat.completion", "choices": [choice]}
    made["object"] = "chat.completion.chunk"
    begun, ended = {"index": 0, "delta": message}, {"index": 0, "delta": {}, "finish_reason": reason}
    chunks = [{**made, "usage": None, "choices": [begun]}, {**made, "choices": [ended]}]
    return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + b"data: [DONE]\n\n"


def _anthropic(step: Step) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if step.reasoning:
        content.append({"type": "thinking", "thinking": step.reasoning, "signature": "c2lnbmVk"})
    if step.text:
        content.append({"type": "text", "text": step.text})
    content += [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in step.calls]
    made = {"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": content}
    usage = {"input_tokens": 0, "output_tokens": 1}
    return {**made, "stop_reason": "tool_use" if step.calls else "end_turn", "stop_sequence": None, "usage": usage}


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that answers by `server.play`."""
    with Server() as running:
        threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True).start()
        yield running
        running.shutdown()


def openai(server: Server) -> Any:
    """The framework's own model class, pointed at the server."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    url = f"http://127.0.0.1:{server.server_port}/v1"
    return OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=url, api_key="none"))


def claude(server: Server) -> Any:
    """The same for Anthropic."""
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(base_url=f"http://127.0.0.1:{server.server_port}", api_key="none")
    provider = AnthropicProvider(anthropic_client=client)
    return AnthropicModel("claude-sonnet-4-5", provider=provider, settings={"max_tokens": 500})


def engineer(play: Play, model: Any, *capabilities: Any, **settings: Any) -> Any:
    """The agent of the story."""
    from pydantic_ai import Agent, Tool

    def tool(name: str, parameters: Any) -> Any:
        schema = {
            "type": "object",
            "properties": {key: {"type": "string", "description": about} for key, about in parameters.items()},
            "required": list(parameters),
        }

        def run(**arguments: Any) -> str:
            return play.result(name, arguments)

        return Tool.from_schema(run, name=name, description=f"Use {name}.", json_schema=schema)

    tools = [tool(name, parameters) for name, parameters in TOOLS.items()]
    return Agent(model, instructions=SYSTEM, tools=tools, capabilities=capabilities, **settings)


def unlimited() -> Any:
    """More requests than the framework allows in one run by default."""
    from pydantic_ai.usage import UsageLimits

    return UsageLimits(request_limit=None)


def echo(seen: list[list[Any]] | None = None) -> Any:
    """The framework's own model for tests, which says "ok" and keeps what it was sent."""
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    def answer(messages: list[Any], _: Any) -> Any:
        if seen is not None:
            seen.append(list(messages))
        return ModelResponse([TextPart("ok")])

    return FunctionModel(answer)


def talk(size: int, words: int = 60) -> list[Any]:
    """A history of so many exchanges."""
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

    made: list[Any] = []
    for number in range(size):
        made.append(ModelRequest([UserPromptPart(f"Question {number}: " + "why " * words)]))
        made.append(ModelResponse([TextPart(f"Answer {number}: " + "because " * words)], model_name="m"))
    return made


def capability(manager: Any, *args: Any, **settings: Any) -> Any:
    """The capability under test; a failure is one of the test, unless it asks for another policy."""
    from compact.adapters.pydantic_ai import CompactCapability

    return CompactCapability(manager, *args, **{"on_error": "raise", **settings})


def bridge() -> Bridge:
    """How the framework's messages cross."""
    from compact.adapters._pydantic_ai_messages import read, write

    return Bridge(read, write)


# -- the story ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "persistent", "calls"),
    [(openai, False, 60), (openai, True, 60), (claude, False, 20)],
    ids=["openai", "stored", "claude"],
)
def test_the_story(server: Server, provider: Callable[[Server], Any], persistent: bool, calls: int) -> None:
    """Each request is valid at its provider and within the window, each fold has one summary, and nothing is lost."""
    play = server.play = story(calls)
    manager, summarizer, recorder = managed()
    agent = engineer(play, provider(server), capability(manager, "s", persistent=persistent))
    history: list[Any] = []
    for part in play.rounds:
        done = agent.run_sync(part.user, message_history=history, usage_limits=unlimited())
        history = done.all_messages()
    judge(play, manager, "s", folds=calls // 20, asked=len(summarizer.asks))
    assert [] == recorder["warning"]
    results = set(play.results.values())
    stored = {part.content for message in history for part in message.parts if part.part_kind == "tool-return"}
    if not persistent:
        assert (2 * calls, results) == (len(history), stored)
        return
    assert len(history) < 60
    left = {
        wire["content"][0]["text"]
        for fold in manager.session("s").folds
        for wire in manager.restore("s", fold.step)
        if wire["role"] == "tool"
    }
    assert results == left | stored
    assert RULE in str(manager.restore("s", 1))


WAYS = ["run", "run_sync", "run_stream", "iter"]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_run(server: Server, way: str) -> None:
    """Sync, async, streamed and step by step pass the same gate."""
    play = server.play = story(calls=14, rounds=1)
    # Words beside a call end a streamed run: the framework takes them for the answer.
    (part,) = play.rounds
    part = replace(part, steps=tuple(replace(step, text=step.text * (not step.calls)) for step in part.steps))
    play.rounds = [part]
    manager, summarizer, _ = managed(window=2_500)
    agent = engineer(play, openai(server), capability(manager))

    async def streamed() -> Any:
        async with agent.run_stream(part.user, conversation_id="s") as result:
            return await result.get_output()

    async def stepwise() -> Any:
        async with agent.iter(part.user, conversation_id="s") as run:
            async for _ in run:
                pass
        return run.result.output

    if way == "run_sync":
        output = agent.run_sync(part.user, conversation_id="s").output
    elif way == "run":
        output = asyncio.run(agent.run(part.user, conversation_id="s")).output
    else:
        output = asyncio.run(streamed() if way == "run_stream" else stepwise())
    assert play.steps[-1].text == output
    judge(play, manager, "s", folds=1, asked=len(summarizer.asks))


# -- what crosses ------------------------------------------------------------------------------------------------------


def everything() -> list[Any]:
    """A message of every kind."""
    import pydantic_ai.messages as ai
    from pydantic_ai.usage import RequestUsage

    png = ai.BinaryContent(b"png", media_type="image/png", vendor_metadata={"detail": "low"})
    media = [
        "Look:",
        ai.TextContent("a note", metadata={"from": "app"}),
        ai.ImageUrl("https://example.com/a.png"),
        png,
        ai.BinaryContent(b"wav", media_type="audio/wav"),
        ai.BinaryContent(b"pdf", media_type="application/pdf"),
        ai.DocumentUrl("https://example.com/a.pdf"),
        ai.AudioUrl("https://example.com/a.mp3"),
        ai.UploadedFile("file-1", "openai"),
        ai.CachePoint(),
    ]
    system = ai.SystemPromptPart("Be brief.", timestamp=NOW)
    tick = ai.SystemPromptPart("It is noon.", timestamp=NOW, scope="request")
    asked = ai.UserPromptPart(media, timestamp=NOW)
    retried = ai.RetryFeedbackPart("Too long.", retry=ai.RetryInfo(cause="model_retry"), timestamp=NOW)
    returned = ai.ToolReturnPart("see", ["text", png], "c1", metadata={"rows": 3}, timestamp=NOW)
    failed = ai.ToolReturnPart("count", {"sum": 1}, "c2", outcome="failed", timestamp=NOW)
    thought = ai.ThinkingPart("First a, then b.", id="t1", signature="c2ln", provider_name="anthropic")
    see = ai.ToolCallPart("see", {"a": 1}, "c1")
    hidden = ai.ThinkingPart("", signature="ZW5j" * 60, provider_name="openai")
    found = ai.NativeToolReturnPart("web_search", {"hits": 2}, "n1", provider_name="openai", timestamp=NOW)
    said = {"timestamp": NOW, "model_name": "m", "metadata": {"score": 1}}
    return [
        ai.ModelRequest([tick, system, asked], instructions="Work.", metadata={"app": 1}, timestamp=NOW, run_id="r"),
        ai.ModelResponse(
            [thought, ai.TextPart("Both."), see, ai.ToolCallPart("count", "{}", "c2")],
            usage=RequestUsage(input_tokens=3),
            **said,
        ),
        ai.ModelRequest([returned, ai.UserPromptPart("And?", timestamp=NOW), failed, retried], timestamp=NOW),
        ai.ModelResponse([hidden, ai.NativeToolCallPart("web_search", {"q": "x"}, "n1"), found], **said),
        ai.ModelRequest([ai.CompactionPart("<COMPACT-SUMMARY v1>\nSo far.\n</COMPACT-SUMMARY>")], timestamp=NOW),
        ai.ModelResponse([ai.FilePart(png), ai.TextPart("a"), ai.TextPart("b")], **said),
        ai.ModelResponse([], **said),
        ai.ModelRequest([ai.ModelSettingsDeltaPart(settings={"thinking": "high"})], timestamp=NOW),
        ai.ModelResponse([ai.CompactionPart("Theirs.", provider_name="anthropic")], **said),
    ]


def test_every_kind_of_message_crosses_and_comes_home_as_it_was() -> None:
    """Read: text, thoughts, calls, results first, media with their weight, metadata. Home: the very same objects."""
    messages, border = everything(), bridge()
    wires = border.to_wires(messages)
    assert [id(message) for message in messages] == [id(message) for message in border.from_wires(wires, wires)]
    roles = "system user | assistant | tool tool user user | assistant | assistant | assistant | system | system"
    assert [part.split() for part in f"{roles} | assistant".split(" | ")] == [
        [wire["role"] for wire in wires if wire.origin is message] for message in messages
    ]
    asked = wires[1]["content"]
    kinds = ["text", "text", "image_url", "image_url", "audio", "file", "file", "audio", "file"]
    assert kinds == [item["type"] for item in asked]
    assert {"url": "data:image/png;base64,cG5n", "detail": "low"} == asked[3]["image_url"]
    assert {"app": 1, "from": "app"} == wires[1]["meta"]
    step, seen, count = wires[2], wires[3], wires[4]
    assert ("Both.", "First a, then b.") == (step["content"], step["reasoning_content"])
    assert [("c1", '{"a":1}'), ("c2", "{}")] == [(c["id"], c["function"]["arguments"]) for c in step["tool_calls"]]
    assert {"score": 1, "thinking": [{"id": "t1", "signature": "c2ln", "provider": "anthropic"}]} == step["meta"]
    assert ("c1", "see", "text", {"rows": 3}) == (
        seen["tool_call_id"],
        seen["name"],
        seen["content"][0]["text"],
        seen["meta"],
    )
    assert '{"sum":1}' == count["content"][0]["text"]
    assert wires[-1]["meta"]["protected"]


def test_a_history_that_was_stored_as_json_reads_the_same() -> None:
    """So that a fold is found again after a restart."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    messages, border = everything(), bridge()
    loaded = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))
    assert border.to_wires(messages) == border.to_wires(loaded)


def test_what_is_written_reads_the_same() -> None:
    """Some parts of a request, a shortened result, a summary, a mended result: read again they are the same."""
    import copy

    messages, border = everything(), bridge()
    wires = border.to_wires(messages)
    short = copy.copy(wires[3])
    short["content"] = [{"type": "text", "text": "[cut]"}]
    new = [
        {"role": "assistant", "content": "<COMPACT-SUMMARY v2>\nThen.\n</COMPACT-SUMMARY>"},
        {"role": "assistant", "content": "[a note]", "meta": {"protected": True}},
        {"role": "tool", "tool_call_id": "c9", "name": "see", "content": [{"type": "text", "text": "none"}]},
        {"role": "user", "content": "(conversation continues)"},
    ]
    sent = [wires[0], wires[2], short, wires[5], *new]
    home = border.from_wires(sent, wires)
    assert sent == [dict(wire) for wire in border.to_wires(home)]
    first, _, results, *_ = home
    old = messages[0]
    assert all(getattr(first, f.name) == getattr(old, f.name) for f in fields(old) if f.name != "parts")
    assert ["It is noon.", "Be brief."] == [part.content for part in first.parts]
    assert replace(messages[2].parts[0], content="[cut]") == results.parts[0]
    assert messages[2].parts[1] is results.parts[1]


def test_a_stored_history_keeps_the_very_objects() -> None:
    """After a fold of the store: the new list is shorter, and all but the summary are the messages that went in."""
    manager, summarizer, _ = managed(window=1_500)
    agent = engineer(story(), echo(), capability(manager, "s", persistent=True))
    history = talk(12)
    stored = agent.run_sync("Now?", message_history=history).all_messages()
    assert 1 == len(summarizer.asks)
    known = {id(message) for message in history}
    new = [message for message in stored if id(message) not in known]
    assert ["compaction", "user-prompt", "text"] == [part.part_kind for message in new for part in message.parts]
    assert len(stored) < len(history)


def test_a_restart_pays_nothing_again() -> None:
    """Either kind of host, with its history out of JSON and a new manager on the same archive: no summary is made."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    for persistent in (False, True):
        history = talk(12)
        for run in range(2):
            manager, summarizer, _ = managed(window=1_500)
            agent = engineer(story(), echo(), capability(manager, f"s{persistent}", persistent=persistent))
            done = agent.run_sync("Now?", message_history=history)
            assert 1 - run == len(summarizer.asks)
            history = ModelMessagesTypeAdapter.validate_json(done.all_messages_json())
            manager.close()


# -- what the manager is told ------------------------------------------------------------------------------------------


def test_tools_instructions_model_and_output_reach_the_meter(server: Server) -> None:
    """All count but tools that are not shown; instructions that change at every request make no other conversation."""
    from pydantic_ai import FunctionToolset, Tool

    async def later(what: str) -> str:
        return what

    manager, summarizer, recorder = managed(window=3_000)
    hidden = FunctionToolset([Tool(later, description="word " * 900, defer_loading=True)])
    settings = {"model_settings": {"max_tokens": 700}, "output_type": [str, dict], "toolsets": [hidden]}
    agent = engineer(story(), openai(server), capability(manager, "s"), **settings)
    hours = iter(range(100))

    @agent.instructions
    def clock() -> str:
        return f"It is {next(hours)} o'clock. " + "tick Страница\n" * 20

    history = talk(15)
    for _ in range(3):
        history = agent.run_sync("Now?", message_history=history).all_messages()
    assert (1, 1) == (len(summarizer.asks), len(manager.session("s").folds))
    first, body = recorder["token_estimate"][0].data, server.bodies[0]
    counter = counter_for("tiktoken", "gpt-4o")
    assert {"read_file", "run", "search", "final_result"} < {tool["function"]["name"] for tool in body["tools"]}
    chat = FORMATS["openai-chat"]
    instructions = [chat.read(each) for each in body["messages"] if each["role"] == "system"]
    assert sum(message_tokens(each, counter) for each in instructions) == first["breakdown"]["system"] > 60
    assert abs(tools_tokens(body["tools"], counter, "gpt-4o") - first["breakdown"]["tools_schema"]) < 20
    assert ("gpt-4o", 700) == (first["model"], body["max_completion_tokens"])


def test_the_model_with_the_smallest_window_counts() -> None:
    """Of those that a request may fall back on. What a fake is called says nothing, unless somebody named it."""
    from pydantic_ai.models.fallback import FallbackModel
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.test import TestModel

    def named(name: str) -> Any:
        return FunctionModel(echo().function, model_name=name)

    fallback = FallbackModel(named("gpt-4.1"), named("gpt-4"), TestModel())
    models = [(echo(), "gpt-4o"), (TestModel(call_tools=[]), "gpt-4o"), (named("o3"), "o3"), (fallback, "gpt-4")]
    for model, expected in models:
        manager, _, recorder = managed()
        engineer(story(), model, capability(manager, "s")).run_sync("Hello")
        assert expected == recorder["token_estimate"][0].data["model"]


def test_what_another_capability_did_to_one_request_is_not_stored() -> None:
    """A list that was replaced on its way is compacted for the request, and the store keeps what the agent said."""
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    class Hint(AbstractCapability[Any]):
        async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
            hint = ModelRequest([UserPromptPart("A hint.")])
            request_context.messages = [*request_context.messages, hint]
            return request_context

    manager, summarizer, _ = managed(window=1_500)
    agent = engineer(story(), echo(), Hint(), capability(manager, "s", persistent=True))
    stored = agent.run_sync("Now?", message_history=talk(12)).all_messages()
    assert 1 == len(summarizer.asks)
    assert "A hint." not in str(stored)
    assert 26 == len(stored)


def test_the_providers_count_calibrates_and_a_guess_does_not(server: Server) -> None:
    """What the server counted scales the next estimate; the models for tests only guess."""

    async def estimates(model: Any, streamed: bool = False) -> list[int]:
        manager, _, recorder = managed(window=100_000)
        agent = engineer(story(), model, capability(manager, "s"))
        for server.prompt_tokens in (0, 4_000, 0):
            if streamed:
                async with agent.run_stream("Now?", message_history=talk(20)) as result:
                    assert "ok" == await result.get_output()
            else:
                assert "ok" == (await agent.run("Now?", message_history=talk(20))).output
        return [event.data["t_est"] for event in recorder["token_estimate"]]

    for streamed in (False, True):
        first, second, third = asyncio.run(estimates(openai(server), streamed))
        assert first == second < 3_000
        assert 3_900 < third < 4_100
    assert 1 == len(set(asyncio.run(estimates(echo()))))


def test_a_pin_stays() -> None:
    """Metadata of the message, of a piece of text, or of a tool's result; in the store as well."""
    import pydantic_ai.messages as ai

    pin = {"protected": True}
    text = ai.UserPromptPart([ai.TextContent("PIN-2 " + "w " * 30, metadata=pin)])
    call = ai.ModelResponse([ai.ToolCallPart("read_file", {"path": "a"}, "c1")], model_name="m")
    result = ai.ModelRequest([ai.ToolReturnPart("read_file", "PIN-3 " + "w " * 30, "c1", metadata=pin)])
    answer = ai.ModelResponse([ai.TextPart("PIN-4 " + "w " * 30)], model_name="m", metadata=pin)
    head = [ai.ModelRequest([ai.UserPromptPart("PIN-1 " + "w " * 30)], metadata=pin), call, result, answer]
    for persistent in (False, True):
        seen: list[list[Any]] = []
        manager, summarizer, _ = managed(window=1_500)
        agent = engineer(story(), echo(seen), capability(manager, f"s{persistent}", persistent=persistent))
        history = [*talk(1), *head, ai.ModelRequest([text]), *talk(12)[1:]]
        agent.run_sync("Now?", message_history=history)
        assert 1 == len(summarizer.asks)
        assert all(f"PIN-{number} " in str(seen[0]) for number in (1, 2, 3, 4))
        assert "Question 3" not in str(seen[0])


# -- what happens when -------------------------------------------------------------------------------------------------


def test_what_cannot_be_compacted_is_sent_or_raised() -> None:
    """By policy: the list as it is and a warning, or the error out of the run."""
    seen: list[list[Any]] = []
    manager, _, recorder = managed(window=1_500)
    agent = engineer(story(), echo(seen), capability(manager, "s", on_error="unchanged"))
    agent.run_sync("word " * 3_000)
    assert "word " * 3_000 == seen[0][0].parts[0].content
    assert ["sent_unchanged"] == [event.data["code"] for event in recorder["warning"]]
    with pytest.raises(InsufficientBudget):
        engineer(story(), echo(), capability(manager, "t")).run_sync("word " * 3_000)


def test_names_of_sessions(server: Server) -> None:
    """The conversation's id by default, the run's own when it has none; or a name, or what gives one for a run."""
    names: list[Any] = [None, "mine", lambda ctx: f"{ctx.deps}-{ctx.agent.name}"]
    for session_id, expected in zip(names, ["c", "mine", "d-clerk"], strict=True):
        manager, _, recorder = managed()
        agent = engineer(story(), echo(), capability(manager, session_id), deps_type=str, name="clerk")
        agent.run_sync("Hello", conversation_id="c", deps="d")
        assert {expected} == {event.session_id for event in recorder.events}


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("session_id", [None, "s"])
def test_an_agent_inside_a_tool_is_another_conversation(session_id: str | None, persistent: bool) -> None:
    """Both share the capability and, if one was given, the name: each has its own folds, and neither pays twice."""
    from pydantic_ai import Agent, Tool
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    manager, summarizer, recorder = managed(window=1_500)
    shared = capability(manager, session_id, persistent=persistent)
    helper = engineer(story(), echo(), shared, name="helper")

    async def ask_helper(about: str) -> str:
        return str((await helper.run(about, message_history=talk(12, words=61))).output)

    def lead(messages: list[Any], _: Any) -> Any:
        calls = sum(part.part_kind == "tool-return" for part in messages[-1].parts)
        known = sum(part.part_kind == "tool-call" for message in messages for part in message.parts)
        if calls and known >= 3:
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart("ask_helper", {"about": f"part {known}"}, f"c{known}")])

    agent = Agent(FunctionModel(lead), tools=[Tool(ask_helper)], capabilities=[shared], name="lead")
    assert "done" == agent.run_sync("Go", message_history=talk(12), conversation_id="s").output
    folds = {event.session_id for event in recorder["summary_created"]}
    assert "s" in folds
    assert len(folds) == len(summarizer.asks) == sum(len(manager.session(name).folds) for name in folds)
    others = folds - {"s"}
    assert len(others) == (3 if session_id is None else 1)
    assert session_id is None or all(name.startswith("s.helper.") for name in others)


def test_a_run_stays_in_one_session() -> None:
    """Also one that shares its name with another conversation, when a fold changes how its history begins."""
    from pydantic_ai import Agent, Tool
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    steps = iter(range(3))

    def look(at: int) -> str:
        return f"{at}: " + "seen " * 300

    def answer(*_: Any) -> Any:
        at = next(steps, None)
        return ModelResponse([TextPart("ok") if at is None else ToolCallPart("look", {"at": at})])

    manager, summarizer, recorder = managed(window=1_500)
    shared = capability(manager, "s", persistent=True)
    engineer(story(), echo(), shared).run_sync("Hello")
    helper = Agent(FunctionModel(answer), tools=[Tool(look)], capabilities=[shared], name="helper")
    assert "ok" == helper.run_sync("Now?", message_history=talk(12)).output
    first, *others = dict.fromkeys(event.session_id for event in recorder["token_estimate"])
    assert ("s", 1) == (first, len(others))
    assert len(summarizer.asks) == len(manager.session(others[0]).folds) > 0


def test_the_span_of_the_request_says_that_the_conversation_was_compacted() -> None:
    """Only that span, only after a fold, and no span of somebody else's."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from pydantic_ai.capabilities import Instrumentation
    from pydantic_ai.models.instrumented import InstrumentationSettings

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    manager, _, _ = managed(window=1_500)
    watched = Instrumentation(settings=InstrumentationSettings(tracer_provider=provider))
    for history, capabilities in (([], [watched]), (talk(12), [watched]), (talk(12), [])):
        agent = engineer(story(), echo(), capability(manager, "s"), *capabilities)
        with provider.get_tracer("host").start_as_current_span("mine"):
            agent.run_sync("Now?", message_history=history)
    marked = [
        (span.name.split()[0], (span.attributes or {}).get("gen_ai.conversation.compacted"))
        for span in exporter.get_finished_spans()
    ]
    chat, run, mine = ("chat", None), ("invoke_agent", None), ("mine", None)
    assert [chat, run, mine, ("chat", True), run, mine, mine] == marked
