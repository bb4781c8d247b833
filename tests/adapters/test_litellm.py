"""LiteLLM: what a real OpenAI-compatible server on this machine received.

Owns: the proof that both hooks and `prepare` compact a request once, whichever way it takes through LiteLLM.
Must never: reach a network, or look into the adapter.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from agent_story import SYSTEM, TOOLS, Play, Step, judge, managed, story
from provider_rules import problems

from compact import CompactManager, InsufficientBudget
from compact.testing import chat

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SCHEMAS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Use {name}.",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string", "description": about} for key, about in fields.items()},
                "required": list(fields),
            },
        },
    }
    for name, fields in TOOLS.items()
]


class Server(ThreadingHTTPServer):
    """Chat completions: answers by the play, or "ok" without one; refuses the first `refuse` requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.play: Play | None = None
        self.refuse = 0
        self.prompt_tokens = 0
        self.bodies: list[dict[str, Any]] = []

    def step(self, body: dict[str, Any]) -> Step:
        self.bodies.append(body)
        if self.play is None:
            return Step("ok")
        return self.play.answer("openai-chat", body["messages"], body.get("tools", ()))


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.refuse:
            self.server.refuse -= 1
            self._reply(500, {"error": {"message": "try again", "type": "server_error"}})
            return
        if self.path.endswith("/embeddings"):
            self.server.bodies.append(body)
            data = [{"object": "embedding", "index": 0, "embedding": [0.5]}]
            self._reply(200, {"object": "list", "data": data, "model": "e", "usage": {"prompt_tokens": 1}})
            return
        step = self.server.step(body)
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for c in step.calls
        ]
        said: dict[str, Any] = {"role": "assistant", "content": step.text or None}
        said |= {"tool_calls": calls} if calls else {}
        said |= {"reasoning_content": step.reasoning} if step.reasoning else {}
        head = {"id": "r1", "created": 1, "model": body["model"]}
        tokens = self.server.prompt_tokens
        usage = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}
        reason = "tool_calls" if calls else "stop"
        if body.get("stream"):
            delta = {**said, "tool_calls": [{**call, "index": i} for i, call in enumerate(calls)]}
            lines = [
                {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
                {**head, "choices": [], "usage": usage},
            ]
            events = "".join(f"data: {json.dumps({**e, 'object': 'chat.completion.chunk'})}\n\n" for e in lines)
            self._send(200, "text/event-stream", events + "data: [DONE]\n\n")
            return
        choices = [{"index": 0, "message": said, "finish_reason": reason}]
        self._reply(200, {**head, "object": "chat.completion", "choices": choices, "usage": usage})

    def _reply(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(body))

    def _send(self, status: int, kind: str, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as serving:
        threading.Thread(target=serving.serve_forever, args=(0.01,), daemon=True).start()
        yield serving
        serving.shutdown()


@pytest.fixture
def litellm() -> Iterator[Any]:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    litellm.telemetry, litellm.suppress_debug_info, litellm.disable_aiohttp_transport = False, True, True
    litellm.in_memory_llm_clients_cache.flush_cache()  # clients belong to the event loop of their test
    yield litellm
    litellm.callbacks = []
    for hooks in ("success_callback", "failure_callback", "_async_success_callback", "_async_failure_callback"):
        setattr(litellm, hooks, [])


def where(server: Server, **more: Any) -> dict[str, Any]:
    base = f"http://127.0.0.1:{server.server_address[1]}/v1"
    return {"model": "openai/gpt-4o", "api_base": base, "api_key": "none", **more}


def hooked(litellm: Any, manager: CompactManager, **settings: Any) -> Any:
    from compact.adapters.litellm import CompactLogger

    logger = CompactLogger(manager, **settings)
    litellm.callbacks = [logger]
    return logger


async def perform(play: Play, ask: Callable[[list[Any]], Awaitable[Any]]) -> list[Any]:
    """The play with an agent's loop around it, which keeps LiteLLM's own messages."""
    messages: list[Any] = [{"role": "system", "content": SYSTEM}]
    for part in play.rounds:
        messages.append({"role": "user", "content": part.user})
        for _ in part.steps:
            reply = await ask(messages)
            messages.append(reply)
            for call in reply.tool_calls or ():
                result = play.result(call.function.name, json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return messages


def router(litellm: Any, server: Server, **settings: Any) -> Any:
    models = [
        {"model_name": "gpt-4o", "litellm_params": where(server)},
        {"model_name": "gpt-4", "litellm_params": where(server, model="openai/gpt-4")},
    ]
    return litellm.Router(model_list=models, **settings)


def judged(recorder: Any) -> list[Any]:
    return [event for event in recorder.events if event.name == "compact.token_estimate"]


# -- the story -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "calls", "folds"),
    [("acompletion", 60, 3), ("completion", 60, 3), ("stream", 20, 1), ("router", 20, 1), ("proxy", 20, 1)],
)
def test_a_long_conversation_folds_and_stays_valid(
    litellm: Any, server: Server, way: str, calls: int, folds: int
) -> None:
    manager, summarizer, recorder = managed()
    logger, play = hooked(litellm, manager, session_id="afternoon"), story(calls)
    server.play = play
    asked = {"tools": SCHEMAS, "max_tokens": 100}

    async def ask(messages: list[Any]) -> Any:
        if way == "stream":
            chunks = [chunk async for chunk in await litellm.acompletion(messages=messages, stream=True, **at)]
            return litellm.stream_chunk_builder(chunks).choices[0].message
        if way == "router":
            reply = await routed.acompletion(model="gpt-4o", messages=messages, **asked)
        elif way == "completion":
            reply = litellm.completion(**logger.prepare(messages=messages, **at))
        elif way == "proxy":
            reply = await through_the_proxy(litellm, routed, logger, model="gpt-4o", messages=messages, **asked)
        else:
            reply = await litellm.acompletion(messages=messages, **at)
        return reply.choices[0].message

    at, routed = where(server, **asked), router(litellm, server)
    history = asyncio.run(perform(play, ask))
    judge(play, manager, "afternoon", folds=folds, asked=len(summarizer.asks))
    assert len(judged(recorder)) == calls, "each request is judged once"
    assert len(history) > 2.5 * calls
    assert all("meta" not in message for request in play.received for message in request.messages)


async def through_the_proxy(litellm: Any, routed: Any, logger: Any, **data: Any) -> Any:
    """What the proxy does with a request: a logging object, its hook, then its router with what the hook gave."""
    from datetime import datetime
    from uuid import uuid4

    data["litellm_call_id"] = str(uuid4())
    logging, data = litellm.utils.function_setup("acompletion", litellm.utils.Rules(), datetime.now(), **data)
    data["litellm_logging_obj"] = logging
    data = await logger.async_pre_call_hook(user_api_key_dict=None, cache=None, data=data, call_type="acompletion")
    return await routed.acompletion(**data)


# -- what reaches the manager ----------------------------------------------------------------------------------------


def test_model_tools_and_the_room_for_the_answer_reach_the_meter(litellm: Any, server: Server) -> None:
    manager, _, recorder = managed(window=700)
    hooked(litellm, manager)
    asyncio.run(litellm.acompletion(messages=chat("su"), tools=SCHEMAS, max_tokens=300, **where(server)))
    (seen,) = judged(recorder)
    assert seen.data["model"] == "openai/gpt-4o"
    assert seen.data["breakdown"]["tools_schema"] > 50
    (decision,) = (event.data for event in recorder.events if event.name == "compact.trigger_decision")
    assert decision["budget"] == 700 - 200 - 300


@pytest.mark.parametrize("way", ["acompletion", "stream", "completion", "unasked stream"])
def test_the_usage_that_a_provider_reports_calibrates_the_meter(litellm: Any, server: Server, way: str) -> None:
    manager, _, recorder = managed(window=60_000)
    logger, answered = hooked(litellm, manager), threading.Event()
    litellm.callbacks.append(after(answered.set))
    request = {"messages": chat("suau", words=200), **where(server)}
    if "stream" in way:
        request |= {"stream": True} | ({"stream_options": {"include_usage": True}} if way == "stream" else {})

    async def ask() -> None:
        reply = await litellm.acompletion(**request)
        if "stream" in way:
            assert [chunk async for chunk in reply]
        assert await asyncio.to_thread(answered.wait, 30)

    def ask_once() -> int:
        answered.clear()
        if way == "completion":
            litellm.completion(**logger.prepare(**request))
            assert answered.wait(30)
        else:
            asyncio.run(ask())
        return int(judged(recorder)[-1].data["t_est"])

    server.prompt_tokens = 1
    exact = ask_once()
    server.prompt_tokens = round(1.3 * exact)
    ask_once()
    factor = 1.0 if way == "unasked stream" else 1.3  # LiteLLM's own guess teaches nothing
    assert ask_once() == pytest.approx(factor * exact, rel=0.01)


def after(act: Callable[[], Any]) -> Any:
    """A callback that says when those before it have been told of an answer."""
    from litellm.integrations.custom_logger import CustomLogger

    class After(CustomLogger):
        async def async_log_success_event(self, **event: Any) -> None:
            act()

        def log_success_event(self, **event: Any) -> None:
            act()

    return After()


@pytest.mark.parametrize(
    ("request_has", "name"),
    [
        ({"litellm_session_id": "a", "metadata": {"session_id": "b"}, "user": "c"}, "a"),
        ({"metadata": {"session_id": "b"}, "user": "c"}, "b"),
        ({"litellm_metadata": {"session_id": "b"}}, "b"),
        ({"litellm_session_id": "x", "metadata": {"litellm_session_id_generated": True}, "user": "c"}, "c"),
        ({"user": "c", "metadata": {"user_api_key_user_id": "d"}}, "c"),
        ({"metadata": {"user_api_key_user_id": "d"}}, "d"),
        ({"user": "c", "litellm_trace_id": "another each time"}, "c"),
        ({}, "litellm"),
    ],
)
def test_conversations_are_named_as_litellm_names_them(litellm: Any, request_has: Any, name: str) -> None:
    manager, _, recorder = managed()
    hooked(litellm, manager).prepare(messages=chat("su"), model="gpt-4o", **request_has)
    assert {event.session_id for event in recorder.events} == {name}


def test_a_session_id_may_be_computed_and_conversations_under_one_name_stay_apart(litellm: Any) -> None:
    manager, _, recorder = managed()
    logger = hooked(litellm, manager, session_id=lambda request: request["metadata"]["team"])
    for first in (0, 10, 0):
        logger.prepare(messages=chat("sua", first=first), model="gpt-4o", metadata={"team": "blue"})
    names = [event.session_id for event in judged(recorder)]
    assert names[0] == names[2] == "blue"
    assert names[1].startswith("blue.")


# -- one request, judged and paid once -------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["retries", "router", "proxy"])
def test_attempts_that_fail_cost_no_second_summary(litellm: Any, server: Server, way: str) -> None:
    manager, summarizer, recorder = managed(window=2_000)
    logger, messages = hooked(litellm, manager), chat("su" + "tr" * 20 + "au")
    server.refuse = 2
    routed = router(litellm, server, num_retries=3, retry_after=0)

    async def ask() -> Any:
        if way == "retries":
            return await litellm.acompletion(messages=messages, num_retries=3, max_retries=0, **where(server))
        if way == "router":
            return await routed.acompletion(model="gpt-4o", messages=messages)
        return await through_the_proxy(litellm, routed, logger, model="gpt-4o", messages=messages)

    assert asyncio.run(ask()).choices[0].message.content == "ok"
    assert len(summarizer.asks) == len(manager.session("litellm").folds) == 1
    assert {event.session_id for event in recorder.events} == {"litellm"}
    assert len(server.bodies[-1]["messages"]) < len(messages)
    assert len(messages) == 44


@pytest.mark.parametrize("window", [None, 2_000])
def test_a_fallback_model_is_judged_by_its_own_window(litellm: Any, server: Server, window: int | None) -> None:
    from compact import CompactConfig
    from compact.testing import Recorder, ScriptedModel

    recorder, summarizer = Recorder(), ScriptedModel("## Progress\nMuch was read.")
    config = CompactConfig(max_context_tokens=window, policy={"keep_recent_turns": 1}, summary={"min_score": 0})
    hooked(litellm, CompactManager(config, summarizer=summarizer, sinks=[recorder]))
    messages = chat("su" + "tr" * 120 + "au")  # too much for the second model, or for both when a window is given
    server.refuse = 1
    fallbacks = [where(server, model="openai/gpt-4")]
    asyncio.run(litellm.acompletion(messages=messages, fallbacks=fallbacks, max_retries=0, **where(server)))
    assert [event.data["model"] for event in judged(recorder)] == ["openai/gpt-4o", "openai/gpt-4"]
    assert {event.session_id for event in recorder.events} == {"litellm"}
    assert len(summarizer.asks) == 1
    assert len(server.bodies[-1]["messages"]) < len(messages)


def test_a_summarizer_that_goes_through_litellm_is_left_alone(litellm: Any, server: Server) -> None:
    from compact import CompactConfig
    from compact.testing import Recorder

    async def summarize(ask: Any) -> str:
        reply = await litellm.acompletion(messages=ask.messages, **where(server))
        return f"## Progress\n{reply.choices[0].message.content}"

    config = CompactConfig(max_context_tokens=2_000, policy={"hard_cap_buffer": 100}, summary={"min_score": 0})
    recorder = Recorder()
    hooked(litellm, CompactManager(config, summarizer=summarize, sinks=[recorder]))
    asyncio.run(litellm.acompletion(messages=chat("su" + "tr" * 20 + "au"), **where(server)))
    assert len(server.bodies) == 2
    assert {event.session_id for event in recorder.events} == {"litellm"}


# -- what goes out ---------------------------------------------------------------------------------------------------


def test_kept_messages_are_the_very_objects_and_the_callers_list_is_untouched(litellm: Any) -> None:
    manager, _, _ = managed(window=2_000)
    logger = hooked(litellm, manager)
    thought = {"type": "thinking", "thinking": "hm", "signature": "s1"}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    newest = [
        {"role": "user", "content": [{"type": "text", "text": "look"}, picture], "name": "ann"},
        litellm.Message(role="assistant", content="yes", reasoning_content="hm", thinking_blocks=[thought]),
        {"role": "user", "content": "go on", "cache_control": {"type": "ephemeral"}},
    ]
    messages = [*chat("su" + "tr" * 20 + "a"), *newest]
    before = list(messages)
    sent = logger.prepare(messages=messages, model="gpt-4o", temperature=0.5)
    assert sent["messages"][-1] is newest[-1]
    assert len(sent["messages"]) < len(messages) == len(before)
    assert all(one is other for one, other in zip(messages, before, strict=True))
    made = [m for m in sent["messages"] if not any(m is other for other in before)]
    assert len(made) == 1, "only the summary is new"
    assert sent["temperature"] == 0.5
    assert manager.restore("litellm")


@pytest.mark.parametrize("part", ["thinking", "document"])
def test_parts_of_anthropics_format_do_not_make_a_list_anthropics(litellm: Any, part: str) -> None:
    manager, _, recorder = managed(window=2_000)
    odd = {"role": "assistant", "content": [{"type": part, part: "hm"}, {"type": "text", "text": "yes"}]}
    messages = [*chat("su"), odd, *chat("u" + "tr" * 20 + "au", first=10)]
    for _ in range(2):
        sent = hooked(litellm, manager).prepare(messages=messages, model="gpt-4o")["messages"]
        assert problems("openai-chat", sent) == []
        assert sent[0] is messages[0]
        assert len(sent) < len(messages)
    assert len(manager.session("litellm").folds) == 1
    assert "sent_unchanged" not in [event.data.get("code") for event in recorder.events]


def test_a_pinned_message_stays_and_its_mark_is_not_sent(litellm: Any, server: Server) -> None:
    manager, _, _ = managed(window=2_000)
    hooked(litellm, manager)
    messages = chat("sua" + "tr" * 20 + "au")
    messages[1] |= {"content": "Never touch main.", "meta": {"protected": True}}
    asyncio.run(litellm.acompletion(messages=messages, **where(server)))
    (body,) = server.bodies
    assert manager.session("litellm").folds
    assert {"role": "user", "content": "Never touch main."} in body["messages"]
    assert messages[1]["meta"] == {"protected": True}


def test_a_list_that_cannot_be_compacted_goes_out_or_raises(litellm: Any, server: Server) -> None:
    manager, _, recorder = managed(window=200, policy={"hard_cap_buffer": 10, "oversized": "raise"})
    messages = [{**message, "meta": {"protected": True}} for message in chat("suauau")]
    hooked(litellm, manager)
    asyncio.run(litellm.acompletion(messages=messages, **where(server)))
    assert server.bodies[0]["messages"] == chat("suauau"), "whole, and without our marks"
    assert "sent_unchanged" in [event.data.get("code") for event in recorder.events]
    logger = hooked(litellm, manager, on_error="raise")
    with pytest.raises(InsufficientBudget):
        logger.prepare(messages=messages, **where(server))
    with pytest.raises(InsufficientBudget):
        asyncio.run(litellm.acompletion(messages=messages, **where(server)))


def test_other_kinds_of_request_pass(litellm: Any, server: Server) -> None:
    manager, _, recorder = managed()
    logger = hooked(litellm, manager)
    at = where(server, model="openai/text-embedding-3-small")
    asyncio.run(litellm.aembedding(input=["a text"], **at))
    data = {"model": "big", "input": ["a text"]}
    assert asyncio.run(logger.async_pre_call_hook(None, None, data, "aembedding")) is None
    assert recorder.events == []


def test_a_list_passed_by_position_goes_out_and_this_is_said(litellm: Any, server: Server) -> None:
    manager, _, recorder = managed()
    hooked(litellm, manager)
    at = where(server)
    asyncio.run(litellm.acompletion(at.pop("model"), chat("su"), **at))
    assert len(server.bodies[0]["messages"]) == 2
    (warning,) = recorder.events
    assert "messages=" in warning.data["message"]
