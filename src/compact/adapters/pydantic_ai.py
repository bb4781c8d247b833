"""Adapter for Pydantic AI: `Agent(model, capabilities=[CompactCapability(manager)])`.

Owns: `CompactCapability`. Must never: change a message of the agent in place.

To pin a message: `{"protected": True}` as `metadata` of the message, of a `TextContent`, or of a tool's `ToolReturn`.
(The framework drops the metadata of a request that it merges with another one, but not the other two.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .._engine.manager import CompactManager
from ..config import window_of
from ._bridge import Bridge
from ._extras import requires
from .session_gate import Gate, OnError, resolve_session_id

with requires("pydantic-ai-slim>=2.62", "pydantic-ai"):
    from opentelemetry.trace import NoOpTracer
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelRequest, SystemPromptPart

    from ._pydantic_ai_messages import read, write

__all__ = ["CompactCapability"]

_FAKES = ("function", "test")
"""The framework's models for tests: their usage is a guess, and their names are no models."""


@dataclass
class CompactCapability(AbstractCapability[Any]):
    """Keeps the requests of an agent inside the window; with `persistent=True` its stored history too."""

    manager: CompactManager
    session_id: str | Callable[[Any], str] | None = None
    """A name, or a function of the `RunContext` (default: the conversation's id)."""
    persistent: bool = False
    """Whether the compacted list replaces the stored history."""
    on_error: OnError = "unchanged"
    _gate: Gate = field(init=False, repr=False, compare=False)
    _session: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._gate = Gate(self.manager, self.on_error, Bridge(read, write))

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """None: a manager cannot be serialized in an agent's specification."""
        return None

    async def for_run(self, ctx: Any) -> CompactCapability:
        """A copy for each run, with its session: a stored history has another beginning after a compaction."""
        return copy.copy(self)

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Compact the request."""
        parameters, messages = request_context.model_request_parameters, request_context.messages
        name = self._name(ctx)
        self._session = self._session or self._gate.session_for(name, messages, getattr(ctx.agent, "name", None) or "")
        # Instructions are in no message, and are sent first.
        head = [ModelRequest([SystemPromptPart(part.content) for part in parameters.instruction_parts or ()])]
        messages_in = [*(head if head[0].parts else ()), *messages]
        shown = [t for t in parameters.function_tools if not t.defer_loading or t.name in ctx.discovered_tool_names]
        sent = await self._gate.asend(
            self._session,
            messages_in,
            tools=[_tool(tool) for tool in (*shown, *parameters.output_tools)],
            model=_model(request_context.model),
            reserve_output=(request_context.model_settings or {}).get("max_tokens"),
        )
        if sent is not messages_in:
            # Changes that another capability made for this request only are not the agent's history.
            stored = self.persistent and [*map(id, messages)] == [*map(id, ctx.messages)]
            request_context.messages = [message for message in sent if message is not head[0]]
            if stored:
                ctx.messages[:] = request_context.messages
                if self._session == name:
                    self._gate.add_beginning(name, ctx.messages)
        if not isinstance(ctx.tracer, NoOpTracer):  # the current span is that of the request
            self._gate.mark_span(self._session)
        return request_context

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        """Report the provider's usage."""
        if request_context.model.system not in _FAKES:
            self._gate.observe(self._session, response.usage.input_tokens)
        return response

    def _name(self, ctx: Any) -> str:
        return resolve_session_id(self.session_id, ctx) or ctx.conversation_id or ctx.run_id or "pydantic-ai"


def _model(model: Any) -> str | None:
    """The name of the model; of several fallback models, the one with the smallest window."""
    names = [each.model_name for each in getattr(model, "models", (model,))]
    return min((name for name in names if name.partition(":")[0] not in _FAKES), key=window_of, default=None)


def _tool(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters_json_schema}
    return {"type": "function", "function": function}
