"""smolagents: a model that keeps the conversations of its agents inside their window.

Owns: `CompactModel`. Must never: change an agent's memory, or hide anything of the model it stands for.

    agent = ToolCallingAgent(tools, model=CompactModel(model, manager))

An agent writes its whole memory into messages for each step. So this sees all that a model is sent, with the tools, and
the memory stays complete; what edited `agent.memory` would lose steps, and miss plans and final answers.

Conversations: agents that share the model are kept apart by how they begin; plans are made in `{session}.planning`.
Pinning: `raw={"protected": True}` on a message, set by a step's `to_messages`; or the manager's `protect`.
An agent that is saved names the model behind this one: whoever loads it wraps it again.
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
    """A model in front of another one. What it does not do itself, the other one does."""

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
        """The model's answer to what is left of the messages."""
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
        if name == "_model":  # a copy that is being made has none yet
            raise AttributeError(name)
        theirs = getattr(self._model, name)
        return self._stream if name == "generate_stream" else theirs  # an agent asks whether its model can stream

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The other one's class, by whose name an agent is saved and loaded."""
        return type(self._model)

    def _send(
        self,
        messages: list[Any],
        stop_sequences: Sequence[str] | None = None,
        response_format: Any = None,
        tools_to_call_from: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tuple[str, list[Any]]:
        given = list(group_messages(messages))
        name = resolve_session_id(self._session_id, messages)
        settings = {**kwargs, **getattr(self._model, "kwargs", {})}
        planning = "<end_plan>" in (stop_sequences or ())
        session_id = self._gate.apart(f"{name}.planning" if planning else name, given)
        sent = self._gate.send(
            session_id,
            given,
            tools=[get_tool_json_schema(tool) for tool in tools_to_call_from or ()],
            model=getattr(self._model, "model_id", None),
            reserve_output=next((settings[key] for key in _LIMITS if isinstance(settings.get(key), int)), None),
        )
        return session_id, messages if sent is given else [each for unit in sent for each in (*unit.said, *unit.came)]
