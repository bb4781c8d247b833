"""Adapter for smolagents: a model that keeps the conversations of its agents inside their window.

Owns: `CompactModel`. Must never: change an agent's memory, or hide anything of the wrapped model.

    agent = ToolCallingAgent(tools, model=CompactModel(model, manager))

An agent writes its whole memory into messages for each step. So this model sees everything that is sent, with the
tools, and the memory stays complete; editing `agent.memory` would lose steps, and miss plans and final answers.

Conversations: agents that share the model are separated by their first message; plans use `{session}.planning`.
Pinning: `raw={"protected": True}` on a message, set by a step's `to_messages`; or the manager's `protect`.
A saved agent names the wrapped model: wrap it again after loading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .._engine.manager import CompactManager
from ._bridge import Bridge
from ._extras import requires
from .session_gate import Gate, OnError, resolve_session_id

with requires("smolagents>=1.24", "smolagents"):
    from smolagents.models import get_tool_json_schema

    from ._smolagents_messages import group_messages, read, write

__all__ = ["CompactModel"]

_LIMITS = ("max_tokens", "max_completion_tokens", "max_new_tokens")


class CompactModel:
    """Wraps a model. All other attributes are those of the wrapped model."""

    def __init__(
        self,
        model: Any,
        manager: CompactManager,
        session_id: str | Callable[[Sequence[Any]], str] = "smolagents",
        on_error: OnError = "unchanged",
    ) -> None:
        self._model = model
        self._session_id = session_id
        self._gate = Gate(manager, on_error, Bridge(read, write))

    def generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> Any:
        """The model's answer to the compacted messages."""
        session_id, messages = self._send(messages, *args, **kwargs)
        answer = self._model.generate(messages, *args, **kwargs)
        if answer.token_usage is not None:
            self._gate.observe(session_id, answer.token_usage.input_tokens)
        return answer

    __call__ = generate

    def _stream(self, messages: list[Any], *args: Any, **kwargs: Any) -> Iterator[Any]:
        session_id, messages = self._send(messages, *args, **kwargs)
        reported = 0
        for delta in self._model.generate_stream(messages, *args, **kwargs):
            reported += delta.token_usage.input_tokens if delta.token_usage is not None else 0
            yield delta
        self._gate.observe(session_id, reported)

    def __getattr__(self, name: str) -> Any:
        if name == "_model":  # a copy under construction has none yet
            raise AttributeError(name)
        wrapped = getattr(self._model, name)  # raises where the model has none: an agent checks whether it can stream
        return self._stream if name == "generate_stream" else wrapped

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of the wrapped model, by whose name an agent is saved and loaded."""
        return type(self._model)

    def _send(
        self,
        messages: list[Any],
        stop_sequences: Sequence[str] | None = None,
        response_format: Any = None,
        tools_to_call_from: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tuple[str, list[Any]]:
        groups = list(group_messages(messages))
        name = resolve_session_id(self._session_id, messages)
        settings = {**kwargs, **getattr(self._model, "kwargs", {})}
        planning = "<end_plan>" in (stop_sequences or ())
        session_id = self._gate.session_for(f"{name}.planning" if planning else name, groups)
        sent = self._gate.send(
            session_id,
            groups,
            tools=[get_tool_json_schema(tool) for tool in tools_to_call_from or ()],
            model=getattr(self._model, "model_id", None),
            reserve_output=next((settings[key] for key in _LIMITS if isinstance(settings.get(key), int)), None),
        )
        if sent is groups:
            return session_id, messages
        return session_id, [message for group in sent for message in (*group.calls, *group.results)]
