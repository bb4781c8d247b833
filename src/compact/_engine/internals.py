"""What this library's own adapters, proxy and commands use of a manager beside its public verbs.

Owns: `Internals`: sharing compactions with other processes, archiving a list without compacting it, reporting that a
list was sent unchanged, compacting a list to a size, and the archive itself.
Must never: be used by an application.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._archive.archive import Archive
from .._archive.fold_record import ActiveFolds, own_fields, read_shared, same_fold, shared_value
from .._compaction.plan import Layout
from .._events.serialize import plain
from .._pipeline import events
from .._pipeline.call import Purpose
from .._redaction import Redactor
from .._session.session import FoldRecord, Session
from ..errors import ArchiveError
from .live_config import LiveConfig
from .live_sessions import LiveSessions
from .open_call import CallOpener
from .recorder import EventRecorder
from .run import CallRunner


class Internals:
    """The internal interface of a manager; `manager.internals_of` gives it."""

    def __init__(
        self,
        archive: Archive | None,
        redactor: Redactor,
        sessions: LiveSessions,
        recorder: EventRecorder,
        opener: CallOpener,
        live_config: LiveConfig,
        runner: CallRunner,
    ) -> None:
        self._archive = archive
        self._redactor = redactor
        self._sessions = sessions
        self._recorder = recorder
        self._opener = opener
        self._live_config = live_config
        self._runner = runner

    @property
    def has_archive(self) -> bool:
        """Whether there is an archive."""
        return self._archive is not None

    def archive(self) -> Archive:
        """The archive; `ArchiveError` when nothing is archived."""
        self._sessions.check_open()
        if self._archive is None:
            raise ArchiveError("nothing is archived: storage.adapter is 'none'; set it to 'fs' or 's3'")
        return self._archive

    def compact_to(
        self, session_id: str, messages: Sequence[Any], limit: int, tools: Sequence[Any] | None, layout: Layout
    ) -> Any:
        """The list within a limit, whatever has to fold; the one-shot form."""
        with self._sessions.lock(session_id) as live:
            call = self._runner.open(live, messages, tools, purpose=Purpose("limit", limit=limit, layout=layout))
            return call.messages if call.usage.total <= limit else self._runner.run(live, call)

    async def archive_list(self, session_id: str, messages: Sequence[Any]) -> None:
        """Archive a list without compacting it, before an adapter rewrites the only other copy of it."""
        import asyncio  # here, because only async applications need it

        async with self._sessions.alock(session_id) as live:
            await asyncio.to_thread(self._recorder.save_transcript, live, messages)

    def report_unchanged(self, session_id: str, why: str) -> None:
        """An adapter sent a list unchanged: warn, and do not compare what the provider counts with an older list."""
        live = self._sessions.peek(session_id)
        live.session.sent_tokens = 0
        self._recorder.emit(live, events.sent_unchanged(why))

    # -- compactions shared with other processes ---------------------------------------------------------------------

    def shared_fold(self, session_id: str) -> dict[str, Any] | None:
        """The newest active compaction of a session in memory as plain values, redacted; None without one.

        `reach` is how many messages of the application it replaced, `size` how many it knew.
        """
        value = shared_value(self._sessions.peek(session_id).session)
        return None if value is None else own_fields(self._redactor.redact(plain(value)), value)

    def has_fold(self, session_id: str, step: int) -> bool:
        """Whether a session in memory can replay this compaction."""
        return any(replay.step == step for replay in self._sessions.peek(session_id).session.memory.replays)

    async def adopt_fold(self, session_id: str, value: Mapping[str, Any]) -> None:
        """Take over a compaction of another process. Of two compactions of the same messages, this one stays."""
        from .drive_async import in_thread_to_end

        async with self._sessions.alock(session_id) as live:
            await in_thread_to_end(self._adopt, live.session, value)

    def _adopt(self, session: Session, value: Mapping[str, Any]) -> None:
        if session.reader is None:
            self._opener.load_session(self._live_config.config, session, (), None)
        reader = session.reader
        assert reader is not None
        arriving = reader.with_counter(reader.counter)
        fold, replay, gone_calls = read_shared(value, session, arriving)
        if any(same_fold(known, replay) for known in session.memory.replays):
            return
        if arriving.format is not reader.format:
            session.lists = []  # read in another message format so far
        reader.format, reader.settled = arriving.format, arriving.settled
        lost = session.adopt(fold, replay, gone_calls)
        if lost is not None and lost.step > fold.step:
            self._record_loss(session, lost, fold)

    def _record_loss(self, session: Session, lost: FoldRecord, fold: FoldRecord) -> None:
        """Record in the archive that a compaction of ours gave way to an older one: there the newest one is active."""
        if self._archive is None:
            return
        place, state = self._archive.place(session.id), session.archive_state
        try:
            contents = self._archive.contents(place)
            active = self._archive.active_folds(place, contents)
            if {lost.step, fold.step} <= {*contents.summaries} - {*active.undone}:
                active = ActiveFolds(fold.step, (*active.undone, lost.step), newest=active.newest)
                self._archive.save_undo(session, "undo", lost.step, active)
                if contents.newest == state.known:
                    state.known = *state.known[:2], state.known[2] + 1
        except (ArchiveError, KeyError, TypeError) as error:
            self._recorder.log(f"session {session.id!r}: compaction {lost.step} gave way unrecorded: {error}")
