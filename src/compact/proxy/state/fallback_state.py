"""A shared state that keeps working when its backend fails: a failure costs a summary, never a request.

Owns: `FallbackState`: the time limit of a call, the pause after a failure, and the local copies.
Must never: raise, or let a request wait for a backend that does not answer.

Every value that was claimed, put or found is kept in this process too. A claimed value never changes, so its copy is
correct; but another proxy may have compacted a longer beginning of the conversation, so the backend is asked for the
keys before the one that is known here. A copy from before a failure, or older than a minute, is asked for as well:
that extends the value's life, finds what others put, and restores what the backend lost or never received.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from .memory_state import MemoryState

if TYPE_CHECKING:
    from . import SharedState

P = ParamSpec("P")
T = TypeVar("T")


class _BackendUnavailable(Exception):
    """The backend gave no answer."""


class FallbackState:
    """A state whose calls never fail.

    `log(level, event, **fields)` is called when the backend fails, and when it answers again.
    """

    def __init__(
        self,
        backend: SharedState,
        *,
        ttl: float,
        log: Callable[..., None],
        patience: float = 0.25,
        pause: float = 1.0,
        longest_pause: float = 15.0,
        trust: float = 60.0,
    ) -> None:
        self.away = False
        """Whether the backend did not answer the last call."""
        self.failures = 0
        """Calls that the backend did not answer, without those skipped during a pause."""
        self._backend, self._log = backend, log
        self._local = MemoryState(ttl=ttl)
        self._patience, self._trust = patience, min(trust, ttl / 4)
        self._shortest_pause, self._longest_pause = pause, longest_pause
        self._pause = self._again = self._left = 0.0
        self._back = float("-inf")

    async def first(self, keys: Sequence[str]) -> tuple[int, bytes] | None:
        """See `SharedState`."""
        kept = self._local.find(keys)
        old = kept is not None and kept.since <= max(self._back, time.monotonic() - self._trust)
        asked = keys if kept is None else keys[: kept.at + old]
        known = (kept.at, kept.value) if kept else None
        if not asked:
            return known
        try:
            found = await self._ask(self._backend.first, asked)
        except _BackendUnavailable:
            return known
        if found is not None:
            self._local.store(keys[found[0]], found[1])
            return found
        if kept is not None and old:
            return kept.at, await self.claim(keys[kept.at], kept.value)
        return known

    async def claim(self, key: str, value: bytes) -> bytes:
        """See `SharedState`."""
        try:
            winner = await self._ask(self._backend.claim, key, value)
        except _BackendUnavailable:
            return await self._local.claim(key, value)
        self._local.store(key, winner)
        return winner

    async def put(self, key: str, value: bytes) -> None:
        """See `SharedState`."""
        self._local.store(key, value)
        with suppress(_BackendUnavailable):
            await self._ask(self._backend.put, key, value)

    async def close(self) -> None:
        """See `SharedState`."""
        with suppress(Exception):
            async with asyncio.timeout(4 * self._patience):
                await self._backend.close()

    async def _ask(self, call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the backend, unless it failed and the pause after that is not over."""
        if self.away:
            if time.monotonic() < self._again:
                raise _BackendUnavailable
            self._pause = min(2 * self._pause, self._longest_pause)
            self._again = time.monotonic() + self._pause
        try:
            async with asyncio.timeout(self._patience):
                answer = await call(*args, **kwargs)
        except Exception as error:
            self._note_failure(error)
            raise _BackendUnavailable from None
        if self.away:
            self.away, self._back = False, time.monotonic()
            self._log("info", "state_back", place=str(self._backend), seconds=round(self._back - self._left, 1))
        return answer

    def _note_failure(self, error: Exception) -> None:
        self.failures += 1
        if self.away:
            return
        self.away, self._left = True, time.monotonic()
        self._pause, self._again = self._shortest_pause, self._left + self._shortest_pause
        # The error's name, not its text, which may quote a URL or a key.
        cause = getattr(error, "sqlite_errorname", type(error).__name__)
        meaning = "compactions of other proxies are unknown until it is back: each may cost a summary, never a request"
        self._log("warning", "state_away", place=str(self._backend), error=cause, meaning=meaning)
