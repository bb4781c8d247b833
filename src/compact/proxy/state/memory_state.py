"""Shared state in the memory of this process.

Owns: `MemoryState`, its limits, and which value is dropped: the one unused for longest.
Must never: do I/O.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

_BESIDES = 250
"""Bytes of overhead of each value."""


class StoredValue(NamedTuple):
    """A value, the index of its key among those asked for, and when it was stored."""

    at: int
    value: bytes
    since: float


class MemoryState:
    """Values that are lost with the process. Belongs to one event loop."""

    def __init__(self, *, ttl: float, entries: int = 10_000, size: int = 256 << 20) -> None:
        self._ttl, self._entries, self._size = ttl, entries, size
        self._kept: dict[str, tuple[bytes, float]] = {}  # in the order in which they were used
        self._held = 0

    def __str__(self) -> str:
        return "this process"

    def find(self, keys: Sequence[str]) -> StoredValue | None:
        """The first of these keys that has a value. It counts as used, and its life is not extended."""
        for at, key in enumerate(keys):
            if key in self._kept:
                value, since = kept = self._kept.pop(key)
                if time.monotonic() < since + self._ttl:
                    self._kept[key] = kept
                    return StoredValue(at, value, since)
                self._held -= _size_of(key, value)
        return None

    def store(self, key: str, value: bytes) -> None:
        """Set a value, with a new life. A value larger than the limit of all is not stored."""
        old = self._kept.pop(key, None)
        self._held -= _size_of(key, old[0]) if old else 0
        if _size_of(key, value) > self._size:
            return
        self._kept[key] = value, time.monotonic()
        self._held += _size_of(key, value)
        while len(self._kept) > self._entries or self._held > self._size:
            oldest = next(iter(self._kept))
            self._held -= _size_of(oldest, self._kept.pop(oldest)[0])

    async def first(self, keys: Sequence[str]) -> tuple[int, bytes] | None:
        """See `State`."""
        found = self.find(keys)
        if found is None:
            return None
        self.store(keys[found.at], found.value)
        return found.at, found.value

    async def claim(self, key: str, value: bytes) -> bytes:
        """See `State`."""
        found = self.find([key])
        winner = found.value if found else value
        self.store(key, winner)
        return winner

    async def put(self, key: str, value: bytes) -> None:
        """See `State`."""
        self.store(key, value)

    async def close(self) -> None:
        """See `State`."""
        self._kept.clear()
        self._held = 0


def _size_of(key: str, value: bytes) -> int:
    return len(key) + len(value) + _BESIDES
