"""Every event, built in one place.

Owns: the names, data and sentences of all events. Must never: decide what happens, or send an event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._compaction.fit import Fitted
from .._compaction.plan import Plan
from .._compaction.trigger import Decision
from .._conversation.message import History
from .._conversation.tokens import Usage
from .._summary.request import Ask
from ..config.limits import Limits
from ..config.model_catalog import cost_of
from ..config.sections import Policy
from ..errors import CompactError
from .call import Call
from .effects import Emit, SummaryReply
from .outcome import Compacted, Prepared

if TYPE_CHECKING:
    from .._facts.report import Report

_FRAME_TOKENS = 20
"""About what the headings and the fence around the folded messages cost in a summary request."""
_LABEL_TOKENS = 2
"""About what the label of a message costs beyond what a message costs in a list."""


# -- every call ------------------------------------------------------------------------------------------------------


def token_estimate(model: str, usage: Usage, limits: Limits) -> Emit:
    """What the conversation costs."""
    total = usage.total
    data = {
        "model": model,
        "t_est": total,
        "max_tokens": limits.window,
        "usage_pct": round(total / limits.window, 4),
        "breakdown": usage.breakdown(),
    }
    return Emit("compact.token_estimate", data)


def not_due(policy: Policy, limits: Limits, decision: Decision) -> Emit:
    """No limit is reached."""
    return Emit("compact.trigger_decision", _decision_data(policy, limits, decision, "below every threshold"))


def decision(call: Call, why_not: str | None, plan: Plan | None = None, history: History | None = None) -> Emit:
    """Whether a compaction goes ahead, and what it will keep."""
    data = _decision_data(call.policy, call.limits, call.decision, why_not)
    if plan is not None and history is not None:
        data |= {"kept": _layers(history, plan), "pruned_count": len(plan.folded)}
    return Emit("compact.trigger_decision", _with_note(data, call))


def _decision_data(policy: Policy, limits: Limits, decision: Decision, why_not: str | None) -> dict[str, Any]:
    return {
        "triggered": why_not is None,
        "reason": ", ".join((*decision.reasons, *([why_not] if why_not else ()))),
        "policy": {
            "trigger_pct": policy.trigger_pct,
            "hard_cap_buffer": policy.hard_cap_buffer,
            "strategy": policy.strategy,
            "layout": policy.layout_name,
        },
        "trigger": limits.trigger,
        "budget": limits.budget,
    }


# -- a compaction ----------------------------------------------------------------------------------------------------


def pruned_messages(call: Call, compacted: Compacted) -> Emit:
    """What a compaction left, by layer."""
    change, plan, history = compacted.change, compacted.plan, compacted.history
    data = {
        "step": change.fold.step,
        "kept": {**_layers(history, plan), "summary": sum(entry.summary for entry in change.entries)},
        "folded": len(plan.folded),
        "clipped": len(plan.clips),
        "messages_before": len(history),
        "messages_after": len(change.raws),
        "tokens_before": change.fold.tokens_before,
        "tokens_after": change.fold.tokens_after,
    }
    return Emit("compact.pruned_messages", _with_note(data, call))


def prepared_used(call: Call, prepared: Prepared) -> Emit:
    """What a background compaction leaves of this list, which has grown since."""
    made = pruned_messages(call, prepared.compacted).data
    messages, tokens = len(call.outgoing()[1]), call.usage.total
    data = {
        **made,
        "messages_before": messages,
        "messages_after": messages - made["messages_before"] + made["messages_after"],
        "tokens_before": tokens,
        "tokens_after": tokens - made["tokens_before"] + made["tokens_after"],
        "waited": round(prepared.waited, 6),
    }
    return Emit("compact.pruned_messages", data, duration=prepared.waited)


def summary_call(ask: Ask, reply: SummaryReply, prices: Mapping[str, Any] | None, *, offline: bool) -> Emit:
    """What one call of a summarizer used: tokens as the provider counts them, else as we do; the cost if known."""
    model = "extract" if offline else ask.model or reply.model
    sent, received = (0, 0) if offline else reply.tokens or _counted_tokens(ask, reply)
    data = {
        "kind": ask.kind,
        "strategy": ask.strategy,
        "model": model,
        "input_tokens": sent,
        "output_tokens": received,
        "cost_usd": 0.0 if offline else cost_of(model, sent, received, prices),
    }
    return Emit("compact.summary_call", data, "error" if reply.error else "ok", reply.seconds)


def summary_created(ask: Ask, body: str, report: Report | None, replaced: int, seconds: float) -> Emit:
    """A summary that is used."""
    size = ask.count(body)
    data = {
        "strategy": ask.strategy,
        "kind": ask.kind,
        "input_messages": len(ask.source),
        "summary_tokens": size,
        "compression_ratio": round(1 - size / replaced, 4),
        "report": report.as_dict() if report is not None else None,
        "summary": body,
    }
    return Emit("compact.summary_created", data, duration=seconds)


def failure(error: CompactError, fallback: str, **context: Any) -> Emit:
    """What failed, and what is done instead."""
    data = {"error_type": type(error).__name__, "message": str(error), "fallback": fallback, **context}
    return Emit("compact.error", data, status="error")


def archival(session_id: str, step: int, adapter: str, key: str, size: int, sha256: str) -> Emit:
    """A write that the store acknowledged."""
    data = {
        "session_id": session_id,
        "step": step,
        "storage_adapter": adapter,
        "key": key,
        "bytes": size,
        "sha256": sha256,
    }
    return Emit("compact.archival", data)


def config_changed(changes: Mapping[str, Any]) -> Emit:
    """Parameters that were changed at run time."""
    return Emit("compact.config_changed", {"changed": changes})


# -- warnings --------------------------------------------------------------------------------------------------------


def _warning(code: str, severity: str, message: str, **context: Any) -> Emit:
    return Emit("compact.warning", {"code": code, "severity": severity, "message": message, **context})


def cannot_fit(history: History, fitted: Fitted) -> Emit:
    """Even the hardest compaction stays at or above the trigger."""
    limits = fitted.limits
    pinned = history.cost(sorted(history.pinned))
    rest = fitted.cost - limits.fixed - pinned
    return _warning(
        "cannot_fit",
        "high",
        f"tools and fixed parts {limits.fixed:,} + pinned {pinned:,} + newest messages and summary {rest:,} = "
        f"{fitted.cost:,} tokens stay at or above the trigger of {limits.trigger:,}: every compaction will end here. "
        "Raise trigger_pct or the window, or pin less and offer fewer tools.",
        needed=fitted.cost,
        trigger=limits.trigger,
        budget=limits.budget,
    )


def repaired_history(repairs: Sequence[str]) -> Emit:
    """A list that arrived broken was made valid."""
    return _warning("repaired_history", "low", "; ".join(repairs))


def redaction_disabled() -> Emit:
    """Redaction is switched off."""
    message = "redaction is off: secrets in messages are stored and exported unchanged"
    return _warning("redaction_disabled", "high", message)


def sent_unchanged(why: str) -> Emit:
    """An adapter sent a list without compacting it."""
    return _warning("sent_unchanged", "high", f"a list was sent unchanged, {why}")


# -- parts -----------------------------------------------------------------------------------------------------------


def _with_note(data: dict[str, Any], call: Call) -> dict[str, Any]:
    return data if call.purpose.note is None else {**data, "note": call.purpose.note}


def _layers(history: History, plan: Plan) -> dict[str, int]:
    """How much of each layer a plan keeps: pinned messages, recent turns, tool pairs."""
    kept = set(plan.kept)
    recent = kept - history.pinned - history.summaries
    return {
        "pinned": len(history.pinned & kept),
        "recent_turns": sum(any(i in recent and history[i].is_user for i in range(*turn)) for turn in history.turns),
        "tool_pairs": sum(block.tool and block.indices[0] in recent for block in history.blocks),
    }


def _counted_tokens(ask: Ask, reply: SummaryReply) -> tuple[int, int]:
    """What a call used where the provider does not report it: estimated from what the messages cost in the list."""
    if ask.tokens is None:
        sent = sum(ask.count(message["content"]) for message in ask.messages)
    else:
        sent = ask.tokens + sum(map(ask.count, ask.instructions)) + _FRAME_TOKENS + _LABEL_TOKENS * len(ask.source)
    return sent, ask.count(reply.text)
