"""A plan: the output list, written with the indices of the input list.

Owns: `Plan`, `PlanCosts`, `Fold`, `Clip`. Must never: choose what folds (layouts do), or touch a message (splice does).

    Plan.slots = (0, Fold((1, 2, 3, 4, 6)), 5, Clip(7, 200), 8)

An int keeps that message as the very object that came in. A `Fold` becomes one summary, or nothing when no summary
was available. A `Clip` keeps the message with its tool output shortened. A dry run is a plan that is not carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from .._conversation.message import History
from .._conversation.tokens import Usage
from ..config.limits import Limits
from ..config.sections import Policy


@dataclass(frozen=True, slots=True)
class Fold:
    """These messages become one summary that stands in this place."""

    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Clip:
    """This message stays, each of its tool outputs cut to about `tokens`; 0 leaves a one-line stub."""

    index: int
    tokens: int


Slot = int | Fold | Clip


@dataclass(frozen=True, slots=True)
class PlanCosts:
    """What a plan of `CompactManager.plan` was made for, and what it costs."""

    history: History
    """The list that would go out now, with the tokens of each message."""
    usage: Usage
    """What that list costs at the provider."""
    reasons: tuple[str, ...]
    """Why a compaction is due; empty when none is."""
    line: int | None
    """The token limit that fired."""
    limits: Limits
    policy: Policy
    """The policy with its keep counts as lowered to fit."""
    tokens_after: int
    """What the list costs afterwards, every summary at its full length."""
    summary_tokens: int
    """What one summary may cost."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What comes out of a list of `size` messages, and for each message `why` it stays or goes."""

    slots: tuple[Slot, ...]
    size: int
    why: Mapping[int, str] = field(default_factory=dict)
    costs: PlanCosts | None = field(default=None, compare=False, repr=False)
    """What it costs, in a dry run."""

    @classmethod
    def unchanged(cls, size: int) -> Plan:
        """Everything stays where it is."""
        return cls(tuple(range(size)), size)

    @property
    def folds(self) -> tuple[Fold, ...]:
        """The folds, in the order of their places."""
        return tuple(slot for slot in self.slots if isinstance(slot, Fold))

    @property
    def folded(self) -> frozenset[int]:
        """Indices of all messages that fold."""
        return frozenset(i for fold in self.folds for i in fold.indices)

    @property
    def clips(self) -> tuple[Clip, ...]:
        """The clipped messages."""
        return tuple(slot for slot in self.slots if isinstance(slot, Clip))

    @property
    def kept(self) -> tuple[int, ...]:
        """Indices of all messages that stay, clipped ones included, in output order."""
        return tuple(slot if isinstance(slot, int) else slot.index for slot in self.slots if not isinstance(slot, Fold))

    @property
    def changes(self) -> bool:
        """Whether carrying it out would fold or clip anything."""
        return any(not isinstance(slot, int) for slot in self.slots)

    def clipping(self, clips: Mapping[int, int]) -> Plan:
        """The same plan with some kept messages clipped to so many tokens."""
        slots = tuple(Clip(s, clips[s]) if isinstance(s, int) and s in clips else s for s in self.slots)
        return replace(self, slots=slots)

    def only(self, folds: Collection[Fold]) -> Plan:
        """The same plan with only these folds carried out; what the others held stays where it stood."""
        dropped = [fold for fold in self.folds if fold not in folds]
        if not dropped:
            return self
        slots: list[Slot] = []
        for slot in self.slots:
            slots.extend(slot.indices if isinstance(slot, Fold) and slot in dropped else (slot,))
        if len(dropped) == len(self.folds):
            slots.sort(key=_place)
        why = {**self.why, **{i: "left" for fold in dropped for i in fold.indices}}
        return replace(self, slots=tuple(slots), why=why)


def _place(slot: Slot) -> int:
    if isinstance(slot, Fold):
        return slot.indices[0]
    return slot.index if isinstance(slot, Clip) else slot


Layout = Callable[[History, Policy], Plan]
"""How folds are chosen. A user's own layout is any callable of this type; the laws check its plans like any other."""
