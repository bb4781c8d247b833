"""Compaction inside Google ADK: the real package, with a model of the test's own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from agent_story import SYSTEM, Play, judge, managed, story
from project_paths import environment

from compact import InsufficientBudget

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def adk() -> SimpleNamespace:
    """ADK, and a model of ours that answers with what a function returns and keeps its requests."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    from google.adk.agents import LlmAgent, RunConfig
    from google.adk.agents.run_config import StreamingMode
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.models.lite_llm import _content_to_message_param
    from google.adk.runners import InMemoryRunner
    from google.adk.tools.agent_tool import AgentTool
    from google.genai import types
    from pydantic import Field

    from compact.adapters import google_adk

    class Model(BaseLlm):
        """Answers with `answer(request)`: a content, and the tokens it counted or None."""

        answer: Callable[[Any], Any]
        requests: list[Any] = Field(default_factory=list)

        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[Any]:
            self.requests.append(list(llm_request.contents))
            content, counted = await self.answer(llm_request)
            usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=counted) if counted else None
            if stream:
                words = types.Content(role="model", parts=[types.Part(text="…")])
                yield LlmResponse(content=words, partial=True, usage_metadata=usage)
            yield LlmResponse(content=content, usage_metadata=usage)

    return SimpleNamespace(
        adapter=google_adk,
        types=types,
        Agent=LlmAgent,
        AgentTool=AgentTool,
        Model=Model,
        Runner=InMemoryRunner,
        RunConfig=RunConfig,
        StreamingMode=StreamingMode,
        to_chat=_content_to_message_param,
    )


# -- what Gemini accepts -----------------------------------------------------------------------------------------------


def gemini_problems(contents: Sequence[Any]) -> list[str]:
    """What Gemini would refuse, one sentence each; written from its rules, knowing nothing of the adapter.

    The first turn is the user's; nothing is empty; a step with calls comes right behind a turn of the user or of
    results; all results of a step, and no others, stand in the one content right behind it.
    """
    return list(_gemini(contents)) if contents else ["the list is empty"]


def _gemini(contents: Sequence[Any]) -> Iterator[str]:
    asked: list[tuple[str | None, str]] = []
    for at, content in enumerate(contents):
        parts = content.parts or []
        calls = [part.function_call for part in parts if part.function_call]
        results = [part.function_response for part in parts if part.function_response]
        if content.role not in ("user", "model"):
            yield f"content {at} has the role {content.role}"
        if not parts or not all(part.model_dump(exclude_none=True) for part in parts):
            yield f"content {at} has nothing in it, or an empty part"
        if at == 0 and content.role != "user":
            yield "the first content is not a user's"
        if calls and (content.role != "model" or at == 0 or contents[at - 1].role != "user"):
            yield f"content {at} calls a function and does not stand behind a user's turn or results"
        if sorted(asked, key=str) != sorted(((result.id, result.name) for result in results), key=str):
            yield f"content {at} has the results {results} for the calls {asked}"
        if results and content.role != "user":
            yield f"content {at} has results in the role {content.role}"
        asked = [(call.id, call.name) for call in calls]


def test_the_judge_of_gemini_lists_sees_what_is_wrong(adk: Any) -> None:
    """Each rule has a list that breaks it."""
    user, model = text(adk, "user", "hello"), text(adk, "model", "hi")
    step = content(adk, "model", call(adk, "a"), call(adk, "b"))
    both = content(adk, "user", result(adk, "a", "1"), result(adk, "b", "2"))
    one, other = content(adk, "user", result(adk, "a", "1")), content(adk, "user", result(adk, "b", "2"))
    for good in ([user], [user, model, user], [user, step, both], [user, step, both, step, both, model], [user, step]):
        assert [] == gemini_problems(good)
    for bad in ([], [model], [step, both], [user, model, step, both], [user, step, one], [user, step, one, other]):
        assert gemini_problems(bad)
    for bad in ([user, both], [user, step, user], [user, content(adk, "model")], [text(adk, "system", "no")]):
        assert gemini_problems(bad)


# -- builders ----------------------------------------------------------------------------------------------------------


def content(adk: Any, role: str, *parts: Any) -> Any:
    return adk.types.Content(role=role, parts=list(parts))


def text(adk: Any, role: str, said: str, **fields: Any) -> Any:
    return content(adk, role, adk.types.Part(text=said, **fields))


def call(adk: Any, name: str, id: str | None = None, **arguments: Any) -> Any:
    return adk.types.Part(function_call=adk.types.FunctionCall(id=id, name=name, args=arguments))


def result(adk: Any, name: str, said: Any, id: str | None = None) -> Any:
    response = said if isinstance(said, dict) else {"result": said}
    return adk.types.Part(function_response=adk.types.FunctionResponse(id=id, name=name, response=response))


def player(adk: Any, play: Play, ids: bool = True, counted: int | None = None) -> Any:
    """A model that plays the story. What it gets is judged by Gemini's rules, and as ADK sends it through LiteLLM."""

    async def answer(request: Any) -> tuple[Any, int | None]:
        assert [] == gemini_problems(request.contents)
        sent: list[Any] = []
        for each in request.contents:
            made = await adk.to_chat(each)
            sent += made if isinstance(made, list) else [made]
        chat = [json.loads(json.dumps(dict(message), default=str)) for message in sent]
        for message in chat:
            if message["role"] == "tool":
                message["tool_call_id"] = message["tool_call_id"] or ""  # older releases say null for no id
        assert SYSTEM in request.config.system_instruction
        step = play.answer("openai-chat", chat, request.config.tools)
        parts = [adk.types.Part(text=step.reasoning, thought=True)] if step.reasoning else []
        parts += [adk.types.Part(text=step.text)] if step.text else []
        parts += [call(adk, each.name, each.id if ids else None, **each.arguments) for each in step.calls]
        return adk.types.Content(role="model", parts=parts), counted

    return adk.Model(model="gpt-4o", answer=answer)


def tools(play: Play) -> list[Callable[..., Any]]:
    def read_file(path: str) -> str:
        """Read a file."""
        return play.result("read_file", {"path": path})

    async def run(command: str) -> str:
        """Run a command."""
        return play.result("run", {"command": command})

    def search(query: str) -> dict[str, str]:
        """Look for words."""
        return {"found": play.result("search", {"query": query})}

    return [read_file, run, search]


def says(adk: Any, *answers: Any) -> Any:
    """A model that gives these answers in turn; a text or a content."""
    left = list(answers)

    async def answer(request: Any) -> tuple[Any, None]:
        said = left.pop(0)
        return (text(adk, "model", said) if isinstance(said, str) else said), None

    return adk.Model(model="gpt-4o", answer=answer)


async def converse(adk: Any, agent: Any, wishes: Sequence[Any], plugins: Sequence[Any] = (), **run: Any) -> Any:
    """Run an agent with each wish in turn, after the contents in `past`; the session at the end."""
    from google.adk.events.event import Event

    runner = adk.Runner(agent=agent, app_name="app", plugins=list(plugins))
    session = await runner.session_service.create_session(app_name="app", user_id="u", session_id="s")
    for each in run.pop("past", ()):
        author = agent.name if each.role == "model" else "user"
        await runner.session_service.append_event(session, Event(author=author, content=each))
    for wish in wishes:
        said = text(adk, "user", wish) if isinstance(wish, str) else wish
        async for _ in runner.run_async(user_id="u", session_id="s", new_message=said, **run):
            pass
    return await runner.session_service.get_session(app_name="app", user_id="u", session_id="s")


def spy(adk: Any, edit: Callable[[Any], None] = lambda request: None) -> Any:
    """A plugin to stand before ours: keeps the contents that ADK made, and may edit the request."""
    from google.adk.plugins.base_plugin import BasePlugin

    class Spy(BasePlugin):
        def __init__(self) -> None:
            super().__init__(name="spy")
            self.given: list[list[Any]] = []

        async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
            edit(llm_request)
            self.given.append(list(llm_request.contents))

    return Spy()


# -- the story ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("calls", "plugin", "ids", "stream"), [(60, True, True, False), (20, False, False, True)])
def test_the_story_goes_through_a_small_window(adk: Any, calls: int, plugin: bool, ids: bool, stream: bool) -> None:
    """60 model calls: every list valid and within the window, one summarizer call per fold, and no event is lost.

    As a plugin and as callbacks, with ids of the model's own and with those that ADK takes out, streaming and not.
    """
    play = story(calls)
    manager, summarizer, _ = managed()
    before, callbacks = spy(adk), {}
    plugins = [before]
    if plugin:
        plugins.append(adk.adapter.CompactPlugin(manager))
    else:
        hook = adk.adapter.compact_callback(manager)
        callbacks = {"before_model_callback": hook.before, "after_model_callback": hook.after}
    agent = adk.Agent(name="root", model=player(adk, play, ids), instruction=SYSTEM, tools=tools(play), **callbacks)
    run_config = adk.RunConfig(streaming_mode=adk.StreamingMode.SSE if stream else adk.StreamingMode.NONE)
    session = asyncio.run(converse(adk, agent, [part.user for part in play.rounds], plugins, run_config=run_config))
    judge(play, manager, "s", folds=calls // 20, asked=len(summarizer.asks))
    for given, received in zip(before.given, agent.model.requests, strict=True):
        new = [each for each in received if not any(each is one for one in given)]
        assert len(new) <= 1
        assert all("COMPACT-SUMMARY" in each.parts[0].text for each in new)
    parts = [part for event in session.events for part in event.content.parts]
    assert sum(len(step.calls) for step in play.steps) == sum(bool(part.function_call) for part in parts)
    told = {str(part.function_response.response) for part in parts if part.function_response}
    assert len(play.results) == len(told)
    assert not any("COMPACT-SUMMARY" in (part.text or "") for part in parts)


# -- without loss ------------------------------------------------------------------------------------------------------


def every_kind(adk: Any) -> list[Any]:
    """A conversation with every kind of part, none of them plain."""
    t = adk.types
    image = t.Part(inline_data=t.Blob(data=b"\x89PNG" * 9, mime_type="image/png"))
    seen = t.FunctionResponse(
        name="look",
        response={"result": "a chart"},
        parts=[t.FunctionResponsePart(inline_data=t.FunctionResponseBlob(data=b"\x01" * 9, mime_type="image/png"))],
    )
    return [
        content(
            adk,
            "user",
            t.Part(text="What is this?"),
            image,
            t.Part(inline_data=t.Blob(data=b"RIFF", mime_type="audio/wav", display_name="a.wav")),
            t.Part(file_data=t.FileData(file_uri="gs://bucket/report.pdf", mime_type="application/pdf")),
        ),
        content(
            adk,
            "model",
            t.Part(text="First the chart,", thought=True, thought_signature=b"s1"),
            t.Part(text="then the file.", thought=True),
            t.Part(text="I look."),
            t.Part(executable_code=t.ExecutableCode(code="print(1)", language="PYTHON")),
            t.Part(code_execution_result=t.CodeExecutionResult(outcome="OUTCOME_OK", output="1")),
            t.Part(function_call=t.FunctionCall(name="look", args={"at": 1}), thought_signature=b"s2"),
            call(adk, "look", at=2, deep={"er": [1, None]}),
        ),
        content(adk, "user", result(adk, "look", {"rows": [1, 2], "ok": True}), t.Part(function_response=seen)),
        content(adk, "model", t.Part(thought_signature=b"s3"), t.Part(text="It is"), t.Part(text="a chart.")),
        text(adk, "user", "And now?", part_metadata={"of": "the host"}),
        content(adk, "model", call(adk, "look", "own_1")),
        content(adk, "user", result(adk, "look", '{"text": "that is JSON"}', "own_1"), t.Part(text="Be quick.")),
        text(adk, "model", "Done."),
    ]


def test_every_kind_of_content_goes_over_the_border_and_back(adk: Any) -> None:
    """What chat has no field for is beside it: what was written into an archive says the same when it comes back."""
    adapter, contents = adk.adapter, every_kind(adk)
    for turn in adapter.identify_parts(contents):
        wires = json.loads(json.dumps(list(adapter.read(turn))))
        written = [adapter.write([wire], None) for wire in wires]
        assert turn.content.parts == [part for each in written for part in each.parts]
    wires = [wire for turn in adapter.identify_parts(contents) for wire in adapter.read(turn)]
    asked = [call["id"] for wire in wires for call in wire.get("tool_calls", ())]
    assert asked == [wire["tool_call_id"] for wire in wires if wire["role"] == "tool"]
    assert 3 == len(set(asked))
    # A function may return anything: what JSON has no form for is text.
    (turn,) = adapter.identify_parts([content(adk, "user", result(adk, "look", {"rows": [object()]}))])
    assert "<object object" in json.dumps(list(adapter.read(turn)))
    summary = adapter.write([{"role": "assistant", "content": "so far"}], None)
    assert ("user", "so far") == (summary.role, summary.parts[0].text)


@pytest.mark.parametrize(("window", "turns", "new"), [(100_000, 1, 0), (8_000, 4, 1), (8_000, 1, 2)])
def test_kept_contents_are_the_very_same_objects(adk: Any, window: int, turns: int, new: int) -> None:
    """Nothing due: the request's own. A fold: its own and the summary. Half a content kept: its own parts."""
    manager, _, _ = managed(window, policy={"keep_recent_turns": turns})
    before, past = spy(adk), [text(adk, "user", "word " * 5_500), text(adk, "model", "Yes."), *every_kind(adk)]
    agent = adk.Agent(name="root", model=says(adk, "ok"))
    plugins = [before, adk.adapter.CompactPlugin(manager, on_error="raise")]
    asyncio.run(converse(adk, agent, ["Go on."], plugins, past=past))
    (given,), (received,) = before.given, agent.model.requests
    assert bool(new) == len(manager.session("s").folds)
    assert [] == gemini_problems(received)
    kept = {id(each) for each in received} & {id(each) for each in given}
    assert len(received) - len(kept) == new
    assert [id(each) for each in received if id(each) in kept] == [id(each) for each in given if id(each) in kept]
    parts = {id(part): part for each in given for part in each.parts}
    assert bool(new) == sum(id(part) not in parts for each in received for part in each.parts)
    assert any(part.thought_signature == b"s2" for each in received for part in each.parts)


def test_a_long_result_is_cut_and_its_step_stays_whole(adk: Any, tmp_path: Any) -> None:
    """The results of a step stay in one content: at once, at the next request, and for whoever reads the archive."""

    def read(part: int) -> Any:
        return "word " * 9_000 if part == 1 else {"lines": 3}

    step = content(adk, "model", call(adk, "read", part=1), call(adk, "read", part=2))
    past: list[Any] = []
    for answers, wishes in (([step, "one", "two"], ["Read both.", "Go on."]), (["three"], ["And on."])):
        manager, _, _ = managed(storage={"adapter": "fs", "path": str(tmp_path)})
        before, agent = spy(adk), adk.Agent(name="root", model=says(adk, *answers), tools=[read])
        plugins = [before, adk.adapter.CompactPlugin(manager, on_error="raise")]
        session = asyncio.run(converse(adk, agent, wishes, plugins, past=past))
        past = [event.content for event in session.events]
        for given, received in list(zip(before.given, agent.model.requests, strict=True))[-2:]:
            assert [] == gemini_problems(received)
            (results,) = [each for each in received if each.parts[0].function_response]
            (origin,) = [each for each in given if each.parts[0].function_response]
            cut, whole = results.parts
            assert "tokens cut here" in cut.function_response.response["result"]
            assert whole is origin.parts[1]
        assert 1 == len(manager.session("s").folds)
    assert "word " * 9_000 == past[2].parts[0].function_response.response["result"]


@pytest.mark.parametrize("words", [[], ["Be quick."]])
def test_a_list_that_came_broken_leaves_valid(adk: Any, words: list[str]) -> None:
    """Somebody took results out of the request; when it is folded, Gemini finds one for each call, in one content."""

    def lose(request: Any) -> None:
        step = next(each for each in request.contents if each.parts[0].function_response)
        step.parts = [*step.parts[:1], *(adk.types.Part(text=each) for each in words)]

    manager, _, _ = managed()
    past = [
        text(adk, "user", "word " * 5_500),
        text(adk, "model", "Yes."),
        text(adk, "user", "Now read both, and write."),
        content(adk, "model", call(adk, "read", at=1), call(adk, "read", at=2), call(adk, "write", "own", at=3)),
        content(
            adk, "user", result(adk, "read", "one"), result(adk, "read", "two"), result(adk, "write", "three", "own")
        ),
    ]
    agent = adk.Agent(name="root", model=says(adk, "ok"))
    asyncio.run(converse(adk, agent, ["Go on."], [spy(adk, lose), adk.adapter.CompactPlugin(manager)], past=past))
    (received,) = agent.model.requests
    assert 1 == len(manager.session("s").folds)
    assert [] == gemini_problems(received)
    assert 2 == str(received).count("no result was recorded")


def test_a_plugin_and_a_callback_at_once_do_it_once(adk: Any) -> None:
    """What the plugin wrote is no new conversation."""
    play, (manager, summarizer, _) = story(20), managed()
    hook = adk.adapter.compact_callback(manager)
    model, callbacks = player(adk, play, ids=False), {"before_model_callback": hook.before}
    agent = adk.Agent(name="root", model=model, instruction=SYSTEM, tools=tools(play), **callbacks)
    asyncio.run(converse(adk, agent, [part.user for part in play.rounds], [adk.adapter.CompactPlugin(manager)]))
    judge(play, manager, "s", folds=1, asked=len(summarizer.asks))
    assert 1 == len(summarizer.asks)


def test_pinned_contents_stay(adk: Any) -> None:
    """By `part_metadata` on a part, whoever said it, and the list still begins with a user's turn."""
    manager, _, _ = managed()
    pin = {"part_metadata": {"protected": True}}
    words = [text(adk, "user", f"Note {number}: " + "word " * 2_000) for number in range(8)]
    answers = ["fine"] * 8
    model = says(adk, text(adk, "model", "The code is 4711.", **pin), *answers)
    agent = adk.Agent(name="root", model=model, before_model_callback=adk.adapter.compact_callback(manager).before)
    runner = adk.Runner(agent=agent, app_name="app")
    asyncio.run(runner.session_service.create_session(app_name="app", user_id="u", session_id="s"))
    for wish in [text(adk, "user", "What is the code?"), *words]:
        list(runner.run(user_id="u", session_id="s", new_message=wish))  # the runner without async
    assert len(manager.session("s").folds) >= 2
    last = agent.model.requests[-1]
    assert [] == gemini_problems(last)
    said = [part.text for each in last for part in each.parts]
    assert "The code is 4711." in said
    assert "What is the code?" not in said


# -- what the meter gets -----------------------------------------------------------------------------------------------


def test_instructions_tools_model_and_output_limit_reach_the_meter(adk: Any) -> None:
    """All that is in the request counts."""
    play, (manager, _, recorder) = story(), managed(100_000)
    agent = adk.Agent(
        name="root",
        model=says(adk, "ok"),
        instruction=SYSTEM,
        tools=tools(play),
        generate_content_config=adk.types.GenerateContentConfig(max_output_tokens=7_000),
    )
    asyncio.run(converse(adk, agent, ["Go."], [adk.adapter.CompactPlugin(manager)]))
    (event,) = recorder["token_estimate"]
    assert "gpt-4o" == event.data["model"]
    assert 20 < event.data["breakdown"]["system"] < 60
    assert 60 < event.data["breakdown"]["tools_schema"] < 160
    assert 100_000 - 200 - 7_000 == recorder["trigger_decision"][0].data["budget"]


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_provider_counted_is_observed_once(adk: Any, stream: bool) -> None:
    """A request holds more than we see, and the next estimate knows; an answer that says so twice is heard once."""
    play, (manager, _, recorder) = story(calls=2, rounds=1), managed(100_000)
    hook = adk.adapter.compact_callback(manager)
    agent = adk.Agent(
        name="root",
        model=player(adk, play, counted=5_000),
        instruction=SYSTEM,
        tools=tools(play),
        before_model_callback=hook.before,
        after_model_callback=hook.after if stream else [hook.after, hook.after],
    )
    run_config = adk.RunConfig(streaming_mode=adk.StreamingMode.SSE if stream else adk.StreamingMode.NONE)
    asyncio.run(converse(adk, agent, [play.rounds[0].user], run_config=run_config))
    first, second = (event.data["t_est"] for event in recorder["token_estimate"])
    assert first < 500
    assert 5_000 < second < 6_000


# -- whose conversation ------------------------------------------------------------------------------------------------


def family(adk: Any) -> Any:
    """An agent that asks an agent as a tool, then one of its own for a single turn, and hands over to a third."""
    child = adk.Agent(name="child", model=says(adk, "the child says", "again"))
    single = adk.Agent(name="single", description="one turn", mode="single_turn", model=says(adk, "once"))
    other = adk.Agent(name="other", description="goes on", model=says(adk, "I go on."))
    steps = [call(adk, "child", request="a"), call(adk, "single", request="b"), call(adk, "child", request="c")]
    steps.append(call(adk, "transfer_to_agent", agent_name="other"))
    model = says(adk, *(content(adk, "model", step) for step in steps))
    return adk.Agent(name="root", model=model, tools=[adk.AgentTool(child)], sub_agents=[single, other])


def test_agents_are_kept_apart(adk: Any) -> None:
    """The root agent has ADK's session id or the name it is given; every other conversation has its own."""

    def named(context: Any) -> str:
        return f"user-{context.user_id}"

    for session_id, name in ((None, "s"), ("mine", "mine"), (named, "user-u")):
        manager, _, recorder = managed(100_000)
        asyncio.run(converse(adk, family(adk), ["Go."], [adk.adapter.CompactPlugin(manager, session_id)]))
        seen = [event.session_id for event in recorder["token_estimate"]]
        assert [name] * 4 == seen[::2]
        assert f"{name}.other" == seen[-1]
        assert len({seen[1], seen[3], seen[5], name}) == 4
        assert seen[3].startswith(f"{name}.single.single@")
        assert session_id is None or seen[1].startswith(f"{name}.child.")


def test_it_stands_aside_when_the_server_holds_the_conversation(adk: Any) -> None:
    """The Interactions API gets the newest contents only; they are no conversation to be folded."""

    def chained(request: Any) -> None:
        request.previous_interaction_id = "earlier"

    manager, _, recorder = managed()
    agent = adk.Agent(name="root", model=says(adk, "ok"))
    asyncio.run(converse(adk, agent, ["word " * 9_000], [spy(adk, chained), adk.adapter.CompactPlugin(manager)]))
    assert [] == recorder.events


# -- errors and spans --------------------------------------------------------------------------------------------------


def test_what_cannot_be_compacted_goes_out_or_ends_the_run(adk: Any) -> None:
    """By default the request is sent as it is and a warning says so; or the error reaches the caller."""
    manager, _, recorder = managed()

    def agent(**more: Any) -> Any:
        return adk.Agent(name="root", model=says(adk, "ok"), instruction="word " * 9_000, **more)

    one = agent()
    asyncio.run(converse(adk, one, ["Go."], [adk.adapter.CompactPlugin(manager)]))
    assert 1 == len(one.model.requests)
    assert ["sent_unchanged"] == [e.data["code"] for e in recorder["warning"] if e.data["code"] == "sent_unchanged"]
    hook = adk.adapter.compact_callback(manager, on_error="raise")
    with pytest.raises(InsufficientBudget):
        asyncio.run(converse(adk, agent(before_model_callback=hook.before), ["Go."]))
    with pytest.raises(RuntimeError, match="plugin 'compact'") as caught:  # what ADK makes of a plugin's error
        asyncio.run(converse(adk, agent(), ["Go."], [adk.adapter.CompactPlugin(manager, on_error="raise")]))
    assert isinstance(caught.value.__cause__, InsufficientBudget)


SPANS = """
import asyncio, os
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, Part
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from agent_story import managed
from compact.adapters.google_adk import CompactPlugin

class Model(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        yield LlmResponse(content=Content(role="model", parts=[Part(text="ok")]))

async def main():
    manager, _, _ = managed(storage={"adapter": "none"})
    runner = InMemoryRunner(agent=LlmAgent(name="root", model=Model(model="m")), plugins=[CompactPlugin(manager)])
    session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
    for words in (10, 4_000, 4_000):
        said = Content(role="user", parts=[Part(text="word " * words)])
        async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=said):
            pass

exporter = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
for version in ("1", "2"):
    os.environ["ADK_TELEMETRY_SCHEMA_VERSION_OPT_IN"] = version
    exporter.clear()
    asyncio.run(main())
    for span in sorted(exporter.get_finished_spans(), key=lambda span: span.start_time):
        if span.name == "call_llm" or "gen_ai.conversation.compacted" in span.attributes:
            print(version, span.name, span.attributes.get("gen_ai.conversation.compacted"))
"""


def test_the_span_of_the_model_says_that_its_conversation_was_compacted() -> None:
    """Where it is open before the call, which is ADK's older telemetry; never the span of a whole agent."""
    command = [sys.executable, "-W", "ignore", "-c", SPANS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    told = [line.split(" ", 1) for line in done.stdout.splitlines()]
    marked = ["call_llm None", "call_llm None", "call_llm True"]
    assert marked == [what for version, what in told if version == "1"], done.stderr
    assert [what for version, what in told if version == "2"] in ([], marked)  # older releases have no version 2
