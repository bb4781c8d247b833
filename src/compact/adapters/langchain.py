"""Inside LangChain and LangGraph agents: `create_agent(model, tools, middleware=[CompactMiddleware(manager)])`.

Owns: `CompactMiddleware`, and how LangChain's messages cross the border. Must never: change a message of the agent's.

By default the agent's state keeps every message, and only what is sent is compacted. With `persistent=True` the state
is compacted too, right after the call that needed it; the archive has what left.
To pin a message: `HumanMessage("…", additional_kwargs={"protected": True})`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from .._manager import CompactManager
from ._bridge import Bridge
from ._extras import requires
from ._gate import Gate, OnError

with requires("langchain>=1.2", "langchain"):
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import RemoveMessage, convert_to_messages
    from langchain_core.runnables import ensure_config
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.graph.message import REMOVE_ALL_MESSAGES

__all__ = ["CompactMiddleware"]


class CompactMiddleware(AgentMiddleware):
    """Keeps an agent's requests inside the window.

    `session_id` is a text, or what makes one of LangGraph's `Runtime`. Without it a session is named by the thread, or
    by the conversation's first message. An agent that runs inside a tool or a graph gets a session beside that one.
    """

    def __new__(cls, *_: Any, persistent: bool = False, **__: Any) -> CompactMiddleware:
        """Each hook of a middleware costs a step of the graph at every call, so only a persistent one has another."""
        made: CompactMiddleware = super().__new__(type(cls.__name__, (_Keeping, cls), {}) if persistent else cls)
        return made

    def __init__(
        self,
        manager: CompactManager,
        session_id: str | Callable[[Any], str] | None = None,
        *,
        persistent: bool = False,
        on_error: OnError = "unchanged",
    ) -> None:
        super().__init__()
        self._gate = Gate(manager, on_error, Bridge(_read, _write))
        self._session_id = session_id
        self._kept: dict[str, tuple[set[str], list[Any]]] = {}
        """What is to be kept of the calls under way: the ids of the messages that were given, and what was sent."""

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Compact what this call sends."""
        session, given = self._session(request.runtime, request.messages), _given(request)
        call = _sending(request, given, self._gate.send(session, given, **_asked(request)))
        return self._done(session, request, call, handler(call))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """`wrap_model_call` for async agents."""
        session, given = self._session(request.runtime, request.messages), _given(request)
        call = _sending(request, given, await self._gate.asend(session, given, **_asked(request)))
        return self._done(session, request, call, await handler(call))

    def _session(self, runtime: Any, messages: Sequence[Any]) -> str:
        place = ensure_config().get("configurable", {})
        named = self._session_id(runtime) if callable(self._session_id) else self._session_id
        thread = named or place.get("thread_id")
        # The nodes around this one, outermost first: in "tools:…|model:…" an agent runs inside a tool of another.
        path = [node.partition(":")[0] for node in place.get("checkpoint_ns", "").split("|")[:-1]]
        own = [] if thread and not path else [_first_id(messages)]
        return ".".join(str(part) for part in (thread, *path, *own) if part) or "langchain"

    def _done(self, session: str, request: Any, call: Any, response: Any) -> Any:
        for message in getattr(response, "result", ()):
            self._gate.observe(session, getattr(message, "usage_metadata", None))
        return response


class _Keeping(CompactMiddleware):
    """Also keeps what was sent, in a step after the call. A step before it would know neither the instructions nor the
    tools, and an update out of the call itself would change the shape of what the agent streams.
    """

    def _done(self, session: str, request: Any, call: Any, response: Any) -> Any:
        self._kept.pop(session, None)
        # What other middleware changed for this one call is not the agent's history.
        if call.messages != request.messages == request.state["messages"]:
            for new in (message for message in call.messages if message.id is None):
                new.additional_kwargs["compact_first_id"] = _first_id(request.messages)
            self._kept[session] = {message.id for message in request.messages}, call.messages
        return super()._done(session, request, call, response)

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Put what was sent in the place of what it stands for."""
        gone, kept = self._kept.pop(self._session(runtime, state["messages"]), (set(), []))
        new = [message for message in state["messages"] if message.id not in gone]
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *kept, *new]} if kept else None

    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """`after_model` for async agents."""
        return self.after_model(state, runtime)


def _first_id(messages: Sequence[Any]) -> str | None:
    """The id of the message a conversation began with; when that one has left, a summary says it."""
    told = (message.additional_kwargs.get("compact_first_id") for message in messages)
    return next(filter(None, told), None) or next((message.id for message in messages), None)


def _given(request: Any) -> list[Any]:
    return [*filter(None, [request.system_message]), *request.messages]


def _sending(request: Any, given: Sequence[Any], sent: Sequence[Any]) -> Any:
    if sent is given:
        return request
    return request.override(messages=[message for message in sent if message is not request.system_message])


def _asked(request: Any) -> dict[str, Any]:
    def setting(kind: type, *names: str) -> Any:
        said = [request.model_settings.get(name) or getattr(request.model, name, None) for name in names]
        return next((value for value in said if isinstance(value, kind)), None)

    return {
        "tools": [tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in request.tools],
        "model": setting(str, "model", "model_name", "model_id"),
        "reserve_output": setting(int, "max_tokens", "max_completion_tokens", "max_output_tokens"),
    }


_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "function"}
_CALLS = {"tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call", "input_json_delta"}
_THOUGHTS = {"thinking", "redacted_thinking", "reasoning"}
_CHAT = {"text", "image_url", "input_audio"}
_MEDIA = {"image": "image_url", "audio": "input_audio", **dict.fromkeys(("file", "video", "document"), "file")}
_OURS = {"lc_source": "summarization"}
"""The mark that LangChain's own summaries have."""


def _read(message: Any) -> Iterator[dict[str, Any]]:
    kind, more = message.type.removesuffix("MessageChunk").lower(), message.additional_kwargs
    blocks = message.content if isinstance(message.content, list) else []
    # Of what a model said, calls and thoughts have fields of their own.
    aside = [block for block in blocks if kind == "ai" and _kind(block) in _CALLS | _THOUGHTS]
    thoughts = [block.get("thinking") or block.get("reasoning") for block in aside if _kind(block) in _THOUGHTS]
    calls = [*getattr(message, "tool_calls", ()), *getattr(message, "invalid_tool_calls", ())]
    wire = {
        "role": more.get("__openai_role__") or getattr(message, "role", None) or _ROLES[kind],
        "content": [_part(block) for block in blocks if block not in aside] if blocks else message.content,
        "name": message.name,
        "tool_call_id": getattr(message, "tool_call_id", None),
        "tool_calls": [{"id": call["id"], "type": "function", "function": _function(call)} for call in calls],
        "reasoning_content": "\n".join(filter(None, thoughts)) or more.get("reasoning_content"),
        **{key: more.get(key) for key in ("refusal", "audio", "function_call")},
    }
    meta: dict[str, Any] = {"protected": True} if more.get("protected") is True else {}
    if not more.items() >= _OURS.items():
        rest = {**vars(message), **(message.model_extra or {}), "content": blocks if aside else None}
        told = {"type", *wire} - {"content"}
        meta["langchain"] = {key: value for key, value in rest.items() if key not in told and not _is_empty(value)}
    yield {key: value for key, value in {**wire, "meta": meta}.items() if value or key == "content"}


def _write(wires: Sequence[dict[str, Any]], message: Any) -> Any:
    wire, content = wires[0], wires[0].get("content") or ""
    content = [_block(part) for part in content] if isinstance(content, list) else content
    if message is not None:
        return message.model_copy(update={"content": content})
    rest = wire.get("meta", {}).get("langchain") or {"additional_kwargs": dict(_OURS)}
    broken = [call["id"] for call in rest.get("invalid_tool_calls", ())]
    fields = {key: wire[key] for key in ("role", "name", "tool_call_id") if wire.get(key)}
    if calls := [call for call in wire.get("tool_calls", ()) if call["id"] not in broken]:
        fields["tool_calls"] = calls
    return convert_to_messages([{**fields, "content": content}])[0].model_copy(update=rest)


def _function(call: Any) -> dict[str, str]:
    arguments = call["args"]
    if not isinstance(arguments, str):  # text is what a model wrote wrong
        arguments = json.dumps(arguments, ensure_ascii=False, default=str)
    return {"name": call["name"] or "", "arguments": arguments}


def _is_empty(value: Any) -> bool:
    """Whether a field says nothing. An artifact may be anything, also something that has no truth."""
    return value is None or (isinstance(value, (str, bool, list, dict)) and not value)


def _kind(block: Any) -> str:
    return str(block.get("type")) if isinstance(block, dict) else "text"


def _part(block: Any) -> Any:
    """A content block as chat knows it; what chat does not know stands whole inside of what it is most like."""
    kind = _kind(block)
    if kind in _CHAT or (kind == "file" and "file" in block):
        return block
    kind = _MEDIA.get(kind, "block")
    return {"type": kind, kind: block}


def _block(part: Any) -> Any:
    inner = part.get(part.get("type")) if isinstance(part, dict) else None
    return inner if isinstance(inner, dict) and ("type" in inner or part["type"] == "block") else part
