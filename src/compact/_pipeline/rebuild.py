"""From a plan and its summaries to a list that may go out: splice, read what was made, make it valid, check the laws.

Owns: `rebuild`. Must never: let a list out that breaks a law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from .._compaction.fit import PlanLimits
from .._compaction.laws import FoldCase, broken_law
from .._compaction.plan import Clip, Fold, Plan
from .._compaction.splice import Piece, shorten, splice
from .._conversation.message import History
from .._session.entries import Entry
from .._session.make_valid import ValidList, make_valid
from .._summary.marker import add_marker
from ..errors import BadSummary, CompactError, InsufficientBudget, LawViolation
from .call import Call

_INSTRUCTIONS = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A list that may go out."""

    raws: list[Any]
    entries: list[Entry]
    slots: tuple[int | Entry, ...]
    """For each message its index in the list before, or the entry that was made for it."""
    version: int
    tokens: int
    below_trigger: bool
    repairs: tuple[str, ...]


def rebuild(
    call: Call,
    history: History,
    valid: ValidList,
    plan: Plan,
    bodies: Sequence[str | None],
    step: int,
    limits: PlanLimits,
    *,
    as_fitted: bool,
) -> Rebuilt | CompactError:
    """The new list, or the law that it would break. A plan `as_fitted` that costs too much has broken none."""
    raws, entries = valid.raws, valid.entries
    replacements, version = _replacements(call, history, raws, plan, bodies, step)
    pieces = splice(raws, plan, replacements)
    made = [_entry_of(call, history, raws, entries, piece) for piece in pieces]
    result = make_valid(call.reader, [piece.raw for piece in pieces], made)
    after = call.history(result.entries)
    sources = [pieces[origin].slot if isinstance(origin, int) else None for origin in result.origins]
    case = FoldCase(
        before=history,
        plan=plan,
        after=after,
        sources=tuple(sources),
        policy=call.policy,
        fixed=limits.fixed,
        budget=limits.budget,
        allowance=limits.allowance,
        problems=tuple(problem.message for problem in call.reader.format.problems(after.messages)),
        squeezed=call.one_shot,
        kept_identical=all(piece.raw is raws[piece.slot] for piece in pieces if isinstance(piece.slot, int)),
    )
    if (violation := broken_law(case, "list")) is not None:
        return (_excess(violation, case) if as_fitted else None) or violation
    total = limits.fixed + after.total
    before = [_kept_index(piece, raws) for piece in pieces]
    return Rebuilt(
        raws=result.raws,
        entries=result.entries,
        slots=tuple(_slot_of(origin, before, made) for origin in result.origins),
        version=version,
        tokens=round(total * call.factor),
        below_trigger=total < limits.trigger,
        repairs=result.sentences,
    )


def _excess(violation: LawViolation, case: FoldCase) -> CompactError | None:
    """Why a plan that fitted costs too much: an earlier summary stays, or a provider's rules add something."""
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


def _replacements(
    call: Call, history: History, raws: Sequence[Any], plan: Plan, bodies: Sequence[str | None], step: int
) -> tuple[dict[Fold | Clip, Any | None], int]:
    """The messages that replace folds and clips, and the version of the last summary."""
    count, message_format = call.reader.counter.count, call.reader.format
    body_of = dict(zip(plan.folds, bodies, strict=True))
    version = call.session.version
    first = True
    replacements: dict[Fold | Clip, Any | None] = {}
    for slot in plan.slots:
        if isinstance(slot, int):
            first = first and history[slot].role in _INSTRUCTIONS
        elif isinstance(slot, Clip):
            position = history.positions[slot.index]
            where = f"whole in the archive: step {step}, #{position}" if call.archived else "not archived"
            cut = partial(shorten, tokens=slot.tokens, where=where, count=count)
            replacements[slot] = message_format.clip(raws[slot.index], cut)
            first = False
        elif (body := body_of[slot]) is None:  # pruned without a summary: an earlier one stays unchanged
            replacements[slot] = next((raws[i] for i in slot.indices if i in history.summaries), None)
            first = first and replacements[slot] is None
        else:
            version += 1
            text = add_marker(body, call.summary.summary_tag, version)
            replacements[slot] = call.reader.summary(text, first=first, model=call.model)
            first = False
    return replacements, version


def _entry_of(call: Call, history: History, raws: Sequence[Any], entries: Sequence[Entry], piece: Piece) -> Entry:
    """A piece as an entry; kept messages keep the entry they have."""
    index = _kept_index(piece, raws)
    if index is not None:
        return entries[index]
    message = call.reader.format.read(piece.raw)
    covered = piece.slot.indices if isinstance(piece.slot, Fold) else (piece.slot.index,)  # type: ignore[union-attr]
    position = max(history.positions[i] for i in covered)
    return Entry(message, call.reader.cost(message), position, summary=isinstance(piece.slot, Fold))


def _kept_index(piece: Piece, raws: Sequence[Any]) -> int | None:
    """The index a piece had before, when it is one of the messages that came in."""
    if isinstance(piece.slot, int):
        return piece.slot
    if isinstance(piece.slot, Fold):
        return next((i for i in piece.slot.indices if raws[i] is piece.raw), None)
    return None


def _slot_of(origin: int | Entry, before: Sequence[int | None], made: Sequence[Entry]) -> int | Entry:
    """The index of a message in the list before; its entry when the compaction or a repair made it."""
    if not isinstance(origin, int):
        return origin
    index = before[origin]
    return made[origin] if index is None else index
