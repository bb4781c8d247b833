"""The message formats: how the messages of each provider are read, written, checked and repaired.

Owns: the table of formats, and detecting the format of messages. What the formats share is in `base` and `parts`.
Must never: change an object of the application, decide what is compacted, or count tokens.

Detection stops at the first message with evidence: an attribute `dialect`, an item type that only the Responses API
has, a content block that only Anthropic has, a role or field that only chat has. Plain messages look alike in all three
formats; then the shape of the tools decides, and without tools the format stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .anthropic import AnthropicFormat
from .base import MessageFormat, Problem
from .openai_chat import ChatFormat
from .openai_responses import RESPONSES_ITEMS, ResponsesFormat

__all__ = ["FORMATS", "MessageFormat", "Problem", "detect"]

_CHAT, _RESPONSES, _ANTHROPIC = ChatFormat(), ResponsesFormat(), AnthropicFormat()

FORMATS: Mapping[str, MessageFormat] = {one.name: one for one in (_CHAT, _RESPONSES, _ANTHROPIC)}
"""The built-in message formats by name."""

_EVIDENCE: Mapping[str, MessageFormat] = {
    **dict.fromkeys(("image_url", "file"), _CHAT),
    **dict.fromkeys(("input_text", "output_text", "input_image", "input_file"), _RESPONSES),
    **dict.fromkeys(
        ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use"), _ANTHROPIC
    ),
    **dict.fromkeys(("image", "document", "search_result", "container_upload"), _ANTHROPIC),
}
"""Types of content parts that only one format has."""


def detect(messages: Sequence[Any], tools: Sequence[Any] | None = None) -> MessageFormat | None:
    """The format of these messages, or None when they read alike in all formats."""
    for raw in messages:
        try:
            found = _format_of(raw)
        except Exception:  # noqa: S112 - an object of the application may raise anything; reading it reports that
            continue
        if found is not None:
            return found
    for tool in tools or ():
        if _field(tool, "input_schema") is not None:
            return _ANTHROPIC
        if _field(tool, "type") == "function":
            return _RESPONSES if _field(tool, "function") is None else _CHAT
    return None


def _format_of(raw: Any) -> MessageFormat | None:
    if type(raw) is dict and len(raw) == 2 and type(raw.get("content")) is str and "role" in raw:
        return None  # plain text, which reads alike everywhere: most messages until the first tool call
    if type(raw) is not dict and isinstance(named := getattr(raw, "dialect", None), str) and named in FORMATS:
        return FORMATS[named]
    kind = _field(raw, "type")
    content = _field(raw, "content")
    if isinstance(kind, str):
        if kind in RESPONSES_ITEMS or kind.endswith(("_call", "_call_output")):
            return _RESPONSES
        if kind == "message" and isinstance(content, str):
            return _RESPONSES
    if _field(raw, "role") in ("tool", "function") or _field(raw, "tool_calls") or _field(raw, "function_call"):
        return _CHAT
    if isinstance(content, (list, tuple)):
        for part in content:
            part_kind = _field(part, "type")
            if isinstance(part_kind, str):
                if part_kind in _EVIDENCE:
                    return _EVIDENCE[part_kind]
                if part_kind.endswith("_tool_result"):
                    return _ANTHROPIC
    return None


def _field(raw: Any, key: str) -> Any:
    """One field of a message, without reading the others: detection must stay cheap."""
    return raw.get(key) if type(raw) is dict or isinstance(raw, Mapping) else getattr(raw, key, None)
