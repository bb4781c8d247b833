"""Inside the OpenAI Agents SDK: before every model call of a run, and between runs.

Owns: `CompactFilter`, `CompactSession`. Must never: change a list whose other half the server holds.

    run_config = RunConfig(call_model_input_filter=CompactFilter(manager))
    session = CompactSession(SQLiteSession("chat"), manager)
    await Runner.run(agent, "Go on.", session=session, run_config=run_config)

The SDK tells a filter neither the session, nor the run's settings, nor whether the server holds the conversation. They
are read from the frames that call it. Where those are not to be found, the trace names the session, and a tool output
without its call says that the server has the rest. To pin an item, give it `"meta": {"protected": True}`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakSet

from .._drivers_async import to_the_end
from .._manager import CompactManager
from ._extras import requires
from ._gate import Gate, OnError

with requires("openai-agents>=0.21", "agents"):
    from agents import Agent, Session, handoff
    from agents.run import CallModelData, ModelInputData
    from agents.tool_context import ToolContext
    from agents.tracing import get_current_trace

__all__ = ["CompactFilter", "CompactSession"]

_WANTED = frozenset({"context_wrapper", "run_config", "server_conversation_tracker", "session"})
"""What is read from the SDK's frames."""
_SESSIONS = 1_000
"""Sessions whose newest request waits for its usage."""
_CALLER: ContextVar[str | None] = ContextVar("compact_caller", default=None)
"""The session of the run that an agent used as a tool belongs to."""
_FILTERS: WeakKeyDictionary[CompactManager, WeakSet[Gate]] = WeakKeyDictionary()
"""The gates of a manager's filters, which hear of a store that was compacted."""


class CompactFilter:
    """For `RunConfig(call_model_input_filter=…)`; agents used as tools, and handoffs, pass the same one.

    `session_id` is text, or a function of the SDK's `CallModelData`. By default it is the `session_id` of the run's
    context, else of the SDK's session, else the trace's group or id. Without any of these a filter is one session.
    """

    def __init__(
        self,
        manager: CompactManager,
        session_id: str | Callable[[CallModelData[Any]], str] | None = None,
        on_error: OnError = "unchanged",
    ) -> None:
        self._gate = Gate(manager, on_error)
        self._session_id = session_id
        self._own_name = f"agents-{uuid4().hex[:12]}"
        self._asked: dict[str, tuple[list[Any], int]] = {}
        _FILTERS.setdefault(manager, WeakSet()).add(self._gate)

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """What the model is to get; the run itself keeps the whole list."""
        run, given, agent = _run(), data.model_data, data.agent
        if _server_has_the_rest(run, given.input):
            return given
        config, context = run.get("run_config"), run.get("context_wrapper")
        session_id = self._gate.apart(self._name(data, run), given.input, agent.name)
        if not isinstance(context, ToolContext):
            _CALLER.set(session_id)
        self._learn(session_id, context)
        model = getattr(config, "model", None) or agent.model
        sent = await self._gate.asend(
            session_id,
            given.input,
            # Instructions change with every handoff. As a message they would make it another list, to be folded anew.
            tools=[*_tools(agent), *filter(None, [given.instructions])],
            model=model if isinstance(model, str) else getattr(model, "model", None),
            reserve_output=agent.model_settings.resolve(getattr(config, "model_settings", None)).max_tokens,
        )
        return ModelInputData(input=list(sent), instructions=given.instructions)

    def _name(self, data: CallModelData[Any], run: Mapping[str, Any]) -> str:
        if self._session_id is not None:
            return self._session_id if isinstance(self._session_id, str) else self._session_id(data)
        context, trace = data.context, get_current_trace()
        names = (
            context.get("session_id") if isinstance(context, Mapping) else getattr(context, "session_id", None),
            getattr(run.get("session"), "session_id", None),
            _CALLER.get() if isinstance(run.get("context_wrapper"), ToolContext) else None,
            getattr(trace, "group_id", None),
            getattr(trace, "trace_id", None),
        )
        return next((name for name in names if isinstance(name, str) and name not in ("", "no-op")), self._own_name)

    def _learn(self, session_id: str, context: Any) -> None:
        """Tell what the session's last request cost. The SDK tells no filter, and adds it to the usage of the run."""
        told = getattr(getattr(context, "usage", None), "request_usage_entries", None)
        if told is None:
            return
        if isinstance(context, ToolContext):
            # An agent used as a tool adds to the usage of its caller, several in any order. The caller's own is there
            # by now, or it was never reported.
            self._asked = {name: asked for name, asked in list(self._asked.items()) if asked != (told, len(told))}
            return
        before, at = self._asked.pop(session_id, (told, len(told)))
        if at < len(before):
            self._gate.observe(session_id, before[at])
        self._asked[session_id] = told, len(told)
        if len(self._asked) > _SESSIONS:
            self._asked.pop(next(iter(self._asked), ""), None)


class CompactSession:
    """Any session of the SDK. When a run begins, what was folded leaves its store; the archive has it.

    With a `CompactFilter` on the same manager, a fold made by one is known to the other. A session that reads only its
    newest items (`SessionSettings.limit`) is left alone. Should the process die while the store is rewritten,
    `manager.restore(session_id)` has what was in it.
    """

    def __init__(
        self, session: Session, manager: CompactManager, session_id: str | None = None, on_error: OnError = "unchanged"
    ) -> None:
        self.session_id = session.session_id
        self.session_settings = getattr(session, "session_settings", None)
        self._session, self._manager, self._name = session, manager, session_id or session.session_id
        self._gate = Gate(manager, on_error)
        self._lock = asyncio.Lock()

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items, compacted; of a session that is asked for so many, the newest."""
        async with self._lock:
            items: list[Any] = await self._session.get_items(limit)
            if not items or limit is not None or getattr(self.session_settings, "limit", None) is not None:
                return items
            try:
                compacted = await self._compacted(items)
                if compacted == items:
                    return items
            except Exception as error:
                failure: Exception | None = error
            else:
                failure = await to_the_end(self._rewrite(items, compacted))
            if failure is not None:
                return self._gate._failed(self._name, items, failure)  # type: ignore[no-any-return]
            for gate in _FILTERS.get(self._manager, ()):
                gate.also(self._name, compacted)
            return compacted

    async def add_items(self, items: list[Any]) -> None:
        """Add to the session inside."""
        async with self._lock:
            await self._session.add_items(items)

    async def pop_item(self) -> Any:
        """Take the newest item out of the session inside."""
        async with self._lock:
            return await self._session.pop_item()

    async def clear_session(self) -> None:
        """Empty the session inside; the archive stays."""
        async with self._lock:
            await self._session.clear_session()

    async def _compacted(self, items: list[Any]) -> list[Any]:
        """What is to be in the store; the archive has what leaves it."""
        step = (await asyncio.to_thread(self._manager.session, self._name)).step
        compacted = list(await self._manager.apreflight(self._name, items))
        if compacted != items and self._manager.session(self._name).step == step:
            # Nothing was folded now: a filter did, and more came since.
            async with self._manager._rooms.aturn(self._name) as room:
                await asyncio.to_thread(self._manager._journal.save_transcript, room, items)
        return compacted

    async def _rewrite(self, items: list[Any], compacted: list[Any]) -> Exception | None:
        """Put one list in the place of another. What went wrong, if the store is as it was."""
        if await self._session.get_items() != items:
            return None  # another process wrote to it: the next run tries again
        try:
            await self._fill(compacted)
        except Exception as error:
            await self._fill(items)
            return error
        return None

    async def _fill(self, items: list[Any]) -> None:
        await self._session.clear_session()
        await self._session.add_items(items)


def _run() -> dict[str, Any]:
    """What the SDK knows of the run whose filter is called: the locals of its frames, the nearest first."""
    known: dict[str, Any] = {}
    frame = sys._getframe(1)
    while frame is not None and "server_conversation_tracker" not in known:
        if frame.f_globals.get("__name__", "").startswith("agents.run"):
            known = {name: frame.f_locals[name] for name in _WANTED & frame.f_locals.keys()} | known
        frame = frame.f_back  # type: ignore[assignment]
    return known


def _server_has_the_rest(run: Mapping[str, Any], items: Sequence[Any]) -> bool:
    """Whether these are only the new items of a conversation that the server holds."""
    if "server_conversation_tracker" in run:
        return run["server_conversation_tracker"] is not None
    calls = {item.get("call_id") for item in items if "output" not in item}
    return any("output" in item and item.get("call_id") not in {None, *calls} for item in items)


def _tools(agent: Agent[Any]) -> Iterator[dict[str, Any]]:
    """The tools and handoffs as the provider gets them; those of MCP servers are not known here."""
    for tool in agent.tools:
        told = {"description": getattr(tool, "description", ""), "parameters": getattr(tool, "params_json_schema", {})}
        yield {"type": "function", "name": tool.name, **told}
    for each in agent.handoffs:
        to = handoff(each) if isinstance(each, Agent) else each
        told = {"description": to.tool_description, "parameters": to.input_json_schema}
        yield {"type": "function", "name": to.tool_name, **told}
