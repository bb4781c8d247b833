"""Whole conversations of agents: the recorded ones beside the project, or some of the bundled generator.

`make torture` takes all of them, the tests the first of each file.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from functools import cache
from typing import Any

from project_paths import EXAMPLES, SHARED
from volume import FULL, volume

FILES = sorted(path.name for path in (SHARED / "transcripts").glob("*.jsonl.gz")) or ["generated"]
EACH = None if FULL else 1
"""Transcripts taken of each file; `make torture` takes all."""


@cache
def load(name: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """The transcripts of one file: id and messages."""
    if name == "generated":
        return [(f"seed {seed}", _generated(seed, 60_000)) for seed in range(1, 1 + volume(2, 3))]
    with gzip.open(SHARED / "transcripts" / name, "rt", encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    return [(str(one["id"]), one["messages"]) for one in found[:EACH]]


def _generated(seed: int, tokens: int) -> list[dict[str, Any]]:
    command = [sys.executable, str(EXAMPLES / "demo_transcript.py"), "--seed", str(seed), "--tokens", str(tokens)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    return [json.loads(line) for line in lines.splitlines()]
