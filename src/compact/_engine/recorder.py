"""What leaves the engine: events to the sinks and the archive, transcripts and records to the archive.

Owns: the time of events, and when events are written to the archive: with their compaction, or when many are held.
Must never: let a sink or the event file stop the agent. A transcript or record that cannot be stored is an
`ArchiveError`, because then nothing may be dropped.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from .._archive.archive import Archive, Stored
from .._events.event import Event
from .._pipeline import events
from .._pipeline.effects import Emit
from .._pipeline.outcome import Compacted
from ..errors import ArchiveError
from ..sinks.sink_list import SinkList
from .live_sessions import LiveSession

HELD_EVENTS = 64
"""Events of a session held in memory: until a compaction writes them, or, before the first one, the newest."""
HELD_EVENTS_APART = 256
"""The same for stores that cannot append, where every write is one object."""


class EventRecorder:
    """The sinks and, when there is one, the archive."""

    def __init__(self, archive: Archive | None, sinks: SinkList) -> None:
        self._archive = archive
        self._sinks = sinks
        self.watched = archive is not None or bool(sinks)
        """Whether an event would reach a sink or the archive. (Warnings also go to the log.)"""

    def emit(self, live: LiveSession, effect: Emit) -> None:
        """Send an event to every sink, and hold it for the archive. Writes nothing, so event loops may call it."""
        name, data, status, duration = effect
        if not self.watched and name != "compact.warning":
            return
        session = live.session
        # Never the same time twice: a session's events are told apart by it, and some clocks are coarse. A clock that
        # was set back by more than a second is believed.
        now = time.time()
        if live.last_event - 1.0 < now <= live.last_event:
            now = live.last_event + 1e-6
        live.last_event = now
        event = Event(name, session.id, session.step, now, duration, status, data)
        if self._archive is not None:
            live.events.append(event)
            if not session.step and len(live.events) > 2 * HELD_EVENTS:
                del live.events[:-HELD_EVENTS]
        self._sinks(event)

    def holds_many(self, live: LiveSession) -> bool:
        """Whether so many events are held that they should be written without waiting for a compaction."""
        if self._archive is None or not live.session.step:
            return False
        return len(live.events) >= (HELD_EVENTS if self._archive.appends else HELD_EVENTS_APART)

    def save_transcript(self, live: LiveSession, raws: Sequence[Any]) -> int:
        """Store the messages before a compaction; the step they were stored as."""
        session = live.session
        if self._archive is None:
            return session.step + 1
        stored = self._archive.save_transcript(session, raws)
        session.step = stored.step
        self.emit_archival(live, stored)
        return stored.step

    def save_record(self, live: LiveSession, compacted: Compacted) -> None:
        """Store what a compaction did."""
        if self._archive is not None:
            self.emit_archival(live, self._archive.save_record(live.session, compacted))

    def write_events(self, live: LiveSession) -> None:
        """Write held events to the archive; a session that was never compacted has none there."""
        if self._archive is None or not live.events or not live.session.step:
            return
        held, live.events = live.events, []
        try:
            self._archive.save_events(live.session.id, live.session.step, held)
        except ArchiveError as error:
            live.events[:0] = held[-HELD_EVENTS_APART:]  # the next write tries again
            self.log(f"events of session {live.session.id!r} were not archived: {error}")

    def log(self, text: str) -> None:
        """Log what no event can carry."""
        self._sinks.complain(text)

    def close(self, sessions: Iterable[LiveSession]) -> None:
        """Write what is held, and close the sinks."""
        for live in sessions:
            self.write_events(live)
        self._sinks.close()

    def emit_archival(self, live: LiveSession, stored: Stored) -> None:
        """Report what the store acknowledged."""
        assert self._archive is not None
        adapter = self._archive.adapter
        self.emit(live, events.archival(live.session.id, stored.step, adapter, stored.key, stored.size, stored.sha256))
