"""The plan of a compaction: the limits it has to meet, and the plan that fits them.

Owns: `plan_for`, `dry_run`, and how much room a summary gets. Must never: choose messages (layouts do), or act.
"""

from __future__ import annotations

from dataclasses import replace

from .._compaction.fit import Fitted, PlanLimits, estimate, fit
from .._compaction.layouts import layout_of
from .._compaction.plan import Plan, PlanCosts
from .._conversation.message import History
from .._summary.marker import add_marker
from .call import Call

SMALLEST_SUMMARY = 16
"""Tokens below which a summary says nothing useful: a fold that leaves less room is not made."""


def plan_for(call: Call, history: History) -> Fitted:
    """The plan to carry out now; raises `InsufficientBudget` when none fits."""
    fitted = fit(history, call.policy, _plan_limits(call, history))
    limits = fitted.limits
    if call.one_shot and fitted.plan.folds:
        left = limits.allowance + limits.budget - fitted.cost
        most = call.summary.max_tokens + envelope_tokens(call)
        is_set = "max_tokens" in call.summary.model_fields_set
        limits = replace(limits, allowance=min(most, left) if is_set else left)
    useful = [
        fold
        for fold in fitted.plan.folds
        if min(limits.allowance, history.cost(fold.indices)) > limits.smallest_summary
    ]
    milder = fitted.plan.only(useful)
    plan = milder if estimate(history, milder, limits) <= limits.budget else fitted.plan
    return replace(fitted, plan=plan, limits=limits)


def dry_run(call: Call) -> Plan:
    """The plan to carry out now, with what it costs."""
    history = call.history(call.outgoing()[1])
    fitted = plan_for(call, history)
    changes = fitted.plan.changes
    costs = PlanCosts(
        history=history,
        usage=call.usage,
        reasons=call.decision.reasons,
        line=call.decision.line,
        limits=call.limits,
        policy=fitted.policy,
        tokens_after=round(fitted.cost * call.factor) if changes else call.usage.total,
        summary_tokens=fitted.limits.allowance if fitted.plan.folds else 0,
    )
    return replace(fitted.plan, costs=costs)


def _plan_limits(call: Call, history: History) -> PlanLimits:
    """The limits of a plan, in counted tokens."""
    limits, headroom = call.limits, call.headroom or 0
    trigger = int((limits.trigger - headroom) / call.factor)
    # A background compaction may leave the list as large as it is: it fits now.
    budget = int((max(limits.budget - headroom, call.usage.total) if headroom else limits.budget) / call.factor)
    envelope_cost = envelope_tokens(call)
    smallest = envelope_cost + SMALLEST_SUMMARY
    kept = call.fixed + history.cost(sorted(history.pinned))
    # Where even a bare list would be over the trigger, the summary has its share of what the budget leaves.
    free = trigger - kept if (trigger - kept) // 4 >= smallest else max(0, budget - kept)
    target = 0 if call.forced else int(call.policy.target_pct * (call.decision.line or 0) / call.factor)
    if target and headroom:
        target = max(1, target - int(headroom / call.factor))
    allowance = min(call.summary.max_tokens + envelope_cost, free // 4)
    share = layout_of(call.policy).summary_share
    return PlanLimits(call.fixed, trigger, budget, allowance, smallest, share, target)


def envelope_tokens(call: Call) -> int:
    """What a summary costs besides its body."""
    message_format = call.reader.format
    text = add_marker("", call.summary.summary_tag, call.session.version + 99)
    return call.reader.cost(message_format.read(message_format.summary(text, first=False))) + 2
