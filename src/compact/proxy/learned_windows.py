"""Context windows learned from refusals of providers.

Owns: `LearnedWindows`: how long a learned window is used, in this proxy and in those that share its state.
Must never: know whose window it is, or read a refusal.
"""

from __future__ import annotations

import json
import time

from .lru_cache import LruCache
from .state import SharedState

_EXPIRY = 3_600.0
"""Seconds for which a learned window is used: a refusal may be misread, and servers change."""
_REFRESH = 60.0
"""Seconds after which the shared state is read again."""
_HELD = 10_000


class LearnedWindows:
    """Learned windows by key. Belongs to one event loop."""

    def __init__(self, state: SharedState) -> None:
        self._state = state
        self._known: LruCache[str, tuple[int, float]] = LruCache(_HELD)
        """Each window, 0 for none, and when it expires."""

    async def get(self, key: str) -> int | None:
        """The learned window of a key, or None."""
        now = time.time()
        limit, until = self._known.get(key) or (0, 0.0)
        if now >= until:
            found = await self._state.first([key])
            limit, until = _parse_window(found[1]) if found else (0, 0.0)
            if now >= until:
                limit, until = 0, now + _REFRESH
            self._known.put(key, (limit, until))
        return limit or None

    async def learn(self, key: str, limit: int) -> None:
        """Learn that requests above a size are refused. The lowest window that has not expired is kept."""
        lowest, until = min(limit, await self.get(key) or limit), time.time() + _EXPIRY
        self._known.put(key, (lowest, until))
        await self._state.put(key, json.dumps([lowest, until]).encode())


def _parse_window(value: bytes) -> tuple[int, float]:
    """A window of the shared state and its expiry; zeros when it cannot be read."""
    try:
        limit, until = json.loads(value)
        return int(limit), float(until)
    except (ValueError, TypeError, OverflowError):
        return 0, 0.0
