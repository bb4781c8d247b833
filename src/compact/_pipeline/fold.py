"""One compaction as a generator: make valid, plan, archive, summarize, rebuild, record.

Owns: the order of the steps, and what happens when one of them fails.
Must never: do I/O, or change the session. It yields effects and gets their results; what the session has to remember
is in the `Outcome` it returns. So sync and async share every rule. (The precedent is httpx's auth flow.)

The transcript is archived before anything is dropped; a list that breaks a law never goes out.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from .._compaction.fit import PlanLimits
from .._compaction.laws import broken_by_plan
from .._compaction.layouts import layout_of
from .._compaction.plan import Fold, Plan
from .._conversation.message import History
from .._facts.report import Report, merge_reports
from .._session.make_valid import ValidList, make_valid
from .._session.session import FoldRecord, SessionChange
from .._summary.marker import strip_marker
from .._summary.request import Ask
from ..errors import ArchiveError, BadSummary, CompactError, ConfigError, InsufficientBudget
from . import events
from .call import Call
from .effects import Effect, Emit, Move, Refresh, SaveRecord, SaveTranscript, Steps
from .outcome import Compacted, Outcome, Prepared
from .planning import envelope_tokens, plan_for
from .rebuild import Rebuilt, rebuild
from .summarize import FailureChain, Request, Summaries


def compact_list(call: Call) -> Steps:
    """Carry out a compaction that is due."""
    yield Move(state="needed")
    if not call.reopened and (yield Refresh()):
        return Outcome(stale=True)
    if call.prepared is not None:
        return (yield from _use_prepared(call, call.prepared))
    return (yield from _compact(call))


def _compact(call: Call) -> Steps:
    session = call.session
    yield Move(state="in_progress", phase="selecting")
    raws, entries = call.outgoing()
    valid = make_valid(call.reader, raws, entries)
    history = call.history(valid.entries)
    try:
        fitted = plan_for(call, history)
    except InsufficientBudget as error:
        yield events.decision(call, "nothing fits")
        # A broken list may fit as it came and no longer once it is valid: then it goes out as it came.
        fits = call.usage.total <= call.limits.budget and call.policy.on_failure != "raise"
        yield events.failure(error, "unchanged" if fits else "none")
        return _leave_unchanged(call, error)
    limits, warned = fitted.limits, session.warned
    if not (fitted.below_trigger or call.one_shot or "cannot_fit" in warned):
        warned |= {"cannot_fit"}
        yield events.cannot_fit(history, fitted)

    plan: Plan | None = fitted.plan
    if fitted.plan.changes and call.before_fold is not None:
        plan = call.before_fold(fitted.plan)
        if not isinstance(plan, Plan | None):
            raise ConfigError(f"before_fold must return a Plan, or None to skip; it returned {type(plan).__name__}")
    if plan is None or not plan.changes or _gains_too_little(call, history, plan, limits):
        yield events.decision(call, "skipped by before_fold" if plan is None else "nothing new to fold")
        return _leave_unchanged(call, None, warned=warned)
    if (violation := broken_by_plan(history, plan, call.policy, squeezed=call.one_shot)) is not None:
        yield events.decision(call, "the plan breaks a law")
        yield events.failure(violation, "unchanged")
        return _leave_unchanged(call, violation, warned=warned)
    folded = tuple(valid.entries[i].content() for i in sorted(plan.folded))
    if session.failed_fold == folded and not call.forced:
        yield events.decision(call, "failed before, and nothing new to fold")
        again = BadSummary("this compaction failed before, and there is nothing new to fold")
        return _leave_unchanged(call, again, warned=warned)
    yield events.decision(call, None, plan, history)

    step = yield SaveTranscript(raws)
    if isinstance(step, ArchiveError):
        yield events.failure(step, "unchanged")
        return _leave_unchanged(call, step, warned=warned)

    summaries = yield from _summarize(call, history, plan, limits)
    if summaries.failure is not None and summaries.fallback == "raise":
        failed = folded if isinstance(summaries.failure, BadSummary) else None
        above = session.above_trigger
        return Outcome(error=summaries.failure, above_trigger=above, failed_fold=failed, warned=warned)

    yield Move(phase="replacing")
    rebuilt = rebuild(call, history, valid, plan, summaries.bodies, step, limits, as_fitted=plan is fitted.plan)
    if isinstance(rebuilt, CompactError):
        yield events.failure(rebuilt, "unchanged")
        return _leave_unchanged(call, rebuilt, warned=warned, failed_fold=folded)
    if repairs := (*valid.sentences, *rebuilt.repairs):
        yield events.repaired_history(repairs)
    arrived = call.history(entries) if valid.sentences else history
    compacted = _describe_result(call, arrived, valid, history, plan, rebuilt, summaries, step)
    if call.headroom is not None:  # in the background: recorded when it is used, because the newest record is active
        return Outcome(compacted, warned=warned)
    return (yield from _record(call, compacted, events.pruned_messages(call, compacted), warned))


def _use_prepared(call: Call, prepared: Prepared) -> Steps:
    """Activate a background compaction. The call is then opened again, on the list that it leaves."""
    made = prepared.compacted
    yield Move(state="in_progress", phase="selecting")
    yield events.decision(call, None, made.plan, made.history)
    yield Move(phase="replacing")
    outcome = yield from _record(call, made, events.prepared_used(call, prepared), call.session.warned)
    return replace(outcome, stale=outcome.compacted is not None)


def _record(call: Call, compacted: Compacted, pruned: Emit, warned: frozenset[str]) -> Steps:
    """A compaction is active once the archive has acknowledged its record."""
    error = yield SaveRecord(compacted)
    if isinstance(error, ArchiveError):
        yield events.failure(error, "unchanged")
        return _leave_unchanged(call, error, warned=warned)
    yield pruned
    below = compacted.below_trigger
    yield Move(state="completed" if below else "needed", phase="idle")
    return Outcome(compacted, above_trigger=not below, warned=warned)


def _leave_unchanged(
    call: Call,
    error: CompactError | None,
    *,
    warned: frozenset[str] | None = None,
    failed_fold: tuple[bytes, ...] | None = None,
) -> Outcome:
    """The list goes out as it came, unless it is over budget, had to shrink, or failures are to be raised."""
    session, total, budget = call.session, call.usage.total, call.limits.budget
    if error is None and call.must_shrink:
        error = InsufficientBudget(
            f"nothing is left to fold: the list stays at {total:,} tokens; shorten the newest messages or pin less",
            needed=total,
            budget=budget,
        )
    elif total <= budget and call.policy.on_failure != "raise":
        error = None
    return Outcome(
        error=error,
        above_trigger=session.above_trigger,
        failed_fold=failed_fold or session.failed_fold,
        warned=session.warned if warned is None else warned,
    )


def _gains_too_little(call: Call, history: History, plan: Plan, limits: PlanLimits) -> bool:
    """Whether this compaction can wait: the last one stayed above the trigger, and little has been added since."""
    if not call.session.above_trigger or call.forced or call.usage.total > call.limits.budget:
        return False
    fresh = history.cost([i for i in plan.folded if i not in history.summaries])
    return fresh < max(limits.allowance, limits.trigger // 20)


# -- summaries -------------------------------------------------------------------------------------------------------


def _summarize(call: Call, history: History, plan: Plan, limits: PlanLimits) -> Generator[Effect, Any, Summaries]:
    """A body for each fold of the plan, None where there is none; a layout may ask to shorten a long one."""
    if not plan.folds:
        return Summaries([], [])
    yield Move(phase="compacting")
    count = call.reader.counter.count
    requests = [_request(call, history, fold, limits) for fold in plan.folds]
    most = call.summary.context_max_tokens if layout_of(call.policy).shrinks_summary else None
    chain = FailureChain(call.summary, call.policy.on_failure, call.offline, most, call.redact)
    if limits.allowance < limits.smallest_summary:
        error = BadSummary(f"{limits.allowance:,} tokens are left for a summary, too few to say anything")
        yield events.failure(error, "pruning-only")
        reports: list[Report | None] = [chain.measure(ask, ask.previous or "") for ask, _ in requests]
        return Summaries([None] * len(requests), reports, error, "pruning-only")
    summaries = yield from chain.summarize(requests)
    bodies = summaries.bodies
    for number, (ask, _) in enumerate(requests):
        body = bodies[number]
        if body is None and ask.previous is not None and count(ask.previous) > ask.max_tokens:
            # Pruned without a summary: the earlier one stays unchanged, unless it would not fit.
            bodies[number] = yield from _shorten(call, ask, ask.previous, ask.max_tokens, offline=True)
        elif body is not None and most is not None and count(body) > most:
            bodies[number] = (yield from _shorten(call, ask, body, most, offline=call.offline)) or body
        if (now := bodies[number]) is not None and now != body:
            summaries.reports[number] = chain.measure(ask, now)
    return summaries


def _shorten(call: Call, ask: Ask, notes: str, limit: int, *, offline: bool) -> Generator[Effect, Any, str | None]:
    """The same notes in fewer tokens, or None."""
    shrink = replace(ask, source=(), positions=(), previous=notes, max_tokens=limit, tokens=None)
    chain = FailureChain(call.summary, "prune", offline, redact=call.redact)
    summaries = yield from chain.summarize([(shrink, call.reader.counter.count(notes))])
    return summaries.bodies[0]


def _request(call: Call, history: History, fold: Fold, limits: PlanLimits) -> Request:
    """The summary request of one fold, and the tokens that a usable body must stay below."""
    fresh = [i for i in fold.indices if i not in history.summaries]
    old = [strip_marker(history[i].text) for i in fold.indices if i in history.summaries]
    envelope = envelope_tokens(call)
    cost = history.cost(fold.indices)
    replaced = cost - envelope
    limit = limits.summary_limit(cost) - envelope
    ask = Ask(
        source=tuple(history[i] for i in fresh),
        positions=tuple(history.positions[i] for i in fresh),
        previous="\n".join(old) if old else None,
        strategy=call.policy.strategy,
        max_tokens=max(1, min(limit, replaced - 1)),
        temperature=call.summary.temperature,
        seed=call.summary.seed,
        model=call.summary.model,
        prompt=call.summary.prompt,
        tag=call.summary.summary_tag,
        count=call.reader.counter.count,
        tokens=cost,
    )
    return ask, replaced


# -- what is recorded ------------------------------------------------------------------------------------------------


def _describe_result(
    call: Call,
    arrived: History,
    valid: ValidList,
    history: History,
    plan: Plan,
    rebuilt: Rebuilt,
    summaries: Summaries,
    step: int,
) -> Compacted:
    """The compaction in terms of the list that arrived, which may have been made valid before it was planned on."""
    gone = [valid.origins[i] for i in (*plan.folded, *(clip.index for clip in plan.clips))]
    slots = tuple(valid.origins[slot] if isinstance(slot, int) else slot for slot in rebuilt.slots)
    lines = [origin for origin in gone if isinstance(origin, int)]
    replay = call.host_list.make_replay(slots, lines, step, rebuilt.version)
    fold = FoldRecord(
        step=step,
        version=rebuilt.version,
        reasons=call.decision.reasons,
        range=_position_range(call, history, plan),
        folded=len(plan.folded),
        tokens_before=call.usage.total,
        tokens_after=rebuilt.tokens,
        fallback=summaries.fallback,
        note=call.purpose.note,
        report=merge_reports(summaries.reports),
    )
    change = SessionChange(fold, replay, rebuilt.raws, rebuilt.entries, arrived.abandoned)
    return Compacted(
        change, plan, history, arrived, slots, tuple(summaries.bodies), rebuilt.below_trigger, call.settings()
    )


def _position_range(call: Call, history: History, plan: Plan) -> tuple[int, int]:
    """The session positions that the summaries stand for; the start never goes backwards."""
    folds = call.session.folds
    folded = [history.positions[i] for i in (plan.folded or {clip.index for clip in plan.clips})]
    start = min(folded)
    if history.summaries & plan.folded and folds:
        start = folds[-1].range[0]
    elif len(plan.folds) == 1 and not layout_of(call.policy).per_run:
        # One summary for all that is old, also for a pair that was kept and will fold into it later.
        start = min(p for i, p in enumerate(history.positions) if i not in history.pinned)
    if folds and start < folds[-1].range[0] <= max(folded):
        start = folds[-1].range[0]  # a run that an earlier compaction left as too short
    return start, max(folded)
