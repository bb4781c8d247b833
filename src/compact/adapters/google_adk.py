"""Adapter for Google ADK: compacts what an agent sends to its model; the session's events stay complete.

Owns: `CompactPlugin` (every agent of a runner) and `compact_callback` (one agent).
Must never: change an event, a content or a part.

- Sessions: the root agent uses the id of ADK's session. Other agents get the same events in another form, so they use
  `id.agent`, followed by the branch if there is one. A child of `AgentTool` has another session id. ADK's ids are
  unique per user only. If you choose them yourself, give a `session_id` that also names the user:
  `lambda context: f"{context.user_id}.{context.session.id}"`.
- A content is pinned by `part_metadata={"protected": True}` on a part. Vertex AI refuses that field; with it, use
  `CompactManager(protect=…)`.
- Only with ADK's telemetry schema 1 (`call_llm`) the model's span is open before the call, so it is marked only there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from .._engine.manager import CompactManager
from ._bridge import Bridge
from ._extras import requires
from .session_gate import Gate, OnError, resolve_session_id

with requires("google-adk>=2.0", "adk"):
    from google.adk.plugins.base_plugin import BasePlugin
    from google.genai.types import Tool
    from opentelemetry.trace import get_current_span

    from ._google_adk_messages import CompactContent, identify_parts, json_fields, read, request_contents, write

__all__ = ["Callbacks", "CompactPlugin", "compact_callback"]

SessionId = str | Callable[[Any], str] | None
"""A name, a function of a callback's context, or None for the id of ADK's session."""


class CompactPlugin(BasePlugin):
    """Compaction for every agent of a runner: `InMemoryRunner(agent, plugins=[CompactPlugin(manager)])`."""

    def __init__(self, manager: CompactManager, session_id: SessionId = None, on_error: OnError = "unchanged") -> None:
        super().__init__(name="compact")
        self._gate = Gate(manager, on_error, Bridge(read, write))
        self._session_id = session_id
        self._pending: deque[str] = deque(maxlen=1_000)

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Compact the contents of the request."""
        if llm_request.previous_interaction_id:
            return  # the server keeps the conversation, and these are only the new contents
        if any(isinstance(content, CompactContent) for content in llm_request.contents):
            return  # already compacted: both a plugin and a callback are active
        session_id, config = self._session_of(callback_context), llm_request.config
        identified = identify_parts(llm_request.contents, config.system_instruction)
        settings = {"model": llm_request.model, "reserve_output": config.max_output_tokens}
        outgoing = await self._gate.asend(session_id, identified, tools=_tools(config.tools), **settings)
        if outgoing is not identified:
            llm_request.contents = request_contents(outgoing)
        if session_id not in self._pending:
            self._pending.append(session_id)
        if getattr(get_current_span(), "name", "") == "call_llm":
            self._gate.mark_span(session_id)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Report the provider's usage once, although one answer may come as several responses."""
        usage, session_id = llm_response.usage_metadata, self._session_of(callback_context)
        if usage and usage.prompt_token_count and not llm_response.partial:
            with suppress(ValueError):  # already reported
                self._pending.remove(session_id)
                self._gate.observe(session_id, usage.prompt_token_count)

    def _session_of(self, context: Any) -> str:
        call, name = context.get_invocation_context(), self._session_id
        if name is None:
            name = call.session.id
        else:
            first = [event.content for event in call.session.events if event.content][:1]
            name = self._gate.session_for(resolve_session_id(name, context), identify_parts(first), call.agent.name)
        nested = getattr(call.agent, "parent_agent", None) or "/" in (call.node_path or "")
        return ".".join(filter(None, (name, call.agent.name if nested else "", call.branch)))


class Callbacks(NamedTuple):
    """For one agent: `LlmAgent(…, before_model_callback=these.before, after_model_callback=these.after)`."""

    before: Callable[..., Any]
    after: Callable[..., Any]


def compact_callback(
    manager: CompactManager, session_id: SessionId = None, on_error: OnError = "unchanged"
) -> Callbacks:
    """Compaction for the agents that are given these callbacks."""
    plugin = CompactPlugin(manager, session_id, on_error)
    return Callbacks(plugin.before_model_callback, plugin.after_model_callback)


def _tools(tools: Iterable[Any] | None) -> list[Any]:
    """Functions in the form of the chat API, so that their tokens can be counted; any other tool by its fields."""
    found: list[Any] = []
    for tool in tools or ():
        fields: Any = {"tool": str(tool)}
        if isinstance(tool, Tool):
            fields = json_fields(tool)
        for each in fields.pop("function_declarations", ()):
            schema = each.pop("parameters_json_schema", None) or each.get("parameters") or {}
            found.append({"type": "function", "function": {**each, "parameters": schema}})
        found += [fields] if fields else []
    return found
