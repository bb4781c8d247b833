"""The token limits of one call.

Owns: `Limits` and `limits_for`.
Must never: look at messages, or decide whether a compaction is due.

`trigger_pct` is a share of the window, not of the budget; no limit is ever above the budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from .sections import Policy

__all__ = ["Limits", "limits_for"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The token lines that hold for one call. `window` and `budget` bound; the others fire when configured."""

    window: int
    budget: int
    share: int | None = None
    threshold: int | None = None
    prepare: int | None = None
    """Where a fold is made ahead of need."""
    trigger: int = field(init=False)
    """The lowest line: below it nothing that counts tokens is due."""

    def __post_init__(self) -> None:
        lines = (self.share, self.threshold, self.budget)
        object.__setattr__(self, "trigger", min(line for line in lines if line is not None))


def limits_for(policy: Policy, window: int, *, reserve_output: int | None = None) -> Limits:
    """The lines of a policy at this window; a request's own output limit takes the place of `reserve_output`."""
    reserve = policy.reserve_output if reserve_output is None else reserve_output
    budget = window - policy.hard_cap_buffer - reserve
    # Rounded first: 0.07 * 100 is 7.000000000000001, and that is not above 7.
    share = min(ceil(round(policy.trigger_pct * window, 6)), budget) if policy.trigger_pct else None
    threshold = min(policy.token_threshold, budget) if policy.token_threshold else None
    prepare = ceil(round(policy.prepare_pct * window, 6)) if policy.prepare_pct else None
    return Limits(window, budget, share, threshold, prepare)
