"""The sessions in memory, each with its turnstile.

Owns: which sessions are held, their order of use, and giving way. Must never: know what a session remembers.

A session gives way when it is the longest idle and nobody is inside. It comes back from the archive, or by reading
its list again, so memory stays bounded however many sessions there are.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from ._events import Event
from ._session import Session
from ._turnstile import Turnstile
from .errors import ConfigError, ManagerClosed

__all__ = ["HOT_SESSIONS", "Room", "Rooms"]

HOT_SESSIONS = 512
"""Sessions kept in memory."""


class Room:
    """A session in memory: its turnstile, its events not yet written, and the changes it has acknowledged."""

    __slots__ = ("events", "generation", "session", "turnstile")

    def __init__(self, session_id: str) -> None:
        self.session = Session(session_id)
        self.turnstile = Turnstile()
        self.events: list[Event] = []
        self.generation = 0


class Rooms:
    """All sessions of a manager; `see_off(room)` is called with each that gives way."""

    def __init__(self, see_off: Callable[[Room], None]) -> None:
        self._rooms: OrderedDict[str, Room] = OrderedDict()
        self._mutex = threading.Lock()
        self._see_off = see_off
        self._closed = False

    @contextmanager
    def turn(self, session_id: str, *, keep: bool = True) -> Iterator[Room]:
        """The session's room, alone in it. Without `keep` a session that is not in memory is not taken in."""
        room = self._room(session_id, keep)
        room.turnstile.enter()
        try:
            yield room
        finally:
            room.turnstile.leave()
        self._give_way()

    @asynccontextmanager
    async def aturn(self, session_id: str) -> AsyncIterator[Room]:
        """`turn` for tasks."""
        room = self._room(session_id, keep=True)
        async with room.turnstile.aturn():
            yield room
        self._give_way()

    def look(self, session_id: str) -> Room:
        """The session's room from outside, without waiting and without taking it in."""
        return self._room(session_id, keep=False)

    def folding(self) -> bool:
        """Whether a fold is running in any session."""
        with self._mutex:
            rooms = list(self._rooms.values())
        return any(room.session.machine.state == "in_progress" for room in rooms)

    def check_open(self) -> None:
        """Raise `ManagerClosed` when nobody is let in any more."""
        if self._closed:
            raise ManagerClosed("this manager is closed; make a new one")

    def close(self) -> list[Room]:
        """Let nobody in any more; returns who was there."""
        with self._mutex:
            self._closed = True
            rooms = list(self._rooms.values())
            self._rooms.clear()
        return rooms

    def _room(self, session_id: str, keep: bool) -> Room:
        if not isinstance(session_id, str):
            raise ConfigError(f"session_id must be text, not {type(session_id).__name__}")
        with self._mutex:
            self.check_open()
            room = self._rooms.get(session_id)
            if room is None:
                room = Room(session_id)
                if keep:
                    self._rooms[session_id] = room
            else:
                self._rooms.move_to_end(session_id)
            return room

    def _give_way(self) -> None:
        if len(self._rooms) <= HOT_SESSIONS:
            return
        with self._mutex:
            for session_id, room in list(self._rooms.items())[: len(self._rooms) - HOT_SESSIONS]:
                if not room.turnstile.busy:
                    del self._rooms[session_id]
                    self._see_off(room)
