"""Press a layout until its plan fits, or say why nothing can.

Owns: `fit` and the order in which keeps give way. Must never: choose blocks itself (layouts do), or call a model.

Rules, in this order:
1. Old tool outputs are cleared first when `clear_tool_outputs` asks for it and that alone is enough.
2. While the estimate is not below the trigger: one recent turn less, then one tool pair less, in turn, down to (1, 1);
   `rolling` gives up one round at a time; `in_place` folds only as many runs as reach the target.
3. Then the floor: the newest user message and the newest block.
4. Over budget even so: the largest kept tool outputs are clipped, unless `oversized` says raise.
5. Then the summary gets less room, down to none; one that carries an earlier summary on gets `least`, or the earlier
   one stays as it stands.
6. Then `InsufficientBudget`, with the sum. The pressure belongs to this call alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .._conversation.message import History
from ..config.sections import Policy
from ..errors import InsufficientBudget
from .plan import Clip, Fold, Layout, Plan

__all__ = ["STUB_TOKENS", "Fitted", "PlanLimits", "estimate", "fit"]

STUB_TOKENS = 64
"""What the line that stands for a cut output may cost."""


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """The tokens there are. `fixed` is what every request carries besides messages (tools, the reply's primer)."""

    fixed: int
    trigger: int
    budget: int
    allowance: int
    """What one summary may cost, its marker and its message included."""
    least: int = 0
    """What a summary costs that says anything at all."""
    share: float = 1.0
    """The part of what it replaces that a summary may cost, where summaries stay for good and add up."""
    target: int = 0
    """Where a layout of several folds may stop; 0 asks for all of them."""

    def for_summary(self, replaced: int) -> int:
        """What the summary of so many tokens may cost."""
        return min(self.allowance, replaced, max(self.least, int(replaced * self.share)))


@dataclass(frozen=True, slots=True)
class Fitted:
    """A plan that fits, the policy it was made with (keep counts as lowered), the room, and what it should cost."""

    plan: Plan
    policy: Policy
    room: PlanLimits
    cost: int

    @property
    def below_trigger(self) -> bool:
        """Whether the list would end below the trigger."""
        return self.cost < self.room.trigger


def fit(history: History, policy: Policy, layout: Layout, room: PlanLimits) -> Fitted:
    """The gentlest plan that gets below the trigger; else the hardest, if it is within the budget."""
    cleared = _clear(history, policy)
    if cleared:
        plan = Plan.unchanged(len(history)).clipping(cleared)
        cost = estimate(history, plan, room)
        if cost < (room.target or room.trigger):
            return Fitted(plan, policy, room, cost)

    for pressed in _pressures(policy):
        plan = _enough(history, layout(history, pressed), room).clipping(cleared)
        for within, cost in _costs(history, plan, room):
            if cost < room.trigger:
                return Fitted(plan, pressed, within, cost)

    if cost > room.budget and policy.oversized == "clip":
        plan = _clip(history, plan, room)
    if estimate(history, plan, room) > room.budget and plan.folds:
        bare = estimate(history, plan, replace(room, allowance=0))
        room = replace(room, allowance=max(0, room.budget - bare) // len(plan.folds))
    for within, cost in _costs(history, plan, room):
        if cost <= room.budget:
            return Fitted(plan, pressed, within, cost)
    raise _insufficient(history, policy, plan, room)


def _costs(history: History, plan: Plan, room: PlanLimits) -> Iterator[tuple[PlanLimits, int]]:
    """What a plan comes to. One that carries an earlier summary on has room to say something, or that one stands."""
    carried = [min(history.summaries.intersection(fold.indices), default=None) for fold in plan.folds]
    earlier = [i for i in carried if i is not None]
    if room.allowance >= room.least or not earlier:
        yield room, estimate(history, plan, room)
        return
    ample, none = replace(room, allowance=room.least), replace(room, allowance=0)
    yield ample, estimate(history, plan, ample)
    yield none, estimate(history, plan, none) + history.cost(earlier)


def estimate(history: History, plan: Plan, room: PlanLimits) -> int:
    """What the list would cost after this plan, each summary taken at its full allowance."""
    cost = room.fixed
    for slot in plan.slots:
        if isinstance(slot, Fold):
            cost += room.for_summary(history.cost(slot.indices))
        elif isinstance(slot, Clip):
            cost += _clipped_cost(history, slot.index, slot.tokens)
        else:
            cost += history.tokens[slot]
    return cost


def _pressures(policy: Policy) -> Iterator[Policy]:
    """The policy with its keep counts as they are, then lowered step by step to the floor of 0."""
    yield policy
    if policy.layout == "in_place":
        return
    if policy.layout == "rolling":
        for rounds in range(policy.window_rounds - 1, -1, -1):
            yield policy.model_copy(update={"window_rounds": rounds})
        return
    turns, pairs = policy.keep_recent_turns, policy.keep_tool_io_pairs
    lower_turns = True
    while turns > 1 or pairs > 1:
        if (lower_turns and turns > 1) or pairs == 1:
            turns -= 1
        else:
            pairs -= 1
        lower_turns = not lower_turns
        yield policy.model_copy(update={"keep_recent_turns": turns, "keep_tool_io_pairs": pairs})
    yield policy.model_copy(update={"keep_recent_turns": 0, "keep_tool_io_pairs": 0})


def _enough(history: History, plan: Plan, room: PlanLimits) -> Plan:
    """Of several folds only the earliest ones that reach the target."""
    if room.target == 0 or len(plan.folds) < 2:
        return plan
    for count in range(1, len(plan.folds)):
        shorter = plan.only(plan.folds[:count])
        if estimate(history, shorter, room) < room.target:
            return shorter
    return plan


def _clear(history: History, policy: Policy) -> dict[int, int]:
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
        if _gain(history, i) > 0
    }
    return clips if clips and sum(_gain(history, i) for i in clips) >= rule.at_least else {}


def _gain(history: History, index: int) -> int:
    return history.tokens[index] - _clipped_cost(history, index, 0)


def _clipped_cost(history: History, index: int, tokens: int) -> int:
    """What a message costs with its tool outputs cut."""
    answers = len(history[index].answers)
    rest = history.tokens[index] - history.answers_cost(index) if answers else history.tokens[index]
    return min(history.tokens[index], rest + (tokens + STUB_TOKENS) * answers)


def _clip(history: History, plan: Plan, room: PlanLimits) -> Plan:
    """Cut the largest kept outputs, all to one size, so that the list is below the trigger, or at least the budget."""
    candidates = [i for i in plan.kept if history[i].answers and i not in history.pinned and _gain(history, i) > 0]
    whole = estimate(history, plan, room)
    for goal in (room.trigger - 1, room.budget):
        low, high = 0, max((history.tokens[i] for i in candidates), default=0)
        while low < high:
            size = (low + high + 1) // 2
            saved = sum(history.tokens[i] - _clipped_cost(history, i, size) for i in candidates)
            low, high = (size, high) if whole - saved <= goal else (low, size - 1)
        clips = {i: low for i in candidates if _clipped_cost(history, i, low) < history.tokens[i]}
        clipped = plan.clipping(clips)
        if estimate(history, clipped, room) <= goal:
            return clipped
    return clipped


def _insufficient(history: History, policy: Policy, plan: Plan, room: PlanLimits) -> InsufficientBudget:
    """Name what does not fit, by how much, and what would help."""
    pinned = history.cost(sorted(history.pinned))
    room = replace(room, allowance=max(room.allowance, room.least if history.summaries & plan.folded else 0))
    summary = sum(room.for_summary(history.cost(fold.indices)) for fold in plan.folds)
    cost = estimate(history, plan, room)
    rest = cost - room.fixed - pinned - summary
    parts = f"tools and fixed parts {room.fixed:,} + pinned {pinned:,} + summary {summary:,} + what must stay {rest:,}"
    if pinned + room.fixed > room.budget:
        advice = "protect fewer or shorter messages, offer fewer tools, or raise max_context_tokens"
    elif policy.layout == "in_place":
        advice = (
            'use layout="layered" (in_place keeps every user message and its retention window), or raise the window'
        )
    elif policy.oversized == "raise":
        advice = 'set policy.oversized to "clip", shorten the newest messages, or raise max_context_tokens'
    else:
        advice = "shorten the newest messages, protect less, or raise max_context_tokens"
    over = cost - room.budget
    return InsufficientBudget(
        f"cannot fit: {parts} = {cost:,} tokens, {over:,} over the budget of {room.budget:,}; {advice}",
        needed=cost,
        budget=room.budget,
    )
