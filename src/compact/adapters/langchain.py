"""Adapter for LangChain and LangGraph: `create_agent(model, tools, middleware=[CompactMiddleware(manager)])`.

Owns: `CompactMiddleware`. Must never: change a message of the agent in place.

By default the agent's state keeps every message, and only what is sent is compacted. With `persistent=True` the state
is compacted too, after the call that required it; the archive has the messages that were removed.
To pin a message: `HumanMessage("…", additional_kwargs={"protected": True})`.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from .._engine.manager import CompactManager
from ._bridge import Bridge
from ._extras import requires
from .session_gate import Gate, OnError, resolve_session_id

with requires("langchain>=1.2", "langchain"):
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import RemoveMessage
    from langchain_core.runnables import ensure_config
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.graph.message import REMOVE_ALL_MESSAGES

    from ._langchain_messages import read, write

__all__ = ["CompactMiddleware"]

_MAX_PENDING = 1_000
"""Calls whose compacted lists wait for `after_model`; a call that fails never fetches its list."""


class CompactMiddleware(AgentMiddleware):
    """Keeps an agent's requests inside the window.

    `session_id` is a text, or a function of LangGraph's `Runtime` (default: the thread, else the id of the first
    message; a history without ids and without a thread is another conversation each time). An agent inside a tool or
    a graph gets a session whose name also has the path of nodes.
    """

    def __new__(cls, *_: Any, persistent: bool = False, **__: Any) -> CompactMiddleware:
        """Each hook of a middleware costs a graph step at every call, so only a persistent one has `after_model`."""
        created: CompactMiddleware = super().__new__(
            type(cls.__name__, (_PersistentMiddleware, cls), {}) if persistent else cls
        )
        return created

    def __init__(
        self,
        manager: CompactManager,
        session_id: str | Callable[[Any], str] | None = None,
        *,
        persistent: bool = False,
        on_error: OnError = "unchanged",
    ) -> None:
        super().__init__()
        self._gate = Gate(manager, on_error, Bridge(read, write))
        self._session_id = session_id

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Compact what this call sends."""
        session, given = self._session(request.runtime, request.messages), _request_messages(request)
        call = _with_messages(request, given, self._gate.send(session, given, **_call_settings(request)))
        return self._finish(session, request, call, handler(call))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """`wrap_model_call` for async agents."""
        session, given = self._session(request.runtime, request.messages), _request_messages(request)
        call = _with_messages(request, given, await self._gate.asend(session, given, **_call_settings(request)))
        return self._finish(session, request, call, await handler(call))

    def _session(self, runtime: Any, messages: Sequence[Any]) -> str:
        place = ensure_config().get("configurable", {})
        thread = resolve_session_id(self._session_id, runtime) or place.get("thread_id")
        # The nodes around this one, outermost first: "tools:…|model:…" is an agent inside a tool of another agent.
        path = [node.partition(":")[0] for node in place.get("checkpoint_ns", "").split("|")[:-1]]
        own = [] if thread and not path else [_first_id(messages)]
        return ".".join(str(part) for part in (thread, *path, *own) if part) or "langchain"

    def _finish(self, session: str, request: Any, call: Any, response: Any) -> Any:
        for message in getattr(response, "result", ()):
            self._gate.observe(session, getattr(message, "usage_metadata", None))
        return response


class _PersistentMiddleware(CompactMiddleware):
    """Also stores the compacted list in the agent's state, in a step after the call. A step before it has neither the
    instructions nor the tools, and an update from the call itself would change what the agent streams.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._pending: dict[str, tuple[set[str], list[Any]]] = {}
        """By session, the ids of the messages before the compaction, and the compacted list."""
        self._mutex = threading.Lock()

    def _finish(self, session: str, request: Any, call: Any, response: Any) -> Any:
        with self._mutex:
            self._pending.pop(session, None)
            # Changes that another middleware made for this call only are not the agent's history.
            if call.messages != request.messages == request.state["messages"]:
                for new in (message for message in call.messages if message.id is None):
                    new.additional_kwargs["compact_first_id"] = _first_id(request.messages)
                self._pending[session] = {message.id for message in request.messages}, call.messages
                if len(self._pending) > _MAX_PENDING:
                    del self._pending[next(iter(self._pending))]
        return super()._finish(session, request, call, response)

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Replace the messages in the state by the compacted list."""
        messages = state["messages"]
        with self._mutex:
            gone, kept = self._pending.pop(self._session(runtime, messages), (set(), []))
        # Simultaneous runs may share a name: the list must belong to these messages.
        if not kept or not gone <= {message.id for message in messages}:
            return None
        new = [message for message in messages if message.id not in gone]
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *kept, *new]}

    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """`after_model` for async agents."""
        return self.after_model(state, runtime)


def _first_id(messages: Sequence[Any]) -> str | None:
    """The id of the first message of a conversation; when it was compacted, a summary has it."""
    recorded = (message.additional_kwargs.get("compact_first_id") for message in messages)
    return next(filter(None, recorded), None) or next((message.id for message in messages), None)


def _request_messages(request: Any) -> list[Any]:
    return [*filter(None, [request.system_message]), *request.messages]


def _with_messages(request: Any, given: Sequence[Any], sent: Sequence[Any]) -> Any:
    if sent is given:
        return request
    return request.override(messages=[message for message in sent if message is not request.system_message])


def _call_settings(request: Any) -> dict[str, Any]:
    def setting(kind: type, *names: str) -> Any:
        values = [request.model_settings.get(name) or getattr(request.model, name, None) for name in names]
        return next((value for value in values if isinstance(value, kind)), None)

    return {
        "tools": [_schema(tool) for tool in request.tools],
        "model": setting(str, "model", "model_name", "model_id"),
        "reserve_output": setting(int, "max_tokens", "max_completion_tokens", "max_output_tokens"),
    }


def _schema(tool: Any) -> Any:
    try:
        return tool if isinstance(tool, dict) else convert_to_openai_tool(tool)
    except Exception:  # the model may accept it anyway
        return tool
