"""Adapter for LlamaIndex: a memory that keeps everything and returns a compacted view, and models that compact.

Owns: `CompactMemory` and `compacting`. Must never: lose a message of the chat store, or change the model it is given.

    memory = CompactMemory(manager, "session")
    agent = FunctionAgent(llm=compacting(llm, memory), tools=tools)
    await agent.run("…", memory=memory)

An agent keeps the steps of a run outside of its memory until the run ends, so a memory alone cannot keep a long run
inside the window. But everything that a model is sent passes one of its four `chat` methods, and there it is compacted.
A memory with such a model returns everything; without one it returns the compacted view. That is enough for a chat
engine, but what the engine adds, such as instructions and retrieved texts, is counted only with such a model.

A message is pinned by `additional_kwargs={"protected": True}`; the mark is removed before sending.
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
"""The session of a model's calls: a name, or a function of the messages. None is the instrument tag `session_id` if it
is set, else a generated name."""


class CompactMemory(BaseChatStoreMemory):
    """A memory in any chat store, under the session's name, with a compacted view of it."""

    whole: bool = False
    """Whether `get` returns everything, because a model of `compacting` compacts it together with the run's steps."""
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
        """A memory that begins with a history. The settings are those of the class; `llm` is not used."""
        memory = cls(**settings)
        if chat_history:
            memory.set(list(chat_history))
        return memory

    @classmethod
    def from_dict(cls, data: dict[str, Any], **settings: Any) -> CompactMemory:
        """Load the result of `to_dict`; a manager cannot be serialized, so pass it: `from_dict(data, manager=…)`."""
        return cls(**{**data, "chat_store": load_chat_store(dict(data["chat_store"])), **settings})

    def get(self, input: str | None = None, **kwargs: Any) -> list[Any]:
        """The messages to send: everything, or the compacted view."""
        messages = list(self.get_all())
        if self._returns_all(messages):
            return messages
        return outgoing(messages, self.gate.send(self.chat_store_key, messages))

    async def aget(self, input: str | None = None, **kwargs: Any) -> list[Any]:
        """`get` for async applications."""
        messages = list(await self.aget_all())
        if self._returns_all(messages):
            return messages
        return outgoing(messages, await self.gate.asend(self.chat_store_key, messages))

    @property
    def gate(self) -> Gate:
        """The gate to the manager; raises without a manager."""
        if self._gate is None:
            raise ConfigError("this memory was read back without its manager: CompactMemory.from_dict(data, manager=…)")
        return self._gate

    def _returns_all(self, messages: Sequence[Any]) -> bool:
        """Whether these messages are returned uncompacted."""
        if messages and self.whole and self._gate:
            self._gate.add_beginning(self.chat_store_key, messages)  # separates this conversation from other calls
        return self.whole or not messages


def compacting(
    llm: Any,
    manager: CompactManager | CompactMemory,
    session_id: SessionId = None,
    on_error: OnError = "unchanged",
) -> Any:
    """A model with the same class and state that compacts what it is sent.

    With a `CompactMemory` instead of a manager, its session and its `on_error` apply.
    """
    if isinstance(manager, CompactMemory):
        gate, session_id, manager.whole = manager.gate, manager.chat_store_key, True
    else:
        gate = Gate(manager, on_error, _BRIDGE)
    base: Any = type(llm)
    default_name = f"llama-index-{uuid.uuid4().hex[:12]}"

    def open_call(self: Any, messages: Sequence[Any], kwargs: Mapping[str, Any]) -> _LlamaIndexCall:
        chosen = resolve_session_id(session_id, messages) or active_instrument_tags.get().get("session_id")
        name = gate.session_for(chosen or default_name, messages)
        return _LlamaIndexCall(gate, name, _with_class(base, self), messages, kwargs)

    def chat(self: Any, messages: Sequence[Any], **kwargs: Any) -> Any:
        call = open_call(self, messages, kwargs)
        response = call.llm.chat(call.send(), **kwargs)
        call.observe(usage_of(response))
        return response

    async def achat(self: Any, messages: Sequence[Any], **kwargs: Any) -> Any:
        call = open_call(self, messages, kwargs)
        response = await call.llm.achat(await call.asend(), **kwargs)
        call.observe(usage_of(response))
        return response

    def stream_chat(self: Any, messages: Sequence[Any], **kwargs: Any) -> Any:
        call = open_call(self, messages, kwargs)
        stream = call.llm.stream_chat(call.send(), **kwargs)

        def observed() -> Iterator[Any]:
            usage = None
            for response in stream:
                usage = usage_of(response) or usage
                yield response
            call.observe(usage)

        return observed()

    async def astream_chat(self: Any, messages: Sequence[Any], **kwargs: Any) -> Any:
        call = open_call(self, messages, kwargs)
        stream = await call.llm.astream_chat(await call.asend(), **kwargs)

        async def observed() -> AsyncIterator[Any]:
            usage = None
            async for response in stream:
                usage = usage_of(response) or usage
                yield response
            call.observe(usage)

        return observed()

    kind = type(base)(base.__name__, (base,), {"__module__": base.__module__, "__doc__": base.__doc__})
    for method in (chat, achat, stream_chat, astream_chat):
        setattr(kind, method.__name__, method)  # not in the class body, where each would get an additional span
    return _with_class(kind, llm)


def _with_class(kind: Any, llm: Any) -> Any:
    """A model of another class that shares the state."""
    model = object.__new__(kind)
    for part in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
        object.__setattr__(model, part, getattr(llm, part))
    return model


class _LlamaIndexCall:
    """One call of a model.

    The instructions are always one message at the head of the list, also when there are none: agents that hand over to
    each other may have some or none, and a compaction is recognized by positions too.
    """

    def __init__(self, gate: Gate, name: str, llm: Any, messages: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._gate, self._name, self.llm = gate, name, llm
        self._head = list(takewhile(lambda message: message.role in ("system", "developer"), messages))
        self._rest = list(messages[len(self._head) :])
        self._lead = ChatMessage(role="system", content="\n".join(message.content or "" for message in self._head))
        model = None
        with suppress(Exception):  # some integrations raise for an unknown model
            model = llm.metadata.model_name
        tools = kwargs.get("tools") or []
        limits = (kwargs.get("max_tokens"), kwargs.get("max_completion_tokens"), getattr(llm, "max_tokens", None))
        self._settings: dict[str, Any] = {
            "tools": [
                tool.metadata.to_openai_tool() if hasattr(tool, "metadata") else tool
                for tool in (tools if isinstance(tools, (list, tuple)) else [tools])
            ],
            "model": None if model == "unknown" else model,
            "reserve_output": next((limit for limit in limits if type(limit) is int and limit > 0), None),
        }

    def send(self) -> list[Any]:
        """The messages to send."""
        return self._outgoing(self._gate.send(self._name, [self._lead, *self._rest], **self._settings))

    async def asend(self) -> list[Any]:
        """`send` for async applications."""
        return self._outgoing(await self._gate.asend(self._name, [self._lead, *self._rest], **self._settings))

    def observe(self, usage: Any) -> None:
        """Report the provider's usage."""
        self._gate.observe(self._name, usage)

    def _outgoing(self, sent: Sequence[Any]) -> list[Any]:
        return [*self._head, *outgoing(self._rest, [message for message in sent if message is not self._lead])]
