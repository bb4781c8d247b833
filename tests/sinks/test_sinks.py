"""Sinks: an event as JSON, in a file, on a terminal, and behind a redactor."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compact._events.event import EVENT_NAMES, Event
from compact._redaction import Redactor
from compact.sinks import event_json, plain, redacting
from compact.sinks.console import console_sink
from compact.sinks.jsonl import JsonlSink
from compact.sinks.sink_list import SinkList

NOON = 1_700_000_000.0

DATA: Mapping[str, Mapping[str, Any]] = {
    "compact.token_estimate": {"model": "gpt-4o", "t_est": 108_800, "max_tokens": 128_000, "usage_pct": 0.85},
    "compact.trigger_decision": {"triggered": True, "reason": "usage", "pruned_count": 14},
    "compact.summary_call": {"model": "gpt-4o-mini", "input_tokens": 4000, "output_tokens": 812, "cost_usd": 0.00109},
    "compact.summary_created": {
        "strategy": "task_state",
        "input_messages": 14,
        "summary_tokens": 812,
        "compression_ratio": 0.9312,
        "summary": "long text",
    },
    "compact.pruned_messages": {"folded": 14, "tokens_before": 108_800, "tokens_after": 21_000},
    "compact.archival": {"storage_adapter": "fs", "key": "s-1/summary-001.json", "bytes": 2048},
    "compact.config_changed": {"retention_window": 8},
    "compact.warning": {"code": "redaction_disabled", "severity": "high", "message": "Secrets will be stored."},
    "compact.error": {"error_type": "SummaryTimeout", "message": "It took 60 s.", "fallback": "pruning-only"},
}

LINES: Mapping[str, str] = {
    "compact.token_estimate": "   s-1 #1 token_estimate: 108,800 of 128,000 tokens (85%)",
    "compact.trigger_decision": "   s-1 #1 trigger_decision: compaction due, usage, 14 messages go",
    "compact.summary_call": "   s-1 #1 summary_call: gpt-4o-mini, 4,000 tokens in, 812 out, $0.0011",
    "compact.summary_created": "   s-1 #1 summary_created: task_state, 14 messages in 812 tokens, compression 0.931",
    "compact.pruned_messages": "   s-1 #1 pruned_messages: 108,800 -> 21,000 tokens, 14 messages compacted",
    "compact.archival": "   s-1 #1 archival: fs s-1/summary-001.json (2,048 bytes)",
    "compact.config_changed": "   s-1 #1 config_changed: retention_window=8",
    "compact.warning": "!  s-1 #1 warning: high redaction_disabled: Secrets will be stored.",
    "compact.error": "!! s-1 #1 error: SummaryTimeout: It took 60 s. -> pruning-only",
}


class Terminal(io.StringIO):
    """A text file that says it is a terminal."""

    def isatty(self) -> bool:
        """Always."""
        return True


class Liar(Mapping[str, Any]):
    """A mapping that fails when it is read."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError(key)

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no")

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        raise RuntimeError("no")


def event(name: str = "compact.warning", **data: Any) -> Event:
    """An event of session s-1."""
    return Event(name, "s-1", 1, NOON, data=data)


def printed(happened: Event) -> str:
    """What the console shows of an event, without its time."""
    file = io.StringIO()
    console_sink(file)(happened)
    return file.getvalue()[len("00:00:00 ") :]


def test_an_event_is_one_line_of_json() -> None:
    """All seven fields are there, in order."""
    happened = Event("compact.error", "s-1", 3, NOON, 0.25, "error", {"message": "a\nb é"})
    expected = (
        '{"name":"compact.error","session_id":"s-1","step":3,"time":1700000000.0,"duration":0.25,"status":"error",'
        '"data":{"message":"a\\nb \\u00e9"}}'
    )
    assert expected == event_json(happened)


@pytest.mark.spec("T30")
def test_odd_data_becomes_text() -> None:
    """What JSON cannot say is told in words, and the line stays valid JSON."""
    loop: list[Any] = []
    loop.append(loop)
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    happened = event(
        nan=float("nan"),
        infinite=-float("inf"),
        data=b"\xff",
        some={2, 1},
        loop=loop,
        huge=1 << 20_000,
        liar=Liar(),
    )
    data = json.loads(event_json(happened))["data"]
    assert "0x1000" == data.pop("huge")[:6]
    assert {
        "nan": "nan",
        "infinite": "-inf",
        "data": "b'\\xff'",
        "some": [1, 2],
        "loop": ["<list inside itself>"],
        "liar": "<Liar>",
    } == data
    assert "<list nested deeper than 100>" in event_json(event(deep=deep))
    assert {"surrogate": "\ud800\0"} == json.loads(event_json(event(surrogate="\ud800\0")))["data"]
    assert {"(1, 2)": 1, "None": 2} == plain({(1, 2): 1, None: 2})


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(st.characters())
        | st.binary()
        | st.complex_numbers(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.frozensets(st.integers())
        ),
        max_leaves=20,
    )
)
@pytest.mark.spec("T30")
def test_any_data_gives_one_valid_line(value: Any) -> None:
    """Whatever an event holds, it is one line that a strict reader accepts."""
    line = event_json(event(value=value))
    assert [line] == line.splitlines()
    json.loads(line, parse_constant=lambda name: pytest.fail(name))


def test_jsonl_appends_each_event_at_once(tmp_path: Path) -> None:
    """The folder comes with the first event, lines can be read while the sink is open, and others are kept."""
    path = tmp_path / "deep" / "events.jsonl"
    sink = JsonlSink(path)
    assert [] == list(tmp_path.iterdir())
    sink(event(code="one"))
    assert ["one"] == [json.loads(line)["data"]["code"] for line in path.read_text().splitlines()]
    sink.close()
    sink.close()
    with JsonlSink(path) as other:
        other(event(code="two"))
    sink(event(code="late"))
    sink.close()
    assert ["one", "two", "late"] == [json.loads(line)["data"]["code"] for line in path.read_text().splitlines()]
    assert 0o600 == path.stat().st_mode & 0o777


def test_jsonl_leaves_a_torn_line_alone(tmp_path: Path) -> None:
    """A line that a crash cut short is ended before the next one starts."""
    path = tmp_path / "events.jsonl"
    path.write_text('{"name":"comp')
    with JsonlSink(path) as sink:
        sink(event())
    assert ['{"name":"comp', event_json(event())] == path.read_text().splitlines()


def test_jsonl_takes_many_threads(tmp_path: Path) -> None:
    """Sixteen threads lose and mix nothing."""
    path = tmp_path / "events.jsonl"
    with JsonlSink(path) as sink, ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: sink(event(n=n, text="x" * 20_000)), range(400)))
    numbers = [json.loads(line)["data"]["n"] for line in path.read_text().splitlines()]
    assert list(range(400)) == sorted(numbers)


@pytest.mark.parametrize("name", EVENT_NAMES)
def test_the_console_shows_what_matters(name: str) -> None:
    """Each event is one line with its numbers; `!` marks a warning, `!!` an error."""
    assert LINES[name] + "\n" == printed(event(name, **DATA[name]))


def test_the_console_shows_time_and_duration() -> None:
    """A line opens with the local time, and ends with how long it took when that is worth a word."""
    file = io.StringIO()
    console_sink(file)(Event("compact.archival", "s-1", 1, NOON, 1.5, data=DATA["compact.archival"]))
    line = file.getvalue()
    assert time.strftime("%H:%M:%S ", time.localtime(NOON)) == line[:9]
    assert line.endswith(" in 1.50 s\n")


@pytest.mark.parametrize("name", [*EVENT_NAMES, "compact.unheard_of"])
def test_the_console_survives_missing_fields(name: str) -> None:
    """An event without data, or with an impossible time, is still one line."""
    file = io.StringIO()
    console_sink(file)(Event(name, "s-1", 1, float("nan")))
    assert 1 == file.getvalue().count("\n")


def test_a_decision_without_a_fold() -> None:
    """When nothing is due, the line says so and why."""
    assert "   s-1 #1 trigger_decision: nothing due, 75% of the window\n" == printed(
        event("compact.trigger_decision", triggered=False, reason="75% of the window")
    )


def test_the_console_passes_no_control_characters_on() -> None:
    """A payload cannot colour, clear or break the terminal, nor fill it."""
    line = printed(event(code="c", severity="low", message="a\x1b[2J\nb" + "x" * 1000))
    assert "!  s-1 #1 warning: low c: a\\x1b[2J\\nb" + "x" * 190 + "...\n" == line


@pytest.mark.parametrize(("name", "start"), [("compact.error", "\x1b[31m"), ("compact.warning", "\x1b[33m")])
def test_colours_only_on_a_terminal(name: str, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors and warnings are coloured on a terminal, in a file never, and NO_COLOR is honoured."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal, file, quiet = Terminal(), io.StringIO(), Terminal()
    console_sink(terminal)(event(name, **DATA[name]))
    console_sink(file)(event(name, **DATA[name]))
    monkeypatch.setenv("NO_COLOR", "1")
    console_sink(quiet)(event(name, **DATA[name]))
    assert f"{start}{file.getvalue()[:-1]}\x1b[0m\n" == terminal.getvalue()
    assert file.getvalue() == quiet.getvalue()


def test_the_console_reads_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks like markup, an emoji or a link is text, and a narrow terminal breaks no line."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    said = "[red]all[/red] [link=file:///etc]of[/link] :lamp: https://127.0.0.1 'quoted' 42 " * 2
    console_sink(terminal)(event("compact.unheard_of", said=said))
    assert terminal.getvalue().endswith(f"   s-1 #1 unheard_of: said={said}\n")
    assert 1 == terminal.getvalue().count("\n")


def test_the_console_needs_no_rich() -> None:
    """Without the extra `cli` the lines are the same, in plain text."""
    code = (
        "import sys; sys.modules['rich'] = None\n"
        "from compact._events.event import Event; from compact.sinks.console import console_sink\n"
        f"console_sink()(Event('compact.error', 's-1', 1, {NOON}, data={DATA['compact.error']!r}))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert LINES["compact.error"] + "\n" == ended.stderr[len("00:00:00 ") :]


def test_the_console_prints_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a file the line goes to whatever stderr is when the event happens."""
    sink = console_sink()
    sys.stderr.write("moved\n")
    sink(event(**DATA["compact.warning"]))
    out, err = capsys.readouterr()
    assert ("", True) == (out, err.startswith("moved\n") and "redaction_disabled" in err)


@pytest.mark.spec("S25")
def test_a_redacting_sink_sees_no_secret(tmp_path: Path) -> None:
    """The sink gets a redacted copy, secrets inside odd values included; the event itself is untouched."""
    got: list[Event] = []
    token = "ghp_" + "aB3" * 12
    happened = event(message="api_key=sk-abc123", password="hunter2", raw=b"token=abc123def", some={token})
    redacting(got.append, Redactor())(happened)
    expected = {
        "message": "api_key=<REDACTED>",
        "password": "<REDACTED>",
        "raw": "b'token=<REDACTED>'",
        "some": ["<REDACTED>"],
    }
    assert expected == got[0].data
    assert (happened.name, "s-1", 1, NOON) == (got[0].name, got[0].session_id, got[0].step, got[0].time)
    assert {"message": "api_key=sk-abc123", "password": "hunter2"} == {
        k: happened.data[k] for k in ("message", "password")
    }


def test_closing_a_redacting_sink_closes_what_it_wraps(tmp_path: Path) -> None:
    """`close` goes through; a sink that has none is fine."""
    path = tmp_path / "events.jsonl"
    inner = JsonlSink(path)
    sink = redacting(inner, Redactor())
    sink(event(code="x"))
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 1
    sink.close()  # type: ignore[attr-defined]
    assert descriptors - 1 == (len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0)
    redacting(lambda _: None, Redactor()).close()  # type: ignore[attr-defined]


def test_a_sink_that_cannot_even_be_named_reaches_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """It fails, its repr fails, and its error's repr: the agent goes on, and the log has a line."""

    class Wrong(Exception):
        def __repr__(self) -> str:
            raise RuntimeError("no")

    class Bad:
        def __call__(self, happened: Event) -> None:
            raise Wrong

        def close(self) -> None:
            raise Wrong

        __repr__ = Wrong.__repr__

    sinks = SinkList([Bad()], Redactor())
    for _ in range(2):
        sinks(event("compact.config_changed"))
    sinks.close()
    assert 2 == sinks.failures
    assert [
        "sink <Bad> failed and is counted from now on: <Wrong>",
        "sink <Bad> could not be closed: <Wrong>",
    ] == [record.getMessage() for record in caplog.records]
