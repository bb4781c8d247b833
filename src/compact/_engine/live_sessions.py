"""The sessions in memory, each with its turnstile.

Owns: which sessions are held, their order of use, and giving way. Must never: know what a session remembers.

A session gives way when it is the longest idle and nobody is inside. It comes back from the archive, or by reading
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

__all__ = ["HOT_SESSIONS", "LiveSession", "LiveSessions"]

HOT_SESSIONS = 512
"""Sessions kept in memory."""


class LiveSession:
    """A session in memory: its turnstile, its events not yet written, and the changes it has acknowledged."""

    __slots__ = ("events", "generation", "preparation", "said", "session", "turnstile", "users")

    def __init__(self, session_id: str) -> None:
        self.session = Session(session_id)
        self.turnstile = FairLock()
        self.events: list[Event] = []
        self.generation = 0
        self.said = 0.0
        """When the newest event was."""
        self.users = 0
        """Who is inside or on the way in; a room in use does not give way."""
        self.preparation: BackgroundFold | None = None
        """The fold that is being made ahead of need, or was and waits to be used."""

    def give_up(self) -> None:
        """Whatever was made ahead of need is not wanted any more."""
        if self.preparation is not None:
            self.preparation.give_up()
            self.preparation = None


class SessionLock:
    """A session's room to be alone in, for `with`. A class, because a generator would cost more than the locks."""

    __slots__ = ("_keep", "_room", "_rooms", "_session_id")

    def __init__(self, rooms: LiveSessions, session_id: str, keep: bool) -> None:
        self._rooms, self._session_id, self._keep = rooms, session_id, keep

    def __enter__(self) -> LiveSession:
        room = self._room = self._rooms._room(self._session_id, self._keep)
        try:
            room.turnstile.enter()
        except BaseException:
            self._rooms._leave(room)
            raise
        return room

    def __exit__(self, *failure: object) -> None:
        try:
            self._room.turnstile.leave()
        finally:
            self._rooms._leave(self._room)


class LiveSessions:
    """All sessions of a manager; `see_off(room)` is called with each that gives way."""

    def __init__(self, see_off: Callable[[LiveSession], None]) -> None:
        self._rooms: OrderedDict[str, LiveSession] = OrderedDict()
        self._mutex = threading.Lock()
        self._see_off = see_off
        self._closed = False

    def turn(self, session_id: str, *, keep: bool = True) -> SessionLock:
        """The session's room, alone in it. Without `keep` a session that is not in memory is not taken in."""
        return SessionLock(self, session_id, keep)

    @asynccontextmanager
    async def aturn(self, session_id: str) -> AsyncIterator[LiveSession]:
        """`turn` for tasks."""
        room = self._room(session_id, keep=True)
        try:
            async with room.turnstile.aturn():
                yield room
        finally:
            if leaving := self._left(room):
                import asyncio  # here, because only async hosts need it

                # Seeing off may write: the loop has better things to do.
                writing = (asyncio.to_thread(self._see_off, idle) for idle in leaving)
                await asyncio.shield(asyncio.gather(*writing))

    def look(self, session_id: str) -> LiveSession:
        """The session's room from outside, without waiting and without taking it in."""
        room = self._room(session_id, keep=False)
        self._leave(room)
        return room

    def _leave(self, room: LiveSession) -> None:
        """Somebody goes out; whoever gives way now is seen off."""
        for idle in self._left(room):
            self._see_off(idle)

    def folding(self) -> bool:
        """Whether a fold is running in any session."""
        with self._mutex:
            rooms = list(self._rooms.values())
        return any(room.session.machine.state == "in_progress" for room in rooms)

    @staticmethod
    def check_id(session_id: str) -> None:
        """Refuse what is no session id."""
        if not isinstance(session_id, str):
            raise ConfigError(f"session_id must be text, not {type(session_id).__name__}")

    def check_open(self) -> None:
        """Raise `ManagerClosed` when nobody is let in any more."""
        if self._closed:
            raise ManagerClosed("this manager is closed; make a new one")

    def close(self) -> list[LiveSession]:
        """Let nobody in any more; returns who was there."""
        with self._mutex:
            self._closed = True
            rooms = list(self._rooms.values())
            self._rooms.clear()
        return rooms

    def _room(self, session_id: str, keep: bool) -> LiveSession:
        if type(session_id) is not str:
            self.check_id(session_id)
        with self._mutex:
            if self._closed:
                self.check_open()
            room = self._rooms.get(session_id)
            if room is None:
                room = LiveSession(session_id)
                if keep:
                    self._rooms[session_id] = room
            else:
                self._rooms.move_to_end(session_id)
            room.users += 1
            return room

    def _left(self, room: LiveSession) -> list[LiveSession]:
        """Somebody went out; returns who gives way now."""
        with self._mutex:
            room.users -= 1
            if len(self._rooms) <= HOT_SESSIONS:
                return []
            oldest = list(self._rooms.items())[: len(self._rooms) - HOT_SESSIONS]
            leaving = [(session_id, idle) for session_id, idle in oldest if idle.users == 0]
            for session_id, _ in leaving:
                del self._rooms[session_id]
        return [idle for _, idle in leaving]
