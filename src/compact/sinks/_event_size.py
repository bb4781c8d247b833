"""The approximate size of an event that waits in a queue.

Owns: `event_size`: strings by their length, the rest by a rule of thumb.
Must never: take long, because it runs on the agent's thread, or read the events that every call emits.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from .._events.event import Event

ROUTINE_EVENTS = frozenset({"compact.token_estimate", "compact.trigger_decision"})
"""The events that every call emits: a few numbers, which need not be counted."""
ROUTINE_SIZE = 1_000
"""The size of one of these."""
_SIZE_OF_EVENT = 250
_SIZE_OF_ITEM = 64
_SAMPLE = 32


def event_size(event: Event) -> int:
    """About how many characters an event holds. Never raises."""
    try:
        return _SIZE_OF_EVENT + _container_size(event.data, 2)
    except Exception:  # the queue's thread handles data that cannot be read
        return _SIZE_OF_EVENT


def _container_size(values: Any, levels: int) -> int:
    """About how many characters a container holds, down to some levels; many items are estimated by the first ones."""
    count = len(values)
    if count > _SAMPLE:
        some = list(islice(values.values() if type(values) is dict else values, _SAMPLE))
        return _container_size(some, levels) * count // _SAMPLE
    size = _SIZE_OF_ITEM * count
    for value in values.values() if type(values) is dict else values:
        kind = type(value)
        if kind is int or kind is float:
            continue  # most are, so they are asked for first
        if kind is str:
            size += len(value)
        elif levels and (kind is dict or kind is list or kind is tuple):
            size += _container_size(value, levels - 1)
    return size
