"""Carry a plan out and weigh the result: splice, read what was made, mend, check the laws.

Owns: the step from a plan and its summaries to a list that may leave. Must never: let a broken law pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._compaction.fit import PlanLimits
from .._compaction.laws import FoldCase, broken_law
from .._compaction.plan import Clip, Fold, Plan
from .._compaction.splice import Piece, shorten, splice
from .._conversation.message import History
from .._session.entries import Entry
from .._session.make_valid import make_valid
from .._summary.marker import add_marker
from ..errors import BadSummary, CompactError, InsufficientBudget, LawViolation
from .job import Job, Outcome

__all__ = ["carry_out"]


def carry_out(
    job: Job,
    history: History,
    raws: Sequence[Any],
    entries: Sequence[Entry],
    plan: Plan,
    bodies: Sequence[str | None],
    step: int,
    room: PlanLimits,
    *,
    as_fitted: bool,
) -> Outcome | CompactError:
    """The new list, or the law that it would break. A plan `as_fitted` that comes to too much has broken none."""
    pieces, version = _spliced(job, history, raws, plan, bodies, step)
    made = [_entry(job, history, raws, entries, piece) for piece in pieces]
    mended = make_valid(job.reader, [piece.raw for piece in pieces], made)
    after = job.history(mended.entries)
    sources = [pieces[origin].slot if isinstance(origin, int) else None for origin in mended.origins]
    case = FoldCase(
        before=history,
        plan=plan,
        after=after,
        sources=tuple(sources),
        policy=job.policy,
        fixed=room.fixed,
        budget=room.budget,
        allowance=room.allowance,
        problems=tuple(problem.message for problem in job.reader.dialect.problems(after.messages)),
        squeezed=job.squeeze,
        kept_identical=all(piece.raw is raws[piece.slot] for piece in pieces if isinstance(piece.slot, int)),
    )
    if (violation := broken_law(case, "list")) is not None:
        return (_in_vain(violation, case) if as_fitted else None) or violation
    total = room.fixed + after.total
    before = [_kept_index(piece, raws) for piece in pieces]
    return Outcome(
        changed=True,
        plan=plan,
        history=history,
        raws=mended.raws,
        entries=mended.entries,
        slots=tuple(_slot(origin, before, made) for origin in mended.origins),
        bodies=tuple(bodies),
        step=step,
        version=version,
        tokens_before=job.usage.total,
        tokens_after=round(total * job.factor),
        below_trigger=total < room.trigger,
        repairs=mended.sentences,
    )


def _in_vain(violation: LawViolation, case: FoldCase) -> CompactError | None:
    """A fitting plan that did not work out: an earlier summary stays, or a provider's rules add something."""
    total = case.fixed + case.after.total
    if violation.law == "budget":
        return InsufficientBudget(
            f"cannot fit: with an earlier summary or what the provider's rules add, {total:,} tokens are left, "
            f"{total - case.budget:,} over the budget of {case.budget:,}; shorten the newest messages, or raise the "
            "window",
            needed=total,
            budget=case.budget,
        )
    if violation.law == "smaller":
        return BadSummary(
            f"with what the provider's rules add, the list would have {total:,} tokens: nothing is gained"
        )
    return None


def _spliced(
    job: Job, history: History, raws: Sequence[Any], plan: Plan, bodies: Sequence[str | None], step: int
) -> tuple[list[Piece], int]:
    dialect, count, tag = job.reader.dialect, job.reader.tally.count, job.summary.summary_tag
    body_of = dict(zip(plan.folds, bodies, strict=True))
    version = job.session.version

    def summary(fold: Fold, pieces: list[Piece]) -> Any | None:
        nonlocal version
        body = body_of[fold]
        if body is None:  # pruning only: an earlier summary stays as it stands
            return next((raws[i] for i in fold.indices if i in history.summaries), None)
        version += 1
        first = all(isinstance(p.slot, int) and history[p.slot].role in ("system", "developer") for p in pieces)
        return job.reader.summary(add_marker(body, tag, version), first=first, model=job.model)

    def clip(slot: Clip) -> Any:
        where = (
            f"whole in the archive: step {step}, #{history.positions[slot.index]}" if job.archived else "not archived"
        )
        return dialect.clip(raws[slot.index], lambda text: shorten(text, slot.tokens, where, count))

    return splice(raws, plan, summary, clip), version


def _entry(job: Job, history: History, raws: Sequence[Any], entries: Sequence[Entry], piece: Piece) -> Entry:
    """What a piece says and costs; kept messages keep the entry they have."""
    index = _kept_index(piece, raws)
    if index is not None:
        return entries[index]
    message = job.reader.dialect.read(piece.raw)
    covered = piece.slot.indices if isinstance(piece.slot, Fold) else (piece.slot.index,)  # type: ignore[union-attr]
    position = max(history.positions[i] for i in covered)
    return Entry(message, job.reader.cost(message), position, summary=isinstance(piece.slot, Fold))


def _kept_index(piece: Piece, raws: Sequence[Any]) -> int | None:
    """The index a piece had before, when it is one of the messages that came in."""
    if isinstance(piece.slot, int):
        return piece.slot
    if isinstance(piece.slot, Fold):
        return next((i for i in piece.slot.indices if raws[i] is piece.raw), None)
    return None


def _slot(origin: int | Entry, before: Sequence[int | None], made: Sequence[Entry]) -> int | Entry:
    """Where a message that goes out stood before the fold; its entry when the fold or a repair made it."""
    if not isinstance(origin, int):
        return origin
    index = before[origin]
    return made[origin] if index is None else index
