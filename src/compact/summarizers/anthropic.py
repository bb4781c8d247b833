"""Summaries by any server that speaks Anthropic's messages API.

Owns: what goes into such a request, and reading what comes back. Must never: retry, or be imported before it is asked
for.
"""

from __future__ import annotations

import os
import re
from typing import Any

from .._summary.request import Ask
from ..config.sections import SummaryPolicy
from ..errors import TokenLimitExceeded
from .kind import Summarizer, Written
from .wire import accepted, check, client_of, closing, key_for, typed_errors, written

__all__ = ["DEFAULT_MODEL", "anthropic_summarizer", "read", "request"]

DEFAULT_MODEL = "claude-haiku-4-5"
"""A small model that takes a temperature and does not think unasked, which would eat into `max_tokens`."""

_KEY = "ANTHROPIC_API_KEY"
_NO_TEMPERATURE = re.compile(r"claude-(?!2|instant|3|(haiku|sonnet|opus)-4(?!-[78]))")
"""Claude models after 4.6 refuse a temperature."""


def anthropic_summarizer(policy: SummaryPolicy) -> Summarizer:
    """A summarizer on one client that all calls share."""
    anthropic = client_of("anthropic")
    base_url = policy.base_url or os.environ.get("ANTHROPIC_BASE_URL") or None
    client = anthropic.Anthropic(
        api_key=key_for(policy, _KEY, base_url), base_url=base_url, max_retries=0, timeout=policy.timeout
    )

    def write(ask: Ask) -> Written:
        with typed_errors(anthropic, policy.timeout, _KEY):
            return read(client.messages.create(**request(ask)), ask)

    return closing(write, client)


def request(ask: Ask) -> dict[str, Any]:
    """The arguments of a request. There is no seed; the temperature goes beside the arguments the client knows."""
    system, user = ask.messages
    model = ask.model or DEFAULT_MODEL
    arguments: dict[str, Any] = {
        "model": model,
        "system": system["content"],
        "messages": [dict(user)],
        "max_tokens": ask.max_tokens,
    }
    if not _NO_TEMPERATURE.match(model.rpartition("/")[2]):
        arguments["extra_body"] = {"temperature": min(1.0, ask.temperature)}
    return arguments


def read(reply: Any, ask: Ask, key: str = _KEY) -> Written:
    """The text of a reply with its bill, or the error it amounts to."""
    check(reply, key)
    usage = reply.usage
    asked = (usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens) if usage else ()
    summary = written(
        "".join(block.text for block in reply.content or () if block.type == "text"),
        sum(filter(None, asked)) if usage else None,
        usage.output_tokens if usage else None,
        reply.model,
    )
    if reply.stop_reason == "model_context_window_exceeded":
        raise TokenLimitExceeded("the model's window was full before the summary ended; use a model with a larger one")
    return accepted(summary, ask, refused=reply.stop_reason == "refusal", cut_off=reply.stop_reason == "max_tokens")
