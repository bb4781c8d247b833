"""What a proxy promises (T32 to T37): one upstream whatever a request says, no secret told, no byte changed."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import random
import socket
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_http import (
    PATIENCE,
    Asked,
    Process,
    Upstream,
    answer,
    connect,
    proxy,
    request,
    says,
    statuses,
    talk,
    upstream,
)

from compact import CompactConfig, CompactError
from compact.proxy import running
from compact.testing import chat

CHAT, RESPONSES, MESSAGES = PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
HELLO = json.dumps({"model": "m", "messages": chat("u"), "input": chat("u"), "max_tokens": 9}).encode()
KEY = "sk-canary0123456789abcdefghijklmnopqrstuvwxyzABCDEF"
MOST = 12_000_000
"""Bytes of the largest body that `apart` takes."""


def config(upstream: Upstream, **settings: Any) -> CompactConfig:
    """A proxy for that upstream, with room for everything."""
    return CompactConfig(
        max_context_tokens=1_000_000,
        storage={"adapter": "none"},
        proxy={"upstream": upstream.url, "port": 0, "drain": 1, **settings},
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    with upstream() as running_:
        yield running_


@pytest.fixture(scope="module")
def here(server: Upstream) -> Iterator[str]:
    """A proxy in this process."""
    with running(config(server)) as url:
        yield url


@pytest.fixture(scope="module")
def apart(server: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A proxy in a process of its own, which takes bodies of 12 MB."""
    with proxy(tmp_path_factory.mktemp("proxy"), server.url, COMPACT_PROXY_MAX_BODY=str(MOST)) as process:
        yield process


@pytest.fixture
def play(server: Upstream) -> Upstream:
    """The upstream, which says what every upstream says until the test tells it otherwise."""
    server.play = says()  # whatever another test left there
    server.asked.clear()
    return server


# -- T32: nothing in a request chooses where it goes -------------------------------------------------------------------

WATCHED = """
import sys
sys.modules["uvloop"] = None  # it connects where no hook of Python's sees it
seen = open("connections", "a", buffering=1)
def note(event, given):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
        seen.write(json.dumps([event, *map(str, given[-1] if event == "socket.connect" else given[:2])]) + "\\n")
import json
sys.addaudithook(note)
from compact.cli import main
main()
"""
"""The command, with a note of every address that is looked up or connected to."""


def choosing(decoy: int) -> dict[str, bytes]:
    """Requests that would rather go to somebody else."""
    named = f"http://127.0.0.1:{decoy}"
    places = (named, "http://169.254.169.254/latest/meta-data", f"//localhost:{decoy}/x")
    fields = ("base_url", "api_base", "model", "upstream", "url", "proxy", "metadata", "user")
    headers = (
        "X-Forwarded-Host",
        "X-Forwarded-Server",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-Upstream",
        "X-Compact-Upstream",
        "X-Compact-Session",
        "X-Host",
        "Forwarded",
        "Via",
        "Proxy",
        "Proxy-Authorization",
        "Proxy-Connection",
        "Base-Url",
        "Api-Base",
        "OpenAI-Base-URL",
        "Location",
        "Destination",
        "True-Client-IP",
        "X-HTTP-Host-Override",
    )
    targets = (
        f"//127.0.0.1:{decoy}/v1/models",
        f"///127.0.0.1:{decoy}/v1/models",
        f"/\\127.0.0.1:{decoy}/v1/models",
        f"/@127.0.0.1:{decoy}/v1/models",
        f"/:80@127.0.0.1:{decoy}/",
        f"/%2f%2f127.0.0.1:{decoy}/v1/models",
        f"/v1/../..//127.0.0.1:{decoy}/v1/models",
        f"/v1/{named}/models",
        f"/{named}",
        f"/.127.0.0.1:{decoy}",
        f"/v1/models#@127.0.0.1:{decoy}/",
        f"/v1/models;{named}",
        f"/%0d%0aHost:%20127.0.0.1:{decoy}%0d%0a",
        f"/v1/models?x=%0d%0aHost:%20127.0.0.1:{decoy}",
        "//169.254.169.254/latest/meta-data",
        f"{named}/v1/models",
        f"http://user:{KEY}@127.0.0.1:{decoy}/v1/models",
        f"https://127.0.0.1:{decoy}/v1/models",
        "http://169.254.169.254/latest/meta-data",
        "ftp://169.254.169.254/",
        f"127.0.0.1:{decoy}",
        f"@127.0.0.1:{decoy}/",
        "*",
        f"v1/{named}",
        f"?{named}",
    )
    listed = ("upstream", "url", "base_url", "api_base", "target", "host", "redirect", "proxy")
    key = f"Authorization: Bearer {KEY}"
    asked: dict[str, bytes] = {}
    for field in fields:
        for place in places:
            body = json.dumps({**json.loads(HELLO), field: {"url": place} if field == "metadata" else place}).encode()
            asked[f"body {field} {place}"] = request(CHAT, body, key)
    for header in headers:
        asked[f"header {header}"] = request(CHAT, HELLO, key, f"{header}: {named}")
    for target in targets:
        asked[f"target {target}"] = request(target, None, key)
        asked[f"target {target} with a body"] = request(target, HELLO, key)
    for name in listed:
        asked[f"query {name}"] = request(f"/v1/models?{name}={named}/", None, key)
    for host in (f"127.0.0.1:{decoy}", f"localhost:{decoy}", "169.254.169.254", f"127.0.0.1@x:{decoy}", "", named):
        asked[f"host {host}"] = request("/v1/models", None, key, host=host)
    asked["host twice"] = request("/v1/models", None, key, f"Host: 127.0.0.1:{decoy}")
    for method in ("CONNECT", "OPTIONS", "GET"):
        asked[f"method {method}"] = request(f"127.0.0.1:{decoy}", None, key, method=method)
    asked["a line in the target"] = request(f"/v1\r\nHost: 127.0.0.1:{decoy}\r\nx: /models", None, key)
    asked["a line in a header"] = request("/v1/models", None, key, f"X: a\rHost: 127.0.0.1:{decoy}")
    return asked


@pytest.mark.slow
@pytest.mark.spec("T32")
def test_nothing_in_a_request_chooses_another_host(tmp_path: Path) -> None:
    """Bodies, headers, queries, targets, hosts, redirects, variables: one address is looked up and connected to."""
    with upstream() as decoy, upstream() as server:
        wanted = f"http://{KEY}@127.0.0.1:{decoy.port}"
        variables = {name: wanted for each in ("HTTP", "HTTPS", "ALL") for name in (f"{each}_PROXY", f"{each}_proxy")}
        variables |= {"OPENAI_BASE_URL": wanted, "ANTHROPIC_BASE_URL": wanted, "all_proxy": wanted}
        with proxy(tmp_path, server.url, run=("-c", WATCHED), **variables) as process:
            asked = choosing(decoy.port)
            assert len(asked) >= 60
            for name, raw in asked.items():
                before = len(server.asked)
                heard = statuses(talk(process.port, raw))
                reached = len(server.asked) - before
                assert (heard, reached) in (([200], 1), ([400], 0), ([403], 0)), name
                if reached:
                    assert server.asked[-1].all(b"host") == [f"127.0.0.1:{server.port}".encode()], name
            assert sum(one.all(b"authorization") == [f"Bearer {KEY}".encode()] for one in server.asked) >= 40
            for status in (301, 302, 303, 307, 308):
                for location in redirects(decoy.port):
                    server.asked.clear()
                    server.play = says(answer(b"", f"Location: {location}", status=f"{status} Moved"))
                    heard = talk(process.port, request(CHAT, HELLO, f"Authorization: Bearer {KEY}"))
                    assert (statuses(heard), len(server.asked)) == ([502], 1), location
                    assert b"ocation:" not in heard
            for location in (f"{server.url}/v1/other?a=b", "/v1/other?a=b"):
                server.play = says(answer(b"", f"Location: {location}", status="307 Moved"))
                assert b"\r\nlocation: /v1/other?a=b\r\n" in talk(process.port, request(CHAT, HELLO)).lower()
        assert decoy.connections == 0
        events = [json.loads(line) for line in (tmp_path / "connections").read_text().splitlines()]
        assert {tuple(place) for event, *place in events if event == "socket.connect"} == {
            ("127.0.0.1", str(server.port))
        }
        assert {place[0] for event, *place in events if event != "socket.connect"} <= {"127.0.0.1"}


def redirects(decoy: int) -> tuple[str, ...]:
    """Places that an upstream might send a client to, with its key."""
    return (
        f"http://127.0.0.1:{decoy}/v1/chat/completions",
        f"//127.0.0.1:{decoy}/",
        f"///127.0.0.1:{decoy}/",
        f"/\\127.0.0.1:{decoy}/",
        f"\\\\127.0.0.1:{decoy}/",
        f"http:127.0.0.1:{decoy}/",
        f"http://user@127.0.0.1:{decoy}/",
        "http://169.254.169.254/latest/meta-data",
        f"HTTPS://localhost:{decoy}",
        f"/\t/127.0.0.1:{decoy}/",
    )


# -- T33: who may ask --------------------------------------------------------------------------------------------------


@pytest.mark.spec("T33")
@pytest.mark.parametrize(
    "foreign",
    [
        "Origin: http://evil.example",
        "Origin: null",
        "Origin: https://127.0.0.1.evil.example",
        "Host: evil.example",
        "Host: 127.0.0.1.evil.example",
        "Sec-Fetch-Site: cross-site",
    ],
)
def test_a_page_of_somebody_else_gets_nothing(here: str, play: Upstream, foreign: str) -> None:
    """403, and nothing is sent on; the same request without it passes."""
    port = int(here.rpartition(":")[2])
    name, _, value = foreign.partition(": ")
    raw = request(CHAT, HELLO, host=value) if name == "Host" else request(CHAT, HELLO, foreign)
    assert (statuses(talk(port, raw)), play.asked) == ([403], [])
    assert statuses(talk(port, request(CHAT, HELLO))) == [200]


@pytest.mark.spec("T33")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_only_loopback_without_a_token(server: Upstream, host: str) -> None:
    """It does not even start."""
    with pytest.raises(CompactError, match="COMPACT_PROXY_TOKEN"), running(config(server, host=host)):
        raise AssertionError


# -- T34: nothing of a secret is told ----------------------------------------------------------------------------------


def troubled(asked: Asked, calls: list[int]) -> bytes | None:
    """What an upstream says that has every trouble there is, and repeats the key it was sent wherever it can."""
    calls[0] += 1
    told = f'{{"error": {{"message": "Incorrect API key provided: {KEY}", "code": "x"}}}}'.encode()
    kind = asked.target.partition("kind=")[2].partition("&")[0]
    long = len(asked.body) > 8_000
    if kind == "reset":
        return None
    if kind == "overflow" and long:
        said = f"This model's maximum context length is 2000 tokens. {KEY}"
        return answer(
            json.dumps({"error": {"code": "context_length_exceeded", "message": said}}).encode(), status="400 x"
        )
    if kind in ("401", "500", "429"):
        return answer(told, f"x-request-id: {KEY}", f"set-cookie: k={KEY}", status=f"{kind} {KEY}")
    if kind == "garbage":
        return f"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{KEY}"[:50].encode()
    if kind == "broken":
        return f"HTTP/1.1 200 OK\r\nx-{KEY}\r\n\r\n".encode()
    if kind == "redirect":
        return answer(b"", f"location: https://{KEY}@elsewhere.example/{KEY}", status="302 x")
    if kind == "stream":
        body = "".join(
            f"data: {json.dumps({'choices': [], 'usage': {'prompt_tokens': 9, 'k': KEY}})}\n\n" for _ in "abc"
        )
        return answer(body.encode(), "content-type: text/event-stream")
    if calls[0] % 3 == 0:  # a summary may fail too
        return answer(told, status="401 x")
    return answer(f'{{"choices": [], "not": "{KEY}"'.encode())


@pytest.mark.slow
@pytest.mark.spec("T34")
def test_no_secret_is_told_anywhere(tmp_path: Path) -> None:
    """The key in headers, queries, paths, variables and the upstream's own words: in no file, line or number."""
    calls = [0]

    async def play(asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = troubled(asked, calls)
        if said is None:
            reset(writer)
        else:
            writer.write(said)
            await writer.drain()
            if b"kind=garbage" in asked.line:
                writer.close()

    with upstream(play) as server:
        options = "--log-level", "debug", "--state", "sqlite:state.db", "--summary-model", "same"
        variables = {
            "COMPACT_PROXY_TOKEN": KEY,
            "OPENAI_API_KEY": KEY,
            "ANTHROPIC_API_KEY": KEY,
            "SOME_VARIABLE": KEY,
            "COMPACT_MAX_CONTEXT_TOKENS": "4000",
            "COMPACT_TRACING_JSONL": "events.jsonl",
            "COMPACT_STORAGE_PATH": "archive",
            "COMPACT_SUMMARY_MAX_RETRIES": "0",
        }
        with proxy(tmp_path, server.url, *options, **variables) as process:
            answered = ask_in_every_way(process)
            told = talk(process.port, request("/metrics", None, f"Authorization: Bearer {KEY}"))
            assert b"compact_proxy_requests_total" in told
            told += talk(process.port, request("/healthz"))
    assert {200, 400, 401, 403, 500, 502} <= set(answered)
    assert len(answered) >= 200
    files = {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"stdout", "stderr", "state.db", "events.jsonl"} <= files.keys()
    assert any(name.startswith("archive/") for name in files)
    assert b'"fold": "new"' in files["stderr"]
    assert b'"fold": "recovered"' in files["stderr"]
    secrets = KEY, KEY[3:], KEY.removeprefix("sk-")[:24]
    hits = {name for name, data in {**files, "told": told}.items() for key in secrets if key.encode() in data}
    assert not hits | {name for name in files for key in secrets if key in name}


def ask_in_every_way(process: Process) -> list[int]:
    """Some 200 calls, each with the key in all the places that a client may put it; the statuses that came back."""
    names = "authorization x-api-key api-key x-goog-api-key cookie user-agent referer x-custom openai-organization"
    headers = {name: f"Bearer {KEY}" if name == "authorization" else KEY for name in names.split()}
    headers |= {"anthropic-version": KEY, "x-compact-token": KEY, "proxy-authorization": KEY, f"x-{KEY}": KEY}
    long = {"model": "gpt-4o", "max_tokens": 64}
    answered = []
    with httpx.Client(base_url=process.url, headers=headers, timeout=PATIENCE, trust_env=False) as client:

        def ask(target: str, body: bytes = HELLO, **more: str) -> None:
            joined = f"{target}{'&' if '?' in target else '?'}key={KEY}"
            with suppress(httpx.HTTPError):
                answered.append(0)
                answered[-1] = client.post(joined, content=body, headers=more).status_code

        for turn in range(8):
            for kind in ("200", "401", "500", "429", "reset", "garbage", "broken", "redirect", "stream"):
                ask(f"{CHAT}?kind={kind}")
                ask(f"{PATHS[turn % 3]}?kind={kind}", b'{"messages": [' + KEY.encode())
            ask(f"{CHAT}?kind=200", b"\x1f\x8b" + KEY.encode(), **{"content-encoding": "gzip"})
            ask(f"{CHAT}?kind=200", host="evil.example")
            ask(f"{CHAT}?kind=200", **{"x-compact-session": "s" * 500})
            ask(f"/~{KEY}{CHAT}?kind=200")
            ask(f"/~not-{KEY}{CHAT}?kind=200")
            ask(f"/v1/{KEY}?kind=200")
            for path, dialect in zip(PATHS, ("openai-chat", "openai-responses", "anthropic"), strict=True):
                messages = chat("u" + "tr" * 12 + "u", words=200, dialect=dialect, first=100 * (turn // 3))
                listed = "input" if path == RESPONSES else "messages"
                body = json.dumps({**long, listed: messages}).encode()
                more = {"x-compact-session": f"{KEY}-{turn}"} if turn % 3 == 1 else {}
                ask(f"{path}?kind={('200', 'stream', 'overflow')[turn % 3]}", body, **more)
            overflow = json.dumps({**long, "model": f"other-{turn}", "messages": chat("u" + "tr" * 8 + "u", words=100)})
            ask(f"{CHAT}?kind=overflow", overflow.encode())
    for raw in (
        f"GET /{KEY} HTTP/9.9\r\n{KEY}: {KEY}\r\n\r\n",
        f"{KEY}\r\n\r\n",
        f"GET http://{KEY}@x/ HTTP/1.1\r\nHost: x\r\n\r\n",
    ):
        answered += statuses(talk(process.port, raw.encode(), leaves=True))
    return answered


def reset(writer: asyncio.StreamWriter) -> None:
    """Break a connection off without an end."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


# -- T35: streams ------------------------------------------------------------------------------------------------------


def odd(number: int) -> tuple[bytes, list[bytes]]:
    """A stream, and the writes it comes in: as chunks of odd sizes, with a length, or until the connection ends."""
    chance = random.Random(number)
    events = "".join(
        f"event: délta\r\ndata: {json.dumps({'n': n, 'text': 'é☃' * chance.randrange(9)}, ensure_ascii=False)}\n\n"
        for n in range(chance.randrange(1, 40))
    ).encode()
    kind = "content-type: text/event-stream\r\n"
    form = number % 4
    if form == 3:
        sent = f"HTTP/1.1 200 OK\r\n{kind}connection: close\r\n\r\n".encode() + events
    elif form == 2:
        sent = f"HTTP/1.1 200 OK\r\n{kind}content-length: {len(events)}\r\n\r\n".encode() + events
    else:
        sent, at = f"HTTP/1.1 200 OK\r\n{kind}transfer-encoding: chunked\r\n\r\n".encode(), 0
        while at < len(events):
            part = events[at : at + chance.choice((1, 2, 7, 100, 1_000))]
            sent += f"{len(part):x}\r\n".encode() + part + b"\r\n"
            at += len(part)
        sent += b"0\r\n\r\n"
    cuts = sorted({0, len(sent), *(chance.randrange(len(sent)) for _ in range(chance.randrange(6)))})
    return events, [sent[start:end] for start, end in pairwise(cuts)]


@pytest.mark.slow
@pytest.mark.spec("T35")
def test_a_thousand_streams_are_the_bytes_that_were_sent(apart: Process, play: Upstream) -> None:
    """Fifty at once, whatever the writes and chunks they come in."""
    sent: dict[int, bytes] = {}

    async def stream(asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = int(asked.all(b"x-number")[0])
        sent[number], parts = odd(number)
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0)
        await writer.drain()
        if number % 4 == 3:
            writer.close()

    play.play = stream

    def ask(first: int) -> dict[int, bytes]:
        heard = {}
        with closing(http.client.HTTPConnection("127.0.0.1", apart.port, timeout=60)) as client:
            for number in range(first, 1_000, 50):
                client.request("POST", PATHS[number % 3], HELLO, {"x-number": str(number)})
                heard[number] = client.getresponse().read()
        return heard

    with ThreadPoolExecutor(50) as pool:
        heard = {number: stream for part in pool.map(ask, range(50)) for number, stream in part.items()}
    assert heard == sent
    assert len(heard) == 1_000


@pytest.mark.slow
@pytest.mark.spec("T35")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_slow_reader_holds_the_upstream_back_and_costs_no_memory(tmp_path: Path) -> None:
    """200 MB that nobody hurries to read: at most 8 MB more."""
    part, total, written = b"d" * 65_536, 3_200, [0]

    async def flood(asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parts = int(asked.target.partition("=")[2])
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {parts * len(part)}\r\n\r\n".encode())
        for _ in range(parts):
            writer.write(part)
            await writer.drain()
            written[0] += len(part)

    def read(process: Process, parts: int, waits: Callable[[], None]) -> int:
        heard = 0
        with connect(process.port) as connection:
            connection.sendall(request(f"{CHAT}?parts={parts}", HELLO))
            waits()
            while data := connection.recv(1 << 20):
                heard += len(data)
                time.sleep(0.0002)
        return heard

    def held() -> None:
        deadline, before = time.monotonic() + PATIENCE, -1
        while before != written[0] or not before:
            assert time.monotonic() < deadline
            before = written[0]
            time.sleep(0.2)

    with upstream(flood) as server, proxy(tmp_path, server.url) as process:
        read(process, 200, held)
        written[0] = 0
        before = process.calm()
        stopped: list[int] = []
        heard = read(process, total, lambda: (held(), stopped.append(written[0]))[0])
        assert heard > total * len(part)
        assert stopped[0] < 32 << 20
        assert process.memory() - before <= 8 << 20


@pytest.mark.spec("T35")
@pytest.mark.parametrize("when", ["before an answer", "between events", "in a stream", "slow to read"])
def test_the_upstream_is_closed_when_the_client_leaves(here: str, play: Upstream, when: str) -> None:
    """Within a second, whether it is silent or talks; the best of five tells, as a busy machine may need its time."""
    began = False

    async def talks(asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal began
        if when != "before an answer":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n")
        began = True
        if when in ("before an answer", "between events"):
            await reader.read()
            raise ConnectionResetError
        while True:
            writer.write(b"data: 2\n\n" * 1_000)
            await writer.drain()
            await asyncio.sleep(0)

    def leaves() -> bool:
        nonlocal began
        began = False
        with connect(port) as connection:
            connection.sendall(request(CHAT, HELLO))
            if when == "before an answer":
                until(lambda: began)
            else:
                assert b"200 OK" in connection.recv(1_000)
            if when == "slow to read":
                time.sleep(0.3)
            play.left.clear()
        in_time = play.left.wait(1)
        assert play.left.wait(PATIENCE)
        return in_time

    play.play, port = talks, int(here.rpartition(":")[2])
    assert any(leaves() for _ in range(5))
    assert statuses(talk(port, request("/healthz"))) == [200]


def until(true: Callable[[], bool]) -> None:
    """Wait for something."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"


@pytest.mark.spec("T35")
@pytest.mark.parametrize(
    ("said", "ends"),
    [
        pytest.param(SSE, "reset", id="reset between chunks"),
        pytest.param(SSE + b"9\r\ndata", "reset", id="reset in a chunk"),
        pytest.param(SSE, "close", id="no last chunk"),
        pytest.param(SSE + b"9\r\ndata", "close", id="end in a chunk"),
        pytest.param(SSE + b"ff", "close", id="end in a size"),
        pytest.param(SSE + b"0\r\n", "close", id="end in the end"),
        pytest.param(SSE + b"zz\r\nno size\r\n0\r\n\r\n", "close", id="no size"),
        pytest.param(SSE + b"9\r\ndata", "silence", id="silence in a chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nhalf", "close", id="too short"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nhalf", "reset", id="reset in a body"),
        pytest.param(b"HTTP/1.1 400 Bad\r\ncontent-length: 99\r\n\r\nhalf", "close", id="a refusal too short"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-len", "close", id="half a head"),
        pytest.param(b"", "close", id="no answer"),
        pytest.param(b"", "reset", id="reset before an answer"),
        pytest.param(b"", "silence", id="silence before an answer"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", "close", id="no HTTP"),
    ],
)
def test_an_upstream_that_breaks_off_is_an_error(said: bytes, ends: str) -> None:
    """Never a clean end: the client's own error, or a status of 502 or 504."""

    async def breaks(asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        await asyncio.sleep(0.05)  # what was said arrives before the end
        if ends == "reset":
            reset(writer)
        elif ends == "silence":
            await reader.read()
        raise ConnectionResetError

    with upstream(breaks) as server, running(config(server, timeout=0.3)) as url:
        with httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False) as client:
            try:
                status = client.post(CHAT, content=HELLO).status_code
            except (httpx.RemoteProtocolError, httpx.ReadError):
                status = 0
        assert status in ((0,) if said.startswith(b"HTTP/1.1 200 OK\r\nc") and b"\r\n\r\n" in said else (502, 504))


# -- T36: what is malformed goes nowhere -------------------------------------------------------------------------------

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

FRAMING = {
    "a length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunks and a length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "a list of lengths": POST + b"Content-Length: 5, 5\r\n\r\nhello",
    "a negative length": POST + b"Content-Length: -5\r\n\r\nhello",
    "a signed length": POST + b"Content-Length: +5\r\n\r\nhello",
    "a length beyond numbers": POST + b"Content-Length: 99999999999999999999999\r\n\r\nhello",
    "a length of 5,000 digits": POST + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\nhello",
    "a length in hex": POST + b"Content-Length: 0x5\r\n\r\nhello",
    "no length": POST + b"Content-Length: \r\n\r\nhello",
    "a length with a blank": POST + b"Content-Length: 5 5\r\n\r\nhello",
    "a blank before the colon": POST + b"Content-Length : 5\r\n\r\nhello",
    "another coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunks first": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "packed chunks": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "packed chunks in two lines": POST + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a coding behind a tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": CHUNKED.replace(b"1.1", b"1.0", 1) + b"0\r\n\r\n",
    "a folded header": POST + b"X-A: b\r\n folded\r\nContent-Length: 0\r\n\r\n",
    "a folded length": POST + b"Content-Length:\r\n 5\r\n\r\nhello",
    "a size that is none": CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n",
    "a negative size": CHUNKED + b"-1\r\nhello\r\n0\r\n\r\n",
    "a size with a prefix": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a size beyond numbers": CHUNKED + b"ffffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "a chunk longer than its size": CHUNKED + b"2\r\nhello\r\n0\r\n\r\n",
    "a chunk without an end": CHUNKED + b"5\r\nhello0\r\n\r\n",
    "chunks with half line ends": CHUNKED + b"5\nhello\n0\n\n",
    "an extension with half a line end": CHUNKED + b"5;a=b\nxx\r\nhello\r\n0\r\n\r\n",
    "a NUL in a value": POST + b"X-A: a\x00b\r\nContent-Length: 0\r\n\r\n",
    "a NUL in a name": POST + b"X\x00A: ab\r\nContent-Length: 0\r\n\r\n",
    "a CR in a value": POST + b"X-A: a\rb\r\nContent-Length: 0\r\n\r\n",
    "a LF in a value": POST + b"X-A: a\nX-B: b\r\nContent-Length: 0\r\n\r\n",
    "a control character": POST + b"X-A: a\x01b\r\nContent-Length: 0\r\n\r\n",
    "half line ends": (POST + b"Content-Length: 0\r\n\r\n").replace(b"\r\n", b"\n"),
    "a header without a colon": POST + b"hello\r\n\r\n",
    "a header without a name": POST + b": hello\r\n\r\n",
    "a name with a blank": POST + b"a b: hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "words": b"hello world\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/9.9": b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
    "HTTP/2.0 in a line": b"GET / HTTP/2.0\r\nHost: 127.0.0.1\r\n\r\n",
    "small letters": b"GET / http/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "HTTP/0.9": b"GET /v1/models\r\n\r\n",
    "HTTP/0.9 with headers": b"GET /v1/models\r\nHost: 127.0.0.1\r\n\r\n",
    "an unknown method": b"EVIL / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a blank in a path": b"GET /a b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a control character in a query": b"GET /?\x01 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a high byte in a path": b"GET /\xff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a CR in a path": b"GET /a\rb HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a LF in a path": b"GET /a\nX: y HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "another protocol, and a body": POST
    + b"Connection: Upgrade\r\nUpgrade: TLS/1.3\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED)
    + SMUGGLED,
    "another protocol, and chunks": POST
    + b"Connection: Upgrade\r\nUpgrade: TLS/1.3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "a header of 1 MB": POST + b"X-A: " + b"a" * 1_000_000 + b"\r\nContent-Length: 0\r\n\r\n",
    "a path of 1 MB": b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "10,000 headers": POST + b"".join(b"X-%d: y\r\n" % n for n in range(10_000)) + b"Content-Length: 0\r\n\r\n",
    "50 MB of headers": POST + b"X-A: aaaaaaaaaaaaaaaaa\r\n" * 2_000_000,
}
SHORT = {
    "a body too short": POST + b"Content-Length: 50\r\n\r\nhello",
    "half a chunk": CHUNKED + b"5\r\nhel",
    "no last chunk": CHUNKED + b"5\r\nhello\r\n",
    "a chunk of terabytes": CHUNKED + b"fffffffffff\r\nhello",
    "half a head": POST,
    "half a line": b"GET /v1",
    "HTTP/0.9 alone": b"GET /\r\n",
}


def bomb(most: int) -> bytes:
    """So many bytes of zeros, in a thousandth of them; it has no end, which nobody gets to see."""
    packer = zlib.compressobj(9, wbits=31)
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    million = packer.compress(bytes(1_000_000)) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + million * (most // 1_000_000)


@pytest.mark.slow
@pytest.mark.spec("T36")
def test_malformed_framing_is_sent_nowhere(apart: Process, play: Upstream) -> None:
    """400, 413, 431 or a closed connection; nothing reaches the upstream, and the next request is answered."""
    for name, raw in {**FRAMING, **SHORT}.items():
        heard = statuses(talk(apart.port, raw, leaves=name in SHORT))
        assert set(heard) <= {400, 413, 431}, name
        assert name in SHORT or heard, name
        assert statuses(talk(apart.port, request())) == [200], name
        assert [one.line for one in play.asked] == [b"GET /v1/models HTTP/1.1"], name
        play.asked.clear()


@pytest.mark.slow
@pytest.mark.spec("T36")
def test_bombs_and_huge_bodies_are_sent_nowhere_and_cost_little(apart: Process, play: Upstream) -> None:
    """400 or 413; the most memory is a few times the largest body that is allowed."""
    packed = "Content-Encoding: gzip"
    large = bomb(10_000_000_000)
    assert len(large) < MOST
    chunk = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    cases: dict[str, tuple[int, tuple[bytes, ...]]] = {
        "10 GB in 10 MB": (413, (request(CHAT, large, packed),)),
        "deflate": (413, (request(CHAT, zlib.compress(bytes(MOST + 1)), "Content-Encoding: deflate"),)),
        "packed twice": (400, (request(CHAT, gzip.compress(large[:100_000]), "Content-Encoding: gzip, gzip"),)),
        "one behind the other": (400, (request(CHAT, gzip.compress(HELLO) + large, packed),)),
        "broken": (400, (request(CHAT, b"\x1f\x8b" + bytes(500), packed),)),
        "cut off": (400, (request(CHAT, gzip.compress(HELLO)[:-9], packed),)),
        "no gzip": (400, (request(CHAT, HELLO, packed),)),
        "a huge body": (413, (request(CHAT, bytes(MOST + 1)),)),
        "a huge body elsewhere": (413, (request("/v1/files", bytes(MOST + 1)),)),
        "the length of one": (413, (POST + b"Connection: close\r\nContent-Length: 9999999999\r\n\r\n",)),
        "huge in chunks": (413, (CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), *[chunk] * 13)),
    }
    talk(apart.port, request(CHAT, bytes(MOST)))
    before = apart.calm()
    play.asked.clear()
    for name, (status, parts) in cases.items():
        assert statuses(talk(apart.port, *parts)) == [status], name
        assert play.asked == [], name
    assert apart.memory() - before < 8 * MOST
    assert statuses(talk(apart.port, request(CHAT, HELLO))) == [200]


@pytest.mark.slow
@pytest.mark.spec("T36")
def test_what_only_looks_malformed_passes_as_one_request(apart: Process, play: Upstream) -> None:
    """Deep JSON is the upstream's to judge; a request inside a body is a body; two in a row are two."""
    deep = [b"[" * 100_000, b'{"messages":' * 50_000, b'{"messages":[{"content":' + b"[" * 100_000]
    deep += [b'{"messages":[{"role":"user","content":' + b"[" * 900 + b"]" * 900 + b"}]}"]
    for body in (*deep, SMUGGLED, gzip.compress(gzip.compress(HELLO))):
        more = ["Content-Encoding: gzip"] if body[:2] == b"\x1f\x8b" else []
        assert statuses(talk(apart.port, request(CHAT, body, *more))) == [200]
        assert [one.body for one in play.asked] == [body]
        play.asked.clear()
    extended = CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"5;a=b\r\nhello\r\n0\r\n\r\n"
    zeros = POST + b"Connection: close\r\nContent-Length: " + b"0" * 5_000 + b"5\r\n\r\nhello"
    for raw in (extended, zeros):
        assert statuses(talk(apart.port, raw)) == [200]
        assert play.asked.pop().body == b"hello"
    assert len(statuses(talk(apart.port, POST + b"Content-Length: 2\r\n\r\n{}" + request()))) == 2
    assert [(one.line.split()[1], one.body) for one in play.asked] == [(CHAT.encode(), b"{}"), (b"/v1/models", b"")]


@pytest.mark.spec("T36")
def test_what_comes_behind_a_body_is_no_header(here: str, play: Upstream) -> None:
    """Not in the same packet and not later, when every header has been judged already."""
    head, tail = CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"5\r\nhello\r\n", b"0\r\n"
    tail += b"Host: evil.example\r\nAuthorization: other\r\n\r\n"
    port = int(here.rpartition(":")[2])
    assert statuses(talk(port, head + tail)) == [200]
    with connect(port) as connection:
        connection.sendall(head)
        time.sleep(0.1)
        connection.sendall(tail)
        assert statuses(connection.recv(1_000)) == [200]
    for asked in play.asked:
        assert sorted(name.lower() for name, _ in asked.headers) == [b"content-length", b"host"]
        assert asked.body == b"hello"
    assert len(play.asked) == 2


# -- T37: below the trigger no byte is changed -------------------------------------------------------------------------

ODD = {
    "fields twice": b'{"model":"a","model":"b","messages":[{"role":"user","role":"user","content":"x"}],"messages":[]}',
    "numbers": b'{"model":"m","temperature":1.10,"top_p":1e400,"n":-0.0,"seed":1E+2,"messages":[{"role":"user"}]}',
    "large integers": b'{"model":"m","seed":' + b"9" * 5_000 + b',"messages":[{"role":"user","content":"x"}]}',
    "escapes": b'{"m\\u006fdel":"\\u0000\\/\\ud83d\\ude00","messages":[{"role":"user","content":"\\u00e9\\ud800"}]}',
    "a lone surrogate as a model": b'{"model":"\\ud800","messages":[{"role":"user","content":"x"}]}',
    "blanks": b' \t\r\n{ "messages" :\n[ {\t"role" : "user" } ] ,"model":"m"}\n\n',
    "no numbers": b'{"messages":[{"role":"user","content":NaN}],"x":Infinity}',
    "a byte order mark": b"\xef\xbb\xbf" + HELLO,
    "UTF-16": HELLO.decode().encode("utf-16"),
    "UTF-32": HELLO.decode().encode("utf-32"),
    "no UTF-8": b'{"messages":[{"role":"user","content":"\xff\xfe"}]}',
    "half": HELLO[:-5],
    "more": HELLO + b"}",
    "nothing": b"",
    "null": b"null",
    "zeros": bytes(1_000),
    "other types": b'{"model":7,"messages":{"role":"user"},"input":"text","tools":"none","max_tokens":-5,"stream":"x"}',
    "messages of every type": b'{"messages":[{"role":7,"content":{"a":[]}},{"role":null},{}],"max_tokens":true}',
    "one message of 200 KB": json.dumps({"messages": [{"role": "user", "content": "word " * 40_000}]}).encode(),
}


def same_bytes(
    url: str, server: Upstream, path: str, body: bytes, said: bytes, *, stream: bool, headers: dict[str, str]
) -> None:
    """What is sent arrives, and what is answered comes back."""
    server.asked.clear()
    if stream:
        half = len(said) // 2
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (said[:half], said[half:]) if part)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        server.play = says(head, chunks, b"0\r\n\r\n")
    else:
        server.play = says(answer(said, "content-type: application/json"))
    with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE)) as client:
        client.request("POST", path, body, headers)
        response = client.getresponse()
        assert (response.status, response.read()) == (200, said)
        assert not any(name.startswith("x-compact") for name in response.headers)
    (asked,) = server.asked
    assert (asked.target, asked.body) == (path, body)


@pytest.mark.spec("T37")
@pytest.mark.parametrize("name", ODD)
def test_odd_bodies_pass_as_they_came(here: str, play: Upstream, name: str) -> None:
    """For the three APIs, streamed and not, packed and not."""
    for number, path in enumerate(PATHS):
        said = ODD[name][::-1] or b"{}"
        same_bytes(here, play, path, ODD[name], said, stream=number % 2 == 0, headers={})
    packed = gzip.compress(ODD[name], mtime=7)
    same_bytes(here, play, CHAT, packed, packed, stream=False, headers={"content-encoding": "gzip"})


@pytest.mark.spec("T37")
@given(
    st.sampled_from(PATHS),
    st.binary(max_size=60)
    | st.lists(st.sampled_from(["sua", "utra", "uTrra", "dup"]), min_size=1, max_size=3).map(
        lambda shapes: json.dumps(
            {"model": "gpt-4o", "messages": chat("".join(shapes)), "input": chat(shapes[0])}
        ).encode()
    )
    | st.text(max_size=20).map(lambda text: json.dumps({"messages": [{"role": "user", "content": text}]}).encode()),
    st.binary(max_size=200),
    st.booleans(),
)
def test_bodies_below_the_trigger_are_identical(
    here: str, server: Upstream, path: str, body: bytes, said: bytes, stream: bool
) -> None:
    """At the upstream and at the client, whatever they are."""
    same_bytes(here, server, path, body, said, stream=stream, headers={})


@pytest.mark.spec("T37")
def test_headers_pass_and_none_is_added(here: str, play: Upstream) -> None:
    """All but those about the connection and ours; cookies both ways, and several of a name."""
    passing = [
        "User-Agent: agent/1.0",
        "Accept: */*",
        "Cookie: a=b; c=d",
        f"Authorization: Bearer {KEY}",
        "X-Stainless-Lang: python",
        "X-Twice: one",
        "X-Twice: two",
        "Content-Type: application/json; charset=utf-8",
        "X-Empty: ",
        "X-High: \xe9",
    ]
    staying = [
        "Keep-Alive: timeout=5",
        "TE: trailers",
        "Trailer: x",
        "Proxy-Connection: keep-alive",
        "Proxy-Authorization: Basic x",
        "X-Compact-Session: mine",
        "X-Named: dropped",
    ]
    back = [
        "Set-Cookie: a=b; Path=/",
        "Set-Cookie: c=d; HttpOnly",
        "X-Request-Id: 7",
        "Retry-After: 1",
        "Content-Type: application/json",
        "Server: cloudflare",
        "Date: Thu, 01 Jan 1970 00:00:00 GMT",
    ]
    play.play = says(answer(b"{}", *back, "Keep-Alive: timeout=9", "Connection: x-hop", "X-Hop: 1", status="429 Slow"))
    raw = request(CHAT, HELLO, *passing, *staying).replace(b"Connection: close", b"Connection: close, X-Named")
    heard = talk(int(here.rpartition(":")[2]), raw)
    (asked,) = play.asked

    def fields(lines: list[str]) -> list[tuple[bytes, bytes]]:
        pairs = (line.encode("latin-1").partition(b": ") for line in lines)
        return sorted((name.lower(), value) for name, _, value in pairs)

    expected = [*passing, f"Host: 127.0.0.1:{play.port}", f"Content-Length: {len(HELLO)}"]
    assert sorted((name.lower(), value) for name, value in asked.headers) == fields(expected)
    head, _, body = heard.partition(b"\r\n\r\n")
    assert fields(head.decode("latin-1").split("\r\n")[1:]) == fields([*back, "Content-Length: 2", "Connection: close"])
    assert (statuses(heard), body) == ([429], b"{}")


@pytest.mark.spec("T37")
@pytest.mark.parametrize(
    ("method", "target", "body", "said", "shown"),
    [
        ("GET", "/v1/models?limit=5&after=a%20b+c&x", None, answer(b"[]"), b"[]"),
        ("DELETE", "/v1/files/file-1", None, answer(b"{}"), b"{}"),
        ("DELETE", "/v1/responses/resp_1", b'{"why": 1}', answer(b"{}"), b"{}"),
        ("GET", "/v1/responses/resp_1", None, answer(b"{}"), b"{}"),
        ("POST", "/v1/files", b"--b\r\n\r\n\x00\xff\r\n--b--", answer(b"\x00\xff"), b"\x00\xff"),
        ("POST", "/v1/messages/count_tokens", HELLO, answer(b"{}"), b"{}"),
        ("POST", "/v1/chat/completions/", HELLO, answer(b"{}"), b"{}"),
        ("PUT", "/a//b/./../c%2Fd;e=f,g", b"x", answer(b"y"), b"y"),
        ("PATCH", "/v1/x", b"", answer(b"y"), b"y"),
        ("OPTIONS", "/v1/x", None, answer(b"", "allow: GET"), b""),
        ("HEAD", "/v1/models", None, b"HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n", b""),
        ("GET", "/v1/none", None, b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        ("GET", "/v1/same", None, b"HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n", b""),
        ("GET", "/v1/same", None, b"HTTP/1.1 304 Not Modified\r\ncontent-length: 1234\r\n\r\n", b""),
        ("GET", "/v1/missing", None, answer(b"no", status="404 Not Found"), b"no"),
        ("GET", "/v1/early", None, b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + answer(b"late"), b"late"),
        ("GET", "/v1/empty", None, answer(b""), b""),
    ],
)
def test_all_else_passes_untouched(
    here: str, play: Upstream, method: str, target: str, body: bytes | None, said: bytes, shown: bytes
) -> None:
    """Whatever the path, the method and the status."""
    play.play = says(said)
    stays = request(target, body, method=method).replace(b"Connection: close\r\n", b"")
    heard = talk(int(here.rpartition(":")[2]), stays, request("/healthz"))
    (asked,) = play.asked
    assert (asked.line, asked.body) == (f"{method} {target} HTTP/1.1".encode(), body or b"")
    first, _, second = heard.rpartition(b"HTTP/1.1 ")
    head, _, came = first.partition(b"\r\n\r\n")
    assert (came, statuses(head)) == (shown, statuses(said)[-1:])
    assert (method == "HEAD") == (b"content-length: 1234" in head)
    assert second.startswith(b"200 ")  # nothing of the answer, and no doubt about its end, was left behind


@pytest.mark.spec("T37")
def test_an_offer_of_http_2_costs_no_body(here: str, play: Upstream) -> None:
    """Java's client makes it with every request, and goes on in HTTP/1.1 when nobody takes it."""
    body = b"\r\nUpgrade: h2c\r\n\r\n" * 5_000
    offer = "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAA"
    raw = request(CHAT, body, *offer).replace(b"Connection: close\r\n", b"")
    with connect(int(here.rpartition(":")[2])) as connection:
        for _ in range(2):
            connection.sendall(raw)
            heard = b""
            while b'{"ok": true}' not in heard:  # head and body may come apart
                heard += connection.recv(1_000) or pytest.fail(f"closed after {heard!r}")
            assert statuses(heard) == [200]
    assert [one.body for one in play.asked] == [body] * 2
    assert {name.lower() for one in play.asked for name, _ in one.headers} == {b"host", b"content-length"}
