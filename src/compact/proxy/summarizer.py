"""Summaries by the upstream itself: asked in the API and with the credential of the request that needs one.

Owns: `Caller` and `CALLER` (for whom a summary is asked), what is asked of each of the three APIs, and reading what
comes back. Must never: use one caller's credential for another, try again what failed, or put a server's own words into
an error.

A server may refuse a field that is not the point of a request (a temperature, a seed, the older name of a limit). Then
the same is asked without it, which costs nothing, and that is remembered for the model.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import httpcore

from .._summary.request import Ask
from ..errors import ModelUnavailable, SummaryTimeout, TokenLimitExceeded
from ..summarizers import Summarizer, Written
from ..summarizers import anthropic as _anthropic
from ..summarizers import openai as _openai
from ..summarizers.provider_calls import (
    accept_reply,
    check_reply,
    error_for_status,
    make_written,
    mark_unpaid,
    parse_retry_after,
    unreadable_answer,
)
from .upstream import Headers

__all__ = ["CALLER", "Caller", "upstream_summarizer"]

Send = Callable[[str, Headers, Mapping[str, Any], float], Awaitable[tuple[int, Headers, bytes]]]
"""Sends JSON to a path of the upstream: path, headers, body, seconds. Gives status, headers and body of the answer."""

_KEY = "the key that the client sends"
_LEARNED = 1_000
"""Models of which is remembered what they refuse; clients name models, so there is a limit."""
_NEWER = {"max_tokens": "max_completion_tokens"}


@dataclass(frozen=True, slots=True)
class Caller:
    """A request for which a summary may be needed."""

    endpoint: str
    """"openai-chat", "openai-responses" or "anthropic"."""
    path: str
    """Where it goes at the upstream, with its query: some providers name a model or a version there."""
    headers: Headers = field(repr=False)
    """Who asks, and for which version of the API; nothing else."""
    model: str


CALLER: ContextVar[Caller] = ContextVar("compact_proxy_caller")
"""The request that is being served. Tasks inherit it, so that a fold in the background asks for its own request."""


def upstream_summarizer(send: Send, model: str, *, timeout: float = 60.0, official: bool = False) -> Summarizer:
    """A summarizer that asks the upstream; `model` is "same" for that of the request itself.

    `official` is whether the upstream is OpenAI's own service, which has rules that depend on the model.
    """
    refused: dict[str, frozenset[str]] = {}

    async def write(ask: Ask) -> Written:
        caller = CALLER.get(None)
        if caller is None:
            raise ModelUnavailable("there is no request with whose key a summary could be asked for", retryable=False)
        api = _APIS[caller.endpoint]
        ask = replace(ask, model=caller.model if model == "same" else model)
        body = api.request(ask, official)
        while True:
            sent = _without(body, refused.get(body["model"], frozenset()), api)
            status, headers, content = await _answer(send(caller.path, caller.headers, sent, timeout), timeout)
            reply = _parsed(content)
            if 200 <= status < 300:
                try:
                    if isinstance(reply, str) and reply.startswith("{"):
                        raise ValueError("half an answer, not a page")
                    return api.read(reply, ask)
                except (AttributeError, LookupError, TypeError, ValueError) as error:
                    raise unreadable_answer(error) from None
            failure = error_for_status(status, reply, _KEY, parse_retry_after(headers))
            name = None if isinstance(failure, TokenLimitExceeded) else _named(status, reply, api.spared, sent)
            if name is None:
                raise failure
            if len(refused) >= _LEARNED:
                refused.clear()
            refused[body["model"]] = refused.get(body["model"], frozenset()) | {name}

    return write


async def _answer(
    sending: Awaitable[tuple[int, Headers, bytes]], timeout: float
) -> tuple[int, Mapping[str, str], bytes]:
    try:
        async with asyncio.timeout(timeout):
            status, headers, content = await sending
    except (TimeoutError, httpcore.TimeoutException):
        raise SummaryTimeout(f"no answer within {timeout:g} s; raise summary.timeout or use a faster model") from None
    except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
        cause = type(error).__name__
        failure = ModelUnavailable(f"the connection failed ({cause}); check proxy.upstream and the network")
        raise (mark_unpaid(failure) if cause.startswith("Connect") else failure) from None
    return status, {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}, content


class _Fields(dict[str, Any]):
    """A JSON object whose fields are read like those of a client's objects: what is missing is None."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


def _parsed(content: bytes) -> Any:
    """An answer as a value; as text when it is no JSON."""
    try:
        return json.loads(content, object_hook=_Fields)
    except (ValueError, RecursionError):
        return content.decode("utf-8", "replace")


# -- fields that a server refuses ------------------------------------------------------------------------------------


def _named(status: int, reply: Any, spared: tuple[str, ...], sent: Mapping[str, Any]) -> str | None:
    """The field of ours that a refusal names, if the request makes sense without it."""
    if status not in (400, 422) or not isinstance(reply, Mapping):
        return None
    said = " ".join(filter(None, _said(reply)))
    return next((name for name in spared if name in sent and re.search(rf"\b{name}\b", said)), None)


def _said(reply: Mapping[str, Any]) -> Iterator[str | None]:
    """Where a refusal names the field: as `param`, as the place of a problem, or in a sentence."""
    error = reply.get("error", reply)
    if isinstance(error, Mapping):
        param, message = error.get("param"), error.get("message")
        yield param if isinstance(param, str) else message if isinstance(message, str) else None
    problems = reply.get("detail")
    for problem in problems if isinstance(problems, list) else ():
        yield " ".join(map(str, problem.get("loc") or ())) if isinstance(problem, Mapping) else None


def _without(body: Mapping[str, Any], names: frozenset[str], api: _Api) -> dict[str, Any]:
    """A request without these fields; a limit goes by its newer name before it goes."""
    kept = dict(body)
    for name in api.spared:
        if name in names and name in kept:
            value = kept.pop(name)
            if name in _NEWER:
                kept[_NEWER[name]] = value
    return kept


# -- the three APIs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Api:
    request: Callable[[Ask, bool], dict[str, Any]]
    read: Callable[[Any, Ask], Written]
    spared: tuple[str, ...]
    """Fields without which a request still makes sense; the older name of one first."""


def _chat_request(ask: Ask, official: bool) -> dict[str, Any]:
    return _openai.build_request(ask, official=official)


def _responses_request(ask: Ask, official: bool) -> dict[str, Any]:
    """The same as for a chat, in the other form; there is no seed, and the server need not keep it."""
    chat = _openai.build_request(ask, official=official)
    system, user = chat["messages"]
    body = {"model": chat["model"], "instructions": system["content"], "input": [user], "store": False}
    body["max_output_tokens"] = ask.max_tokens
    if "temperature" in chat:
        body["temperature"] = chat["temperature"]
    if "reasoning_effort" in chat:
        body["reasoning"] = {"effort": chat["reasoning_effort"]}
    return body


def _read_response(reply: Any, ask: Ask) -> Written:
    check_reply(reply, _KEY)
    unfinished = reply.incomplete_details.reason if reply.incomplete_details else None
    if not reply.output and not unfinished:
        raise ModelUnavailable("the server answered without output")
    parts = [part for item in reply.output or () if item.type == "message" for part in item.content or ()]
    text = "".join(part.text for part in parts if part.type == "output_text")
    asked, answered = (reply.usage.input_tokens, reply.usage.output_tokens) if reply.usage else (None, None)
    refused = unfinished == "content_filter" or any(part.type == "refusal" for part in parts)
    return accept_reply(
        make_written(text, asked, answered, reply.model), ask, refused=refused, cut_off=bool(unfinished)
    )


def _messages_request(ask: Ask, official: bool) -> dict[str, Any]:
    arguments = _anthropic.build_request(ask)
    beside: dict[str, Any] = arguments.pop("extra_body", {})
    return arguments | beside


_APIS: Mapping[str, _Api] = {
    "openai-chat": _Api(
        _chat_request,
        partial(_openai.read_reply, key=_KEY),
        ("temperature", "seed", "max_tokens", "max_completion_tokens", "reasoning_effort"),
    ),
    "openai-responses": _Api(
        _responses_request, _read_response, ("temperature", "max_output_tokens", "reasoning", "store")
    ),
    "anthropic": _Api(_messages_request, partial(_anthropic.read_reply, key=_KEY), ("temperature",)),
}
