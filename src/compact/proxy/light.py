"""Knowing without reading it that a request is far from every line.

Owns: `Light`. Must never: hold a request, or say so of one that may be due.

A conversation comes again and again, a little longer each time, and to read 400 KB of JSON takes longer than to send
them. Of a request that was weighed and found light, a hash of its beginning is kept, and how much more it could have
held. What begins with the same bytes has no more tokens than that one had, and one for each further byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from .bounded import Bounded

__all__ = ["HEAVY", "Glance", "Light"]

HEAVY = ("image", "input_image", "input_file", "file", "document", "input_audio", "audio", "video")
"""Kinds of content that may weigh more tokens than they have bytes."""

_HEAVY = [f'"{kind}'.encode() for kind in HEAVY]
_BLOCK = 4_096
"""Bytes from one place to the next at which a beginning may end."""
_KNOWN = 20_000
_LONGEST_END = 65_536


@dataclass(frozen=True, slots=True)
class Glance:
    """What a request looks like from outside."""

    marks: list[bytes]
    """A hash of each beginning, block by block."""
    sure: bool
    """Whether it is light for sure."""


class Light:
    """Beginnings of requests that were light. Belongs to one event loop."""

    def __init__(self) -> None:
        self._known: Bounded[bytes, tuple[int, bytes]] = Bounded(_KNOWN)
        """How many bytes may follow each beginning, and how its request ended: with the fields behind the list."""

    def glance(self, whose: bytes, content: bytes) -> Glance:
        """Look at a request; `whose` is what it must have in common with another besides its beginning."""
        total, marks = sha256(whose), []
        for at in range(_BLOCK, len(content), _BLOCK):
            total.update(memoryview(content)[at - _BLOCK : at])
            marks.append(total.copy().digest()[:16])
        return Glance(marks, self._is_sure(marks, content))

    def _is_sure(self, marks: list[bytes], content: bytes) -> bool:
        for number in range(len(marks), 0, -1):
            found = self._known.get(marks[number - 1])
            if found is not None:
                room, end = found
                new = content[number * _BLOCK :]
                return len(new) < room and content.endswith(end) and not any(kind in new for kind in _HEAVY)
        return False

    def keep(self, glance: Glance, room: int, end: bytes) -> None:
        """A request was weighed and is light: so many tokens more would have been."""
        if glance.marks and room > 0 and len(end) <= _LONGEST_END:
            self._known.keep(glance.marks[-1], (room, end))

    def forget(self) -> None:
        """A window is smaller than was thought."""
        self._known.clear()
