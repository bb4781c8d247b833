"""The active configuration, and its changes at run time.

Owns: `LiveConfig`: what may be changed, when a change takes effect, and which session has acknowledged it.
Must never: change the configuration while a compaction is running.
"""

from __future__ import annotations

import threading
from typing import Any

from .._pipeline import events
from ..config import CompactConfig
from ..errors import ConfigError
from .live_sessions import LiveSession, LiveSessions
from .recorder import EventRecorder

_FIXED_AT_START = frozenset({"storage", "redaction", "tracing", "agents", "provider", "base_url"})


class LiveConfig:
    """The configuration of a manager's calls now. Safe to share between threads."""

    def __init__(self, config: CompactConfig, sessions: LiveSessions, recorder: EventRecorder) -> None:
        self.config = config
        """The active configuration."""
        self._sessions = sessions
        self._recorder = recorder
        self._changing = threading.Lock()
        self._pending: CompactConfig | None = None
        self._changes: list[dict[str, Any]] = []
        self._warned_unredacted = config.redaction.enabled

    def change(self, changes: dict[str, Any]) -> None:
        """Validate changes at once, and apply them as soon as no compaction is running."""
        if fixed := _FIXED_AT_START & changes.keys():
            raise ConfigError(f"{', '.join(sorted(fixed))}: set when the manager is made; make a new one to change it")
        with self._changing:
            self._pending = (self._pending or self.config).changed(**changes)
            self._changes.append(changes)
        self.apply_pending()

    def apply_pending(self) -> None:
        """Apply pending changes, unless a compaction is running."""
        if self._pending is None:
            return
        with self._changing:
            if self._pending is not None and not self._sessions.is_compacting():
                self.config, self._pending = self._pending, None

    def has_changes_for(self, live: LiveSession) -> bool:
        """Whether there are changes that this session has not acknowledged."""
        return live.acknowledged < len(self._changes)

    def acknowledge(self, live: LiveSession) -> None:
        """Report to a session what was changed since its last call, and once that redaction is off."""
        if not self._warned_unredacted:
            self._warned_unredacted = True
            self._recorder.emit(live, events.redaction_disabled())
        if self.has_changes_for(live) and self._pending is None:
            changed: dict[str, Any] = {}
            for changes in self._changes[live.acknowledged :]:
                changed |= changes
            live.acknowledged = len(self._changes)
            self._recorder.emit(live, events.config_changed(changed))
