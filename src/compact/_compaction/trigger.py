"""Whether a compaction is due.

Owns: `Counters`, `Decision`, `decide` and `least_tokens_due`. Must never: look at messages; it sees only sums.

- Every threshold fires at ≥; the budget and `window_rounds` fire above it. Any one is enough, and each is named.
- Message and turn counters count since the last compaction, or a conversation of user messages alone would be
  compacted again and again.
"""

from __future__ import annotations

from typing import NamedTuple

from .._conversation.tokens import Usage
from ..config.limits import Limits
from ..config.sections import Policy
from .layouts import layout_of


class Counters(NamedTuple):
    """Messages and turns since the last compaction, and the turns in the list now."""

    messages: int = 0
    turns: int = 0
    rounds: int = 0


class Decision(NamedTuple):
    """Whether a compaction is due (its truth value), why, and at what usage. `line` is the token limit that fired."""

    reasons: tuple[str, ...]
    usage: Usage
    window: int
    line: int | None = None

    def __bool__(self) -> bool:
        return bool(self.reasons)


def decide(usage: Usage, counters: Counters, policy: Policy, limits: Limits, *, forced: str | None = None) -> Decision:
    """Check every threshold. `forced` is a reason that needs none (a manual compaction, a provider's overflow)."""
    total = usage.total
    reasons = [forced] if forced else []
    line = None
    if limits.share is not None and total >= limits.share:
        reasons.append("trigger_pct")
        line = limits.share
    if limits.threshold is not None and total >= limits.threshold:
        reasons.append("token_threshold")
        line = limits.threshold if line is None else min(line, limits.threshold)
    if total > limits.budget:
        reasons.append("budget")
        line = limits.budget if line is None else line
    if policy.message_threshold and counters.messages >= policy.message_threshold:
        reasons.append("message_threshold")
    if policy.turn_threshold and counters.turns >= policy.turn_threshold:
        reasons.append("turn_threshold")
    if counters.rounds > policy.window_rounds and layout_of(policy).counts_rounds:
        reasons.append("window_rounds")
    return Decision(tuple(reasons), usage, limits.window, line)


def least_tokens_due(policy: Policy, limits: Limits) -> int:
    """The fewest tokens at which `decide` can find a compaction due, or one is prepared in the background.

    0 when a threshold counts messages, turns or rounds: such a compaction may be due at any size.
    """
    if policy.message_threshold or policy.turn_threshold or layout_of(policy).counts_rounds:
        return 0
    return min(limits.trigger, limits.prepare or limits.trigger)
