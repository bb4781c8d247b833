"""Agents through the proxy: the real clients, a strict provider, and nothing between them that the tests know of."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import raw_http
from agent_story import RULE, Play, Round, story
from model_servers import llama_server, part
from provider_server import APIS, SESSION, Server, client_of, converse, each_api, serving
from volume import volume

from compact import Ask, CompactConfig, CompactManager
from compact.proxy import running
from compact.testing import ScriptedModel, chat

pytestmark = pytest.mark.slow

CHAT, RESPONSES, MESSAGES = APIS.values()
SUMMARY = "## Progress\nThe parser was read, part by part, and nothing is broken so far."
WINDOW = 4_000


@contextmanager
def proxied(server: Server, summarizer: Any = None, window: int = WINDOW, **settings: Any) -> Iterator[Line]:
    """A proxy in front of a server. Without a summarizer it has whatever the settings say."""
    policy = {"hard_cap_buffer": 200, "keep_recent_turns": 1, **settings.pop("policy", {})}
    proxy = {"upstream": server.url, "port": 0, **settings.pop("proxy", {})}
    summary = {"min_score": 0, "max_retries": 0, **settings.pop("summary", {})}
    config = CompactConfig(
        model="gpt-4o", max_context_tokens=window, policy=policy, proxy=proxy, summary=summary, **settings
    )
    manager = CompactManager(config, summarizer=summarizer) if summarizer else None
    with running(config, manager=manager) as url, httpx.Client(timeout=60, verify=False) as http:
        yield Line(url, http)


class Line:
    """Requests to a proxy as any program may send them."""

    def __init__(self, url: str, http: httpx.Client) -> None:
        self.url = url
        self._http = http

    def say(self, content: bytes, api: Any = CHAT, key: str = "sk-one", **headers: str) -> httpx.Response:
        """One answer to these bytes."""
        given = {"authorization": f"Bearer {key}", "content-type": "application/json", **headers}
        return self._http.post(self.url + path_of(api), content=content, headers=given)

    def in_flight(self) -> int:
        """Requests that the proxy is busy with."""
        lines = self._http.get(f"{self.url}/metrics").text.splitlines()
        (value,) = [line.split()[1] for line in lines if line.startswith("compact_proxy_in_flight ")]
        return int(float(value))


def path_of(api: Any) -> str:
    return "/v1/" + api.ends[0].removeprefix("/").removeprefix("v1/")


def body_of(messages: list[Any], api: Any = CHAT, **fields: Any) -> bytes:
    """A request's body, in a form that nobody would write it in again."""
    return json.dumps({**api.asks, api.field: messages, **fields}, indent=1).encode()


def history(api: Any = CHAT, rounds: int = 9, first: int = 0) -> list[dict[str, Any]]:
    """A conversation of some 470 tokens a round; nine are too many for the window."""
    opening = "s" if api is CHAT else ""
    return chat(opening + "utr" * rounds + "u", words=120, dialect=api.dialect, first=first)


def asked(api: Any, text: str) -> dict[str, Any]:
    """What a person says."""
    (message,) = chat("u", words=3, dialect=api.dialect)
    return json.loads(json.dumps(message).replace("(u0)", text))


def told(answer: httpx.Response) -> dict[str, str]:
    """What an answer says of the fold, by short names; empty when there is none."""
    assert 200 == answer.status_code, answer.text
    return {name[10:]: value for name, value in answer.headers.items() if name.startswith("x-compact-")}


def sent(server: Server, api: Any = CHAT) -> list[Any]:
    """The messages that arrived last."""
    return list(server.bodies[-1][api.field])


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.01)


def places() -> set[str]:
    """Sessions in the archive."""
    return {one.name for one in Path(".compact/archive").iterdir() if not one.name.startswith(".")}


# -- the bar -----------------------------------------------------------------------------------------------------------


def long_story(calls: int) -> Play:
    """So many calls of a model, with no more than two tools at once: three make it longer and prove nothing more."""
    play = story(calls, rounds=8)
    steps = ([replace(step, calls=step.calls[:2]) for step in one.steps] for one in play.rounds)
    return Play([Round(one.user, tuple(each)) for one, each in zip(play.rounds, steps, strict=True)], play.results)


CALLS, TOKENS = volume(140, 400), volume(10_000, 32_000)
"""The length of the long run, and its window."""


@pytest.mark.volume
@each_api
def test_a_long_run_stays_inside_the_window(api: Any) -> None:
    """Streamed calls with tools: all accepted; the headers are right; the prompt cache stays warm.

    400 calls at 32,000 tokens in `make torture`.
    """
    calls, window = CALLS, TOKENS
    play, answers = long_story(calls), list[Any]()
    with (
        serving(play=play, window=window) as server,
        proxied(server, window=window) as proxy,
        client_of(api, proxy, told=answers) as client,
    ):
        messages = asyncio.run(converse(api, client, "stream", play, untyped=True))
    assert ([], calls) == (server.refused, len(play.received))
    whole = server.size(api.dialect, {}, messages)
    assert whole > 3 * window, "too short to prove anything"
    assert RULE in str(play.received[-1].messages)
    compact = [{name: head[f"x-compact-{name}"] for name in HEADERS if f"x-compact-{name}" in head} for head in answers]
    first = next(at for at, one in enumerate(compact) if one)
    assert all(len(one) == len(HEADERS) for one in compact[first:])
    assert not any(compact[:first])
    assert 1 == len({one["session"] for one in compact[first:]})
    steps = [0] * first + [int(one["step"]) for one in compact[first:]]
    assert steps[-1] >= 3
    assert list(range(steps[-1] + 1)) == sorted(set(steps))
    for at in range(first, calls):
        one, new = compact[at], steps[at] > steps[at - 1]
        assert ("new" if new else "replayed") == one["fold"]
        # Both are our own count; that of an unknown tokenizer has a margin.
        assert server.sizes[at] <= int(one["tokens-after"]) <= 1.25 * server.sizes[at] + 20
        assert int(one["tokens-before"]) > int(one["tokens-after"])
    assert whole <= int(compact[-1]["tokens-before"]) <= 1.25 * whole + 2_000
    lists = [listed(raw, api.field) for raw in server.raw]
    for at in range(1, calls):
        if steps[at] == steps[at - 1]:
            assert lists[at].startswith(lists[at - 1].rstrip("]")), f"request {at} has another beginning"


HEADERS = ("fold", "session", "step", "tokens-before", "tokens-after")


def listed(raw: bytes, field: str) -> str:
    """The list in a body, as it stands there."""
    text = raw.decode()
    start = text.index(f'"{field}":') + len(field) + 3
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[start:end]


@each_api
def test_without_the_proxy_the_same_run_dies(api: Any) -> None:
    """The provider's own error, after less than a third of it."""
    play = long_story(CALLS)
    with serving(play=play, window=TOKENS) as server, client_of(api, server) as client:
        with pytest.raises(Exception, match=r"maximum context length|prompt is too long") as died:
            asyncio.run(converse(api, client, "stream", play, untyped=True))
        assert "BadRequestError" == type(died.value).__name__
    assert len(play.received) < CALLS / 3
    assert 1 == len(server.refused)


# -- which conversation ------------------------------------------------------------------------------------------------


@each_api
def test_the_same_beginning_finds_its_fold(api: Any) -> None:
    """A retry, an edited last message, branches behind the fold, a growing list: one summary serves them all."""
    model, whole = ScriptedModel(SUMMARY), history(api)
    with serving() as server, proxied(server, model) as proxy:
        new = told(proxy.say(body_of(whole, api), api))
        assert "new" == new["fold"]
        folded, summary = server.raw[-1], sent(server, api)
        assert told(proxy.say(body_of(whole, api), api)) == {**new, "fold": "replayed"}
        assert folded == server.raw[-1], "a retry is not what was sent before"
        others = (
            [*whole[:-1], asked(api, "another wish")],
            [*whole, *chat("a", dialect=api.dialect), asked(api, "one way")],
            [*whole, *chat("a", dialect=api.dialect), asked(api, "the other way")],
            [*whole, *chat("tru", words=60, dialect=api.dialect, first=50)],
        )
        for other in others:
            one = told(proxy.say(body_of(other, api), api))
            assert ("replayed", new["session"]) == (one["fold"], one["session"])
            assert sent(server, api)[: len(summary) - 1] == summary[:-1], "the beginning is another"
            assert sent(server, api)[-1] == other[-1]
        assert 1 == len(model.asks)
        assert {new["session"]} == places()
    assert [] == server.refused


@each_api
def test_another_beginning_has_a_fold_of_its_own(api: Any) -> None:
    """A branch before the fold, and a conversation that only opens alike: neither gets what the first consumed."""
    model = ScriptedModel(f"{SUMMARY} one", f"{SUMMARY} two", f"{SUMMARY} three")
    whole, edited = history(api), history(api)
    edited[3 + (api is CHAT)] = asked(api, "stop, do something else")
    alike = [*whole[:2], *history(api, first=100)[1 + (api is CHAT) :]]
    with serving() as server, proxied(server, model) as proxy:
        sessions = {told(proxy.say(body_of(one, api), api))["session"] for one in (whole, edited, alike)}
        assert 3 == len(sessions) == len(model.asks)
        for one, word in ((whole, "one"), (edited, "two"), (alike, "three")):
            assert "replayed" == told(proxy.say(body_of(one, api), api))["fold"]
            (summary,) = [text for text in map(json.dumps, sent(server, api)) if "## Progress" in text]
            assert f"so far. {word}" in summary
        cut = body_of([*whole[: 12 + (api is CHAT)], asked(api, "from here")], api)
        assert not told(proxy.say(cut, api)), "this short a branch needs no fold"
        assert cut == server.raw[-1]
        assert 3 == len(model.asks)


@each_api
@pytest.mark.parametrize("name", [None, "same-name"])
def test_two_users_never_share(api: Any, name: str | None) -> None:
    """The identical conversation with two keys: two summaries, two sessions, two folders; named alike or not."""
    model, content = ScriptedModel(f"{SUMMARY} one", f"{SUMMARY} two"), body_of(history(api), api)
    named = {SESSION: name} if name else {}
    with serving() as server, proxied(server, model) as proxy:
        answers = [told(proxy.say(content, api, key, **named)) for key in ("sk-one", "sk-two") * 2]
        words = ["so far. one" in raw.decode() for raw in server.raw]
    assert [True, False, True, False] == words
    assert ["new", "new", "replayed", "replayed"] == [one["fold"] for one in answers]
    assert 2 == len(model.asks)
    sessions = {one["session"] for one in answers}
    assert 2 == len(sessions)
    assert sessions == places()
    assert not any("sk-" in one for one in sessions)
    assert [] == server.refused  # it refuses our own header


def test_a_name_tells_conversations_apart() -> None:
    """The same list under two names and under none: three conversations; the name is in the session, not sent on."""
    model, content = ScriptedModel(SUMMARY), body_of(history())
    with serving() as server, proxied(server, model) as proxy:
        ones = [told(proxy.say(content, **named)) for named in ({SESSION: "left"}, {SESSION: "right"}, {})]
        again = told(proxy.say(content, **{SESSION: "left"}))
    assert 3 == len({one["session"] for one in ones}) == len(model.asks)
    assert ones[0]["session"].startswith("left")
    assert ("replayed", ones[0]["session"]) == (again["fold"], again["session"])
    assert [] == server.refused


@each_api
def test_what_changes_beside_the_conversation_costs_nothing(api: Any) -> None:
    """A system prompt with a clock, cache marks that move, and a call for a title in between: one fold."""
    model, whole = ScriptedModel(SUMMARY), history(api)
    with serving() as server, proxied(server, model) as proxy:
        for minute in range(3):
            clock = f"Be careful. It is 12:0{minute}."
            beside = {api.system: clock} if api.system else {}
            messages = copy.deepcopy(whole)
            if not beside:
                messages[0]["content"] = clock
            if api is MESSAGES:
                marked = messages[-1 - 3 * minute]["content"][-1]
                marked["cache_control"] = {"type": "ephemeral"}
            one = told(proxy.say(body_of(messages, api, **beside), api))
            assert ("replayed" if minute else "new") == one["fold"]
            assert clock in server.raw[-1].decode()
            title = body_of([asked(api, "A title for this conversation, please.")], api)
            assert not told(proxy.say(title, api))
            assert title == server.raw[-1]
        assert 1 == len(model.asks)
    assert [] == server.refused


# -- "too long" --------------------------------------------------------------------------------------------------------


@each_api
@pytest.mark.parametrize("names_window", [True, False])
def test_a_window_smaller_than_configured(api: Any, names_window: bool) -> None:
    """One refusal, then accepted; what was learned holds for every conversation of that key and model."""
    with (
        serving(window=3_000, names_window=names_window) as server,
        proxied(server, ScriptedModel(SUMMARY), window=50_000) as proxy,
    ):
        first = told(proxy.say(body_of(history(api), api), api))
        assert ("recovered", 1) == (first["fold"], len(server.refused))
        assert int(first["tokens-after"]) < int(first["tokens-before"])
        grown = [*history(api), *chat("tru", words=60, dialect=api.dialect, first=50)]
        assert told(proxy.say(body_of(grown, api), api))["session"] == first["session"]
        assert "new" == told(proxy.say(body_of(history(api, first=100), api), api))["fold"]
        assert 1 == len(server.refused), "what was learned is forgotten"
        assert "recovered" == told(proxy.say(body_of(history(api), api), api, "sk-two"))["fold"]
        assert 2 == len(server.refused)


@pytest.mark.parametrize("names_window", [True, False])
def test_a_provider_that_counts_more_than_we_do(names_window: bool) -> None:
    """A request that is small enough by our count is refused: that is learned too, also of one that was folded."""
    with (
        serving(window=4_000, inflation=1.4, names_window=names_window) as server,
        proxied(server, ScriptedModel(SUMMARY)) as proxy,
    ):
        assert "recovered" == told(proxy.say(body_of(history(rounds=7))))["fold"]
        told(proxy.say(body_of(history(rounds=7, first=100))))
        assert 1 == len(server.refused), "what was learned is forgotten"
        server.window = 2_000
        for rounds in (9, 10, 11, 12):
            told(proxy.say(body_of(history(rounds=rounds))))
        assert len(server.refused) <= 2, "a fold that was too long is sent again and again"


@each_api
def test_a_refusal_that_nobody_can_help_is_the_clients(api: Any) -> None:
    """Not about size, or nothing to fold: the provider's own words, byte for byte, after one try."""
    with serving(window=3_000) as server, proxied(server, window=50_000) as proxy:
        broken = body_of([asked(api, "hello"), {"meta": 1, **asked(api, "there")}], api)
        refusal = proxy.say(broken, api)
        assert ("Unknown parameter.", 1) == (refusal.json()["error"]["message"], len(server.raw))
        huge = {api.system: "Mind the gap. " * 2_000} if api.system else {}
        pinned = [] if huge else [{"role": "system", "content": "Mind the gap. " * 2_000}]
        refusal = proxy.say(body_of([*pinned, asked(api, "hello")], api, **huge), api)
        assert (400, server.refused[-1]) == (refusal.status_code, refusal.json()["error"]["message"])
        assert not [name for name in refusal.headers if name.startswith("x-compact")]
        assert 2 == len(server.raw)


# -- who writes summaries ----------------------------------------------------------------------------------------------


@each_api
@pytest.mark.parametrize("broken", ["", "cheap"])
def test_the_upstream_writes_summaries(api: Any, broken: str) -> None:
    """A cheaper model there, with the key of the request; when it fails the fold is made without it."""
    with (
        serving(says=SUMMARY, broken=broken) as server,
        proxied(server, proxy={"summary_model": "cheap"}) as proxy,
    ):
        with ThreadPoolExecutor() as pool:
            content = body_of(history(api), api)
            answers = list(pool.map(lambda key: told(proxy.say(content, api, key)), ("sk-one", "sk-two")))
        assert ["new", "new"] == [one["fold"] for one in answers]
        models = sorted((key, body["model"]) for key, body in zip(server.keys, server.bodies, strict=True))
        expected = [(f"Bearer sk-{who}", model) for who in ("one", "two") for model in ("cheap", api.asks["model"])]
        assert sorted(expected) == models
        folded = [raw.decode() for raw, body in zip(server.raw, server.bodies, strict=True) if body["model"] != "cheap"]
        assert [not broken] * 2 == ["## Progress" in text for text in folded]
    assert [] == server.refused


@pytest.fixture(scope="module")
def real_server() -> Iterator[str]:
    """A small real model behind a real server."""
    part("openai")
    with llama_server(window=2048) as url:
        yield url


@pytest.mark.parametrize(
    ("api", "more", "window"),
    [(CHAT, {"max_tokens": 4}, 230), (RESPONSES, {"max_output_tokens": 16}, 250)],
    ids=["chat", "responses"],
)
def test_a_real_model_answers_and_is_asked_for_summaries(
    real_server: str, api: Any, more: dict[str, int], window: int
) -> None:
    """The real client, a real server and real weights, as the upstream and as the summarizer."""
    settings = {
        "policy": {"hard_cap_buffer": 20, "keep_recent_turns": 2},
        "summary": {"prompt": "Be brief.", "max_tokens": 16},
        "proxy": {"summary_model": "same"},
    }
    fields = {api.field: chat("s" + "ua" * 6 + "u", words=10, dialect=api.dialect), **more}
    with (
        proxied(Server(url=real_server), window=window, **settings) as proxy,
        client_of(api, proxy) as client,
    ):
        answer = api.resource(client).with_raw_response.create(model="smollm2", stream=True, **fields)
        assert "new" == answer.headers["x-compact-fold"]
        assert int(answer.headers["x-compact-tokens-after"]) < int(answer.headers["x-compact-tokens-before"])
        assert list(answer.parse()), "no event came"
    (place,) = places()
    events = map(json.loads, Path(".compact/archive", place, "events.jsonl").read_text().splitlines())
    calls = [one["data"] for one in events if one["name"] == "compact.summary_call"]
    assert calls, "no model was asked"
    assert all(one["input_tokens"] > 100 and 0 < one["output_tokens"] <= 16 for one in calls)


# -- folds made ahead --------------------------------------------------------------------------------------------------


class Held:
    """A summarizer that writes when it is let go."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()
        self.calls = 0

    def __call__(self, ask: Ask) -> str:
        self.calls += 1
        self.asked.set()
        assert self.go.wait(30)
        return SUMMARY


def test_nobody_waits_for_a_fold_made_ahead() -> None:
    """Between the lines requests pass at once, as they came; the one that crosses finds the fold and asks nobody."""
    model = Held()
    with serving() as server, proxied(server, model, policy={"prepare_pct": 0.5}) as proxy:
        for rounds in (5, 6):
            content = body_of(history(rounds=rounds))
            assert not told(proxy.say(content)), "it was to pass"
            assert content == server.raw[-1]
        assert model.asked.wait(20), "nothing is prepared"
        model.go.set()
        crossing = told(proxy.say(body_of(history())))
        assert "prepared" == crossing["fold"]
        assert int(crossing["tokens-after"]) < int(crossing["tokens-before"])
        assert "replayed" == told(proxy.say(body_of(history())))["fold"]
        assert 1 == model.calls
    assert [] == server.refused


# -- the client leaves, and the switch ---------------------------------------------------------------------------------


def test_a_fold_is_finished_for_a_client_that_left() -> None:
    """The client closes its connection during the fold and comes back: one summary, one request to the upstream."""
    model, content = Held(), body_of(history())
    with serving() as server, proxied(server, model) as proxy, ThreadPoolExecutor() as pool:
        port = int(proxy.url.rpartition(":")[2])
        given = ("authorization: Bearer sk-one", "content-type: application/json")
        with raw_http.connect(port) as client:
            client.sendall(raw_http.request(path_of(CHAT), content, *given))
            assert model.asked.wait(20)
        until(lambda: proxy.in_flight() == 0)
        back = pool.submit(proxy.say, content)
        until(lambda: proxy.in_flight() == 1)
        model.go.set()
        assert "1" == told(back.result())["step"]
        assert "replayed" == told(proxy.say(content))["fold"]
    assert (1, 2) == (model.calls, len(server.raw))
    assert server.raw[0] == server.raw[1]


@each_api
def test_switched_off(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With COMPACT_DISABLED everything passes as it came, and what the provider refuses it refuses."""
    monkeypatch.setenv("COMPACT_DISABLED", "1")
    with serving(window=5_000) as server, proxied(server) as proxy:
        for rounds, status in ((2, 200), (9, 200), (40, 400)):
            content = body_of(history(api, rounds=rounds), api)
            answer = proxy.say(content, api)
            assert status == answer.status_code
            assert content == server.raw[-1]
            assert SESSION not in answer.headers
        assert 3 == len(server.raw)
    assert not Path(".compact").exists()
