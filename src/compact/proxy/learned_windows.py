"""Windows that providers were heard to have.

Owns: `LearnedWindows`: for how long one is believed, here and by those who share the state. Must never: know whose it is, or
read a refusal.
"""

from __future__ import annotations

import json
import time

from .lru_cache import LruCache
from .state import State

__all__ = ["LearnedWindows"]

_BELIEVED = 3_600.0
"""Seconds for which a window is believed that a refusal taught: words may be misread, and servers change."""
_UNASKED = 60.0
"""Seconds after which others are asked again whether they learned one."""
_HELD = 10_000


class LearnedWindows:
    """Learned windows by key. Belongs to one event loop."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: LruCache[str, tuple[int, float]] = LruCache(_HELD)
        """Each window, 0 for none, and until when that holds."""

    async def of(self, key: str) -> int | None:
        """The window that was learned, while it is believed."""
        now = time.time()
        limit, until = self._known.get(key) or (0, 0.0)
        if now >= until:
            found = await self._state.first([key])
            limit, until = _read(found[1]) if found else (0, 0.0)
            if now >= until:
                limit, until = 0, now + _UNASKED
            self._known.put(key, (limit, until))
        return limit or None

    async def learn(self, key: str, limit: int) -> None:
        """A request above this was refused. The lowest of those that are believed counts."""
        lowest, until = min(limit, await self.of(key) or limit), time.time() + _BELIEVED
        self._known.put(key, (lowest, until))
        await self._state.put(key, json.dumps([lowest, until]).encode())


def _read(value: bytes) -> tuple[int, float]:
    """What somebody learned; nothing when it cannot be read."""
    try:
        limit, until = json.loads(value)
        return int(limit), float(until)
    except (ValueError, TypeError, OverflowError):
        return 0, 0.0
