"""A thousand runs at a small window, a long session against the time its agent waits, and the suite as a whole."""

from __future__ import annotations

import json
import time
import tomllib
from functools import lru_cache
from random import Random
from statistics import median
from typing import Any

import pytest
from project_paths import ROOT
from provider_rules import problems

from compact import CompactConfig, CompactManager
from compact._conversation.tables import encoding
from compact.testing import ScriptedModel

TESTS = {path: path.read_text("utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py"))}
WORDS = "and the parser reads what a caller may want next while its buffer keeps the newest of them in order".split()
SAID = {size: [" ".join(Random(n).choices(WORDS, k=size)) for n in range(40)] for size in (30, 100, 400, 800)}
"""What may be said, by the number of words."""

SECURITY = ("test_injection", "test_redaction", "test_extract_hostile", "test_formats_hostile")

Messages = list[dict[str, Any]]


def small(window: int, model: ScriptedModel) -> CompactManager:
    """A manager at a small window, without an archive, with a scripted summarizer."""
    config = CompactConfig(
        model="gpt-4o",
        max_context_tokens=window,
        storage={"adapter": "none"},
        policy={"hard_cap_buffer": window // 40},
        summary={"min_score": 0},
    )
    return CompactManager(config, summarizer=model)


@lru_cache(maxsize=1_000)
def tokens(text: str) -> int:
    """The tokens of a text."""
    return len(encoding("o200k_base").encode_ordinary(text))


def weighed(messages: Messages) -> int:
    """The tokens of a request, by the published rules and not by the library's meter."""
    total = 3
    for message in messages:
        total += 4 + tokens(message["content"] or "")
        for call in message.get("tool_calls") or ():
            total += 3 + tokens(call["function"]["name"]) + tokens(call["function"]["arguments"])
    return total


def run(manager: CompactManager, number: int, window: int) -> tuple[int, int]:
    """One run of an agent that says more than its window holds; how many requests it made, and how many folds."""
    random, requests, folds = Random(number), 0, 0
    history: Messages = [{"role": "system", "content": f"You are agent {number}."}]
    said = step = 0
    while said < 1.1 * window:
        step += 1
        words = [random.choice(SAID[random.choice((100, 400, 800))]) for _ in range(2)]
        call = {"id": f"call_{step}", "type": "function"}
        arguments = json.dumps({"step": step, "note": words[1][:40]})
        new: Messages = [
            {"role": "user", "content": words[0]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{**call, "function": {"name": "look", "arguments": arguments}}],
            },
            {"role": "tool", "tool_call_id": f"call_{step}", "content": words[1]},
        ]
        said += weighed(new)
        history += new
        given, history = history, manager.preflight(f"run-{number}", history)
        requests, folds = requests + 1, folds + (history is not given)
        assert [] == problems("openai-chat", history)
        assert weighed(history) <= window
        assert new == history[-3:]
        history.append({"role": "assistant", "content": f"Done with step {step}."})
    return requests, folds


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.spec("S41")
def test_a_thousand_runs_never_meet_the_limit() -> None:
    """A scripted model at a window of 4,000 tokens: every request is valid and fits, and every run has folded."""
    model = ScriptedModel("Goal: ship the parser.")
    with small(4_000, model) as manager:
        seen = [run(manager, number, 4_000) for number in range(1_000)]
    assert all(folds for _, folds in seen)
    assert sum(requests for requests, _ in seen) > 4_000


@pytest.mark.spec("S41")
def test_every_kind_of_test_is_here_and_coverage_has_a_floor() -> None:
    """Unit, golden, property, soak and security tests; coverage fails below 85 % at the latest."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    assert settings["coverage"]["report"]["fail_under"] >= 85
    assert settings["pytest"]["ini_options"]["testpaths"] == ["tests"]
    kinds = {
        "golden": [path for path, code in TESTS.items() if "GOLDEN" in code],
        "property": [path for path, code in TESTS.items() if "@given(" in code],
        "soak": [path for path, code in TESTS.items() if "range(1_000)" in code and '"S41"' in code],
        "security": [path for path in TESTS if path.stem in SECURITY],
    }
    assert {kind: bool(paths) for kind, paths in kinds.items()} == dict.fromkeys(kinds, True)
    assert len(kinds["security"]) == len(SECURITY)
    assert len(TESTS) > sum(map(len, kinds.values()))  # and tests of single cases besides


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.spec("S39")
def test_a_long_session_costs_a_tenth_of_its_time_at_most() -> None:
    """A thousand turns, 50 ms for each answer (added, not slept), five folds. CPU time, so that a busy machine counts
    for nothing; the estimate is the median preflight without a fold."""
    random, model = Random(39), ScriptedModel("Goal: ship the parser.")
    waited, spent, estimates, folds = 1_000 * 0.050, 0.0, [], 0
    history: Messages = [{"role": "system", "content": "You are an agent."}]
    with small(16_000, model) as manager:
        for _ in range(1_000):
            for role in ("user", "assistant"):
                history.append({"role": role, "content": random.choice(SAID[30])})
            given, started = history, time.process_time()
            history = manager.preflight("s", given)
            took = time.process_time() - started
            spent += took
            if history is given:
                estimates.append(took)
            else:
                folds += 1
    assert folds == 5
    assert spent / (spent + waited) < 0.10
    assert median(estimates) < 0.010
