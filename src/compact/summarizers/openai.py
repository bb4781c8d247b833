"""Summaries by any server that speaks OpenAI's chat completions: OpenAI, vLLM, Ollama, llama.cpp.

Owns: building such a request, and reading the reply.
Must never: retry, or be imported before it is needed.
"""

from __future__ import annotations

import os
from typing import Any

from .._summary.request import Ask
from ..config.sections import SummaryPolicy
from ..errors import ModelUnavailable
from .provider_calls import accept_reply, check_reply, close_with, import_client, make_written, read_key, typed_errors
from .summarizer import Summarizer, Written

DEFAULT_MODEL = "gpt-6-luna"
"""OpenAI's cheapest current model; it can write without reasoning first, which would use up `max_tokens`."""

_KEY = "OPENAI_API_KEY"
_TAKES_TEMPERATURE = ("gpt-3.5", "gpt-4", "chatgpt-4o")
_NEED_NOT_REASON = ("gpt-5.6-luna", "gpt-6-luna")


def openai_summarizer(policy: SummaryPolicy) -> Summarizer:
    """A summarizer with one client that all calls share."""
    openai = import_client("openai")
    base_url = policy.base_url or os.environ.get("OPENAI_BASE_URL") or None
    client = openai.OpenAI(
        api_key=read_key(policy, _KEY, base_url), base_url=base_url, max_retries=0, timeout=policy.timeout
    )
    official = client.base_url.host == "api.openai.com"

    def write(ask: Ask) -> Written:
        with typed_errors(openai, policy.timeout, _KEY):
            return read_reply(client.chat.completions.create(**build_request(ask, official=official)), ask)

    return close_with(write, client)


def build_request(ask: Ask, *, official: bool) -> dict[str, Any]:
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


def read_reply(reply: Any, ask: Ask, key: str = _KEY) -> Written:
    """The text of a reply with its tokens; raises a `SummaryError` for a reply that is a failure."""
    check_reply(reply, key)
    if not reply.choices:
        raise ModelUnavailable("the server answered without a choice")
    choice, usage = reply.choices[0], reply.usage
    asked, answered = (usage.prompt_tokens, usage.completion_tokens) if usage else (None, None)
    summary = make_written(choice.message.content or "", asked, answered, reply.model)
    refused = bool(choice.message.refusal) or choice.finish_reason == "content_filter"
    return accept_reply(summary, ask, refused=refused, cut_off=choice.finish_reason == "length")
