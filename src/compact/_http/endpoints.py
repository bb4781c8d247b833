"""The three endpoints that take a whole conversation: OpenAI's chat and responses, Anthropic's messages.

Owns: `Endpoint`: the relevant fields of a request body, the usage in a response, and which errors mean "too long".
Must never: send anything, or change a body.

Used by the client adapters (bodies as objects) and by the proxy (bodies as JSON).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .._conversation.message import as_mapping
from ..errors import TokenLimitExceeded
from ..summarizers.provider_calls import error_for_status

_WINDOW = re.compile(r"(?:context length (?:is|of)|limit of|context size \(|>)\s*([\d,]+)", re.IGNORECASE)
"""Where the error of a provider names the context window."""

_ONE_PASS = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})
"""Items that a model writes in one pass. Built-in tools take several passes, and their sum is not the size of one
request."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint that takes a conversation. `format` is the name of its message format, `path` the end of its URLs."""

    format: str
    path: str
    messages: str
    reserve: tuple[str, ...]
    usage: Callable[[Any], Any]
    """The provider's usage in a response, or in the stream event that has it; None in all others."""
    system: tuple[str, Mapping[str, Any]] | None = None
    """A field beside the messages that holds instructions, and the tool that counts them: see `counted_tools`."""
    server_state: tuple[str, ...] = ()
    """Fields that mean that the server keeps the conversation: the request has only the new messages."""

    def reserved_output(self, body: Mapping[str, Any]) -> int | None:
        """The tokens that the response may have."""
        limits = (body.get(name) for name in self.reserve)
        return next((tokens for tokens in limits if isinstance(tokens, int)), None)

    def is_on_server(self, body: Mapping[str, Any]) -> bool:
        """Whether the server keeps the rest of this conversation."""
        return any(body.get(name) for name in self.server_state)

    def counted_tools(self, body: Mapping[str, Any]) -> list[Any]:
        """The tools of a request, and its instructions as one more tool, to be counted with the messages.

        Instructions beside the messages are counted as a tool: as a message they would come back from the archive as
        one, and the provider refuses that. The tool also identifies the format of a list of plain text messages.
        """
        tools = body.get("tools")
        listed = list(tools) if isinstance(tools, (list, tuple)) else []
        if self.system is not None:
            field, shape = self.system
            listed.append({**shape, "description": _system_text(body.get(field))})
        return listed


def is_too_long(status: int, body: object) -> bool:
    """Whether a provider refused a request because of its size."""
    return isinstance(error_for_status(status, body, ""), TokenLimitExceeded)


def window_in_refusal(refusal: str) -> int | None:
    """The context window that a provider names in an error, in its tokens."""
    found = _WINDOW.search(refusal)
    return int(found[1].replace(",", "")) if found else None


def _field(value: Any, name: str) -> Any:
    """A field of a JSON object, or of an object of a client library."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _system_text(system: Any) -> str:
    """A system prompt, which is text or a list of blocks, as text."""
    if isinstance(system, list):
        return "\n".join(str(as_mapping(block).get("text", "")) for block in system)
    return system if isinstance(system, str) else ""


def _chat_usage(answer: Any) -> Any:
    """The usage of a completion, or of the last chunk of a stream."""
    return _field(answer, "usage")


def _responses_usage(answer: Any) -> Any:
    """The usage of a response, or of the event that ends a stream."""
    response = _field(answer, "response") or answer
    kinds = {_field(item, "type") for item in _field(response, "output") or ()}
    return _field(response, "usage") if kinds <= _ONE_PASS else None


def _messages_usage(answer: Any) -> Any:
    """The usage of a message, or of the event that starts a stream."""
    usage = _field(_field(answer, "message") or answer, "usage")
    # A server tool makes the model read several times, and the event that ends a stream also counts the response.
    if _field(usage, "server_tool_use") or _field(answer, "type") not in ("message", "message_start"):
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
    server_state=("previous_response_id", "conversation"),
)
MESSAGES = Endpoint(
    "anthropic",
    "/v1/messages",
    "messages",
    ("max_tokens",),
    _messages_usage,
    system=("system", {"name": "system", "input_schema": {}}),
    server_state=("thread",),
)
