"""Summaries by any server that speaks OpenAI's chat completions: OpenAI, vLLM, Ollama, llama.cpp.

Owns: what goes into such a request, and reading what comes back. Must never: retry, or be imported before it is asked
for.
"""

from __future__ import annotations

import os
from typing import Any

from .._summary.request import Ask
from ..config.sections import SummaryPolicy
from ..errors import ModelUnavailable
from .kind import Summarizer, Written
from .wire import accepted, check, client_of, closing, key_for, typed_errors, written

__all__ = ["DEFAULT_MODEL", "openai_summarizer", "read", "request"]

DEFAULT_MODEL = "gpt-6-luna"
"""OpenAI's cheapest current model; it can write without reasoning first, which would eat into `max_tokens`."""

_KEY = "OPENAI_API_KEY"
_TAKES_TEMPERATURE = ("gpt-3.5", "gpt-4", "chatgpt-4o")
_NEED_NOT_REASON = ("gpt-5.6-luna", "gpt-6-luna")


def openai_summarizer(policy: SummaryPolicy) -> Summarizer:
    """A summarizer on one client that all calls share."""
    openai = client_of("openai")
    base_url = policy.base_url or os.environ.get("OPENAI_BASE_URL") or None
    client = openai.OpenAI(
        api_key=key_for(policy, _KEY, base_url), base_url=base_url, max_retries=0, timeout=policy.timeout
    )
    official = client.base_url.host == "api.openai.com"

    def write(ask: Ask) -> Written:
        with typed_errors(openai, policy.timeout, _KEY):
            return read(client.chat.completions.create(**request(ask, official=official)), ask)

    return closing(write, client)


def request(ask: Ask, *, official: bool) -> dict[str, Any]:
    """The body of a request. OpenAI's own service has rules that depend on the model; other servers have one form."""
    model = ask.model or DEFAULT_MODEL
    body: dict[str, Any] = {"model": model, "messages": [dict(message) for message in ask.messages]}
    body["max_completion_tokens" if official else "max_tokens"] = ask.max_tokens
    if not official or model.startswith(_TAKES_TEMPERATURE):
        body["temperature"] = ask.temperature
    if ask.seed is not None:
        body["seed"] = ask.seed
    if official and model.startswith(_NEED_NOT_REASON):
        body["reasoning_effort"] = "none"
    return body


def read(reply: Any, ask: Ask, key: str = _KEY) -> Written:
    """The text of a reply with its bill, or the error it amounts to."""
    check(reply, key)
    if not reply.choices:
        raise ModelUnavailable("the server answered without a choice")
    choice, usage = reply.choices[0], reply.usage
    asked, answered = (usage.prompt_tokens, usage.completion_tokens) if usage else (None, None)
    summary = written(choice.message.content or "", asked, answered, reply.model)
    refused = bool(choice.message.refusal) or choice.finish_reason == "content_filter"
    return accepted(summary, ask, refused=refused, cut_off=choice.finish_reason == "length")
