"""Carry a plan out on a list: kept objects go over as they are, only summaries and clipped copies are new.

Owns: `splice`, and how a long tool output is cut. Must never: decide, call a model, or change a host object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .plan import Clip, Fold, Plan, Slot

__all__ = ["Piece", "shorten", "splice"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One message that goes out, and the slot it came from; None for one that a repair added."""

    raw: Any
    slot: Slot | None


def splice(
    raws: Sequence[Any],
    plan: Plan,
    summary: Callable[[Fold, list[Piece]], Any | None],
    clip: Callable[[Clip], Any],
) -> list[Piece]:
    """The output list. `summary(fold, pieces so far)` gives the message that replaces a fold, or None for nothing."""
    pieces: list[Piece] = []
    for slot in plan.slots:
        if isinstance(slot, int):
            pieces.append(Piece(raws[slot], slot))
        elif isinstance(slot, Clip):
            pieces.append(Piece(clip(slot), slot))
        else:
            raw = summary(slot, pieces)
            if raw is not None:
                pieces.append(Piece(raw, slot))
    return pieces


_POINTER = re.compile(r"whole in the archive: step \d+, #\d+")


def shorten(text: str, tokens: int, where: str, count: Callable[[str], int]) -> str:
    """A tool output cut in its middle to about `tokens`, with a pointer to the whole; at 0 the pointer alone."""
    size = count(text)
    if size <= tokens:
        return text
    if earlier := _POINTER.search(text):
        where = earlier.group()  # it was cut before, and the whole lies where that says
    if tokens == 0:
        return f"[tool output of {size:,} tokens cleared; {where}]"
    share = tokens / size
    while True:
        side = int(len(text) * share / 2)
        head, tail = text[:side], text[len(text) - side :]
        if side == 0 or count(head) + count(tail) <= tokens:
            cut = size - count(head) - count(tail)
            return f"{head}\n[… {cut:,} of {size:,} tokens cut here; {where} …]\n{tail}"
        share *= 0.9
