"""LlamaIndex: a memory that keeps everything and gives a compacted view, and models that compact what they are sent.

Owns: `CompactMemory` and `compacting`. Must never: lose a message of the chat store, or change the model it is given.

    memory = CompactMemory(manager, "session")
    agent = FunctionAgent(llm=compacting(llm, memory), tools=tools)
    await agent.run("…", memory=memory)

An agent keeps the steps of a run outside of its memory until the run ends, so no memory can keep a long run inside
the window. But all that a model is sent passes one of its four `chat` methods, and there it is compacted. A memory with
such a model hands out everything; without one it hands out the compacted view itself. That is enough for a chat engine,
but what the engine puts before it, such as instructions and what was found, is counted only with such a model.

A message is pinned by `additional_kwargs={"protected": True}`; the mark is taken off what is sent.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any

from .._engine.manager import CompactManager
from ..errors import ConfigError
from ._bridge import Bridge
from ._extras import requires
from .session_gate import Gate, OnError, resolve_session_id

with requires("llama-index-core>=0.14.16", "llama-index"):
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.instrumentation.dispatcher import active_instrument_tags
    from llama_index.core.memory.types import BaseChatStoreMemory
    from llama_index.core.storage.chat_store.loading import load_chat_store

    from ._llama_index_messages import outgoing, read, usage_of, write

__all__ = ["CompactMemory", "SessionId", "compacting"]

_BRIDGE = Bridge(read, write)

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
        return outgoing(messages, self.gate.send(self.chat_store_key, messages))

    async def aget(self, input: str | None = None, **kwargs: Any) -> list[Any]:
        """`get` for async hosts."""
        messages = list(await self.aget_all())
        if self._hands_out(messages):
            return messages
        return outgoing(messages, await self.gate.asend(self.chat_store_key, messages))

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
    base: Any = type(llm)
    own = f"llama-index-{uuid.uuid4().hex[:12]}"

    def asked(self: Any, messages: Sequence[Any], kwargs: Mapping[str, Any]) -> _LlamaIndexCall:
        chosen = resolve_session_id(session_id, messages) or active_instrument_tags.get().get("session_id")
        name = gate.apart(chosen or own, messages)
        return _LlamaIndexCall(gate, name, _as(base, self), messages, kwargs)

    def chat(self: Any, messages: Sequence[Any], **kwargs: Any) -> Any:
        call = asked(self, messages, kwargs)
        response = call.llm.chat(call.send(), **kwargs)
        call.observe(usage_of(response))
        return response

    async def achat(self: Any, messages: Sequence[Any], **kwargs: Any) -> Any:
        call = asked(self, messages, kwargs)
        response = await call.llm.achat(await call.asend(), **kwargs)
        call.observe(usage_of(response))
        return response

    def stream_chat(self: Any, messages: Sequence[Any], **kwargs: Any) -> Any:
        call = asked(self, messages, kwargs)
        stream = call.llm.stream_chat(call.send(), **kwargs)

        def following() -> Iterator[Any]:
            usage = None
            for response in stream:
                usage = usage_of(response) or usage
                yield response
            call.observe(usage)

        return following()

    async def astream_chat(self: Any, messages: Sequence[Any], **kwargs: Any) -> Any:
        call = asked(self, messages, kwargs)
        stream = await call.llm.astream_chat(await call.asend(), **kwargs)

        async def following() -> AsyncIterator[Any]:
            usage = None
            async for response in stream:
                usage = usage_of(response) or usage
                yield response
            call.observe(usage)

        return following()

    kind = type(base)(base.__name__, (base,), {"__module__": base.__module__, "__doc__": base.__doc__})
    for method in (chat, achat, stream_chat, astream_chat):
        setattr(kind, method.__name__, method)  # not in the body of the class, where each would get a span of its own
    return _as(kind, llm)


def _as(kind: Any, llm: Any) -> Any:
    """A model in another class, with the same state: what is set on one is set on the other."""
    made = object.__new__(kind)
    for part in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
        object.__setattr__(made, part, getattr(llm, part))
    return made


class _LlamaIndexCall:
    """One call of a model.

    The instructions stand as one message at the head of the list, also when there are none: agents that hand over to
    one another may have some or not, and a fold is known by the places of messages, too.
    """

    def __init__(self, gate: Gate, name: str, llm: Any, messages: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._gate, self._name, self.llm = gate, name, llm
        self._head = list(takewhile(lambda message: message.role in ("system", "developer"), messages))
        self._rest = list(messages[len(self._head) :])
        self._lead = ChatMessage(role="system", content="\n".join(message.content or "" for message in self._head))
        model = None
        with suppress(Exception):  # some integrations refuse to describe a model that they do not know
            model = llm.metadata.model_name
        tools = kwargs.get("tools") or []
        limits = (kwargs.get("max_tokens"), kwargs.get("max_completion_tokens"), getattr(llm, "max_tokens", None))
        self._size: dict[str, Any] = {
            "tools": [
                tool.metadata.to_openai_tool() if hasattr(tool, "metadata") else tool
                for tool in (tools if isinstance(tools, (list, tuple)) else [tools])
            ],
            "model": None if model == "unknown" else model,
            "reserve_output": next((limit for limit in limits if type(limit) is int and limit > 0), None),
        }

    def send(self) -> list[Any]:
        """What the model is sent."""
        return self._outgoing(self._gate.send(self._name, [self._lead, *self._rest], **self._size))

    async def asend(self) -> list[Any]:
        """`send` for async hosts."""
        return self._outgoing(await self._gate.asend(self._name, [self._lead, *self._rest], **self._size))

    def observe(self, usage: Any) -> None:
        """What the provider counted."""
        self._gate.observe(self._name, usage)

    def _outgoing(self, sent: Sequence[Any]) -> list[Any]:
        return [*self._head, *outgoing(self._rest, [message for message in sent if message is not self._lead])]
