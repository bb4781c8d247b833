"""`spec/Conversation.tla` in Python, operator by operator: blocks, runs, plans, and the list after a compaction.

Owns: `Item`, `Items`, and the functions of a list. Must never: know states or steps, or import the engine.

Indices count from 1, as in the model. A list is a tuple of items, a plan a tuple of sets of indices.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

FoldIndices = frozenset[int]
SPOKEN = frozenset({"assistant", "call", "twice", "result"})
_WANTS = {"call": 1, "twice": 2}


class Item(NamedTuple):
    """A message, or a summary of the positions `of`.

    In the model every call has the same id; a real conversation has separate ids for its calls and answers.
    """

    at: int
    kind: str
    pin: bool
    of: frozenset[int]
    size: int
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()

    @property
    def wants(self) -> tuple[str, ...]:
        """Ids of the results it waits for."""
        return self.calls or ("",) * _WANTS.get(self.kind, 0)

    @property
    def brings(self) -> tuple[str, ...]:
        """Ids of the calls it answers."""
        return self.answers or ("",) * (self.kind == "result")


Items = tuple[Item, ...]


class Shape(NamedTuple):
    """The constants of a layout."""

    layout: str
    keep_turns: int
    keep_pairs: int
    message_cost: int


class Blocks(NamedTuple):
    """The blocks of a list."""

    of: tuple[frozenset[int], ...]
    """For each index, from 1, the indices of its block; index 0 is empty."""
    open: frozenset[int]
    pinned: frozenset[int]
    tools: frozenset[int]


def message(at: int, kind: str, pin: bool, size: int) -> Item:
    """A message at a position of the session."""
    return Item(at, kind, pin, frozenset((at,)), size)


def tokens(items: Items) -> int:
    """The tokens of a list."""
    return sum(item.size for item in items)


@lru_cache(maxsize=4096)
def blocks(items: Items) -> Blocks:
    """A call and its results are a block; a result belongs to the nearest earlier call of its id that waits (L26).

    A call waits while only results came after it. In the model nothing else can; a real application may continue.
    """
    waiting: dict[str, list[int]] = {}
    head_of: dict[int, int] = {}
    spoken = 0
    for i, item in enumerate(items, start=1):
        callers = [waiting[one].pop() for one in item.brings if waiting.get(one)]
        head_of[i] = head_of[min(callers)] if callers else i
        for caller in callers:  # one message may answer several calls, which are then one block
            _join(head_of, head_of[caller], head_of[i])
        for one in item.wants:
            waiting.setdefault(one, []).append(i)
        if not item.brings:
            spoken = i
    whole: dict[int, set[int]] = {}
    for i, head in head_of.items():
        whole.setdefault(head, set()).add(i)
    of = {head: frozenset(indices) for head, indices in whole.items()}
    waits = {head_of[i] for stack in waiting.values() for i in stack if i >= spoken}
    return Blocks(
        of=(frozenset(), *(of[head_of[i]] for i in head_of)),
        open=frozenset(i for head in waits for i in of[head]),
        pinned=frozenset(i for block in of.values() if any(items[j - 1].pin for j in block) for i in block),
        tools=frozenset(i for block in of.values() if any(items[j - 1].wants for j in block) for i in block),
    )


def _join(head_of: dict[int, int], one: int, other: int) -> None:
    if one != other:
        for i, head in head_of.items():
            if head == one:
                head_of[i] = other


def open_in(items: Items) -> frozenset[int]:
    """Indices that wait for a result."""
    return blocks(items).open


def summaries(items: Items) -> frozenset[int]:
    """Indices of summaries."""
    return frozenset(i for i, item in enumerate(items, start=1) if item.kind == "summary")


def starts(items: Items) -> tuple[int, ...]:
    """Where turns start: at a user's message that does not follow another one."""
    users = [item.kind == "user" for item in items]
    return tuple(i for i, user in enumerate(users, start=1) if user and (i == 1 or not users[i - 2]))


def start_of_last(items: Items, turns: int) -> int:
    """Where the last `turns` turns start."""
    found = starts(items)
    return found[-turns] if len(found) > turns else 1


def eligible(items: Items, window: int) -> frozenset[int]:
    """What `in_place` may compact: whole blocks of the assistant and the tools, outside the window."""
    known = blocks(items)
    free = {i for i, item in enumerate(items, start=1) if item.kind in SPOKEN and i + window <= len(items)}
    free -= known.open | known.pinned
    return frozenset(i for i in free if known.of[i] <= free)


def runs(items: Items, window: int) -> tuple[FoldIndices, ...]:
    """The longest runs of two or more of them, earliest first."""
    free = eligible(items, window)
    edges = [i for i in sorted(free) if i - 1 not in free]
    found = []
    for first in edges:
        last = first
        while last + 1 in free:
            last += 1
        if last > first:
            found.append(frozenset(range(first, last + 1)))
    return tuple(found)


def in_place(items: Items, window: int, target: int, shape: Shape) -> tuple[FoldIndices, ...]:
    """The earliest runs, as many as are needed to get below the target; 0 takes all."""
    found = runs(items, window)
    size = tokens(items)
    for count, run in enumerate(found, start=1):
        size += 1 - shape.message_cost * len(run)
        if target and size < target:
            return found[:count]
    return found


def kept_by_layered(items: Items, shape: Shape) -> set[int]:
    """The plain messages of the last turns, the last tool pairs, and the newest user message."""
    known = blocks(items)
    heads = sorted({min(known.of[i]) for i in known.tools - known.open - known.pinned})
    since = start_of_last(items, shape.keep_turns)
    kept = {i for i in range(since, len(items) + 1) if i not in known.tools}
    kept |= {i for head in heads[-shape.keep_pairs :] for i in known.of[head]}
    users = [i for i, item in enumerate(items, start=1) if item.kind == "user"]
    return kept | set(users[-1:])


def kept_by_rolling(items: Items, shape: Shape) -> set[int]:
    """The complete last rounds."""
    since = start_of_last(items, shape.keep_turns)
    return {i for i in range(1, len(items) + 1) if max(blocks(items).of[i]) >= since}


def all_but(items: Items, kept: set[int]) -> tuple[FoldIndices, ...]:
    """Everything that no rule keeps, including earlier summaries; a summary alone is not compacted."""
    known, old = blocks(items), summaries(items)
    folded = frozenset(range(1, len(items) + 1)) - ((kept | known.open | known.pinned) - old)
    return () if folded <= old else (folded,)


def plan_for(items: Items, window: int, target: int, shape: Shape) -> tuple[FoldIndices, ...]:
    """The plan for a list."""
    if shape.layout == "in_place":
        return in_place(items, window, target, shape)
    kept = kept_by_layered(items, shape) if shape.layout == "layered" else kept_by_rolling(items, shape)
    return all_but(items, kept)


def after(items: Items, plan: tuple[FoldIndices, ...], bodies: Iterable[int], layout: str) -> Items:
    """The list after a compaction. A body is the size of a summary; without one, an earlier summary stays."""
    left = {min(fold): _replacement(items, fold, body) for fold, body in zip(plan, bodies, strict=True)}
    folded = frozenset().union(*plan)
    if layout == "layered" and plan:
        pinned = blocks(items).pinned - blocks(items).open  # a pending call keeps its place: its result will follow it
        kept = [(i, item) for i, item in enumerate(items, start=1) if i not in folded]
        ahead = tuple(item for i, item in kept if i in pinned)
        return ahead + left[min(plan[0])] + tuple(item for i, item in kept if i not in pinned)
    result: list[Item] = []
    for i, item in enumerate(items, start=1):
        result += left.get(i, ()) if i in folded else (item,)
    return tuple(result)


def _replacement(items: Items, fold: FoldIndices, body: int) -> Items:
    if body:
        of = frozenset().union(*(items[i - 1].of for i in fold))
        return (Item(max(of), "summary", False, of, body),)
    earlier = sorted(fold & summaries(items))
    return (items[earlier[0] - 1],) if earlier else ()
