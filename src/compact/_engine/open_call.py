"""Opening a call: the session is brought up to date with the list, and the decision is made.

Owns: `CallOpener`: loading sessions, resolving model, window and limits, reading and counting what is new.
Must never: compact, or emit an event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from .._archive.archive import Archive
from .._compaction.plan import Plan
from .._compaction.trigger import decide
from .._conversation.tokens import TokenCounter, counter_for
from .._conversation.tool_schemas import tools_tokens
from .._pipeline.call import PREFLIGHT, Call, Purpose
from .._session.entries import Reader
from .._session.host_list import HostList, equal
from .._session.make_valid import make_valid
from .._session.session import Session
from ..config import CompactConfig, window_of
from ..config.limits import Limits, limits_for
from ..config.sections import Policy
from ..errors import ArchiveError, ConfigError, InvalidMessage
from .live_sessions import LiveSession
from .recorder import EventRecorder

Overrides = tuple[str | None, int | None, int | None]
"""Model, window and output reserve that a call asks for."""

_COUNTERS = 1_000
"""Models whose counters are held."""
MANY_MESSAGES, MANY_CHARACTERS = 500, 100_000
"""New messages, and characters of them, above which they are not read on an event loop: that would take some 10 ms."""


class _Resolved(NamedTuple):
    """What calls with the same overrides under one configuration have in common."""

    config: CompactConfig
    overrides: Overrides
    model: str
    counter: TokenCounter
    limits: Limits


class CallOpener:
    """Opens calls. One per manager; all methods are called with the session's lock held."""

    def __init__(
        self,
        archive: Archive | None,
        recorder: EventRecorder,
        *,
        dialect: str,
        protect: Callable[[Any], bool] | None,
        before_fold: Callable[[Plan], Plan | None] | None,
        offline: bool,
        redact: Callable[[str], str],
    ) -> None:
        self._archive = archive
        self._recorder = recorder
        self._dialect = dialect
        self._protect = protect
        self._before_fold = before_fold
        self._offline = offline
        self._redact = redact
        self._counters: dict[tuple[str, str], TokenCounter] = {}
        self._last_resolved: _Resolved | None = None
        self._evicted: dict[str, tuple[int, int, dict[str, tuple[str, int]]]] = {}

    def open(
        self,
        config: CompactConfig,
        live: LiveSession,
        messages: Sequence[Any],
        tools: Sequence[Any] | None = None,
        overrides: Overrides = (None, None, None),
        purpose: Purpose = PREFLIGHT,
        *,
        peek: bool = False,
    ) -> Call:
        """Bring the session up to date with this list, count it, and decide. With `peek` the session stays as it is."""
        messages, tools = as_lists(messages, tools)
        session = live.session
        if session.reader is None:
            self.load_session(config, session, messages, tools)
        resolved = self._resolve(config, overrides)
        limits, policy = resolved.limits, config.policy
        reader, host_list = self._read(session, messages, tools, resolved.counter, peek=peek)
        host_list.repair_tokens = _repair_tokens(host_list, messages, reader) if host_list.needs_check else 0
        tools_cost = session.unseen_tokens + (self._tools_tokens(session, tools, resolved) if tools else 0)
        factor = session.factor or 1 + resolved.counter.margin
        usage = host_list.usage(tools_cost).scaled(factor)
        decision = decide(usage, host_list.counters(), policy, limits)
        if purpose.reason is not None:
            host_list.reread(messages, reader)
            policy, limits = _forced_rules(purpose, policy, limits, usage.total)
            usage = host_list.usage(tools_cost).scaled(factor)
            decision = decide(usage, host_list.counters(), policy, limits, forced=purpose.reason)
        elif decision and host_list.reread(messages, reader):
            usage = host_list.usage(tools_cost).scaled(factor)
            decision = decide(usage, host_list.counters(), policy, limits)
        return Call(  # by position, because keywords take twice as long
            session,
            host_list,
            messages,
            tools,
            overrides,
            purpose,
            reader,
            resolved.model,
            policy,
            config.summary,
            limits,
            decision,
            tools_cost,
            factor,
            self._offline or purpose.reason == "overflow",
            self._archive is not None,
            self._before_fold,
            self._redact,
        )

    def reopen(self, config: CompactConfig, live: LiveSession, call: Call) -> Call:
        """The same call on the session as it is now."""
        return self.open(config, live, call.messages, call.tools, call.overrides, call.purpose)

    async def warm_up(
        self,
        config: CompactConfig,
        session: Session,
        messages: Sequence[Any],
        tools: Sequence[Any] | None,
        model: str | None,
    ) -> None:
        """Do in a thread what may take long before a call can be opened.

        Loads a token table, loads a session from the archive, and reads what is new of a list, where that is much.
        """
        key = config.counter, model or config.model
        known = len(session.lists[0].entries) if session.lists else 0
        much = len(messages) - known > MANY_MESSAGES or _characters(messages[known:]) > MANY_CHARACTERS
        if key in self._counters and session.reader is not None and not much:
            return
        import asyncio

        from .drive_async import in_thread_to_end

        await asyncio.to_thread(self._counter, *key)
        # To the end, also when the caller is cancelled: the next one must not load the same session beside it.
        if session.reader is None:
            await in_thread_to_end(self.load_session, config, session, messages, tools)
        if much:
            await in_thread_to_end(self._read, session, messages, tools, self._counter(*key))

    def _read(
        self,
        session: Session,
        messages: Sequence[Any],
        tools: Sequence[Any] | None,
        counter: TokenCounter,
        *,
        peek: bool = False,
    ) -> tuple[Reader, HostList]:
        """Bring a session up to date with a list; with `peek`, a copy of what it knows."""
        reader = session.reader
        assert reader is not None
        if peek:
            reader = reader.with_counter(counter)
        elif reader.counter is not counter:  # another tokenizer: count everything again
            reader.counter = counter
            session.factor = None
            for known in session.lists:
                known.recount_tokens(reader)
        return reader, session.follow(messages, reader, tools, peek=peek)

    # -- sessions ----------------------------------------------------------------------------------------------------

    def load_session(
        self, config: CompactConfig, session: Session, messages: Sequence[Any], tools: Sequence[Any] | None
    ) -> None:
        """Give a session its reader, and bring back what the archive knows of it."""
        reader = Reader(self._dialect, self._counter(config.counter, config.model), self._protect)
        reader.settle(messages, tools)
        if self._archive is not None:
            try:
                problems = self._archive.load(session, reader)
            except ArchiveError as error:
                # Only a compaction needs the store. Without it an earlier one costs a new summary.
                problems = [str(error)]
            for problem in problems:
                self._recorder.log(f"session {session.id!r} could not be read back whole: {problem}")
        elif session.id in self._evicted:
            session.step, session.version, signatures = self._evicted[session.id]
            session.memory.recognise(signatures)
        session.reader = reader

    def is_outdated(self, session: Session) -> bool:
        """Whether another process wrote to this session's archive."""
        try:
            return self._archive is not None and self._archive.is_changed(session)
        except ArchiveError:
            return False  # the compaction will find out, and report it

    def refresh(self, config: CompactConfig, live: LiveSession) -> bool:
        """Read a session back when another process wrote to its archive; what the provider reported stays."""
        before = live.session
        if not self.is_outdated(before):
            return False
        self.reset(live)
        self.load_session(config, live.session, (), None)
        if before.reader is not None and live.session.reader is not None:
            live.session.reader.format, live.session.reader.settled = before.reader.format, before.reader.settled
        return True

    @staticmethod
    def reset(live: LiveSession) -> None:
        """Drop what is in memory of a session, except what the provider reported."""
        before = live.session
        live.session = Session(before.id)
        live.session.factor, live.session.unseen_tokens = before.factor, before.unseen_tokens

    def evict(self, live: LiveSession) -> None:
        """A session leaves memory. Without an archive the signatures of its summaries stay."""
        live.drop_background()
        self._recorder.write_events(live)
        session = live.session
        if self._archive is None and session.step:
            self._evicted[session.id] = session.step, session.version, session.memory.signatures

    # -- model, window, tools ----------------------------------------------------------------------------------------

    def _resolve(self, config: CompactConfig, overrides: Overrides) -> _Resolved:
        """Model, counter and limits of this call, which are nearly always those of the last one."""
        known = self._last_resolved
        if known is not None and known.config is config and known.overrides == overrides:
            return known
        model, window, reserve_output = overrides
        model, policy = model or config.model, config.policy
        window = window or (config.window if model == config.model else window_of(model))
        limits = limits_for(policy, window, reserve_output=reserve_output)
        if limits.budget <= 0:
            raise ConfigError(
                f"a window of {window:,} tokens leaves no budget: hard_cap_buffer {policy.hard_cap_buffer:,} and "
                f"reserve_output {window - policy.hard_cap_buffer - limits.budget:,} take it all; give it more"
            )
        self._last_resolved = _Resolved(config, overrides, model, self._counter(config.counter, model), limits)
        return self._last_resolved

    def _counter(self, name: str, model: str) -> TokenCounter:
        counter = self._counters.get((name, model))
        if counter is None:
            if len(self._counters) > _COUNTERS:  # model names may come from clients of the application
                self._counters.clear()
            counter = self._counters[name, model] = counter_for(name, model)
        return counter

    def _tools_tokens(self, session: Session, tools: Sequence[Any], resolved: _Resolved) -> int:
        """What the tools cost; counted again only when they have changed."""
        known, counter = session.tools, resolved.counter
        alike = known is not None and known[0] is counter and known[2] == len(tools)
        if known is not None and alike and (known[1] is tools or equal(known[1], tools)):
            return known[3]
        cost = tools_tokens(tools, counter, resolved.model)
        session.tools = counter, tools, len(tools), cost
        return cost


def _forced_rules(purpose: Purpose, policy: Policy, limits: Limits, total: int) -> tuple[Policy, Limits]:
    """Policy and limits of a compaction that was asked for, at a list of so many tokens.

    After an overflow the list gets below the limit that the provider named, or shrinks to three quarters.
    """
    if purpose.layout is not None:
        policy = policy.model_copy(update={"layout": purpose.layout})
    if purpose.reason == "manual":
        return policy, limits
    goal = purpose.limit
    if purpose.reason == "overflow" and (goal is None or goal >= total):
        goal = max(1, total * 3 // 4)
    assert goal is not None
    if goal < 1:
        raise ConfigError(f"a limit of {goal:,} tokens holds nothing; give at least 1")
    return policy, Limits(goal, goal)


def _repair_tokens(host_list: HostList, messages: Sequence[Any], reader: Reader) -> int:
    """The tokens by which a list grows that is made valid on its way out."""
    raws, entries = host_list.outgoing(messages)
    valid = make_valid(reader, raws, entries).entries
    return sum(entry.tokens for entry in valid) - sum(entry.tokens for entry in entries)


def _characters(raws: Sequence[Any]) -> int:
    """About how much text some messages hold; objects are not looked into."""
    return sum(
        len(value) if isinstance(value, str) else len(repr(value))
        for raw in raws
        if isinstance(raw, dict)
        for value in raw.values()
    )


def as_lists(messages: Any, tools: Any) -> tuple[Sequence[Any], Sequence[Any] | None]:
    """The arguments as lists that can be read more than once."""
    return _as_list(messages, "messages"), None if tools is None else _as_list(tools, "tools")


def _as_list(values: Any, what: str) -> Sequence[Any]:
    """A list as it is; another sequence as a list."""
    if isinstance(values, (list, tuple)):
        return values
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidMessage(f"{what} must be a list, not {type(values).__name__}")
    return list(values)
