"""What must hold of every compaction, as code, for the pipeline, `compact verify`, property tests and documentation.

Owns: `LAWS`. Must never: repair anything; a law reports what is wrong, the pipeline decides what happens then.

Each law is a small predicate `(FoldCase) -> str | None`: None when it holds, else one sentence. A law about one layout
holds for the others by default. Laws of a plan are checked before anything is archived or summarized, so that a plan
that would fold a pinned message never shows it to a summarizer; laws of a list before it is returned. Layouts move
whole blocks and so obey the laws; the check guards against a user's layout or `before_fold`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .._conversation.message import History
from ..config.sections import Policy
from ..errors import LawViolation
from .layouts import layout_of
from .plan import Clip, Fold, Plan, Slot


@dataclass(frozen=True, slots=True)
class FoldCase:
    """A compaction to check: the list before, the plan, the list after, and the limits."""

    before: History
    plan: Plan
    after: History
    sources: tuple[Slot | None, ...]
    """For each message after, the slot it came from; None for a message that a repair added."""
    policy: Policy
    fixed: int
    budget: int
    allowance: int
    problems: tuple[str, ...] = ()
    """What the provider would reject in the list after."""
    kept_identical: bool = True
    """Whether every kept message is the very object that came in."""
    squeezed: bool = False
    """Whether even the newest user message may fold (the one-shot form)."""


@dataclass(frozen=True, slots=True)
class Law:
    """A law: its rows in the specification, its sentence, its predicate, and what it checks."""

    id: str
    rows: tuple[str, ...]
    says: str
    broken: Callable[[FoldCase], str | None]
    judges: Literal["plan", "list"] = "plan"


def _accounted(case: FoldCase) -> str | None:
    seen = [*case.plan.kept, *(i for fold in case.plan.folds for i in fold.indices)]
    if sorted(seen) != list(range(len(case.before))):
        return f"{len(case.before)} messages came in, {len(seen)} are accounted for"
    return None


def _identical(case: FoldCase) -> str | None:
    return None if case.kept_identical else "a kept message is not the object that came in"


def _pins(case: FoldCase) -> str | None:
    whole = {slot for slot in case.plan.slots if isinstance(slot, int)}
    lost = sorted(case.before.pinned - whole)
    return f"pinned messages {lost} were folded or clipped" if lost else None


def _pairs(case: FoldCase) -> str | None:
    fold_of = {i: number for number, fold in enumerate(case.plan.folds) for i in fold.indices}
    for block in case.before.blocks:
        if len(block.indices) > 1 and len({fold_of.get(i, -1) for i in block.indices}) > 1:
            return f"messages {list(block.indices)} belong together and were split"
    return None


def _open(case: FoldCase) -> str | None:
    folded = case.plan.folded
    waiting = [i for block in case.before.blocks if block.open for i in block.indices if i in folded]
    return f"messages {waiting} still wait for a result and were folded" if waiting else None


def _order(case: FoldCase) -> str | None:
    kept = list(case.plan.kept)
    if layout_of(case.policy).pins_first and case.plan.folds:
        waits = {i for block in case.before.blocks if block.open for i in block.indices}
        ahead = case.before.pinned - waits
        expected = [*sorted(i for i in kept if i in ahead), *sorted(i for i in kept if i not in ahead)]
    else:
        expected = sorted(kept)
    return None if kept == expected else f"kept messages leave in the order {kept}"


def _one_summary(case: FoldCase) -> str | None:
    if not layout_of(case.policy).single_summary or not case.plan.folds:
        return None  # clipping alone leaves the summaries of an earlier `in_place`
    count = len(case.after.summaries)
    return f"{count} summaries stand in the list" if count > 1 else None


def _in_its_place(case: FoldCase) -> str | None:
    if not layout_of(case.policy).keeps_order:
        return None
    for at, slot in enumerate(case.plan.slots):
        if isinstance(slot, Fold):
            ahead = [s if isinstance(s, int) else s.index for s in case.plan.slots[:at] if not isinstance(s, Fold)]
            if any(i > slot.indices[0] for i in ahead):
                return f"the summary of message {slot.indices[0]} stands behind later messages"
    return None


def _users(case: FoldCase) -> str | None:
    if not layout_of(case.policy).per_run:
        return None
    wrong = [i for i in sorted(case.plan.folded) if case.before[i].role not in ("assistant", "tool")]
    return f"messages {wrong} are neither assistant messages nor tool results" if wrong else None


def _window(case: FoldCase) -> str | None:
    if not layout_of(case.policy).per_run:
        return None
    first = len(case.before) - case.policy.retention_window
    inside = [i for i in sorted(case.plan.folded) if i >= first]
    return f"messages {inside} lie inside the retention window" if inside else None


def _runs(case: FoldCase) -> str | None:
    if not layout_of(case.policy).per_run:
        return None
    for fold in case.plan.folds:
        first, last = fold.indices[0], fold.indices[-1]
        if len(fold.indices) < 2 or fold.indices != tuple(range(first, last + 1)):
            return f"messages {list(fold.indices)} are no run of two or more"
        if case.before.summaries.intersection(fold.indices):
            return f"the run {first}-{last} holds a summary that was folded before"
    return None


def _newest(case: FoldCase) -> str | None:
    backwards = reversed(range(len(case.before)))
    newest = next((i for i in backwards if case.before[i].is_user and i not in case.before.summaries), None)
    if newest in case.plan.folded and not case.squeezed:
        return f"the newest user message ({newest}) was folded"
    return None


def _within_budget(case: FoldCase) -> str | None:
    total = case.after.total + case.fixed
    return f"{total:,} tokens are over the budget of {case.budget:,}" if total > case.budget else None


def _smaller(case: FoldCase) -> str | None:
    if case.after.total >= case.before.total:
        return f"{case.before.total:,} tokens became {case.after.total:,}"
    return None


def _summary_size(case: FoldCase) -> str | None:
    for i, slot in enumerate(case.sources):
        if isinstance(slot, Fold) and i in case.after.summaries and case.after.tokens[i] > case.allowance:
            kept_as_it_stood = any(case.after[i] is case.before[j] for j in slot.indices)
            if not kept_as_it_stood:
                return f"a summary has {case.after.tokens[i]:,} tokens; {case.allowance:,} were allowed"
    return None


def _valid(case: FoldCase) -> str | None:
    return case.problems[0] if case.problems else None


def _clips(case: FoldCase) -> str | None:
    wrong = [slot.index for slot in case.plan.slots if isinstance(slot, Clip) and not case.before[slot.index].answers]
    return f"messages {wrong} have no tool output to clip" if wrong else None


LAWS: tuple[Law, ...] = (
    Law("accounted", ("L04", "L19"), "every message is kept, clipped or folded, exactly once", _accounted),
    Law(
        "identical", ("L10", "L19", "S09"), "a kept message leaves as the very object that came in", _identical, "list"
    ),
    Law("pins", ("S09", "S10", "T24"), "a pinned message is neither folded nor clipped", _pins),
    Law("pairs", ("L08", "L21", "L26", "L27"), "a call, its results and its reasoning stay or go together", _pairs),
    Law("open", ("L21", "L27"), "a call that still waits for its result is not folded", _open),
    Law(
        "order",
        ("L13", "S15"),
        "survivors keep their order; `layered` puts the pinned first, but for a call that waits",
        _order,
    ),
    Law("one summary", ("S16",), "`layered` and `rolling` leave one summary", _one_summary, "list"),
    Law("in its place", ("L12", "E1"), "a summary stands where the first message it replaces stood", _in_its_place),
    Law("users stay", ("L05", "L11", "L20"), "`in_place` folds assistant messages and tool results only", _users),
    Law("window", ("L03", "L07", "L22", "L29", "L32"), "nothing inside the retention window folds", _window),
    Law("runs", ("L06", "L18", "L23"), "`in_place` folds runs of two or more, each once", _runs),
    Law("newest", ("S14",), "the newest user message stays", _newest),
    Law("clips", (), "only tool output is clipped", _clips),
    Law("budget", ("S38",), "what goes out is within the budget", _within_budget, "list"),
    Law("smaller", ("L14",), "a fold makes the list smaller", _smaller, "list"),
    Law("summary size", ("L14", "L16"), "an accepted summary respects its limit", _summary_size, "list"),
    Law("valid", ("T22",), "the provider accepts the list", _valid, "list"),
)
"""Every law, in the order they are checked."""


def broken_law(case: FoldCase, judges: Literal["plan", "list"] | None = None) -> LawViolation | None:
    """The first law, of one kind or of any, that a compaction breaks, as an error; None when all hold."""
    for law in LAWS:
        if judges in (None, law.judges) and (wrong := law.broken(case)) is not None:
            return LawViolation(law.id, wrong)
    return None


def broken_by_plan(before: History, plan: Plan, policy: Policy, *, squeezed: bool) -> LawViolation | None:
    """The first law that a plan breaks, whatever list it leads to."""
    case = FoldCase(before, plan, before, (), policy, fixed=0, budget=0, allowance=0, squeezed=squeezed)
    return broken_law(case, "plan")
