"""What is written down of a session: events to the sinks, transcripts, summaries and events to the archive.

Owns: `EventRecorder`, and when events reach the archive: with the fold they belong to, or when many are held.
Must never: let a sink or the event file stop the agent. A transcript or summary that cannot be kept is an
`ArchiveError`, because then nothing may be dropped.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from .._archive.archive import Archive, Stored
from .._events.event import Event
from .._pipeline.effects import Emit
from .._pipeline.job import Outcome
from .._session.entries import FoldReplay
from .._session.session import FoldRecord
from ..errors import ArchiveError
from ..sinks.sink_list import SinkList
from .live_sessions import LiveSession

__all__ = ["EventRecorder"]

EVENTS_HELD = 64
"""Events of a session held in memory: until a fold writes them out, or, before the first fold, the newest ones."""
EVENTS_HELD_APART = 256
"""The same for stores that cannot append, where every write is an object of its own."""


class EventRecorder:
    """The sinks and, when there is one, the archive."""

    def __init__(self, archive: Archive | None, sinks: SinkList) -> None:
        self._archive = archive
        self._sinks = sinks

    @property
    def watched(self) -> bool:
        """Whether anybody would see an event. (Warnings also go to the log.)"""
        return self._archive is not None or bool(self._sinks)

    def emit(self, room: LiveSession, effect: Emit) -> None:
        """Send an event to every sink, and hold it for the archive. Writes nothing: it is called on event loops."""
        if self.watched or effect.name == "compact.warning":
            self.tell(room, effect.name, effect.data, effect.status, effect.duration)

    def tell(
        self,
        room: LiveSession,
        name: str,
        data: Mapping[str, Any],
        status: Literal["ok", "error"] = "ok",
        duration: float = 0.0,
    ) -> None:
        """`emit` without an effect, for what is told at every call."""
        session = room.session
        # Never the same time twice: a session's events are told apart by it, and some clocks are coarse. A clock that
        # was set back by more than a second is believed.
        now = time.time()
        if room.said - 1.0 < now <= room.said:
            now = room.said + 1e-6
        room.said = now
        event = Event(name, session.id, session.step, now, duration, status, data)
        if self._archive is not None:
            room.events.append(event)
            if not session.step and len(room.events) > 2 * EVENTS_HELD:
                del room.events[:-EVENTS_HELD]
        self._sinks(event)

    def overdue(self, room: LiveSession) -> bool:
        """Whether so many events are held that they should be written out, fold or no fold."""
        if self._archive is None or not room.session.step:
            return False
        return len(room.events) >= (EVENTS_HELD if self._archive.appends else EVENTS_HELD_APART)

    def save_transcript(self, room: LiveSession, raws: Sequence[Any]) -> int:
        """Keep the messages before a fold; the step they were stored as."""
        session = room.session
        if self._archive is None:
            return session.step + 1
        stored = self._archive.save_transcript(session, raws)
        session.step = stored.step
        self.archived(room, stored)
        return stored.step

    def save_summary(self, room: LiveSession, outcome: Outcome, fold: FoldRecord, record: FoldReplay) -> None:
        """Keep what a fold did."""
        if self._archive is not None:
            self.archived(room, self._archive.save_summary(room.session, outcome, fold, record))

    def write_events(self, room: LiveSession) -> None:
        """Add held events to the archive of a session; one that never folded has none."""
        if self._archive is None or not room.events or not room.session.step:
            return
        events, room.events = room.events, []
        try:
            self._archive.save_events(room.session.id, room.session.step, events)
        except ArchiveError as error:
            room.events[:0] = events[-EVENTS_HELD_APART:]  # the next write tries again
            self.complain(f"events of session {room.session.id!r} were not archived: {error}")

    def complain(self, text: str) -> None:
        """Say something that no event can carry."""
        self._sinks.complain(text)

    def close(self, rooms: Iterable[LiveSession]) -> None:
        """Write out what is held, and close the sinks."""
        for room in rooms:
            self.write_events(room)
        self._sinks.close()

    def archived(self, room: LiveSession, stored: Stored) -> None:
        """Say what the store acknowledged."""
        assert self._archive is not None
        data = {
            "session_id": room.session.id,
            "step": stored.step,
            "storage_adapter": self._archive.adapter,
            "key": stored.key,
            "bytes": stored.size,
            "sha256": stored.sha256,
        }
        self.emit(room, Emit("compact.archival", data))
