"""LlamaIndex: a memory that keeps everything and gives a compacted view, and models that compact what they are sent.

Owns: `CompactMemory` and `compacting`. Must never: lose a message of the chat store, or change the model it is given.

    memory = CompactMemory(manager, "session")
    agent = FunctionAgent(llm=compacting(llm, memory), tools=tools)
    await agent.run("…", memory=memory)

An agent keeps the steps of a run outside of its memory until the run ends, so no memory can keep a long run inside
the window. But all that a model is sent passes one of its four `chat` methods, and there it is compacted. A memory with
such a model hands out everything; without one, as in a chat engine, it hands out the compacted view itself.

A message is pinned by `additional_kwargs={"protected": True}`; the mark is taken off what is sent.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import IOBase
from itertools import takewhile
from typing import Any

from .._manager import CompactManager
from ..errors import ConfigError
from ._bridge import Bridge
from ._extras import requires
from ._gate import Gate, OnError

with requires("llama-index-core>=0.14.16", "llama-index"):
    from llama_index.core.base.llms.types import ChatMessage, MessageRole
    from llama_index.core.bridge.pydantic import BaseModel, PrivateAttr
    from llama_index.core.instrumentation.dispatcher import active_instrument_tags
    from llama_index.core.memory.types import BaseChatStoreMemory
    from llama_index.core.storage.chat_store.loading import load_chat_store

__all__ = ["CompactMemory", "SessionId", "compacting"]

SessionId = str | Callable[[Sequence[Any]], str] | None
"""The session of a model's calls: a name, or a function of the messages. None is the instrument tag `session_id` where
one is set, else a name of the model's own."""


class CompactMemory(BaseChatStoreMemory):
    """Everything that was put, in any chat store under the session's name, and a compacted view of it."""

    whole: bool = False
    """Whether everything is handed out, because a model of `compacting` compacts it together with its own steps."""
    _gate: Gate | None = PrivateAttr(default=None)

    def __init__(
        self,
        manager: CompactManager | None = None,
        session_id: str | None = None,
        on_error: OnError = "unchanged",
        **fields: Any,
    ) -> None:
        key = session_id or fields.pop("chat_store_key", None) or uuid.uuid4().hex
        super().__init__(**{**fields, "chat_store_key": key})
        self._gate = None if manager is None else Gate(manager, on_error, _BRIDGE)

    @classmethod
    def class_name(cls) -> str:
        """The name in serialized data."""
        return "CompactMemory"

    @classmethod
    def from_defaults(cls, chat_history: list[Any] | None = None, llm: Any = None, **settings: Any) -> CompactMemory:
        """A memory that begins with a history. The settings are those of the class; a model is not needed."""
        memory = cls(**settings)
        if chat_history:
            memory.set(list(chat_history))
        return memory

    @classmethod
    def from_dict(cls, data: dict[str, Any], **settings: Any) -> CompactMemory:
        """What `to_dict` wrote; a manager cannot be written, so it is given again: `from_dict(data, manager=…)`."""
        return cls(**{**data, "chat_store": load_chat_store(dict(data["chat_store"])), **settings})

    def get(self, input: str | None = None, **kwargs: Any) -> list[Any]:
        """The messages to send: everything, or a compacted view of it."""
        messages = list(self.get_all())
        if self._hands_out(messages):
            return messages
        return _outgoing(messages, self.gate.send(self.chat_store_key, messages))

    async def aget(self, input: str | None = None, **kwargs: Any) -> list[Any]:
        """`get` for async hosts."""
        messages = list(await self.aget_all())
        if self._hands_out(messages):
            return messages
        return _outgoing(messages, await self.gate.asend(self.chat_store_key, messages))

    @property
    def gate(self) -> Gate:
        """Where this memory's lists pass."""
        if self._gate is None:
            raise ConfigError("this memory was read back without its manager: CompactMemory.from_dict(data, manager=…)")
        return self._gate

    def _hands_out(self, messages: Sequence[Any]) -> bool:
        """Whether these messages go out as they are."""
        if messages and self.whole and self._gate:
            self._gate.also(self.chat_store_key, messages)  # whatever else the model is asked is told apart from this
        return self.whole or not messages


def compacting(
    llm: Any,
    manager: CompactManager | CompactMemory,
    session_id: SessionId = None,
    on_error: OnError = "unchanged",
) -> Any:
    """This model, with the same class and the same state, except that it compacts what it is sent.

    With a `CompactMemory` in the manager's place, its session and its policy for errors hold.
    """
    if isinstance(manager, CompactMemory):
        gate, session_id, manager.whole = manager.gate, manager.chat_store_key, True
    else:
        gate = Gate(manager, on_error, _BRIDGE)
    own = f"llama-index-{uuid.uuid4().hex[:12]}"

    def opened(messages: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], str, list[Any], dict[str, Any]]:
        """The instructions, the session, the conversation behind the instructions, and what tells of its size."""
        head = list(takewhile(lambda message: message.role in ("system", "developer"), messages))
        rest = list(messages[len(head) :])
        named = session_id(messages) if callable(session_id) else session_id
        name = gate.apart(named or active_instrument_tags.get().get("session_id") or own, rest)
        return head, name, rest, _asked(llm, head, kwargs)

    def chat(self: Any, messages: Sequence[Any], **kwargs: Any) -> Any:
        head, name, rest, asked = opened(messages, kwargs)
        response = llm.chat(_outgoing(rest, gate.send(name, rest, **asked), head), **kwargs)
        gate.observe(name, _usage(response))
        return response

    async def achat(self: Any, messages: Sequence[Any], **kwargs: Any) -> Any:
        head, name, rest, asked = opened(messages, kwargs)
        response = await llm.achat(_outgoing(rest, await gate.asend(name, rest, **asked), head), **kwargs)
        gate.observe(name, _usage(response))
        return response

    def stream_chat(self: Any, messages: Sequence[Any], **kwargs: Any) -> Any:
        head, name, rest, asked = opened(messages, kwargs)
        stream = llm.stream_chat(_outgoing(rest, gate.send(name, rest, **asked), head), **kwargs)

        def following() -> Iterator[Any]:
            usage = None
            for response in stream:
                usage = _usage(response) or usage
                yield response
            gate.observe(name, usage)

        return following()

    async def astream_chat(self: Any, messages: Sequence[Any], **kwargs: Any) -> Any:
        head, name, rest, asked = opened(messages, kwargs)
        stream = await llm.astream_chat(_outgoing(rest, await gate.asend(name, rest, **asked), head), **kwargs)

        async def following() -> AsyncIterator[Any]:
            usage = None
            async for response in stream:
                usage = _usage(response) or usage
                yield response
            gate.observe(name, usage)

        return following()

    base: Any = type(llm)
    kind = type(base)(base.__name__, (base,), {"__module__": base.__module__, "__doc__": base.__doc__})
    for method in (chat, achat, stream_chat, astream_chat):
        setattr(kind, method.__name__, method)  # not in the body of the class, where each would get a span of its own
    made = object.__new__(kind)
    for part in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
        object.__setattr__(made, part, getattr(llm, part))  # shared: what is set on one is set on the other
    return made


def _asked(llm: Any, head: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What the gate wants to know: the tools, the model, and how much it may answer.

    Instructions are weighed as one more tool. As messages they would be part of what a fold is known by: an engine
    that writes what it found into them would pay at every call, and agents that hand over to one another would, too.
    """
    said = "\n".join(message.content or "" for message in head)
    given = kwargs.get("tools") or []
    tools = [
        tool.metadata.to_openai_tool() if hasattr(tool, "metadata") else tool
        for tool in (given if isinstance(given, (list, tuple)) else [given])
    ]
    model = None
    with suppress(Exception):  # some integrations refuse to describe a model that they do not know
        model = llm.metadata.model_name
    limits = (kwargs.get("max_tokens"), kwargs.get("max_completion_tokens"), getattr(llm, "max_tokens", None))
    return {
        "tools": [*tools, {"type": "function", "name": "instructions", "description": said}] if said else tools,
        "model": None if model == "unknown" else model,
        "reserve_output": next((limit for limit in limits if type(limit) is int and limit > 0), None),
    }


def _usage(response: Any) -> Any:
    """What the provider counted, where the integration tells: in the raw response, or beside it."""
    raw, beside = response.raw, response.additional_kwargs
    usage = raw.get("usage") if isinstance(raw, Mapping) else getattr(raw, "usage", None)
    return usage or (beside if beside.get("prompt_tokens") else None)


def _outgoing(given: Sequence[Any], sent: Sequence[Any], head: Sequence[Any] = ()) -> list[Any]:
    """What is sent, without our mark: integrations send whatever is in `additional_kwargs`, and providers refuse it.

    A summary of ours that comes first is in the user's role: some providers take no list that begins otherwise.
    """
    messages = [*head, *sent]
    if sent and sent[0] is not given[0] and sent[0].role == "assistant":
        messages[len(head)] = sent[0].model_copy(update={"role": MessageRole.USER})
    return [
        message.model_copy(update={"additional_kwargs": {k: v for k, v in extra.items() if k != "protected"}})
        if (extra := message.additional_kwargs).get("protected") is True
        else message
        for message in messages
    ]


_ROLES = {"chatbot": "assistant", "model": "assistant", "function": "tool"}
_PARTS = {"image": "image_url", "audio": "input_audio", "video": "file", "document": "file"}
_PARTS |= dict.fromkeys(("text", "cache", "thinking", "tool_call"), "text")


def _read(message: Any) -> list[dict[str, Any]]:
    """One chat message. Several blocks are parts with all their fields, in their order; calls and thoughts among them
    say nothing there, since they have fields of their own.
    """
    blocks, extra = message.blocks, dict(message.additional_kwargs)
    kinds = [block.block_type for block in blocks]
    role = _ROLES.get(message.role.value, message.role.value)
    wire: dict[str, Any] = {"role": role, "content": blocks[0].text if kinds == ["text"] else None}
    if blocks and kinds != ["text"]:
        dumps = [_plain(block) for block in blocks]
        wire["content"] = [
            {"type": _PARTS.get(each["block_type"], each["block_type"]), "text": "", **each} for each in dumps
        ]
    called = [block for block in blocks if block.block_type == "tool_call"] or extra.get("tool_calls")
    if called:
        wire["tool_calls"] = [_call(_plain(call)) for call in called]
    if "thinking" in kinds:
        wire["reasoning_content"] = "\n".join(block.content or "" for block in blocks if block.block_type == "thinking")
    usual, meta = {}, {}
    if role == "tool":
        usual["tool_call_id"] = wire["tool_call_id"] = str(extra.get("tool_call_id") or extra.get("name") or "")
    extra.pop("images", None)  # they are among the blocks
    if extra.get("protected") is True:
        meta["protected"] = extra.pop("protected")
    if extra != usual:
        meta["additional_kwargs"] = _plain(extra)
    if role != message.role.value:
        meta["role"] = message.role.value
    if meta:
        wire["meta"] = meta
    return [wire]


def _write(wires: Sequence[dict[str, Any]], message: Any) -> Any:
    wire, content = wires[0], wires[0].get("content")
    parts = [{"text": content}] if isinstance(content, str) else content or []
    blocks = [{"block_type": "text", **part} for part in parts]
    if message is not None:
        return message.model_copy(update={"blocks": ChatMessage(blocks=blocks).blocks})
    meta = wire.get("meta") or {}
    usual = {"tool_call_id": wire["tool_call_id"]} if wire["role"] == "tool" else {}
    extra = meta.get("additional_kwargs", usual) | ({"protected": True} if meta.get("protected") else {})
    return ChatMessage(role=meta.get("role") or wire["role"], blocks=blocks, additional_kwargs=extra)


_BRIDGE = Bridge(_read, _write)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call, in whichever shape an integration has it: a block's, or that of its provider."""
    body = call.get("function") or call
    name = str(body.get("name") or body.get("tool_name") or "")
    ids = (call.get(key) for key in ("call_id", "tool_call_id", "tool_id", "toolUseId", "id"))
    given: Any = next((body[key] for key in ("arguments", "tool_kwargs", "input", "args") if key in body), {})
    arguments = given if isinstance(given, str) else json.dumps(given)
    return {
        "id": str(next(filter(None, ids), name)),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, BaseModel):
        return {key: _plain(field) for key, field in value if field is not None}
    if isinstance(value, Mapping):
        return {str(key): _plain(field) for key, field in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, IOBase):
        value.seek(0)
        value = value.read()
    if isinstance(value, bytes):  # media, mostly in base64 already
        return (value if value.isascii() else base64.b64encode(value)).decode()
    return str(value)
