"""Texts that are known to hold no secret.

Owns: `Remembered`. Must never: keep a text that holds a secret, or more than it has room for.

Names in events, and messages that are archived fold after fold, need not be read each time. Short texts are kept
themselves, in a small room, so that ids and hashes, which never come again, soon give way. Of a long one a digest is
kept, or texts that everybody else let go would live on here; it is keyed, so that nobody can make two texts alike.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import blake2b
from typing import Generic, TypeVar

__all__ = ["Remembered"]

_SHORT, _LONGEST = 256, 32_768
_MOST_SHORT, _MOST_LONG = 500, 2_000


class Remembered:
    """The newest texts of each size; the oldest give way. Safe to share between threads."""

    __slots__ = ("_key", "_long", "_short")

    def __init__(self) -> None:
        self._key = os.urandom(16)
        self._short = _Room[str](_MOST_SHORT)
        self._long = _Room[int](_MOST_LONG)

    def __contains__(self, text: str) -> bool:
        if len(text) < _SHORT:
            return text in self._short.kept
        return len(text) <= _LONGEST and self._digest(text) in self._long.kept

    def add(self, text: str) -> None:
        """Remember a text."""
        if len(text) < _SHORT:
            self._short.add(text)
        elif len(text) <= _LONGEST:
            self._long.add(self._digest(text))

    def _digest(self, text: str) -> int:
        whole = text.encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(whole, digest_size=8, key=self._key).digest())


_T = TypeVar("_T")


class _Room(Generic[_T]):
    __slots__ = ("kept", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept: dict[_T, None] = {}

    def add(self, one: _T) -> None:
        self.kept[one] = None
        with suppress(KeyError, RuntimeError, StopIteration):  # another thread makes room too
            while len(self.kept) > self.most:
                del self.kept[next(iter(self.kept))]
