"""Values in this process.

Owns: `MemoryState`, what it holds at most, and which value gives way: the one unused for longest.
Must never: wait for anything.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Kept", "MemoryState"]

_BESIDES = 250
"""Bytes that a value takes besides its own and those of its key."""


class Kept(NamedTuple):
    """A value, where its key stood among those asked for, and since when it is kept."""

    at: int
    value: bytes
    since: float


class MemoryState:
    """Values that end with the process. Belongs to one event loop."""

    def __init__(self, *, ttl: float, entries: int = 10_000, size: int = 256 << 20) -> None:
        self._ttl, self._entries, self._size = ttl, entries, size
        self._kept: dict[str, tuple[bytes, float]] = {}  # in the order in which they were used
        self._held = 0

    def __str__(self) -> str:
        return "this process"

    def find(self, keys: Sequence[str]) -> Kept | None:
        """The first of these keys that is known. It counts as used, and lives no longer for it."""
        for at, key in enumerate(keys):
            if key in self._kept:
                value, since = kept = self._kept.pop(key)
                if time.monotonic() < since + self._ttl:
                    self._kept[key] = kept
                    return Kept(at, value, since)
                self._held -= _weight(key, value)
        return None

    def keep(self, key: str, value: bytes) -> None:
        """Set a value from now on. One that is larger than all that may be held is not kept."""
        old = self._kept.pop(key, None)
        self._held -= _weight(key, old[0]) if old else 0
        if _weight(key, value) > self._size:
            return
        self._kept[key] = value, time.monotonic()
        self._held += _weight(key, value)
        while len(self._kept) > self._entries or self._held > self._size:
            oldest = next(iter(self._kept))
            self._held -= _weight(oldest, self._kept.pop(oldest)[0])

    async def first(self, keys: Sequence[str]) -> tuple[int, bytes] | None:
        """See `State`."""
        found = self.find(keys)
        if found is None:
            return None
        self.keep(keys[found.at], found.value)
        return found.at, found.value

    async def claim(self, key: str, value: bytes) -> bytes:
        """See `State`."""
        found = self.find([key])
        winner = found.value if found else value
        self.keep(key, winner)
        return winner

    async def put(self, key: str, value: bytes) -> None:
        """See `State`."""
        self.keep(key, value)

    async def close(self) -> None:
        """See `State`."""
        self._kept.clear()
        self._held = 0


def _weight(key: str, value: bytes) -> int:
    return len(key) + len(value) + _BESIDES
