"""The parts of the proxy that need no server: bodies, weights, headers, addresses."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compact import CompactConfig, CompactManager
from compact._endpoints import CHAT, MESSAGES, RESPONSES, Endpoint
from compact.proxy._body import Body
from compact.proxy._scales import Scales
from compact.proxy._upstream import Upstream, forwarded
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
    sent = body.carrying([summary, *kept])
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
    assert body.carrying([{"s": 1}, body.messages[1]]) == (
        b'{"model":"m","messages":[{"s": 1},' + kept + b'],"stream":true}'
    )


# -- weights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES, MESSAGES], ids=lambda endpoint: endpoint.dialect)
def test_the_scales_say_what_the_manager_says(endpoint: Endpoint) -> None:
    """A list that the manager would fold is never taken for one below the line."""
    tools = [{"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object"}}]
    for words in (20, 40, 60, 80, 100):
        messages = chat("utr" * 12 + "u", words=words, dialect=endpoint.dialect)
        asked = {"model": "gpt-4o", endpoint.messages: messages, "tools": tools, "instructions": "Be brief. " * 20}
        body = Body.read(json.dumps(asked).encode(), endpoint.messages)
        assert body is not None
        config = CompactConfig(max_context_tokens=6_000, storage={"adapter": "none"})
        scales = Scales(config)
        weight = asyncio.run(scales.weigh(endpoint, body, "gpt-4o", exactly=True))
        with CompactManager(config) as manager:
            decision = manager.should_compact("s", messages, tools=endpoint.weighed(asked), model="gpt-4o")
        assert weight.total == decision.usage.total
        assert weight.may_be_due == bool(decision)
        assert asyncio.run(scales.weigh(endpoint, body, "gpt-4o")).may_be_due == bool(decision)
        kept = body.messages[5:]
        fewer = Body.read(json.dumps({**asked, endpoint.messages: kept}).encode(), endpoint.messages)
        assert fewer is not None
        exact = asyncio.run(Scales(config).weigh(endpoint, fewer, "gpt-4o", exactly=True))
        assert scales.after(weight, endpoint, body, "gpt-4o", kept) == exact.total


def test_a_picture_weighs_more_than_its_bytes() -> None:
    """A short address of a picture is not taken for a short request."""
    picture = {"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}
    messages = [{"role": "user", "content": [picture]}] * 12
    body = Body.read(json.dumps({"model": "gpt-4o", "messages": messages}).encode(), "messages")
    assert body is not None
    config = CompactConfig(max_context_tokens=6_000)
    assert len(body.text) < config.trigger_line
    assert asyncio.run(Scales(config).weigh(CHAT, body, "gpt-4o")).may_be_due


def test_a_window_that_was_heard_of_and_room_for_the_answer_count() -> None:
    """The lower of the two windows holds; no more than half of it is kept for the answer."""
    asked = {"model": "gpt-4o", "max_tokens": 10**9, "messages": chat("u" * 20, words=50)}
    body = Body.read(json.dumps(asked).encode(), "messages")
    assert body is not None
    scales = Scales(CompactConfig(max_context_tokens=100_000))
    far, near = (asyncio.run(scales.weigh(CHAT, body, "gpt-4o", limit)) for limit in (None, 4_000))
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
    assert forwarded(given) == [(b"Accept", b"*/*"), (b"Cookie", b"a=1"), (b"Cookie", b"b=2")]


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
    assert upstream.location(said) == place


def test_a_compressed_body_is_read_within_its_limit() -> None:
    """Not one byte more is unpacked than a body may have."""
    from compact.proxy._answers import Refused
    from compact.proxy._packing import unpacked

    plain = b"x" * 1_000
    for encoding, data in ((b"deflate", zlib.compress(plain)), (b"", plain), (b"br", plain)):
        assert unpacked(data, encoding, 1_000) == plain
    for data, status in ((zlib.compress(plain * 10_000), 413), (b"no", 400), (zlib.compress(plain)[:-5], 400)):
        with pytest.raises(Refused) as refused:
            unpacked(data, b"gzip", 1_000)
        assert refused.value.status == status


def test_only_packings_that_can_be_overheard_are_asked_for() -> None:
    """A refusal that nobody can read cannot be answered by a smaller request."""
    from compact.proxy._packing import Unpacker, overheard

    assert overheard(b"gzip, deflate, br, zstd") == b"gzip, deflate"
    assert overheard(b"br;q=1.0, gzip;q=0.5") == b"gzip;q=0.5"
    assert overheard(b"br") == overheard(b"*") == b"identity"
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
    assert below.leaves(path)
    assert not whole.leaves(path)
    assert not below.leaves(b"/v1/files/report..final.json")
