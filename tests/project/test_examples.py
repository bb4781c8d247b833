"""The examples run as they stand: offline, from any directory, and short enough to be read at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from project_paths import EXAMPLES

FOLDER = EXAMPLES
AGENTS = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith(("_", "demo")))
NAMED = {"agents_sdk_minimal.py", "coding_session.py", "long_research.py"}


@pytest.mark.spec("S44")
def test_the_examples_of_the_specification_are_there() -> None:
    """Three by name, and one for each adapter."""
    modules = {path.stem for path in (FOLDER.parent / "src/compact/adapters").glob("[!_]*.py")}
    adapters = modules - {"session_gate"}  # no adapter: the adapters and the proxy share it
    shown = {name for path in AGENTS for name in adapters if f"compact.adapters.{name} import" in path.read_text()}
    assert NAMED <= {path.name for path in AGENTS}
    assert shown == adapters


@pytest.mark.slow
@pytest.mark.spec("S44")
@pytest.mark.parametrize("path", AGENTS, ids=lambda path: path.stem)
def test_an_example_runs_offline_as_it_stands(path: Path, tmp_path: Path) -> None:
    """It folds, says so, writes nothing where it was started, and needs fewer than 40 lines."""
    assert len(path.read_text().splitlines()) < 40
    unwanted = ("OPENAI", "ANTHROPIC", "COMPACT", "GOOGLE", "GEMINI", "HTTP", "http")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert 0 == done.returncode, done.stderr
    assert "fold" in done.stdout
    assert [] == list(tmp_path.iterdir())
