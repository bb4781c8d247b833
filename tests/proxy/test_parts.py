"""The parts of the proxy that need no server: bodies, weights, headers, addresses."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import weakref
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpcore
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from compact import Ask, CompactConfig, CompactManager
from compact._compaction.trigger import Counters, decide, least_tokens_due
from compact._conversation.tokens import Usage
from compact._http.endpoints import CHAT, MESSAGES, RESPONSES, Endpoint
from compact.config.limits import limits_for
from compact.proxy.body import Body
from compact.proxy.conversations import CompactedRequest, Conversations, ProxyExchange
from compact.proxy.operations import Operations
from compact.proxy.relay import Relay
from compact.proxy.request_tokens import RequestCounter, RequestPrefixes
from compact.proxy.responses import UsageListener
from compact.proxy.state.memory_state import MemoryState
from compact.proxy.upstream import Upstream, forwardable_headers
from compact.proxy.upstream_response import UpstreamResponse
from compact.testing import chat

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
BODIES = st.dictionaries(st.text(max_size=6), VALUES, max_size=4)
LISTS = st.lists(st.dictionaries(st.text(max_size=6), VALUES, max_size=4), min_size=1, max_size=6)


# -- bodies ------------------------------------------------------------------------------------------------------------


@given(BODIES, LISTS, st.sampled_from([None, 0, 2]), st.booleans(), st.data())
def test_a_body_is_read_as_json_and_what_stays_keeps_its_bytes(
    fields: dict[str, Any], messages: list[Any], indent: int | None, ascii: bool, data: st.DataObject
) -> None:
    """Whatever the layout: the same value, and of the messages that stay the very bytes."""
    value = {**fields, "messages": messages, "last": 1}
    try:
        raw = json.dumps(value, indent=indent, ensure_ascii=ascii).encode()
    except UnicodeEncodeError:
        return  # a lone surrogate has no bytes
    body = Body.read(raw, "messages")
    assert body is not None or "" in fields
    if body is None:
        return
    assert body.fields == json.loads(raw)
    assert [body.slice(span) for span in body.spans] == [
        body.slice(span)
        for span, one in zip(body.spans, body.messages, strict=True)
        if json.loads(body.slice(span)) == one
    ]
    kept = [one for one in body.messages if data.draw(st.booleans())]
    summary = {"role": "user", "content": "a \ud800 \u2028 summary"}
    sent = body.with_messages([summary, *kept])
    assert json.loads(sent) == {**json.loads(raw), "messages": [summary, *kept]}
    places = [body.spans[next(i for i, one in enumerate(body.messages) if one is each)] for each in kept]
    at = 0
    for place in places:
        found = sent.find(body.slice(place), at)
        assert found >= 0
        at = found + len(body.slice(place))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'"messages"',
        b"null",
        b'{"messages": "text"}',
        b'{"messages": []}',
        b'{"messages": [1]}',
        b'{"messages": [{}], "messages": [{}]}',
        b'{"messages": [{}],}',
        b'{"messages": [{},]}',
        b'{"messages": [{}]} x',
        b'{"messages": [{}]',
        b'{"messages" [{}]}',
        b'{"messages": [{}] "a": 1}',
        b'{1: 2, "messages": [{}]}',
        b"\xff\xfe{",
        b"\xef\xbb\xbf" + b'{"messages": [{}]}',
        '{"messages": [{}]}'.encode("utf-16"),
        b'{"messages": ' + b"[" * 100_000,
    ],
)
def test_what_is_no_conversation_is_left_alone(raw: bytes) -> None:
    """Whoever gets it will say what is wrong with it."""
    assert Body.read(raw, "messages") is None


def test_numbers_escapes_and_order_of_what_stays_are_the_clients() -> None:
    """A float with a zero at its end, an exponent that no float has, an escape, a field twice."""
    kept = b'{"z": 1.10, "a": 1e400, "b": "\\u00e9\\ud800", "z":  2}'
    body = Body.read(b'{"model":"m","messages":[{"role":"user"},' + kept + b'],"stream":true}', "messages")
    assert body is not None
    assert body.with_messages([{"s": 1}, body.messages[1]]) == (
        b'{"model":"m","messages":[{"s": 1},' + kept + b'],"stream":true}'
    )


# -- weights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES, MESSAGES], ids=lambda endpoint: endpoint.format)
def test_the_scales_say_what_the_manager_says(endpoint: Endpoint) -> None:
    """A list that the manager would fold is never taken for one below the line."""
    tools = [{"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object"}}]
    for words in (20, 40, 60, 80, 100):
        messages = chat("utr" * 12 + "u", words=words, dialect=endpoint.format)
        asked = {"model": "gpt-4o", endpoint.messages: messages, "tools": tools, "instructions": "Be brief. " * 20}
        body = Body.read(json.dumps(asked).encode(), endpoint.messages)
        assert body is not None
        config = CompactConfig(max_context_tokens=6_000, storage={"adapter": "none"})
        scales = RequestCounter(config)
        weight = asyncio.run(scales.count(endpoint, body, "gpt-4o", exactly=True))
        with CompactManager(config) as manager:
            decision = manager.should_compact("s", messages, tools=endpoint.counted_tools(asked), model="gpt-4o")
        assert weight.total == decision.usage.total
        assert weight.may_be_due == bool(decision)
        assert asyncio.run(scales.count(endpoint, body, "gpt-4o")).may_be_due == bool(decision)
        kept = body.messages[5:]
        fewer = Body.read(json.dumps({**asked, endpoint.messages: kept}).encode(), endpoint.messages)
        assert fewer is not None
        exact = asyncio.run(RequestCounter(config).count(endpoint, fewer, "gpt-4o", exactly=True))
        assert scales.count_replaced(weight, endpoint, body, "gpt-4o", kept) == exact.total


@given(
    st.integers(2_000, 200_000),
    st.integers(0, 200_000),
    st.sampled_from([{}, {"token_threshold": 900}, {"trigger_pct": 1.0}, {"prepare_pct": 0.5}, {"turn_threshold": 3}]),
)
def test_below_the_least_tokens_nothing_is_due(window: int, total: int, changes: dict[str, Any]) -> None:
    """What the proxy does not show to the manager is due by no rule."""
    policy = CompactConfig(policy=changes).policy
    limits = limits_for(policy, window)
    if total < least_tokens_due(policy, limits):
        assert not decide(Usage(messages=total), Counters(turns=100), policy, limits)
        assert total < (limits.prepare or window)


def test_a_picture_weighs_more_than_its_bytes() -> None:
    """A short address of a picture is not taken for a short request."""
    picture = {"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}
    messages = [{"role": "user", "content": [picture]}] * 12
    body = Body.read(json.dumps({"model": "gpt-4o", "messages": messages}).encode(), "messages")
    assert body is not None
    config = CompactConfig(max_context_tokens=6_000)
    assert len(body.text) < config.trigger_line
    assert asyncio.run(RequestCounter(config).count(CHAT, body, "gpt-4o")).may_be_due


def test_a_window_that_was_heard_of_and_room_for_the_answer_count() -> None:
    """The lower of the two windows holds; no more than half of it is kept for the answer."""
    asked = {"model": "gpt-4o", "max_tokens": 10**9, "messages": chat("u" * 20, words=50)}
    body = Body.read(json.dumps(asked).encode(), "messages")
    assert body is not None
    scales = RequestCounter(CompactConfig(max_context_tokens=100_000))
    far, near = (asyncio.run(scales.count(CHAT, body, "gpt-4o", limit)) for limit in (None, 4_000))
    assert (far.window, far.reserve, far.may_be_due) == (100_000, 50_000, False)
    assert (near.window, near.reserve, near.may_be_due) == (4_000, 2_000, True)


# -- headers and addresses ---------------------------------------------------------------------------------------------


def test_headers_about_the_connection_and_ours_do_not_pass() -> None:
    """Also those that the connection header names."""
    given = [
        (b"Accept", b"*/*"),
        (b"Connection", b"close, X-Private"),
        (b"x-private", b"1"),
        (b"Transfer-Encoding", b"chunked"),
        (b"X-Compact-Session", b"s"),
        (b"Cookie", b"a=1"),
        (b"Cookie", b"b=2"),
    ]
    assert forwardable_headers(given) == [(b"Accept", b"*/*"), (b"Cookie", b"a=1"), (b"Cookie", b"b=2")]


@pytest.mark.parametrize(
    ("said", "place"),
    [
        (b"/v1/other?x=1", b"/v1/other?x=1"),
        (b"other", b"other"),
        (b"http://up.test:8080/base/v1/x?y=1", b"/v1/x?y=1"),
        (b"http://up.test:8080/base", b"/"),
        (b"http://up.test/base/v1", None),
        (b"https://up.test:8080/base/v1", None),
        (b"http://evil.test/", None),
        (b"//evil.test/", None),
        (b"/\\evil.test/", None),
        (b"\\\\evil.test", None),
        (b"http://up.test:8080@evil.test/", None),
        (b"http://me@up.test:8080/", None),
        (b"javascript:alert(1)", None),
        (b"http://[broken", None),
        (b"\xff", None),
    ],
)
def test_a_redirect_leads_through_us_or_nowhere(said: bytes, place: bytes | None) -> None:
    """A client follows it with its key."""
    upstream = Upstream("http://up.test:8080/base/", timeout=1, connect_timeout=1)
    assert upstream.rewrite_location(said) == place


def test_a_compressed_body_is_read_within_its_limit() -> None:
    """Not one byte more is unpacked than a body may have."""
    from compact.proxy.compression import unpack_body
    from compact.proxy.responses import RequestRefused

    plain = b"x" * 1_000
    for encoding, data in ((b"deflate", zlib.compress(plain)), (b"", plain), (b"br", plain)):
        assert unpack_body(data, encoding, 1_000) == plain
    for data, status in ((zlib.compress(plain * 10_000), 413), (b"no", 400), (zlib.compress(plain)[:-5], 400)):
        with pytest.raises(RequestRefused) as refused:
            unpack_body(data, b"gzip", 1_000)
        assert refused.value.status == status


def test_only_packings_that_can_be_overheard_are_asked_for() -> None:
    """A refusal that nobody can read cannot be answered by a smaller request."""
    from compact.proxy.compression import Unpacker, readable_encodings

    assert readable_encodings(b"gzip, deflate, br, zstd") == b"gzip, deflate"
    assert readable_encodings(b"br;q=1.0, gzip;q=0.5") == b"gzip;q=0.5"
    assert readable_encodings(b"br") == readable_encodings(b"*") == b"identity"
    packed, reader = zlib.compress(b"usage" * 100), Unpacker(b"deflate")
    assert reader.read(packed[:10]) + reader.read(packed[10:]) == b"usage" * 100
    bomb = Unpacker(b"gzip")
    assert len(bomb.read(zlib.compress(b"x" * (1 << 24)))) <= 1 << 20
    assert bomb.read(b"more") == b""
    assert Unpacker(b"br").read(b"anything") == b""


@pytest.mark.parametrize("path", [b"/v1/../x", b"/..", b"/%2e%2E/x", b"/a/.%2e", b"/a%2f..%2fb", b"/.", b"/a\\..\\b"])
def test_a_path_does_not_lead_out_of_the_part_that_is_served(path: bytes) -> None:
    """Behind a prefix there may be somebody else's."""
    below, whole = (Upstream(f"http://up.test{part}", timeout=1, connect_timeout=1) for part in ("/team", ""))
    assert below.leaves_prefix(path)
    assert not whole.leaves_prefix(path)
    assert not below.leaves_prefix(b"/v1/files/report..final.json")


@pytest.mark.parametrize("beside", [{"tools": "tool"}, {"system": "words"}, {}])
def test_long_texts_are_not_counted_on_the_event_loop(beside: dict[str, str]) -> None:
    """Neither messages nor what comes beside them: others get their turn meanwhile."""
    words = "count me " * 10_000
    tool = {"name": "look", "description": words, "input_schema": {"type": "object"}}
    given = {name: [tool] if kind == "tool" else words for name, kind in beside.items()}
    messages = [{"role": "user", "content": "hello" if beside else words}]
    body = Body.read(json.dumps({"model": "claude", "messages": messages, **given}).encode(), "messages")
    assert body is not None

    async def others_ran() -> bool:
        other = asyncio.create_task(asyncio.sleep(0))
        await RequestCounter(CompactConfig(max_context_tokens=4_000)).count(MESSAGES, body, "claude")
        return other.done()

    assert asyncio.run(others_ran())


def test_a_character_may_be_several_tokens() -> None:
    """A list of signs that no table knows is long although it has few characters."""
    messages = [{"role": "user", "content": "\U0001f701\U0001f702\U0001f703" * 120}] * 10
    body = Body.read(json.dumps({"messages": messages}, ensure_ascii=False).encode(), "messages")
    assert body is not None
    config = CompactConfig(max_context_tokens=6_000)
    assert len(body.text) < config.trigger_line
    assert asyncio.run(RequestCounter(config).count(CHAT, body, "gpt-4o")).may_be_due


@pytest.mark.parametrize(
    ("window", "asked", "reserve", "due"),
    [(2_000, 10**9, 250, True), (1_400, 10**9, 0, False), (4_000, -1, 0, True), (2_000, None, None, True)],
)
def test_a_window_with_little_room(window: int, asked: int | None, reserve: int | None, due: bool) -> None:
    """Room for messages is left where there is any; where there is none, nothing is due."""
    fields = {"max_tokens": asked, "messages": chat("u" * 20, words=200)}
    body = Body.read(json.dumps(fields).encode(), "messages")
    assert body is not None
    weight = asyncio.run(RequestCounter(CompactConfig(max_context_tokens=100_000)).count(CHAT, body, "gpt-4o", window))
    assert (reserve, due) == (weight.reserve, weight.may_be_due)


# -- conversations -----------------------------------------------------------------------------------------------------


class Numbered:
    """A summarizer that says how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, ask: Ask) -> str:
        self.asked += 1
        return f"## Progress\nAll is well so far, says number {self.asked}."


@contextmanager
def several(state: Any = None, summarizer: Any = None, **sections: Any) -> Iterator[Conversations]:
    """The conversations of a proxy with a window of 4,000 tokens."""
    config = CompactConfig(
        max_context_tokens=4_000,
        policy={"hard_cap_buffer": 200, "keep_recent_turns": 1},
        summary={"min_score": 0},
        storage={"adapter": "none"},
        **sections,
    )
    with CompactManager(config, summarizer=summarizer) as manager:
        yield Conversations(manager, state or MemoryState(ttl=60), "http://up.test")


def request_of(first: int = 0, rounds: int = 9, named: str | None = None, path: str = "/v1/chat") -> ProxyExchange:
    """A request that is too long for the window when it has nine rounds."""
    messages = chat("s" + "utr" * rounds + "u", words=120, first=first)
    body = Body.read(json.dumps({"model": "gpt-4o", "messages": messages}).encode(), "messages")
    assert body is not None
    return ProxyExchange(CHAT, body, b"somebody", path, named)


async def folded(conversations: Conversations, exchange: ProxyExchange) -> CompactedRequest:
    weight = await conversations.count(exchange)
    made = await conversations.compact(exchange, weight)
    assert made is not None
    return made


def test_branches_of_one_session_keep_their_folds() -> None:
    """Two lists under one name in turn: each is given its own fold, here and at a proxy that shares the state."""
    state, model = MemoryState(ttl=60), Numbered()
    with several(state, model) as one, several(state, model) as other:

        async def taken() -> list[tuple[str, int, bool]]:
            asked = [(one, 0), (one, 300), (one, 0), (one, 300), (other, 0), (other, 300), (one, 0)]
            made = [(await folded(proxy, request_of(first, named="main")), first) for proxy, first in asked]
            return [(each.kind, each.step, b"number %d" % (1 + first // 300) in each.content) for each, first in made]

        again = [("replayed", 1, True), ("replayed", 2, True)]
        assert [("new", 1, True), ("new", 2, True), *again, *again, again[0]] == asyncio.run(taken())
    assert 2 == model.asked


def test_names_that_look_like_secrets_stay_apart() -> None:
    """A name is redacted in what travels; the conversation keeps its session all the same."""
    with several() as proxy:
        for name in ("sk-proj-" + "a1B2c3D4" * 6, "sk-proj-" + "e5F6g7H8" * 6):
            one, again = (asyncio.run(folded(proxy, request_of(named=name))) for _ in range(2))
            assert ("new", "replayed") == (one.kind, again.kind)
            assert one.session == again.session
            assert one.session.startswith(name)


def test_a_session_of_ours_is_no_secret() -> None:
    """Its hash may look like one to a user's pattern, and must not be the same for all then."""
    with several(redaction={"patterns": ["proxy-[0-9a-f]+"]}) as proxy:
        made = [asyncio.run(folded(proxy, request_of(first))) for first in (0, 300, 0, 300)]
    assert [one.session for one in made[:2]] == [one.session for one in made[2:]]
    assert 2 == len({one.session for one in made})


def test_what_a_refusal_teaches() -> None:
    """A window that is named, for that path alone and for a while; nothing without words, or with odd numbers."""
    state, short = MemoryState(ttl=60), request_of(rounds=5)

    async def window_after(refusal: str, exchange: ProxyExchange = short) -> int:
        with several(state) as proxy:
            weight = await proxy.count(exchange, exactly=True)
            assert await proxy.compact_refused(exchange, weight, refusal, None) is not None
            return (await proxy.count(exchange)).window

    async def window_known(exchange: ProxyExchange) -> int:
        with several(state) as proxy:
            return (await proxy.count(exchange)).window

    assert 4_000 == asyncio.run(window_after(""))
    assert 4_000 > asyncio.run(window_after("too long, limit of 20", request_of(rounds=5, path="/odd"))) > 20
    assert 2_000 == asyncio.run(window_after("maximum context length is 2,000 tokens"))
    assert 2_000 == asyncio.run(window_known(short))
    assert 4_000 == asyncio.run(window_known(request_of(rounds=5, path="/openai/deployments/large/chat")))
    with several() as proxy:
        asyncio.run(state.put(proxy._limit_key(short), json.dumps([2_000, time.time() - 1]).encode()))
    assert 4_000 == asyncio.run(window_known(short)), "it is believed for ever"


def test_a_body_that_is_refused_by_its_bytes_names_no_window() -> None:
    """413 is about bytes; 400 in the words of a provider is about tokens."""
    said = b'{"error": {"code": "context_length_exceeded", "message": "maximum context length is 2000 tokens"}}'
    for status, content, text in ((413, b"<title>413 Too Large</title>", ""), (400, said, said.decode())):
        reply = UpstreamResponse(httpcore.Response(status, content=content))
        assert text == asyncio.run(reply.read_overflow())


def test_those_who_wait_for_a_fold_do_not_hold_it_up() -> None:
    """A fold needs threads to go on; requests that were refused wait for it, however many they are."""

    async def all_done() -> int:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        asked, go = asyncio.Event(), asyncio.Event()

        async def model(ask: Ask) -> str:
            asked.set()
            await go.wait()
            return "## Progress\nAll is well."

        with several(summarizer=model) as proxy:
            folding = asyncio.create_task(folded(proxy, request_of(named="main")))
            await asked.wait()
            refused = [request_of(first, 5, "main") for first in (300, 600, 900)]
            weights = [await proxy.count(one, exactly=True) for one in refused]
            again = [
                asyncio.create_task(proxy.compact_refused(one, weight, "too long", None))
                for one, weight in zip(refused, weights, strict=True)
            ]
            await asyncio.sleep(0.2)
            go.set()
            async with asyncio.timeout(20):
                return sum(one is not None for one in await asyncio.gather(folding, *again))

    assert 4 == asyncio.run(all_done())


def test_a_state_that_holds_rubbish_costs_a_summary_and_no_fold() -> None:
    """What cannot be read is nobody's, found or claimed."""

    class Rubbish(MemoryState):
        async def first(self, keys: Sequence[str]) -> tuple[int, bytes] | None:
            return 0, b'{"session_id": ["a"], "step": {}}'

        async def claim(self, key: str, value: bytes) -> bytes:
            return b"nonsense"

    with several(Rubbish(ttl=60)) as proxy:
        assert "new" == asyncio.run(folded(proxy, request_of())).kind


def test_a_request_that_was_answered_is_let_go() -> None:
    """Ten thousand conversations are remembered by name, not with all that they said."""
    with several() as proxy:
        exchange = request_of()
        asyncio.run(folded(proxy, exchange))
        kept = weakref.ref(exchange)
        del exchange
        gc.collect()
        assert kept() is None


def test_an_odd_answer_is_still_the_clients() -> None:
    """Whatever stands where the provider's count should be: nothing is raised while it passes."""
    exchange = request_of()
    exchange.endpoint = RESPONSES
    with several() as proxy:
        proxy._newest["s"] = exchange
        listener = UsageListener(proxy, exchange, "s")
        for answer in (b'{"usage": {"input_tokens": 1}, "output": 5}', b'{"usage": [], "output": [{"type": []}]}'):
            listener.feed(b"data: " + answer + b"\n")
        listener.end()


# -- requests ----------------------------------------------------------------------------------------------------------


async def asked(
    relay: Relay, exchange: ProxyExchange, *headers: tuple[bytes, bytes], stays: bool = True
) -> dict[str, Any]:
    """What a client gets that sends this, and then stays or leaves; empty when it left."""
    said: list[Any] = []
    coming = [{"type": "http.request", "body": exchange.body.text.encode()}]

    async def receive() -> Any:
        if coming:
            return coming.pop()
        await asyncio.sleep(60 if stays else 0.05)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        said.append(message)

    path = b"/v1/chat/completions"
    scope = {"type": "http", "method": "POST", "raw_path": path, "query_string": b"", "headers": list(headers)}
    await relay(scope, receive, send)
    return dict(said[0]) if said else {}


def relay_of(conversations: Conversations) -> Relay:
    """A relay for one request at a time, to a server that is not there."""
    upstream = Upstream("http://127.0.0.1:9", timeout=1, connect_timeout=1)
    return Relay(upstream, conversations, Operations(level="error"), max_body=1 << 20, max_requests=1)


def test_folds_of_clients_that_left_are_requests_too() -> None:
    """Each holds its list: somebody who sends and leaves cannot pile them up."""

    async def statuses() -> list[int]:
        go = asyncio.Event()

        async def model(ask: Ask) -> str:
            await go.wait()
            return "## Progress\nAll is well."

        with several(summarizer=model) as proxy:
            relay = relay_of(proxy)
            left = await asked(relay, request_of(), stays=False)
            async with asyncio.timeout(20):
                during = await asked(relay, request_of(first=300))
            go.set()
            await relay.finish_compactions()
            after = await asked(relay, request_of())
        return [one.get("status", 0) for one in (left, during, after)]

    assert [0, 503, 502] == asyncio.run(statuses())


@pytest.mark.parametrize(
    ("name", "status"), [(b"a\tb", 400), (b"a\x85b", 400), (b"x" * 129, 400), (b"caf\xe9/..", 502), (b" ", 502)]
)
def test_a_name_can_stand_in_a_header(name: bytes, status: int) -> None:
    """It comes back in the answer."""
    with several() as proxy:
        given = asked(relay_of(proxy), request_of(rounds=1), (b"x-compact-session", name))
        assert status == asyncio.run(given)["status"]


def test_whatever_ends_a_request_it_is_counted_as_ended() -> None:
    """Also a failure that nobody thought of."""
    operations = Operations(level="error")
    with several() as proxy:
        upstream = Upstream("http://127.0.0.1:9", timeout=1, connect_timeout=1)
        relay = Relay(upstream, proxy, operations, max_body=1 << 20, max_requests=1)

        async def receive() -> Any:
            raise ZeroDivisionError

        scope = {"method": "GET", "raw_path": b"/", "query_string": b"", "headers": []}
        with pytest.raises(ZeroDivisionError):
            asyncio.run(relay(scope, receive, receive))  # type: ignore[arg-type]
    assert b"compact_proxy_in_flight 0.0" in generate_latest(operations._registry)


# -- what need not be read ---------------------------------------------------------------------------------------------


@given(st.data())
def test_what_is_light_at_a_glance_is_light_on_the_scales(data: st.DataObject) -> None:
    """However a conversation grows or changes: nobody is taken for light whom the manager should see."""
    words = data.draw(st.sampled_from([40, 120, 300]))
    pattern = "utr" * 30
    scales, light = (
        RequestCounter(CompactConfig(max_context_tokens=data.draw(st.integers(12_000, 60_000)))),
        RequestPrefixes(),
    )
    sure = 0
    for size in sorted(data.draw(st.lists(st.integers(3, 90), min_size=2, max_size=6))):
        messages = chat(pattern[:size], words=words)
        if data.draw(st.integers(0, 5)) == 0:
            messages[data.draw(st.integers(0, len(messages) - 1))] = {"role": "user", "content": "日本語" * 2_000}
        model = data.draw(st.sampled_from(["gpt-4o", "gpt-4o", "gpt-4o", "claude-sonnet-5"]))
        raw = json.dumps({"messages": messages, "model": model}).encode()
        body = Body.read(raw, "messages")
        assert body is not None
        glance, weight = light.match(b"me", raw), asyncio.run(scales.count(CHAT, body, model))
        assert not (glance.is_below and weight.may_be_due)
        sure += glance.is_below
        if not weight.may_be_due:
            light.remember(glance, weight.room, body.ending)
            assert len(raw) < 40_000 or weight.room < 20_000 or light.match(b"me", raw).is_below
        assert not light.match(b"you", raw).is_below


def test_a_picture_is_looked_at_and_a_smaller_window_makes_everything_forgotten() -> None:
    """A short address may stand for many tokens; and what was light may not be any more."""
    light, messages = RequestPrefixes(), chat("u" * 200, words=60)
    raw = json.dumps({"messages": messages}).encode()
    end = b"}]}"
    light.remember(light.match(b"me", raw), 50_000, end)
    more, seen = {"role": "user", "content": "x"}, {"role": "user", "content": [{"type": "image_url"}]}
    longer, pictured = (json.dumps({"messages": [*messages, one]}).encode() for one in (more, seen))
    assert light.match(b"me", longer).is_below
    assert not light.match(b"me", pictured).is_below
    assert not light.match(b"me", json.dumps({"messages": messages, "model": "other"}).encode()).is_below
    light.clear()
    assert not light.match(b"me", longer).is_below
