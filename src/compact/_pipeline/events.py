"""What the events of a fold say.

Owns: the data of `trigger_decision`, `pruned_messages` and the warning that nothing can help. Must never: decide.
"""

from __future__ import annotations

from typing import Any

from .._compaction.fit import Fitted
from .._compaction.plan import Plan
from .._compaction.trigger import Decision
from .._conversation.message import History
from .._conversation.tokens import Usage
from .._session.session import Prepared
from ..config.limits import Limits
from ..config.sections import Policy
from .effects import Emit, warning
from .job import Job, Outcome

__all__ = ["cannot_fit", "decided", "decision_data", "estimate_data", "layers", "pruned", "swapped"]


def estimate_data(model: str, usage: Usage, lines: Limits) -> dict[str, Any]:
    """What the conversation weighs: `compact.token_estimate`."""
    total = usage.total
    return {
        "model": model,
        "t_est": total,
        "max_tokens": lines.window,
        "usage_pct": round(total / lines.window, 4),
        "breakdown": usage.breakdown(),
    }


def decision_data(policy: Policy, lines: Limits, decision: Decision, why_not: str | None) -> dict[str, Any]:
    """Whether a fold goes ahead: `compact.trigger_decision`."""
    return {
        "triggered": why_not is None,
        "reason": ", ".join((*decision.reasons, *([why_not] if why_not else ()))),
        "policy": {
            "trigger_pct": policy.trigger_pct,
            "hard_cap_buffer": policy.hard_cap_buffer,
            "strategy": policy.strategy,
            "layout": policy.layout_name,
        },
        "trigger": lines.trigger,
        "budget": lines.budget,
    }


def decided(job: Job, why_not: str | None, plan: Plan | None = None, history: History | None = None) -> Emit:
    """Whether a fold goes ahead, and what it will keep."""
    data = decision_data(job.policy, job.lines, job.decision, why_not)
    if plan is not None and history is not None:
        data |= {"kept": layers(history, plan), "pruned_count": len(plan.folded)}
    if job.note is not None:
        data["note"] = job.note
    return Emit("compact.trigger_decision", data)


def pruned(job: Job, outcome: Outcome, plan: Plan, history: History) -> Emit:
    """What a fold left, by layer."""
    data: dict[str, Any] = {
        "step": outcome.step,
        "kept": {**layers(history, plan), "summary": sum(entry.summary for entry in outcome.entries)},
        "folded": len(plan.folded),
        "clipped": len(plan.clips),
        "messages_before": len(history),
        "messages_after": len(outcome.raws),
        "tokens_before": outcome.tokens_before,
        "tokens_after": outcome.tokens_after,
    }
    if job.note is not None:
        data["note"] = job.note
    return Emit("compact.pruned_messages", data)


def swapped(job: Job, prepared: Prepared) -> Emit:
    """What a fold that was made ahead of need leaves of this list, which has grown since."""
    outcome = prepared.outcome
    assert outcome.plan is not None
    assert outcome.history is not None
    told = pruned(job, outcome, outcome.plan, outcome.history).data
    messages, tokens = len(job.outgoing()[1]), job.usage.total
    data = {
        **told,
        "messages_before": messages,
        "messages_after": messages - told["messages_before"] + told["messages_after"],
        "tokens_before": tokens,
        "tokens_after": tokens - told["tokens_before"] + told["tokens_after"],
        "waited": round(prepared.waited, 6),
    }
    return Emit("compact.pruned_messages", data, duration=prepared.waited)


def layers(history: History, plan: Plan) -> dict[str, int]:
    """How much of each layer a plan keeps: pinned messages, recent turns, tool pairs."""
    kept = set(plan.kept)
    recent = kept - history.pinned - history.summaries
    return {
        "pinned": len(history.pinned & kept),
        "recent_turns": sum(any(i in recent and history[i].is_user for i in range(*turn)) for turn in history.turns),
        "tool_pairs": sum(block.tool and block.indices[0] in recent for block in history.blocks),
    }


def cannot_fit(history: History, fitted: Fitted) -> Emit:
    """Even the hardest fold stays at or above the trigger: said once, with the sum."""
    room = fitted.room
    pinned = history.cost(sorted(history.pinned))
    rest = fitted.cost - room.fixed - pinned
    return warning(
        "cannot_fit",
        "high",
        f"tools and fixed parts {room.fixed:,} + pinned {pinned:,} + newest messages and summary {rest:,} = "
        f"{fitted.cost:,} tokens stay at or above the trigger of {room.trigger:,}: every fold will end here. "
        "Raise trigger_pct or the window, or pin less and offer fewer tools.",
        needed=fitted.cost,
        trigger=room.trigger,
        budget=room.budget,
    )
