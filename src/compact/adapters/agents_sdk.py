"""Adapter for the OpenAI Agents SDK: compacts before every model call of a run, and between runs.

Owns: `CompactFilter`; re-exports `CompactSession`. Must never: change a list of which the server keeps another part.

    compact = CompactFilter(manager, "chat")
    run_config = RunConfig(call_model_input_filter=compact)
    await Runner.run(agent, "Go on.", run_config=run_config, hooks=compact.hooks, session=session)

`hooks` report the provider's usage; without them token counts are not calibrated. Agents used as tools inherit the
filter of their caller, but no hooks: `as_tool(…, hooks=compact.hooks)`. To pin an item: `"meta": {"protected": True}`.

The SDK does not pass to a filter whether the server keeps the conversation (`conversation_id`,
`previous_response_id`). A list with an output without its call is such a part, and is not changed. The first request of
such a run has none and is treated as any list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

from .._engine.manager import CompactManager
from ._agents_session import CompactSession, call_ids
from ._extras import requires
from .session_gate import Gate, OnError, resolve_session_id

with requires("openai-agents>=0.21", "agents"):
    from agents import Agent, RunHooks, handoff
    from agents.run import CallModelData, ModelInputData
    from agents.tracing import get_current_trace

__all__ = ["CompactFilter", "CompactSession"]

_PENDING: ContextVar[list[tuple[Gate, str]]] = ContextVar("compact_pending")
"""The gate and session of the current request of this task; removed when its usage was reported."""


class CompactFilter:
    """For `RunConfig(call_model_input_filter=…)`; agents used as tools, and handoffs, use the same one.

    `session_id` is text, or a function of the SDK's `CallModelData`, which returns None to send a request
    unchanged (default: the `session_id` of the run's context, attribute or key; else the trace's group; else the trace,
    so that every run is another session). `model` is for runs whose `RunConfig` names another model than the agent.
    """

    def __init__(
        self,
        manager: CompactManager,
        session_id: str | Callable[[CallModelData[Any]], str | None] | None = None,
        on_error: OnError = "unchanged",
        model: str | None = None,
    ) -> None:
        self.hooks: RunHooks[Any] = _Hooks()
        """For `Runner.run(hooks=…)`. Your own hooks may call its `on_llm_end`."""
        self._gate = Gate(manager, on_error)
        self._session_id, self._model = session_id, model
        self._default_name = f"agents-{uuid4().hex[:12]}"

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """The input for the model; the run keeps the whole list."""
        _PENDING.set([])
        given, name = data.model_data, self._name(data)
        if name is None:
            return given
        try:
            outputs = call_ids(given.input, outputs=True)
            if outputs and outputs[-1] not in call_ids(given.input):
                return given
            sent = await self._send(name, given, data.agent)
        except Exception as error:
            sent = self._gate.handle_failure(name, given.input, error)
        return ModelInputData(input=list(sent), instructions=given.instructions)

    async def _send(self, name: str, given: ModelInputData, agent: Agent[Any]) -> Any:
        session_id = self._gate.session_for(name, given.input, agent.name)
        model = self._model or getattr(agent.model, "model", agent.model)
        _PENDING.set([(self._gate, session_id)])
        return await self._gate.asend(
            session_id,
            given.input,
            # As a message the instructions would be archived with the items, and be duplicated after a restore.
            tools=[*_tools(agent), *filter(None, [given.instructions])],
            model=model if isinstance(model, str) else None,
            reserve_output=agent.model_settings.max_tokens,
        )

    def _name(self, data: CallModelData[Any]) -> str | None:
        if self._session_id is not None:
            return resolve_session_id(self._session_id, data)
        context, trace = data.context, get_current_trace()
        names = (
            context.get("session_id") if isinstance(context, Mapping) else getattr(context, "session_id", None),
            getattr(trace, "group_id", None),
            getattr(trace, "trace_id", None),
        )
        return next((name for name in names if isinstance(name, str) and name not in ("", "no-op")), self._default_name)


class _Hooks(RunHooks[Any]):
    """Reports the usage of a request. The SDK calls it in the task that called the filter, or in a child task."""

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        if pending := _PENDING.get([]):
            gate, session_id = pending.pop()
            gate.observe(session_id, response.usage)


def _tools(agent: Agent[Any]) -> Iterator[dict[str, Any]]:
    """The tools and handoffs in the provider's form; those of MCP servers are not known here."""
    for tool in agent.tools:
        fields = {
            "description": getattr(tool, "description", ""),
            "parameters": getattr(tool, "params_json_schema", {}),
        }
        yield {"type": "function", "name": tool.name, **fields}
    for each in agent.handoffs:
        to = handoff(each) if isinstance(each, Agent) else each
        fields = {"description": to.tool_description, "parameters": to.input_json_schema}
        yield {"type": "function", "name": to.tool_name, **fields}
