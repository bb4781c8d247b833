"""Checking whether an archived compaction is a step of the model.

Owns: `ObservedFold` and `find_violations`. Must never: know the format of an archive, or refuse what the model allows.

The model is run with what an archive has: the list before a compaction, what was compacted, which summaries there were,
and the list after it. An archive does not have the retention settings, so any plan passes that keeps the laws of plans;
the model then gives the list that must be left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .conversation import SPOKEN, FoldIndices, Item, Items, Shape, blocks, summaries
from .session import ModelState, Rules, steps

_LAYOUTS = frozenset({"in_place", "layered", "rolling"})


class ObservedFold(NamedTuple):
    """A compaction in an archive; `bodies` has for each fold of the plan whether there was a summary."""

    layout: str
    list: Items
    plan: tuple[FoldIndices, ...]
    bodies: tuple[bool, ...]
    left: Items


def find_violations(seen: ObservedFold) -> Iterator[str]:
    """Where a compaction is not a step of the model, in plain sentences; nothing when it is one."""
    yield from _plan_violations(seen)
    if seen.layout not in _LAYOUTS:
        return  # the model does not have custom layouts
    expected, left = [_comparable(item) for item in _expected_list(seen)], [_comparable(item) for item in seen.left]
    if expected != left:
        at = next((i for i, pair in enumerate(zip(expected, left, strict=False)) if pair[0] != pair[1]), None)
        where = f"they differ from message {at} on" if at is not None else "one is longer"
        yield f"{len(left):,} messages were left and the model leaves {len(expected):,}: {where}"


def _expected_list(seen: ObservedFold) -> Items:
    """The list that the model leaves, step by step from the plan on."""
    if not seen.plan:
        return seen.list
    rules = Rules(Shape(seen.layout, 0, 0, 0), window=0, errors=("dead",), max_failures=len(seen.bodies))
    state = ModelState(said=seen.list, host=seen.list, list=seen.list, plan=seen.plan, at="selected")
    for label in ("Archive", *("Answer" if body else "Fail" for body in seen.bodies), "Save"):
        state = next(then for name, _, then in steps(state, rules) if name == label)
    return state.archive[-1].left


def _comparable(item: Item) -> tuple[int, str, bool]:
    return item.at, item.kind, item.pin


def _plan_violations(seen: ObservedFold) -> Iterator[str]:
    """Violations of the laws of plans."""
    known = blocks(seen.list)
    folded = frozenset().union(*seen.plan)
    if held := sorted(folded & (known.pinned | known.open)):
        yield f"messages {_count_from_zero(held)} are pinned or wait for a result, and were compacted"
    split = sorted(i for fold in seen.plan for i in fold if not known.of[i] <= fold)
    if split:
        yield f"messages {_count_from_zero(split)} were compacted without their block"
    if seen.layout != "in_place":
        return
    if others := sorted(i for i in folded if seen.list[i - 1].kind not in SPOKEN):
        yield f"messages {_count_from_zero(others)} are neither the assistant's nor results, and were compacted"
    for fold in seen.plan:
        if len(fold) < 2 or max(fold) - min(fold) + 1 != len(fold) or fold & summaries(seen.list):
            yield f"messages {_count_from_zero(sorted(fold))} are not a run of two or more that were never compacted"


def _count_from_zero(indices: list[int]) -> list[int]:
    """Indices counted from 0, as in the application's list."""
    return [i - 1 for i in indices]
