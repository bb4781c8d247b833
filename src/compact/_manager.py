"""The front door: the public verbs, and the one path a call takes through the library.

Owns: `CompactManager`; the verbs that look back are its other half, `_keeper`. Must never: hold a rule of compaction;
what may fold, fail or leave is the core's.

One call: take the session's turn, bring its track up to date, run the flow, commit what it did. Calls on one session
are served in the order they came, from threads and tasks alike; sessions never touch each other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ._archive import Archive
from ._desk import Call, Desk, given, growth
from ._dialects import DIALECTS
from ._drivers import drive
from ._effects import Effect, Emit, Refresh, SaveSummary, SaveTranscript, Work, warning
from ._events import Sink
from ._fidelity import Report
from ._flow import flow, plan_for
from ._job import UNCHANGED, Outcome
from ._journal import Journal
from ._keeper import Keeper
from ._mend import mend
from ._meter import reported_input
from ._plan import Plan
from ._records import own_fields, travel_value
from ._redact import Redactor, held_secrets
from ._reports import decision_data, estimate_data
from ._rooms import Room, Rooms
from ._session import FoldRecord, Session
from ._trigger import Counters, Decision, Lines
from .config import CompactConfig
from .errors import ArchiveError, ConfigError
from .models import Summarizer, summarizer_for
from .sinks import plain
from .sinks._fan import SinkList, configured_sinks
from .stores import Store, open_store

if TYPE_CHECKING:
    from ._prepare import Preparations

__all__ = ["CompactManager", "SessionView"]


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session as it stands; `_states` draws its three states."""

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


class CompactManager(Keeper):
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
        if dialect not in ("auto", *DIALECTS):
            raise ConfigError(f"dialect {dialect!r} is unknown; use 'auto' or one of {', '.join(DIALECTS)}")
        self._config = config if config is not None else CompactConfig()
        self._summarizer = summarizer or summarizer_for(self._config.summary)
        """None when the built-in summarizer is to write."""
        redaction, storage = self._config.redaction, self._config.storage
        redactor = self._redactor = Redactor(redaction.enabled, redaction.patterns, held_secrets(os.environ))
        opened = open_store(storage) if store == "configured" else store
        adapter = storage.adapter if store == "configured" else type(opened).__name__
        archive = Archive(opened, redactor, adapter) if opened is not None else None
        watching = [*sinks, *configured_sinks(self._config.tracing)]
        if not (redaction.enabled or redaction.allow_unredacted_export):
            from .sinks._border import refuse_distant  # here, because nobody else needs to parse addresses

            refuse_distant(watching, self._config.tracing)
        self._journal = Journal(archive, SinkList(watching, redactor))
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
        self._rooms = Rooms(self._desk.see_off)
        self._changing = threading.Lock()
        self._pending: CompactConfig | None = None
        self._changes: list[dict[str, Any]] = []
        self._said_unredacted = redaction.enabled
        self._disabled = os.environ.get("COMPACT_DISABLED", "").strip().lower() in ("1", "true", "yes", "on")
        if self._disabled:
            self._journal.complain("COMPACT_DISABLED is set: every preflight gives its list back untouched")

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
            return self._run(lambda: self._open(room, messages, tools, model, max_context_tokens, reserve_output))

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
            await self._desk.warm_up(self._config, room.session, messages, tools, model)
            return await self._arun(
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
            return self._run(
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
            await self._desk.warm_up(self._config, room.session, messages, tools, model)
            return await self._arun(
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
                return call.forced("overflow", lines=Lines(goal, goal), offline=True, must_shrink=True)

            return self._run(shrinking)

    def _squeeze(
        self, session_id: str, messages: Sequence[Any], limit: int, tools: Sequence[Any] | None, layout: Any
    ) -> Any:
        """The list within a limit, whatever has to fold; the one-shot form."""
        with self._rooms.turn(session_id) as room:
            call = self._open(room, messages, tools)
            if call.decision.usage.total <= _limit(limit):
                return call.messages
            policy = call.terms.config.policy.model_copy(update={"layout": layout})
            return self._run(lambda: call.forced("limit", policy=policy, lines=Lines(limit, limit), squeeze=True))

    # -- looking without touching ------------------------------------------------------------------------------------

    def should_compact(
        self, session_id: str, messages: Sequence[Any], *, tools: Sequence[Any] | None = None, model: str | None = None
    ) -> Decision:
        """Whether a fold is due, and why. Leaves no trace."""
        with self._rooms.turn(session_id, keep=False) as room:
            return self._desk.open(self._config, room, messages, tools, model, peek=True).decision

    def plan(
        self, session_id: str, messages: Sequence[Any], *, tools: Sequence[Any] | None = None, model: str | None = None
    ) -> Plan:
        """A dry run: what a fold would do now, due or not. Leaves no trace.

        Indices are those of the list that would go out, with earlier folds in their places. A list that arrives broken
        is mended before it is folded, so there the fold itself may differ.
        """
        with self._rooms.turn(session_id, keep=False) as room:
            job = self._desk.open(self._config, room, messages, tools, model, peek=True).job
            return plan_for(job, job.history(job.outgoing()[1])).plan

    def session(self, session_id: str) -> SessionView:
        """Where a session stands, and the history of its folds. Does not wait for a fold that is running."""
        room = self._rooms.look(session_id)
        session = room.session
        if session.reader is None:
            session = Session(session_id)
            self._desk.wake(self._config, session, (), None)
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
            config_changed=room.generation < len(self._changes),
        )

    @property
    def config(self) -> CompactConfig:
        """The configuration in force."""
        return self._config

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
        if fixed := _FIXED_AT_START & changes.keys():
            raise ConfigError(f"{', '.join(sorted(fixed))}: set when the manager is made; make a new one to change it")
        with self._changing:
            self._pending = (self._pending or self._config).changed(**changes)
            self._changes.append(changes)
        self._settle_changes()

    def _settle_changes(self) -> None:
        if self._pending is None:
            return
        with self._changing:
            if self._pending is not None and not self._rooms.folding():
                self._config, self._pending = self._pending, None

    # -- folds that travel between processes -------------------------------------------------------------------------

    def _fold_known(self, session_id: str) -> dict[str, Any] | None:
        """The newest fold in force of a session in memory as plain values, without secrets; None without one.

        `reach` is how many of the host's messages it consumed, `size` how many it knew.
        """
        value = travel_value(self._rooms.look(session_id).session)
        return None if value is None else own_fields(self._redactor.redact(plain(value)), value)

    def _has_fold(self, session_id: str, step: int) -> bool:
        """Whether a session in memory can replay this fold."""
        return any(record.step == step for record in self._rooms.look(session_id).session.memory.records)

    def _adopt_fold(self, session_id: str, value: Mapping[str, Any]) -> None:
        """Know a fold as if this process had made it. Of two folds of the same messages, this one stays."""
        with self._rooms.turn(session_id) as room:
            self._desk.adopt(self._config, room, value)

    async def _aadopt_fold(self, session_id: str, value: Mapping[str, Any]) -> None:
        """`_adopt_fold` for async hosts."""
        import asyncio  # here, because only async hosts need it

        from ._drivers_async import to_the_end

        async with self._rooms.aturn(session_id) as room:
            await to_the_end(asyncio.to_thread(self._desk.adopt, self._config, room, value))

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

    # -- one call ----------------------------------------------------------------------------------------------------

    def _open(self, room: Room, *what: Any) -> Call:
        """A call, once the session has been told of changed parameters."""
        self._acknowledge(room)
        return self._desk.open(self._config, room, *what)

    def _run(self, open_call: Callable[[], Call]) -> Any:
        call = open_call()
        if self._journal.overdue(call.room):
            self._journal.write_events(call.room)
        try:
            while True:
                if call.room.preparation is not None:
                    self._preparations.meet(call)
                if not self._due(call):
                    outcome = UNCHANGED
                    break
                outcome = drive(flow(call.job), partial(self._perform, call), self._summarizer, call.job.summary)
                if not outcome.stale:
                    break
                call = self._reopened(call, outcome, open_call)
        finally:
            self._settle_changes()
        messages = self._finish(call, outcome)
        if outcome.changed:
            self._journal.write_events(call.room)
        if call.early:
            self._preparations.start(call)
        return messages

    async def _arun(self, open_call: Callable[[], Call]) -> Any:
        import asyncio  # here, because only async hosts need it

        from ._drivers_async import adrive, to_the_end

        call = open_call()
        if self._journal.overdue(call.room):
            await to_the_end(asyncio.to_thread(self._journal.write_events, call.room))
        try:
            while True:
                if call.room.preparation is not None:
                    await self._preparations.ameet(call)
                if not self._due(call):
                    outcome = UNCHANGED
                    break
                outcome = await adrive(flow(call.job), partial(self._perform, call), self._summarizer, call.job.summary)
                if not outcome.stale:
                    break
                call = self._reopened(call, outcome, open_call)
        finally:
            self._settle_changes()
        messages = self._finish(call, outcome)
        if outcome.changed:
            await to_the_end(asyncio.to_thread(self._journal.write_events, call.room))
        if call.early:
            self._preparations.astart(call)
        return messages

    def _due(self, call: Call) -> bool:
        """Whether the flow has something to do. What the list weighs is told in any case, and that nothing is due."""
        journal, room, due = self._journal, call.room, bool(call.decision)
        if journal.watched:
            terms, decision = call.terms, call.decision
            if not call.again:
                journal.tell(room, "compact.token_estimate", estimate_data(terms.named, decision.usage, call.lines))
            if not due:
                data = decision_data(terms.config.policy, call.lines, decision, "below every threshold")
                journal.tell(room, "compact.trigger_decision", data)
        if not due:
            room.session.machine.need(False)
        return due

    @cached_property
    def _preparations(self) -> Preparations:
        """Makes folds ahead of need; loaded when a policy first asks for that."""
        from ._prepare import Preparations

        return Preparations(self._desk, self._journal, self._summarizer)

    @staticmethod
    def _reopened(call: Call, outcome: Outcome, open_call: Callable[[], Call]) -> Call:
        """The call on a session that has changed: it was read back anew, or a fold made ahead went into force."""
        if not outcome.changed:
            again = open_call().once_more()
            again.swapped = call.swapped
            return again
        assert call.job.prepared is not None
        call.room.session.swap_in(call.job.prepared)
        call.room.preparation = None
        again = open_call()
        again.swapped = True
        return again

    def _perform(self, call: Call, effect: Effect) -> Any:
        """Do what the flow wants, except asking and waiting, which differ between drivers."""
        if isinstance(effect, Emit):
            return self._journal.emit(call.room, effect)
        if isinstance(effect, Work):
            return effect.run()
        if isinstance(effect, Refresh):
            return self._desk.refresh(self._config, call.room)
        try:
            if isinstance(effect, SaveTranscript):
                return self._journal.save_transcript(call.room, effect.raws)
            if isinstance(effect, SaveSummary):
                return self._journal.save_summary(call.room, effect.outcome, *call.keep(effect.outcome))
        except ArchiveError as error:
            return error
        raise AssertionError(f"unknown effect {effect!r}")

    def _finish(self, call: Call, outcome: Outcome) -> Any:
        """Commit what the flow did, and give back the list to send."""
        session, track = call.room.session, call.track
        total = outcome.tokens_after if outcome.changed else call.decision.usage.total
        session.sent = round(total / call.factor)
        if outcome.changed or call.swapped:
            session.prepare_from = total + growth(call.lines)
        if outcome.changed:
            assert call.fold is not None
            call.room.give_up()
            session.commit(track, *call.fold, outcome)
            return outcome.raws
        if track.record is None and not track.unjudged:
            return call.messages
        raws, entries = track.outgoing(call.messages)
        if track.unjudged:
            mended = mend(call.job.reader, raws, entries)
            if mended.sentences:
                self._journal.emit(call.room, warning("repaired_history", "low", "; ".join(mended.sentences)))
            raws, entries = mended.raws, mended.entries
        if call.swapped:
            # As after any fold, nobody knows yet whether the host keeps the list that it is given.
            session.tracks = [track.handed_out(raws, entries), track]
        return raws

    async def _akeep(self, session_id: str, messages: Sequence[Any]) -> None:
        """Archive a list without a fold, for an adapter that is about to rewrite the only other copy of it."""
        import asyncio  # here, because only async hosts need it

        async with self._rooms.aturn(session_id) as room:
            await asyncio.to_thread(self._journal.save_transcript, room, messages)

    def _sent_unchanged(self, session_id: str, why: str) -> None:
        """An adapter sent a list as it is: say so, and do not compare what the provider counts with an older one."""
        room = self._rooms.look(session_id)
        room.session.sent = 0
        self._journal.emit(room, warning("sent_unchanged", "high", f"a list was sent as it is, {why}"))

    def _acknowledge(self, room: Room) -> None:
        if not self._said_unredacted:
            self._said_unredacted = True
            message = "redaction is off: secrets in messages are stored and exported as they stand"
            self._journal.emit(room, warning("redaction_disabled", "high", message))
        if room.generation < len(self._changes) and self._pending is None:
            news: dict[str, Any] = {}
            for changes in self._changes[room.generation :]:
                news |= changes
            room.generation = len(self._changes)
            self._journal.emit(room, Emit("compact.config_changed", {"changed": news}))


_FIXED_AT_START = frozenset({"storage", "redaction", "tracing", "agents", "provider", "base_url"})


def _limit(tokens: int) -> int:
    if tokens < 1:
        raise ConfigError(f"a limit of {tokens:,} tokens holds nothing; give at least 1")
    return tokens
