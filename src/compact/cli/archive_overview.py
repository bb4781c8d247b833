"""Figures of the sessions in an archive, and the check of archived compactions against invariants and model.

Owns: `session_overview` and `broken_laws`. Must never: change anything, or report a compaction that cannot be checked.

A compaction is checked twice: by the invariants that it was made under (`_compaction.laws`), and by the model
(`compact._spec`), which is independent of the engine. A record does not hold everything that the engine checked: not
the retention settings, not the tokens allowed for a summary, and not the list after it was repaired. So invariants that
need these are skipped, and when the list arrived invalid only the resulting list is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._archive.archive import Archive
from .._compaction.laws import LAWS, FoldCase
from .._compaction.layouts import LAYOUTS, layered
from .._compaction.plan import Clip, Fold, Plan, Slot
from .._conversation.formats import FORMATS, detect
from .._conversation.message import History, Message
from .._spec.conduct import Observed, misconduct
from .._spec.conversation import Item, Items
from ..config.sections import Policy
from ..errors import ArchiveError, InvalidMessage

__all__ = ["SessionOverview", "broken_laws", "session_overview"]

_UNTOLD = frozenset({"identical", "window", "summary size"})
"""Invariants that need values which are not in a record."""
_OF_THE_RESULT = frozenset({"one summary", "budget", "valid"})
"""Invariants that can be checked when the list was repaired before the compaction."""
_UNREADABLE = (ArchiveError, InvalidMessage, KeyError, TypeError, ValueError, IndexError, AttributeError)


@dataclass(frozen=True, slots=True)
class SessionOverview:
    """A session of the archive. `saved` are the tokens that its compactions removed, without undone ones."""

    session_id: str | None
    folds: int
    undone: int
    saved: int
    last: float | None
    """When something was last written."""


def session_overview(archive: Archive, place: str) -> SessionOverview:
    """The figures of the session stored here; a damaged record counts as a compaction that saved nothing."""
    contents = archive.contents(place)
    try:
        undone = set(archive.line(place, contents).undone)
    except _UNREADABLE:
        undone = set()
    saved = 0
    for step in contents.summaries:
        try:
            record = archive.fold(place, step)
            saved += 0 if step in undone else record["tokens_before"] - record["tokens_after"]
        except _UNREADABLE:
            continue
    return SessionOverview(
        archive.name_of(place), len(contents.summaries), len(undone), saved, archive.last_time(place)
    )


def broken_laws(archive: Archive, place: str) -> tuple[int, list[str]]:
    """How many compactions could be checked, and which invariant each invalid one breaks."""
    judged, problems = 0, []
    for step in archive.contents(place).summaries:
        try:
            record, (transcript, torn) = archive.fold(place, step), archive.transcript(place, step)
            if torn or len(transcript) != len(record["positions"]):
                continue
            found = list(_broken(record, transcript))
        except _UNREADABLE:
            continue
        judged += 1
        problems += [f"fold {step} {wrong}" for wrong in found]
    return judged, problems


def _broken(record: Mapping[str, Any], transcript: Sequence[Any]) -> Iterator[str]:
    case, mended = _case(record, transcript)
    for law in LAWS:
        told = law.id in record["laws"] and law.id not in _UNTOLD and (not mended or law.id in _OF_THE_RESULT)
        if told and (wrong := law.broken(case)) is not None:
            yield f"breaks the law {law.id!r}: {wrong}"
    if not mended:
        for wrong in misconduct(_observed(record, case)):
            yield f"is no step of the model: {wrong}"


def _observed(record: Mapping[str, Any], case: FoldCase) -> Observed:
    """A compaction as the model sees it, without what a provider's rules added to the result."""
    at = [
        case.before.positions[left] if isinstance(left, int) else record["made"][left["made"]]["position"]
        for left in record["left"]
    ]
    left = zip(_items(case.after, at), case.sources, strict=True)
    return Observed(
        layout=record["layout"],
        list=_items(case.before, case.before.positions),
        plan=tuple(frozenset(i + 1 for i in fold.indices) for fold in case.plan.folds),
        bodies=tuple(fold["summary"] is not None for fold in record["folds"]),
        left=tuple(item for item, source in left if source is not None),
    )


def _items(history: History, positions: Sequence[int]) -> Items:
    return tuple(
        Item(
            at=at,
            kind="summary" if i in history.summaries else "result" if message.role == "tool" else message.role,
            pin=message.pinned,
            of=frozenset((at,)),
            size=history.tokens[i],
            calls=tuple(call.id for call in message.calls),
            answers=tuple(answer.id for answer in message.answers),
        )
        for i, (message, at) in enumerate(zip(history, positions, strict=True))
    )


def _case(record: Mapping[str, Any], transcript: Sequence[Any]) -> tuple[FoldCase, bool]:
    """A compaction as the invariants see it, and whether its list was repaired before."""
    dialect = detect(transcript) or FORMATS["openai-chat"]
    pinned, earlier = set(record["pinned"]), frozenset(record["earlier_summaries"])
    read = [dialect.read(raw)._replace(pinned=line in pinned) for line, raw in enumerate(transcript)]
    before = History(read, record["tokens"], record["positions"], earlier, frozenset())
    positions, gone = record["positions"], set(record["gone"])
    # A message that a repair added shares the position of the one before it: only removed messages were compacted.
    went = [line for line in range(len(read)) if line in gone or line in earlier]
    folds = [Fold(tuple(i for i in went if positions[i] in set(one["positions"]))) for one in record["folds"]]
    fold_of = {line: fold for fold in folds for line in fold.indices}
    waiting = list(folds)
    slots: list[Slot] = []
    sources: list[Slot | None] = []
    after: list[Message] = []
    tokens: list[int] = []
    summaries: set[int] = set()
    for left in record["left"]:
        slot: Slot | None
        if isinstance(left, int):
            slot = fold_of.get(left, left)  # an earlier summary that stays without a new one is its fold's place
            after.append(read[left])
            tokens.append(record["tokens"][left])
            is_summary = left in earlier
        else:
            made = record["made"][left["made"]]
            there = [line for line in sorted(gone) if positions[line] == made["position"]]
            fold = next((one for one in waiting if set(there) & set(one.indices)), None)
            clipped = next((line for line in there if line not in fold_of), None)
            slot = fold if made["summary"] else Clip(clipped, 0) if clipped is not None else None
            after.append(dialect.read(made["message"]))
            tokens.append(made["tokens"])
            is_summary = made["summary"]
        if is_summary:
            summaries.add(len(after) - 1)
        if isinstance(slot, Fold) and slot in waiting:
            waiting.remove(slot)
        if slot is not None:
            slots.append(slot)
        sources.append(slot)
    for fold in waiting:  # removed without a summary: each from its position
        at = next((n for n, slot in enumerate(slots) if _first(slot) > fold.indices[0]), len(slots))
        slots.insert(at, fold)
    layout = record["layout"]
    case = FoldCase(
        before=before,
        plan=Plan(tuple(slots), len(before)),
        after=History(after, tokens, summaries=frozenset(summaries), pinned_roles=frozenset()),
        sources=tuple(sources),
        # A custom layout has the general invariants, and none of those of the built-in layouts.
        policy=Policy(layout=layout if layout in LAYOUTS else lambda history, policy: layered(history, policy)),
        fixed=record["tokens_after"] - sum(tokens),
        budget=record["budget"],
        allowance=0,
        problems=tuple(problem.message for problem in dialect.problems(after)),
    )
    return case, bool(dialect.problems(read))


def _first(slot: Slot) -> int:
    if isinstance(slot, Fold):
        return slot.indices[0]
    return slot.index if isinstance(slot, Clip) else slot
