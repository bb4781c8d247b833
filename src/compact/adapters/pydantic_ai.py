"""Inside Pydantic AI: `Agent(model, capabilities=[CompactCapability(manager)])`.

Owns: `CompactCapability`, and how the framework's parts are read and written. Must never: change a message in place.

- A request holds several things at once. Each part that the model is shown is a message of its own, results first, as
  the framework sends them; parts that are only records go with their neighbour. A response is one message.
- A summary is a `CompactionPart` in a request, where the framework keeps summaries that no provider wrote: every
  provider accepts it anywhere, and the framework may merge its request with the next one.
- Instructions are in no message. They count with the tools, so that changing them does not make another conversation.
- To pin: `{"protected": True}` as `metadata` of the message, of a `TextContent`, or of a tool's `ToolReturn`. (The
  framework drops a request's metadata when it merges it with another one; the other two places stay.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .._manager import CompactManager
from ._bridge import Bridge
from ._extras import requires
from ._gate import Gate, OnError

with requires("pydantic-ai-slim>=2.62", "pydantic-ai"):
    from opentelemetry.trace import NoOpTracer
    from pydantic_ai import messages as ai
    from pydantic_ai.capabilities import AbstractCapability

__all__ = ["CompactCapability"]

_GUESSING = ("function", "test")
"""The framework's models for tests: their usage is a guess, not what a provider counted."""


@dataclass
class CompactCapability(AbstractCapability[Any]):
    """Keeps the requests of an agent inside the window; with `persistent=True` its stored history too."""

    manager: CompactManager
    session_id: str | Callable[[Any], str] | None = None
    """A name, or what gives one for a `RunContext`; by default the conversation's id."""
    persistent: bool = False
    """Whether what a request was compacted to replaces the stored history."""
    on_error: OnError = "unchanged"
    _gate: Gate = field(init=False, repr=False, compare=False)
    _session: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._gate = Gate(self.manager, self.on_error, Bridge(_read, _write))

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """None: a manager cannot be written into an agent's specification."""
        return None

    async def for_run(self, ctx: Any) -> CompactCapability:
        """A copy for each run, which remembers the session of the request under way."""
        return copy.copy(self)

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Compact what is about to be sent."""
        asked, messages = request_context.model_request_parameters, request_context.messages
        self._session = self._named(ctx, messages)
        shown = [t for t in asked.function_tools if not t.defer_loading or t.name in ctx.discovered_tool_names]
        tools: list[Any] = [_tool(tool) for tool in (*shown, *asked.output_tools)]
        tools += [{"instructions": part.content} for part in asked.instruction_parts or ()]
        compacted = await self._gate.asend(
            self._session,
            messages,
            tools=tools,
            model=request_context.model.model_name,
            reserve_output=(request_context.model_settings or {}).get("max_tokens"),
        )
        if compacted is not messages:
            request_context.messages = list(compacted)
            if self.persistent:
                ctx.messages[:] = compacted
        if not isinstance(ctx.tracer, NoOpTracer):  # then the span that is open here is the request's
            self._gate.mark_span(self._session)
        return request_context

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        """Learn from what the provider counted."""
        if request_context.model.system not in _GUESSING:
            self._gate.observe(self._session, response.usage.input_tokens)
        return response

    def _named(self, ctx: Any, messages: Sequence[Any]) -> str:
        name = self.session_id(ctx) if callable(self.session_id) else self.session_id
        name = name or ctx.conversation_id or ctx.run_id or "pydantic-ai"
        # A stored history that was compacted begins otherwise than before, so there the name has to do.
        return name if self.persistent else self._gate.apart(name, messages, getattr(ctx.agent, "name", None) or "")


def _tool(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters_json_schema}
    return {"type": "function", "function": function}


def _read(message: Any) -> Iterable[dict[str, Any]]:
    return [wire for wire, _ in _pieces(message)]


def _write(wires: Sequence[dict[str, Any]], message: Any) -> Any:
    if message is None:
        return ai.ModelRequest([_new_part(wires[0])])
    pieces = _pieces(message)
    kept: dict[int, Any] = {}
    for wire in wires:
        read, parts = pieces[wire.part]  # type: ignore[attr-defined]
        kept |= {id(part): part for part in parts}
        if wire["content"] != read["content"]:
            kept[id(parts[0])] = _shortened(parts[0], _text(wire))
    return replace(message, parts=[kept[id(part)] for part in message.parts if id(part) in kept])


def _pieces(message: Any) -> list[tuple[dict[str, Any], list[Any]]]:
    """What a message is read as, each with the parts that say it."""
    made: list[tuple[dict[str, Any], list[Any]]] = []
    records: list[Any] = []
    for part in message.parts if message.kind == "request" else ():
        if (wire := _of_request(part)) is None:
            (made[-1][1] if made else records).append(part)
        else:
            held = part.content if isinstance(part.content, (list, tuple)) else ()
            notes = (getattr(each, "metadata", None) for each in (message, part, *held))
            made.append((_noted(wire, *notes), [part]))
    if message.kind == "response" and (wire := _of_response(message.parts)) is not None:
        made.append((_noted(wire, message.metadata), list(message.parts)))
    if not made:
        return [({"role": "system", "content": ""}, list(message.parts))]  # it says nothing, and keeps its place
    made[0][1].extend(records)
    return sorted(made, key=lambda piece: piece[0]["role"] != "tool")


def _of_request(part: Any) -> dict[str, Any] | None:
    """What the model is told by a part of a request; None for what is only a record."""
    kind = part.part_kind
    if kind == "system-prompt":
        return {"role": "system", "content": part.content} if part.scope == "conversation" else None
    if kind == "user-prompt":
        return {"role": "user", "content": part.content if isinstance(part.content, str) else _items(part.content)}
    if kind == "speech":
        return {"role": "user", "content": _items((part.content, part.audio))}
    if kind == "compaction":
        return {"role": "assistant", "content": part.content or ""}
    if kind == "tool-return" or (kind == "retry-prompt" and part.tool_name is not None):
        files = getattr(part, "files", None)
        said = (part.model_response(),) if files is None else (part.model_response_str(wrap_if_error=False), *files)
        return {"role": "tool", "tool_call_id": part.tool_call_id, "name": part.tool_name, "content": _items(said)}
    if kind in ("retry-prompt", "retry-feedback"):
        return {"role": "user", "content": part.model_response()}
    return None


def _of_response(parts: Sequence[Any]) -> dict[str, Any] | None:
    """What the model said, thought and called; None when it did nothing of that."""
    said: list[dict[str, Any]] = []
    thoughts, calls, signed = [], [], []
    for part in parts:
        if part.part_kind in ("text", "file"):
            said += _items([part.content])
        elif part.part_kind == "speech":
            said += _items((part.content, part.audio))
        elif part.part_kind == "thinking" and part.content:
            thoughts.append(part.content)
            signed.append({"id": part.id, "signature": part.signature, "provider": part.provider_name})
        elif part.part_kind == "tool-call":
            function = {"name": part.tool_name, "arguments": part.args_as_json_str()}
            calls.append({"id": part.tool_call_id, "type": "function", "function": function})
        else:
            said.append(_by_provider(part))
    if not (said or thoughts or calls):
        return None
    plain = len(said) < 2 and all(item["type"] == "text" for item in said)
    wire: dict[str, Any] = {"role": "assistant", "content": "".join(i["text"] for i in said) if plain else said}
    wire |= {"reasoning_content": "\n\n".join(thoughts)} if thoughts else {}
    wire |= {"tool_calls": calls} if calls else {}
    # What a provider compacted is in nobody else's words.
    pinned = {"protected": True} if any(part.part_kind == "compaction" for part in parts) else None
    return _noted(wire, {"thinking": signed} if any(each["signature"] for each in signed) else None, pinned)


def _by_provider(part: Any) -> dict[str, Any]:
    """What happened at the provider, as an item that explains itself."""
    kind, name = part.part_kind, getattr(part, "tool_name", None)
    if kind == "builtin-tool-call":
        return {"type": kind, "name": name, "arguments": part.args_as_json_str()}
    if kind == "builtin-tool-return":
        return {"type": kind, "name": name, "result": part.model_response_str()}
    details = getattr(part, "provider_details", None) or {}
    secret = getattr(part, "signature", None) or details.get("encrypted_content")
    said = getattr(part, "content", None)
    return {"type": "reasoning" if kind == "thinking" else kind, "text": said or None, "encrypted_content": secret}


def _items(content: Iterable[Any]) -> list[dict[str, Any]]:
    return [item for each in content if (item := _item(each)) is not None]


def _item(content: Any) -> dict[str, Any] | None:
    """One piece of content; None for a mark that the model does not see."""
    if content is None or isinstance(content, str):
        return {"type": "text", "text": content} if content else None
    if content.kind in ("text-content", "structured-content"):
        return {"type": "text", "text": content.content}
    if content.kind == "cache-point":
        return None
    url = content.data_uri if content.kind == "binary" else getattr(content, "url", None)
    media = content.media_type.partition("/")[0] if content.kind == "binary" else content.kind.partition("-")[0]
    if media == "image":
        detail = (content.vendor_metadata or {}).get("detail")
        return {"type": "image_url", "image_url": {"url": url, "detail": detail} if detail else {"url": url}}
    if media == "audio":
        return {"type": "audio", "audio": {"url": url}}
    return {"type": "file", "file": {"file_id": content.file_id} if url is None else {"file_data": url}}


def _noted(wire: dict[str, Any], *notes: Any) -> dict[str, Any]:
    """A wire with the host's own metadata, `protected` among it."""
    meta = dict(wire.get("meta") or {})
    for note in notes:
        meta |= note if isinstance(note, dict) else {}
    return {**wire, "meta": meta} if meta else wire


def _new_part(wire: dict[str, Any]) -> Any:
    """A part for what was not there before."""
    role, text = wire["role"], _text(wire)
    if role == "tool":
        return ai.ToolReturnPart(wire.get("name") or "tool", text, wire["tool_call_id"], metadata=wire.get("meta"))
    if role == "assistant":
        return ai.CompactionPart(text, metadata=wire.get("meta"))
    return ai.SystemPromptPart(text) if role in ("system", "developer") else ai.UserPromptPart(text)


def _shortened(part: Any, text: str) -> Any:
    """A tool's result with less text. A result of a special kind would no longer be one."""
    if part.part_kind == "tool-return" and part.tool_kind is None:
        return replace(part, content=text)
    noted, outcome = getattr(part, "metadata", None), getattr(part, "outcome", "retried")
    return ai.ToolReturnPart(
        part.tool_name, text, part.tool_call_id, metadata=noted, timestamp=part.timestamp, outcome=outcome
    )


def _text(wire: dict[str, Any]) -> str:
    content = wire["content"]
    return content if isinstance(content, str) else "\n".join(item["text"] for item in content if "text" in item)
