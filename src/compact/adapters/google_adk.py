"""Inside Google ADK: what an agent sends to its model is compacted, and the session's events stay whole.

Owns: `CompactPlugin` (every agent of a runner) and `compact_callback` (one agent).
Must never: change an event, a content or a part.

- Sessions: the root agent's has the id of ADK's session. Other agents are shown the same events in another way, so
  theirs is `id.agent`, with the branch behind it if there is one. A child of `AgentTool` has an id of its own. ADK's
  ids are unique for one user only. If you choose them yourself, give a `session_id` that names the user, too:
  `lambda context: f"{context.user_id}.{context.session.id}"`.
- A content is pinned by `part_metadata={"protected": True}` on a part. Vertex AI refuses that field; with it, use
  `CompactManager(protect=…)`.
- The model's span is open before the call only in ADK's telemetry schema 1 (`call_llm`), so it is marked only there.
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
"""A name, a function that gives one for a callback's context, or None for the id of ADK's session."""


class CompactPlugin(BasePlugin):
    """Compaction for every agent of a runner: `InMemoryRunner(agent, plugins=[CompactPlugin(manager)])`."""

    def __init__(self, manager: CompactManager, session_id: SessionId = None, on_error: OnError = "unchanged") -> None:
        super().__init__(name="compact")
        self._gate = Gate(manager, on_error, Bridge(read, write))
        self._session_id = session_id
        self._asked: deque[str] = deque(maxlen=1_000)

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Put into the request what is to be sent."""
        if llm_request.previous_interaction_id:
            return  # the server holds the conversation, and these are its newest contents only
        if any(isinstance(content, CompactContent) for content in llm_request.contents):
            return  # it was here before: a plugin and a callback are both at work
        session_id, config = self._session_of(callback_context), llm_request.config
        given = identify_parts(llm_request.contents, config.system_instruction)
        asked = {"model": llm_request.model, "reserve_output": config.max_output_tokens}
        outgoing = await self._gate.asend(session_id, given, tools=_tools(config.tools), **asked)
        if outgoing is not given:
            llm_request.contents = request_contents(outgoing)
        if session_id not in self._asked:
            self._asked.append(session_id)
        if getattr(get_current_span(), "name", "") == "call_llm":
            self._gate.mark_span(session_id)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Report what the provider counted: once, though one answer may come as several responses."""
        usage, session_id = llm_response.usage_metadata, self._session_of(callback_context)
        if usage and usage.prompt_token_count and not llm_response.partial:
            with suppress(ValueError):  # it is no longer waited for
                self._asked.remove(session_id)
                self._gate.observe(session_id, usage.prompt_token_count)

    def _session_of(self, context: Any) -> str:
        call, name = context.get_invocation_context(), self._session_id
        if name is None:
            name = call.session.id
        else:
            begun = [event.content for event in call.session.events if event.content][:1]
            name = self._gate.apart(resolve_session_id(name, context), identify_parts(begun), call.agent.name)
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
    """Functions in the form that the meter knows; any other tool by its fields."""
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
