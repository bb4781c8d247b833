"""Make a plan that fits the budget, or say why none does.

Owns: `fit`, and the order in which kept messages are given up.
Must never: choose blocks (layouts do), or call a model.

In this order:
1. Old tool outputs are cleared when `clear_tool_outputs` asks for it and that alone is enough.
2. While the estimate is not below the trigger, the layout runs again with lower keep counts (`lower_keeps`); a layout
   of several folds makes only as many as reach the target.
3. Over budget even so: the largest kept tool outputs are clipped, unless `oversized` is "raise".
4. Then the summary gets less room, down to none; a summary that carries an earlier one on gets `smallest_summary`, or
   the earlier one stays unchanged.
5. Then `InsufficientBudget`, with the sum. Lowered keep counts hold for this call alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .._conversation.message import History
from ..config.sections import Policy
from ..errors import ConfigError, InsufficientBudget
from .layouts import layout_of
from .plan import Clip, Fold, Plan

STUB_TOKENS = 64
"""Tokens that the line in place of a clipped output may cost."""


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """The token limits of a plan, in counted tokens. `fixed` is what every request carries besides its messages."""

    fixed: int
    trigger: int
    budget: int
    allowance: int
    """What one summary may cost, its marker and its message included."""
    smallest_summary: int = 0
    """What the shortest useful summary costs."""
    summary_share: float = 1.0
    """The share of what it replaces that a summary may cost."""
    target: int = 0
    """Where a layout of several folds may stop; 0 asks for all of them."""

    def summary_limit(self, replaced: int) -> int:
        """What the summary of so many tokens may cost."""
        return min(self.allowance, replaced, max(self.smallest_summary, int(replaced * self.summary_share)))


@dataclass(frozen=True, slots=True)
class Fitted:
    """A plan that fits, the policy it was made with (keep counts as lowered), its limits, and its estimated cost."""

    plan: Plan
    policy: Policy
    limits: PlanLimits
    cost: int

    @property
    def below_trigger(self) -> bool:
        """Whether the list would end below the trigger."""
        return self.cost < self.limits.trigger


def fit(history: History, policy: Policy, limits: PlanLimits) -> Fitted:
    """The mildest plan that ends below the trigger; else the hardest one, if it is within the budget."""
    cleared = _clearable_outputs(history, policy)
    if cleared:
        plan = Plan.unchanged(len(history)).clipping(cleared)
        cost = estimate(history, plan, limits)
        if cost < (limits.target or limits.trigger):
            return Fitted(plan, policy, limits, cost)

    for lowered in lowered_policies(policy):
        plan = _only_needed_folds(history, _choose(history, lowered), limits).clipping(cleared)
        for within, cost in _possible_costs(history, plan, limits):
            if cost < limits.trigger:
                return Fitted(plan, lowered, within, cost)

    if cost > limits.budget and policy.oversized == "clip":
        plan = _clip_largest(history, plan, limits)
    if estimate(history, plan, limits) > limits.budget and plan.folds:
        bare = estimate(history, plan, replace(limits, allowance=0))
        limits = replace(limits, allowance=max(0, limits.budget - bare) // len(plan.folds))
    for within, cost in _possible_costs(history, plan, limits):
        if cost <= limits.budget:
            return Fitted(plan, lowered, within, cost)
    raise _insufficient(history, policy, plan, limits)


def _possible_costs(history: History, plan: Plan, limits: PlanLimits) -> Iterator[tuple[PlanLimits, int]]:
    """What a plan may cost: an earlier summary that folds again gets a useful size, or stays unchanged."""
    carried = [min(history.summaries.intersection(fold.indices), default=None) for fold in plan.folds]
    earlier = [i for i in carried if i is not None]
    if limits.allowance >= limits.smallest_summary or not earlier:
        yield limits, estimate(history, plan, limits)
        return
    ample, none = replace(limits, allowance=limits.smallest_summary), replace(limits, allowance=0)
    yield ample, estimate(history, plan, ample)
    yield none, estimate(history, plan, none) + history.cost(earlier)


def estimate(history: History, plan: Plan, limits: PlanLimits) -> int:
    """What the list would cost after this plan, each summary taken at its full allowance."""
    cost = limits.fixed
    for slot in plan.slots:
        if isinstance(slot, Fold):
            cost += limits.summary_limit(history.cost(slot.indices))
        elif isinstance(slot, Clip):
            cost += _clipped_cost(history, slot.index, slot.tokens)
        else:
            cost += history.tokens[slot]
    return cost


def lowered_policies(policy: Policy) -> Iterator[Policy]:
    """The policy as it is, then with its keep counts lowered step by step."""
    yield policy
    yield from layout_of(policy).lower_keeps(policy)


def _choose(history: History, policy: Policy) -> Plan:
    """The plan of the layout; a layout of the user may return anything."""
    plan = layout_of(policy).choose(history, policy)
    if not isinstance(plan, Plan):
        raise ConfigError(f"policy.layout must return a Plan; it returned {type(plan).__name__}")
    return plan


def _only_needed_folds(history: History, plan: Plan, limits: PlanLimits) -> Plan:
    """Of several folds only the earliest ones that reach the target."""
    if limits.target == 0 or len(plan.folds) < 2:
        return plan
    for count in range(1, len(plan.folds)):
        shorter = plan.only(plan.folds[:count])
        if estimate(history, shorter, limits) < limits.target:
            return shorter
    return plan


def _clearable_outputs(history: History, policy: Policy) -> dict[int, int]:
    """Old tool outputs that give way to a stub: message index → 0 tokens."""
    rule = policy.clear_tool_outputs
    if rule is None:
        return {}
    tools = [b for b in history.blocks if b.tool and not b.pinned and not b.open]
    old = tools[: max(0, len(tools) - rule.keep)]
    clips = {
        i: 0
        for block in old
        if not any(call.name in rule.exclude_tools for i in block.indices for call in history[i].calls)
        for i in block.indices
        if _clearing_gain(history, i) > 0
    }
    return clips if clips and sum(_clearing_gain(history, i) for i in clips) >= rule.at_least else {}


def _clearing_gain(history: History, index: int) -> int:
    return history.tokens[index] - _clipped_cost(history, index, 0)


def _clipped_cost(history: History, index: int, tokens: int) -> int:
    """What a message costs with its tool outputs cut."""
    answers = len(history[index].answers)
    rest = history.tokens[index] - history.answers_cost(index) if answers else history.tokens[index]
    return min(history.tokens[index], rest + (tokens + STUB_TOKENS) * answers)


def _clip_largest(history: History, plan: Plan, limits: PlanLimits) -> Plan:
    """Cut the largest kept outputs, all to one size, so that the list is below the trigger, or at least the budget."""
    candidates = [
        i for i in plan.kept if history[i].answers and i not in history.pinned and _clearing_gain(history, i) > 0
    ]
    whole = estimate(history, plan, limits)
    for goal in (limits.trigger - 1, limits.budget):
        low, high = 0, max((history.tokens[i] for i in candidates), default=0)
        while low < high:
            size = (low + high + 1) // 2
            saved = sum(history.tokens[i] - _clipped_cost(history, i, size) for i in candidates)
            low, high = (size, high) if whole - saved <= goal else (low, size - 1)
        clips = {i: low for i in candidates if _clipped_cost(history, i, low) < history.tokens[i]}
        clipped = plan.clipping(clips)
        if estimate(history, clipped, limits) <= goal:
            return clipped
    return clipped


def _insufficient(history: History, policy: Policy, plan: Plan, limits: PlanLimits) -> InsufficientBudget:
    """Name what does not fit, by how much, and what would help."""
    pinned = history.cost(sorted(history.pinned))
    limits = replace(
        limits, allowance=max(limits.allowance, limits.smallest_summary if history.summaries & plan.folded else 0)
    )
    summary = sum(limits.summary_limit(history.cost(fold.indices)) for fold in plan.folds)
    cost = estimate(history, plan, limits)
    rest = cost - limits.fixed - pinned - summary
    parts = (
        f"tools and fixed parts {limits.fixed:,} + pinned {pinned:,} + summary {summary:,} + what must stay {rest:,}"
    )
    if pinned + limits.fixed > limits.budget:
        advice = "protect fewer or shorter messages, offer fewer tools, or raise max_context_tokens"
    elif layout_of(policy).per_run:
        advice = (
            'use layout="layered" (in_place keeps every user message and its retention window), or raise the window'
        )
    elif policy.oversized == "raise":
        advice = 'set policy.oversized to "clip", shorten the newest messages, or raise max_context_tokens'
    else:
        advice = "shorten the newest messages, protect less, or raise max_context_tokens"
    over = cost - limits.budget
    return InsufficientBudget(
        f"cannot fit: {parts} = {cost:,} tokens, {over:,} over the budget of {limits.budget:,}; {advice}",
        needed=cost,
        budget=limits.budget,
    )
