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
    """The token limits of one call. `window` and `budget` always hold; the others only when configured."""

    window: int
    budget: int
    share: int | None = None
    threshold: int | None = None
    prepare: int | None = None
    """Tokens at which a compaction is prepared in advance."""
    trigger: int = field(init=False)
    """The lowest limit: below it no compaction is due by tokens."""

    def __post_init__(self) -> None:
        limits = (self.share, self.threshold, self.budget)
        object.__setattr__(self, "trigger", min(limit for limit in limits if limit is not None))


def limits_for(policy: Policy, window: int, *, reserve_output: int | None = None) -> Limits:
    """The limits of a policy at this window; the output limit of a request replaces `reserve_output`."""
    reserve = policy.reserve_output if reserve_output is None else reserve_output
    budget = window - policy.hard_cap_buffer - reserve
    # Rounded first: 0.07 * 100 is 7.000000000000001, and that is not above 7.
    share = min(ceil(round(policy.trigger_pct * window, 6)), budget) if policy.trigger_pct else None
    threshold = min(policy.token_threshold, budget) if policy.token_threshold else None
    prepare = ceil(round(policy.prepare_pct * window, 6)) if policy.prepare_pct else None
    return Limits(window, budget, share, threshold, prepare)
