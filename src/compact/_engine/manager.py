"""The front door: the public verbs.

Owns: `CompactManager`; the verbs that look back are in `_engine.keeper`, those that only this library uses in
`_engine.fold_exchange`.
Must never: hold a rule of compaction; what may fold, fail or leave is the core's.


One call: take the session's turn, let `_engine.open_call` bring its track up to date, let `_engine.course` run the
flow and commit what it
did. Calls on one session are served in the order they came, from threads and tasks alike; sessions never touch each
other. One idea, so one file: most of it is signatures, which every verb has twice, for threads and for tasks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from .._archive.archive import Archive
from .._compaction.plan import Plan
from .._compaction.trigger import Counters, Decision
from .._conversation.formats import FORMATS
from .._conversation.tokens import reported_input
from .._events.event import Sink
from .._facts.report import Report
from .._pipeline.underway import Call
from .._redaction import Redactor, held_secrets
from .._session.session import FoldRecord, Session
from ..config import CompactConfig
from ..config.environment import DISABLED_NOTICE, is_disabled
from ..config.limits import Limits
from ..errors import ConfigError
from ..sinks.sink_list import SinkList, configured_sinks
from ..stores import Store, open_store
from ..summarizers import Summarizer, summarizer_for
from .course import Course
from .fold_exchange import BackDoor
from .keeper import Keeper
from .live_config import LiveConfig
from .live_sessions import LiveSession, LiveSessions
from .open_call import Desk, given
from .recorder import EventRecorder

__all__ = ["CompactManager", "SessionView"]


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session as it stands; `_session.states` draws its three states."""

    id: str
    state: str
    phase: str
    summary_state: str
    step: int
    version: int
    counters: Counters
    folds: tuple[FoldRecord, ...]
    report: Report | None
    """What the last fold kept of what mattered; None before the first."""
    config_changed: bool
    """Whether parameters were changed that this session has not acknowledged yet."""


class CompactManager(Keeper, BackDoor):
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
        self._summarizer = summarizer or summarizer_for(config.summary)
        """None when the built-in summarizer is to write."""
        redaction, storage = config.redaction, config.storage
        redactor = self._redactor = Redactor(redaction.enabled, redaction.patterns, held_secrets(os.environ))
        opened = open_store(storage) if store == "configured" else store
        adapter = storage.adapter if store == "configured" else type(opened).__name__
        archive = Archive(opened, redactor, adapter) if opened is not None else None
        watching = [*sinks, *configured_sinks(config.tracing)]
        if not (redaction.enabled or redaction.allow_unredacted_export):
            from ..sinks.redaction_guard import refuse_distant  # here, because nobody else needs to parse addresses

            refuse_distant(watching, config.tracing)
        self._journal = EventRecorder(archive, SinkList(watching, redactor))
        self._archive = archive
        # A store that was passed in may be anybody's: its index is kept in memory.
        given = Path(storage.path).expanduser()
        self._index_folder = given.absolute() / ".index" if store == "configured" else None
        self._index_within = None if given.is_absolute() else Path.cwd()
        self._desk = Desk(
            archive,
            self._journal,
            dialect=dialect,
            protect=protect,
            before_fold=before_fold,
            offline=self._summarizer is None,
            conceal=redactor.redact if archive is not None or watching else str,
        )
        self._rooms = LiveSessions(self._desk.see_off)
        self._parameters = LiveConfig(config, self._rooms, self._journal)
        self._course = Course(self._desk, self._journal, self._parameters, self._summarizer)
        self._disabled = is_disabled()
        if self._disabled:
            self._journal.complain(DISABLED_NOTICE)

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
        switches to a smaller model folds before it is called.
        """
        if self._disabled:
            return messages
        with self._rooms.turn(session_id) as room:
            return self._course.run(
                lambda: self._open(room, messages, tools, model, max_context_tokens, reserve_output)
            )

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
        """`preflight` for async hosts: the same result and the same events, without stopping the event loop."""
        if self._disabled:
            return messages
        messages, tools = given(messages, tools)
        async with self._rooms.aturn(session_id) as room:
            await self._desk.warm_up(self._parameters.config, room.session, messages, tools, model)
            return await self._course.arun(
                lambda: self._open(room, messages, tools, model, max_context_tokens, reserve_output)
            )

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
        with self._rooms.turn(session_id) as room:
            return self._course.run(
                lambda: self._open(room, messages, tools, model, max_context_tokens).forced("manual", note=note)
            )

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
        """`manual_compact` for async hosts."""
        messages, tools = given(messages, tools)
        async with self._rooms.aturn(session_id) as room:
            await self._desk.warm_up(self._parameters.config, room.session, messages, tools, model)
            return await self._course.arun(
                lambda: self._open(room, messages, tools, model, max_context_tokens).forced("manual", note=note)
            )

    def recover(
        self,
        session_id: str,
        messages: Sequence[Any],
        limit: int | None = None,
        *,
        tools: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> Any:
        """A smaller list, after a provider said "context too long". Deterministic, no model needed.

        `limit` is the window the provider named. Without it, or when the list already is within it by our count, the
        list shrinks to three quarters. Raises `InsufficientBudget` when it cannot.
        """
        if self._disabled:
            return messages
        with self._rooms.turn(session_id) as room:

            def shrinking() -> Call:
                call = self._open(room, messages, tools, model)
                total = call.decision.usage.total
                goal = _limit(limit) if limit is not None and limit < total else max(1, total * 3 // 4)
                return call.forced("overflow", lines=Limits(goal, goal), offline=True, must_shrink=True)

            return self._course.run(shrinking)

    def _squeeze(
        self, session_id: str, messages: Sequence[Any], limit: int, tools: Sequence[Any] | None, layout: Any
    ) -> Any:
        """The list within a limit, whatever has to fold; the one-shot form."""
        with self._rooms.turn(session_id) as room:
            call = self._open(room, messages, tools)
            if call.decision.usage.total <= _limit(limit):
                return call.messages
            policy = call.terms.config.policy.model_copy(update={"layout": layout})
            return self._course.run(
                lambda: call.forced("limit", policy=policy, lines=Limits(limit, limit), squeeze=True)
            )

    # -- looking without touching ------------------------------------------------------------------------------------

    def should_compact(
        self, session_id: str, messages: Sequence[Any], *, tools: Sequence[Any] | None = None, model: str | None = None
    ) -> Decision:
        """Whether a fold is due, and why. Leaves no trace."""
        with self._rooms.turn(session_id, keep=False) as room:
            return self._desk.open(self._parameters.config, room, messages, tools, model, peek=True).decision

    def plan(
        self, session_id: str, messages: Sequence[Any], *, tools: Sequence[Any] | None = None, model: str | None = None
    ) -> Plan:
        """A dry run: what a fold would do now, due or not. Leaves no trace.

        Indices are those of the list that would go out, with earlier folds in their places. A list that arrives broken
        is mended before it is folded, so there the fold itself may differ.
        """
        *_, fitted = self._dry_run(session_id, messages, tools, model)
        return fitted.plan

    def session(self, session_id: str) -> SessionView:
        """Where a session stands, and the history of its folds. Does not wait for a fold that is running."""
        room = self._rooms.look(session_id)
        session = room.session
        if session.reader is None:
            session = Session(session_id)
            self._desk.wake(self._parameters.config, session, (), None)
        return SessionView(
            id=session_id,
            state=session.machine.state,
            phase=session.machine.phase,
            summary_state=session.machine.summary_state,
            step=session.step,
            version=session.version,
            counters=session.tracks[0].counters() if session.tracks else Counters(),
            folds=tuple(session.folds),
            report=session.folds[-1].report if session.folds else None,
            config_changed=self._parameters.news_for(room),
        )

    @property
    def config(self) -> CompactConfig:
        """The configuration in force."""
        return self._parameters.config

    # -- learning ----------------------------------------------------------------------------------------------------

    def observe(self, session_id: str, usage: Any) -> None:
        """Tell what the provider counted for the last request of this session: it calibrates the meter.

        Takes the usage object or dict of either provider, or the number of input tokens.
        """
        reported = reported_input(usage)
        # Without a turn: this never waits for a fold, and what it learns holds from the next call on.
        session = self._rooms.look(session_id).session
        if not session.sent or not reported:
            return
        if reported > 1.5 * session.sent:
            # No tokenizer is that far off: the request holds something we are not shown.
            session.unseen += reported - session.sent
        else:
            session.factor = max(0.5, reported / session.sent)

    def update(self, **changes: Any) -> None:
        """Change parameters at run time: validated at once, in force as soon as no fold is running.

        Each session acknowledges the change at its next call (`compact.config_changed`).
        """
        self._rooms.check_open()
        self._parameters.change(changes)

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write out what is held and close what was opened. Safe to call twice; any other use afterwards raises."""
        rooms = self._rooms.close()
        for room in rooms:
            room.give_up()
        self._journal.close(rooms)
        if "_past" in vars(self):
            self._past.close()

    def __enter__(self) -> CompactManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, room: LiveSession, *what: Any) -> Call:
        """A call, once the session has been told of changed parameters."""
        self._parameters.acknowledge(room)
        return self._desk.open(self._parameters.config, room, *what)


def _limit(tokens: int) -> int:
    if tokens < 1:
        raise ConfigError(f"a limit of {tokens:,} tokens holds nothing; give at least 1")
    return tokens
