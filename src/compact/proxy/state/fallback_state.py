"""The state as the proxy uses it: a place that is away costs a summary, never a request.

Owns: `Careful`: how long a place may take, when it is left alone, and what is known meanwhile.
Must never: raise, or let a request wait for a place that does not answer.

Everything that was claimed, put or found is kept in this process too. A value that was claimed never changes, so a copy
is right; but somebody else may have folded a longer beginning of the conversation, so the place is asked for the keys
before the one that is known here. A copy from before the place was away, or older than a minute, is asked for too: then
the value lives longer there, what others put is seen, and what the place lost, or never got, comes back to it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from .memory_state import MemoryState

if TYPE_CHECKING:
    from . import State

__all__ = ["Careful"]

P = ParamSpec("P")
T = TypeVar("T")


class _Away(Exception):
    """The place gave no answer."""


class Careful:
    """A state that always answers.

    `say(level, event, **fields)` is told when the place goes away, and when it is back.
    """

    def __init__(
        self,
        place: State,
        *,
        ttl: float,
        say: Callable[..., None],
        patience: float = 0.25,
        pause: float = 1.0,
        longest_pause: float = 15.0,
        trust: float = 60.0,
    ) -> None:
        self.away = False
        """Whether the place did not answer when it was last asked."""
        self.failures = 0
        """Calls that got no answer from the place; those that did not ask do not count."""
        self._place, self._say = place, say
        self._local = MemoryState(ttl=ttl)
        self._patience, self._trust = patience, min(trust, ttl / 4)
        self._shortest_pause, self._longest_pause = pause, longest_pause
        self._pause = self._again = self._left = 0.0
        self._back = float("-inf")

    async def first(self, keys: Sequence[str]) -> tuple[int, bytes] | None:
        """See `State`."""
        kept = self._local.find(keys)
        old = kept is not None and kept.since <= max(self._back, time.monotonic() - self._trust)
        asked = keys if kept is None else keys[: kept.at + old]
        known = (kept.at, kept.value) if kept else None
        if not asked:
            return known
        try:
            found = await self._ask(self._place.first, asked)
        except _Away:
            return known
        if found is not None:
            self._local.keep(keys[found[0]], found[1])
            return found
        if kept is not None and old:
            return kept.at, await self.claim(keys[kept.at], kept.value)
        return known

    async def claim(self, key: str, value: bytes) -> bytes:
        """See `State`."""
        try:
            winner = await self._ask(self._place.claim, key, value)
        except _Away:
            return await self._local.claim(key, value)
        self._local.keep(key, winner)
        return winner

    async def put(self, key: str, value: bytes) -> None:
        """See `State`."""
        self._local.keep(key, value)
        with suppress(_Away):
            await self._ask(self._place.put, key, value)

    async def close(self) -> None:
        """See `State`."""
        with suppress(Exception):
            async with asyncio.timeout(4 * self._patience):
                await self._place.close()

    async def _ask(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Ask the place, unless it is away and its pause is not over; then one call goes and looks."""
        if self.away:
            if time.monotonic() < self._again:
                raise _Away
            self._pause = min(2 * self._pause, self._longest_pause)
            self._again = time.monotonic() + self._pause
        try:
            async with asyncio.timeout(self._patience):
                answer = await call(*args, **kwargs)
        except Exception as error:
            self._failed(error)
            raise _Away from None
        if self.away:
            self.away, self._back = False, time.monotonic()
            self._say("info", "state_back", place=str(self._place), seconds=round(self._back - self._left, 1))
        return answer

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        if self.away:
            return
        self.away, self._left = True, time.monotonic()
        self._pause, self._again = self._shortest_pause, self._left + self._shortest_pause
        # Its name, not its text, which may quote an address or a key.
        cause = getattr(error, "sqlite_errorname", type(error).__name__)
        meaning = "folds of other proxies are unknown until it is back, which may cost a summary each, never a request"
        self._say("warning", "state_away", place=str(self._place), error=cause, meaning=meaning)
