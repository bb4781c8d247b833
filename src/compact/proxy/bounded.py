"""A memory that cannot grow for ever.

Owns: `Bounded`. Must never: know what it holds. Keys come from clients, so each memory of the proxy has an end.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

__all__ = ["Bounded"]

Key = TypeVar("Key")
Value = TypeVar("Value")


class Bounded(Generic[Key, Value]):
    """So many values by key; the one that nobody has used for longest gives way."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """The value, which is used by that; None without one."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def keep(self, key: Key, value: Value) -> Value:
        """Remember a value."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._most:
            self._values.popitem(last=False)
        return value

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()
