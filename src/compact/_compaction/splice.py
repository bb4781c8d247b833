"""Carry a plan out on a list: kept objects go over unchanged, only summaries and clipped copies are new.

Owns: `splice`, and how a long tool output is shortened.
Must never: decide what stays, call a model, or change an object of the application.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .plan import Clip, Fold, Plan, Slot


@dataclass(frozen=True, slots=True)
class Piece:
    """One message that goes out, and the slot it came from; None for one that a repair added."""

    raw: Any
    slot: Slot | None


def splice(raws: Sequence[Any], plan: Plan, replacements: Mapping[Fold | Clip, Any | None]) -> list[Piece]:
    """The output list: kept messages, and for each fold and clip its replacement; None leaves the place empty."""
    pieces: list[Piece] = []
    for slot in plan.slots:
        raw = raws[slot] if isinstance(slot, int) else replacements[slot]
        if isinstance(slot, int) or raw is not None:
            pieces.append(Piece(raw, slot))
    return pieces


_POINTER = re.compile(r"whole in the archive: step \d+, #\d+")


def shorten(text: str, tokens: int, where: str, count: Callable[[str], int]) -> str:
    """A tool output cut in its middle to about `tokens`, with a pointer to the whole; at 0 the pointer alone."""
    size = count(text)
    if size <= tokens:
        return text
    if earlier := _POINTER.search(text):
        where = earlier.group()  # it was shortened before: keep that pointer
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
