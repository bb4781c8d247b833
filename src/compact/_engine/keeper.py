"""The verbs that look back: restore, undo, redo, diff, recall, verify, forget, prune.

Owns: `Keeper`, the half of `CompactManager` that works on the archive. Must never: fold, or need a session that this
process has seen: all of it works in a new process, from the archive alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .._archive.archive import Archive, Stored
from .._session.session import Session
from ..errors import ArchiveError, ConfigError
from .live_sessions import LiveSession, LiveSessions
from .open_call import Desk
from .recorder import EventRecorder

if TYPE_CHECKING:
    from .._archive.audit import Audit
    from .._archive.diff import Diff
    from .._archive.history import ArchiveHistory, Forgotten
    from .._archive.search_index import Recalled

__all__ = ["Keeper"]


class Keeper:
    """What a manager can say and do about what has been folded."""

    _rooms: LiveSessions
    _journal: EventRecorder
    _desk: Desk
    _archive: Archive | None
    _index_folder: Path | None
    """Where the indexes of recall lie; None for in memory."""
    _index_within: Path | None
    """From where on no step to that folder may be a link."""

    def restore(self, session_id: str, step: int | None = None) -> list[Any]:
        """The transcript as it was before the fold of this step (the newest by default), redacted.

        It only reads: to go back to it, use `undo`.
        """
        return self._looking_back(session_id).transcript(session_id, step)

    def undo(self, session_id: str, messages: Sequence[Any] | None = None) -> list[Any]:
        """Take the newest fold back, and give the list as it was before it.

        Pass the list you have (it begins with what the fold left): what came since is kept behind the restored
        messages, and messages that were never folded stay the very objects you passed. Call it again to go back
        further. Folded messages come from the archive, without their secrets. The next `preflight` folds again when a
        threshold is still reached: change what you did not like before it.
        """
        return self._step(session_id, messages, "undo")

    def redo(self, session_id: str, messages: Sequence[Any] | None = None) -> list[Any]:
        """Put the fold that was undone last in force again, and give the list it left.

        Pass the list you have (it begins with what `undo` gave) to keep what came since. A new fold ends redoing.
        """
        return self._step(session_id, messages, "redo")

    def diff(self, session_id: str, step: int | None = None) -> Diff:
        """What a fold did (the newest by default): kept, folded, shortened, written. `print` it."""
        return self._looking_back(session_id).diff(session_id, step)

    def recall(
        self, session_id: str, query: str | None = None, *, cite: str | None = None, limit: int | None = None
    ) -> list[Recalled]:
        """What was folded, found again: by words, best first, or by a summary's citations, in the session's order.

        `cite` takes "#12", "#12-18", or a whole line of a summary. The text is the original, redacted. At most
        `limit` messages come back: unless you say otherwise 5 for a query and 1,000 for a citation.
        """
        return self._looking_back(session_id).recall(session_id, query, cite, limit)

    def verify(self, session_id: str) -> Audit:
        """Check a session's files against every hash that was written of them. True when nothing was altered."""
        return self._looking_back(session_id).audit(session_id)

    def sessions(self) -> list[str]:
        """The ids of all sessions in the archive."""
        return self._looking_back("").sessions()

    def forget(self, session_id: str) -> Forgotten:
        """Delete all that is kept of a session, in the archive and in memory, for good; says what was deleted."""
        past = self._looking_back(session_id)
        with self._rooms.turn(session_id) as room:
            room.give_up()
            forgotten = past.forget(session_id)
            room.events.clear()
            room.session = Session(session_id)
        return forgotten

    def prune(self, older_than: timedelta, *, dry_run: bool = False) -> list[Forgotten]:
        """Forget every session to which nothing was written for so long; says what was, or would be, deleted."""
        if older_than <= timedelta(0):
            raise ConfigError(f"older_than is {older_than}; give a time above zero, such as timedelta(days=30)")
        past = self._looking_back("")
        return past.prune(time.time() - older_than.total_seconds(), self.forget, dry_run=dry_run)

    def _looking_back(self, session_id: str) -> ArchiveHistory:
        self._rooms.check_open()
        self._rooms.check_id(session_id)
        if self._archive is None:
            raise ArchiveError("nothing is archived: storage.adapter is 'none'; set it to 'fs' or 's3'")
        return self._past

    @cached_property
    def _past(self) -> ArchiveHistory:
        """What the archive knows; loaded when it is first asked, because most processes never look back."""
        from .._archive.history import ArchiveHistory
        from .._archive.search_index import SearchIndex

        assert self._archive is not None
        folder = self._index_folder
        index = SearchIndex(folder, within=self._index_within)
        return ArchiveHistory(
            self._archive, index, self._journal.complain, folder.parent if folder is not None else None
        )

    def _step(self, session_id: str, messages: Sequence[Any] | None, way: Literal["undo", "redo"]) -> list[Any]:
        past = self._looking_back(session_id)
        with self._rooms.turn(session_id) as room:
            room.give_up()
            result, stored = (past.undo if way == "undo" else past.redo)(room.session, messages)
            self._retold(room, stored)
        return result

    def _retold(self, room: LiveSession, stored: Stored) -> None:
        """The session comes back from the archive at its next call; what the provider taught us of it stays."""
        room.session.step = max(room.session.step, stored.step)
        self._journal.archived(room, stored)
        self._journal.write_events(room)
        self._desk.start_over(room)
