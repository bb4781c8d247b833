"""Pydantic AI's messages as chat messages, and back.

Owns: `read` and `write` for the bridge. Must never: change a message in place.

- A request has several parts. Each part that the model sees is one chat message, results first, as the framework sends
  them; parts that are only records belong to their neighbour. A response is one message.
- A summary is a `CompactionPart` in a request, where the framework keeps summaries that no provider wrote: every
  provider accepts it anywhere, and the framework may merge its request with the next one. (At the beginning of a list
  for Claude it is a user's message.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai import messages as ai


def read(message: Any) -> Iterable[dict[str, Any]]:
    """The chat messages with the same content, in order."""
    return [wire for wire, _ in _pieces(message)]


def write(wires: Sequence[dict[str, Any]], message: Any) -> Any:
    """A message with the parts that are left, or a new one."""
    if message is None:
        return ai.ModelRequest([_new_part(wires[0])])
    pieces = _pieces(message)
    kept: dict[int, Any] = {}
    for wire in wires:
        original, parts = pieces[wire.part]  # type: ignore[attr-defined]
        kept |= {id(part): part for part in parts}
        if wire["content"] != original["content"]:
            kept[id(parts[0])] = _shorten(parts[0], _text(wire))
    return replace(message, parts=[kept[id(part)] for part in message.parts if id(part) in kept])


def _pieces(message: Any) -> list[tuple[dict[str, Any], list[Any]]]:
    """The chat messages of a message, each with its parts."""
    pieces: list[tuple[dict[str, Any], list[Any]]] = []
    records: list[Any] = []
    for part in message.parts if message.kind == "request" else ():
        if (wire := _read_request_part(part)) is None:
            (pieces[-1][1] if pieces else records).append(part)
        else:
            held = part.content if isinstance(part.content, (list, tuple)) else ()
            notes = (getattr(each, "metadata", None) for each in (message, part, *held))
            pieces.append((_with_metadata(wire, *notes), [part]))
    if message.kind == "response" and (wire := _read_response(message.parts)) is not None:
        pieces.append((_with_metadata(wire, message.metadata), list(message.parts)))
    if not pieces:
        return [({"role": "system", "content": ""}, list(message.parts))]  # an empty message keeps its place
    pieces[0][1].extend(records)
    return sorted(pieces, key=lambda piece: piece[0]["role"] != "tool")


def _read_request_part(part: Any) -> dict[str, Any] | None:
    """The chat message of a part of a request; None for a part that is only a record."""
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
        text = (part.model_response(),) if files is None else (part.model_response_str(wrap_if_error=False), *files)
        return {"role": "tool", "tool_call_id": part.tool_call_id, "name": part.tool_name, "content": _items(text)}
    if kind in ("retry-prompt", "retry-feedback"):
        return {"role": "user", "content": part.model_response()}
    return None


def _read_response(parts: Sequence[Any]) -> dict[str, Any] | None:
    """The text, reasoning and calls of a response as one chat message; None when it has none."""
    items: list[dict[str, Any]] = []
    thoughts, calls, signed = [], [], []
    for part in parts:
        if part.part_kind in ("text", "file"):
            items += _items([part.content])
        elif part.part_kind == "speech":
            items += _items((part.content, part.audio))
        elif part.part_kind == "thinking" and part.content:
            thoughts.append(part.content)
            signed.append({"id": part.id, "signature": part.signature, "provider": part.provider_name})
        elif part.part_kind == "tool-call":
            function = {"name": part.tool_name, "arguments": part.args_as_json_str()}
            calls.append({"id": part.tool_call_id, "type": "function", "function": function})
        else:
            items.append(_read_provider_part(part))
    if not (items or thoughts or calls):
        return None
    only_text = len(items) < 2 and all(item["type"] == "text" for item in items)
    content: Any = "".join(item["text"] for item in items) if only_text else items
    wire: dict[str, Any] = {"role": "assistant", "content": content}
    wire |= {"reasoning_content": "\n\n".join(thoughts)} if thoughts else {}
    wire |= {"tool_calls": calls} if calls else {}
    # A compaction by the provider cannot be replaced.
    pinned = {"protected": True} if any(part.part_kind == "compaction" for part in parts) else None
    return _with_metadata(wire, {"thinking": signed} if any(each["signature"] for each in signed) else None, pinned)


def _read_provider_part(part: Any) -> dict[str, Any]:
    """A part that the provider wrote, such as a built-in tool call, as an item with its fields."""
    kind, name = part.part_kind, getattr(part, "tool_name", None)
    if kind == "builtin-tool-call":
        return {"type": kind, "name": name, "arguments": part.args_as_json_str()}
    if kind == "builtin-tool-return":
        return {"type": kind, "name": name, "result": part.model_response_str()}
    details = getattr(part, "provider_details", None) or {}
    secret = getattr(part, "signature", None) or details.get("encrypted_content")
    text = getattr(part, "content", None)
    return {"type": "reasoning" if kind == "thinking" else kind, "text": text or None, "encrypted_content": secret}


def _items(content: Iterable[Any]) -> list[dict[str, Any]]:
    return [item for each in content if (item := _item(each)) is not None]


def _item(content: Any) -> dict[str, Any] | None:
    """One piece of content; None for a marker that the model does not see."""
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
    """A chat message with the application's metadata, including `protected`."""
    meta = dict(wire.get("meta") or {})
    for note in notes:
        meta |= note if isinstance(note, dict) else {}
    return {**wire, "meta": meta} if meta else wire


def _new_part(wire: dict[str, Any]) -> Any:
    """A new part for a message that compact wrote."""
    role, text = wire["role"], _text(wire)
    if role == "tool":
        return ai.ToolReturnPart(wire.get("name") or "tool", text, wire["tool_call_id"], metadata=wire.get("meta"))
    if role == "assistant":
        return ai.CompactionPart(text, metadata=wire.get("meta"))
    return ai.SystemPromptPart(text) if role in ("system", "developer") else ai.UserPromptPart(text)


def _shorten(part: Any, text: str) -> Any:
    """A tool result with shortened text. A result of a special kind becomes a plain one."""
    if part.part_kind == "tool-return" and part.tool_kind is None:
        return replace(part, content=text)
    noted, outcome = getattr(part, "metadata", None), getattr(part, "outcome", "retried")
    return ai.ToolReturnPart(
        part.tool_name, text, part.tool_call_id, metadata=noted, timestamp=part.timestamp, outcome=outcome
    )


def _text(wire: dict[str, Any]) -> str:
    content = wire["content"]
    return content if isinstance(content, str) else "\n".join(item["text"] for item in content if "text" in item)
