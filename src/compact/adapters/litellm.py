"""Adapter for LiteLLM, as a library and as a proxy: compacts requests before they reach a deployment.

Owns: `CompactLogger`. Must never: change a request that is not a chat completion, or a caller's list.

    litellm.callbacks = [logger := CompactLogger(manager)]        # acompletion, Router.acompletion; or in the proxy
    litellm.completion(**logger.prepare(model=…, messages=…))     # sync calls, which no hook can change

Conversations: `litellm_session_id`, else `session_id` in the metadata, else `user`, else the user of the proxy's key;
under one name, lists that begin with another message are separate.
Pinning: `"meta": {"protected": True}` on a message, removed before it is sent.
One request may pass twice: through the proxy's hook, then through the deployment's, which also gets fallbacks. The call
id identifies it; it is checked again only for another model.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from .._conversation.message import as_mapping
from .._engine.manager import CompactManager, internals_of
from ._extras import requires
from .session_gate import Gate, OnError, resolve_session_id

with requires("litellm>=1.90", "litellm"):
    from litellm.integrations.custom_logger import CustomLogger

__all__ = ["CompactLogger"]

_MAX_PENDING = 256
"""Requests remembered until they are answered; one that is forgotten is checked twice, and its usage is not used."""

_in_compaction: ContextVar[bool] = ContextVar("compact_litellm_folding", default=False)
"""Whether a request comes from a compaction whose summarizer uses LiteLLM."""


class _SentRequest(NamedTuple):
    session_id: str
    model: str
    messages: Any


class _ChatMessage(dict[str, Any]):
    """A first message with the format of the list: LiteLLM's messages may have parts of Anthropic's format."""

    dialect = "openai-chat"


class CompactLogger(CustomLogger):
    """Keeps the conversations in LiteLLM inside their window."""

    def __init__(
        self,
        manager: CompactManager,
        session_id: str | Callable[[Mapping[str, Any]], str | None] | None = None,
        on_error: OnError = "unchanged",
    ) -> None:
        super().__init__()
        self._gate = Gate(manager, on_error)
        self._session_id = session_id
        self._sent: OrderedDict[str, _SentRequest] = OrderedDict()
        self._mutex = threading.Lock()

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: Any
    ) -> Any:
        """The proxy's hook: before its router checks whether the list fits into a deployment."""
        return await self._asend(self._gate_arguments(data, call_type, _deployed_model(data.get("model"))), data)

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """The library's hook: after the deployment was chosen."""
        return await self._asend(self._gate_arguments(kwargs, call_type, _model(kwargs)), kwargs)

    def prepare(self, **request: Any) -> dict[str, Any]:
        """The request to send with `litellm.completion(**request)` or `router.completion(**request)`."""
        request.setdefault("litellm_call_id", str(uuid.uuid4()))
        if asked := self._gate_arguments(request, "completion", _model(request)):
            with _compacting():
                return self._with_messages(request, asked, self._gate.send(**asked))
        return request

    def log_success_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Report the provider's usage."""
        with self._mutex:
            sent = self._sent.pop(str(kwargs.get("litellm_call_id")), None)
        # A stream without requested usage has LiteLLM's estimate, and a cached answer has an old count.
        options = (kwargs.get("optional_params") or {}).get("stream_options") or {}
        estimated = kwargs.get("stream") and not options.get("include_usage")
        if sent is not None and not estimated and not kwargs.get("cache_hit"):
            self._gate.observe(sent.session_id, getattr(response_obj, "usage", None))

    async def async_log_success_event(self, *event: Any, **named: Any) -> None:
        """`log_success_event` for async calls."""
        self.log_success_event(*event, **named)

    async def _asend(self, asked: dict[str, Any] | None, request: dict[str, Any]) -> dict[str, Any] | None:
        if asked is None:
            return None
        with _compacting():
            return self._with_messages(request, asked, await self._gate.asend(**asked))

    def _gate_arguments(self, request: Mapping[str, Any], call_type: Any, model: str | None) -> dict[str, Any] | None:
        """The arguments for the gate; None when this request is not a chat completion, or was checked already."""
        if getattr(call_type, "value", call_type) not in ("completion", "acompletion") or _in_compaction.get():
            return None
        messages, name = request.get("messages"), self._name(request)
        if messages is None:
            internals_of(self._gate.manager).report_unchanged(
                name, "because it was passed by its position: write messages=…"
            )
            return None
        sent = self._sent.get(_call_id(request))
        before = sent if sent is not None and sent.messages == messages else None
        if before is not None and before.model == _short(model):
            return None
        return {
            "session_id": before.session_id if before else self._gate.session_for(name, messages),
            "messages": [*map(_ChatMessage, map(as_mapping, messages[:1])), *messages[1:]],
            "tools": request.get("tools") or request.get("functions"),
            "model": model,
            "reserve_output": request.get("max_completion_tokens") or request.get("max_tokens"),
        }

    def _with_messages(self, request: dict[str, Any], asked: Mapping[str, Any], messages: Any) -> dict[str, Any]:
        messages = [request["messages"][0] if isinstance(each, _ChatMessage) else each for each in messages]
        with self._mutex:
            self._sent[_call_id(request)] = _SentRequest(asked["session_id"], _short(asked["model"]), messages)
            while len(self._sent) > _MAX_PENDING:
                self._sent.popitem(last=False)
        return {**request, "messages": messages}

    def _name(self, request: Mapping[str, Any]) -> str:
        if chosen := resolve_session_id(self._session_id, request):
            return chosen
        bodies = [body for key in ("metadata", "litellm_metadata") if isinstance(body := request.get(key), Mapping)]
        names = [request.get("litellm_session_id"), *(body.get("session_id") for body in bodies)]
        if any(body.get("litellm_session_id_generated") for body in bodies):
            names = []  # generated by the proxy for each request
        names += [request.get("user"), *(body.get("user_api_key_user_id") for body in bodies)]
        return str(next(filter(None, names), "litellm"))


@contextmanager
def _compacting() -> Iterator[None]:
    token = _in_compaction.set(True)
    try:
        yield
    finally:
        _in_compaction.reset(token)


def _call_id(request: Mapping[str, Any]) -> str:
    """The id of a request; all attempts share the one of its logging object."""
    return str(getattr(request.get("litellm_logging_obj"), "litellm_call_id", None) or request.get("litellm_call_id"))


def _short(model: str | None) -> str:
    """The name of a model without its provider."""
    return (model or "").rpartition("/")[2]


def _model(request: Mapping[str, Any]) -> str | None:
    """The name of the model; the base model of a deployment if it has one."""
    base = (request.get("model_info") or {}).get("base_model")
    return base or request.get("model") or getattr(request.get("litellm_logging_obj"), "model", None)


def _deployed_model(group: str | None) -> str | None:
    """The model of the deployment that a client of the proxy requests by name."""
    router = getattr(sys.modules.get("litellm.proxy.proxy_server"), "llm_router", None)
    found = router.get_model_list(model_name=group) if router is not None else None
    return _model({**found[0]["litellm_params"], "model_info": found[0].get("model_info")}) if found else group
