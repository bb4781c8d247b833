"""The viewer's server, asked over real sockets: what it takes, what it shows, and whom it refuses."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import shutil
import socket
import sqlite3
import stat
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest
from demo_transcript import build
from event_spans import all_spans
from hypothesis import given
from hypothesis import strategies as st
from s3_servers import client, moto, new_bucket

from compact import LAWS, CompactConfig, CompactError, CompactManager, Event
from compact._events.serialize import parse_event
from compact.sinks.ariadne import AriadneSink
from compact.testing import Recorder, ScriptedModel, chat
from compact.viewer import running
from compact.viewer.ingest import LIMIT, IngestError, parse_body
from compact.viewer.span_table import SpanTable
from compact.viewer.timeline import POINTS, build_timeline

pytestmark = pytest.mark.slow  # servers and processes of their own

HOSTILE = [
    "../../etc/passwd",
    "<script>alert(1)</script>",
    'a"b&c=d#e?f',
    "\u202egnp.exe",
    "line\nbreak\x00nul",
    "a/b",
    "CON",
    "x" * 300,
    "Ünïcødé 漢字 🎉",
    "lone \ud800 half",
    "%2e%2e%2f",
    " ",
]


class Asked:
    """A client of its own connections; nothing in it knows the server's code."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.netloc = urlsplit(address).netloc

    def request(
        self, method: str, path: str, body: bytes | Iterator[bytes] | None = None, **headers: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of one answer."""
        connection = http.client.HTTPConnection(self.netloc, timeout=30)
        try:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, sent, encode_chunked=not isinstance(body, bytes | None))
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def get(self, path: str, **params: Any) -> Any:
        """The JSON of a path that must answer."""
        status, _, body = self.request("GET", path + ("?" + urlencode(params) if params else ""))
        assert 200 == status, body
        return json.loads(body)

    def refusal(self, path: str, **params: Any) -> tuple[int, str]:
        """Status and sentence of a path that must not answer."""
        status, _, body = self.request("GET", path + ("?" + urlencode(params) if params else ""))
        return status, json.loads(body)["error"]

    def post(self, value: Any) -> tuple[int, Any]:
        """What `/ingest` answers to a value, or to bytes as they are."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        status, _, answer = self.request("POST", "/ingest", body)
        return status, json.loads(answer)


@contextmanager
def rows_of(asked: Asked, **params: Any) -> Iterator[Iterator[list[dict[str, Any]]]]:
    """The stream of rows, message by message."""
    connection = http.client.HTTPConnection(asked.netloc, timeout=30)
    connection.request("GET", "/events?" + urlencode(params))
    answer = connection.getresponse()
    assert 200 == answer.status
    assert answer.readline().startswith(b":")

    def messages() -> Iterator[list[dict[str, Any]]]:
        while line := answer.readline():
            assert not line.startswith(b": ping"), "nothing came for 15 seconds"
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    try:
        yield messages()
    finally:
        answer.close()
        connection.close()


def until(check: Any, seconds: float = 20) -> Any:
    """What a check gives once it gives anything."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(0.02)
    raise AssertionError("it never came")


def span(number: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "type": "span",
        "trace_id": "t",
        "span_id": f"s{number}",
        "name": "work",
        "started_at": "2026-11-16T06:00:00.000001Z",
        "ended_at": "2026-11-16T06:00:01Z",
        "status": "ok",
        "data": {"n": number},
        **fields,
    }


def config(path: str = "archive", **more: Any) -> CompactConfig:
    return CompactConfig(model="gpt-4o", max_context_tokens=32_000, storage={"path": path}, **more)


def transcript(archive: Path, step: int) -> list[Any]:
    """The messages before a fold of the demo, as its file has them."""
    text = (archive / f"demo/transcript-pre-compact-{step:03d}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def keep(*sessions: str, path: str = "archive", folds: int = 1) -> None:
    """Fold each session so many times with a summarizer of known words."""
    settings = CompactConfig(counter="chars", policy={"keep_recent_turns": 1}, storage={"path": path})
    with CompactManager(settings, summarizer=ScriptedModel("Rules: never by hand [#1-#3].")) as manager:
        for session in sessions:
            messages: list[Any] = chat("s" + "utra" * 4)
            for fold in range(folds):
                messages = manager.manual_compact(session, [*messages, *chat("utra" * 3, first=100 * fold)])


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real session: the demo's agent with a window of 32,000, folded as it goes."""
    root = tmp_path_factory.mktemp("story")
    with CompactManager(config(str(root / "archive"))) as manager:
        messages: list[Any] = []
        for message in build(7, 120_000):
            messages = manager.preflight("demo", [*messages, message])
    return root / "archive"


@pytest.fixture
def live() -> Iterator[Asked]:
    """A viewer with an empty archive."""
    with running(config()) as address:
        yield Asked(address)


# -- what /ingest takes ------------------------------------------------------------------------------------------------


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in span().items() if key != name}


TRACE = {"type": "trace", "trace_id": "t", "name": "a session", "metadata": {"source": "compact"}}
TABLE: list[tuple[str, Any, int]] = [
    ("one span", span(), 200),
    ("one trace", TRACE, 200),
    ("a batch", {"batch": [TRACE, span(1), span(2)]}, 200),
    ("an empty batch", {"batch": []}, 200),
    ("no optional field", {"type": "span", "trace_id": "t", "span_id": "s"}, 200),
    ("microseconds and Z", span(started_at="2026-11-16T06:00:00.123456Z"), 200),
    ("equal stamps", span(started_at="2026-11-16T06:00:01Z"), 200),
    ("keys that nobody knows", span(timestamp=1, properties={}, payload="x", duration_ms=2), 200),
    ("nulls inside data", span(data={"a": None}), 200),
    ("events instead of batch", {"events": [span()]}, 400),
    ("a bare array", [span()], 400),
    ("a number", 7, 400),
    ("null", None, 400),
    ("batch that is no array", {"batch": span()}, 400),
    ("an offset instead of Z", span(started_at="2026-11-16T06:00:00+00:00"), 400),
    ("a day that is none", span(started_at="2026-02-30T06:00:00Z"), 400),
    ("a stamp that is a number", span(started_at=1.5), 400),
    ("ended before it started", span(ended_at="2026-11-16T05:59:59Z"), 400),
    ("parent_id null", span(parent_id=None), 400),
    ("name null", span(name=None), 400),
    ("data null", span(data=None), 400),
    ("data that is a list", span(data=[1]), 400),
    ("another status", span(status="fine"), 400),
    ("no type", without("type"), 400),
    ("another type", span(type="event"), 400),
    ("no trace_id", without("trace_id"), 400),
    ("an empty trace_id", span(trace_id=""), 400),
    ("no span_id", without("span_id"), 400),
    ("metadata with a number", {**TRACE, "metadata": {"n": 1}}, 400),
    ("one bad event in a batch", {"batch": [span(1), span(2, status="fine"), span(3)]}, 400),
    ("not JSON", b"{not json", 500),
    ("nothing", b"", 500),
    ("NaN", b'{"type":"span","trace_id":"t","span_id":"s","data":{"n":NaN}}', 500),
    ("nested without end", b'{"type":"span","trace_id":"t","span_id":"s","data":' + b"[" * 100_000, 500),
]


def test_ingest_answers_as_ariadne_does(live: Asked) -> None:
    """Row by row: the status, and that what was refused is not kept, the good events beside a bad one included."""
    wrong = []
    for what, sent, expected in TABLE:
        before = live.get("/healthz")["events"]
        status, answer = live.post(sent)
        good = status == 200 and answer["success"] is True and isinstance(answer["count"], int)
        refused = status != 200 and isinstance(answer["error"], str) and live.get("/healthz")["events"] == before
        if status != expected or not (good or refused):
            wrong.append((what, status, answer))
    assert [] == wrong
    assert (200, {"success": True, "count": 3}) == live.post({"batch": [TRACE, span(1), span(2)]})
    _, answer = live.post({"batch": [span(1), span(2, status="fine")]})
    assert ["batch", 1, "status"] == answer["details"][0]["path"]


def test_a_body_over_the_limit_is_refused_however_it_is_sent(live: Asked) -> None:
    """By its stated length before it is read, and in pieces as soon as it is over; at the limit it is taken."""
    frame = len(json.dumps(span(data={"list": [""]})))
    full = json.dumps(span(data={"list": ["x" * (LIMIT - frame)]})).encode()
    assert LIMIT == len(full)
    assert 200 == live.post(full)[0]
    status, answer = live.post(full + b" ")
    assert (413, "Payload too large") == (status, answer["error"])
    assert f"{LIMIT:,}" in answer["message"]
    with socket.create_connection(live.netloc.split(":"), timeout=30) as endless:
        head = f"POST /ingest HTTP/1.1\r\nHost: {live.netloc}\r\nTransfer-Encoding: chunked\r\n\r\n"
        endless.sendall(head.encode() + (b"10000\r\n" + b" " * 65_536 + b"\r\n") * 5)
        assert endless.recv(100).startswith(b"HTTP/1.1 413")


def test_long_strings_are_cut_and_unknown_keys_vanish(live: Asked) -> None:
    """Names at 1 KiB, values in data at 100 KiB, also nested ones; lists are left alone."""
    long = "y" * 110_000
    sent = span(name="n" * 2_000, data={"text": long, "inner": {"text": long}}, payload="gone", duration_ms=5)
    assert 200 == live.post(json.dumps(sent).encode())[0]
    assert 200 == live.post(span(2, data={"list": [long]}))[0]
    kept = live.get("/api/span", session="t", span_id="s1")
    assert "n" * 1_024 + "... [truncated]" == kept["name"]
    assert "y" * 102_400 + "... [truncated]" == kept["data"]["text"] == kept["data"]["inner"]["text"]
    assert not {"payload", "duration_ms"} & kept.keys()
    assert [long] == live.get("/api/span", session="t", span_id="s2")["data"]["list"]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["span", "trace"]) | _VALUES, "trace_id": st.text(max_size=4), "span_id": st.text()},
    optional=dict.fromkeys(("name", "kind", "parent_id", "data", "status", "started_at", "metadata"), _VALUES),
)


@given(st.binary(max_size=200) | (_VALUES | _EVENTS | st.lists(_EVENTS).map(lambda e: {"batch": e})).map(json.dumps))
def test_anything_is_taken_or_refused(sent: str | bytes) -> None:
    """No body does anything but give events that can be kept, or a refusal with a status."""
    body = sent if isinstance(sent, bytes) else sent.encode()
    try:
        events = parse_body(body)
    except IngestError:
        return
    spans = SpanTable()
    spans.add(event for event in events if event["type"] == "span")
    assert len(spans) == len({(e["trace_id"], e["span_id"]) for e in events if e["type"] == "span"})
    spans.close()


# -- spans, followed ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("S22")
def test_rows_come_live_and_nothing_is_missed_in_between(live: Asked) -> None:
    """A stream replays what came after an id, then goes on live; another session's rows stay out of a filtered one."""
    live.post({"batch": [span(1), span(2, parent_id="s1")]})
    seen = live.get("/api/spans", session="t", after=0)
    assert ["s1", "s2"] == [row["span_id"] for row in seen["spans"]]
    live.post(span(3))
    with rows_of(live, since=seen["last"]) as all_rows, rows_of(live, since=seen["last"], session="other") as others:
        assert ["s3"] == [row["span_id"] for row in next(all_rows)]
        live.post(span(9, trace_id="other"))
        assert ["s9"] == [row["span_id"] for row in next(all_rows)] == [row["span_id"] for row in next(others)]
    row = seen["spans"][1]
    assert {
        "trace_id": "t",
        "parent_id": "s1",
        "name": "work",
        "status": "ok",
        "ended": 1794808801.0,
    }.items() <= row.items()
    assert "parent_id" not in seen["spans"][0]
    assert row["ended"] - row["started"] == pytest.approx(0.999999, abs=1e-5)


def test_a_stream_goes_on_where_it_broke(live: Asked) -> None:
    """A browser that connects again names the last message it got, and gets what came after it."""
    live.post(span(1))
    (first,) = live.get("/api/spans", session="t", after=0)["spans"]
    live.post(span(2))
    connection = http.client.HTTPConnection(live.netloc, timeout=30)
    connection.request("GET", "/events?since=0", headers={"Last-Event-ID": str(first["id"])})
    answer = connection.getresponse()
    lines = [answer.readline() for _ in range(4)]
    connection.close()
    assert b"s2" in lines[3]
    assert b"s1" not in lines[3]
    assert lines[2].startswith(b"id: ")


def test_a_span_that_grows_is_one_row_and_news_each_time(live: Asked) -> None:
    """Sent again with another content it takes the old one's place under a higher id; sent again as it was, nothing."""
    live.post(span(1, data={"v": 1}))
    with rows_of(live) as rows:
        live.post(span(1, data={"v": 1}))
        live.post(span(1, data={"v": 2}, status="error"))
        (row,) = next(rows)
        assert ("s1", "error") == (row["span_id"], row["status"])
    (kept,) = live.get("/api/spans", session="t", after=0)["spans"]
    assert kept == row
    (session,) = live.get("/api/sessions")["sessions"]
    assert (1, 1) == (session["spans"], session["errors"])
    assert {"v": 2} == live.get("/api/span", session="t", span_id="s1")["data"]


def test_a_reader_that_stops_reading_misses_nothing(live: Asked) -> None:
    """Thousands of rows later it reads on from where it stood; meanwhile the server takes and answers as ever."""
    with rows_of(live) as rows:
        for start in range(0, 6_000, 150):
            wide = [span(n, name=f"{n} " + "x" * 1_000) for n in range(start, start + 150)]
            assert 200 == live.post({"batch": wide})[0]
        assert 6_000 == live.get("/healthz")["events"]
        seen: list[str] = []
        while len(seen) < 6_000:
            seen += [row["span_id"] for row in next(rows)]
    assert [f"s{n}" for n in range(6_000)] == seen


def test_the_oldest_spans_give_way(tmp_path: Path) -> None:
    """The sums of the sessions follow."""
    spans = SpanTable(tmp_path / "spans.sqlite", limit=1_000)
    for start in range(0, 3_000, 500):
        spans.add(span(n, trace_id=f"t{start}") for n in range(start, start + 500))
    kept = spans.rows(0, 5_000)
    assert 900 <= len(spans) == len(kept) <= 1_000
    assert "s2999" == kept[-1]["span_id"]
    assert len(kept) == sum(one["spans"] for one in spans.sessions())
    assert {"t2500", "t2000"} == {one["session"] for one in spans.sessions()}
    spans.close()


def test_what_was_seen_is_kept_privately_and_ids_never_go_back(tmp_path: Path) -> None:
    """A file for its owner alone; whoever comes second works in memory and says so; a new file starts higher."""
    path = tmp_path / "new" / "spans.sqlite"
    first = SpanTable(path)
    first.add([span(1)])
    assert "600" == f"{stat.S_IMODE(path.stat().st_mode):o}"
    assert "700" == f"{stat.S_IMODE(path.parent.stat().st_mode):o}"
    second = SpanTable(path)
    assert second.complaint is not None
    assert "--db" in second.complaint
    second.add([span(2)])
    assert second.rows(0, 9)[0]["id"] > first.rows(0, 9)[0]["id"]
    second.close()
    first.close()
    again = SpanTable(path)
    assert (None, ["s1"]) == (again.complaint, [row["span_id"] for row in again.rows(0, 9)])
    again.close()
    path.write_bytes(b"no database at all, but somebody's file" * 99)
    other = SpanTable(path)
    assert "memory only" in str(other.complaint)
    assert path.read_bytes().startswith(b"no database")
    other.close()


@pytest.mark.parametrize("version", [0, 1, 7])
def test_a_database_of_somebody_else_is_left_as_it_is(tmp_path: Path, version: int) -> None:
    """Not a byte of it changes, whatever number it bears; it is not locked either."""
    path = tmp_path / "mine.sqlite"
    with closing(sqlite3.connect(path)) as mine:
        mine.executescript(f"CREATE TABLE notes (text); PRAGMA user_version = {version};")
    before = path.read_bytes()
    spans = SpanTable(path)
    spans.add([span(1)])
    assert "memory only" in str(spans.complaint)
    assert before == path.read_bytes()
    assert [path] == list(tmp_path.iterdir())
    with closing(sqlite3.connect(path)) as mine:
        mine.execute("INSERT INTO notes VALUES ('still mine')")
    spans.close()


@pytest.mark.parametrize("damage", ["text", "half", "zeros", "middle"])
def test_a_damaged_database_gives_way(tmp_path: Path, damage: str) -> None:
    """In its own place it is made anew, since all of it came from elsewhere; a file that was named is left alone."""
    path = tmp_path / ".view" / "spans.sqlite"
    spans = SpanTable(path)
    spans.add(span(n, data={"text": "x" * 500}) for n in range(400))
    spans.close()
    data = path.read_bytes()
    pages = len(data) // 4_096
    bad = {
        "text": b"hello, I am no database" * 99,
        "half": data[: pages // 2 * 4_096],
        "zeros": data[:20_480] + bytes(len(data) - 20_480),
        "middle": data[:8_192] + b"\x93" * (len(data) - 12_288) + data[-4_096:],
    }[damage]
    named = tmp_path / "named.sqlite"
    for file in (path, named):
        file.write_bytes(bad)
        again = SpanTable(file)
        for _ in range(2):
            again.rows(0, 5_000, "t")
            again.add([span(1, data={"new": 1})])
        assert again.complaint
        assert ("created again" in again.complaint) == (file is path)
        assert {"new": 1} == again.span("t", "s1")["data"]
        again.close()
    with closing(sqlite3.connect(path)) as mended:
        assert [("ok",)] == mended.execute("PRAGMA integrity_check").fetchall()


# -- the archive -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("S22")
def test_a_session_of_the_archive(story: Path) -> None:
    """The list of sessions, the timeline with its drops, and the tree with durations, from the archive alone."""
    with running(config(), story) as address:
        asked = Asked(address)
        sessions = until(lambda: [s for s in asked.get("/api/sessions")["sessions"] if s["spans"]])
        events = [parse_event(json.loads(line)) for line in (story / "demo/events.jsonl").read_text().splitlines()]
        (one,) = sessions
        pruned = [event.data for event in events if event.name == "compact.pruned_messages"]
        assert ("demo", len(pruned), True, 32_000) == (one["session"], one["folds"], one["archived"], one["window"])
        assert sum(p["tokens_before"] - p["tokens_after"] for p in pruned) == one["saved"]
        assert len(all_spans(events)) == one["spans"]
        assert events[-1].time == pytest.approx(one["last"], abs=1e-5)

        line = asked.get("/api/timeline", session="demo")
        estimates = [event for event in events if event.name == "compact.token_estimate"]
        assert len(estimates) + len(pruned) == len(line["points"])
        assert [32_000, 27_200, 30_500] == line["points"][0][2:]
        assert list(range(1, len(pruned) + 1)) == [fold["step"] for fold in line["folds"]]
        for fold, data in zip(line["folds"], pruned, strict=True):
            assert (data["tokens_before"], data["tokens_after"]) == (fold["before"], fold["after"])
            assert fold["reason"].startswith("trigger_pct")
            assert (False, True, 0.0) == (fold["undone"], fold["archived"], fold["cost_usd"])
            assert fold["duration"] > 0
            assert 0 < fold["score"] <= 100
            assert [fold["time"], fold["after"]] in [point[:2] for point in line["points"]]

        rows = asked.get("/api/spans", session="demo", after=0)["spans"]
        by_id = {row["span_id"]: row for row in rows}
        (call,) = [row for row in rows if row["name"] == "fold 2"]
        below = [row for row in rows if row.get("parent_id") == call["span_id"]]
        assert {"compact.token_estimate", "compact.summary_call", "compact.pruned_messages"} <= {
            r["name"] for r in below
        }
        assert all(call["started"] <= row["ended"] <= call["ended"] for row in below)
        (asked_model,) = [row for row in below if row["name"] == "compact.summary_call"]
        assert asked_model["ended"] > asked_model["started"]
        assert all(row["parent_id"] in by_id for row in rows if "parent_id" in row)
        assert f"{pruned[1]['tokens_before']:,} → {pruned[1]['tokens_after']:,} tokens" in call["brief"]

        whole = asked.get("/api/span", session="demo", span_id=call["span_id"])
        assert whole["data"]["output"]
        assert {"trigger_pct", "hard_cap_buffer", "strategy"} <= whole["data"]["policy"].keys()
        assert pruned[1]["kept"] == whole["data"]["kept"]


def test_a_fold_before_and_after(story: Path) -> None:
    """Every message with its layer and tokens; sums, laws and report as archived; each message can be read."""
    with running(config(), story) as address:
        asked = Asked(address)
        until(lambda: asked.get("/api/sessions")["sessions"][0]["spans"])
        fold = asked.get("/api/fold", session="demo", step=2)
        record = json.loads((story / "demo/summary-002.json").read_text())
        lines = [
            json.loads(line) for line in (story / "demo/transcript-pre-compact-002.jsonl").read_text().splitlines()
        ]
        assert (len(lines), len(record["left"])) == (len(fold["before"]), len(fold["after"]))
        assert record["tokens"] == [row[4] for row in fold["before"]]
        assert record["positions"] == [row[1] for row in fold["before"]]
        layers = {layer: [row[0] for row in fold["before"] if row[3] == layer] for layer in fold["counts"]}
        assert record["earlier_summaries"] == layers["summary"]
        assert record["pinned"] == layers["pinned"]
        assert sorted({*record["gone"]} - {*layers["summary"]}) == sorted(layers["folded"] + layers["clipped"])
        assert {*layers["tools"]} <= {*record["tools"]}
        assert all(len(rows) == fold["counts"][layer] for layer, rows in layers.items() if layer != "summary")
        assert sum(record["tokens"][line] for line in layers["folded"]) == fold["tokens"]["folded"]
        (summary,) = [row for row in fold["after"] if row[3] == "summary"]
        assert (None, 1, fold["tokens"]["summary"]) == (summary[0], fold["counts"]["summary"], summary[4])
        assert [law.id for law in LAWS] == [law["id"] for law in fold["laws"]]
        assert all(law["says"] for law in fold["laws"])
        for name in (
            "reasons",
            "window",
            "trigger",
            "budget",
            "layout",
            "strategy",
            "model",
            "base",
            "version",
            "report",
        ):
            assert record[name] == fold[name], name
        assert (False, 0.0, []) == (fold["undone"], fold["cost_usd"], fold["complaints"])
        assert fold["duration"] > 0
        assert all(len(row[5]) <= 100 and "\n" not in row[5] for row in (*fold["before"], *fold["after"]))

        (text,) = fold["summaries"]
        made = asked.get("/api/message", session="demo", step=2, made=summary[6])
        assert text["text"] == made["text"] == record["made"][text["made"]]["message"]["content"]
        call = next(n for n, message in enumerate(lines) if message.get("tool_calls"))
        read = asked.get("/api/message", session="demo", step=2, line=call)
        assert [c["id"] for c in lines[call]["tool_calls"]] == [c["id"] for c in read["calls"]]
        assert lines[call] == json.loads(read["raw"])
        answer = next(n for n, message in enumerate(lines) if message["role"] == "tool")
        read = asked.get("/api/message", session="demo", step=2, line=answer)
        assert ([lines[answer]["tool_call_id"]], lines[answer]["content"]) == (read["answers"], read["text"])
        assert (len(read["text"]), False, record["positions"][answer]) == (
            read["characters"], read["cut"], read["position"],
        )  # fmt: skip


def test_citations_lead_to_the_original(story: Path) -> None:
    """From a position to the newest transcript that has the message itself, and from words to positions."""
    transcripts = {step: transcript(story, step) for step in (1, 2, 3)}
    told = build(7, 120_000)
    with running(config(), story) as address:
        asked = Asked(address)
        asked.get("/api/sessions")
        for position in (0, 1, 5, 40, 77, 100):
            found = asked.get("/api/where", session="demo", position=position, step=3)
            message = transcripts[found["step"]][found["line"]]
            assert told[position]["content"] == message["content"]
            later = [s for s in (1, 2, 3) if s > found["step"]]
            assert not any(message in transcripts[step] for step in later)
        assert 1 == asked.get("/api/where", session="demo", position=5, step=1)["step"]
        record = json.loads((story / "demo/summary-002.json").read_text())
        (summary,) = record["earlier_summaries"]
        assert 1 == asked.get("/api/where", session="demo", position=record["positions"][summary], step=2)["step"]
        assert 404 == asked.refusal("/api/where", session="demo", position=999_999, step=3)[0]

        found = asked.get("/api/search", session="demo", q="migrations by hand", limit=5)
        hit = found["hits"][0]
        assert "migrations" in told[hit["position"]]["content"]
        assert told[hit["position"]]["content"] == transcripts[hit["step"]][hit["line"]]["content"]
        marked = {hit["snippet"][a:b].lower() for a, b in hit["spans"]}
        assert {"migrations", "by", "hand"} == marked
        assert found["took_ms"] >= 0
        assert [] == asked.get("/api/search", session="demo", q=" ")["hits"]


def test_a_clipped_message_is_found_whole() -> None:
    """Where a fold shortened tool output, it shows as clipped on both sides, and the original is the first one."""
    settings = CompactConfig(
        counter="chars", max_context_tokens=4_000, policy={"hard_cap_buffer": 100}, storage={"path": "archive"}
    )
    big = {"role": "tool", "tool_call_id": "call_2_0", "content": "line of output\n" * 1_500}
    with CompactManager(settings, summarizer=ScriptedModel("The output was long.")) as manager:
        messages = manager.preflight("s", [*chat("sut"), big])
        manager.manual_compact("s", [*messages, *chat("a" + "ua" * 4, first=50)])
    with running(settings) as address:
        asked = Asked(address)
        fold = asked.get("/api/fold", session="s", step=1)
        (before,) = [row for row in fold["before"] if row[3] == "clipped"]
        (after,) = [row for row in fold["after"] if row[3] == "clipped"]
        assert before[:2] == after[:2]
        assert after[4] < before[4]
        assert 1 == fold["counts"]["clipped"]
        position = before[1]
        found = asked.get("/api/where", session="s", position=position, step=2)
        assert {"step": 1, "line": before[0]} == found


def test_what_was_undone_says_so_and_what_was_forgotten_is_gone() -> None:
    """Both after the fact, while the viewer runs; a forgotten session's spans do not stay behind."""
    keep("a", "b", folds=2)
    with running(config()) as address, CompactManager(config()) as manager:
        asked = Asked(address)
        until(lambda: all(s["spans"] for s in asked.get("/api/sessions")["sessions"]))
        assert {"a", "b"} == {one["session"] for one in asked.get("/api/sessions")["sessions"]}
        manager.undo("a")
        assert [False, True] == [fold["undone"] for fold in asked.get("/api/timeline", session="a")["folds"]]
        assert asked.get("/api/fold", session="a", step=2)["undone"]
        manager.forget("b")
        until(lambda: ["a"] == [one["session"] for one in asked.get("/api/sessions")["sessions"]])
        assert [] == asked.get("/api/spans", session="b", after=0)["spans"]
        assert 404 == asked.refusal("/api/fold", session="b", step=1)[0]


def test_forgetting_reaches_what_an_earlier_viewer_saw() -> None:
    """Payloads, summaries included, lie in the viewer's database: they go with their session, and no other's do."""
    keep("a", "b", folds=1)
    with running(config()) as address:
        asked = Asked(address)
        until(lambda: all(s["spans"] for s in asked.get("/api/sessions")["sessions"]))
    before = Path("archive/.view/spans.sqlite").read_bytes()
    assert b"transcript-pre-compact-001.jsonl" in before
    with CompactManager(config()) as manager:
        manager.forget("b")
    after = b"".join(path.read_bytes() for path in Path("archive/.view").iterdir())
    assert b"b/transcript-pre-compact-001.jsonl" in before
    assert b"b/transcript-pre-compact-001.jsonl" not in after
    assert b"a/transcript-pre-compact-001.jsonl" in after


def test_forgetting_reaches_a_database_that_is_in_use() -> None:
    """The log beside it included: a viewer may run for weeks."""
    keep("a", "b", folds=1)
    with running(config()) as address, CompactManager(config()) as manager:
        asked = Asked(address)
        until(lambda: all(s["spans"] for s in asked.get("/api/sessions")["sessions"]))
        manager.forget("b")
        until(lambda: ["a"] == [one["session"] for one in asked.get("/api/sessions")["sessions"]])
        kept = b"".join(path.read_bytes() for path in Path("archive/.view").iterdir())
        assert b"a/transcript-pre-compact-001.jsonl" in kept
        assert b"b/transcript-pre-compact-001.jsonl" not in kept


def test_ids_that_are_equal_without_their_secrets_are_sessions_of_their_own() -> None:
    """Each has its own folds and spans, and forgetting one takes all of it, and nothing of its neighbour's."""
    one, other = (f"key ghp_{letter * 36}" for letter in ("a1", "b2"))
    settings = CompactConfig(counter="chars", policy={"keep_recent_turns": 1}, storage={"path": "archive"})
    model = ScriptedModel("The first word is XYZZY.", "The second word is PLUGH.")
    with CompactManager(settings, summarizer=model) as manager:
        for session in (one, other):
            manager.manual_compact(session, chat("s" + "utra" * 4))

    def seen() -> bytes:
        return b"".join(path.read_bytes() for path in Path("archive/.view").iterdir())

    with running(settings) as address:
        asked = Asked(address)
        listed = until(lambda: (s := asked.get("/api/sessions")["sessions"]) and all(o["spans"] for o in s) and s)
        assert [1, 1] == [session["folds"] for session in listed]
        assert all(session["session"].startswith("key <REDACTED> (") for session in listed)
        told = {asked.get("/api/fold", session=s["session"], step=1)["summaries"][0]["text"][:60] for s in listed}
        assert 2 == len(told)
    assert b"XYZZY" in seen()
    with CompactManager(settings) as manager:
        manager.forget(one)
    assert (False, True) == (b"XYZZY" in seen(), b"PLUGH" in seen())
    with running(settings) as address:
        asked = Asked(address)
        (left,) = until(lambda: [s for s in asked.get("/api/sessions")["sessions"] if s["spans"]])
        assert ("key <REDACTED>", 1) == (left["session"], left["folds"])
    with CompactManager(settings) as manager:
        manager.forget(other)
    assert b"PLUGH" not in seen()


def test_events_reach_a_viewer_with_a_token() -> None:
    """The token travels in the address, as a bearer, and shows nowhere."""
    token = "a-token-of-the-tests"
    with running(config(), token=token) as address:
        url = address.replace("://", f"://token:{token}@")
        sink = AriadneSink(url)
        assert token not in repr(sink) + str(sink.endpoint)
        with CompactManager(config().changed(storage={"adapter": "none"}), sinks=[sink]) as manager:
            manager.preflight("live", [{"role": "user", "content": "hello"}])
        assert (2, 0) == (sink.delivered, sink.dropped)
        request = urllib.request.Request(f"{address}/api/sessions", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request) as answer:
            assert ["live"] == [one["session"] for one in json.load(answer)["sessions"]]


def test_a_session_made_anew_is_read_anew() -> None:
    """Forgotten and folded again between two looks: the file of events has the same name and is another one."""
    keep("s", folds=3)
    with running(config()) as address:
        asked = Asked(address)
        until(lambda: asked.get("/api/sessions")["sessions"][0]["folds"] == 3)
        for folds in (1, 4):
            began = time.time()
            shutil.rmtree("archive/s")
            keep("s", folds=folds)

            def shown() -> list[tuple[int, bool]]:
                found = asked.get("/api/timeline", session="s")["folds"]
                # Only events tell how long a fold took.
                return [(fold["step"], fold["time"] > began and fold["duration"] is not None) for fold in found]  # noqa: B023

            until(lambda: [(step, True) for step in range(1, folds + 1)] == shown())  # noqa: B023


def test_a_session_made_anew_while_nobody_looked_is_read_anew() -> None:
    """A viewer that starts with what an earlier one saw finds that the file is another, though it is longer now."""
    for folds in (2, 1, 3):
        began = time.time()
        shutil.rmtree("archive/s", ignore_errors=True)
        keep("s", folds=folds)
        with running(config()) as address:
            asked = Asked(address)
            until(lambda: folds == asked.get("/api/sessions")["sessions"][0]["folds"])  # noqa: B023
            found = asked.get("/api/timeline", session="s")["folds"]
            assert [True] * folds == [fold["time"] > began for fold in found]


def test_a_session_weighs_what_its_newest_estimate_says() -> None:
    """The list of sessions and the timeline say the same, however spans overtake each other."""
    keep("s", folds=2)
    with CompactManager(config()) as manager:
        manager.preflight("s", chat("suaua", words=30))
        manager.manual_compact("s", chat("sua", words=300) * 3)
        manager.preflight("s", chat("suauau", words=50))
    with running(config()) as address:
        asked = Asked(address)
        (one,) = until(lambda: [s for s in asked.get("/api/sessions")["sessions"] if s["spans"]])
        assert one["tokens"] == asked.get("/api/timeline", session="s")["points"][-1][1]


def test_folds_without_events_are_shown_from_their_records() -> None:
    """The events may be lost: the records still tell the timeline what it needs."""
    keep("s", folds=2)
    Path("archive/s/events.jsonl").unlink()
    with running(config()) as address:
        asked = Asked(address)
        (one,) = until(lambda: asked.get("/api/sessions")["sessions"])
        assert ("s", 2, 0, True) == (one["session"], one["folds"], one["spans"], one["archived"])
        line = asked.get("/api/timeline", session="s")
        assert [1, 2] == [fold["step"] for fold in line["folds"]]
        assert line["folds"][0]["before"] > line["folds"][0]["after"]
        fold = asked.get("/api/fold", session="s", step=1)
        assert (None, None) == (fold["duration"], fold["cost_usd"])


def test_records_of_an_older_version_are_estimated() -> None:
    """Tokens from characters, layers from roles."""
    keep("s")
    path = Path("archive/s/summary-001.json")
    record = json.loads(path.read_text())
    for name in ("tokens", "pinned", "tools", "laws", "layout", "strategy", "model", "window", "trigger", "budget"):
        del record[name]
    for made in record["made"]:
        del made["tokens"]
    path.write_text(json.dumps(record))
    with running(config()) as address:
        fold = Asked(address).get("/api/fold", session="s", step=1)
    assert [] == fold["complaints"] == fold["laws"]
    assert fold["window"] is None
    assert ("pinned", "system") == (fold["before"][0][3], fold["before"][0][2])
    assert all(row[4] > 20 for row in fold["before"])
    assert fold["tokens"]["summary"] > 0
    assert fold["counts"]["tools"] + fold["counts"]["folded"] > 4


@pytest.mark.parametrize("damage", ["record", "transcript", "line", "tail", "events", "gone"])
def test_a_damaged_archive_is_shown_as_far_as_it_goes(damage: str) -> None:
    """What cannot be read is told in a sentence that names the file; nothing else is lost."""
    keep("s", "other", folds=2)
    folder = Path("archive/s")
    transcript = folder / "transcript-pre-compact-002.jsonl"
    lines = transcript.read_bytes().splitlines(keepends=True)
    count = len(lines)
    if damage == "record":
        (folder / "summary-002.json").write_bytes(b'{"format": 1, "step"')
    elif damage == "transcript":
        transcript.write_bytes(b"\0" * 500)
    elif damage == "line":
        transcript.write_bytes(b"".join([*lines[:3], b"{broken\n", *lines[4:]]))
    elif damage == "tail":
        transcript.write_bytes(b"".join(lines)[:-200])
    elif damage == "events":
        events = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
        wrong = [b"{broken\n", b'{"name": 5}\n', b'{"name":"x","session_id":"s","step":1,"time":NaN,"duration":0}\n']
        (folder / "events.jsonl").write_bytes(b"".join([*events[:2], *wrong, *events[2:]]))
    else:
        transcript.unlink()
    with running(config()) as address:
        asked = Asked(address)
        sessions = until(lambda: (s := asked.get("/api/sessions")) and all(o["spans"] for o in s["sessions"]) and s, 10)
        assert {"s", "other"} == {one["session"] for one in sessions["sessions"]}
        assert 2 == len(asked.get("/api/timeline", session="s")["folds"])
        assert [] == asked.get("/api/fold", session="other", step=2)["complaints"]
        fold = asked.get("/api/fold", session="s", step=2)
        if damage == "events":
            assert any("events.jsonl" in said for said in sessions["complaints"])
            assert [] == fold["complaints"]
            return
        assert any("summary-002" in said or "transcript-pre-compact-002" in said for said in fold["complaints"])
        assert "archive/" not in " ".join(fold["complaints"])
        assert count == len(fold["before"])
        if damage == "line":
            assert "cannot be read" in asked.get("/api/message", session="s", step=2, line=3)["text"]
            assert json.loads(lines[4]) == json.loads(asked.get("/api/message", session="s", step=2, line=4)["raw"])
        if damage == "tail":
            assert json.loads(lines[0]) == json.loads(asked.get("/api/message", session="s", step=2, line=0)["raw"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, value) for field in ("reasons", "laws", "left") for value in ("5", '"x"', "{}", "true")),
        *(("time", value) for value in ("1" + "0" * 400, "1e999", "NaN", '"x"')),
        *(("step", value) for value in ("1e999", '"x"')),
        ("report", '"x"'),
        ("made", '[{"position": [], "message": 5}]'),
    ],
)
def test_a_record_of_other_types_hides_nothing_else(field: str, value: str) -> None:
    """Neither the fold, which says what is wrong where it matters, nor the rest of the timeline."""
    keep("s", folds=2)
    Path("archive/s/events.jsonl").unlink()
    path = Path("archive/s/summary-001.json")
    path.write_text(f'{path.read_text().rstrip()[:-1]},"{field}":{value}}}')
    with running(config()) as address:
        asked = Asked(address)
        fold = asked.get("/api/fold", session="s", step=1)
        assert fold["before"]
        assert (field in ("reasons", "laws", "left")) == any(field in said for said in fold["complaints"])
        steps = [fold["step"] for fold in asked.get("/api/timeline", session="s")["folds"]]
        assert 2 in steps
        complaints = asked.get("/api/sessions")["complaints"]
        assert (1 in steps) != any("summary-001.json" in said for said in complaints)


def test_hostile_session_ids() -> None:
    """Each is listed as it is, and its folds, messages and search are its own."""
    secret = "token ghp_" + "a1" * 18
    keep(*HOSTILE, secret)
    with running(config()) as address:
        asked = Asked(address)
        names = until(lambda: (s := asked.get("/api/sessions")["sessions"]) and all(o["spans"] for o in s) and s, 10)
        expected = {name.replace("\ud800", "\ufffd") for name in HOSTILE} | {"token <REDACTED>"}
        assert expected == {one["session"] for one in names}
        assert len(expected) == len(names)
        for name in expected:
            fold = asked.get("/api/fold", session=name, step=1)
            assert (name, 1, []) == (fold["session"], fold["step"], fold["complaints"])
            assert asked.get("/api/message", session=name, step=1, line=0)["role"] == "system"
            assert 1 == len(asked.get("/api/timeline", session=name)["folds"])
            if "REDACTED" in name:
                assert "redacted" in asked.refusal("/api/search", session=name, q="parser")[1]
            elif "\ufffd" not in name:
                assert asked.get("/api/search", session=name, q="parser")["hits"]
            rows = asked.get("/api/spans", session=name, after=0)["spans"]
            assert {name} == {row["trace_id"] for row in rows}
            status, headers, _ = asked.request("GET", "/export?" + urlencode({"session": name, "step": 1}))
            assert 200 == status
            assert re.fullmatch(
                r'attachment; filename="compact-[A-Za-z0-9_-]+-fold-1\.html"', headers["content-disposition"]
            )


# -- other sources -----------------------------------------------------------------------------------------------------


def test_a_file_of_events_is_followed() -> None:
    """What a JSONL sink wrote, then what is added to it; a line cut short waits for its end."""
    settings = config(tracing={"jsonl": "events.jsonl"})
    with CompactManager(settings, store=None) as manager:
        manager.preflight("first", chat("sua"))
        manager.manual_compact("first", chat("s" + "ua" * 9))
    path = Path("events.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    with running(config(), path) as address:
        asked = Asked(address)
        (one,) = until(lambda: asked.get("/api/sessions")["sessions"])
        assert (3, "events.jsonl", False) == (one["spans"], asked.get("/api/sessions")["source"], one["archived"])
        with rows_of(asked) as rows, path.open("ab") as file:
            file.write(lines[2][:20])
            file.flush()
            asked.get("/api/sessions")
            file.write(lines[2][20:] + b"".join(lines[3:]))
            file.flush()
            assert next(rows)
        events = [parse_event(json.loads(line)) for line in lines]
        until(lambda: asked.get("/api/sessions")["sessions"][0]["spans"] == len(all_spans(events)))
        assert 1 == len(asked.get("/api/timeline", session="first")["folds"])
        status, said = asked.refusal("/api/fold", session="first", step=1)
        assert 404 == status
        assert "archive" in said
    assert not Path("archive").exists()


def test_a_file_of_events_that_is_another_one() -> None:
    """Replaced by a longer one it is read from its start; a complaint goes when its cause does."""
    settings = config(tracing={"jsonl": "events.jsonl"})
    with CompactManager(settings, store=None) as manager:
        manager.preflight("first", chat("sua"))
    path = Path("events.jsonl")
    lines = path.read_text()
    with running(config(), path) as address:
        asked = Asked(address)
        until(lambda: asked.get("/api/sessions")["sessions"])
        path.unlink()
        until(lambda: asked.get("/api/sessions")["complaints"])
        Path("other").write_text(lines.replace("first", "a longer name") * 3)
        Path("other").replace(path)
        until(lambda: {"first", "a longer name"} == {one["session"] for one in asked.get("/api/sessions")["sessions"]})
        assert [] == asked.get("/api/sessions")["complaints"]


def test_an_archive_that_never_answers_stops_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are taken, and all that is known without it is shown; the end does not wait for it either."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        storage = {"adapter": "s3", "bucket": "b", "endpoint_url": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        with running(CompactConfig(storage=storage)) as address:
            asked = Asked(address)
            waiting = [socket.create_connection(asked.netloc.split(":"), timeout=30) for _ in range(40)]
            for one in waiting:
                one.sendall(f"GET /api/fold?session=s&step=1 HTTP/1.1\r\nHost: {asked.netloc}\r\n\r\n".encode())
            assert 200 == asked.post(span(1))[0]
            assert ["t"] == [one["session"] for one in asked.get("/api/sessions")["sessions"]]
            assert [] == asked.get("/api/timeline", session="t")["folds"]
            assert 200 == asked.request("GET", "/")[0]
            ended = time.monotonic()
        assert time.monotonic() - ended < 45, "it waited for the archive"  # that takes over a minute
        for one in waiting:
            assert b"did not answer" in one.recv(4_096) + one.recv(4_096)
            one.close()


@pytest.mark.slow  # a server for the bucket
def test_an_archive_in_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as in a folder; each fold's events are an object of their own."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with moto() as url:
        bucket = new_bucket(client(url))
        storage = {"adapter": "s3", "bucket": bucket, "prefix": "p", "endpoint_url": url}
        settings = CompactConfig(counter="chars", policy={"keep_recent_turns": 1}, storage=storage)
        recorder = Recorder()
        model = ScriptedModel("Rules: never by hand [#1-#3].")
        with CompactManager(settings, summarizer=model, sinks=[recorder]) as manager:
            first = manager.manual_compact("a/b", chat("s" + "utra" * 4))
            manager.manual_compact("a/b", [*first, *chat("utra" * 3, first=50)])
        with running(settings) as address:
            asked = Asked(address)
            count = len(all_spans(recorder))  # the records are there at once, the events when they have been read
            (one,) = until(lambda: [s for s in asked.get("/api/sessions")["sessions"] if s["spans"] == count])
            assert ("a/b", 2) == (one["session"], one["folds"])
            assert [] == asked.get("/api/fold", session="a/b", step=2)["complaints"]
            assert asked.get("/api/search", session="a/b", q="parser")["hits"]
            began = time.time()
            with CompactManager(settings, summarizer=ScriptedModel("Other words.")) as manager:
                manager.forget("a/b")
                assert 404 == asked.refusal("/api/fold", session="a/b", step=1)[0]
                manager.manual_compact("a/b", manager.manual_compact("a/b", chat("s" + "utra" * 4)) + chat("utra" * 3))
            assert "Other words." in asked.get("/api/fold", session="a/b", step=1)["summaries"][0]["text"]
            # Nobody looked in between, and the names are the same: only the contents tell.
            until(lambda: asked.get("/api/timeline", session="a/b")["folds"][0]["time"] > began)


def test_live_and_archived_events_are_one_span() -> None:
    """An agent that sends its events here and archives them too is seen once, whichever came first."""
    recorder = Recorder()
    with running(config()) as address:
        asked = Asked(address)
        with CompactManager(config(tracing={"ariadne_url": address}), sinks=[recorder]) as manager:
            manager.preflight("s", chat("sua"))
            until(lambda: asked.get("/healthz")["events"] >= 3)
            manager.manual_compact("s", chat("s" + "utra" * 6), note="by hand")
        until(lambda: asked.get("/healthz")["events"] == len(all_spans(recorder)))
        line = until(lambda: (found := asked.get("/api/timeline", session="s")) and found["folds"] and found)
        for _ in range(3):
            asked.get("/api/sessions")
        assert len(all_spans(recorder)) == asked.get("/healthz")["events"]
        (one,) = asked.get("/api/sessions")["sessions"]
        assert (1, True) == (one["folds"], one["archived"])
        assert ("by hand", 1) == (line["folds"][0]["note"], line["folds"][0]["step"])
    with running(config()) as address:
        assert len(all_spans(recorder)) == Asked(address).get("/healthz")["events"]


def test_without_an_archive_events_are_shown_alone() -> None:
    """A summarizer's failure is an error of the session and a mark of the timeline; a fold has no picture."""
    model = ScriptedModel(CompactError("the model is away"))
    settings = CompactConfig(storage={"adapter": "none"}, policy={"keep_recent_turns": 1}, summary={"max_retries": 0})
    with running(settings) as address:
        asked = Asked(address)
        with CompactManager(settings.changed(tracing={"ariadne_url": address}), summarizer=model) as manager:
            manager.manual_compact("s", chat("s" + "ua" * 9))
        (one,) = until(lambda: [s for s in asked.get("/api/sessions")["sessions"] if s["folds"]])
        assert one["errors"] >= 1
        line = asked.get("/api/timeline", session="s")
        assert {"error"} == {mark["kind"] for mark in line["marks"]}
        assert ["pruning-only"] == [fold["fallback"] for fold in line["folds"]]
        assert 404 == asked.refusal("/api/fold", session="s", step=1)[0]
        assert "storage.adapter" in asked.refusal("/api/search", session="s", q="x")[1]


def test_spans_of_others_are_shown_too(live: Asked) -> None:
    """Ariadne's other clients send what they like: any kind, any data, times or none."""
    live.post(
        {"batch": [{"type": "span", "trace_id": "t", "span_id": "a", "data": {"event": ["odd"], "t_est": "many"}}]}
    )
    live.post(span(2, kind="tool", status="error", data={"event": "compact.token_estimate", "t_est": 1e99}))
    live.post(span(3, data={"event": "compact.pruned_messages", "step": "x", "tokens_before": [], "kept": None}))
    live.post(span(4, data={"event": "compact.error", "message": {"a": 1}, "error_type": None}))
    live.post(span(5, data={"event": "compact.trigger_decision", "policy": "none", "reason": 5, "trigger": True}))
    rows = live.get("/api/spans", session="t", after=0)["spans"]
    assert 5 == len(rows)
    assert (None, None) == (rows[0]["started"], rows[0]["ended"])
    assert live.get("/api/timeline", session="t")["points"]
    assert 1 == len(live.get("/api/sessions")["sessions"])


def test_a_long_curve_is_thinned_and_keeps_every_fold() -> None:
    """Of each stretch its lowest and highest, and both points of a fold."""
    marks: list[tuple[float, dict[str, Any]]] = []
    for n in range(10_000):
        marks.append((float(n), {"event": "compact.token_estimate", "tokens": n % 700, "window": 1_000}))
        if n % 700 == 699:
            fold = {"event": "compact.pruned_messages", "step": n // 700 + 1, "note": None}
            numbers = {"tokens_before": 699, "tokens_after": 7, "messages_before": 9, "messages_after": 3}
            marks.append((n + 0.5, fold | numbers))
    line = build_timeline(marks)
    assert len(line.points) <= POINTS + 4
    times = {point[0] for point in line.points}
    assert 14 == len(line.folds)
    assert all({fold["time"], fold["time"] - 0.5} <= times for fold in line.folds)
    assert 699 == max(point[1] for point in line.points)
    assert sorted(times) == [point[0] for point in line.points]


def test_a_clock_that_goes_back_does_not_part_a_fold_from_its_call() -> None:
    """What a fold cost and why is known by the call it belongs to, not by the moment."""
    data = {
        "token_estimate": {"t_est": 900, "max_tokens": 1_000},
        "trigger_decision": {"triggered": True, "reason": "trigger_pct", "trigger": 800, "budget": 950},
        "summary_call": {"cost_usd": 0.5},
        "pruned_messages": {"step": 1, "tokens_before": 900, "tokens_after": 100},
    }
    events = [
        Event(f"compact.{name}", "s", 0, moment, data=data[name])
        for name, moment in zip(data, (100.0, 100.1, 90.0, 90.2), strict=True)
    ]
    spans = SpanTable()
    spans.add(one.as_dict() for one in all_spans(events))
    line = build_timeline(spans.marks("s"))
    spans.close()
    (fold,) = line.folds
    assert ("trigger_pct", 0.5, 0.0) == (fold["reason"], fold["cost_usd"], fold["duration"])
    assert [90.2, 100.0] == [point[0] for point in line.points]


# -- whom it refuses ---------------------------------------------------------------------------------------------------


def test_a_foreign_host_or_origin_gets_nothing(live: Asked) -> None:
    """Names that lead to loopback, pages of others and what they embed; a link from elsewhere may open the page."""
    own = f"http://{live.netloc}"
    port = live.netloc.rpartition(":")[2]
    foreign = [
        {"host": "evil.example"},
        {"host": f"evil.example:{port}"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "localhost.evil.example:80"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"http://localhost:{int(port) + 1}"},
        {"origin": f"http://127.0.0.1:{port}.evil.example"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"},
        {"sec_fetch_site": "same-site", "sec_fetch_mode": "cors"},
    ]
    for headers in foreign:
        for method, path in (("GET", "/"), ("GET", "/api/sessions"), ("GET", "/events"), ("POST", "/ingest")):
            status, _, body = live.request(method, path, json.dumps(span()).encode(), **headers)
            assert 403 == status, (headers, path)
            assert json.loads(body)["error"]
    assert 0 == live.get("/healthz")["events"]
    for headers in (
        {"host": f"localhost:{port}", "origin": f"http://localhost:{port}"},
        {"origin": own},
        {"host": f"[::1]:{port}"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
        {"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors"},
    ):
        assert 200 == live.request("GET", "/api/sessions", **headers)[0], headers


def test_every_answer_carries_the_policy(live: Asked) -> None:
    """Also those that refuse: what a browser may load, guess and tell."""
    for path in ("/", "/static/app.css", "/api/sessions", "/api/fold", "/nowhere", "/healthz"):
        _, headers, _ = live.request("GET", path)
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert ("'none'", "'self'", "'none'") == (
            policy["default-src"],
            policy["script-src"],
            policy["frame-ancestors"],
        )
        assert "unsafe" not in headers["content-security-policy"]
        assert ("nosniff", "no-referrer") == (headers["x-content-type-options"], headers["referrer-policy"])
        assert headers["cache-control"] == ("no-cache" if path in ("/", "/static/app.css") else "no-store")
    _, headers, _ = live.request("GET", "/", host="evil.example")
    assert "content-security-policy" in headers


def test_the_page_is_its_own_files_and_no_other(live: Asked) -> None:
    """By name, with their types; nothing beside them can be read."""
    status, headers, body = live.request("GET", "/")
    assert (200, "text/html; charset=utf-8") == (status, headers["content-type"])
    used = re.findall(rb'(?:src|href)="(/static/[^"]+)"', body)
    assert used
    for path in used:
        assert 200 == live.request("GET", path.decode())[0], path
    for path in ("/static/../_app.py", "/static/%2e%2e/_app.py", "/static/..%2f_app.py", "/static/", "/static/app.py"):
        assert 404 == live.request("GET", path)[0], path


def test_a_token_opens_and_nothing_else_does() -> None:
    """In the address once, then as a cookie that page and stream use; or as a bearer, for exporters."""
    token = "a-token-nobody-guesses"
    with running(config(), token=token) as address:
        asked = Asked(address)
        for headers in ({}, {"authorization": "Bearer wrong-token-entirely"}, {"cookie": "compact_view=x"}):
            status, _, body = asked.request("GET", "/api/sessions", **headers)
            assert 401 == status
            assert "token" in json.loads(body)["error"]
        assert 401 == asked.request("GET", "/?token=wrong-token-entirely")[0]
        assert 401 == asked.request("POST", f"/ingest?token={token}", b"{}")[0]
        assert 403 == asked.request("GET", "/", host="evil.example", authorization=f"Bearer {token}")[0]
        assert 200 == asked.request("GET", "/api/sessions", authorization=f"Bearer {token}")[0]
        body = json.dumps(span()).encode()
        assert 200 == asked.request("POST", "/ingest", body, authorization=f"Bearer {token}")[0]

        status, headers, _ = asked.request("GET", f"/api/spans?session=t&token={quote(token)}&after=0")
        assert (303, "/api/spans?session=t&after=0") == (status, headers["location"])
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(headers["set-cookie"].split("; "))
        assert token not in headers["set-cookie"]
        cookie = headers["set-cookie"].split(";")[0]
        assert 200 == asked.request("GET", headers["location"], cookie=cookie)[0]
        assert 401 == asked.request("GET", "/", cookie=cookie[:-1])[0]
        assert "/evil.example/" == asked.request("GET", f"//evil.example/?token={token}")[1]["location"]


def test_only_loopback_without_a_token() -> None:
    """Refused before anything listens, with a sentence; so is a token that can be guessed."""
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com"):
        with pytest.raises(CompactError, match="COMPACT_VIEW_TOKEN"), running(config(), host=host):
            pass
    with pytest.raises(CompactError, match="guessed"), running(config(), token="short"):
        pass
    with running(config(), host="0.0.0.0", token="a-token-nobody-guesses") as address:
        asked = Asked(address.replace("0.0.0.0", "127.0.0.1"))
        assert 401 == asked.request("GET", "/", host="any.name")[0]
        assert (
            200 == asked.request("GET", "/healthz", host="any.name", authorization="Bearer a-token-nobody-guesses")[0]
        )


def test_a_taken_port_is_told_with_a_free_one() -> None:
    """Who has it, as far as it answers, and which to use."""
    with running(config()) as address:
        port = int(address.rpartition(":")[2])
        with pytest.raises(CompactError, match=f"port {port} .* compact view runs there .* --port [0-9]+"):
            running(config(), port=port).__enter__()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(CompactError, match="end what listens there"):
            running(config(), port=port).__enter__()


def test_beside_the_last_port_a_lower_one_is_told() -> None:
    """There is none above it."""
    with ExitStack() as stack:
        with suppress(OSError):  # somebody else has it: just as well
            stack.enter_context(socket.create_server(("127.0.0.1", 65_535)))
        with pytest.raises(CompactError, match=r"--port 65[45]\d\d"):
            running(config(), port=65_535).__enter__()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/timeline", 400),
        ("/api/spans?session=t&after=x", 400),
        ("/api/spans?session=t&after=-1", 400),
        ("/api/fold?session=t", 400),
        ("/api/fold?session=t&step=1e9", 400),
        ("/api/fold?session=t&step=99999999999999999999", 400),
        ("/api/fold?session=t&step=1", 404),
        ("/api/message?session=t&step=1&line=0", 404),
        ("/api/span?session=t&span_id=no", 404),
        ("/api/where?session=t&position=1&step=1", 404),
        ("/export?session=t&step=1", 404),
        ("/events?since=x", 400),
        ("/events?since=-1", 400),
        ("/events?since=99999999999999999999", 400),
    ],
)
def test_what_cannot_be_answered_is_a_sentence(live: Asked, path: str, status: int) -> None:
    """The parameter that is wrong, or what is not there."""
    got, said = live.refusal(path)
    assert status == got
    assert re.search(r"[a-z] .*[.:]", said)
    assert "Traceback" not in said


# -- export ------------------------------------------------------------------------------------------------------------


def test_an_exported_fold_needs_nothing_but_itself() -> None:
    """One file: style and script by their hashes, every message inside as data, no address to load from."""
    evil = "</script><script>alert(1)</script><!-- \u2028 <img src=http://evil.example/x onerror=alert(1)>"
    settings = CompactConfig(counter="chars", policy={"keep_recent_turns": 1}, storage={"path": "archive"})
    story = [{"role": "user", "content": evil}, *chat("a" + "utra" * 4)]
    with CompactManager(settings, summarizer=ScriptedModel(f"Told: {evil} [#0].")) as manager:
        manager.manual_compact(evil, story)
    with running(settings) as address:
        asked = Asked(address)
        asked.get("/api/sessions")
        status, headers, body = asked.request("GET", "/export?" + urlencode({"session": evil, "step": 1}))
        fold = asked.get("/api/fold", session=evil, step=1)
    assert (200, "text/html; charset=utf-8") == (status, headers["content-type"])
    page = body.decode("utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    allowed = policy[1].replace("&#x27;", "'")
    assert allowed.startswith("default-src 'none'; ")
    assert not re.search(r"http|unsafe|\*|'self'", allowed)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.S)
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.S)
    assert 2 == len(scripts) == page.lower().count("</script")
    (_, data), (kind, script) = scripts
    assert ' type="module"' == kind
    for text, directive in ((style, "style-src"), (script, "script-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in allowed
    assert not re.search(r"^\s*(import|export)\b", script, re.M)
    assert not re.search(r"https?://(?!www\.w3\.org/)", style + script)
    assert not re.search(r"url\((?!['\"]?data:)|@import", style)
    assert "<" not in data
    inside = json.loads(data)
    assert fold == inside["fold"]
    assert [str(row[0]) for row in fold["before"]] == list(inside["messages"])
    assert evil == inside["messages"]["0"]["text"]
    assert evil.partition(" ")[0] in inside["made"]["0"]["text"]
    rest = page.replace(data, "").replace(script, "").replace(style, "")
    assert {"!doctype", "html", "head", "meta", "title", "style", "body", "script"} == set(
        re.findall(r"<([!\w]+)", rest)
    )
    assert not re.search(r"<[^>]*\s(src|href)\s*=", rest)
