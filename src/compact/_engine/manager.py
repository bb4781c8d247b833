"""The public manager.

Owns: `CompactManager` and its verbs, and `internals_of`, the interface for the rest of this library.
Must never: hold a rule of compaction; what may fold, fail or go out is decided in `_compaction` and `_pipeline`.

A call takes the session's lock, opens (`open_call`), and runs (`run`). Calls on one session are served in the order
they came, from threads and tasks alike; sessions do not affect each other. The verbs that look back work from the
archive alone, also in a new process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from .._archive.archive import Archive, Stored
from .._compaction.plan import Plan
from .._compaction.trigger import Counters, Decision
from .._conversation.formats import FORMATS
from .._conversation.tokens import reported_input
from .._events.event import Sink
from .._pipeline.call import PREFLIGHT, Purpose
from .._redaction import Redactor, held_secrets
from .._session.session import FoldRecord, Session
from ..config import CompactConfig
from ..config.environment import DISABLED_NOTICE, is_disabled
from ..errors import ConfigError
from ..sinks.sink_list import SinkList, configured_sinks
from ..stores import Store, open_store
from ..summarizers import Summarizer, summarizer_for
from .internals import Internals
from .live_config import LiveConfig
from .live_sessions import LiveSession, LiveSessions
from .open_call import CallOpener, Overrides, as_lists
from .recorder import EventRecorder
from .run import CallRunner

if TYPE_CHECKING:
    from .._archive.audit import Audit
    from .._archive.diff import Diff
    from .._archive.history import ArchiveHistory, Forgotten
    from .._archive.search_index import Recalled
    from .._facts.report import Report


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session as it is now; `_session.states` draws its three states."""

    id: str
    state: str
    phase: str
    summary_state: str
    step: int
    version: int
    counters: Counters
    folds: tuple[FoldRecord, ...]
    report: Report | None
    """What the last compaction kept of what mattered; None before the first."""
    config_changed: bool
    """Whether parameters were changed that this session has not acknowledged yet."""


class CompactManager:
    """Keeps the conversations of many sessions inside their window. Safe to share between threads and tasks."""

    def __init__(
        self,
        config: CompactConfig | None = None,
        *,
        summarizer: Summarizer | None = None,
        sinks: Iterable[Sink] = (),
        store: Store | Literal["configured"] | None = "configured",
        dialect: str = "auto",
        protect: Callable[[Any], bool] | None = None,
        before_fold: Callable[[Plan], Plan | None] | None = None,
    ) -> None:
        if dialect not in ("auto", *FORMATS):
            raise ConfigError(f"dialect {dialect!r} is unknown; use 'auto' or one of {', '.join(FORMATS)}")
        config = config if config is not None else CompactConfig()
        summarizer = summarizer or summarizer_for(config.summary)
        redaction, storage = config.redaction, config.storage
        redactor = Redactor(redaction.enabled, redaction.patterns, held_secrets(os.environ))
        opened = open_store(storage) if store == "configured" else store
        adapter = storage.adapter if store == "configured" else type(opened).__name__
        archive = Archive(opened, redactor, adapter) if opened is not None else None
        watching = [*sinks, *configured_sinks(config.tracing)]
        if not (redaction.enabled or redaction.allow_unredacted_export):
            from ..sinks.redaction_guard import refuse_remote_sinks  # here, because only this case parses addresses

            refuse_remote_sinks(watching, config.tracing)
        self._recorder = EventRecorder(archive, SinkList(watching, redactor))
        # The store that was passed in may be anywhere: its index is kept in memory.
        path = Path(storage.path).expanduser()
        self._index_folder = path.absolute() / ".index" if store == "configured" else None
        self._index_within = None if path.is_absolute() else Path.cwd()
        self._opener = CallOpener(
            archive,
            self._recorder,
            dialect=dialect,
            protect=protect,
            before_fold=before_fold,
            offline=summarizer is None,
            redact=redactor.redact if archive is not None or watching else str,
        )
        self._sessions = LiveSessions(self._opener.evict)
        self._live_config = LiveConfig(config, self._sessions, self._recorder)
        self._runner = CallRunner(self._opener, self._recorder, self._live_config, summarizer)
        self._internals = Internals(
            archive, redactor, self._sessions, self._recorder, self._opener, self._live_config, self._runner
        )
        self._disabled = is_disabled()
        if self._disabled:
            self._recorder.log(DISABLED_NOTICE)

    # -- before each model call --------------------------------------------------------------------------------------

    def preflight(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        model: str | None = None,
        max_context_tokens: int | None = None,
        reserve_output: int | None = None,
    ) -> Any:
        """The messages to send: the same list when nothing is due, a compacted one when it is.

        `model`, `max_context_tokens` and `reserve_output` override the configuration for this call: an agent that
        switches to a smaller model compacts before it is called.
        """
        if self._disabled:
            return messages
        return self._call(session_id, messages, tools, (model, max_context_tokens, reserve_output))

    async def apreflight(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        model: str | None = None,
        max_context_tokens: int | None = None,
        reserve_output: int | None = None,
    ) -> Any:
        """`preflight` for async applications: the same result and the same events, without blocking the event loop."""
        if self._disabled:
            return messages
        return await self._acall(session_id, messages, tools, (model, max_context_tokens, reserve_output))

    def manual_compact(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        note: str | None = None,
        tools: Sequence[Any] | None = None,
        model: str | None = None,
        max_context_tokens: int | None = None,
    ) -> Any:
        """Compact now, whatever the usage; the note goes into the trace and the archive."""
        purpose = Purpose("manual", note=note)
        return self._call(session_id, messages, tools, (model, max_context_tokens, None), purpose)

    async def amanual_compact(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        note: str | None = None,
        tools: Sequence[Any] | None = None,
        model: str | None = None,
        max_context_tokens: int | None = None,
    ) -> Any:
        """`manual_compact` for async applications."""
        purpose = Purpose("manual", note=note)
        return await self._acall(session_id, messages, tools, (model, max_context_tokens, None), purpose)

    def recover(
        self,
        session_id: str,
        messages: Sequence[Any],
        limit: int | None = None,
        *,
        tools: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> Any:
        """A smaller list, after a provider refused one as too long. Deterministic, without a model.

        `limit` is the window the provider named. Without it, or when the list already is within it by our count, the
        list shrinks to three quarters. Raises `InsufficientBudget` when it cannot.
        """
        if self._disabled:
            return messages
        return self._call(session_id, messages, tools, (model, None, None), Purpose("overflow", limit=limit))

    def _call(
        self,
        session_id: str,
        messages: Sequence[Any],
        tools: Sequence[Any] | None,
        overrides: Overrides,
        purpose: Purpose = PREFLIGHT,
    ) -> Any:
        with self._sessions.lock(session_id) as live:
            return self._runner.run(live, self._runner.open(live, messages, tools, overrides, purpose))

    async def _acall(
        self,
        session_id: str,
        messages: Sequence[Any],
        tools: Sequence[Any] | None,
        overrides: Overrides,
        purpose: Purpose = PREFLIGHT,
    ) -> Any:
        messages, tools = as_lists(messages, tools)
        async with self._sessions.alock(session_id) as live:
            await self._opener.warm_up(self.config, live.session, messages, tools, overrides[0])
            return await self._runner.arun(live, self._runner.open(live, messages, tools, overrides, purpose))

    # -- looking without touching ------------------------------------------------------------------------------------

    def should_compact(
        self, session_id: str, messages: Sequence[Any], *, tools: Sequence[Any] | None = None, model: str | None = None
    ) -> Decision:
        """Whether a compaction is due, and why. Leaves no trace."""
        with self._sessions.lock(session_id, keep=False) as live:
            return self._opener.open(self.config, live, messages, tools, (model, None, None), peek=True).decision

    def plan(
        self, session_id: str, messages: Sequence[Any], *, tools: Sequence[Any] | None = None, model: str | None = None
    ) -> Plan:
        """A dry run: what a compaction would do now, due or not, and what it costs (`Plan.costs`). Leaves no trace.

        Indices are those of the list that would go out, with earlier compactions in their places. A list that arrives
        broken is made valid before it is compacted, so there the compaction itself may differ.
        """
        from .._pipeline.planning import dry_run

        with self._sessions.lock(session_id, keep=False) as live:
            return dry_run(self._opener.open(self.config, live, messages, tools, (model, None, None), peek=True))

    def session(self, session_id: str) -> SessionView:
        """A session as it is now, and the history of its compactions. Does not wait for one that is running."""
        live = self._sessions.peek(session_id)
        session = live.session
        if session.reader is None:
            session = Session(session_id)
            self._opener.load_session(self.config, session, (), None)
        return SessionView(
            id=session_id,
            state=session.machine.state,
            phase=session.machine.phase,
            summary_state=session.machine.summary_state,
            step=session.step,
            version=session.version,
            counters=session.lists[0].counters() if session.lists else Counters(),
            folds=tuple(session.folds),
            report=session.folds[-1].report if session.folds else None,
            config_changed=self._live_config.has_changes_for(live),
        )

    @property
    def config(self) -> CompactConfig:
        """The active configuration."""
        return self._live_config.config

    # -- learning ----------------------------------------------------------------------------------------------------

    def observe(self, session_id: str, usage: Any) -> None:
        """Report what the provider counted for the last request of this session: it calibrates the token counts.

        Takes the usage object or dict of either provider, or the number of input tokens.
        """
        reported = reported_input(usage)
        # Without the lock: this never waits for a compaction, and it holds from the next call on.
        session = self._sessions.peek(session_id).session
        if not session.sent_tokens or not reported:
            return
        if reported > 1.5 * session.sent_tokens:
            # No tokenizer is that far off: the request holds something that is not passed to us.
            session.unseen_tokens += reported - session.sent_tokens
        else:
            session.factor = max(0.5, reported / session.sent_tokens)

    def update(self, **changes: Any) -> None:
        """Change parameters at run time: validated at once, active as soon as no compaction is running.

        Each session acknowledges the change at its next call (`compact.config_changed`).
        """
        self._sessions.check_open()
        self._live_config.change(changes)

    # -- looking back, from the archive ------------------------------------------------------------------------------

    def restore(self, session_id: str, step: int | None = None) -> list[Any]:
        """The transcript before the compaction of this step (the newest by default), redacted.

        It only reads: to go back to it, use `undo`.
        """
        return self._history_of(session_id).transcript(session_id, step)

    def undo(self, session_id: str, messages: Sequence[Any] | None = None) -> list[Any]:
        """Take the newest compaction back, and return the list before it.

        Pass the list you have (it begins with what the compaction left): what came since is kept after the restored
        messages, and messages that were never folded stay the very objects you passed. Call it again to go back
        further. Folded messages come from the archive, without their secrets. The next `preflight` compacts again
        when a threshold is still reached: change the configuration before it.
        """
        return self._move(session_id, messages, "undo")

    def redo(self, session_id: str, messages: Sequence[Any] | None = None) -> list[Any]:
        """Activate the compaction that was undone last, and return the list it left.

        Pass the list you have (it begins with what `undo` returned) to keep what came since. A new compaction ends
        redoing.
        """
        return self._move(session_id, messages, "redo")

    def diff(self, session_id: str, step: int | None = None) -> Diff:
        """What a compaction did (the newest by default): kept, folded, shortened, written. `print` it."""
        return self._history_of(session_id).diff(session_id, step)

    def recall(
        self, session_id: str, query: str | None = None, *, cite: str | None = None, limit: int | None = None
    ) -> list[Recalled]:
        """Messages that were folded: found by words, best first, or by a summary's citations, in the session's order.

        `cite` takes "#12", "#12-18", or a whole line of a summary. The text is the original, redacted. At most
        `limit` messages come back (default: 5 for a query, 1,000 for a citation).
        """
        return self._history_of(session_id).recall(session_id, query, cite, limit)

    def verify(self, session_id: str) -> Audit:
        """Check a session's files against their hashes, and its compactions against the laws. True when all is well."""
        return self._history_of(session_id).audit(session_id)

    def sessions(self) -> list[str]:
        """The ids of all sessions in the archive."""
        return self._history_of("").sessions()

    def forget(self, session_id: str) -> Forgotten:
        """Delete all that is kept of a session, in the archive and in memory, for good; returns what was deleted."""
        history = self._history_of(session_id)
        with self._sessions.lock(session_id) as live:
            live.drop_background()
            forgotten = history.forget(session_id)
            live.events.clear()
            live.session = Session(session_id)
        return forgotten

    def prune(self, older_than: timedelta, *, dry_run: bool = False) -> list[Forgotten]:
        """Forget every session to which nothing was written for so long; returns what was, or would be, deleted."""
        if older_than <= timedelta(0):
            raise ConfigError(f"older_than is {older_than}; give a time above zero, such as timedelta(days=30)")
        history = self._history_of("")
        return history.prune(time.time() - older_than.total_seconds(), self.forget, dry_run=dry_run)

    def _history_of(self, session_id: str) -> ArchiveHistory:
        self._sessions.check_id(session_id)
        self._internals.archive()  # raises where there is none
        return self._history

    @cached_property
    def _history(self) -> ArchiveHistory:
        """Loaded when it is first used, because most processes never look back."""
        from .._archive.history import ArchiveHistory
        from .._archive.search_index import SearchIndex

        folder = self._index_folder
        index = SearchIndex(folder, within=self._index_within)
        parent = folder.parent if folder is not None else None
        return ArchiveHistory(self._internals.archive(), index, self._recorder.log, parent)

    def _move(self, session_id: str, messages: Sequence[Any] | None, way: Literal["undo", "redo"]) -> list[Any]:
        history = self._history_of(session_id)
        with self._sessions.lock(session_id) as live:
            live.drop_background()
            result, stored = (history.undo if way == "undo" else history.redo)(live.session, messages)
            self._reload(live, stored)
        return result

    def _reload(self, live: LiveSession, stored: Stored) -> None:
        """The session comes back from the archive at its next call; what the provider reported stays."""
        live.session.step = max(live.session.step, stored.step)
        self._recorder.emit_archival(live, stored)
        self._recorder.write_events(live)
        self._opener.reset(live)

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write out what is held and close what was opened. Safe to call twice; any other use afterwards raises."""
        sessions = self._sessions.close()
        for live in sessions:
            live.drop_background()
        self._recorder.close(sessions)
        if "_history" in vars(self):
            self._history.close()

    def __enter__(self) -> CompactManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def internals_of(manager: CompactManager) -> Internals:
    """The interface for this library's own adapters, proxy and commands."""
    return manager._internals
