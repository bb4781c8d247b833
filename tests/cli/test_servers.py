"""`prune` and `view`, and how the program begins; the servers in processes of their own."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import compact
from compact import CompactConfig, CompactManager
from compact.cli.commands import app
from compact.testing import ScriptedModel, chat

pytestmark = pytest.mark.slow  # real processes

ARCHIVE = Path(".compact/archive")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One command, in the test's folder and in this process: that takes a tenth of the time."""
    # A wide terminal, so that no message is broken over lines.
    done = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).invoke(app, arguments)
    assert isinstance(done.exception, SystemExit | None), done.exc_info
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def keep(*session_ids: str, days: int = 0, path: Path = ARCHIVE) -> None:
    """Fold each session once, and make it look so many days old."""
    config = CompactConfig(counter="chars", policy={"keep_recent_turns": 1}, storage={"path": str(path)})
    with CompactManager(config, summarizer=ScriptedModel("the lamps")) as manager:
        for session_id in session_ids:
            before = set(path.glob("*/*"))
            manager.manual_compact(session_id, chat("s" + "ua" * 6))
            (written,) = {file.parent for file in set(path.glob("*/summary-*")) - before}
            for file in (*written.glob("summary-*"), *written.glob("events.jsonl")):
                lines = [json.loads(line) for line in file.read_text().splitlines()]
                aged = [line | {"time": line["time"] - days * 86_400} for line in lines]
                file.write_text("\n".join(json.dumps(line) for line in aged))


def folders(path: Path = ARCHIVE) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def test_prune_deletes_what_is_old_and_says_so() -> None:
    """Each session with its files on a line, then the sum; the younger one stays."""
    keep("old", "x" * 300, days=40)
    keep("token ghp_" + "a1" * 18, days=40)
    keep("young", days=2)
    before = {path: path.read_bytes() for path in ARCHIVE.rglob("*") if path.is_file()}
    dry = run("prune", "--older-than", "30d", "--dry-run")
    assert (0, "") == (dry.returncode, dry.stderr)
    assert before == {path: path.read_bytes() for path in ARCHIVE.rglob("*") if path.is_file()}
    assert "session 'old': 3 objects would be deleted: " in dry.stdout
    assert "3 sessions with 11 objects would be deleted, 1 sessions stay" == dry.stdout.splitlines()[-1]

    done = run("prune", "--older-than", "30d")
    assert (0, "") == (done.returncode, done.stderr)
    *said, total = done.stdout.splitlines()
    names = "events.jsonl, summary-001.json, transcript-pre-compact-001.jsonl"
    assert f"session 'old': 3 objects deleted: {names}" in said
    assert "session 'token <REDACTED>': 4 objects deleted: " in done.stdout
    assert f"session '{'x' * 300}': 4 objects deleted: " in done.stdout
    assert (3, "3 sessions with 11 objects deleted, 1 sessions stay") == (len(said), total)
    assert ["young"] == folders()
    again = run("prune", "--older-than", "30d")
    assert (0, "0 sessions with 0 objects deleted, 1 sessions stay\n") == (again.returncode, again.stdout)


def test_forget_deletes_one_session_and_says_so() -> None:
    """A dry run deletes nothing; then its files are gone, the other session's are not; the second time is refused."""
    keep("chat", "other")
    before = {path: path.read_bytes() for path in ARCHIVE.rglob("*") if path.is_file()}
    names = "events.jsonl, summary-001.json, transcript-pre-compact-001.jsonl"
    dry = run("forget", "chat", "--dry-run")
    assert (0, f"session 'chat': 3 objects would be deleted: {names}\n") == (dry.returncode, dry.stdout)
    told = json.loads(run("forget", "chat", "--dry-run", "--json").stdout)
    assert ("chat", 3, False) == (told["session_id"], len(told["keys"]), told["deleted"])
    assert before == {path: path.read_bytes() for path in ARCHIVE.rglob("*") if path.is_file()}
    done = run("forget", "chat")
    assert (0, f"session 'chat': 3 objects deleted: {names}\n") == (done.returncode, done.stdout)
    assert ["other"] == folders()
    again = run("forget", "chat")
    assert (1, "") == (again.returncode, again.stdout)
    assert "nothing is archived for session 'chat'" in again.stderr


def test_prune_of_another_archive(tmp_path: Path) -> None:
    """`--path` names a folder, `--config` a file; a session that tells no name is counted and deleted as well."""
    keep("here", days=9)
    keep("y" * 300, days=9, path=tmp_path / "there")
    for name in (tmp_path / "there").glob("*/session.json"):
        name.unlink()
    dry = run("prune", "--older-than", "1w", "--path", "there", "--dry-run")
    assert "1 sessions with 3 objects would be deleted, 0 sessions stay" == dry.stdout.splitlines()[-1]
    Path("mine.yaml").write_text("storage: {path: there}\n")
    done = run("prune", "--older-than", "1w", "--config", "mine.yaml")
    assert "a session without a name: 3 objects deleted" in done.stdout
    assert (["here"], []) == (folders(), folders(tmp_path / "there"))


@pytest.mark.parametrize("age", ["30", "0d", "-1d", "30y", "1d2h"])
def test_an_age_that_is_none(age: str) -> None:
    """Told what an age looks like, with exit code 2; nothing is deleted."""
    keep("old", days=400)
    done = run("prune", "--older-than", age)
    assert (2, "") == (done.returncode, done.stdout)
    assert "such as 30d" in done.stderr or "--older-than" in done.stderr
    assert "Traceback" not in done.stderr
    assert ["old"] == folders()


def test_no_age_at_all() -> None:
    """It must be given: there is no age that suits everybody."""
    done = run("prune")
    assert (2, "") == (done.returncode, done.stdout)
    assert "--older-than" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [("storage: {adapter: none}", "storage.adapter is 'none'"), ("storage: {adapter: tape}", "storage.adapter")],
)
def test_what_cannot_be_done_is_one_sentence(text: str, said: str) -> None:
    """Exit code 1, a sentence on stderr, no traceback."""
    Path("compact.yaml").write_text(text)
    done = run("prune", "--older-than", "30d")
    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("compact: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_config_file() -> None:
    """It is named."""
    done = run("prune", "--older-than", "30d", "--config", "nowhere.yaml")
    assert 1 == done.returncode
    assert "nowhere.yaml" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_command_the_help_is_shown() -> None:
    """With every command; what each takes is in CLI.md, which is written from the same place."""
    shown = run()
    assert 0 == shown.returncode
    assert {"count", "prune", "mcp", "view"} <= set(shown.stdout.replace("│", " ").split())


@contextmanager
def viewing(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`compact view` in a process of its own, and the line it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "compact", "view", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def test_view_says_where_it_is_and_how_to_send_to_it() -> None:
    """One line; the page and the session are there; an open stream does not keep Ctrl-C from ending it with 0."""
    keep("mine")
    with viewing(str(ARCHIVE)) as (process, line):
        address = line.split()[0]
        assert f"COMPACT_TRACING_ARIADNE_URL={address}" in line
        assert str(ARCHIVE) in line
        with urllib.request.urlopen(f"{address}/api/sessions", timeout=30) as answer:
            assert ["mine"] == [one["session"] for one in json.load(answer)["sessions"]]
        with urllib.request.urlopen(f"{address}/events", timeout=30) as stream:
            assert stream.readline().startswith(b":")
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        assert (0, "") == (process.returncode, said)
    assert (ARCHIVE / ".view" / "spans.sqlite").is_file()


def test_view_takes_its_token_from_the_environment() -> None:
    """Then nobody without it gets in, and the line does not show it."""
    keep("mine")
    with viewing(COMPACT_VIEW_TOKEN="a-token-nobody-guesses") as (_, line):
        assert "nobody" not in line
        host = line.split()[0].removeprefix("http://")
        assert f"COMPACT_TRACING_ARIADNE_URL=http://token:$COMPACT_VIEW_TOKEN@{host} " in line
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(f"{line.split()[0]}/api/sessions", timeout=30)
        refused.value.close()
        request = urllib.request.Request(f"{line.split()[0]}/healthz")
        request.add_header("Authorization", "Bearer a-token-nobody-guesses")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert 200 == answer.status


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "0.0.0.0"), "COMPACT_VIEW_TOKEN"),
        (("nowhere",), "neither a folder nor a file"),
        (("--config", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_view_that_cannot_be_is_one_sentence(arguments: tuple[str, ...], said: str) -> None:
    """Exit code 1, and what to do."""
    done = run("view", *arguments)
    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("compact: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_view_on_every_address_names_one_that_can_be_reached() -> None:
    """Nobody can open 0.0.0.0 on another machine."""
    with viewing("--host", "0.0.0.0", COMPACT_VIEW_TOKEN="a-token-nobody-guesses") as (_, line):
        assert f"http://{socket.gethostname()}:" in line
        assert f"@{socket.gethostname()}:" in line
        assert "0.0.0.0" not in line


def test_view_before_there_is_an_archive() -> None:
    """It says so, and where one will be; it makes nothing before there is something to keep."""
    with viewing() as (process, line):
        assert "no archive at .compact/archive yet" in line
        assert [] == list(Path.cwd().iterdir())
        span = {"type": "span", "trace_id": "t", "span_id": "s"}
        request = urllib.request.Request(f"{line.split()[0]}/ingest", json.dumps(span).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert 200 == answer.status
        assert (ARCHIVE / ".view" / "spans.sqlite").is_file()
        keep("later")

        def sessions() -> set[str]:
            with urllib.request.urlopen(f"{line.split()[0]}/api/sessions", timeout=30) as answer:
                return {one["session"] for one in json.load(answer)["sessions"]}

        while sessions() != {"t", "later"}:
            assert process.poll() is None


def test_view_that_cannot_keep_says_so_and_goes_on() -> None:
    """A full disk, here a limit: events are refused with the contract's answer, and taken again when there is room."""
    if not hasattr(resource, "prlimit"):
        pytest.skip("limits of another process can be set on Linux alone")
    with viewing() as (process, line):

        def post(number: int) -> tuple[int, str]:
            span = {"type": "span", "trace_id": "t", "span_id": str(number), "data": {"x": "y" * 50_000}}
            request = urllib.request.Request(f"{line.split()[0]}/ingest", json.dumps(span).encode())
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return int(answer.status), ""
            except urllib.error.HTTPError as refused:
                with refused:
                    return refused.code, json.load(refused)["message"]

        def asked(path: str) -> Any:
            with urllib.request.urlopen(line.split()[0] + path, timeout=30) as answer:
                return json.load(answer)

        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        answers = [post(number) for number in range(10)]
        statuses = [status for status, _ in answers]
        assert {200, 500} == set(statuses)
        assert all("cannot be stored" in said for status, said in answers if status == 500)
        assert statuses.count(200) == asked("/healthz")["events"]
        assert "make room" in asked("/api/sessions")["complaints"][0]
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert (200, "") == post(99)
        assert (statuses.count(200) + 1, []) == (asked("/healthz")["events"], asked("/api/sessions")["complaints"])
        process.send_signal(signal.SIGINT)
        assert "" == process.communicate(timeout=30)[1]


def test_view_ends_quietly_whoever_is_there() -> None:
    """A reader that does not read, half a request, a body that breaks off: no traceback for any of them."""
    with viewing() as (process, line), ExitStack() as stack:
        host, _, port = line.split()[0].removeprefix("http://").partition(":")

        def say(text: str) -> socket.socket:
            one = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            one.sendall(text.encode())
            return one

        for _ in range(5):
            say(f"GET /events?since=0 HTTP/1.1\r\nHost: {host}\r\n\r\n")
            say("GET / HTTP/1.1\r\nHo")
            say(f"POST /ingest HTTP/1.1\r\nHost: {host}\r\nContent-Length: 99\r\n\r\n{{").close()
        for start in range(0, 20_000, 500):  # more than the system keeps for those who do not read
            spans = [
                {"type": "span", "trace_id": "t", "span_id": str(n), "name": "x" * 400}
                for n in range(start, start + 500)
            ]
            request = urllib.request.Request(f"http://{host}:{port}/ingest", json.dumps({"batch": spans}).encode())
            urllib.request.urlopen(request, timeout=30).close()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        assert (0, "") == (process.returncode, said)


def test_view_of_something_else_says_so() -> None:
    """Neither an archive nor lines of events: one sentence, and what to name instead."""
    Path("notes.yaml").write_text("a: b")
    Path("picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    Path("project/src").mkdir(parents=True)
    for source, said in (
        ("notes.yaml", "not a file of events"),
        ("picture.png", "not a file"),
        ("project", "not an archive"),
    ):
        done = run("view", source, "--port", "0")
        assert (1, "") == (done.returncode, done.stdout)
        assert said in done.stderr


def test_view_without_its_extra_names_it() -> None:
    """A machine without starlette is told what to install."""
    Path("starlette.py").write_text("raise ImportError('not here')")
    command = [sys.executable, "-m", "compact", "view"]
    environment = {**os.environ, "PYTHONPATH": "."}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (1, True) == (done.returncode, "agent-compact[view]" in done.stderr)


def test_importing_the_library_loads_no_command_line() -> None:
    """The core stays light: typer and rich are the command line's alone."""
    code = "import sys, compact; print(sorted({'typer', 'rich', 'click', 'starlette', 'uvicorn'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n" == done.stdout
    assert compact.__version__
