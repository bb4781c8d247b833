"""Inside agent frameworks: one module for each, which imports its framework and nothing else.

Owns: `before_model_call`, the hook for hosts without a module of their own. Must never: import a framework.

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
    """What a plain hook gets: the conversation's name, and the messages on their way to the model."""

    session_id: str
    messages: Any


def before_model_call(manager: CompactManager, on_error: OnError = "unchanged") -> Callable[[Context], None]:
    """A hook that replaces `ctx.messages` by what is to be sent: `hooks={"before_model_call": …}`."""
    gate = Gate(manager, on_error)

    def hook(ctx: Context) -> None:
        ctx.messages = gate.send(ctx.session_id, ctx.messages)

    return hook
