"""The three endpoints that take a whole conversation: OpenAI's chat and responses, Anthropic's messages.

Owns: `Endpoint`: which fields of a request's body matter, what an answer says of its size, and when a refusal means
"too long". Must never: send anything, or change a body.

Used by whatever sees requests as a provider does: the client adapters (objects) and the proxy (JSON).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .._conversation.message import as_mapping
from ..errors import TokenLimitExceeded
from ..summarizers.provider_calls import error_for_status

__all__ = ["CHAT", "MESSAGES", "RESPONSES", "Endpoint", "is_too_long", "window_named"]

_WINDOW = re.compile(r"(?:context length (?:is|of)|limit of|context size \(|>)\s*([\d,]+)", re.IGNORECASE)
"""Where a provider that refuses a request names its window."""

_ONE_PASS = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})
"""What a model writes in one pass. Built-in tools run several, and their sum says nothing of one request."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint that takes a conversation. `dialect` is the form of its messages, `path` how its addresses end."""

    dialect: str
    path: str
    messages: str
    reserve: tuple[str, ...]
    usage: Callable[[Any], Any]
    """What the provider counted, in an answer or in the event of its stream that says so; None in all others."""
    system: tuple[str, Mapping[str, Any]] | None = None
    """A field beside the messages that holds instructions, and the shape of a tool that weighs them: see `weighed`."""
    held: tuple[str, ...] = ()
    """Fields that say that the server holds the conversation: the request has only what is new."""

    def reserved(self, body: Mapping[str, Any]) -> int | None:
        """The tokens that the answer may have."""
        asked = (body.get(name) for name in self.reserve)
        return next((tokens for tokens in asked if isinstance(tokens, int)), None)

    def is_held(self, body: Mapping[str, Any]) -> bool:
        """Whether the server has the rest of this conversation."""
        return any(body.get(name) for name in self.held)

    def weighed(self, body: Mapping[str, Any]) -> list[Any]:
        """What a request carries besides its messages, as tools.

        Instructions beside the messages are weighed as one more tool: as a message they would be in what the archive
        gives back, where the provider refuses them. The tool also tells whose format a list of plain words is in.
        """
        tools = body.get("tools")
        listed = list(tools) if isinstance(tools, (list, tuple)) else []
        if self.system is not None:
            field, shape = self.system
            listed.append({**shape, "description": _said(body.get(field))})
        return listed


def is_too_long(status: int, body: object) -> bool:
    """Whether a provider refuses a request because of its size."""
    return isinstance(error_for_status(status, body, ""), TokenLimitExceeded)


def window_named(refusal: str) -> int | None:
    """The window that a provider names in a refusal, in its tokens."""
    named = _WINDOW.search(refusal)
    return int(named[1].replace(",", "")) if named else None


def _of(value: Any, name: str) -> Any:
    """A field of a JSON object, or of a client's object."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _said(system: Any) -> str:
    """A system prompt, which is text or a list of blocks, as text."""
    if isinstance(system, list):
        return "\n".join(str(as_mapping(block).get("text", "")) for block in system)
    return system if isinstance(system, str) else ""


def _chat_usage(answer: Any) -> Any:
    """The usage of a completion, or of the last chunk of a stream."""
    return _of(answer, "usage")


def _responses_usage(answer: Any) -> Any:
    """The usage of a response, or of the event that ends a stream."""
    response = _of(answer, "response") or answer
    kinds = {_of(item, "type") for item in _of(response, "output") or ()}
    return _of(response, "usage") if kinds <= _ONE_PASS else None


def _messages_usage(answer: Any) -> Any:
    """The usage of a message, or of the event that starts a stream."""
    usage = _of(_of(answer, "message") or answer, "usage")
    # A server tool makes the model read several times, and the event that ends a stream counts the answer too.
    if _of(usage, "server_tool_use") or _of(answer, "type") not in ("message", "message_start"):
        return None
    return usage


CHAT = Endpoint("openai-chat", "/chat/completions", "messages", ("max_completion_tokens", "max_tokens"), _chat_usage)
RESPONSES = Endpoint(
    "openai-responses",
    "/responses",
    "input",
    ("max_output_tokens",),
    _responses_usage,
    system=("instructions", {"type": "function", "name": "instructions"}),
    held=("previous_response_id", "conversation"),
)
MESSAGES = Endpoint(
    "anthropic",
    "/v1/messages",
    "messages",
    ("max_tokens",),
    _messages_usage,
    system=("system", {"name": "system", "input_schema": {}}),
    held=("thread",),
)
