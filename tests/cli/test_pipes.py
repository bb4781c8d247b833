"""The command line in a process of its own: pipes, signals, terminals, completion, and what is loaded."""

from __future__ import annotations

import json
import os
import pty
import runpy
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from project_paths import ROOT

from compact import CompactConfig, CompactManager
from compact.testing import chat

pytestmark = [pytest.mark.slow, pytest.mark.untraced]  # real processes

COMMAND = str(Path(sys.executable).with_name("compact"))
MESSAGES = chat("s" + "utrtra" * 30, words=60)
LINES = "".join(json.dumps(message) + "\n" for message in MESSAGES)
CHARS = ("--set", "counter=chars")


def run(*arguments: str, given: str = "", code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """One command, with something on its standard input."""
    done = subprocess.run(
        [COMMAND, *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "COLUMNS": "200", **environment},
    )
    assert "Traceback" not in done.stderr
    assert code == done.returncode, done.stderr
    return done


def archived(session: str = "chat") -> None:
    with CompactManager(CompactConfig(counter="chars", policy={"keep_recent_turns": 1})) as manager:
        manager.manual_compact(session, MESSAGES)


def test_what_comes_as_lines_leaves_as_lines() -> None:
    """JSON in, JSON out; lines in, lines out; `--format` says otherwise."""
    squeeze = ("run", "-", "--max-tokens", "2000", *CHARS)
    lines = run(*squeeze, given=LINES)
    folded = [json.loads(line) for line in lines.stdout.splitlines()]
    assert 1 < len(folded) < len(MESSAGES)
    assert 1 == len(lines.stderr.splitlines())
    wrapped = json.dumps({"messages": MESSAGES}, indent=1)
    assert folded == json.loads(run(*squeeze, given=wrapped).stdout)


def test_commands_form_a_pipe() -> None:
    """What one command writes another one reads, and so does `<(…)`, which can be read only once."""
    Path("chat.jsonl").write_text(LINES)
    squeeze = f"{COMMAND} run <(cat chat.jsonl) --max-tokens 2000 {shlex.join(CHARS)}"
    line = f"{squeeze} | {COMMAND} count - --json {shlex.join(CHARS)}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=60)
    (told,) = json.loads(done.stdout)
    assert 0 < told["total"] <= 2_000


@pytest.mark.parametrize("command", ["restore chat --format jsonl", "recall chat parser --limit 100", "--help"])
def test_a_reader_that_leaves_is_no_error(command: str) -> None:
    """As with `| head`: no word, and exit code 0."""
    archived()
    reading, writing = os.pipe()
    os.close(reading)
    try:
        asked = [COMMAND, *command.split()]
        done = subprocess.run(asked, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writing)
    assert (0, b"") == (done.returncode, done.stderr)


def test_streams_may_be_closed() -> None:
    """A service may be started without them."""
    line = f"{COMMAND} sessions <&- >&-"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (0, "") == (done.returncode, done.stderr)


def test_a_warning_of_the_library_is_a_note_and_told_once() -> None:
    """Three verbs find the archive unreadable; the last one cannot go on."""
    Path("chat.jsonl").write_text(LINES)
    told = run("run", "chat.jsonl", "--path", "chat.jsonl", "--window", "4000", *CHARS, code=1).stderr.splitlines()
    assert ["note: session 'chat'", "compact: The archive"] == [line[:20].rstrip() for line in told]


def interruptible() -> None:
    """Ctrl-C reaches the process also when the tests themselves were started in the background, where it is ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_an_interrupt_ends_with_130() -> None:
    """While it waits for its input, and without a traceback."""
    process = subprocess.Popen(
        [COMMAND, "redact", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=interruptible,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    # It reads when it holds the whole pipe's worth that nobody else takes.
    assert process.stdin is not None
    process.stdin.write(b"x" * 300_000)
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (130, b"") == (process.returncode, told)


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What a command shows on a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, *arguments],
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **environment},
    )
    os.close(follower)
    shown = b""
    try:
        while part := os.read(leader, 65_536):
            shown += part
    except OSError:  # how a terminal tells that nobody is there any more
        pass
    finally:
        os.close(leader)
    assert 0 == process.wait(timeout=60)
    return shown.decode()


def test_colours_on_a_terminal_alone() -> None:
    Path("chat.jsonl").write_text(LINES)
    coloured = "\x1b[36m"
    assert coloured in on_a_terminal("count", "chat.jsonl", *CHARS)
    assert coloured not in on_a_terminal("count", "chat.jsonl", *CHARS, NO_COLOR="1")


def test_the_shell_completes_sessions() -> None:
    archived("my-agent")
    asked = {"_COMPACT_COMPLETE": "complete_bash", "COMP_WORDS": "compact diff ", "COMP_CWORD": "2"}
    assert ["my-agent"] == run(**asked).stdout.split()


def test_help_loads_nothing_heavy() -> None:
    """`--help` is asked for often; buckets, clusters, servers and models are for those who use them."""
    code = """
import sys
from compact.cli.commands import app
try:
    app(["--help"])
except SystemExit as end:
    assert not end.code
heavy = {"boto3", "ray", "starlette", "uvicorn", "openai", "anthropic", "mcp", "yaml", "tiktoken"}
print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "[]\n" == done.stderr


SERVERS: dict[str, Any] = {
    name: command
    for name, command in runpy.run_path(str(ROOT / "scripts" / "cli_docs.py"))["commands"]()
    if name in ("compact view", "compact proxy")
}


@pytest.mark.parametrize("name", list(SERVERS))
def test_the_examples_of_servers_start_and_stop(name: str) -> None:
    """Each says where it listens, and ends with 0 when it is told to."""
    archived()
    example = runpy.run_path(str(ROOT / "scripts" / "cli_docs.py"))["example_of"](SERVERS[name])
    command = [COMMAND, *shlex.split(example)[1:], "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=interruptible
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("http://127.0.0.1:")
            process.send_signal(signal.SIGINT)
            assert 0 == process.wait(timeout=60)
        finally:
            process.kill()


def test_the_example_of_mcp_ends_with_its_input() -> None:
    archived()
    run("mcp", "--session", "chat")
