"""The replay lab: recorded conversations replayed under policies.

Owns: its public names. Must never: be imported by code that an agent runs.

    from compact.importers import read_logs
    from compact.replay import Trial, Setting, Window, replay, summed

    policies = [Trial.load("default"), Trial.load("a.yaml")]
    with replay(read_logs(["logs/"]), policies, Setting(Window.parse("32k"))) as lab:
        print(summed(lab).policies[0].fidelity)
"""

from __future__ import annotations

from .comparison import Comparison, Sums, summed
from .executors import processes
from .lab import Lab, replay
from .results import Moment, Result
from .trial import Setting, Trial, Window

__all__ = [
    "Comparison",
    "Lab",
    "Moment",
    "Result",
    "Setting",
    "Sums",
    "Trial",
    "Window",
    "processes",
    "replay",
    "summed",
]
