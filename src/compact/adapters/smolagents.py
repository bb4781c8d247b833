"""smolagents: a model that keeps the conversations of its agents inside their window.

Owns: `CompactModel`. Must never: change an agent's memory, or hide anything of the model it stands for.

    agent = ToolCallingAgent(tools, model=CompactModel(model, manager))

An agent writes its whole memory into messages for each step. So this sees all that a model is sent, with the tools, and
the memory stays complete; what edited `agent.memory` would lose steps, and miss plans and final answers.

A step is one unit: its calls and what came of them are messages of their own, and only their text says more. What came
of parallel calls is one text, which stands in the result of the first.
Conversations: agents that share the model are kept apart by how they begin; plans are made in `{session}.planning`.
Pinning: `raw={"protected": True}` on a message, set by a step's `to_messages`; or the manager's `protect`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from .._manager import CompactManager
from ._bridge import Bridge
from ._extras import requires
from ._gate import Gate, OnError

with requires("smolagents>=1.24", "smolagents"):
    from smolagents.models import ChatMessage, MessageRole, get_tool_json_schema
    from smolagents.utils import encode_image_base64, make_image_url

__all__ = ["CompactModel"]

_STEP = re.compile("(a?c)(i*r+)")
_LETTERS = {"assistant": "a", "tool-call": "c", "tool-response": "r"}
_SENT_AS = {"tool-call": "assistant", "tool-response": "user"}
_LIMITS = ("max_tokens", "max_completion_tokens", "max_new_tokens")


class _Unit(NamedTuple):
    """Messages that stay together: what was said and called, and what came of it; or a message alone."""

    said: Sequence[Any]
    came: Sequence[Any] = ()


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
        self._gate = Gate(manager, on_error, Bridge(_read, _write))

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

    def _send(
        self,
        messages: list[Any],
        stop_sequences: Sequence[str] | None = None,
        response_format: Any = None,
        tools_to_call_from: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tuple[str, list[Any]]:
        units = list(_units(messages))
        name = self._session_id(messages) if callable(self._session_id) else self._session_id
        settings = {**kwargs, **getattr(self._model, "kwargs", {})}
        planning = "<end_plan>" in (stop_sequences or ())
        session_id = self._gate.apart(f"{name}.planning" if planning else name, units)
        sent = self._gate.send(
            session_id,
            units,
            tools=[get_tool_json_schema(tool) for tool in tools_to_call_from or ()],
            model=getattr(self._model, "model_id", None),
            reserve_output=next((settings[key] for key in _LIMITS if isinstance(settings.get(key), int)), None),
        )
        return session_id, messages if sent is units else [each for unit in sent for each in (*unit.said, *unit.came)]


def _units(messages: Sequence[Any]) -> Iterator[_Unit]:
    roles, at = "".join(map(_letter, messages)), 0
    while at < len(messages):
        # A call whose result never came, or a result without a call, is a message like any other.
        step = _STEP.match(roles, at)
        middle, end = (step.end(1), step.end()) if step else (at + 1, at + 1)
        yield _Unit(messages[at:middle], messages[middle:end])
        at = end


def _letter(message: Any) -> str:
    role, content = _get(message, "role"), _get(message, "content")
    pictures = role == "user" and isinstance(content, list) and all(part["type"] == "image" for part in content)
    return "i" if pictures else _LETTERS.get(role, " ")


def _get(message: Any, field: str) -> Any:
    return message.get(field) if isinstance(message, Mapping) else getattr(message, field, None)


def _read(unit: _Unit) -> Iterator[dict[str, Any]]:
    """A step as an assistant message with calls and a result for each; a message alone as what it is sent as."""
    raws = [_get(message, "raw") for message in (*unit.said, *unit.came)]
    pinned = any(isinstance(raw, Mapping) and raw.get("protected") is True for raw in raws)
    role, said = MessageRole(_get(unit.said[-1], "role")).value, _parts(unit.said)
    calls = list(_calls(said[-1]["text"])) if unit.came else []
    wire = {"role": _SENT_AS.get(role, role), "content": said}
    yield wire | ({"tool_calls": calls} if calls else {}) | ({"meta": {"protected": True}} if pinned else {})
    for number, call in enumerate(calls):
        yield {"role": "tool", "tool_call_id": call["id"], "content": "" if number else _parts(unit.came)}


def _parts(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """What messages contain, as a provider gets it."""
    contents = (_get(message, "content") or "" for message in messages)
    parts = [part for each in contents for part in (each if isinstance(each, list) else [_text(each)])]
    return [_picture(part["image"]) if part["type"] == "image" else part for part in parts]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _picture(image: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": make_image_url(encode_image_base64(image))}}


def _calls(text: str) -> Iterator[dict[str, Any]]:
    """The calls that a message lists; one without a name when they cannot be read."""
    listed: Any = None
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        listed = ast.literal_eval(text.partition("\n")[2])
    for call in listed or [{}]:
        body = call.get("function", {})
        # Named values tell which file was touched; code stands in the text anyway.
        arguments = json.dumps(body["arguments"]) if isinstance(body.get("arguments"), dict) else ""
        function = {"name": str(body.get("name", "tools")), "arguments": arguments}
        yield {"id": str(call.get("id", "call")), "type": "function", "function": function}


def _write(wires: Sequence[Any], unit: _Unit | None) -> _Unit:
    if unit is None:
        return _Unit([_new(wire) for wire in wires])
    known, (said, came) = list(_read(unit)), unit
    parts = {wire.part: wire for wire in wires}
    result = parts.get(1)
    return _Unit(said if 0 in parts else (), () if result is None else came if result == known[1] else [_new(result)])


def _new(wire: Mapping[str, Any]) -> Any:
    content = wire["content"]
    role = MessageRole.TOOL_RESPONSE if wire["role"] == "tool" else MessageRole(wire["role"])
    return ChatMessage(role, content if isinstance(content, list) else [_text(content)])
