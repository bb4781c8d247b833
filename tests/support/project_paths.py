"""Where the parts of the project are, for tests that read them and for the processes that tests start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
GOLDEN = TESTS / "golden"
EXAMPLES = ROOT / "examples"
SHARED = ROOT.parent / "shared"
"""Data that may stand beside the project; tests that use it run on data of their own when it does not."""


def environment(*folders: Path, **variables: str) -> dict[str, str]:
    """The environment of a process that can import what this one can, and the modules in `folders`."""
    found = [*map(str, folders), str(TESTS / "support"), str(EXAMPLES), *filter(None, sys.path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(found), **variables}
