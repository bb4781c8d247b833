"""Messages of LlamaIndex as chat messages, and back.

Owns: `read` and `write` for the bridge, `outgoing` (a valid list for the model), and `usage_of` a response.
Must never: change a message, or consume a file in one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import IOBase
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.bridge.pydantic import BaseModel

from .._conversation.formats.base import CONTINUES

_ROLES = {"chatbot": "assistant", "model": "assistant", "function": "tool"}
_PARTS = {"image": "image_url", "audio": "input_audio", "video": "file", "document": "file"}
_PARTS |= dict.fromkeys(("text", "cache", "thinking", "tool_call"), "text")


def read(message: Any) -> list[dict[str, Any]]:
    """One chat message. Several blocks become parts with all their fields, in order; calls and thoughts among them have
    no text there, because they have separate fields.
    """
    blocks, extra = message.blocks, dict(message.additional_kwargs)
    kinds = [block.block_type for block in blocks]
    role = _ROLES.get(message.role.value, message.role.value)
    wire: dict[str, Any] = {"role": role, "content": blocks[0].text if kinds == ["text"] else None}
    if blocks and kinds != ["text"]:
        dumps = [_plain(block) for block in blocks]
        wire["content"] = [
            {"type": _PARTS.get(each["block_type"], each["block_type"]), "text": "", **each} for each in dumps
        ]
    calls = [block for block in blocks if block.block_type == "tool_call"] or extra.get("tool_calls")
    if calls:
        wire["tool_calls"] = [_call(_plain(call)) for call in calls]
    if "thinking" in kinds:
        wire["reasoning_content"] = "\n".join(block.content or "" for block in blocks if block.block_type == "thinking")
    usual, meta = {}, {}
    if role == "tool":
        usual["tool_call_id"] = wire["tool_call_id"] = str(extra.get("tool_call_id") or extra.get("name") or "")
    extra.pop("images", None)  # they are among the blocks
    if extra.get("protected") is True:
        meta["protected"] = extra.pop("protected")
    if extra != usual:
        meta["additional_kwargs"] = _plain(extra)
    if role != message.role.value:
        meta["role"] = message.role.value
    if meta:
        wire["meta"] = meta
    return [wire]


def write(wires: Sequence[dict[str, Any]], message: Any) -> Any:
    """A message with shortened blocks, or a new one."""
    wire, content = wires[0], wires[0].get("content")
    parts = [{"text": content}] if isinstance(content, str) else content or []
    blocks = [{"block_type": "text", **part} for part in parts]
    if message is not None:
        return message.model_copy(update={"blocks": ChatMessage(blocks=blocks).blocks})
    meta = wire.get("meta") or {}
    usual = {"tool_call_id": wire["tool_call_id"]} if wire["role"] == "tool" else {}
    extra = meta.get("additional_kwargs", usual) | ({"protected": True} if meta.get("protected") else {})
    return ChatMessage(role=meta.get("role") or wire["role"], blocks=blocks, additional_kwargs=extra)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call, in any form that an integration has: that of a block, or of its provider."""
    body = call.get("function") or call
    name = str(body.get("name") or body.get("tool_name") or "")
    ids = (call.get(key) for key in ("call_id", "tool_call_id", "tool_id", "toolUseId", "id"))
    value: Any = next((body[key] for key in ("arguments", "tool_kwargs", "input", "args") if key in body), {})
    arguments = value if isinstance(value, str) else json.dumps(value)
    return {
        "id": str(next(filter(None, ids), name)),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _plain(value: Any) -> Any:
    """A value as plain JSON values."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, BaseModel):
        return {key: _plain(field) for key, field in value if field is not None}
    if isinstance(value, Mapping):
        return {str(key): _plain(field) for key, field in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, IOBase):
        with suppress(OSError, ValueError):  # closed, or a stream that cannot be read twice
            value = _read_file(value)
    if isinstance(value, bytes):  # media, mostly in base64 already
        return (value if value.isascii() else base64.b64encode(value)).decode()
    return str(value)


def _read_file(file: Any) -> Any:
    """The content of a file, whose position stays the same."""
    at = file.tell()
    file.seek(0)
    data = file.read()
    file.seek(at)
    return data


# -- requests and responses --------------------------------------------------------------------------------------------


def outgoing(original: Sequence[Any], sent: Sequence[Any]) -> list[Any]:
    """The messages to send, without the `protected` mark: integrations send all of `additional_kwargs`.

    Some providers refuse a list that begins with the assistant: a summary at the beginning gets the user's role, and a
    kept message gets a short user message before it.
    """
    messages = list(sent)
    if sent and sent[0] is not original[0] and sent[0].role == "assistant":
        if any(message is sent[0] for message in original):
            messages.insert(0, ChatMessage(role="user", content=CONTINUES))
        else:
            messages[0] = sent[0].model_copy(update={"role": MessageRole.USER})
    return [
        message.model_copy(update={"additional_kwargs": {k: v for k, v in extra.items() if k != "protected"}})
        if (extra := message.additional_kwargs).get("protected") is True
        else message
        for message in messages
    ]


def usage_of(response: Any) -> Any:
    """The provider's usage, if the integration has it: in the raw response, or beside it."""
    raw, beside = response.raw, response.additional_kwargs
    usage = raw.get("usage") if isinstance(raw, Mapping) else getattr(raw, "usage", None)
    return usage or (beside if beside.get("prompt_tokens") else None)
