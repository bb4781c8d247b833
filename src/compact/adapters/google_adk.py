"""Inside Google ADK: what an agent sends to its model is compacted, and the session's events stay whole.

Owns: `CompactPlugin` (every agent of a runner), `compact_callback` (one agent), and contents as chat messages.
Must never: change an event, a content or a part.

- Sessions: the root agent's has the id of ADK's session. Other agents are shown the same events in another way, so
  theirs is `id.agent`, with the branch behind it if there is one. A child of `AgentTool` has an id of its own.
- Gemini: a step with calls follows a user's turn, and one content right behind it has all of its results. So a summary
  is written in the user's role, which is valid everywhere.
- ADK takes the ids that it made out of a request: such a call is known by its name and number.
- A content is pinned by `part_metadata={"protected": True}` on a part. Vertex AI refuses that field; with it, use
  `CompactManager(protect=…)`.
- The model's span is open before the call only in ADK's telemetry schema 1 (`call_llm`), so it is marked only there.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from .._dialects._base import CONTINUES, content_text
from .._manager import CompactManager
from ._bridge import Bridge
from ._extras import requires
from ._gate import Gate, OnError

with requires("google-adk>=2.0", "adk"):
    from google.adk.plugins.base_plugin import BasePlugin
    from google.genai.types import Content, FunctionCall, FunctionResponse, Part, Tool
    from opentelemetry.trace import get_current_span
    from pydantic import PrivateAttr

__all__ = ["Callbacks", "CompactPlugin", "compact_callback"]

SessionId = str | Callable[[Any], str] | None
"""A name, a function that gives one for a callback's context, or None for the id of ADK's session."""


class CompactPlugin(BasePlugin):
    """Compaction for every agent of a runner: `InMemoryRunner(agent, plugins=[CompactPlugin(manager)])`."""

    def __init__(self, manager: CompactManager, session_id: SessionId = None, on_error: OnError = "unchanged") -> None:
        super().__init__(name="compact")
        self._gate = Gate(manager, on_error, Bridge(_read, _write))
        self._session_id = session_id
        self._asked: deque[str] = deque(maxlen=1_000)

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Put into the request what is to be sent."""
        if llm_request.previous_interaction_id:
            return  # the server holds the conversation, and these are its newest contents only
        session_id, config = self._session_of(callback_context), llm_request.config
        turns = _turns(llm_request.contents, config.system_instruction)
        asked = {"model": llm_request.model, "reserve_output": config.max_output_tokens}
        outgoing = await self._gate.asend(session_id, turns, tools=_tools(config.tools), **asked)
        if outgoing is not turns:
            llm_request.contents = _contents(outgoing)
        if session_id not in self._asked:
            self._asked.append(session_id)
        if getattr(get_current_span(), "name", "") == "call_llm":
            self._gate.mark_span(session_id)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Report what the provider counted: once, though one answer may come as several responses."""
        usage, session_id = llm_response.usage_metadata, self._session_of(callback_context)
        if usage and usage.prompt_token_count and not llm_response.partial and session_id in self._asked:
            self._asked.remove(session_id)
            self._gate.observe(session_id, usage.prompt_token_count)

    def _session_of(self, context: Any) -> str:
        call, name = context._invocation_context, self._session_id
        if name is None:
            name = call.session.id
        else:
            begun = [event.content for event in call.session.events if event.content][:1]
            name = self._gate.apart(name if isinstance(name, str) else name(context), _turns(begun), call.agent.name)
        nested = getattr(call.agent, "parent_agent", None) or "/" in (call.node_path or "")
        return ".".join(filter(None, (name, call.agent.name if nested else "", call.branch)))


class Callbacks(NamedTuple):
    """For one agent: `LlmAgent(…, before_model_callback=these.before, after_model_callback=these.after)`."""

    before: Callable[..., Any]
    after: Callable[..., Any]


def compact_callback(
    manager: CompactManager, session_id: SessionId = None, on_error: OnError = "unchanged"
) -> Callbacks:
    """Compaction for the agents that are given these callbacks."""
    plugin = CompactPlugin(manager, session_id, on_error)
    return Callbacks(plugin.before_model_callback, plugin.after_model_callback)


def _tools(tools: Iterable[Any] | None) -> list[Any]:
    """Functions in the form that the meter knows; any other tool by its fields."""
    found: list[Any] = []
    for tool in tools or ():
        fields: Any = {"tool": str(tool)}
        if isinstance(tool, Tool):
            fields = tool.model_dump(mode="json", exclude_none=True)
        for each in fields.pop("function_declarations", ()):
            schema = each.pop("parameters_json_schema", None) or each.get("parameters") or {}
            found.append({"type": "function", "function": {**each, "parameters": schema}})
        found += [fields] if fields else []
    return found


# -- contents as chat messages -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """A content with an id for each part, empty where it is no call and no result; or the instructions as text."""

    content: Any
    ids: tuple[str, ...] = ()


class _Written(Content):
    """A content of ours, and the chat message that it says."""

    _wire: dict[str, Any] = PrivateAttr()


def _turns(contents: Iterable[Any], instructions: Any = None) -> list[_Turn]:
    """An id is `name#id`, or `name##number` for a call without one; the next result of that name is its result."""
    turns = [_Turn(str(instructions))] if instructions else []
    waiting: dict[str, list[str]] = {}
    number = 0
    for content in contents:
        ids: list[str] = []
        if _has(content, "function_call"):
            waiting = {}
        for part in content.parts or ():
            call, result = part.function_call, part.function_response
            if call:
                number += 1
                ids.append(f"{call.name}#{call.id or f'#{number}'}")
                waiting.setdefault(call.name, []).append(ids[-1])
            elif result:
                known = None if result.id else waiting.get(result.name)
                ids.append(known.pop(0) if known else f"{result.name}#{result.id or '#'}")
            else:
                ids.append("")
        turns.append(_Turn(content, tuple(ids)))
    return turns


def _read(turn: _Turn) -> Iterator[dict[str, Any]]:
    content = turn.content
    if isinstance(content, str):
        yield {"role": "system", "content": content, "meta": {"protected": True}}
    elif isinstance(content, _Written):
        yield content._wire
    else:
        ids = dict(zip(map(id, content.parts or ()), turn.ids, strict=True))
        for parts in _groups(content):
            wire = _wire("assistant" if content.role == "model" else "user", parts, [ids[id(part)] for part in parts])
            meta: dict[str, Any] = {}
            if any((part.part_metadata or {}).get("protected") is True for part in parts):
                meta["protected"] = True
            if _parts(wire) != parts:  # chat has no field for all of it
                meta["parts"] = [part.model_dump(mode="json", exclude_none=True) for part in parts]
            yield {**wire, "meta": meta} if meta else wire


def _groups(content: Any) -> list[list[Any]]:
    """Which parts each chat message has: one result each, and then all else."""
    results = [[part] for part in content.parts or () if part.function_response]
    rest = [part for part in content.parts or () if not part.function_response]
    return [*results, rest] if rest or not results else results


def _wire(role: str, parts: Sequence[Any], ids: Sequence[str]) -> dict[str, Any]:
    if parts and (result := parts[0].function_response):
        media = [_piece(part) for part in result.parts or ()]
        said: Any = [{"type": "text", "text": _said(result)}, *media] if media else _said(result)
        return {"role": "tool", "tool_call_id": ids[0], "content": said}
    pieces = [_piece(part) for part in parts if not part.function_call and not (part.thought and part.text)]
    plain = len(pieces) == 1 and pieces[0]["type"] == "text"
    wire: dict[str, Any] = {"role": role, "content": pieces[0]["text"] if plain else pieces or ""}
    if thoughts := [part.text for part in parts if part.thought and part.text]:
        wire["reasoning_content"] = "\n".join(thoughts)
    if calls := [(part.function_call, each) for part, each in zip(parts, ids, strict=True) if part.function_call]:
        wire["tool_calls"] = [
            {"id": each, "type": "function", "function": {"name": call.name, "arguments": _json(call.args or {})}}
            for call, each in calls
        ]
    return wire


def _piece(part: Any) -> dict[str, Any]:
    """One part of a content as one of a chat message. A hash stands for data: the data are in `meta`."""
    if getattr(part, "text", None) is not None:
        return {"type": "text", "text": part.text}
    if media := part.inline_data or part.file_data:
        kind = {"image": "image_url", "audio": "input_audio"}.get((media.mime_type or "").split("/")[0], "file")
        url = media.file_uri if part.file_data else f"sha256:{hashlib.sha256(media.data or b'').hexdigest()}"
        return {"type": kind, kind: {"url": url, "filename": media.display_name}}
    fields = part.model_dump(mode="json", exclude_none=True, exclude={"thought", "thought_signature", "part_metadata"})
    kind, value = next(iter(fields.items()), ("thought_signature", {}))
    return {"type": kind, **value}


def _said(result: Any) -> str:
    """What a tool returned; ADK puts what is no object under `result`."""
    said = result.response or {}
    plain = said.get("result") if len(said) == 1 else None
    return plain if isinstance(plain, str) else _json(said)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# -- and back ----------------------------------------------------------------------------------------------------------


def _write(wires: Sequence[Any], turn: _Turn | None) -> Any:
    if turn is not None:
        content, groups = turn.content, _groups(turn.content)
        kept = {id(part): _saying(wire, part) for wire in wires for part in groups[wire.part]}
        return content.model_copy(update={"parts": [kept[id(part)] for part in content.parts if id(part) in kept]})
    [wire] = wires
    if wire["role"] == "tool":
        return Content(role="user", parts=_parts(wire))
    written = _Written(role="model" if wire.get("tool_calls") else "user", parts=_parts(wire))
    written._wire = wire
    return written


def _parts(wire: dict[str, Any]) -> list[Any]:
    """The parts that say what a chat message says."""
    if whole := (wire.get("meta") or {}).get("parts"):
        return [_saying(wire, Part.model_validate_json(_json(part))) for part in whole]
    if wire["role"] == "tool":
        return [_saying(wire, Part(function_response=FunctionResponse(**_named(wire["tool_call_id"]))))]
    thought, said = wire.get("reasoning_content"), content_text(wire.get("content"))[0]
    parts = [Part(text=thought, thought=True)] if thought else []
    parts += [Part(text=said)] if said else []
    for call in wire.get("tool_calls") or ():
        arguments = json.loads(call["function"]["arguments"])
        parts.append(Part(function_call=FunctionCall(**_named(call["id"]), args=arguments)))
    return parts


def _named(call: str) -> dict[str, Any]:
    """The name and the id behind an id of `_turns`."""
    name, _, own = call.partition("#")
    return {"name": name, "id": None if own.startswith("#") else own}


def _saying(wire: dict[str, Any], part: Any) -> Any:
    """The part; a result with the text of the message, when that was shortened or is new."""
    result, said = part.function_response, content_text(wire["content"])[0]
    if not result or said == content_text(_wire("tool", [part], [""])["content"])[0]:
        return part
    response = {"result": said}
    with suppress(ValueError):
        response = loaded if isinstance(loaded := json.loads(said), dict) else response
    result = result.model_copy(update={"response": response, "parts": None})
    return part.model_copy(update={"function_response": result})


def _contents(outgoing: Iterable[Any]) -> list[Any]:
    """What goes into the request, by Gemini's rules also where something was left out."""
    contents: list[Any] = []
    for each in outgoing:
        content = each.content if isinstance(each, _Turn) else each
        if isinstance(content, str):
            continue
        last = contents[-1] if contents else None
        if last and _has(content, "function_response") and all(part.function_response for part in last.parts):
            contents[-1] = last.model_copy(update={"parts": [*last.parts, *content.parts]})
            continue
        if content.role == "model" and (last is None or (last.role == "model" and _has(content, "function_call"))):
            contents.append(Content(role="user", parts=[Part(text=CONTINUES)]))
        contents.append(content)
    return contents


def _has(content: Any, kind: str) -> bool:
    return any(getattr(part, kind) for part in content.parts or ())
