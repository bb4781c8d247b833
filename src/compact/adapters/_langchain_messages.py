"""LangChain's messages as chat messages, and back.

Owns: `read` and `write` for the bridge. Must never: change a message in place.

Each message is one chat message. Fields that chat does not have are in `meta["langchain"]`, so that a message from the
archive is complete again; only summaries that compact wrote have none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import convert_to_messages

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "function"}
_CALLS = {"tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call", "input_json_delta"}
_THOUGHTS = {"thinking", "redacted_thinking", "reasoning"}
_CHAT = {"text", "image_url", "input_audio"}
_MEDIA = {"image": "image_url", "audio": "input_audio", **dict.fromkeys(("file", "video", "document"), "file")}
_SUMMARY_MARK = {"lc_source": "summarization"}
"""The mark of LangChain's own summaries."""


def read(message: Any) -> Iterator[dict[str, Any]]:
    """The chat message with the same content."""
    kind, more = message.type.removesuffix("MessageChunk").lower(), message.additional_kwargs
    blocks = message.content if isinstance(message.content, list) else []
    # Calls and thoughts of a model have separate fields.
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
    if not more.items() >= _SUMMARY_MARK.items():
        rest = {**vars(message), **(message.model_extra or {}), "content": blocks if aside else None}
        copied = {"type", *wire} - {"content"}
        meta["langchain"] = {key: value for key, value in rest.items() if key not in copied and not _is_empty(value)}
    yield {key: value for key, value in {**wire, "meta": meta}.items() if value or key == "content"}


def write(wires: Sequence[dict[str, Any]], message: Any) -> Any:
    """A message with shortened text, or a new one."""
    wire, content = wires[0], wires[0].get("content") or ""
    content = [_block(part) for part in content] if isinstance(content, list) else content
    if message is not None:
        return message.model_copy(update={"content": content})
    rest = wire.get("meta", {}).get("langchain") or {"additional_kwargs": dict(_SUMMARY_MARK)}
    broken = [call["id"] for call in rest.get("invalid_tool_calls", ())]
    fields = {key: wire[key] for key in ("role", "name", "tool_call_id") if wire.get(key)}
    if calls := [call for call in wire.get("tool_calls", ()) if call["id"] not in broken]:
        fields["tool_calls"] = calls
    return convert_to_messages([{**fields, "content": content}])[0].model_copy(update=rest)


def _function(call: Any) -> dict[str, str]:
    arguments = call["args"]
    if not isinstance(arguments, str):  # text is invalid JSON of the model
        arguments = json.dumps(arguments, ensure_ascii=False, default=str)
    return {"name": call["name"] or "", "arguments": arguments}


def _is_empty(value: Any) -> bool:
    """Whether a field is empty. An artifact may be any object, also one without a truth value."""
    return value is None or (isinstance(value, (str, bool, list, dict)) and not value)


def _kind(block: Any) -> str:
    return str(block.get("type")) if isinstance(block, dict) else "text"


def _part(block: Any) -> Any:
    """A content block as a chat part; a block that chat does not have is wrapped in the most similar part."""
    kind = _kind(block)
    if kind in _CHAT or (kind == "file" and "file" in block):
        return block
    kind = _MEDIA.get(kind, "block")
    return {"type": kind, kind: block}


def _block(part: Any) -> Any:
    inner = part.get(part.get("type")) if isinstance(part, dict) else None
    return inner if isinstance(inner, dict) and ("type" in inner or part["type"] == "block") else part
