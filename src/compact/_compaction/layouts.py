"""Which blocks stay and which fold: three layouts of one type, `(History, Policy) -> Plan`.

Owns: `layered`, `in_place`, `rolling`. Must never: count, call a model, split a block, or fold what is pinned or open.

- `layered`   pinned · one summary · recent turns and tool pairs, in time order
- `in_place`  each run of assistant and tool messages becomes a summary where it stood; users' messages stay
- `rolling`   one compressed context where the oldest rounds stood, then the last rounds whole

Keep counts of 0 are the floor that only `fit` asks for: the newest user message and the newest block stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .._conversation.message import Block, History
from ..config.sections import Policy
from .plan import Fold, Layout, Plan, Slot

__all__ = ["LAYOUTS", "in_place", "layered", "rolling", "tail"]


def layered(history: History, policy: Policy) -> Plan:
    """Pinned first, then one summary, then what is recent. Tool blocks count by `keep_tool_io_pairs` alone."""
    why = _always_kept(history)
    if policy.keep_recent_turns == 0:
        why |= _newest(history)
    else:
        since = _start_of_last(history, policy.keep_recent_turns)
        plain = [b for b in history.blocks if not b.tool and b.indices[-1] >= since]
        paired = [b for b in history.blocks if b.tool and not b.pinned and not b.open]
        why |= _label(plain, "recent turn", why)
        why |= _label(paired[-policy.keep_tool_io_pairs :], "tool pair", why)
        why |= _label(_newest_words(history), "newest", why)
    folded, why = _rest(history, why)
    if not folded:
        return Plan.unchanged(len(history))
    pinned = [i for i in range(len(history)) if why[i] == "pinned"]
    recent = [i for i in range(len(history)) if why[i] not in ("pinned", "folds")]
    return Plan((*pinned, Fold(folded), *recent), len(history), why)


def rolling(history: History, policy: Policy) -> Plan:
    """The last `window_rounds` rounds whole; what is older goes into one compressed context, in its place."""
    why = _always_kept(history)
    if policy.window_rounds == 0:
        why |= _newest(history)
    else:
        since = _start_of_last(history, policy.window_rounds)
        why |= _label([b for b in history.blocks if b.indices[-1] >= since], "recent round", why)
    folded, why = _rest(history, why)
    return Plan(_in_their_places(len(history), [folded] if folded else []), len(history), why)


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
    return Plan(_in_their_places(size, runs), size, why)


def tail(limit: int, share: float, *, words: bool = True) -> Layout:
    """For the one-shot form: the newest blocks that fit into a share of the room, and the newest words of a user.

    All else that is not pinned folds. The user's words stay when they need no more than half of the room; without
    `words` they fold as well.
    """

    def layout(history: History, policy: Policy) -> Plan:
        why = _always_kept(history)
        free = limit - history.cost(sorted(why))
        if words:
            spoken = [b for b in _newest_words(history) if 2 * history.cost(b.indices) <= free]
            why |= _label(spoken, "newest", why)
        left = share * free
        for block in reversed(history.blocks):
            left -= history.cost(block.indices)
            if left < 0 or block.indices[0] in history.summaries:
                break
            why |= _label([block], "newest", why)
        folded, why = _rest(history, why)
        return Plan(_in_their_places(len(history), [folded] if folded else []), len(history), why)

    return layout


LAYOUTS: Mapping[str, Layout] = {"layered": layered, "in_place": in_place, "rolling": rolling}
"""The layouts by name."""


def _always_kept(history: History) -> dict[int, str]:
    """What no layout may fold: open and pinned blocks. One that is both stays where its result will follow it."""
    why: dict[int, str] = {}
    for block in history.blocks:
        if block.open:
            why.update(dict.fromkeys(block.indices, "waits for a result"))
        elif block.pinned:
            why.update(dict.fromkeys(block.indices, "pinned"))
    return why


def _label(blocks: Iterable[Block], label: str, why: Mapping[int, str]) -> dict[int, str]:
    return {i: label for block in blocks for i in block.indices if i not in why}


def _newest(history: History) -> dict[int, str]:
    """The floor: the newest user message and the newest block that a layout may choose."""
    free = [b for b in history.blocks if not b.pinned and not b.open and b.indices[0] not in history.summaries]
    newest = [*_newest_words(history), *([max(free, key=lambda b: b.indices[-1])] if free else [])]
    return {i: "newest" for block in newest for i in block.indices}


def _newest_words(history: History) -> list[Block]:
    """The block with the newest words of a user, which may stand beside tool results (Anthropic)."""
    backwards = reversed(range(len(history)))
    newest = next((i for i in backwards if history[i].is_user and i not in history.summaries), None)
    return [block for block in history.blocks if newest in block.indices and not block.pinned]


def _start_of_last(history: History, turns: int) -> int:
    """Where the last so many turns begin; 0 when there are no more than that."""
    return history.turns[-turns][0] if len(history.turns) > turns else 0


def _rest(history: History, why: dict[int, str]) -> tuple[tuple[int, ...], dict[int, str]]:
    """What no rule kept folds, old summaries with it; a summary alone is nothing to fold."""
    kept = {i: label for i, label in why.items() if i not in history.summaries or label == "pinned"}
    folded = tuple(i for i in range(len(history)) if i not in kept)
    if not any(i not in history.summaries for i in folded):
        return (), {i: kept.get(i, "summary") for i in range(len(history))}
    return folded, kept | dict.fromkeys(folded, "folds")


def _in_their_places(size: int, folds: Iterable[tuple[int, ...]]) -> tuple[Slot, ...]:
    """Each fold where its first message stood, everything else where it is."""
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
