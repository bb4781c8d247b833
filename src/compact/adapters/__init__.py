"""Adapters for agent frameworks: one module each, which imports its framework and no other.

Owns: `before_model_call`, a hook for applications without a framework here. Must never: import a framework.

    agents_sdk     OpenAI Agents SDK         anthropic   the client of Anthropic
    langchain      LangChain and LangGraph   openai      the client of OpenAI
    pydantic_ai    Pydantic AI               litellm     LiteLLM, as a library and as a proxy
    google_adk     Google ADK                smolagents  smolagents
    llama_index    LlamaIndex
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .._engine.manager import CompactManager
from .session_gate import Gate, OnError

__all__ = ["OnError", "before_model_call"]


class Context(Protocol):
    """The argument of a plain hook: the session's id, and the messages that the model will be sent."""

    session_id: str
    messages: Any


def before_model_call(manager: CompactManager, on_error: OnError = "unchanged") -> Callable[[Context], None]:
    """A hook that replaces `ctx.messages` by the messages to send: `hooks={"before_model_call": …}`."""
    gate = Gate(manager, on_error)

    def hook(ctx: Context) -> None:
        ctx.messages = gate.send(ctx.session_id, ctx.messages)

    return hook
