"""How much an event weighs while it waits.

Owns: the weight of an event, about: strings by their length, the rest by rule of thumb.
Must never: take long: it is asked on the agent's thread. The events of every call are not looked at at all.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from .._events.event import Event

__all__ = ["FLAT", "ROUTINE", "weight_of"]

FLAT = frozenset({"compact.token_estimate", "compact.trigger_decision"})
"""The events of every call: a few numbers, which need not be looked at."""
ROUTINE = 1_000
"""What one of those weighs."""
_WEIGHT_OF_ANY = 250
_WEIGHT_OF_ITEM = 64
_SAMPLE = 32


def weight_of(event: Event) -> int:
    """About how many characters an event holds. Never raises."""
    try:
        return _WEIGHT_OF_ANY + _weight(event.data, 2)
    except Exception:  # data that cannot be read is the thread's business
        return _WEIGHT_OF_ANY


def _weight(values: Any, levels: int) -> int:
    """About how many characters a container holds: strings so many levels down, and of many items the first for all."""
    count = len(values)
    if count > _SAMPLE:
        some = list(islice(values.values() if type(values) is dict else values, _SAMPLE))
        return _weight(some, levels) * count // _SAMPLE
    weight = _WEIGHT_OF_ITEM * count
    for value in values.values() if type(values) is dict else values:
        kind = type(value)
        if kind is int or kind is float:
            continue  # most are, so they are asked for first
        if kind is str:
            weight += len(value)
        elif levels and (kind is dict or kind is list or kind is tuple):
            weight += _weight(value, levels - 1)
    return weight
