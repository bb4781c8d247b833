"""The whole pipeline as one generator: mend, plan, archive, summarize, splice, judge.

Owns: the order of things, and what happens when one of them fails.
Must never: do I/O. It yields what it wants done (`_pipeline.effects`) and is told how that went; a sync and an async
driver
do the doing, so every rule exists once. (The precedent is httpx's auth flow.)

Archive first, then prune; a broken law never leaves; a fold is judged by its outcome.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import Any

from .._compaction.fit import Fitted, PlanLimits, estimate, fit
from .._compaction.laws import broken_by_plan
from .._compaction.layouts import LAYOUTS
from .._compaction.plan import Fold, Layout, Plan
from .._conversation.message import History
from .._facts.report import Report, merge_reports
from .._session.entries import Entry
from .._session.make_valid import ValidList, make_valid
from .._session.session import Prepared
from .._summary.marker import strip_marker
from .._summary.request import Ask
from ..config.sections import Policy
from ..errors import ArchiveError, BadSummary, CompactError, ConfigError, InsufficientBudget, LawViolation
from .effects import Effect, Emit, Refresh, SaveSummary, SaveTranscript, Work, failed, warning
from .events import cannot_fit, decided, pruned, swapped
from .job import Job, Outcome
from .rebuild import carry_out
from .summarize import FailureChain, Request, Summaries

__all__ = ["flow", "plan_for"]


def flow(job: Job) -> Generator[Effect, Any, Outcome]:
    """Carry out a fold that is due."""
    machine = job.session.machine
    machine.need(True)
    if not job.again and (yield Refresh()):
        return Outcome(stale=True)
    try:
        if job.prepared is not None:
            return (yield from _swap(job, job.prepared))
        return (yield from _fold(job))
    finally:
        machine.rest()
        if machine.state == "needed":
            machine.need(job.due)


def plan_for(job: Job, history: History) -> Fitted:
    """The plan a fold would carry out now; raises `InsufficientBudget` when none fits."""
    layout = job.policy.layout
    chosen: Layout = LAYOUTS[layout] if isinstance(layout, str) else layout
    fitted = fit(history, job.policy, _checked(chosen), job.room(history))
    room = fitted.room
    if job.squeeze and fitted.plan.folds:
        left = room.allowance + room.budget - fitted.cost
        most = job.summary.max_tokens + job.envelope_cost()
        asked_for = "max_tokens" in job.summary.model_fields_set
        room = replace(room, allowance=min(most, left) if asked_for else left)
    worth = [fold for fold in fitted.plan.folds if min(room.allowance, history.cost(fold.indices)) > room.least]
    gentler = fitted.plan.only(worth)
    plan = gentler if estimate(history, gentler, room) <= room.budget else fitted.plan
    return replace(fitted, plan=plan, room=room)


def _checked(layout: Layout) -> Layout:
    """A layout whose answer is known to be a plan."""

    def checked(history: History, policy: Policy) -> Plan:
        plan = layout(history, policy)
        if not isinstance(plan, Plan):
            raise ConfigError(f"policy.layout must return a Plan; it returned {type(plan).__name__}")
        return plan

    return checked


def _fold(job: Job) -> Generator[Effect, Any, Outcome]:
    session, machine = job.session, job.session.machine
    machine.to("in_progress")
    machine.enter("selecting")
    arrived, arrived_entries = job.outgoing()
    mended, history, fitted = yield Work(partial(_planned, job, arrived, arrived_entries))
    raws, entries = mended.raws, mended.entries
    if isinstance(fitted, InsufficientBudget):
        yield decided(job, "nothing fits")
        # A broken list may fit as it came and no longer once it is mended: then it goes out as it came.
        fits = job.usage.total <= job.lines.budget and job.policy.on_failure != "raise"
        yield failed(fitted, "unchanged" if fits else "none")
        return _unchanged(job, fitted)
    room = fitted.room
    if not (fitted.below_trigger or job.squeeze or "cannot_fit" in session.warned):
        session.warned.add("cannot_fit")
        yield cannot_fit(history, fitted)

    plan: Plan | None = fitted.plan
    if fitted.plan.changes and job.before_fold is not None:
        plan = job.before_fold(fitted.plan)
        if not isinstance(plan, Plan | None):
            raise ConfigError(f"before_fold must return a Plan, or None to skip; it returned {type(plan).__name__}")
    if plan is None or not plan.changes or _too_little(job, history, plan, room):
        yield decided(job, "skipped by before_fold" if plan is None else "nothing new to fold")
        return _unchanged(job, None)
    violation, asked = yield Work(partial(_looked_over, job, history, entries, plan))
    if violation is not None:
        yield decided(job, "the plan breaks a law")
        yield failed(violation, "unchanged")
        return _unchanged(job, violation)
    if session.failed_at == asked and not job.forced:
        yield decided(job, "failed before, and nothing new to fold")
        return _unchanged(job, BadSummary("this fold failed before, and there is nothing new to fold"))
    yield decided(job, None, plan, history)

    step = yield SaveTranscript(arrived)
    if isinstance(step, ArchiveError):
        yield failed(step, "unchanged")
        return _unchanged(job, step)

    summaries = yield from _summaries(job, history, plan, room)
    if summaries.failure is not None and summaries.fallback == "raise":
        session.failed_at = asked if isinstance(summaries.failure, BadSummary) else None
        raise summaries.failure

    machine.enter("replacing")
    as_fitted, bodies = plan is fitted.plan, summaries.bodies
    outcome = yield Work(partial(carry_out, job, history, raws, entries, plan, bodies, step, room, as_fitted=as_fitted))
    if isinstance(outcome, CompactError):
        session.failed_at = asked
        yield failed(outcome, "unchanged")
        return _unchanged(job, outcome)
    outcome = replace(outcome, fallback=summaries.fallback, report=merge_reports(summaries.reports))
    outcome = _told(job, outcome, mended, job.history(arrived_entries) if mended.sentences else history)
    if outcome.repairs:
        yield warning("repaired_history", "low", "; ".join(outcome.repairs))
    if job.ahead is not None:
        return outcome  # until it is needed nobody is told, least of all the archive: there the newest fold is in force
    return (yield from _leave(job, outcome, pruned(job, outcome, plan, history)))


def _planned(job: Job, raws: list[Any], entries: list[Entry]) -> tuple[ValidList, History, Fitted | InsufficientBudget]:
    """The list made valid, as the core sees it, and the plan for it, or why there is none."""
    mended = make_valid(job.reader, raws, entries)
    history = job.history(mended.entries)
    try:
        return mended, history, plan_for(job, history)
    except InsufficientBudget as error:
        return mended, history, error


def _looked_over(
    job: Job, history: History, entries: list[Entry], plan: Plan
) -> tuple[LawViolation | None, tuple[bytes, ...]]:
    """The law that a plan breaks, if any, and what would fold, by content."""
    violation = broken_by_plan(history, plan, job.policy, squeezed=job.squeeze)
    return violation, () if violation else tuple(entries[i].content() for i in sorted(plan.folded))


def _swap(job: Job, prepared: Prepared) -> Generator[Effect, Any, Outcome]:
    """Put a fold in force that was made ahead of need. The call is then opened once more, on what that leaves."""
    plan, history = prepared.outcome.plan, prepared.outcome.history
    job.session.machine.to("in_progress")
    job.session.machine.enter("selecting")
    yield decided(job, None, plan, history)
    job.session.machine.enter("replacing")
    outcome = yield from _leave(job, prepared.outcome, swapped(job, prepared))
    return replace(outcome, stale=outcome.changed)


def _leave(job: Job, outcome: Outcome, news: Emit) -> Generator[Effect, Any, Outcome]:
    """A fold goes into force once the archive has acknowledged what it did."""
    session, machine = job.session, job.session.machine
    acknowledged = yield SaveSummary(outcome)
    if isinstance(acknowledged, ArchiveError):
        yield failed(acknowledged, "unchanged")
        return _unchanged(job, acknowledged)
    yield news
    session.pressed = not outcome.below_trigger
    session.failed_at = None
    machine.enter("idle")
    machine.to("completed" if outcome.below_trigger else "needed")
    return outcome


def _told(job: Job, outcome: Outcome, mended: ValidList, arrived: History) -> Outcome:
    """The outcome in terms of the list that arrived, which may have been mended before it was folded."""
    assert outcome.plan is not None
    gone = [mended.origins[i] for i in (*outcome.plan.folded, *(clip.index for clip in outcome.plan.clips))]
    return replace(
        outcome,
        slots=tuple(mended.origins[slot] if isinstance(slot, int) else slot for slot in outcome.slots),
        gone=tuple(origin for origin in gone if isinstance(origin, int)),
        positions=arrived.positions,
        earlier=arrived.summaries,
        tokens=arrived.tokens,
        pinned=arrived.pinned,
        tools=frozenset(i for block in arrived.blocks if block.tool for i in block.indices),
        abandoned=arrived.abandoned,
        repairs=(*mended.sentences, *outcome.repairs),
        setting=job.setting(),
    )


def _too_little(job: Job, history: History, plan: Plan, room: PlanLimits) -> bool:
    """Whether this fold can wait: the last one could not get below the trigger, and little has come since."""
    if not job.session.pressed or job.forced or job.usage.total > job.lines.budget:
        return False
    fresh = history.cost([i for i in plan.folded if i not in history.summaries])
    return fresh < max(room.allowance, room.trigger // 20)


def _unchanged(job: Job, error: CompactError | None) -> Outcome:
    """The list goes out as it came, unless it is over budget, had to shrink, or failures are to be raised."""
    if job.must_shrink and error is None:
        total, budget = job.usage.total, job.lines.budget
        raise InsufficientBudget(
            f"nothing is left to fold: the list stays at {total:,} tokens; shorten the newest messages or pin less",
            needed=total,
            budget=budget,
        )
    if error is not None and (job.usage.total > job.lines.budget or job.policy.on_failure == "raise"):
        raise error
    return Outcome()


def _summaries(job: Job, history: History, plan: Plan, room: PlanLimits) -> Generator[Effect, Any, Summaries]:
    """A body for each fold of the plan, None where there is none; `rolling` shrinks one that has grown too long."""
    if not plan.folds:
        return Summaries([], [])
    machine, count = job.session.machine, job.reader.tally.count
    machine.enter("compacting")
    requests = [_request(job, history, fold, room) for fold in plan.folds]
    limit = job.summary.context_max_tokens if job.policy.layout == "rolling" else None
    chain = FailureChain(job.summary, machine, job.policy.on_failure, job.offline, limit, job.conceal)
    if room.allowance < room.least:
        left = BadSummary(f"{room.allowance:,} tokens are left for a summary, too few to say anything")
        yield failed(left, "pruning-only")
        reports: list[Report | None] = []
        for ask, _ in requests:
            reports.append((yield Work(partial(chain.measured, ask, ask.previous or ""))))
        return Summaries([None] * len(requests), reports, left, "pruning-only")
    summaries = yield from chain.summarize(requests)
    bodies = summaries.bodies
    for number, (ask, _) in enumerate(requests):
        body = bodies[number]
        if body is None and ask.previous is not None and count(ask.previous) > ask.max_tokens:
            # Pruning only: the earlier summary stays as it stands, unless it would not fit.
            bodies[number] = yield from _shrunk(job, ask, ask.previous, ask.max_tokens, offline=True)
        elif body is not None and limit is not None and count(body) > limit:
            bodies[number] = (yield from _shrunk(job, ask, body, limit, offline=job.offline)) or body
        if (now := bodies[number]) is not None and now != body:
            summaries.reports[number] = yield Work(partial(chain.measured, ask, now))
    return summaries


def _shrunk(job: Job, ask: Ask, notes: str, limit: int, *, offline: bool) -> Generator[Effect, Any, str | None]:
    """The same notes in fewer tokens, or None."""
    shrink = replace(ask, source=(), positions=(), previous=notes, max_tokens=limit, tokens=None)
    request = shrink, job.reader.tally.count(notes)
    shrunk = yield from FailureChain(job.summary, job.session.machine, "prune", offline, conceal=job.conceal).summarize(
        [request]
    )
    return shrunk.bodies[0]


def _request(job: Job, history: History, fold: Fold, room: PlanLimits) -> Request:
    """What to ask for one fold, and the tokens that a usable body must stay below."""
    fresh = [i for i in fold.indices if i not in history.summaries]
    old = [strip_marker(history[i].text) for i in fold.indices if i in history.summaries]
    envelope = job.envelope_cost()
    replaced = history.cost(fold.indices) - envelope
    limit = room.for_summary(history.cost(fold.indices)) - envelope
    ask = Ask(
        source=tuple(history[i] for i in fresh),
        positions=tuple(history.positions[i] for i in fresh),
        previous="\n".join(old) if old else None,
        strategy=job.policy.strategy,
        max_tokens=max(1, min(limit, replaced - 1)),
        temperature=job.summary.temperature,
        seed=job.summary.seed,
        model=job.summary.model,
        prompt=job.summary.prompt,
        tag=job.summary.summary_tag,
        count=job.reader.tally.count,
        tokens=history.cost(fold.indices),
    )
    return ask, replaced
