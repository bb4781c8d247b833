"""Summaries written by the upstream, requested with the API and the credential of the request that needs one.

Owns: `Caller` and `CALLER` (the request that needs a summary), the summary request in each of the three APIs, and
parsing the response. Must never: use one caller's credential for another, retry after a failure, or put a server's
text into an error.

A server may refuse a field that is not essential (a temperature, a seed, the older name of a limit). The request is
then sent without it, which costs nothing, and the field is remembered for the model.
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

Send = Callable[[str, Headers, Mapping[str, Any], float], Awaitable[tuple[int, Headers, bytes]]]
"""Sends JSON to a path of the upstream: path, headers, body, seconds. Returns status, headers and body."""

_KEY = "the key that the client sends"
_LEARNED = 1_000
"""Models whose refused fields are remembered; clients name models, so there is a limit."""
_NEWER = {"max_tokens": "max_completion_tokens"}


@dataclass(frozen=True, slots=True)
class Caller:
    """A request that may need a summary."""

    endpoint: str
    """"openai-chat", "openai-responses" or "anthropic"."""
    path: str
    """Its path at the upstream, with its query: some providers name a model or a version there."""
    headers: Headers = field(repr=False)
    """Its credentials and API version; no other headers."""
    model: str


CALLER: ContextVar[Caller] = ContextVar("compact_proxy_caller")
"""The request that is being served. Tasks inherit it, so a compaction in the background uses its own request."""


def upstream_summarizer(send: Send, model: str, *, timeout: float = 60.0, official: bool = False) -> Summarizer:
    """A summarizer that asks the upstream; `model` "same" is the model of the request.

    `official` is whether the upstream is OpenAI's service, which has rules that depend on the model.
    """
    refused: dict[str, frozenset[str]] = {}

    async def write(ask: Ask) -> Written:
        caller = CALLER.get(None)
        if caller is None:
            raise ModelUnavailable("there is no request whose key could be used for a summary", retryable=False)
        api = _APIS[caller.endpoint]
        ask = replace(ask, model=caller.model if model == "same" else model)
        body = api.request(ask, official)
        while True:
            sent = _without_fields(body, refused.get(body["model"], frozenset()), api)
            status, headers, content = await _await_answer(send(caller.path, caller.headers, sent, timeout), timeout)
            reply = _parse_answer(content)
            if 200 <= status < 300:
                try:
                    if isinstance(reply, str) and reply.startswith("{"):
                        raise ValueError("truncated JSON, not a page")
                    return api.read(reply, ask)
                except (AttributeError, LookupError, TypeError, ValueError) as error:
                    raise unreadable_answer(error) from None
            failure = error_for_status(status, reply, _KEY, parse_retry_after(headers))
            name = (
                None if isinstance(failure, TokenLimitExceeded) else _refused_field(status, reply, api.optional, sent)
            )
            if name is None:
                raise failure
            if len(refused) >= _LEARNED:
                refused.clear()
            refused[body["model"]] = refused.get(body["model"], frozenset()) | {name}

    return write


async def _await_answer(
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
    """A JSON object whose fields are attributes, as in the objects of a client; a missing one is None."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


def _parse_answer(content: bytes) -> Any:
    """A response as a value; as text when it is not JSON."""
    try:
        return json.loads(content, object_hook=_Fields)
    except (ValueError, RecursionError):
        return content.decode("utf-8", "replace")


# -- fields that a server refuses ------------------------------------------------------------------------------------


def _refused_field(status: int, reply: Any, optional: tuple[str, ...], sent: Mapping[str, Any]) -> str | None:
    """The field that a refusal names, if the request can be sent without it."""
    if status not in (400, 422) or not isinstance(reply, Mapping):
        return None
    text = " ".join(filter(None, _refusal_texts(reply)))
    return next((name for name in optional if name in sent and re.search(rf"\b{name}\b", text)), None)


def _refusal_texts(reply: Mapping[str, Any]) -> Iterator[str | None]:
    """Texts in which a refusal may name a field: `param`, the location of a problem, or the message."""
    error = reply.get("error", reply)
    if isinstance(error, Mapping):
        param, message = error.get("param"), error.get("message")
        yield param if isinstance(param, str) else message if isinstance(message, str) else None
    problems = reply.get("detail")
    for problem in problems if isinstance(problems, list) else ():
        yield " ".join(map(str, problem.get("loc") or ())) if isinstance(problem, Mapping) else None


def _without_fields(body: Mapping[str, Any], names: frozenset[str], api: _Api) -> dict[str, Any]:
    """A request without these fields; a limit is first renamed to its newer name, then left out."""
    kept = dict(body)
    for name in api.optional:
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
    optional: tuple[str, ...]
    """Fields that may be left out; the older name of one first."""


def _chat_request(ask: Ask, official: bool) -> dict[str, Any]:
    return _openai.build_request(ask, official=official)


def _responses_request(ask: Ask, official: bool) -> dict[str, Any]:
    """The chat request in the form of the Responses API, without a seed and without storing it."""
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
