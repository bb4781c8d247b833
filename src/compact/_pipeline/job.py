"""One call as a value, and what came of it.

Owns: `Job` (what the flow is given) and `Outcome` (what it gives back). Must never: act.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._compaction.fit import PlanLimits
from .._compaction.plan import Plan
from .._compaction.trigger import Decision
from .._conversation.message import History
from .._conversation.tokens import Usage
from .._facts.report import Report
from .._session.entries import Entry, Reader
from .._session.session import Prepared, Session
from .._summary.marker import add_marker
from ..config.limits import Limits
from ..config.sections import Policy, SummaryPolicy

__all__ = ["UNCHANGED", "Job", "Outcome"]

SMALLEST_SUMMARY = 16
"""Fewer tokens than this say nothing: a fold that leaves its summary less room is not worth making."""


@dataclass(frozen=True, slots=True)
class Job:
    """One call, ready to be judged: the list that would go out, its sums, and the rules that hold for it.

    Usage and lines are in the provider's tokens, plans in counted ones; `factor` is what a counted token costs.
    """

    session: Session
    reader: Reader
    model: str
    policy: Policy
    summary: SummaryPolicy
    lines: Limits
    decision: Decision
    outgoing: Callable[[], tuple[list[Any], list[Entry]]]
    fixed: int = 0
    """Tokens that every request carries besides its messages, as counted: the tools, the reply's primer."""
    factor: float = 1.0
    forced: bool = False
    """Whether the fold was asked for, not due: by a person, or by a provider's overflow."""
    must_shrink: bool = False
    """Whether a list that cannot become smaller is an error (after a provider's overflow)."""
    note: str | None = None
    offline: bool = False
    squeeze: bool = False
    """The one-shot form: the list must fit, whatever folds, and the summary may use what room is left."""
    before_fold: Callable[[Plan], Plan | None] | None = None
    conceal: Callable[[str], str] = str
    """Redacts a text."""
    archived: bool = True
    again: bool = False
    """The same call, opened anew because the session had changed under it."""
    ahead: int | None = None
    """Of a fold that is made ahead of need: the tokens that may come before it is used, which it leaves room for."""
    prepared: Prepared | None = None
    """A fold that was made ahead of need, and that this list begins with."""

    def history(self, entries: list[Entry]) -> History:
        """The list that would go out, as the core sees it."""
        return self.session.history(entries, self.policy.roles_never_prune)

    def setting(self) -> dict[str, Any]:
        """The rules and lines of this call, as plain values for whoever looks at it later."""
        return {
            "model": self.model,
            "layout": self.policy.layout_name,
            "strategy": self.policy.strategy,
            "window": self.lines.window,
            "trigger": self.lines.trigger,
            "budget": self.lines.budget,
        }

    @property
    def due(self) -> bool:
        """Whether a threshold is reached, whatever was asked for."""
        return len(self.decision.reasons) > self.forced

    @property
    def usage(self) -> Usage:
        """What the list weighs at the provider."""
        return self.decision.usage

    def room(self, history: History) -> PlanLimits:
        """The tokens there are, as the meter counts them."""
        lines, ahead = self.lines, self.ahead or 0
        trigger = int((lines.trigger - ahead) / self.factor)
        # Ahead of need a list may always stay as large as it is: that fits.
        budget = int((max(lines.budget - ahead, self.usage.total) if ahead else lines.budget) / self.factor)
        least = self.envelope_cost() + SMALLEST_SUMMARY
        kept = self.fixed + history.cost(sorted(history.pinned))
        # Where even a bare list would be over the trigger, the summary has its share of what the budget leaves.
        free = trigger - kept if (trigger - kept) // 4 >= least else max(0, budget - kept)
        target = 0 if self.forced else int(self.policy.target_pct * (self.decision.line or 0) / self.factor)
        if target and ahead:
            target = max(1, target - int(ahead / self.factor))
        allowance = min(self.summary.max_tokens + self.envelope_cost(), free // 4)
        share = 1 / 3 if self.policy.layout == "in_place" else 1.0
        return PlanLimits(self.fixed, trigger, budget, allowance, least, share, target)

    def envelope_cost(self) -> int:
        """What a summary costs besides its body."""
        dialect = self.reader.dialect
        text = add_marker("", self.summary.summary_tag, self.session.version + 99)
        return self.reader.cost(dialect.read(dialect.summary(text, first=False))) + 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a flow did: the new list, when it `changed`."""

    changed: bool = False
    stale: bool = False
    """The session was not what it is by now: the call is to be opened once more."""
    plan: Plan | None = None
    history: History | None = None
    raws: list[Any] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    slots: tuple[int | Entry, ...] = ()
    """For each message that goes out: the index it had in the host's list, or the entry that was made for it."""
    gone: tuple[int, ...] = ()
    """Indices of the host's list that folded or were clipped."""
    positions: tuple[int, ...] = ()
    """Where each message of the host's list stood in the session."""
    earlier: frozenset[int] = frozenset()
    """Indices of the host's list that are summaries of ours."""
    tokens: tuple[int, ...] = ()
    """What each message of the host's list costs, as counted."""
    pinned: frozenset[int] = frozenset()
    """Indices of the host's list that are pinned."""
    tools: frozenset[int] = frozenset()
    """Indices of the host's list that belong to tool calls."""
    abandoned: frozenset[str] = frozenset()
    """Calls of the host's list that got no answer and are not waited for."""
    bodies: tuple[str | None, ...] = ()
    step: int = 0
    version: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    below_trigger: bool = True
    fallback: str | None = None
    report: Report | None = None
    """What the summaries kept of what mattered."""
    repairs: tuple[str, ...] = ()
    setting: Mapping[str, Any] = field(default_factory=dict)
    """The rules and lines it was made under, as plain values."""


UNCHANGED = Outcome()
"""Nothing was done."""
