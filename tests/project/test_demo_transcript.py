"""The demo conversation, run the way a person runs it: as a script that writes JSON lines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from typing import Any

import pytest
from project_paths import EXAMPLES

from compact import History
from compact._conversation.formats import detect
from compact._conversation.tables import encoding

pytestmark = pytest.mark.slow
SCRIPT = EXAMPLES / "demo_transcript.py"


def run(*options: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """The script in a process of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(SCRIPT), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@cache
def transcript(tokens: int = 200_000, seed: int = 7) -> list[dict[str, Any]]:
    """The messages the script writes for a size and a seed."""
    return [json.loads(line) for line in run("--tokens", str(tokens), "--seed", str(seed)).stdout.splitlines()]


def count(text: str) -> int:
    """Tokens of a text by o200k."""
    return len(encoding("o200k_base").encode_ordinary(text))


def calls_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of a message."""
    return message.get("tool_calls") or []


def wire_tokens(message: dict[str, Any]) -> int:
    """What one message costs as it is sent: four tokens around it, three around each call."""
    functions = [call["function"] for call in calls_of(message)]
    return 4 + count(message["content"] or "") + sum(3 + count(f["name"]) + count(f["arguments"]) for f in functions)


def text_of(messages: list[dict[str, Any]]) -> str:
    """Everything that was said, by anyone."""
    return "\n".join(message["content"] or "" for message in messages)


def test_same_bytes_in_every_process() -> None:
    """Two processes with different hash seeds write the same bytes."""
    first, second = (run("--tokens", "30000", hash_seed=hash_seed) for hash_seed in ("1", "2"))

    assert (0, "") == (first.returncode, first.stderr)
    assert first.stdout == second.stdout


def test_another_seed_tells_other_details() -> None:
    """The seed decides the details; the person's rules stay."""
    ours, other = transcript(30_000, 7), transcript(30_000, 8)

    assert ours != other
    assert ours[1] == other[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 8])
@pytest.mark.parametrize("tokens", [10_000, 50_000, 200_000])
def test_size_is_near_the_target(tokens: int, seed: int) -> None:
    """The tokens on the wire are within 3 % of what was asked for."""
    actual = sum(map(wire_tokens, transcript(tokens, seed)))

    assert tokens == pytest.approx(actual, rel=0.03)


@pytest.mark.parametrize("tokens", [10_000, 200_000, 300_000])
def test_every_call_is_answered_right_after_it(tokens: int) -> None:
    """The results of a step follow its calls at once and in order."""
    messages = transcript(tokens)
    for i, message in enumerate(messages):
        asked = [call["id"] for call in calls_of(message)]
        results = messages[i + 1 : i + 1 + len(asked)]
        assert asked == [result.get("tool_call_id") for result in results]

    assert sum(len(calls_of(m)) for m in messages) == sum(m["role"] == "tool" for m in messages)


def test_provider_would_accept_it() -> None:
    """The dialect that recognises the conversation finds nothing to complain about."""
    messages = transcript()
    dialect = detect(messages)

    assert dialect is not None
    assert "openai-chat" == dialect.name
    assert [] == dialect.problems([dialect.read(message) for message in messages])


def test_calls_look_like_calls() -> None:
    """Ids are unique and well formed, arguments are JSON objects, and at most four calls go out together."""
    steps = [calls_of(message) for message in transcript() if calls_of(message)]
    calls = [call for step in steps for call in step]
    tools = {"read_file", "list_dir", "grep", "edit_file", "run_tests", "run_command", "git", "web_fetch", "todo"}

    assert len(calls) == len({call["id"] for call in calls})
    assert [] == [call["id"] for call in calls if not re.fullmatch(r"call_[A-Za-z0-9]{24}", call["id"])]
    assert {dict} == {type(json.loads(call["function"]["arguments"])) for call in calls}
    assert tools == {call["function"]["name"] for call in calls}
    assert {1, 2, 3, 4} == {len(step) for step in steps}


def test_shape_of_a_day() -> None:
    """The full conversation has the turns, messages and result sizes of a day's work."""
    messages = transcript()
    results = [count(message["content"]) for message in messages if message["role"] == "tool"]
    dialect = detect(messages)

    assert dialect is not None
    assert 40 <= len(History([dialect.read(message) for message in messages]).turns) <= 60
    assert 500 <= len(messages) <= 700
    assert 50 <= min(results)
    assert 4_500 <= max(results) <= 6_000


@pytest.mark.parametrize("tokens", [10_000, 200_000])
def test_rules_decisions_and_correction_are_there(tokens: int) -> None:
    """The standing rules, a decision, its revocation and the tickets are said at every size."""
    messages = transcript(tokens)
    people = text_of([message for message in messages if message["role"] == "user"])

    assert "Never touch migrations/ by hand" in messages[1]["content"]
    assert "Amounts are integers in cents" in messages[1]["content"]
    assert "All timestamps are UTC" in messages[1]["content"]
    assert people.index("send it synchronously") < people.index("Forget sending credit_note.issued synchronously")
    assert {"LED-398", "LED-412", "LED-377"} <= set(re.findall(r"LED-\d+", text_of(messages)))


@pytest.mark.parametrize("tokens", [10_000, 200_000])
def test_one_message_is_protected(tokens: int) -> None:
    """Exactly one message is protected: the person's rule about gapless numbers."""
    protected = [message for message in transcript(tokens) if message.get("meta") == {"protected": True}]

    assert ["user"] == [message["role"] for message in protected]
    assert "gapless" in protected[0]["content"]


def test_edits_are_seen_by_what_comes_later() -> None:
    """A diff shows the newest edit that is not committed yet."""
    messages = transcript()
    pending: list[str] = []
    shown: list[bool] = []
    answers = {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
    for call in (call for message in messages for call in calls_of(message)):
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "edit_file":
            pending.append(arguments["new"].splitlines()[0])
        elif arguments.get("args", "").startswith(("commit", "checkout")):
            pending.clear()
        elif arguments.get("args") == "diff":
            shown += [f"+{line}" in answers[call["id"]] for line in pending[-1:]]

    assert [True, True, True] == shown


def test_nothing_is_left_unfilled_or_pointing_outside() -> None:
    """No slot is left in the text, and every address is a reserved one."""
    text = text_of(transcript())
    hosts = set(re.findall(r"https://([\w.-]*\w)", text))

    assert [] == re.findall(r"\$\{?[a-z]{3,}", text)
    assert [] == [host for host in hosts if not host.endswith("example.com")]


def test_too_small_is_refused_with_the_number() -> None:
    """A size that the story does not fit in is refused, and the error names the smallest."""
    refused = run("--tokens", "9999")

    assert (2, "") == (refused.returncode, refused.stdout)
    assert "tokens is 9999, and the story needs at least 10000" in refused.stderr
