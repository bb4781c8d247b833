"""Pydantic AI's messages as chat messages, and back.

Owns: `read` and `write`. Must never: change a message in place.

- A request holds several things at once. Each part that the model is shown is a message of its own, results first, as
  the framework sends them; parts that are only records go with their neighbour. A response is one message.
- A summary is a `CompactionPart` in a request, where the framework keeps summaries that no provider wrote: every
  provider accepts it anywhere, and the framework may merge its request with the next one. (One that opens a list for
  Claude is a user's message.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai import messages as ai

__all__ = ["read", "write"]


def read(message: Any) -> Iterable[dict[str, Any]]:
    """The chat messages that say the same, in order."""
    return [wire for wire, _ in _pieces(message)]


def write(wires: Sequence[dict[str, Any]], message: Any) -> Any:
    """A message with what is left of it, or a new one."""
    if message is None:
        return ai.ModelRequest([_new_part(wires[0])])
    pieces = _pieces(message)
    kept: dict[int, Any] = {}
    for wire in wires:
        said, parts = pieces[wire.part]  # type: ignore[attr-defined]
        kept |= {id(part): part for part in parts}
        if wire["content"] != said["content"]:
            kept[id(parts[0])] = _shorten(parts[0], _text(wire))
    return replace(message, parts=[kept[id(part)] for part in message.parts if id(part) in kept])


def _pieces(message: Any) -> list[tuple[dict[str, Any], list[Any]]]:
    """What a message is read as, each with the parts that say it."""
    made: list[tuple[dict[str, Any], list[Any]]] = []
    records: list[Any] = []
    for part in message.parts if message.kind == "request" else ():
        if (wire := _read_request_part(part)) is None:
            (made[-1][1] if made else records).append(part)
        else:
            held = part.content if isinstance(part.content, (list, tuple)) else ()
            notes = (getattr(each, "metadata", None) for each in (message, part, *held))
            made.append((_with_metadata(wire, *notes), [part]))
    if message.kind == "response" and (wire := _read_response(message.parts)) is not None:
        made.append((_with_metadata(wire, message.metadata), list(message.parts)))
    if not made:
        return [({"role": "system", "content": ""}, list(message.parts))]  # it says nothing, and keeps its place
    made[0][1].extend(records)
    return sorted(made, key=lambda piece: piece[0]["role"] != "tool")


def _read_request_part(part: Any) -> dict[str, Any] | None:
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


def _read_response(parts: Sequence[Any]) -> dict[str, Any] | None:
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
            said.append(_read_provider_part(part))
    if not (said or thoughts or calls):
        return None
    plain = len(said) < 2 and all(item["type"] == "text" for item in said)
    wire: dict[str, Any] = {"role": "assistant", "content": "".join(i["text"] for i in said) if plain else said}
    wire |= {"reasoning_content": "\n\n".join(thoughts)} if thoughts else {}
    wire |= {"tool_calls": calls} if calls else {}
    # What a provider compacted is in nobody else's words.
    pinned = {"protected": True} if any(part.part_kind == "compaction" for part in parts) else None
    return _with_metadata(wire, {"thinking": signed} if any(each["signature"] for each in signed) else None, pinned)


def _read_provider_part(part: Any) -> dict[str, Any]:
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


def _with_metadata(wire: dict[str, Any], *notes: Any) -> dict[str, Any]:
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


def _shorten(part: Any, text: str) -> Any:
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
