"""Whether the compactions in an archive obey the laws and the model.

Owns: `broken_laws`. Must never: change anything, or report a compaction that cannot be checked.

Each compaction is checked twice: against the laws that it was made under (`_compaction.laws`), and against the model
(`_spec`), which was written independently of the engine. A record does not hold everything that was checked when it was
made: not the policy's keep counts, not the room that a summary was given, nor the list as it was after it was made
valid. The laws that need these are left out, and of a list that arrived broken only the result is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._compaction.laws import LAWS, FoldCase
from .._compaction.layouts import LAYOUTS, layered
from .._compaction.plan import Clip, Fold, Plan, Slot
from .._conversation.formats import FORMATS, detect
from .._conversation.message import History, Message
from .._spec.conversation import Item, Items
from .._spec.fold_check import ObservedFold, find_violations
from ..config.sections import Policy
from ..errors import ArchiveError, InvalidMessage
from .archive import Archive

_NEED_MORE = frozenset({"identical", "window", "summary size"})
"""Laws that need what a record does not hold."""
_RESULT_LAWS = frozenset({"one summary", "budget", "valid"})
"""Laws that a list which was made valid before the compaction can be checked by."""
UNREADABLE = (ArchiveError, InvalidMessage, KeyError, TypeError, ValueError, IndexError, AttributeError)


def broken_laws(archive: Archive, place: str) -> tuple[int, list[str]]:
    """How many compactions could be checked, and which laws they break. Damage is reported by `audit`."""
    checked, problems = 0, []
    for step in archive.contents(place).summaries:
        try:
            record, (transcript, torn) = archive.fold(place, step), archive.transcript(place, step)
            if torn or len(transcript) != len(record["positions"]):
                continue
            found = list(_violations(record, transcript))
        except UNREADABLE:
            continue
        checked += 1
        problems += [f"compaction {step} {wrong}" for wrong in found]
    return checked, problems


def _violations(record: Mapping[str, Any], transcript: Sequence[Any]) -> Iterator[str]:
    case, repaired = _case(record, transcript)
    for law in LAWS:
        checkable = law.id in record["laws"] and law.id not in _NEED_MORE and (not repaired or law.id in _RESULT_LAWS)
        if checkable and (wrong := law.broken(case)) is not None:
            yield f"breaks the law {law.id!r}: {wrong}"
    if not repaired:
        for wrong in find_violations(_observe_record(record, case)):
            yield f"is not a step of the model: {wrong}"


def _observe_record(record: Mapping[str, Any], case: FoldCase) -> ObservedFold:
    """A compaction as the model sees it, without what a provider's rules added to the result."""
    at = [
        case.before.positions[left] if isinstance(left, int) else record["made"][left["made"]]["position"]
        for left in record["left"]
    ]
    left = zip(_items(case.after, at), case.sources, strict=True)
    return ObservedFold(
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
    """A compaction as the laws see it, and whether its list was made valid first."""
    message_format = detect(transcript) or FORMATS["openai-chat"]
    pinned, earlier = set(record["pinned"]), frozenset(record["earlier_summaries"])
    read = [message_format.read(raw)._replace(pinned=line in pinned) for line, raw in enumerate(transcript)]
    before = History(read, record["tokens"], record["positions"], earlier, frozenset())
    positions, gone = record["positions"], set(record["gone"])
    # A message that a repair added shares the position of the one before it: only what is gone was folded.
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
            # An earlier summary that stays because there is no new one stands for its fold.
            slot = fold_of.get(left, left)
            after.append(read[left])
            tokens.append(record["tokens"][left])
            is_summary = left in earlier
        else:
            made = record["made"][left["made"]]
            there = [line for line in sorted(gone) if positions[line] == made["position"]]
            fold = next((one for one in waiting if set(there) & set(one.indices)), None)
            clipped = next((line for line in there if line not in fold_of), None)
            slot = fold if made["summary"] else Clip(clipped, 0) if clipped is not None else None
            after.append(message_format.read(made["message"]))
            tokens.append(made["tokens"])
            is_summary = made["summary"]
        if is_summary:
            summaries.add(len(after) - 1)
        if isinstance(slot, Fold) and slot in waiting:
            waiting.remove(slot)
        if slot is not None:
            slots.append(slot)
        sources.append(slot)
    for fold in waiting:  # pruned without a summary: each is gone from its place
        at = next((n for n, slot in enumerate(slots) if _first(slot) > fold.indices[0]), len(slots))
        slots.insert(at, fold)
    layout = record["layout"]
    case = FoldCase(
        before=before,
        plan=Plan(tuple(slots), len(before)),
        after=History(after, tokens, summaries=frozenset(summaries), pinned_roles=frozenset()),
        sources=tuple(sources),
        # A layout of the user obeys the general laws, and none of those about the built-in layouts.
        policy=Policy(layout=layout if layout in LAYOUTS else lambda history, policy: layered(history, policy)),
        fixed=record["tokens_after"] - sum(tokens),
        budget=record["budget"],
        allowance=0,
        problems=tuple(problem.message for problem in message_format.problems(after)),
    )
    return case, bool(message_format.problems(read))


def _first(slot: Slot) -> int:
    if isinstance(slot, Fold):
        return slot.indices[0]
    return slot.index if isinstance(slot, Clip) else slot
