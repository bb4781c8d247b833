"""What a call needs before the flow can judge it.

Owns: `Desk`, which wakes sessions, keeps readers and counts up to date, and puts a `Call` together.
Must never: judge, fold, or emit an event.

One idea, so one file: all of it brings a session up to date, with its list, with the archive, with other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .._archive.archive import Archive
from .._archive.fold_record import ActiveFolds
from .._archive.travel import arrived, same_fold
from .._compaction.plan import Plan
from .._compaction.trigger import decide
from .._conversation.tokens import REPLY_PRIMER, TokenCounter, counter_for
from .._conversation.tool_schemas import tools_tokens
from .._pipeline.job import Job
from .._pipeline.underway import Call, Terms
from .._session.entries import Reader
from .._session.host_list import HostList, equal
from .._session.make_valid import make_valid
from .._session.session import FoldRecord, Session
from ..config import CompactConfig, window_of
from ..config.limits import limits_for
from ..errors import ArchiveError, ConfigError, InvalidMessage
from .live_sessions import LiveSession
from .recorder import EventRecorder

__all__ = ["Desk", "given"]


_MODELS = 1_000
"""Models whose counters are held."""
MUCH_MESSAGES, MUCH_LETTERS = 500, 100_000
"""New messages, and letters of them, above which they are not read on an event loop: that would be some 10 ms."""


class Desk:
    """Prepares calls. One per manager; all methods are called with the session's turn taken."""

    def __init__(
        self,
        archive: Archive | None,
        journal: EventRecorder,
        *,
        dialect: str,
        protect: Callable[[Any], bool] | None,
        before_fold: Callable[[Plan], Plan | None] | None,
        offline: bool,
        conceal: Callable[[str], str],
    ) -> None:
        self._archive = archive
        self._journal = journal
        self._dialect = dialect
        self._protect = protect
        self._before_fold = before_fold
        self._offline = offline
        self._conceal = conceal
        self._tallies: dict[tuple[str, str], TokenCounter] = {}
        self._last_terms: Terms | None = None
        self._gone: dict[str, tuple[int, int, dict[str, tuple[str, int]]]] = {}

    def open(
        self,
        config: CompactConfig,
        room: LiveSession,
        messages: Sequence[Any],
        tools: Sequence[Any] | None = None,
        model: str | None = None,
        window: int | None = None,
        reserve_output: int | None = None,
        *,
        peek: bool = False,
    ) -> Call:
        """Bring the session up to date with this list, and put together what the flow needs to judge it."""
        messages, tools = given(messages, tools)
        session = room.session
        if session.reader is None:
            self.wake(config, session, messages, tools)
        terms = self._terms(config, model, window, reserve_output)
        tally, lines, policy = terms.tally, terms.lines, config.policy
        reader, track = self._read(session, messages, tools, tally, peek=peek)
        track.mending = _mending(track, messages, reader) if track.unjudged else 0
        tools_cost = session.unseen + (self._tools_cost(session, tools, terms) if tools else 0)
        factor = session.factor or 1 + tally.margin
        decision = decide(track.usage(tools_cost).scaled(factor), track.counters(), policy, lines)
        if decision and track.reread(messages, reader):
            decision = decide(track.usage(tools_cost).scaled(factor), track.counters(), policy, lines)
        return Call(self.job, terms, room, track, messages, tools_cost, factor, decision, lines, reader)

    def job(self, call: Call) -> Job:
        """A call as the flow's value."""
        config, track, messages = call.terms.config, call.track, call.messages
        return Job(
            session=call.room.session,
            reader=call.reader,
            model=call.terms.named,
            policy=config.policy,
            summary=config.summary,
            lines=call.lines,
            decision=call.decision,
            outgoing=lambda: track.outgoing(messages),
            fixed=call.tools_cost + REPLY_PRIMER,
            factor=call.factor,
            offline=self._offline,
            before_fold=self._before_fold,
            conceal=self._conceal,
            archived=self._archive is not None,
        )

    async def warm_up(
        self,
        config: CompactConfig,
        session: Session,
        messages: Sequence[Any],
        tools: Sequence[Any] | None,
        model: str | None,
    ) -> None:
        """What may take long before a call can be opened, without stopping the event loop.

        Loads a token table, and a session from the archive, and reads what is new of a list, where that is much.
        """
        key = config.counter, model or config.model
        known = len(session.tracks[0].entries) if session.tracks else 0
        much = len(messages) - known > MUCH_MESSAGES or _letters(messages[known:]) > MUCH_LETTERS
        if key in self._tallies and session.reader is not None and not much:
            return
        import asyncio

        from .run_async import to_the_end

        await asyncio.to_thread(self._tally, *key)
        # To the end, also when the caller is cancelled: the next one must not wake the same session beside it.
        if session.reader is None:
            await to_the_end(asyncio.to_thread(self.wake, config, session, messages, tools))
        if much:
            await to_the_end(asyncio.to_thread(self._read, session, messages, tools, self._tally(*key)))

    def _read(
        self,
        session: Session,
        messages: Sequence[Any],
        tools: Sequence[Any] | None,
        tally: TokenCounter,
        *,
        peek: bool = False,
    ) -> tuple[Reader, HostList]:
        """Bring a session up to date with a list; with `peek`, a copy of what it knows."""
        reader = session.reader
        assert reader is not None
        if peek or reader.tally is not tally:
            reader = self._reader(session, tally, peek)
        return reader, session.track(messages, reader, tools, peek=peek)

    def wake(
        self, config: CompactConfig, session: Session, messages: Sequence[Any], tools: Sequence[Any] | None
    ) -> None:
        """Give a session its reader, and bring back what the archive knows of it."""
        reader = Reader(self._dialect, self._tally(config.counter, config.model), self._protect)
        reader.settle(messages, tools)
        if self._archive is not None:
            try:
                complaints = self._archive.load(session, reader)
            except ArchiveError as error:
                # Only a fold needs the store. Without it a fold made earlier costs a new summary.
                complaints = [str(error)]
            for complaint in complaints:
                self._journal.complain(f"session {session.id!r} could not be read back whole: {complaint}")
        elif session.id in self._gone:
            session.step, session.version, signatures = self._gone[session.id]
            session.memory.recognise(signatures)
        session.reader = reader

    def outdated(self, session: Session) -> bool:
        """Whether somebody else wrote to this session's archive."""
        try:
            return self._archive is not None and self._archive.changed(session)
        except ArchiveError:
            return False  # the fold will find out, and say so

    def adopt(self, config: CompactConfig, room: LiveSession, value: Mapping[str, Any]) -> None:
        """Know a fold that another process made, as if this one had."""
        session = room.session
        if session.reader is None:
            self.wake(config, session, (), None)
        reader = session.reader
        assert reader is not None
        arriving = reader.with_tally(reader.tally)
        fold, record, gone_calls = arrived(value, session, arriving)
        if any(same_fold(known, record) for known in session.memory.records):
            return
        if arriving.dialect is not reader.dialect:
            session.tracks = []  # read as something else so far
        reader.dialect, reader.settled = arriving.dialect, arriving.settled
        lost = session.adopt(fold, record, gone_calls)
        if lost is not None and lost.step > fold.step:
            self._undo_lost(session, lost, fold)

    def _undo_lost(self, session: Session, lost: FoldRecord, fold: FoldRecord) -> None:
        """Tell the archive that a fold of ours gave way to an older one: it takes the newest to be in force."""
        if self._archive is None:
            return
        place, ledger = self._archive.place(session.id), session.ledger
        try:
            contents = self._archive.contents(place)
            line = self._archive.line(place, contents)
            if {lost.step, fold.step} <= {*contents.summaries} - {*line.undone}:
                line = ActiveFolds(fold.step, (*line.undone, lost.step), newest=line.newest)
                self._archive.save_undo(session, "undo", lost.step, line)
                if contents.newest == ledger.seen:
                    ledger.seen = *ledger.seen[:2], ledger.seen[2] + 1
        except (ArchiveError, KeyError, TypeError) as error:
            self._journal.complain(f"session {session.id!r}: fold {lost.step} gave way unrecorded: {error}")

    def refresh(self, config: CompactConfig, room: LiveSession) -> bool:
        """Read a session back anew when somebody else wrote to its archive; what the provider taught us stays."""
        before = room.session
        if not self.outdated(before):
            return False
        self.start_over(room)
        self.wake(config, room.session, (), None)
        if before.reader is not None and room.session.reader is not None:
            room.session.reader.dialect, room.session.reader.settled = before.reader.dialect, before.reader.settled
        return True

    @staticmethod
    def start_over(room: LiveSession) -> None:
        """Forget what is in memory of a session, but for what the provider taught us of it."""
        before = room.session
        room.session = Session(before.id)
        room.session.factor, room.session.unseen = before.factor, before.unseen

    def see_off(self, room: LiveSession) -> None:
        """A session gives way. The archive knows its folds; without one, how it knows its own summaries is kept."""
        room.give_up()
        self._journal.write_events(room)
        session = room.session
        if self._archive is None and session.step:
            self._gone[session.id] = session.step, session.version, session.memory.signatures

    def _reader(self, session: Session, tally: TokenCounter, peek: bool) -> Reader:
        """The session's reader with this tally; a change of tokenizer counts everything again."""
        assert session.reader is not None
        if peek:
            return session.reader.with_tally(tally)
        session.reader.tally = tally
        session.factor = None
        for track in session.tracks:
            track.recost(session.reader)
        return session.reader

    def _terms(self, config: CompactConfig, model: str | None, window: int | None, reserve_output: int | None) -> Terms:
        """The terms of this call, which are nearly always those of the last one."""
        known, asked = self._last_terms, (model, window, reserve_output)
        if known is not None and known.config is config and known.asked == asked:
            return known
        named, policy = model or config.model, config.policy
        window = window or (config.window if named == config.model else window_of(named))
        lines = limits_for(policy, window, reserve_output=reserve_output)
        if lines.budget <= 0:
            raise ConfigError(
                f"a window of {window:,} tokens leaves no budget: hard_cap_buffer {policy.hard_cap_buffer:,} and "
                f"reserve_output {window - policy.hard_cap_buffer - lines.budget:,} take it all; give it more"
            )
        known = Terms(config, asked, named, self._tally(config.counter, named), lines)
        self._last_terms = known
        return known

    def _tally(self, counter: str, model: str) -> TokenCounter:
        tally = self._tallies.get((counter, model))
        if tally is None:
            if len(self._tallies) > _MODELS:  # their names may come from a host's clients
                self._tallies.clear()
            tally = self._tallies[counter, model] = counter_for(counter, model)
        return tally

    def _tools_cost(self, session: Session, tools: Sequence[Any], terms: Terms) -> int:
        """What the tools cost; counted again only when they are others than last time."""
        known, tally = session.tools, terms.tally
        alike = known is not None and known[0] is tally and known[2] == len(tools)
        if known is not None and alike and (known[1] is tools or equal(known[1], tools)):
            return known[3]
        cost = tools_tokens(tools, tally, terms.named)
        session.tools = tally, tools, len(tools), cost
        return cost


def _mending(track: HostList, messages: Sequence[Any], reader: Reader) -> int:
    """The tokens by which a list grows that is mended on its way out."""
    raws, entries = track.outgoing(messages)
    return sum(entry.tokens for entry in make_valid(reader, raws, entries).entries) - sum(
        entry.tokens for entry in entries
    )


def _letters(raws: Sequence[Any]) -> int:
    """About how much text some messages hold; an object's is not looked at."""
    return sum(
        len(value) if isinstance(value, str) else len(repr(value))
        for raw in raws
        if isinstance(raw, dict)
        for value in raw.values()
    )


def given(messages: Any, tools: Any) -> tuple[Sequence[Any], Sequence[Any] | None]:
    """What a host passed, as lists that can be read more than once."""
    return _listed(messages, "messages"), None if tools is None else _listed(tools, "tools")


def _listed(values: Any, what: str) -> Sequence[Any]:
    """A host's list as it is; another sequence as a list."""
    if isinstance(values, (list, tuple)):
        return values
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidMessage(f"{what} must be a list, not {type(values).__name__}")
    return list(values)
