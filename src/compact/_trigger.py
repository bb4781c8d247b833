"""Whether a fold is due, and how far down it must get.

Owns: `Lines` (the token lines of one call), `Counters`, `Decision` and `decide`.
Must never: look at messages; it sees only sums.

Rules:
- Every threshold fires at ≥. Any one of them is enough, and each that fired is named.
- `trigger_pct` is a share of the window, not of the budget; no line is ever above the budget.
- Message and turn counters count since the last fold, or a conversation of users alone would fold for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from ._meter import Usage
from ._policy import Policy

__all__ = ["Counters", "Decision", "Lines", "decide", "lines_for"]


class Counters(NamedTuple):
    """What has been added since the last fold, and how many turns the list holds now."""

    messages: int = 0
    turns: int = 0
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Lines:
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


class Decision(NamedTuple):
    """Whether a fold is due (its truth value), why, and the usage it was judged on. `line` is the one that fired."""

    reasons: tuple[str, ...]
    usage: Usage
    window: int
    line: int | None = None

    def __bool__(self) -> bool:
        return bool(self.reasons)


def lines_for(policy: Policy, window: int, *, reserve_output: int | None = None) -> Lines:
    """The lines of a policy at this window; a request's own output limit takes the place of `reserve_output`."""
    reserve = policy.reserve_output if reserve_output is None else reserve_output
    budget = window - policy.hard_cap_buffer - reserve
    # Rounded first: 0.07 * 100 is 7.000000000000001, and that is not above 7.
    share = min(ceil(round(policy.trigger_pct * window, 6)), budget) if policy.trigger_pct else None
    threshold = min(policy.token_threshold, budget) if policy.token_threshold else None
    prepare = ceil(round(policy.prepare_pct * window, 6)) if policy.prepare_pct else None
    return Lines(window, budget, share, threshold, prepare)


def decide(usage: Usage, counters: Counters, policy: Policy, lines: Lines, *, forced: str | None = None) -> Decision:
    """Judge one call. `forced` names a reason that needs no threshold (a manual fold, a provider's overflow)."""
    total = usage.total
    reasons = [forced] if forced else []
    line = None
    if lines.share is not None and total >= lines.share:
        reasons.append("trigger_pct")
        line = lines.share
    if lines.threshold is not None and total >= lines.threshold:
        reasons.append("token_threshold")
        line = lines.threshold if line is None else min(line, lines.threshold)
    if total > lines.budget:
        reasons.append("budget")
        line = lines.budget if line is None else line
    if policy.message_threshold and counters.messages >= policy.message_threshold:
        reasons.append("message_threshold")
    if policy.turn_threshold and counters.turns >= policy.turn_threshold:
        reasons.append("turn_threshold")
    if policy.layout == "rolling" and counters.rounds > policy.window_rounds:
        reasons.append("window_rounds")
    return Decision(tuple(reasons), usage, lines.window, line)
