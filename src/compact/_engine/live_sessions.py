"""The sessions in memory, each with its lock.

Owns: which sessions are in memory, their order of use, and evicting them.
Must never: know what a session remembers.

The session that was idle the longest is evicted when there are too many. It comes back from the archive, or by reading
its list again, so memory stays bounded however many sessions there are.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from .._events.event import Event
from .._session.session import Session
from ..errors import ConfigError, ManagerClosed
from .fair_lock import FairLock

if TYPE_CHECKING:
    from .background_fold import BackgroundFold

HOT_SESSIONS = 512
"""Sessions kept in memory."""


class LiveSession:
    """A session in memory: its lock, its events not yet written, and the changes it has acknowledged."""

    __slots__ = ("acknowledged", "background", "events", "last_event", "lock", "session", "users")

    def __init__(self, session_id: str) -> None:
        self.session = Session(session_id)
        self.lock = FairLock()
        self.events: list[Event] = []
        self.acknowledged = 0
        """How many changes of the configuration it has acknowledged."""
        self.last_event = 0.0
        """The time of the newest event."""
        self.users = 0
        """How many callers hold the lock or wait for it; a session in use is not evicted."""
        self.background: BackgroundFold | None = None
        """The compaction that is made in the background, or was made and waits to be used."""

    def drop_background(self) -> None:
        """Stop and drop the background compaction, if there is one."""
        if self.background is not None:
            self.background.drop()
            self.background = None


class SessionLock:
    """A session with its lock held, for `with`. A class, because a generator would cost more than the locks."""

    __slots__ = ("_keep", "_live", "_session_id", "_sessions")

    def __init__(self, sessions: LiveSessions, session_id: str, keep: bool) -> None:
        self._sessions, self._session_id, self._keep = sessions, session_id, keep

    def __enter__(self) -> LiveSession:
        live = self._live = self._sessions.enter(self._session_id, self._keep)
        try:
            live.lock.acquire()
        except BaseException:
            self._sessions.leave(live)
            raise
        return live

    def __exit__(self, *failure: object) -> None:
        try:
            self._live.lock.release()
        finally:
            self._sessions.leave(self._live)


class LiveSessions:
    """All sessions of a manager; `evict(live)` is called with each that is evicted."""

    def __init__(self, evict: Callable[[LiveSession], None]) -> None:
        self._live: OrderedDict[str, LiveSession] = OrderedDict()
        self._mutex = threading.Lock()
        self._evict = evict
        self._closed = False

    def lock(self, session_id: str, *, keep: bool = True) -> SessionLock:
        """The session with its lock held. Without `keep` a session that is not in memory is not kept there."""
        return SessionLock(self, session_id, keep)

    @asynccontextmanager
    async def alock(self, session_id: str) -> AsyncIterator[LiveSession]:
        """`lock` for tasks."""
        live = self.enter(session_id, keep=True)
        try:
            async with live.lock.hold():
                yield live
        finally:
            if evicted := self._remove_idle(live):
                import asyncio  # here, because only async applications need it

                # In threads: evicting may write.
                writing = (asyncio.to_thread(self._evict, idle) for idle in evicted)
                await asyncio.shield(asyncio.gather(*writing))

    def peek(self, session_id: str) -> LiveSession:
        """The session without its lock, without waiting and without keeping it."""
        live = self.enter(session_id, keep=False)
        self.leave(live)
        return live

    def is_compacting(self) -> bool:
        """Whether a compaction is running in any session."""
        with self._mutex:
            sessions = list(self._live.values())
        return any(live.session.machine.state == "in_progress" for live in sessions)

    @staticmethod
    def check_id(session_id: str) -> None:
        """Refuse a session id that is not text."""
        if not isinstance(session_id, str):
            raise ConfigError(f"session_id must be text, not {type(session_id).__name__}")

    def check_open(self) -> None:
        """Raise `ManagerClosed` after `close`."""
        if self._closed:
            raise ManagerClosed("this manager is closed; make a new one")

    def close(self) -> list[LiveSession]:
        """Refuse every later use; returns the sessions that were in memory."""
        with self._mutex:
            self._closed = True
            sessions = list(self._live.values())
            self._live.clear()
        return sessions

    def enter(self, session_id: str, keep: bool) -> LiveSession:
        """Count one more user of a session. The caller must `leave`."""
        if type(session_id) is not str:
            self.check_id(session_id)
        with self._mutex:
            if self._closed:
                self.check_open()
            live = self._live.get(session_id)
            if live is None:
                live = LiveSession(session_id)
                if keep:
                    self._live[session_id] = live
            else:
                self._live.move_to_end(session_id)
            live.users += 1
            return live

    def leave(self, live: LiveSession) -> None:
        """Count one user less, and evict what is too much."""
        for idle in self._remove_idle(live):
            self._evict(idle)

    def _remove_idle(self, live: LiveSession) -> list[LiveSession]:
        """Count one user less; returns the sessions that were taken out of memory."""
        with self._mutex:
            live.users -= 1
            if len(self._live) <= HOT_SESSIONS:
                return []
            oldest = list(self._live.items())[: len(self._live) - HOT_SESSIONS]
            evicted = [(session_id, idle) for session_id, idle in oldest if idle.users == 0]
            for session_id, _ in evicted:
                del self._live[session_id]
        return [idle for _, idle in evicted]
