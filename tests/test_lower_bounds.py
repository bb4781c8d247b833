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
FILES = {
    "agents_sdk": "frameworks",
    "google_adk": "frameworks",
    "langchain": "frameworks",
    "litellm": "frameworks",
    "llama_index": "frameworks",
    "pydantic_ai": "frameworks",
    "smolagents": "frameworks",
    "clients": "clients",
}
"""The test module of each adapter, and the set of old releases that it runs on."""
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
    assert stated == {name: tested[name].removesuffix(".0") if stated[name] != tested[name] else tested[name] for name in stated}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_the_story_on_the_oldest_release(name: str) -> None:
    """Every list is valid and inside the window there too, and each fold is paid once."""
    folder = LOWER / FILES[name]
    if not folder.exists():
        text = f"{folder} is missing: make test sets it up"
        pytest.fail(text) if os.environ.get("CI") else pytest.skip(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "story", str(TESTS / f"test_{name}.py")]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTEST_ADDOPTS": "", "COVERAGE_PROCESS_START": ""}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS.parent, env=environment)
    assert 0 == done.returncode, done.stdout[-3_000:] + done.stderr[-1_000:]
