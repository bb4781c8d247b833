"""Real conversations, lived through as an agent would: at small, middling and large windows, with every layout.

The shared transcripts are used when they stand beside the project; otherwise the bundled generator makes some.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import pytest
from project_paths import EXAMPLES
from provider_rules import problems
from recorded_transcripts import EACH, FILES, load

from compact import CompactConfig, CompactManager, InsufficientBudget
from compact._conversation.formats import FORMATS
from compact._conversation.tokens import REPLY_PRIMER, counter_for, message_tokens
from compact.testing import Recorder

WINDOWS = (4_096, 16_384, 65_536)
LAYOUTS = ("layered", "in_place", "rolling")


def calls(messages: list[dict[str, Any]]) -> Iterator[int]:
    """Where the agent called its model: the lengths of what stood in front of each thing it said."""
    for at in range(1, len(messages)):
        if messages[at]["role"] == "assistant" and messages[at - 1]["role"] != "assistant":
            yield at
    yield len(messages)


def floor_of(messages: list[dict[str, Any]], layout: str) -> int:
    """What no fold can remove: pins, and of the rest the newest user message and the newest step, outputs clipped.

    `in_place` keeps everything but runs of two or more that it has not folded before its retention window.
    """
    counter, read = counter_for("tiktoken", "gpt-4o"), FORMATS["openai-chat"].read
    if layout == "in_place":
        start = max(0, len(messages) - 6)
        while start and messages[start]["role"] == "tool":
            start -= 1
        kept = messages[start:]
        for free, run in groupby(messages[:start], key=_foldable):
            members = list(run)
            kept += members if not free or len(members) < 2 else []
    else:
        newest = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=0)
        step = max((i for i, m in enumerate(messages) if m["role"] == "assistant"), default=0)
        kept = [m for i, m in enumerate(messages) if m["role"] == "system" or i == newest or i >= step]
    cost = sum(min(message_tokens(read(m), counter), 64 if m["role"] == "tool" else 1 << 30) for m in kept)
    return cost + REPLY_PRIMER


def _foldable(message: dict[str, Any]) -> bool:
    return message["role"] in ("assistant", "tool") and not str(message["content"]).startswith("<COMPACT-SUMMARY v")


@pytest.mark.slow
@pytest.mark.volume
@pytest.mark.spec("T22", "S38")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", FILES)
def test_a_real_conversation_survives(name: str, window: int, layout: str) -> None:
    """No list is invalid, none is over budget, and the only error is one whose sum is true."""
    config = CompactConfig(max_context_tokens=window, policy={"layout": layout}, storage={"adapter": "none"})
    counter, read = counter_for("tiktoken", "gpt-4o"), FORMATS["openai-chat"].read
    # `rolling` folds at nearly every call, so a hundred of them in one transcript tell as much; but for `make torture`.
    brief = EACH is not None and layout == "rolling"
    for session, transcript in load(name)[: 1 if brief else None]:
        seen = Recorder()
        manager = CompactManager(config, sinks=[seen])
        context: list[dict[str, Any]] = []
        done = 0
        for size in islice(calls(transcript), 100 if brief else None):
            context = [*context, *transcript[done:size]]
            done = size
            folds = len(seen["pruned_messages"])
            refused = None
            try:
                context = manager.preflight(session, context)
            except InsufficientBudget as error:
                refused = error
            if refused is not None:
                # Only what a fold must keep can be too large; a summary that carries others on takes 40 tokens more.
                assert refused.needed > refused.budget == config.budget
                assert floor_of(context, layout) + 40 > config.budget, f"{session}: {refused}"
                break
            if len(seen["pruned_messages"]) > folds:
                assert [] == problems("openai-chat", context), session
                total = sum(message_tokens(read(message), counter) for message in context) + REPLY_PRIMER
                assert total <= config.budget, session
        assert [] == [event.data for event in seen["error"] if event.data["error_type"] == "LawViolation"]


@pytest.mark.slow
def test_the_demo_runs(tmp_path: Path) -> None:
    """The demo tells what was kept, folded and archived, and shows the summary."""
    run = subprocess.run([sys.executable, str(EXAMPLES / "demo.py")], capture_output=True, text=True, cwd=tmp_path)
    assert "" == run.stderr
    assert 0 == run.returncode
    for part in (
        "through a window of 32,000",
        "archived",
        "kept: pinned",
        "<COMPACT-SUMMARY v",
        "every request within",
    ):
        assert part in run.stdout
    assert (tmp_path / ".compact/demo/demo/transcript-pre-compact-001.jsonl").exists()
