"""The configuration in force, and its changes at run time.

Owns: `LiveConfig`: what may be changed, when a change takes effect, and which session has been told of it.
Must never: change parameters while a fold is running.
"""

from __future__ import annotations

import threading
from typing import Any

from .._pipeline.effects import Emit, warning
from ..config import CompactConfig
from ..errors import ConfigError
from .live_sessions import LiveSession, LiveSessions
from .recorder import EventRecorder

__all__ = ["LiveConfig"]

_FIXED_AT_START = frozenset({"storage", "redaction", "tracing", "agents", "provider", "base_url"})


class LiveConfig:
    """What holds for a manager's calls now. Safe to share between threads."""

    def __init__(self, config: CompactConfig, rooms: LiveSessions, journal: EventRecorder) -> None:
        self.config = config
        """The configuration in force."""
        self._rooms = rooms
        self._journal = journal
        self._changing = threading.Lock()
        self._pending: CompactConfig | None = None
        self._changes: list[dict[str, Any]] = []
        self._said_unredacted = config.redaction.enabled

    def change(self, changes: dict[str, Any]) -> None:
        """Validate changes at once, and let them take effect as soon as no fold is running."""
        if fixed := _FIXED_AT_START & changes.keys():
            raise ConfigError(f"{', '.join(sorted(fixed))}: set when the manager is made; make a new one to change it")
        with self._changing:
            self._pending = (self._pending or self.config).changed(**changes)
            self._changes.append(changes)
        self.settle()

    def settle(self) -> None:
        """Let what was changed take effect, unless a fold is running."""
        if self._pending is None:
            return
        with self._changing:
            if self._pending is not None and not self._rooms.folding():
                self.config, self._pending = self._pending, None

    def news_for(self, room: LiveSession) -> bool:
        """Whether parameters were changed that this session has not acknowledged yet."""
        return room.generation < len(self._changes)

    def acknowledge(self, room: LiveSession) -> None:
        """Tell a session what was changed since its last call, and once that redaction is off."""
        if not self._said_unredacted:
            self._said_unredacted = True
            message = "redaction is off: secrets in messages are stored and exported as they stand"
            self._journal.emit(room, warning("redaction_disabled", "high", message))
        if self.news_for(room) and self._pending is None:
            news: dict[str, Any] = {}
            for changes in self._changes[room.generation :]:
                news |= changes
            room.generation = len(self._changes)
            self._journal.emit(room, Emit("compact.config_changed", {"changed": news}))
