"""Layouts: which blocks stay and which fold. Each is a function `(History, Policy) -> Plan`.

Owns: `layered`, `in_place`, `rolling`, and `LayoutRules`, everything that other modules ask about a layout.
Must never: count tokens of text, call a model, split a block, or fold what is pinned or open.

- `layered`   pinned messages, one summary, recent turns and tool pairs in time order
- `in_place`  each run of assistant and tool messages becomes a summary in its place; user messages stay
- `rolling`   one compressed context in place of the oldest rounds, then the last rounds unchanged

Keep counts of 0 are set by `fit` alone: the newest user message and the newest block stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from .._conversation.message import Block, History
from ..config.sections import Policy
from .plan import Fold, Layout, Plan, Slot


def layered(history: History, policy: Policy) -> Plan:
    """Pinned first, then one summary, then what is recent. Tool blocks count by `keep_tool_io_pairs` alone."""
    why = _always_kept(history)
    if policy.keep_recent_turns == 0:
        why |= _newest_blocks(history)
    else:
        since = _start_of_last(history, policy.keep_recent_turns)
        plain = [b for b in history.blocks if not b.tool and b.indices[-1] >= since]
        paired = [b for b in history.blocks if b.tool and not b.pinned and not b.open]
        why |= _label(plain, "recent turn", why)
        why |= _label(paired[-policy.keep_tool_io_pairs :], "tool pair", why)
        why |= _label(_newest_user_block(history), "newest", why)
    folded, why = _fold_rest(history, why)
    if not folded:
        return Plan.unchanged(len(history))
    pinned = [i for i in range(len(history)) if why[i] == "pinned"]
    recent = [i for i in range(len(history)) if why[i] not in ("pinned", "folds")]
    return Plan((*pinned, Fold(folded), *recent), len(history), why)


def rolling(history: History, policy: Policy) -> Plan:
    """The last `window_rounds` rounds whole; what is older goes into one compressed context, in its place."""
    why = _always_kept(history)
    if policy.window_rounds == 0:
        why |= _newest_blocks(history)
    else:
        since = _start_of_last(history, policy.window_rounds)
        why |= _label([b for b in history.blocks if b.indices[-1] >= since], "recent round", why)
    folded, why = _fold_rest(history, why)
    return Plan(_slots_in_place(len(history), [folded] if folded else []), len(history), why)


def in_place(history: History, policy: Policy) -> Plan:
    """Every run of two or more assistant and tool messages outside the retention window, each in its place."""
    size = len(history)
    window = max(0, size - policy.retention_window)
    why = _always_kept(history)
    for i in range(size):
        if i in history.summaries:
            why[i] = "already folded"
        elif i not in why and i >= window:
            why[i] = "retention window"
        elif i not in why and history[i].role not in ("assistant", "tool"):
            why[i] = "user message"
    blocks = [b for b in history.blocks if not any(i in why for i in b.indices)]
    runs = _whole_runs(blocks)
    for i in range(size):
        why.setdefault(i, "stands alone")
    why.update({i: "folds" for run in runs for i in run})
    return Plan(_slots_in_place(size, runs), size, why)


def tail(limit: int, share: float, *, words: bool = True) -> Layout:
    """The layout of `compact_messages`: the newest blocks that fit a share of the limit, and the newest user message.

    All else that is not pinned folds. The newest user message stays when it needs at most half of the limit; without
    `words` it folds as well.
    """

    def layout(history: History, policy: Policy) -> Plan:
        why = _always_kept(history)
        free = limit - history.cost(sorted(why))
        if words:
            spoken = [b for b in _newest_user_block(history) if 2 * history.cost(b.indices) <= free]
            why |= _label(spoken, "newest", why)
        left = share * free
        for block in reversed(history.blocks):
            left -= history.cost(block.indices)
            if left < 0 or block.indices[0] in history.summaries:
                break
            why |= _label([block], "newest", why)
        folded, why = _fold_rest(history, why)
        return Plan(_slots_in_place(len(history), [folded] if folded else []), len(history), why)

    return layout


def _lower_turns_and_pairs(policy: Policy) -> Iterator[Policy]:
    """One recent turn less, then one tool pair less, in turn, down to (1, 1); then the floor."""
    turns, pairs = policy.keep_recent_turns, policy.keep_tool_io_pairs
    lower_turns = True
    while turns > 1 or pairs > 1:
        if (lower_turns and turns > 1) or pairs == 1:
            turns -= 1
        else:
            pairs -= 1
        lower_turns = not lower_turns
        yield policy.model_copy(update={"keep_recent_turns": turns, "keep_tool_io_pairs": pairs})
    yield policy.model_copy(update={"keep_recent_turns": 0, "keep_tool_io_pairs": 0})


def _lower_rounds(policy: Policy) -> Iterator[Policy]:
    """One round less at a time, down to the floor."""
    for rounds in range(policy.window_rounds - 1, -1, -1):
        yield policy.model_copy(update={"window_rounds": rounds})


def _lower_nothing(policy: Policy) -> Iterator[Policy]:
    return iter(())


@dataclass(frozen=True, slots=True)
class LayoutRules:
    """A layout and its properties. The defaults are those of a layout that the user wrote."""

    choose: Layout
    lower_keeps: Callable[[Policy], Iterator[Policy]] = _lower_turns_and_pairs
    """The policies to try when the plan does not fit, from mild to hard."""
    pins_first: bool = False
    """Whether pinned messages move to the front."""
    single_summary: bool = False
    """Whether the list has at most one summary after a compaction."""
    keeps_order: bool = False
    """Whether a summary stands where the first message that it replaces stood."""
    per_run: bool = False
    """Whether each run of assistant and tool messages gets its own summary, and user messages stay."""
    counts_rounds: bool = False
    """Whether more than `window_rounds` rounds make a compaction due."""
    shrinks_summary: bool = False
    """Whether a summary above `summary.context_max_tokens` is shortened in a second pass."""
    summary_share: float = 1.0
    """The share of what it replaces that a summary may cost; less than 1 where summaries add up."""


LAYOUTS: Mapping[str, LayoutRules] = {
    "layered": LayoutRules(layered, pins_first=True, single_summary=True),
    "in_place": LayoutRules(in_place, _lower_nothing, keeps_order=True, per_run=True, summary_share=1 / 3),
    "rolling": LayoutRules(
        rolling, _lower_rounds, keeps_order=True, single_summary=True, counts_rounds=True, shrinks_summary=True
    ),
}
"""The built-in layouts by name."""


def layout_of(policy: Policy) -> LayoutRules:
    """The layout of a policy: a built-in one, or the user's own function."""
    return LAYOUTS[policy.layout] if isinstance(policy.layout, str) else LayoutRules(policy.layout)


def _always_kept(history: History) -> dict[int, str]:
    """What no layout may fold: open and pinned blocks. A block that is both stays in its place, before its result."""
    why: dict[int, str] = {}
    for block in history.blocks:
        if block.open:
            why.update(dict.fromkeys(block.indices, "waits for a result"))
        elif block.pinned:
            why.update(dict.fromkeys(block.indices, "pinned"))
    return why


def _label(blocks: Iterable[Block], label: str, why: Mapping[int, str]) -> dict[int, str]:
    return {i: label for block in blocks for i in block.indices if i not in why}


def _newest_blocks(history: History) -> dict[int, str]:
    """The floor: the newest user message, and the newest block that may be kept or folded."""
    free = [b for b in history.blocks if not b.pinned and not b.open and b.indices[0] not in history.summaries]
    newest = [*_newest_user_block(history), *([max(free, key=lambda b: b.indices[-1])] if free else [])]
    return {i: "newest" for block in newest for i in block.indices}


def _newest_user_block(history: History) -> list[Block]:
    """The block with the newest user text, which may stand beside tool results (Anthropic)."""
    backwards = reversed(range(len(history)))
    newest = next((i for i in backwards if history[i].is_user and i not in history.summaries), None)
    return [block for block in history.blocks if newest in block.indices and not block.pinned]


def _start_of_last(history: History, turns: int) -> int:
    """The index at which the last `turns` turns begin; 0 when there are no more than that."""
    return history.turns[-turns][0] if len(history.turns) > turns else 0


def _fold_rest(history: History, why: dict[int, str]) -> tuple[tuple[int, ...], dict[int, str]]:
    """Fold what no rule keeps, earlier summaries included; nothing when only a summary is left to fold."""
    kept = {i: label for i, label in why.items() if i not in history.summaries or label == "pinned"}
    folded = tuple(i for i in range(len(history)) if i not in kept)
    if not any(i not in history.summaries for i in folded):
        return (), {i: kept.get(i, "summary") for i in range(len(history))}
    return folded, kept | dict.fromkeys(folded, "folds")


def _slots_in_place(size: int, folds: Iterable[tuple[int, ...]]) -> tuple[Slot, ...]:
    """Each fold in the place of its first message, every other message in its own place."""
    place: dict[int, Fold | None] = {}
    for indices in folds:
        place.update(dict.fromkeys(indices))
        place[indices[0]] = Fold(indices)
    slots = (place.get(i, i) for i in range(size))
    return tuple(slot for slot in slots if slot is not None)


def _whole_runs(blocks: list[Block]) -> list[tuple[int, ...]]:
    """Maximal contiguous runs of two or more messages made of whole blocks, earliest first."""
    while True:
        runs = list(_contiguous(sorted(i for block in blocks for i in block.indices)))
        run_of = {i: number for number, run in enumerate(runs) for i in run}
        whole = [b for b in blocks if len({run_of[i] for i in b.indices}) == 1]
        if len(whole) == len(blocks):
            return [run for run in runs if len(run) > 1]
        blocks = whole


def _contiguous(indices: list[int]) -> Iterator[tuple[int, ...]]:
    run: list[int] = []
    for i in indices:
        if run and i != run[-1] + 1:
            yield tuple(run)
            run = []
        run.append(i)
    if run:
        yield tuple(run)
