"""Texts that are known to hold no secret.

Owns: `Remembered`. Must never: keep a text that holds a secret, or more than it has room for.

Names in events, and messages that are archived fold after fold, need not be read each time. Short texts have a small
room of their own, so that ids and hashes, which never come again, soon give way and push no message out.
"""

from __future__ import annotations

from contextlib import suppress

__all__ = ["Remembered"]

_SHORT, _LONGEST = 256, 32_768
_ENTRY = 64
"""What a text counts besides its characters."""


class Remembered:
    """The newest texts of each size; the oldest give way. Safe to share between threads."""

    __slots__ = ("_long", "_short")

    def __init__(self) -> None:
        self._short = _Room(50_000)
        self._long = _Room(1_000_000)

    def __contains__(self, text: str) -> bool:
        return text in (self._short if len(text) < _SHORT else self._long).texts

    def add(self, text: str) -> None:
        """Remember a text."""
        if len(text) <= _LONGEST:
            (self._short if len(text) < _SHORT else self._long).add(text)


class _Room:
    __slots__ = ("_used", "size", "texts")

    def __init__(self, size: int) -> None:
        self.size = size
        self.texts: dict[str, None] = {}
        self._used = 0

    def add(self, text: str) -> None:
        self.texts[text] = None
        self._used += len(text) + _ENTRY
        with suppress(KeyError, RuntimeError, StopIteration):  # another thread makes room too
            while self._used > self.size:
                oldest = next(iter(self.texts))
                del self.texts[oldest]
                self._used -= len(oldest) + _ENTRY
