"""How much of the same a test runs: a part in the suite, all of it in `make torture`, which sets TORTURE.

A test that uses it has the mark `volume`, by which `make torture` finds it.
"""

from __future__ import annotations

import os

FULL = bool(os.environ.get("TORTURE"))


def volume(part: int, whole: int) -> int:
    """The number to run now."""
    return whole if FULL else part
