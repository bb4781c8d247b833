"""Each adapter on the oldest release that its extra allows: the stories once more, in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from project_paths import ROOT, TESTS

LOWER = Path(sys.prefix) / "lower"
STORIES = {
    "frameworks": {
        "agents_sdk": "test_a_long_run or test_kept_items",
        "google_adk": "test_the_story",
        "langchain": "test_the_story or test_every_kind",
        "litellm": "test_a_long_conversation",
        "llama_index": "test_sixty_calls or test_every_kind",
        "pydantic_ai": "test_the_story",
        "smolagents": "test_a_long_conversation",
    },
    "clients": {"clients": "test_an_agent_on_a_plain_client and not 60"},
}
"""Each set of old releases, the test modules that run on it, and the tests of each that tell most."""
PASSED = re.compile(r"^PASSED tests/adapters/test_(\w+)\.py::", re.MULTILINE)
PIN = re.compile(r"^([\w-]+)==([\d.]+)$", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    """Package → version of a set."""
    return dict(PIN.findall((TESTS / "lower" / f"{name}.txt").read_text()))


def test_the_lower_bounds_are_those_of_the_extras() -> None:
    """What pyproject.toml allows is what is tested here."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = ["adk", "agents", "anthropic", "langchain", "litellm", "llama-index", "openai", "pydantic-ai", "smolagents"]
    stated = dict(re.split(">=", line, maxsplit=1) for name in names for line in extras[name])
    tested = pins("frameworks") | pins("clients")
    assert {name: f"{bound}.0.0".split(".")[:3] for name, bound in stated.items()} == {
        name: tested[name].split(".") for name in stated
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORIES)
def test_the_stories_on_the_oldest_releases(kind: str) -> None:
    """Every list is valid and inside the window there too, and each fold is paid once. One process loads them all."""
    folder = LOWER / kind
    if not folder.exists():
        text = f"{folder} is missing: make test sets it up"
        pytest.fail(text) if os.environ.get("CI") else pytest.skip(text)
    options = ["-rA", "-p", "no:cacheprovider", "-p", "no:langsmith_plugin"]
    chosen = " or ".join(f"(test_{name}.py and ({tests}))" for name, tests in STORIES[kind].items())
    modules = [str(TESTS / "adapters" / f"test_{name}.py") for name in STORIES[kind]]
    own = ("PYTEST", "COV", "SPEC_RESULTS")  # of the run around this one
    environment = {key: value for key, value in os.environ.items() if not key.startswith(own)}
    environment["PYTHONPATH"] = str(folder)
    command = [sys.executable, "-m", "pytest", *options, "-k", chosen, *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert 0 == done.returncode, done.stdout[-3_000:] + done.stderr[-1_000:]
    assert set(STORIES[kind]) == set(PASSED.findall(done.stdout)), "a module whose tests were skipped, or not found"
