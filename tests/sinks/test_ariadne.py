"""Exporters: the queue they stand behind, and Ariadne's `/ingest` at the end of it."""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from ariadne_server import LARGEST, UNRESOLVED, StandIn, refused_url

from compact import CompactConfig, CompactManager, Event
from compact._redaction import Redactor
from compact.errors import ConfigError
from compact.sinks import Queued, queued
from compact.sinks._http_post import Post
from compact.sinks._queue import Undelivered
from compact.sinks.ariadne import AriadneSink
from compact.sinks.jsonl import JsonlSink
from compact.sinks.sink_list import SinkList
from compact.testing import ScriptedModel, chat

pytestmark = pytest.mark.slow  # servers and processes of their own

GUARD = 60.0
"""Seconds after which something hangs."""
NOON = 1_700_000_000.0
SECRET = "ghp_" + "aB3" * 12


def event(number: int, name: str = "compact.warning", session: str = "s-1", **data: Any) -> Event:
    """An event that can be told from all others."""
    return Event(name, session, 1, NOON + number, data={"n": number, **data})


def manager_for(*sinks: Any, **settings: Any) -> CompactManager:
    """A manager whose window is small, so that a long list folds."""
    config = CompactConfig(model="gpt-4o", max_context_tokens=3_000, **{"storage": {"adapter": "none"}, **settings})
    return CompactManager(config, summarizer=ScriptedModel("Goal: the lamps. Decided: all of them."), sinks=sinks)


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of its own."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=GUARD, check=False)


def numbers(stand_in: StandIn) -> list[int]:
    """Which events arrived, in order."""
    return [span["data"]["n"] for span in stand_in.spans("compact.warning")]


def labelled(text: str, label: str = "Ariadne") -> list[str]:
    """The lines of an exporter."""
    return [line for line in text.splitlines() if line.startswith(f"[{label}] ")]


class Gate:
    """A `deliver` that keeps what it is given, once it is let."""

    def __init__(self, *, is_open: bool = True, failing: int = 0) -> None:
        self.open = threading.Event()
        self.entered = threading.Event()
        self.failing = failing
        self.batches: list[list[int]] = []
        if is_open:
            self.open.set()

    def __call__(self, events: Sequence[Event]) -> None:
        self.entered.set()
        assert self.open.wait(GUARD)
        if self.failing:
            self.failing -= 1
            raise Undelivered("it is away")
        self.batches.append([one.data["n"] for one in events])

    @property
    def got(self) -> list[int]:
        """All that was delivered, in order."""
        return [number for batch in self.batches for number in batch]


# -- the stand-in ------------------------------------------------------------------------------------------------------

SPAN = {"type": "span", "trace_id": "t", "span_id": "s"}
TRACE = {"type": "trace", "trace_id": "t"}
ANSWERS: list[tuple[Any, int]] = [
    (SPAN, 200),
    ({"batch": [TRACE, SPAN]}, 200),
    ({"events": [SPAN]}, 400),
    ([SPAN], 400),
    ({**SPAN, "timestamp": 1, "properties": {}, "payload": {}, "duration_ms": 2}, 200),
    ({**SPAN, "started_at": "2026-11-15T10:00:00.123456Z"}, 200),
    ({**SPAN, "started_at": "2026-11-15T10:00:00.123456+00:00"}, 400),
    ({**SPAN, "parent_id": None}, 400),
    ({**SPAN, "name": None}, 400),
    ({**SPAN, "data": None}, 400),
    ({**SPAN, "status": "warning"}, 400),
    ({**TRACE, "metadata": {"agent": 1}}, 400),
    ({**TRACE, "metadata": {"agent": "a"}}, 200),
    ({**SPAN, "started_at": "2026-11-15T10:00:01Z", "ended_at": "2026-11-15T10:00:00Z"}, 400),
    ({"batch": [SPAN, {**SPAN, "trace_id": ""}]}, 400),
    ({**SPAN, "data": {"a": "x" * 262_144}}, 413),
    ({**SPAN, "data": {"a": "x" * 150_000, "b": ["y" * 110_000]}, "name": "n"}, 200),
]


@pytest.mark.parametrize(("body", "status"), ANSWERS)
def test_the_stand_in_answers_as_the_real_server(body: Any, status: int) -> None:
    """Every row of what was measured; what is refused leaves nothing behind."""
    with StandIn() as stand_in:
        connection = HTTPConnection("127.0.0.1", stand_in.port, timeout=GUARD)
        connection.request("POST", "/ingest", json.dumps(body))
        assert status == connection.getresponse().status
        connection.close()
    if status != 200:
        assert [] == stand_in.accepted
    assert not any({"timestamp", "properties", "payload", "duration_ms"} & kept.keys() for kept in stand_in.accepted)
    for kept in stand_in.accepted:
        data = kept.get("data", {})
        assert data.get("a", "").endswith("... [truncated]") == ("a" in data)
        assert 110_000 == len(data.get("b", ["y" * 110_000])[0])


def test_the_stand_in_fails_on_what_is_no_json() -> None:
    """500, as the real one does."""
    with StandIn() as stand_in:
        connection = HTTPConnection("127.0.0.1", stand_in.port, timeout=GUARD)
        connection.request("POST", "/ingest", "{")
        assert 500 == connection.getresponse().status
        connection.close()


# -- Ariadne -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("S17", "S18", "S19", "S21")
def test_a_fold_arrives_at_ariadne() -> None:
    """The trace comes first, each event is a span under its call, the summary stands where the viewer looks for it."""
    with StandIn() as stand_in:
        with manager_for(tracing={"ariadne_url": stand_in.url}) as manager:
            manager.preflight("s-1", chat("ua"))
            stand_in.wait_for(lambda s: s.spans("compact.trigger_decision"))  # without any close
            manager.preflight("s-1", chat("s" + "ua" * 40))
        assert {"/ingest"} == set(stand_in.paths)
        assert {200} == set(stand_in.answers)
        assert 1 == stand_in.connections
    assert "trace" == stand_in.accepted[0]["type"]
    assert ["s-1"] == [trace["trace_id"] for trace in stand_in.traces()]
    last = {span["span_id"]: span for span in stand_in.spans()}
    assert ["preflight", "fold 1"] == [span["name"] for span in last.values() if "parent_id" not in span]
    assert all(span["parent_id"] in last for span in last.values() if "parent_id" in span)
    assert all(span["started_at"] <= span["ended_at"] for span in last.values())
    estimate = stand_in.spans("compact.token_estimate")[0]["data"]
    assert {"model", "t_est", "max_tokens", "usage_pct", "breakdown"} <= estimate.keys()
    (created,) = stand_in.spans("compact.summary_created")
    assert "Goal: the lamps" in created["data"]["output"]
    assert "Goal: the lamps" in stand_in.spans("fold 1")[-1]["data"]["output"]
    assert stand_in.spans("fold 1")[-1]["data"]["triggered"]


def test_each_span_is_sent_once_per_batch() -> None:
    """A call's span grows with each event; of a batch only its last state is sent."""
    with StandIn() as stand_in:
        sink = AriadneSink(stand_in.url)
        sink(event(0, "compact.token_estimate"))
        sink(event(1, "compact.trigger_decision", triggered=False, reason="little"))
        sink.close()
    (call,) = stand_in.spans("preflight")
    assert "little" == call["data"]["reason"]
    assert 4 == len(stand_in.accepted)


@pytest.mark.parametrize("tail", ["", "/", "/ingest", "/ingest/"])
def test_ingest_is_added_once(tail: str) -> None:
    """A base address, with or without a slash, or the whole one."""
    with StandIn() as stand_in:
        sink = AriadneSink(stand_in.url + tail)
        assert f"{stand_in.url}/ingest" == sink.endpoint
        sink(event(1))
        sink.close()
    assert ["/ingest"] == stand_in.paths


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://", "http://127.0.0.1:port", "http://[bad", "file:///etc"])
def test_what_is_no_address_is_refused(url: str) -> None:
    """At once, and with an example of one that is."""
    with pytest.raises(ConfigError, match=r"http://127\.0\.0\.1:5175"):
        AriadneSink(url)


def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that names a proxy changes nothing."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, refused_url())
    with StandIn() as stand_in:
        sink = AriadneSink(stand_in.url)
        sink(event(1))
        sink.close()
    assert [1] == numbers(stand_in)


@pytest.mark.spec("S21")
def test_one_bad_event_loses_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    """The server refuses whole batches; the bad event is found, dropped alone, counted, and told of."""
    with StandIn(refusing=lambda span: span.get("data", {}).get("n") == 37) as stand_in:
        sink = AriadneSink(stand_in.url)
        for number in range(100):
            sink(event(number))
        sink.close()
    assert [number for number in range(100) if number != 37] == sorted(numbers(stand_in))
    assert (100, 99, 1, 0) == sink.counts()
    (line,) = labelled(capfd.readouterr().err)
    assert "1 event was not delivered" in line


def test_an_event_without_a_possible_time_loses_no_other() -> None:
    """It cannot be sent; it is dropped alone."""
    with StandIn() as stand_in:
        sink = AriadneSink(stand_in.url)
        for time_of_event in (NOON, float("nan"), 1e300, NOON + 1):
            sink(Event("compact.warning", "s-1", 1, time_of_event, data={"n": 1}))
        sink.close()
    assert 2 == len(numbers(stand_in))
    assert (4, 2, 2, 0) == sink.counts()


def test_an_event_without_a_possible_time_costs_its_call_nothing() -> None:
    """The others of its call arrive, whichever it was."""
    nan = float("nan")
    with StandIn() as stand_in:
        sink = AriadneSink(stand_in.url)
        for number, times in enumerate([(nan, 1, 2), (0, nan, 2), (0, 1, nan), (-1e12, 1, 2)]):
            names = ("token_estimate", "trigger_decision", "pruned_messages")
            for name, at in zip(names, times, strict=True):
                sink(Event(f"compact.{name}", f"s-{number}", 1, NOON + at, data={"triggered": True}))
        sink.close()
    arrived = [span["name"] for span in stand_in.spans() if "event" in span["data"]]
    assert {"compact.token_estimate": 2, "compact.trigger_decision": 3, "compact.pruned_messages": 3} == Counter(
        arrived
    )
    assert (12, 8, 4, 0) == sink.counts()


@pytest.mark.spec("S21")
def test_an_event_that_a_server_stumbles_over_blocks_no_other() -> None:
    """500 comes for the batch again and again; then the event is found, and lost alone."""
    with StandIn() as stand_in:
        stand_in.stumbling = lambda span: span.get("data", {}).get("n") == 37
        sink = AriadneSink(stand_in.url)
        for number in range(100):
            sink(event(number))
        assert [False, False, True] == [sink.flush(GUARD) for _ in range(3)]
        sink.close()
    assert [number for number in range(100) if number != 37] == sorted(set(numbers(stand_in)))
    assert (100, 99, 1, 0) == sink.counts()


@pytest.mark.spec("S21", "T10")
@pytest.mark.parametrize("count", [1, 100])
def test_a_server_that_stumbles_over_everything_loses_nothing(count: int) -> None:
    """It is out of order, and no event is to blame, however often it says 500; nor is it asked about each."""
    with StandIn("500") as stand_in:
        sink = AriadneSink(stand_in.url)
        for number in range(count):
            sink(event(number))
        for _ in range(7):
            assert not sink.flush(GUARD)
        assert (count, 0, 0, count) == sink.counts()
        assert len(stand_in.answers) < 50
        stand_in.mode = "strict"
        assert sink.flush(GUARD)
        sink.close()
    assert list(range(count)) == numbers(stand_in)


def test_a_batch_that_comes_again_belongs_to_the_same_call() -> None:
    """The rest of a fold whose beginning has left already is not sorted a second time."""
    with StandIn() as stand_in:
        sink = AriadneSink(stand_in.url)
        sink(event(0, "compact.token_estimate"))
        assert sink.flush(GUARD)
        stand_in.mode = "500"
        sink(event(1, "compact.trigger_decision", triggered=True))
        sink(event(2, "compact.pruned_messages", step=1))
        assert not sink.flush(GUARD)
        stand_in.mode = "strict"
        assert sink.flush(GUARD)
        sink.close()
    call = stand_in.spans("fold 1")[-1]
    for name in ("token_estimate", "trigger_decision", "pruned_messages"):
        assert [call["span_id"]] == [span.get("parent_id") for span in stand_in.spans(f"compact.{name}")]


def test_a_connection_on_which_a_body_may_lie_unread_is_closed() -> None:
    """A server that says 413 may not have read the body; what comes next would be taken for its rest."""
    with StandIn("413") as stand_in:
        post = Post(stand_in.url)
        assert 413 == post(b"{}")
        assert not post.connected
        stand_in.mode = "500"
        assert 500 == post(b"{}")
        assert post.connected
        post.close()


def test_large_batches_are_split_and_large_events_cut() -> None:
    """No body is over the limit, nothing is refused, and a reader sees where something was cut."""
    with StandIn() as stand_in:
        sink = AriadneSink(stand_in.url)
        for number in range(40):
            sink(event(number, text="é" * 20_000))
        sink(event(40, deep={"er": ["\x00" * 2_000_000, "short"]}))
        sink(event(41, many=list(range(60_000))))
        assert sink.flush(60)
        sink.close()
        assert {200} == set(stand_in.answers)
    assert list(range(40)) == [n for n in numbers(stand_in) if n < 40]
    assert max(stand_in.bodies) <= LARGEST
    big, many = stand_in.spans("compact.warning")[-2:]
    cut, short = big["data"]["deep"]["er"]
    assert (True, "short", 40) == (cut.endswith(" [cut: 2,000,000 characters]"), short, big["data"]["n"])
    assert (41, True) == (many["data"]["n"], many["data"]["cut"].startswith("[cut: 3"))
    assert (42, 42, 0, 0) == sink.counts()


def test_a_server_with_less_room_is_suited() -> None:
    """413 splits a batch; what is too large alone is cut further."""
    with StandIn() as stand_in:
        stand_in.largest = 20_000
        sink = AriadneSink(stand_in.url)
        for number in range(10):
            sink(event(number, text="x" * (5_000 if number else 60_000)))
        sink.close()
    assert list(range(10)) == sorted(numbers(stand_in))
    assert "[cut: 60,000 characters]" in stand_in.spans("compact.warning")[0]["data"]["text"]
    assert max(stand_in.bodies) <= 20_000


@pytest.mark.spec("S21", "S40")
def test_a_server_that_comes_back_gets_everything() -> None:
    """500 keeps the batch; a flush tries at once. Nothing is lost, sent twice, or out of order."""
    with StandIn("500") as stand_in:
        sink = AriadneSink(stand_in.url)
        for number in range(300):
            sink(event(number))
        assert not sink.flush(GUARD)
        assert (300, 0, 0, 300) == sink.counts()
        stand_in.mode = "strict"
        assert sink.flush(GUARD)
        assert (300, 300, 0, 0) == sink.counts()
        assert list(range(300)) == numbers(stand_in)
        sink.close()


def test_a_restarted_server_gets_the_trace_again() -> None:
    """It keeps nothing, so it is told again which session this is; a connection that was closed is no failure."""
    with StandIn() as first:
        sink = AriadneSink(first.url)
        sink(event(0))
        assert sink.flush(GUARD)
        sink(event(1))
        assert sink.flush(GUARD)
    with StandIn(port=first.port) as second:
        sink(event(2))
        assert sink.flush(GUARD) or sink.flush(GUARD)
        assert ["trace", "span"] == [one["type"] for one in second.accepted]
        sink.close()
    assert ["trace", "span", "span"] == [one["type"] for one in first.accepted]


def test_a_server_that_dies_over_a_request_leaves_its_heir_the_trace() -> None:
    """The kept connection ends when something is sent on it. Who listens there now is told of the session first."""
    batches: list[tuple[int, list[str]]] = []

    def serve(listening: socket.socket) -> None:
        for life in range(2):
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as reader:
                while request := body_from(reader):
                    if life == 0 and batches:
                        break
                    batches.append((life, [one["type"] for one in json.loads(request)["batch"]]))
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=serve, args=(listening,), daemon=True)
        server.start()
        sink = AriadneSink(f"http://127.0.0.1:{listening.getsockname()[1]}")
        for number in range(2):
            sink(event(number))
            assert sink.flush(GUARD)
        sink.close()
        server.join(GUARD)
    assert [(0, ["trace", "span"]), (1, ["trace"]), (1, ["span"])] == batches


def body_from(reader: BinaryIO) -> bytes:
    """The body of the next request; empty at the end."""
    size = 0
    while line := reader.readline().strip():
        name, _, value = line.partition(b":")
        size = int(value) if name.lower() == b"content-length" else size
    return reader.read(size)


def test_a_server_that_closes_every_connection_is_served() -> None:
    """Each batch finds its connection gone, also between two bodies of one batch."""
    with StandIn("closing") as stand_in:
        sink = AriadneSink(stand_in.url)
        for number in range(60):
            sink(event(number, text="x" * 20_000))
        assert sink.flush(GUARD)
        sink(event(60))
        sink.close()
    assert list(range(61)) == sorted(set(numbers(stand_in)))
    assert (61, 61, 0, 0) == sink.counts()


def test_https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same over TLS, with a certificate that is checked."""
    certificate = self_signed(tmp_path)
    with StandIn(certificate=certificate) as stand_in:
        doubting = AriadneSink(stand_in.url)
        doubting(event(1))
        assert not doubting.flush(GUARD)
        doubting.close()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        sink = AriadneSink(stand_in.url)
        for number in range(2):
            sink(event(number))
            assert sink.flush(GUARD)
        sink.close()
    assert [0, 1] == numbers(stand_in)


def self_signed(folder: Path) -> Path:
    """A certificate for 127.0.0.1, with its key."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stand-in")])
    now = datetime.datetime.now(datetime.UTC)
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    made = made.add_extension(host, critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    path = folder / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path


# -- peers that fail ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=["refused", "unresolved", "500", "redirect", "drip", "flood", "silent"])
def failing(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, StandIn | None]]:
    """A way to fail, where, and the server if there is one."""
    if request.param in ("refused", "unresolved"):
        yield request.param, refused_url() if request.param == "refused" else UNRESOLVED, None
    else:
        with StandIn(request.param) as stand_in:
            yield request.param, stand_in.url, stand_in


@pytest.mark.spec("S21", "S40", "T10")
def test_a_failing_server_costs_one_line(
    failing: tuple[str, str, StandIn | None], capfd: pytest.CaptureFixture[str]
) -> None:
    """The agent gets its messages, no exception, and one line that says how many, where, why and what to do."""
    how, url, stand_in = failing
    with manager_for(tracing={"ariadne_url": url}) as manager:
        for _ in range(3):
            assert len(manager.preflight("s-1", chat("s" + "ua" * 40))) < 81
    lines = labelled(capfd.readouterr().err)
    if how == "flood":  # it was taken; only the reply is absurd
        assert [] == lines
        assert stand_in is not None
        assert stand_in.flooded < 50_000_000
        return
    (line,) = lines
    assert re.match(rf"\[Ariadne\] \d+ events (were not delivered to|wait for) {re.escape(url)}/ingest: ", line)
    assert {
        "refused": "Connection refused; start the server",
        "unresolved": "; start the server",
        "500": "it answered 500; check the server",
        "redirect": "it answered 307 (a redirect, which is not followed)",
        "drip": "no answer within 2 s",
        "silent": "no answer within 2 s",
    }[how] in line
    assert stand_in is None or "/elsewhere" not in stand_in.paths


@pytest.mark.spec("S40", "T10")
def test_a_reply_that_drips_has_no_more_time_than_one_that_never_comes() -> None:
    """The deadline is for the whole request: a byte now and then does not extend it. (All of it would take 40 s.)"""
    with StandIn("drip") as stand_in, pytest.raises(TimeoutError):
        Post(stand_in.url)(b"{}")


@pytest.mark.spec("S21", "T10")
@pytest.mark.slow
def test_a_server_that_stays_away_is_told_of_once(capfd: pytest.CaptureFixture[str]) -> None:
    """Without any close, after a second try; and several sinks for one place share the line."""
    url = refused_url()
    sinks = [AriadneSink(url), AriadneSink(url)]
    for sink in sinks:
        sink(event(1))
    err, until = "", time.monotonic() + GUARD
    while not labelled(err) and time.monotonic() < until:
        time.sleep(0.05)
        err += capfd.readouterr().err
    for sink in sinks:
        assert not sink.flush()
        sink.close()
    (line,) = labelled(err + capfd.readouterr().err)
    assert f"[Ariadne] 1 event wait for {url}/ingest: Connection refused" in line
    assert "Tried again in 2 s" in line  # the first time it was one


@pytest.mark.spec("T09", "S40")
def test_a_server_that_never_answers_costs_little() -> None:
    """10,000 events: all counted at every moment, memory bounded, and closing ends."""
    with StandIn("silent") as stand_in:
        sink = AriadneSink(stand_in.url)
        wrong: list[Any] = []
        done = threading.Event()

        def watch() -> None:
            while not done.is_set():
                now = sink.counts()
                if now.emitted != now.delivered + now.dropped + now.queued:
                    wrong.append(now)

        watcher = threading.Thread(target=watch)
        watcher.start()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(10_000):
            sink(event(number, text=f"{number} " * 300))
        grown = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        emitted, delivered, dropped, waiting = sink.counts()
        sink.close()
        done.set()
        watcher.join()
    assert [] == wrong
    assert (10_000, 0) == (emitted, delivered)
    assert 10_000 == dropped + waiting
    assert grown < 16_000_000
    assert (10_000, 0, 10_000, 0) == sink.counts()


# -- the queue ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("T09")
def test_a_full_queue_drops_the_oldest(capfd: pytest.CaptureFixture[str]) -> None:
    """What is under way is not touched, the newest stay, and the loss is counted and said once."""
    gate = Gate(is_open=False)
    sink = Queued(gate, label="Test", limit=20, place="the gate")
    sink(event(0))
    assert gate.entered.wait(GUARD)
    for number in range(1, 100):
        sink(event(number))
    assert (100, 0, 80, 20) == sink.counts()
    gate.open.set()
    sink.close()
    assert [0, *range(81, 100)] == gate.got
    assert (100, 20, 80, 0) == sink.counts()
    (line,) = labelled(capfd.readouterr().err, "Test")
    assert "80 events were not delivered to the gate: they came faster" in line


@pytest.mark.parametrize(
    "payload",
    [
        {"text": "x" * 1_000_000},
        {"rows": [0] * 16_000},
        {"report": {"lost": ["x" * 1_000_000]}},
        {"rows": [{"a": "x" * 10_000}] * 100},
    ],
)
def test_a_queue_is_bounded_by_weight_too(payload: dict[str, Any]) -> None:
    """Few but heavy events are dropped as many light ones are; one that is over the bound alone is kept."""
    gate = Gate(is_open=False)
    sink = Queued(gate, label="Test")
    for number in range(100):
        sink(event(number, **payload))
    assert sink.counts().queued <= 8 + 32  # so many may not have been weighed yet
    for number in range(100, 200):
        sink(event(number, text="y" * 9_000_000))
    assert sink.counts().queued <= 2 + 32
    gate.open.set()
    sink.close()
    assert 199 == gate.got[-1]


def test_events_wait_for_company_and_keep_their_order() -> None:
    """A burst is few batches, in order."""
    gate = Gate()
    sink = Queued(gate, label="Test", wait=0.2)
    for number in range(500):
        sink(event(number))
    sink.close()
    assert list(range(500)) == gate.got
    assert len(gate.batches) <= 4


@pytest.mark.spec("T10")
def test_what_is_kept_is_tried_again_in_order() -> None:
    """A batch that was not taken stays at the front; a flush does not wait for the next try's time."""
    gate = Gate(failing=2)
    sink = Queued(gate, label="Test")
    sink(event(0))
    assert not sink.flush(GUARD)
    sink(event(1))
    assert not sink.flush(GUARD)
    sink(event(2))
    assert sink.flush(GUARD)
    assert [0, 1, 2] == gate.got
    sink.close()


def test_it_is_tried_again_without_being_asked() -> None:
    """After a second."""
    gate = Gate(failing=1)
    sink = Queued(gate, label="Test")
    sink(event(0))
    until = time.monotonic() + GUARD
    while not gate.got and time.monotonic() < until:
        time.sleep(0.01)
    assert [0] == gate.got
    sink.close()


def test_a_failing_delivery_costs_its_batch_only(capfd: pytest.CaptureFixture[str]) -> None:
    """An exception nobody foresaw, even one that ends threads: counted, said without its text, and on it goes."""

    def deliver(events: Sequence[Event]) -> None:
        if events[0].data["n"] == 0:
            raise SystemExit(SECRET)
        gate(events)

    gate = Gate()
    sink = Queued(deliver, label="Ends")
    sink(event(0))
    sink.flush(GUARD)
    sink(event(1))
    sink.close()
    assert [1] == gate.got
    assert (2, 1, 1, 0) == sink.counts()
    assert ["[Ends] 1 event was not delivered: SystemExit."] == labelled(capfd.readouterr().err, "Ends")


class Odd:
    """A value that ends the thread that looks at it."""

    def __repr__(self) -> str:
        raise SystemExit


def test_no_payload_ends_the_thread() -> None:
    """One that raises what ends threads is withheld alone."""
    gate = Gate()
    sink = Queued(gate, label="Test")
    sink(event(0, odd=Odd()))
    sink(event(1))
    assert sink.flush(GUARD)
    assert ([1], (2, 1, 1, 0)) == (gate.got, sink.counts())
    sink.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_somebody_ended_is_replaced() -> None:
    """Frameworks do end threads from outside. The next event has a new one."""
    gate = Gate()
    sink = Queued(gate, label="Mortal")
    sink(event(0))
    assert sink.flush(GUARD)
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "compact Mortal")
    assert 1 == ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
    )
    thread.join(GUARD)
    assert not thread.is_alive()
    sink(event(1))
    assert sink.flush(GUARD)
    assert [0, 1] == gate.got
    sink.close()


class Talkative(dict[str, Any]):
    """Data that emits an event when somebody looks at it, as a finalizer or a signal handler may at any moment."""

    emit: Callable[[], None]

    def __len__(self) -> int:
        self.emit()
        return 1

    def values(self) -> Any:
        self.emit()
        return super().values()


def test_an_event_may_come_in_the_middle_of_another() -> None:
    """While the queue weighs, under its lock: nobody waits for himself, and nothing is lost."""
    gate = Gate()
    sink = Queued(gate, label="Test", limit=50)
    inner = itertools.count(1_000)

    def emit() -> None:
        for number in range(200):
            data = Talkative(n=number)
            data.emit = lambda: sink(event(next(inner)))
            sink(Event("compact.warning", "s-1", 1, NOON + number, data=data))

    emitting = threading.Thread(target=emit, daemon=True)
    emitting.start()
    emitting.join(GUARD)
    assert not emitting.is_alive()
    sink.flush(GUARD)
    counts = sink.counts()
    assert (200 + next(inner) - 1_000, 0) == (counts.emitted, counts.queued)
    assert next(inner) > 1_002
    sink.close()


def test_a_line_may_come_in_the_middle_of_another(tmp_path: Path) -> None:
    """The same for a file: the inner one is written right behind the outer one."""

    class Interrupted(JsonlSink):
        def _open(self) -> int:
            self(event(1))
            return super()._open()

    with Interrupted(tmp_path / "events.jsonl") as sink:
        emitting = threading.Thread(target=sink, args=(event(0),), daemon=True)
        emitting.start()
        emitting.join(GUARD)
        assert not emitting.is_alive()
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [0, 1] == [json.loads(line)["data"]["n"] for line in lines]


def test_closing_does_not_wait_for_a_sink_that_hangs(capfd: pytest.CaptureFixture[str]) -> None:
    """It holds its own lock while it hangs, so nobody else closes it; and what it took in the end is no loss."""
    entered, go_on, closed = threading.Event(), threading.Event(), threading.Event()
    lock = threading.Lock()

    class Hanging:
        def __call__(self, happened: Event) -> None:
            with lock:
                entered.set()
                assert go_on.wait(GUARD)

        def close(self) -> None:
            with lock:
                closed.set()

    sink = queued(Hanging(), label="Hangs")
    sink(event(0))
    assert entered.wait(GUARD)
    closing = threading.Thread(target=sink.close, daemon=True)
    closing.start()
    closing.join(GUARD)
    assert not closing.is_alive()
    assert ((1, 0, 1, 0), False) == (sink.counts(), closed.is_set())
    assert "1 event was not delivered: no answer within 2 s" in capfd.readouterr().err
    go_on.set()
    assert closed.wait(GUARD)
    assert (1, 1, 0, 0) == sink.counts()


def test_any_sink_can_stand_behind_a_queue() -> None:
    """It is called in another thread, an event it raises on is lost alone, and closing closes it."""
    threads: set[str] = set()
    got: list[int] = []

    class Own:
        endpoint = "http://127.0.0.1:1"
        closed = 0

        def __call__(self, happened: Event) -> None:
            threads.add(threading.current_thread().name)
            got.append(10 // happened.data["n"])

        def close(self) -> None:
            self.closed += 1

    own = Own()
    sink = queued(own, label="own")
    assert "http://127.0.0.1:1" == getattr(sink, "endpoint", None)
    for number in (1, 0, 2):
        sink(event(number))
    sink.close()
    assert ([10, 5], {"compact own"}, 1) == (got, threads, own.closed)
    assert (3, 2, 1, 0) == sink.counts()
    sink(event(5))  # late, and better late than lost
    sink.close()
    assert [10, 5, 2] == got


def test_nothing_starts_before_the_first_event_and_nothing_is_left_behind() -> None:
    """No thread for a sink that is never used; none after closing; a queue that nobody holds delivers, then goes."""

    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "compact Mine"]

    gate = Gate()
    sink = Queued(gate, label="Mine")
    sink.close()
    assert [] == threads()
    sink(event(0))
    assert ["compact Mine"] == threads()
    sink.close()
    settled(lambda: not threads())
    sink = Queued(gate, label="Mine")
    sink(event(1))
    dead = weakref.ref(sink)
    del sink
    settled(lambda: gate.got == [0, 1])
    settled(lambda: gc.collect() >= 0 and dead() is None and not threads())


def settled(is_so: Callable[[], bool]) -> None:
    """Come back when it is so."""
    until = time.monotonic() + GUARD
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_many_threads_lose_nothing() -> None:
    """Eight threads, each event once, each thread's in order."""
    gate = Gate()
    sink = Queued(gate, label="Test", limit=100_000)

    def emit(start: int) -> None:
        for number in range(start, start + 1_000):
            sink(event(number))

    threads = [threading.Thread(target=emit, args=(start * 1_000,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.close()
    assert list(range(8_000)) == sorted(gate.got)
    assert [n for n in gate.got if n < 1_000] == list(range(1_000))
    assert (8_000, 8_000, 0, 0) == sink.counts()


def test_a_payload_that_cannot_be_read_reaches_nobody_raw() -> None:
    """It neither raises where it was emitted nor stops the others."""

    class Liar(dict[str, Any]):
        def values(self) -> Any:
            raise RuntimeError("no")

        def items(self) -> Any:
            raise RuntimeError("no")

    with StandIn() as stand_in:
        sink = AriadneSink(stand_in.url)
        sink.redact_with(Redactor())(Event("compact.warning", "s-1", 1, NOON, data=Liar(a=SECRET)))
        sink(event(1))
        sink.close()
    assert SECRET not in json.dumps(stand_in.accepted)
    assert 1 in [span["data"].get("n") for span in stand_in.spans()]


# -- redaction ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("S25", "T13")
def test_what_leaves_the_queue_is_redacted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Secrets in messages, notes, ids and tool arguments: none reaches the server, the file, or the terminal."""
    path = tmp_path / "events.jsonl"
    arguments = json.dumps({"password": f"{SECRET}1"})
    call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": arguments}}
    messages = [
        {"role": "user", "content": f"Deploy with {SECRET}2"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": f"export PASSWORD={SECRET}3"},
        *chat("ua" * 40),
    ]
    model = ScriptedModel(lambda ask: f"Goal: use {SECRET}4 for the lamps.")
    config = CompactConfig(
        model="gpt-4o",
        max_context_tokens=3_000,
        storage={"adapter": "none"},
        summary={"min_score": 0},
        tracing={"jsonl": str(path), "console": True},
    )
    with StandIn() as stand_in:
        with CompactManager(config, summarizer=model, sinks=[AriadneSink(stand_in.url)]) as manager:
            manager.manual_compact(f"run {SECRET}5", messages, note=f"rotate {SECRET}6, api_key=sk-abc123")
        assert {200} == set(stand_in.answers)
    arrived = json.dumps(stand_in.accepted)
    for text in (arrived, path.read_text(), capfd.readouterr().err):
        assert SECRET not in text
        assert "sk-abc123" not in text
        assert "<REDACTED>" in text
    assert "api_key=<REDACTED>" in arrived
    assert "api_key=<REDACTED>" in path.read_text()


@pytest.mark.spec("T13")
def test_a_shared_sink_redacts_for_each_manager_as_it_wants() -> None:
    """The manager that came last does not decide for the others, least of all when it has switched redaction off."""
    with StandIn() as stand_in:
        sink = AriadneSink(stand_in.url)
        first = SinkList([sink], Redactor(patterns=["lamp-[0-9]+"]))
        second = SinkList([sink], Redactor())
        third = SinkList([sink], Redactor(enabled=False))
        for number, sinks in enumerate((first, second, third)):
            sinks(event(number, "compact.config_changed", text=f"lamp-123 api_key=sk-abc123 {number}"))
        sink(event(3, "compact.config_changed", text="api_key=sk-abc123"))
        sink.close()
    texts = [span["data"]["text"] for span in stand_in.spans()]
    assert [
        "<REDACTED> api_key=<REDACTED> 0",
        "lamp-123 api_key=<REDACTED> 1",
        "lamp-123 api_key=sk-abc123 2",
        "api_key=<REDACTED>",
    ] == texts


def test_a_plain_sink_is_called_where_the_agent_runs() -> None:
    """Only sinks that redact by themselves stand behind a queue."""
    seen: list[tuple[str, Any]] = []
    sinks = SinkList([lambda happened: seen.append((threading.current_thread().name, happened.data))], Redactor())
    sinks(event(1, "compact.archival", note="api_key=sk-abc123"))
    assert [(threading.current_thread().name, {"n": 1, "note": "api_key=<REDACTED>"})] == seen


# -- processes ---------------------------------------------------------------------------------------------------------

LEAVING = """
    import sys
    from compact import CompactConfig, CompactManager
    from compact.testing import ScriptedModel, chat
    url, path = sys.argv[1:3]
    tracing = {"ariadne_url": url, "jsonl": path}
    config = CompactConfig(model="gpt-4o", max_context_tokens=3_000, storage={"adapter": "none"}, tracing=tracing)
    manager = CompactManager(config, summarizer=ScriptedModel("Goal: the lamps."))
    manager.preflight("s-1", chat("s" + "ua" * 40))
    if len(sys.argv) > 3:
        del manager
"""


@pytest.mark.spec("T12")
@pytest.mark.parametrize("more", [[], ["del"]])
def test_exit_without_close_delivers(tmp_path: Path, more: list[str]) -> None:
    """A program that just ends has lost nothing, whether or not it still holds its manager."""
    path = tmp_path / "events.jsonl"
    with StandIn() as stand_in:
        ended = run(LEAVING, stand_in.url, str(path), *more)
        assert (0, "", "") == (ended.returncode, ended.stdout, ended.stderr)
        names = [json.loads(line)["name"] for line in path.read_text().splitlines()]
        assert "compact.pruned_messages" == names[-1]
        assert Counter(names) == Counter(span["data"].get("event") for span in stand_in.spans() if "parent_id" in span)


@pytest.mark.spec("T09", "T12")
@pytest.mark.parametrize("how", ["silent", "refused"])
def test_exit_without_close_says_what_was_lost(tmp_path: Path, how: str) -> None:
    """A server that never answers, or is not there, is waited for no longer than two seconds; the loss is a number."""
    path = tmp_path / "events.jsonl"
    with StandIn("silent") as stand_in:
        url = stand_in.url if how == "silent" else refused_url()
        ended = run(LEAVING, url, str(path))
    assert (0, "") == (ended.returncode, ended.stdout)
    count = len(path.read_text().splitlines())
    (line,) = ended.stderr.splitlines()
    assert f"[Ariadne] {count} events were not delivered to {url}/ingest before exit: " in line


UNSAID = """
    import gc, sys
    from compact._events.event import Event
    from compact.sinks.ariadne import AriadneSink
    for _ in range(3):
        sink = AriadneSink(sys.argv[1])
        for number in range(100):
            sink(Event("compact.warning", "s", 1, 1.7e9 + number, data={"n": number}))
        sink.close()
        del sink
        gc.collect()
"""


@pytest.mark.spec("T12")
def test_no_loss_goes_unsaid() -> None:
    """A place has one line a minute; what sinks lost besides that were closed and forgotten is said at exit."""
    url = refused_url()
    first, last = run(UNSAID, url).stderr.splitlines()
    assert f"[Ariadne] 100 events were not delivered to {url}/ingest: " in first
    assert f"[Ariadne] 200 events were not delivered to {url}/ingest before exit: " in last


HANGING = """
    import sys, threading
    from compact._events.event import Event
    from compact.sinks._queue import Queued, close_all
    queues = [Queued(lambda events: threading.Event().wait(), label=f"{number}") for number in range(40)]
    for queue in queues:
        queue(Event("compact.warning", "s", 1, 1.7e9))
    if sys.argv[1] == "close":
        close_all(queues)
"""


@pytest.mark.spec("T09", "T12")
@pytest.mark.parametrize("how", ["close", "exit"])
def test_many_that_hang_take_no_longer_than_one(how: str) -> None:
    """All share two seconds. (Two for each of them would be longer than a test may take.) Each is told of once."""
    assert 40 == len(run(HANGING, how).stderr.splitlines())


MULTIPROCESSING = """
import multiprocessing, sys
from compact import Event
from compact.sinks._queue import queued
from compact.sinks.ariadne import AriadneSink
from compact.sinks.jsonl import JsonlSink

def work(url, path):
    for sink in (AriadneSink(url), queued(JsonlSink(path), label="JSONL")):
        for number in range(5):
            sink(Event("compact.warning", "s-1", 1, 1.7e9 + number, data={"n": number}))

if __name__ == "__main__":
    child = multiprocessing.get_context(sys.argv[1]).Process(target=work, args=sys.argv[2:])
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


@pytest.mark.spec("T12")
@pytest.mark.parametrize("how", ["fork", "forkserver", "spawn"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_child_of_multiprocessing_delivers_what_it_emitted(tmp_path: Path, how: str) -> None:
    """It ends right after its events, and not the way other programs end."""
    (tmp_path / "program.py").write_text(MULTIPROCESSING)
    path = tmp_path / "events.jsonl"
    with StandIn() as stand_in:
        command = [sys.executable, str(tmp_path / "program.py"), how, stand_in.url, str(path)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=GUARD, check=False)
        assert (0, "") == (ended.returncode, ended.stderr)
        assert list(range(5)) == numbers(stand_in)
    assert list(range(5)) == [json.loads(line)["data"]["n"] for line in path.read_text().splitlines()]


HELD = """
    import os, signal, sys, threading, time
    import agents.tracing
    from compact._events.event import Event
    from compact.sinks.agents_sdk import agents_sdk_sink
    from compact.sinks.console import console_sink

    parent, entered = os.getpid(), threading.Semaphore(0)

    def hang():
        if os.getpid() == parent:
            entered.release()
            threading.Event().wait()

    class File:
        def write(self, text):
            hang()
        def flush(self):
            pass
        def isatty(self):
            return False

    class Slow(Event):
        @property
        def name(self):
            hang()
            return "compact.warning"

    sinks = [agents_sdk_sink(), console_sink(File())]
    for sink in sinks:
        threading.Thread(target=sink, args=(Slow("", "s", 1, 1.7e9),), daemon=True).start()
    entered.acquire()
    entered.acquire()
    plain = Event("compact.warning", "s", 1, 1.7e9)
    threading.Thread(target=sinks[1], args=(plain,), daemon=True).start()
    entered.acquire()
    child = os.fork()
    if not child:
        signal.alarm(20)
        for sink in sinks:
            sink(plain)
        os._exit(0)
    print(os.waitpid(child, 0)[1])
    sys.stdout.flush()
    os._exit(0)
"""


@pytest.mark.spec("T11")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_child_does_not_wait_for_locks_of_its_parents() -> None:
    """A fork while other threads are inside the Agents SDK's sink and the console."""
    ended = run(HELD)
    assert ("0\n", "") == (ended.stdout, ended.stderr)


FROZEN = """
    import time
    from compact import CompactConfig, CompactManager
    from compact.testing import Recorder, ScriptedModel, chat
    time.time = lambda: 1.7e9
    recorder = Recorder()
    config = CompactConfig(model="gpt-4o", max_context_tokens=3_000, storage={"adapter": "none"})
    with CompactManager(config, summarizer=ScriptedModel("Goal: the lamps."), sinks=[recorder]) as manager:
        manager.preflight("s-1", chat("s" + "ua" * 40))
    times = [event.time for event in recorder]
    print(len(times) > 4, sorted(set(times)) == times, times[0], times[-1] < 1.7e9 + 0.01)
"""


def test_events_at_one_reading_of_the_clock_are_told_apart() -> None:
    """Some clocks are coarse, or stand still; a session's events never share a time, nor run away from the clock."""
    assert "True True 1700000000.0 True\n" == run(FROZEN).stdout


FORKING = """
    import os, sys, threading, time, traceback
    from compact._events.event import Event
    from compact.sinks._queue import queued
    from compact.sinks.ariadne import AriadneSink
    from compact.sinks.jsonl import JsonlSink

    url, path, forks = sys.argv[1], sys.argv[2], int(sys.argv[3])
    plain = JsonlSink(path + ".plain")
    sinks = [AriadneSink(url), queued(JsonlSink(path), label="JSONL"), plain]
    over, emitted = threading.Event(), []

    def emit(start, count):
        for number in range(start, start + count):
            for sink in sinks:
                sink(Event("compact.warning", "s-1", 1, 1.7e9 + number, data={"n": number}))

    def busy(start):
        number = start
        while not over.is_set():
            emit(number, 1)
            number += 1
            time.sleep(0.0005)
        emitted.append((start, number))

    threads = [threading.Thread(target=busy, args=(start,)) for start in (10_000_000, 20_000_000)]
    for thread in threads:
        thread.start()
    waiting = []
    for fork in range(forks):
        child = os.fork()
        if not child:
            emit(100 * fork, 3)
            for sink in sinks:
                sink.close()
            os._exit(0 if all(sink.counts() == (3, 3, 0, 0) for sink in sinks[:2]) else 1)
        waiting.append(child)
        if len(waiting) == 8:
            assert not os.waitpid(waiting.pop(0), 0)[1]
    for child in waiting:
        assert not os.waitpid(child, 0)[1]
    over.set()
    for thread in threads:
        thread.join()
    for start, end in emitted:
        print(start, end)
    print(*(sink.counts().dropped for sink in sinks[:2]))
"""


@pytest.mark.spec("T11")
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_forks_while_the_queue_is_busy(tmp_path: Path) -> None:
    """200 children, each with events of its own: none hangs, and every event arrives once, the parent's too."""
    path = tmp_path / "events.jsonl"
    with StandIn() as stand_in:
        ended = run(FORKING, stand_in.url, str(path), "200")
        assert (0, "") == (ended.returncode, ended.stderr)
        arrived = numbers(stand_in)
    *emitted, dropped = ended.stdout.splitlines()
    assert "0 0" == dropped
    expected = {100 * fork + number for fork in range(200) for number in range(3)}
    for line in emitted:
        expected |= set(range(*map(int, line.split())))
    for written in (path, tmp_path / "events.jsonl.plain"):
        lines = [json.loads(line)["data"]["n"] for line in written.read_text().splitlines()]
        assert (len(lines), expected) == (len(set(lines)), set(lines))
    assert (len(arrived), expected) == (len(set(arrived)), set(arrived))


def test_a_file_that_cannot_be_written_is_told_of_and_tried_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The event is lost and counted; once the folder can be made, the next one is written."""
    (tmp_path / "logs").write_text("in the way")
    sink = queued(JsonlSink(tmp_path / "logs" / "events.jsonl"), label="JSONL", place="logs/events.jsonl")
    sink(event(0))
    sink.flush(GUARD)
    (tmp_path / "logs").unlink()
    sink(event(1))
    sink.close()
    assert (2, 1, 1, 0) == sink.counts()
    assert [1] == [json.loads(line)["data"]["n"] for line in (tmp_path / "logs/events.jsonl").read_text().splitlines()]
    (line,) = labelled(capfd.readouterr().err, "JSONL")
    assert "1 event was not delivered to logs/events.jsonl: " in line
