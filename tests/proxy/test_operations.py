"""Who may ask the proxy, what it says of itself, how it ends, and the files it is deployed with."""

from __future__ import annotations

import asyncio
import configparser
import http.client
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from project_paths import ROOT
from prometheus_client.parser import text_string_to_metric_families

from compact import CompactConfig, CompactError
from compact.config.proxy_section import ProxyPolicy
from compact.proxy import running
from compact.proxy.conversations import CompactedRequest
from compact.proxy.operations import Operations

TOKEN = "a-token+nobody/guesses"
CHAT = b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}'
ANSWER = b'{"id": "1", "object": "chat.completion", "choices": []}'


class Upstream(BaseHTTPRequestHandler):
    """An API that remembers what reached it. `/stream` sends a part, and the rest when it may; `/broken` nothing."""

    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, dict[str, str]]]
    go_on: threading.Event

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        if self.path.startswith("/broken"):
            self.close_connection = True
            return
        self.send_response(200)
        if not self.path.startswith("/stream"):
            self.send_header("content-length", str(len(ANSWER)))
            self.end_headers()
            self.wfile.write(ANSWER)
            return
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"c\r\ndata: first\n\r\n")
        self.wfile.flush()
        if self.go_on.wait(30):
            self.wfile.write(b"b\r\ndata: last\n\r\n0\r\n\r\n")

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[Any]:
    """The API, its address, what it has seen, and the event that lets its streams go on."""
    handler = type("Handler", (Upstream,), {"seen": [], "go_on": threading.Event()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    yield SimpleNamespace(address=address, seen=handler.seen, go_on=handler.go_on)
    handler.go_on.set()
    server.shutdown()
    server.server_close()


def settings(upstream: Any, **more: Any) -> CompactConfig:
    return CompactConfig(proxy={"upstream": upstream.address, "port": 0, **more}, storage={"adapter": "none"})


def ask(address: str, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one answer, by a client that sends what it is told."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    with closing(connection):
        body = CHAT if method == "POST" else None
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def ask_raw(address: str, request: str) -> bytes:
    """The first bytes that come back for a request as it stands."""
    with socket.create_connection((urlsplit(address).hostname or "", urlsplit(address).port or 0), 20) as connection:
        connection.sendall(request.replace("\n", "\r\n").encode())
        return connection.recv(65_536)


# -- who may ask -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("T33")
def test_a_foreign_host_or_origin_gets_nothing(upstream: Any) -> None:
    """Names that lead to loopback, and pages of others: 403 on every path, and the upstream hears nothing of it."""
    with running(settings(upstream)) as address:
        port = int(address.rpartition(":")[2])
        foreign = [
            {"host": "evil.example"},
            {"host": f"evil.example:{port}"},
            {"host": "127.0.0.1.evil.example"},
            {"host": "localhost.evil.example:80"},
            {"host": "api.openai.com"},
            {"host": "169.254.169.254"},
            {"host": ""},
            {"host": "@127.0.0.1"},
            {"origin": "http://evil.example"},
            {"origin": "https://api.openai.com"},
            {"origin": "null"},
            {"origin": ""},
            {"origin": f"http://localhost:{port + 1}"},
            {"origin": f"http://127.0.0.1:{port}.evil.example"},
            {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"},
            {"sec_fetch_site": "same-site", "sec_fetch_mode": "cors"},
        ]
        for headers in foreign:
            for method, path in (
                ("POST", "/v1/chat/completions"),
                ("POST", "/v1/messages"),
                ("GET", "/v1/models"),
                ("GET", "/metrics"),
                ("GET", "/healthz"),
                ("OPTIONS", "/v1/responses"),
            ):
                status, _, body = ask(address, method, path, **headers)
                assert 403 == status, (headers, path)
                assert "compact_proxy" == json.loads(body)["error"]["type"]
        assert [] == upstream.seen
        for headers in (
            {},
            {"host": f"localhost:{port}", "origin": f"http://localhost:{port}"},
            {"host": f"[::1]:{port}"},
            {"host": "127.0.0.1"},
            {"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors"},
        ):
            assert 200 == ask(address, "POST", "/v1/chat/completions", **headers)[0], headers


@pytest.mark.spec("T33")
def test_only_loopback_without_a_token(upstream: Any) -> None:
    """Refused before anything listens, with a sentence; so is a token that can be guessed."""
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com"):
        with pytest.raises(CompactError, match="COMPACT_PROXY_TOKEN"), running(settings(upstream, host=host)):
            pass
    with pytest.raises(CompactError, match="guessed"), running(settings(upstream), token="short"):
        pass
    with running(settings(upstream, host="0.0.0.0"), token=TOKEN) as address:
        here = address.replace("0.0.0.0", "127.0.0.1")
        assert 401 == ask(here, "POST", "/v1/chat/completions", host="proxy.example")[0]
        assert 200 == ask(here, "POST", "/v1/chat/completions", host="proxy.example", x_compact_token=TOKEN)[0]
        page = {"host": "proxy.example", "origin": "http://evil.example", "x_compact_token": TOKEN}
        assert 403 == ask(here, "POST", "/v1/chat/completions", **page)[0]


@pytest.mark.spec("T32")
def test_only_a_path_can_be_asked_for(upstream: Any) -> None:
    """Another address in the place of a path, or two hosts, is refused as malformed."""
    targets = [
        ("http://evil.example/v1/models", ""),
        ("http://127.0.0.1:9/v1/models", ""),
        ("https://api.openai.com/v1/models?key=1", ""),
        ("http://evil.example", ""),
        ("evil.example:443", ""),
        ("*", ""),
        ("v1/models", ""),
        ("/v1/models", "Host: 127.0.0.1\n"),
        ("/v1/models", "Host: evil.example\n"),
    ]
    with running(settings(upstream)) as address:
        for method in ("GET", "CONNECT", "OPTIONS"):
            for target, more in targets:
                said = ask_raw(address, f"{method} {target} HTTP/1.1\nHost: 127.0.0.1\n{more}Content-Length: 0\n\n")
                assert said.startswith(b"HTTP/1.1 400 "), (method, target, said)
    assert [] == upstream.seen


@pytest.mark.spec("T36")
def test_a_head_has_an_end(upstream: Any) -> None:
    """Many headers or one that never ends: refused at 64 KB, while the connection is still being written to."""
    with running(settings(upstream)) as address:
        fits = ask(address, "POST", "/v1/chat/completions", x_long="y" * 60_000)
        assert (200, 1) == (fits[0], len(upstream.seen))
        for part in ("x-more: y\r\n" * 100, "y" * 1_000):
            with socket.create_connection(("127.0.0.1", urlsplit(address).port or 0), 20) as connection:
                connection.sendall(b"POST /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nx-more: y\r\nx-long: y")
                with suppress(ConnectionError):
                    for _ in range(200):
                        connection.sendall(part.encode())
                with suppress(ConnectionResetError):  # what was still on its way
                    assert connection.recv(65_536).startswith(b"HTTP/1.1 400 ")
        assert (1, 200) == (len(upstream.seen), ask(address, "GET", "/healthz")[0])


def test_a_websocket_is_told_to_use_http(upstream: Any) -> None:
    """426 is what a client falls back to HTTP at; any other offer is passed over, unless a body would get lost."""
    upgrade = "Host: 127.0.0.1\nConnection: Upgrade\nUpgrade: {}\nSec-WebSocket-Key: eA==\n"
    with running(settings(upstream)) as address:
        said = ask_raw(address, f"GET /v1/responses HTTP/1.1\n{upgrade.format('websocket')}\n")
        assert said.startswith(b"HTTP/1.1 426 ")
        head = f"POST /v1/chat/completions HTTP/1.1\n{upgrade.format('TLS/1.2')}Content-Length: {len(CHAT)}\n\n"
        assert ask_raw(address, head + CHAT.decode()).startswith(b"HTTP/1.1 400 ")
        assert [] == upstream.seen
        said = ask_raw(address, f"GET /v1/models HTTP/1.1\n{upgrade.format('h2c')}\n")
        assert said.startswith(b"HTTP/1.1 200 ")
        assert [False] == ["upgrade" in headers for _, headers in upstream.seen]


def test_a_token_opens_and_goes_no_further(upstream: Any) -> None:
    """As a header or in the base URL, which any client can be given; the upstream never sees it."""
    quoted = TOKEN.replace("/", "%2F").replace("+", "%2B")
    chat = "/v1/chat/completions"
    with running(settings(upstream), token=TOKEN) as address:
        for path, headers in (
            (chat, {}),
            (chat, {"x_compact_token": "wrong-token-entirely"}),
            (chat, {"authorization": f"Bearer {TOKEN}"}),
            (f"{chat}?token={TOKEN}", {}),
            (f"/~wrong-token{chat}", {}),
            (f"/~{chat}", {}),
            ("/~", {}),
            ("/metrics", {}),
            ("/metrics", {"authorization": "Bearer wrong-token"}),
        ):
            status, said, body = ask(address, "GET" if path == "/metrics" else "POST", path, **headers)
            assert (401, "Bearer") == (status, said["www-authenticate"]), path
            assert "x-compact-token" in json.loads(body)["error"]["message"]
        assert [] == upstream.seen

        assert 200 == ask(address, "POST", chat, x_compact_token=TOKEN)[0]
        for tilde in ("~", "%7E", "%7e"):
            assert 200 == ask(address, "POST", f"/{tilde}{quoted}{chat}?beta=a%2Fb", authorization="Bearer sk-1")[0]
        assert ["", *["?beta=a%2Fb"] * 3] == [path.removeprefix(chat) for path, _ in upstream.seen]
        assert 200 == ask(address, "GET", "/metrics", authorization=f"bearer {TOKEN}")[0]
        assert 200 == ask(address, "GET", f"/~{quoted}/metrics")[0]
        assert 200 == ask(address, "GET", "/healthz")[0]
    assert [] == [seen for seen in upstream.seen if TOKEN in str(seen) or quoted in str(seen)]
    with running(settings(upstream)) as address:
        status, _, body = ask(address, "POST", f"/~{quoted}{chat}")
        assert (400, True) == (status, "base URL" in json.loads(body)["error"]["message"])
    assert 4 == len(upstream.seen)


@pytest.mark.slow  # imports both
def test_both_clients_show_what_a_refusal_says(upstream: Any) -> None:
    """A person who forgot the token reads how to give it."""
    import anthropic
    import openai

    messages: Any = [{"role": "user", "content": "hello"}]
    with running(settings(upstream), token=TOKEN) as address:
        said = "needs its token: put it into the base URL"
        one = openai.OpenAI(base_url=f"{address}/v1", api_key="sk-1", max_retries=0)
        with one, pytest.raises(openai.AuthenticationError, match=said):
            one.chat.completions.create(model="gpt-4o", messages=messages)
        other = anthropic.Anthropic(base_url=address, api_key="sk-1", max_retries=0)
        with other, pytest.raises(anthropic.AuthenticationError, match=said):
            other.messages.create(model="claude-of-the-test", max_tokens=9, messages=messages)


# -- what it says of itself --------------------------------------------------------------------------------------------


def numbers(text: str) -> dict[tuple[str, ...], float]:
    """Samples by their name and labels."""
    return {
        (sample.name.removeprefix("compact_proxy_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_are_read_by_prometheus(upstream: Any) -> None:
    """Requests by endpoint and class of status, bytes, times; nothing a client writes becomes a label."""
    with running(settings(upstream)) as address:
        before = numbers(ask(address, "GET", "/metrics")[2].decode())
        assert (0, 0) == (before["folds_total", "new"], before["state_failures_total",])
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/stream/../x-canary-y"):
            upstream.go_on.set()
            assert 200 == ask(address, "POST", path, user_agent="x-canary-y")[0]
        for name in range(30):
            assert 403 == ask(address, "POST", f"/v1/x-canary-y{name}", host=f"x-canary-y{name}")[0]
        status, headers, body = ask(address, "GET", "/metrics")
    assert (200, "compact proxy") == (status, headers["server"])
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"canary" not in body
    found = numbers(body.decode())
    for endpoint in ("openai-chat", "anthropic", "openai-responses", "other"):
        assert 1 == found["requests_total", endpoint, "2xx"]
        assert 1 == found["first_byte_seconds_count", endpoint]
    assert 30 == found["requests_total", "other", "4xx"]
    assert 31 == found["request_seconds_count", "other"]
    assert 4 * len(CHAT) == found["bytes_total", "in"]
    assert 3 * len(ANSWER) < found["bytes_total", "out"]
    assert 0 == found["in_flight",]


def lines_of(out: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_request_is_one_line_and_one_count() -> None:
    """With its fold, its session as a mark unless the proxy made the id, and nothing twice."""
    out = io.StringIO()
    operations = Operations(out=out)
    record = operations.begin("openai-chat")
    record.bytes_in, record.stream, record.first_byte = 10, True, time.perf_counter()
    record.add_compaction(CompactedRequest(b"", "proxy-0123456789abcdef", 1, "new", 900, 300))
    record.finish(status=200, bytes_out=20)
    record.finish(status=500)
    again = operations.begin("made-up")
    again.add_compaction(CompactedRequest(b"", "sk-canary-12345678", 1, "replayed", 900, 300))
    again.finish(status=502, error="broken off")
    operations.log("debug", "below_the_level")
    operations.log("warning", "state_away", seconds=2, nothing=None)
    first, second, third = lines_of(out)
    assert ("info", "request", "openai-chat", 200) == tuple(first[n] for n in ("level", "event", "endpoint", "status"))
    assert (10, 20, True) == (first["bytes_in"], first["bytes_out"], first["stream"])
    assert ("new", "proxy-0123456789abcdef") == (first["fold"], first["session"])
    assert (900, 300) == (first["tokens_before"], first["tokens_after"])
    assert first["ms"] >= first["first_byte_ms"] >= 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert ("warning", "other", 502, "broken off") == tuple(second[n] for n in ("level", "endpoint", "status", "error"))
    assert re.fullmatch("named-[0-9a-f]{16}", second["session"])
    assert ["event", "level", "seconds", "time"] == sorted(third)
    assert "canary" not in out.getvalue()

    async def scraped() -> dict[tuple[str, ...], float]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(operations), base_url="http://test") as client:
            return numbers((await client.get("/metrics")).text)

    found = asyncio.run(scraped())
    assert (1, 1, 1800, 600) == tuple(
        found[name]
        for name in (
            ("folds_total", "new"),
            ("folds_total", "replayed"),
            ("tokens_total", "before"),
            ("tokens_total", "after"),
        )
    )
    assert (1, 1) == (found["troubles_total", "state_away"], found["requests_total", "other", "5xx"])
    assert ("requests_total", "openai-chat", "5xx") not in found


def test_a_log_that_cannot_be_written_costs_its_line() -> None:
    """A closed file, and a full disk where there is one that is always full."""
    closed = open(os.devnull, "w")  # noqa: SIM115
    closed.close()
    Operations(out=closed).begin("other").finish(status=200)
    if Path("/dev/full").exists():
        full = open("/dev/full", "w")  # noqa: SIM115
        Operations(out=full).begin("other").finish(status=200)
        with suppress(OSError):
            full.close()


@pytest.mark.parametrize(
    ("state", "status", "said"),
    [
        (None, 200, {"status": "ok", "state": "memory"}),
        (SimpleNamespace(away=False, failures=2), 200, {"status": "ok", "state": "ok"}),
        (SimpleNamespace(away=True, failures=7), 200, {"status": "ok", "state": "away"}),
    ],
)
def test_health_tells_of_the_state_and_of_the_end(state: Any, status: int, said: dict[str, str]) -> None:
    """A state that is away costs summaries only, so requests may come; while it ends, none should."""
    operations = Operations()
    operations.state = state

    async def looked() -> tuple[Any, Any, Any, Any]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(operations), base_url="http://test") as client:
            well, posted = await client.get("/healthz"), await client.post("/healthz")
            found = numbers((await client.get("/metrics")).text)
            operations.draining = True
            return well, posted, found, await client.get("/healthz")

    well, posted, found, ending = asyncio.run(looked())
    assert (status, said) == (well.status_code, well.json())
    assert 405 == posted.status_code
    assert (503, {"status": "draining"}) == (ending.status_code, ending.json())
    assert getattr(state, "failures", 0) == found["state_failures_total",]


# -- as a process: how it starts, what it prints, how it ends ----------------------------------------------------------


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1", **more}


@contextmanager
def proxy(upstream: Any, *options: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """`compact proxy` in a process of its own, its address, and what it printed at the start."""
    command = [sys.executable, "-m", "compact", "proxy", "--upstream", upstream.address, "--port", "0", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**variables)
    )
    try:
        assert process.stdout is not None
        said = [process.stdout.readline()]
        while said[-1] and not said[-1].startswith("Summaries:"):
            said.append(process.stdout.readline())
        assert said[-1], process.communicate(timeout=20)[1]
        yield process, said[0].split()[0], said
    finally:
        process.kill()
        process.communicate(timeout=20)


@contextmanager
def stream(address: str) -> Iterator[http.client.HTTPResponse]:
    """A stream of which the first part has come."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    with closing(connection):
        connection.request("POST", "/stream", CHAT)
        answer = connection.getresponse()
        assert b"data: first\n" == answer.readline()
        yield answer


def refused(address: str) -> bool:
    try:
        ask(address, "GET", "/healthz")
    except ConnectionRefusedError:
        return True
    except (OSError, http.client.HTTPException):  # between the signal and the end of listening
        pass
    return False


def until(check: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_stream_ends_before_the_proxy_does(upstream: Any) -> None:
    """Told to stop, it lets nobody in, the stream that runs comes to its own end, and the exit code is 0."""
    with proxy(upstream) as (process, address, _), stream(address) as answer:
        process.send_signal(signal.SIGTERM)
        until(lambda: refused(address))
        assert process.poll() is None
        upstream.go_on.set()
        assert b"data: last\n" == answer.read()
        _, logged = process.communicate(timeout=20)
        assert 0 == process.returncode
    events = [json.loads(line) for line in logged.splitlines()]
    assert ["started", "draining", "request", "stopped"] == [event["event"] for event in events]
    assert (True, 200, 23) == (events[2]["stream"], events[2]["status"], events[2]["bytes_out"])


@pytest.mark.slow
def test_a_stream_that_does_not_end_in_time_is_cut_off(upstream: Any) -> None:
    """After `proxy.drain` seconds, as an error, never as a clean end; the proxy itself has ended well."""
    Path("compact.yaml").write_text("proxy: {drain: 0}")
    with proxy(upstream) as (process, address, _), stream(address) as answer:
        process.send_signal(signal.SIGTERM)
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            answer.read()
        assert 0 == process.wait(20)


@pytest.mark.slow
def test_a_second_signal_ends_at_once(upstream: Any) -> None:
    """Whoever asks twice does not want to wait."""
    with proxy(upstream) as (process, address, _), stream(address):
        process.send_signal(signal.SIGINT)
        until(lambda: refused(address))
        process.send_signal(signal.SIGTERM)
        assert 128 + signal.SIGTERM == process.wait(20)


@pytest.mark.slow
@pytest.mark.spec("T34")
def test_nothing_of_a_request_is_printed(upstream: Any) -> None:
    """A canary in headers, query, path, token, body and variables, also where libraries warn; every line is JSON."""
    canary = "canary-4f9d2c"
    variables = {"COMPACT_PROXY_TOKEN": canary, "OPENAI_LOG": "debug", "OPENAI_API_KEY": f"sk-{canary}"}
    with proxy(upstream, "--log-level", "debug", **variables) as (process, address, said):
        assert f"  export OPENAI_BASE_URL={address}/~$COMPACT_PROXY_TOKEN/v1\n" in said
        for path in (f"/~{canary}/v1/chat/completions?key={canary}", f"/~{canary}/{canary}", f"/{canary}"):
            ask(address, "POST", path, authorization=f"Bearer {canary}", x_compact_session=canary, cookie=canary)
        ask(address, "GET", f"/~{canary}/v1", host=canary, origin=canary)
        ask_raw(address, f"GET http://{canary}/ HTTP/1.1\n\n")
        ask_raw(address, f"{canary} {canary}\n\n")
        ask_raw(address, f"GET / HTTP/1.1\nHost: 127.0.0.1\nConnection: Upgrade\nUpgrade: {canary}\n\n")
        assert 502 == ask(address, "POST", f"/~{canary}/broken?{canary}", x_api_key=canary)[0]
        process.send_signal(signal.SIGTERM)
        printed, logged = process.communicate(timeout=20)
    assert canary not in f"{said}{printed}{logged}"
    events = [json.loads(line) for line in logged.splitlines()]
    assert {"request", "library", "upstream_failed"} <= {event["event"] for event in events}


def run(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "compact", "proxy", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment(**variables),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "compact proxy --upstream https://api.openai.com or compact proxy --upstream https://api.anthropic.com"),
        (("--upstream", "https://u:sk-secret@api.openai.com"), "proxy.upstream: an address with a user"),
        (("--upstream", "http://127.0.0.1:9", "--host", "0.0.0.0"), "set a token with COMPACT_PROXY_TOKEN"),
    ],
)
def test_what_cannot_be_started_is_one_sentence(options: tuple[str, ...], said: str) -> None:
    """Exit code 1, one line on stderr that says what to do, no secret in it."""
    done = run(*options)
    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("compact: ")
    assert said in done.stderr
    assert 1 == len(done.stderr.splitlines())
    assert "sk-secret" not in done.stderr


@pytest.mark.slow
def test_help_helps() -> None:
    """Every option, the variable of the token, and a line to paste."""
    shown = run("--help").stdout
    options = "--upstream --host --port --state --summary-model --token --log-level --config".split()
    wanted = (*options, "COMPACT_PROXY_TOKEN", "compact proxy --upstream https://api.openai.com")
    assert [] == [name for name in wanted if name not in shown]


@pytest.mark.slow
def test_the_start_says_what_to_paste(upstream: Any) -> None:
    """Options beat the file; both base URLs where the upstream could be either; who writes, where the archive is."""
    Path("mine.yaml").write_text(
        "proxy: {upstream: 'http://127.0.0.1:9', summary_model: small}\nstorage: {path: kept}\n"
    )
    with proxy(upstream, "--config", "mine.yaml", "--summary-model", "same") as (_, address, said):
        assert f"{address} sends everything to {upstream.address} (Ctrl-C ends). Start your agent with\n" == said[0]
        assert [f"  export OPENAI_BASE_URL={address}/v1\n", f"  export ANTHROPIC_BASE_URL={address}\n"] == said[1:3]
        assert f"Summaries: by the request's own model. Archive: {Path('kept').absolute()}.\n" == said[3]
        again = run("--upstream", upstream.address, "--port", address.rpartition(":")[2])
        assert (1, True) == (again.returncode, "a compact proxy runs there already" in again.stderr)


@pytest.mark.slow
def test_the_start_says_that_nothing_folds(upstream: Any) -> None:
    """COMPACT_DISABLED: whoever wonders why the proxy does not fold reads it where it was started."""
    with proxy(upstream, COMPACT_DISABLED="1") as (_, _, said):
        assert "COMPACT_DISABLED is set: every preflight returns its list unchanged.\n" == said[3]


# -- the files that it is deployed with --------------------------------------------------------------------------------

DEPLOY = ROOT / "deploy"


def test_the_sample_configuration_loads() -> None:
    """As it stands; what it sets is what the other files rely on."""
    config = CompactConfig.load(DEPLOY / "compact.yaml")
    assert config.proxy.upstream
    assert config.storage.adapter == "s3"
    assert config.proxy.state.startswith("redis://")


def test_the_compose_file_fits_the_sample() -> None:
    """Every service and volume it names is there, and no image names a registry."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    services, config = compose["services"], CompactConfig.load(DEPLOY / "compact.yaml")
    assert {urlsplit(config.proxy.state).hostname, urlsplit(config.storage.endpoint_url).hostname} <= services.keys()
    for name, service in services.items():
        assert re.fullmatch(r"[a-z0-9/-]+:[\w.-]+", service.get("image", "own:1")), name
        assert set(service.get("depends_on", {})) <= services.keys()
        for volume in service.get("volumes", []):
            place = volume.partition(":")[0]
            assert place in compose["volumes"] or (DEPLOY / place).exists(), (name, place)
    (mounted,) = {volume for volume in services["proxy"]["volumes"] if "compact.yaml" in volume}
    assert f":{services['proxy']['command'][1]}:ro" in mounted
    assert int(services["proxy"]["stop_grace_period"].rstrip("s")) > config.proxy.drain


def test_the_image_is_built_from_what_is_there() -> None:
    """What it copies exists, the extras it installs too, and nobody is root in it."""
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ").splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert copied
    assert [] == [path for path in copied if not path.startswith("--") and not (ROOT / path).exists()]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = {extra for found in re.findall(r"\[([\w,-]+)\]", "\n".join(lines)) for extra in found.split(",")}
    assert {"proxy", "redis", "s3"} <= named & extras.keys()
    assert any(line.startswith("USER ") and "root" not in line for line in lines)
    assert any(line.startswith("HEALTHCHECK ") for line in lines)


def test_the_unit_is_accepted_by_systemd(tmp_path: Path) -> None:
    """By its own check where it is installed; it waits longer than the proxy may take to end."""
    text = (DEPLOY / "compact-proxy.service").read_text("utf-8")
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    service = unit["Service"]
    assert ("yes", "strict", "on-failure") == (service["DynamicUser"], service["ProtectSystem"], service["Restart"])
    assert int(service["TimeoutStopSec"]) > ProxyPolicy().drain
    if shutil.which("systemd-analyze"):
        (tmp_path / "compact-proxy.service").write_text(text.replace("/opt/compact/bin/compact", sys.executable))
        checked = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(tmp_path / "compact-proxy.service")],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert "compact-proxy" not in checked.stderr, checked.stderr


def test_everything_is_documented(upstream: Any) -> None:
    """PROXY.md names each field of the section, each metric, each field of a line, and each header."""
    text = (ROOT / "PROXY.md").read_text("utf-8")
    assert [] == [name for name in ProxyPolicy.model_fields if f"`{name}`" not in text]
    out = io.StringIO()
    record = Operations(out=out).begin("other")
    record.first_byte = time.perf_counter()
    record.add_compaction(CompactedRequest(b"", "s", 1, "new", 2, 1))
    record.finish(status=502, error="broken off")
    assert [] == [name for name in lines_of(out)[0] if f"`{name}`" not in text]
    with running(settings(upstream)) as address:
        families = text_string_to_metric_families(ask(address, "GET", "/metrics")[2].decode())
        named = {f.name + "_total" * (f.type == "counter") for f in families if not f.name.endswith("_created")}
    assert [] == [name for name in named if f"`{name}`" not in text and not name.startswith("process_")]
    for header in ("session", "fold", "step", "tokens-before", "tokens-after", "token"):
        assert f"`x-compact-{header}`" in text
