"""The command `plan`: what a compaction would do to a conversation now.

Owns: `plan`, and `dry_run`, which `doctor` uses too. Must never: change or store anything, or call a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import PROBLEM, AllRows, ArchivePath, AsJson, ConfigFile, ModelName, Settings, Window, app, option_values
from .input import ConversationFile, ConversationId, LogFormat, config_for, read_conversation
from .output import one_line, show, show_json, spinner, table

if TYPE_CHECKING:
    from .._compaction.plan import Plan, PlanCosts
    from ..config import CompactConfig
    from ..importers import Conversation


def dry_run(conversation: Conversation, config: CompactConfig, session: str | None) -> Plan:
    """What a compaction would do now, due or not; with a session, on top of those in the archive.

    Raises `InsufficientBudget` when nothing fits.
    """
    from .. import CompactManager
    from ..summarizers import offline_summarizer

    silent = {"console": False, "jsonl": None, "ariadne_url": None, "otlp_endpoint": None}
    config = config.changed(tracing=silent) if session else config.changed(tracing=silent, storage={"adapter": "none"})
    with CompactManager(config, summarizer=offline_summarizer()) as manager:
        return manager.plan(session or "dry run", conversation.messages, tools=conversation.tools)


def costs_of(plan: Plan) -> PlanCosts:
    """What a plan of the manager costs."""
    assert plan.costs is not None
    return plan.costs


@app.command()
def plan(
    file: ConversationFile,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="Start from the compactions of this session in the archive.")
    ] = None,
    id: ConversationId = None,
    log_format: LogFormat = None,
    model: ModelName = None,
    window: Window = None,
    all_rows: AllRows = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 3 when a compaction is due.")] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
    settings: Settings = None,
    path: ArchivePath = None,
) -> None:
    """Show what a compaction would do now: which messages it removes or keeps, and by which rule. Changes nothing.

    Example:  compact plan chat.json --window 32000
    """
    conversation = read_conversation(file, id, log_format)
    options = option_values(settings, model, window)
    with spinner("planning"):
        chosen = config_for(config, options, conversation, path)
        found = dry_run(conversation, chosen, session)
    if as_json:
        show_json(_plan_value(found, chosen))
    else:
        _show_plan(conversation, found, chosen, all_rows)
    if check and costs_of(found).reasons:
        raise typer.Exit(PROBLEM)


def verdict(plan: Plan) -> str:
    """Whether a compaction is due, and why."""
    costs = costs_of(plan)
    used = f"{costs.usage.total:,} tokens"
    if costs.reasons:
        limit = costs.line or costs.limits.trigger
        return f"A compaction is due ({', '.join(costs.reasons)}): {used}, and the limit is {limit:,}."
    return f"No compaction is due: {used}, and one is due at {costs.limits.trigger:,}."


def outcome(plan: Plan) -> str:
    """What the list would be after the compaction."""
    if not plan.changes:
        return "A compaction now would change nothing: no message may be compacted."
    costs, summaries = costs_of(plan), len(plan.folds)
    before, after = costs.usage.total, costs.tokens_after
    clipped = f", {len(plan.clips):,} clipped" if plan.clips else ""
    return (
        f"A compaction now would leave {len(plan.slots):,} of {plan.size:,} messages and at most {after:,} tokens "
        f"({max(0, before - after) / before:.0%} less): {len(plan.folded):,} go into {summaries:,} "
        f"{'summary' if summaries == 1 else 'summaries'} of at most {costs.summary_tokens:,} tokens{clipped}."
    )


def _lowered_keeps(plan: Plan, config: CompactConfig) -> str:
    """Keep counts that had to be lowered for this compaction."""
    asked, used = config.policy, costs_of(plan).policy
    names = ("keep_recent_turns", "keep_tool_io_pairs", "window_rounds")
    lowered = [f"{n} {getattr(asked, n)} to {getattr(used, n)}" for n in names if getattr(asked, n) != getattr(used, n)]
    return f"To fit, this compaction lowers {', '.join(lowered)}." if lowered else ""


def _fates(plan: Plan) -> Iterator[tuple[int, str, str]]:
    """For each message its fate and the rule behind it."""
    policy = costs_of(plan).policy
    rules = {
        "recent turn": f"keep_recent_turns {policy.keep_recent_turns}",
        "tool pair": f"keep_tool_io_pairs {policy.keep_tool_io_pairs}",
        "recent round": f"window_rounds {policy.window_rounds}",
        "retention window": f"retention_window {policy.retention_window}",
        "folds": "no rule keeps it",
        "newest": "the newest",
        "left": "not worth compacting",
    }
    clips = {clip.index: clip.tokens for clip in plan.clips}
    for index in range(plan.size):
        why = plan.why.get(index, "nothing to fold")
        fate = "clipped" if index in clips else "folds" if index in plan.folded else "stays"
        rule = f"cut to {clips[index]:,} tokens of output" if index in clips else rules.get(why, why)
        yield index, fate, rule


def _plan_value(plan: Plan, config: CompactConfig) -> dict[str, Any]:
    costs = costs_of(plan)
    return {
        "due": bool(costs.reasons),
        "reasons": list(costs.reasons),
        "model": config.model,
        "layout": config.policy.layout_name,
        "strategy": config.policy.strategy,
        "window": costs.limits.window,
        "trigger": costs.limits.trigger,
        "budget": costs.limits.budget,
        "usage": costs.usage.breakdown(),
        "tokens_before": costs.usage.total,
        "tokens_after_at_most": costs.tokens_after,
        "summary_at_most": costs.summary_tokens,
        "messages": [
            {"index": i, "role": costs.history[i].role, "tokens": costs.history.tokens[i], "fate": fate, "rule": rule}
            for i, fate, rule in _fates(plan)
        ],
    }


def _show_plan(conversation: Conversation, plan: Plan, config: CompactConfig, all_rows: bool) -> None:
    from .._conversation.message import readable_text

    costs = costs_of(plan)
    rows = table(">#", ">messages", ">tokens", "", "rule", "begins with", wide="begins with")
    runs: Iterable[list[tuple[int, str, str]]] = (
        ([one] for one in _fates(plan))
        if all_rows
        else (list(run) for _, run in groupby(_fates(plan), lambda f: f[1:]))
    )
    for run in runs:
        first, fate, rule = run[0]
        place = f"{first:,}" if len(run) == 1 else f"{first:,}-{run[-1][0]:,}"
        tokens = costs.history.cost([index for index, *_ in run])
        message = costs.history[first]
        text = one_line(f"{message.role}: {readable_text(message)}")
        rows.add_row(place, f"{len(run):,}", f"{tokens:,}", fate, rule, text, style="dim" if fate == "folds" else None)
    limits = costs.limits
    show(
        f"{one_line(conversation.source)}, {config.model}, {config.policy.layout_name}: window {limits.window:,}, "
        f"budget {limits.budget:,}, compaction at {limits.trigger:,}",
        verdict(plan),
        "",
        rows,
        "",
        outcome(plan),
        *filter(None, [_lowered_keeps(plan, config)]),
    )
