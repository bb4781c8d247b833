"""Whether a fold is due, and how far down it must get.

Owns: `Limits` (the token lines of one call), `Counters`, `Decision` and `decide`.
Must never: look at messages; it sees only sums.

Rules:
- Every threshold fires at ≥. Any one of them is enough, and each that fired is named.
- `trigger_pct` is a share of the window, not of the budget; no line is ever above the budget.
- Message and turn counters count since the last fold, or a conversation of users alone would fold for ever.
"""

from __future__ import annotations

from typing import NamedTuple

from .._conversation.tokens import Usage
from ..config.limits import Limits
from ..config.sections import Policy

__all__ = ["Counters", "Decision", "decide", "least_tokens_due"]


class Counters(NamedTuple):
    """What has been added since the last fold, and how many turns the list holds now."""

    messages: int = 0
    turns: int = 0
    rounds: int = 0


class Decision(NamedTuple):
    """Whether a fold is due (its truth value), why, and the usage it was judged on. `line` is the one that fired."""

    reasons: tuple[str, ...]
    usage: Usage
    window: int
    line: int | None = None

    def __bool__(self) -> bool:
        return bool(self.reasons)


def decide(usage: Usage, counters: Counters, policy: Policy, lines: Limits, *, forced: str | None = None) -> Decision:
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


def least_tokens_due(policy: Policy, limits: Limits) -> int:
    """The fewest tokens at which `decide` can find a compaction due, or one is prepared ahead of need.

    0 when a threshold counts messages, turns or rounds: such a compaction may be due at any size.
    """
    if policy.message_threshold or policy.turn_threshold or policy.layout == "rolling":
        return 0
    return min(limits.trigger, limits.prepare or limits.trigger)
