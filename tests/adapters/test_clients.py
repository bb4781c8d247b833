"""The clients of OpenAI and Anthropic, unmodified, over HTTP, with a server that is as strict as theirs."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from agent_story import RULE, WINDOW, judge, managed, story
from provider_server import APIS, SESSION, Server, ask, async_client_of, client_of, converse, each_api, serving

from compact import InsufficientBudget
from compact.errors import ConfigError
from compact.testing import chat

pytestmark = pytest.mark.slow


def compacting(api: Any, client: Any, *given: Any, **settings: Any) -> Any:
    """The wrapper of the client's module."""
    if api.package == "openai":
        from compact.adapters.openai import compacting as wrapped
    else:
        from compact.adapters.anthropic import compacting as wrapped
    return wrapped(client, *given, **settings)


def say(api: Any, client: Any, messages: list[Any], **more: Any) -> Any:
    """One answer, by `create`."""
    return api.resource(client).create(**{**api.asks, api.field: messages, **more})


def history(api: Any, pattern: str = "utr" * 9 + "u", words: int = 120) -> list[dict[str, Any]]:
    """A conversation in the format of an API."""
    return chat(pattern, words=words, dialect=api.dialect)


# -- the story ---------------------------------------------------------------------------------------------------------


@each_api
@pytest.mark.parametrize(
    ("way", "calls", "window", "folds"),
    [
        ("create", 60, WINDOW, 3),
        ("stream", 12, 2_000, 2),
        ("async create", 12, 2_000, 2),
        ("async stream", 12, 2_000, 2),
    ],
)
def test_an_agent_on_a_plain_client_stays_inside_the_window(
    api: Any, way: str, calls: int, window: int, folds: int
) -> None:
    """A long day through a small window: every request accepted, one summary per fold, the caller's list whole."""
    play = story(calls)
    manager, summarizer, _ = managed(window)

    async def run_async(server: Server) -> list[Any]:
        async with async_client_of(api, server) as client:
            return await converse(api, compacting(api, client, manager, "story"), way, play)

    with serving(play=play, window=window) as server, manager:
        if way.startswith("async"):
            messages = asyncio.run(run_async(server))
        else:
            with client_of(api, server) as client:
                messages = asyncio.run(converse(api, compacting(api, client, manager, "story"), way, play))
        assert [] == server.refused
        judge(play, manager, "story", folds=folds, asked=len(summarizer.asks))
        assert RULE in str(play.received[-1].messages)
        told = json.dumps(messages, default=lambda model: model.model_dump())
        assert all(json.dumps(text)[1:-1] in told for text in play.results.values()), "the caller's list lost something"


# -- what arrives ------------------------------------------------------------------------------------------------------


@each_api
def test_what_is_kept_arrives_as_a_plain_client_sends_it(api: Any) -> None:
    """Dicts and SDK objects, media, thinking, cache breakpoints, iterators: the same bytes, less what folded."""
    manager, *_ = managed(window=6_000)
    with serving(play=story(calls=4, rounds=1)) as server, client_of(api, server) as client:
        said = [api.said(say(api, client, history(api, "u")))[0] for _ in range(2)]
        calls = [(call.id, "fine") for step in server.play.steps[:2] for call in step.calls]
        first, second = calls[: len(server.play.steps[0].calls)], calls[len(server.play.steps[0].calls) :]
        new = [*said[0], *api.results(first), api.picture(), *said[1], *api.results(second)]
        messages = [*history(api, words=250), *new]
        plain, wrapped = say(api, client, messages), compacting(api, client, manager, "s")
        sent = server.bodies[-1]
        answer = say(api, wrapped, messages if api.field == "input" else iter(messages), tools=iter(api.tools))
        assert type(plain) is type(answer)
        compacted = server.bodies[-1]
    assert {**compacted, api.field: sent[api.field]} == sent
    kept = [message for message in compacted[api.field] if message in sent[api.field]]
    (summary,) = [message for message in compacted[api.field] if message not in kept]
    assert "Progress" in str(summary)
    assert kept[-len(new) :] == sent[api.field][-len(new) :]
    assert [] == server.refused


@each_api
def test_a_short_list_arrives_untouched(api: Any) -> None:
    """Nothing is due, so the wrapped client sends what the plain one does."""
    manager, *_ = managed()
    with serving() as server, client_of(api, server) as client:
        for each in (client, compacting(api, client, manager)):
            say(api, each, history(api, "utrau"))
    assert server.bodies[0] == server.bodies[1]


@each_api
def test_instructions_tools_model_and_room_for_the_answer_count(api: Any) -> None:
    """What stands beside the messages weighs, and the model and its own limit are those of the request."""
    manager, _, recorder = managed(window=20_000)
    said = {api.system: "Mind the gap. " * 2_000} if api.system else {}
    messages = history(api, "u") if api.system else [{"role": "system", "content": "Mind the gap. " * 2_000}]
    apart = {"extra_headers": {SESSION: "another"}}
    with serving() as server, client_of(api, server) as client:
        wrapped = compacting(api, client, manager, "s")
        for more in (
            said,
            {**said, "tools": api.tools * 20, **apart},
            {api.room[0]: 5_100, **apart},
            {"extra_body": {**said, api.room[0]: 5_100}},
        ):
            say(api, wrapped, [*messages, *history(api, "u")], **more)
    one, two, _, extra = (event.data for event in recorder["token_estimate"])
    assert one["model"] == api.asks["model"]
    assert one["t_est"] > 8_000
    assert extra["t_est"] > 8_000
    assert two["breakdown"]["tools_schema"] > one["breakdown"]["tools_schema"] + 300
    usual, _, roomy, extra = (event.data["budget"] for event in recorder["trigger_decision"])
    assert usual - 5_000 == roomy == extra
    assert [] == server.refused


@pytest.mark.parametrize("api", [APIS["responses"], APIS["messages"]], ids=["responses", "messages"])
def test_a_prompt_that_changes_at_every_call_costs_no_second_summary(api: Any) -> None:
    """A clock in the instructions beside the messages, and cache breakpoints that move along."""
    manager, summarizer, _ = managed(window=3_000)
    messages = history(api)
    with serving() as server, client_of(api, server) as client:
        wrapped = compacting(api, client, manager, "s")
        for minute in range(3):
            sent = [api.marked(message) if at % 3 == minute else message for at, message in enumerate(messages)]
            say(api, wrapped, sent, **{api.system: f"It is 10:0{minute}."})
            messages += history(api, "au", words=5)
    assert [f"It is 10:0{minute}." for minute in range(3)] == [body[api.system] for body in server.bodies]
    assert 1 == len(summarizer.asks) == len(manager.session("s").folds)


@each_api
def test_a_pinned_message_stays_and_the_mark_is_not_sent(api: Any) -> None:
    """`meta` is ours: providers refuse fields that they do not know."""
    manager, *_ = managed(window=3_000)
    messages = history(api, "p" + "utr" * 9 + "u")
    with serving() as server, client_of(api, server) as client:
        say(api, compacting(api, client, manager, "s"), messages)
    assert [] == server.refused
    assert {key: value for key, value in messages[0].items() if key != "meta"} in server.bodies[0][api.field]
    assert messages[0]["meta"] == {"protected": True}
    assert 1 == len(manager.session("s").folds)


# -- what comes back ---------------------------------------------------------------------------------------------------


@each_api
@pytest.mark.parametrize("way", ["create", "stream", "raw", "chunks", "async create", "async chunks"])
def test_what_the_provider_counts_calibrates_the_meter(api: Any, way: str) -> None:
    """It counts a third more than we do, and says so; the next estimate is what it said."""
    manager, _, recorder = managed(window=100_000)

    async def run(client: Any) -> None:
        wrapped = compacting(api, client, manager, "s")
        resource, asks = api.resource(wrapped), {**api.asks, api.field: history(api)}
        if way == "raw":
            resource.with_raw_response.create(**asks).parse()
        elif way == "chunks":
            with resource.create(**asks, stream=True, **api.streaming) as stream:
                list(stream)
        elif way == "async chunks":
            async for _ in await resource.create(**asks, stream=True, **api.streaming):
                pass
        else:
            await ask(api, wrapped, way, history(api))

    async def run_async(server: Server) -> None:
        async with async_client_of(api, server) as client:
            await run(client)

    with serving(inflation=1.33) as server, client_of(api, server) as client:
        asyncio.run(run_async(server) if way.startswith("async") else run(client))
        said = server.size(api.dialect, server.bodies[0], server.bodies[0][api.field])
        say(api, compacting(api, client, manager, "s"), history(api))
    estimates = [event.data["t_est"] for event in recorder["token_estimate"]]
    assert estimates[1] == pytest.approx(said, rel=0.01)


@each_api
def test_a_count_is_heard_only_for_the_list_it_belongs_to(api: Any) -> None:
    """Calls of one session overlap, or the server edits the list first: such a count says nothing of the newest."""
    manager, _, recorder = managed(window=100_000)
    short, long = history(api)[:1], history(api)
    with serving() as server, client_of(api, server) as client:
        wrapped = compacting(api, client, manager, "s")

        def begin(messages: list[Any]) -> Any:
            return api.resource(wrapped).create(**api.asks, **{api.field: messages}, **api.streaming, stream=True)

        for first, second in ((short, long), (long, short)):
            earlier, later = begin(first), begin(second)
            list(earlier)
            later.close()
        server.inflation = 3
        say(api, wrapped, short, extra_body={"context_management": {"edits": []}})
        say(api, wrapped, short)
    estimates = [event.data["t_est"] for event in recorder["token_estimate"]]
    assert estimates == [estimates[at] for at in (0, 1, 1, 0, 0, 0)]


@each_api
def test_the_retries_of_the_client_are_one_call(api: Any) -> None:
    """A busy provider gets the same request again: weighed once, folded once."""
    manager, summarizer, recorder = managed(window=3_000)
    with serving(busy=2) as server, client_of(api, server) as client:
        say(api, compacting(api, client, manager, "s").with_options(max_retries=2), history(api))
    assert server.bodies[0] == server.bodies[1] == server.bodies[2]
    assert 1 == len(summarizer.asks) == len(recorder["token_estimate"])


@each_api
@pytest.mark.parametrize("sync", [True, False])
def test_a_request_that_is_too_long_is_sent_once_more(api: Any, sync: bool) -> None:
    """The provider's window is smaller than configured: refused, then accepted, and no summarizer was asked."""
    manager, summarizer, _ = managed(window=50_000)
    messages = history(api, "p" + "utr" * 9 + "u")

    async def run_async(server: Server) -> None:
        async with async_client_of(api, server) as client:
            await ask(api, compacting(api, client, manager, "s"), "async stream", messages)

    with serving(window=2_500) as server, client_of(api, server) as client:
        if sync:
            say(api, compacting(api, client, manager, "s"), messages)
        else:
            asyncio.run(run_async(server))
        assert 2 == len(server.bodies) == len(server.refused) + 1
        assert [] == summarizer.asks
        assert "overflow" in manager.session("s").folds[0].reasons
        say(api, compacting(api, client, manager, "s"), messages)
        assert 3 == len(server.bodies)


@each_api
def test_other_refusals_reach_the_caller(api: Any) -> None:
    """What is wrong for another reason, cannot shrink, or is not to be tried again."""
    import anthropic
    import openai

    manager, *_ = managed(window=50_000)
    broken = [*history(api, "u"), *api.results([("nobody", "asked")])]
    refused: Any = (openai.BadRequestError, anthropic.BadRequestError)
    with serving(window=2_500) as server, client_of(api, server) as client:
        for messages, settings in ((history(api), {"recover": False}), (history(api, "u", words=3_000), {})):
            with pytest.raises(refused, match="maximum"):
                say(api, compacting(api, client, manager, **settings), messages)
        assert 2 == len(server.bodies)
        with pytest.raises(refused, match="orphan"):
            say(api, client, broken)


@each_api
def test_a_list_that_cannot_be_compacted_goes_out_or_ends_the_call(api: Any) -> None:
    """By choice; either way the manager's own error says why."""
    manager, _, recorder = managed(window=2_000, policy={"oversized": "raise"})
    messages = history(api, "p", words=2_000)
    with serving() as server, client_of(api, server) as client:
        with pytest.raises(InsufficientBudget):
            say(api, compacting(api, client, manager, "s", "raise"), messages)
        assert [] == server.bodies
        messages[0].pop("meta")
        say(api, compacting(api, client, manager, "s"), [*messages, *history(api, "u", words=2_000)])
    assert "sent_unchanged" in [event.data["code"] for event in recorder["warning"]]


# -- whose conversation ------------------------------------------------------------------------------------------------


@each_api
def test_sessions_by_name_by_call_by_function_and_by_beginning(api: Any) -> None:
    """The header wins and is not sent; under one name another beginning is another conversation."""
    manager, summarizer, recorder = managed(window=3_000)
    side = history(api, "utr" * 9 + "au")[3:]

    def sessions() -> list[str]:
        return list(dict.fromkeys(event.session_id for event in recorder.events))

    with serving() as server, client_of(api, server) as client:
        wrapped = compacting(api, client, manager, "main")
        for messages in (history(api), side, history(api), side):
            say(api, wrapped, messages)
        assert 2 == len(summarizer.asks)
        say(api, wrapped, history(api), extra_headers={"X-Compact-Session": "other"})
        by_model = compacting(api, client, manager, lambda body: f"of {body['model']}")
        say(api, by_model, history(api))
        main, beside, *named = sessions()
        for _ in range(2):
            say(api, compacting(api, client, manager), history(api))
        assert [] == server.refused
    assert "main" == main
    assert beside.startswith("main.")
    assert ["other", f"of {api.asks['model']}"] == named
    assert all(name.startswith(f"{api.package}-") for name in sessions()[4:])
    assert 6 == len(sessions())


@each_api
def test_threads_that_share_a_client_keep_their_conversations(api: Any) -> None:
    """Each has its own beginning, gets its own list, and pays for one summary."""
    manager, summarizer, _ = managed(window=3_000)

    def talk(wrapped: Any, name: str) -> None:
        hello = {"role": "user", "content": f"I am {name}."}
        messages = [hello, *history(api, "a"), *history(api), *history(api, "a"), hello]
        for _ in range(2):
            say(api, wrapped, messages, extra_body={"user": name})
            messages += [*history(api, "a", words=5), hello]

    names = ["Ada", "Bob", "Cleo", "Dan"]
    with serving() as server, client_of(api, server) as client:
        wrapped = compacting(api, client, manager, "s")
        with ThreadPoolExecutor(len(names)) as threads:
            list(threads.map(talk, [wrapped] * len(names), names))
    assert [] == server.refused
    assert 8 == len(server.bodies)
    assert len(names) == len(summarizer.asks)
    assert all({body["user"]} == set(re.findall(r"I am (\w+)", str(body[api.field]))) for body in server.bodies)


@each_api
def test_what_the_server_holds_and_other_endpoints_pass(api: Any) -> None:
    """Only what is new is in such a request, so there is nothing to fold and nothing to learn."""
    manager, _, recorder = managed(window=3_000)
    with serving() as server, client_of(api, server) as client:
        wrapped = compacting(api, client, manager, "s")
        if api.package == "anthropic":
            wrapped.messages.count_tokens(model="claude-sonnet-5-5", messages=history(api))
            wrapped.messages.create(**api.asks, messages=iter(history(api)), extra_body={"thread": {"id": "t"}})
        else:
            wrapped.embeddings.create(model="e", input="words", extra_headers={"x-compact-session": "not sent"})
            wrapped.responses.create(model="gpt-4o", input="text " * 5_000)
            wrapped.responses.create(model="gpt-4o", input=history(APIS["responses"]), previous_response_id="r1")
            wrapped.responses.create(model="gpt-4o", input=history(APIS["responses"]), conversation="c1")
        assert [] == server.refused
    assert [] == recorder.events
    assert len(history(api)) == len(server.bodies[-1].get("messages", server.bodies[-1].get("input", ())))


# -- the client --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_the_tool_runner_of_anthropic_compacts(stream: bool) -> None:
    """Where it sends the whole history; by default it has the server hold it."""
    from anthropic import beta_tool

    api, play, (manager, summarizer, _) = APIS["messages"], story(12, rounds=1), managed(2_000)

    @beta_tool
    def read_file(path: str) -> str:
        """Read a file."""
        return play.result("read_file", {"path": path})

    @beta_tool
    def run(command: str) -> str:
        """Run a command."""
        return play.result("run", {"command": command})

    @beta_tool
    def search(query: str) -> str:
        """Look for words."""
        return play.result("search", {"query": query})

    with serving(play=play, window=2_000) as server, client_of(api, server) as client:
        start = compacting(api, client, manager, "s").beta.messages.tool_runner
        whole = {"thread": False} if "thread" in inspect.signature(start).parameters else {}
        asked = {"model": api.asks["model"], "max_tokens": 100, "stream": stream, **whole}
        opening = [{"role": "user", "content": play.rounds[0].user}]
        for answer in start(**asked, tools=[read_file, run, search], messages=opening):
            assert not stream or list(answer)
        assert [] == server.refused
    judge(play, manager, "s", folds=2, asked=len(summarizer.asks))


@each_api
def test_it_is_a_client_like_the_one_given(api: Any) -> None:
    """Same class, same connections; the one given is as it was; copies of it compact too, by every method."""
    manager, *_ = managed(window=3_000)
    sizes: dict[str, int] = {}
    with serving() as server, client_of(api, server) as client:
        wrapped = compacting(api, client, manager, "s")
        assert type(wrapped) is type(client)
        assert wrapped._client is client._client
        for name, each in {
            "wrapped": wrapped,
            "options": wrapped.with_options(timeout=9),
            "copy": wrapped.copy(max_retries=1).with_options(timeout=9),
            "retries": compacting(api, client.with_options(max_retries=2), manager, "s"),
            "own": client,
        }.items():
            say(api, each, history(api))
            sizes[name] = len(server.bodies[-1][api.field])
        server.bodies.clear()
        api.resource(wrapped).with_raw_response.create(**api.asks, **{api.field: history(api)})
        with api.resource(wrapped).with_streaming_response.create(**api.asks, **{api.field: history(api)}) as raw:
            raw.parse()
        say(api, wrapped, history(api, "u"), extra_body={api.field: history(api)})
        parsed = api.resource(wrapped).parse(**{**api.asks, "tools": []}, **{api.field: history(api)})
        assert type(parsed).__name__.startswith("Parsed")
        assert len({len(body[api.field]) for body in server.bodies} | {sizes["wrapped"]}) == 1
        assert not {"request", "copy", "with_options"} & vars(client).keys()
        for wrong in (object(), client if api.package == "openai" else "client"):
            other = APIS["messages"] if api.package == "openai" else api
            with pytest.raises(ConfigError, match="takes a client of the package"):
                compacting(other, wrong, manager)
    assert sizes.pop("own") == len(history(api)) > max(sizes.values())


def test_the_clients_for_other_clouds_compact_too() -> None:
    """They write other addresses, and copy their options in their own ways."""
    import anthropic
    import openai

    manager, *_ = managed(window=3_000)
    asked = {"max_retries": 0}
    with (
        serving() as server,
        openai.AzureOpenAI(azure_endpoint=server.url, api_version="v", api_key="none", **asked) as azure,
        anthropic.AnthropicVertex(
            base_url=server.url, region="r", project_id="p", access_token="none", **asked
        ) as vertex,
    ):
        for api, client in ((APIS["chat"], azure), (APIS["messages"], vertex)):
            say(api, compacting(api, client, manager, api.package).with_options(timeout=9), history(api))
            assert len(server.bodies[-1][api.field]) < len(history(api))
            assert 1 == len(manager.session(api.package).folds)


def test_the_span_of_the_client_says_that_its_conversation_was_compacted() -> None:
    """Anthropic's client opens a span for each call; a span around a client that opens none is not the model's."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    api, silent, (manager, *_) = APIS["messages"], APIS["chat"], managed(window=3_000)
    with serving() as server, client_of(api, server) as client, client_of(silent, server) as other:
        if not hasattr(client, "open_telemetry"):
            text = "this release of the client opens no spans"
            pytest.fail(text) if os.environ.get("CI") else pytest.skip(text)
        traced = compacting(api, client.with_options(open_telemetry={"tracer_provider": provider}), manager, "s")
        with provider.get_tracer("host").start_as_current_span("host"):
            say(api, traced, history(api, "u"))
            say(api, traced, history(api))
            with traced.messages.stream(**api.asks, messages=history(api)) as stream:
                stream.get_final_message()
            say(silent, compacting(silent, other, manager, "t"), history(silent))
    assert 1 == len(manager.session("t").folds)
    spans = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
    marks = [(span.attributes or {}).get("gen_ai.conversation.compacted") for span in spans]
    assert [None, None, True, True] == marks
