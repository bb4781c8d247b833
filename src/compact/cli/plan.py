"""The command `plan`: what a compaction would do to a conversation now.

Owns: `plan`, and `dry_run`, which `doctor` uses too. Must never: change or store anything, or call a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import PROBLEM, AllRows, ArchivePath, AsJson, ConfigFile, ModelName, Settings, Window, app, option_values
from .input import ConversationFile, ConversationId, LogFormat, config_for, read_conversation
from .output import one_line, show, show_json, spinner, table

if TYPE_CHECKING:
    from .._compaction.fit import Fitted
    from .._conversation.message import History
    from .._pipeline.job import Job
    from ..config import CompactConfig
    from ..importers import Conversation

__all__ = ["DryRun", "dry_run", "outcome", "verdict"]


@dataclass(frozen=True, slots=True)
class DryRun:
    """A compaction that is not carried out: the call, the list that it starts from, and the plan that fits."""

    job: Job
    history: History
    fitted: Fitted

    @property
    def after(self) -> int:
        """Tokens of the request after the compaction, with every summary at its largest."""
        return round(self.fitted.cost * self.job.factor) if self.fitted.plan.changes else self.job.usage.total


def dry_run(conversation: Conversation, config: CompactConfig, session: str | None) -> DryRun:
    """Plan a compaction, due or not; with a session, on top of its compactions in the archive.

    Raises `InsufficientBudget` when no plan fits.
    """
    from .._engine.manager import CompactManager
    from ..summarizers import offline_summarizer

    silent = {"console": False, "jsonl": None, "ariadne_url": None, "otlp_endpoint": None}
    config = config.changed(tracing=silent) if session else config.changed(tracing=silent, storage={"adapter": "none"})
    with CompactManager(config, summarizer=offline_summarizer()) as manager:
        return DryRun(*manager._dry_run(session or "dry run", conversation.messages, conversation.tools))


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
        dry = dry_run(conversation, config_for(config, options, conversation, path), session)
    if as_json:
        show_json(_plan_value(dry))
    else:
        _show_plan(conversation, dry, all_rows)
    if check and dry.job.decision:
        raise typer.Exit(PROBLEM)


def verdict(dry: DryRun) -> str:
    """Whether a compaction is due, and why."""
    decision, lines = dry.job.decision, dry.job.lines
    used = f"{decision.usage.total:,} tokens"
    if decision:
        line = decision.line or lines.trigger
        return f"A compaction is due ({', '.join(decision.reasons)}): {used}, and the limit is {line:,}."
    return f"No compaction is due: {used}, and one is due at {lines.trigger:,}."


def outcome(dry: DryRun) -> str:
    """The list after the compaction, in a sentence."""
    found = dry.fitted.plan
    if not found.changes:
        return "A compaction now would change nothing: no message may be compacted."
    before, summaries = dry.job.usage.total, len(found.folds)
    clipped = f", {len(found.clips):,} clipped" if found.clips else ""
    return (
        f"A compaction now would leave {len(found.slots):,} of {len(dry.history):,} messages and at most {dry.after:,} "
        f"tokens ({max(0, before - dry.after) / before:.0%} less): {len(found.folded):,} go into {summaries:,} "
        f"{'summary' if summaries == 1 else 'summaries'} of at most {dry.fitted.room.allowance:,} tokens{clipped}."
    )


def _pressed(dry: DryRun) -> str:
    """The retention settings that had to be lowered to fit."""
    asked, used = dry.job.policy, dry.fitted.policy
    names = ("keep_recent_turns", "keep_tool_io_pairs", "window_rounds")
    lowered = [f"{n} {getattr(asked, n)} to {getattr(used, n)}" for n in names if getattr(asked, n) != getattr(used, n)]
    return f"To fit, this compaction lowers {', '.join(lowered)}." if lowered else ""


def _fates(dry: DryRun) -> Iterator[tuple[int, str, str]]:
    """For each message whether it stays, and by which rule."""
    found, policy = dry.fitted.plan, dry.fitted.policy
    rules = {
        "recent turn": f"keep_recent_turns {policy.keep_recent_turns}",
        "tool pair": f"keep_tool_io_pairs {policy.keep_tool_io_pairs}",
        "recent round": f"window_rounds {policy.window_rounds}",
        "retention window": f"retention_window {policy.retention_window}",
        "folds": "no rule keeps it",
        "newest": "the newest",
        "left": "not worth compacting",
    }
    clips = {clip.index: clip.tokens for clip in found.clips}
    for index in range(len(dry.history)):
        why = found.why.get(index, "nothing to fold")
        fate = "clipped" if index in clips else "folds" if index in found.folded else "stays"
        rule = f"cut to {clips[index]:,} tokens of output" if index in clips else rules.get(why, why)
        yield index, fate, rule


def _plan_value(dry: DryRun) -> dict[str, Any]:
    job, fates = dry.job, list(_fates(dry))
    return {
        "due": bool(job.decision),
        "reasons": list(job.decision.reasons),
        **job.setting(),
        "usage": job.usage.breakdown(),
        "tokens_before": job.usage.total,
        "tokens_after_at_most": dry.after,
        "summary_at_most": dry.fitted.room.allowance if dry.fitted.plan.folds else 0,
        "messages": [
            {"index": i, "role": dry.history[i].role, "tokens": dry.history.tokens[i], "fate": fate, "rule": rule}
            for i, fate, rule in fates
        ],
    }


def _show_plan(conversation: Conversation, dry: DryRun, all_rows: bool) -> None:
    from .._conversation.message import readable

    rows = table(">#", ">messages", ">tokens", "", "rule", "begins with", wide="begins with")
    runs: Iterable[list[tuple[int, str, str]]] = (
        ([one] for one in _fates(dry)) if all_rows else (list(run) for _, run in groupby(_fates(dry), lambda f: f[1:]))
    )
    for run in runs:
        first, fate, rule = run[0]
        place = f"{first:,}" if len(run) == 1 else f"{first:,}-{run[-1][0]:,}"
        tokens = dry.history.cost([index for index, *_ in run])
        message = dry.history[first]
        text = one_line(f"{message.role}: {readable(message)}")
        rows.add_row(place, f"{len(run):,}", f"{tokens:,}", fate, rule, text, style="dim" if fate == "folds" else None)
    lines, job = dry.job.lines, dry.job
    show(
        f"{one_line(conversation.source)}, {job.model}, {job.policy.layout_name}: window {lines.window:,}, "
        f"budget {lines.budget:,}, compaction at {lines.trigger:,}",
        verdict(dry),
        "",
        rows,
        "",
        outcome(dry),
        *filter(None, [_pressed(dry)]),
    )
