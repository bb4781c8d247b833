"""Each adapter on the oldest release that its extra allows: the story once more, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
LOWER = Path(sys.prefix) / "lower"
STORIES = {
    "agents_sdk": ("frameworks", "test_a_long_run or test_kept_items"),
    "clients": ("clients", "test_an_agent_on_a_plain_client and not 60"),
    "google_adk": ("frameworks", "test_the_story"),
    "langchain": ("frameworks", "test_the_story or test_every_kind"),
    "litellm": ("frameworks", "test_a_long_conversation"),
    "llama_index": ("frameworks", "test_sixty_calls or test_every_kind"),
    "pydantic_ai": ("frameworks", "test_the_story"),
    "smolagents": ("frameworks", "test_a_long_conversation"),
}
"""The test module of each adapter, the set of old releases that it runs on, and the tests that tell most."""
PIN = re.compile(r"^([\w-]+)==([\d.]+)$", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    """Package → version of a set."""
    return dict(PIN.findall((TESTS / "lower" / f"{name}.txt").read_text()))


def test_the_lower_bounds_are_those_of_the_extras() -> None:
    """What pyproject.toml allows is what is tested here."""
    extras = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = ["adk", "agents", "anthropic", "langchain", "litellm", "llama-index", "openai", "pydantic-ai", "smolagents"]
    stated = dict(re.split(">=", line, maxsplit=1) for name in names for line in extras[name])
    tested = pins("frameworks") | pins("clients")
    assert {name: f"{bound}.0.0".split(".")[:3] for name, bound in stated.items()} == {
        name: tested[name].split(".") for name in stated
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
def test_the_story_on_the_oldest_release(name: str) -> None:
    """Every list is valid and inside the window there too, and each fold is paid once."""
    kind, chosen = STORIES[name]
    folder = LOWER / kind
    if not folder.exists():
        text = f"{folder} is missing: make test sets it up"
        pytest.fail(text) if os.environ.get("CI") else pytest.skip(text)
    plugins = ["-p", "no:cacheprovider", "-p", "no:langsmith_plugin"]
    command = [sys.executable, "-m", "pytest", *plugins, "-k", chosen, str(TESTS / f"test_{name}.py")]
    own = ("PYTEST", "COV", "SPEC_RESULTS")  # of the run around this one
    environment = {key: value for key, value in os.environ.items() if not key.startswith(own)}
    environment["PYTHONPATH"] = str(folder)
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS.parent, env=environment)
    assert "passed" in done.stdout
    assert 0 == done.returncode, done.stdout[-3_000:] + done.stderr[-1_000:]
