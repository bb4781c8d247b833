"""How a host's messages are read, written, judged and mended: one dialect per provider format.

Owns: the registry, and detection. The `MessageFormat` protocol and what the formats share are in `base`.
Must never: change a host object, decide what folds, or count tokens.

Detection looks for evidence, message by message, and stops at the first: a message that names its `dialect`, an item
type that only the Responses API has, a content block that only Anthropic has, a role or field that only chat has. Plain
messages look alike in all three; then the shape of the tools decides, and without tools nothing does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .anthropic import AnthropicDialect
from .base import MessageFormat, Problem
from .openai_chat import ChatDialect
from .openai_responses import RESPONSES_ITEMS, ResponsesDialect

__all__ = ["FORMATS", "MessageFormat", "Problem", "detect"]

_CHAT, _RESPONSES, _ANTHROPIC = ChatDialect(), ResponsesDialect(), AnthropicDialect()

FORMATS: Mapping[str, MessageFormat] = {dialect.name: dialect for dialect in (_CHAT, _RESPONSES, _ANTHROPIC)}
"""The built-in dialects by name."""

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
    """The dialect these messages are written in, or None when they would read alike in all of them."""
    for raw in messages:
        try:
            dialect = _of_message(raw)
        except Exception:  # noqa: S112 - a host's object may raise anything; reading it will say so
            continue
        if dialect is not None:
            return dialect
    for tool in tools or ():
        if _field(tool, "input_schema") is not None:
            return _ANTHROPIC
        if _field(tool, "type") == "function":
            return _RESPONSES if _field(tool, "function") is None else _CHAT
    return None


def _of_message(raw: Any) -> MessageFormat | None:
    if type(raw) is dict and len(raw) == 2 and type(raw.get("content")) is str and "role" in raw:
        return None  # plain text, which reads alike everywhere: most messages until the first tool call
    if type(raw) is not dict and isinstance(named := getattr(raw, "dialect", None), str) and named in FORMATS:
        return FORMATS[named]  # it says so itself
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
    """One field of a host object, without reading the others: detection must stay cheap."""
    return raw.get(key) if type(raw) is dict or isinstance(raw, Mapping) else getattr(raw, key, None)
