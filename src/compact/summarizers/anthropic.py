"""Summaries by any server that speaks Anthropic's messages API.

Owns: building such a request, and reading the reply.
Must never: retry, or be imported before it is needed.
"""

from __future__ import annotations

import os
import re
from typing import Any

from .._summary.request import Ask
from ..config.sections import SummaryPolicy
from ..errors import TokenLimitExceeded
from .provider_calls import accept_reply, check_reply, close_with, import_client, make_written, read_key, typed_errors
from .summarizer import Summarizer, Written

DEFAULT_MODEL = "claude-haiku-4-5"
"""A small model that takes a temperature and does not think by default, which would use up `max_tokens`."""

_KEY = "ANTHROPIC_API_KEY"
_NO_TEMPERATURE = re.compile(r"claude-(?!2|instant|3|(haiku|sonnet|opus)-4(?!-[78]))")
"""Claude models after 4.6 refuse a temperature."""


def anthropic_summarizer(policy: SummaryPolicy) -> Summarizer:
    """A summarizer with one client that all calls share."""
    anthropic = import_client("anthropic")
    base_url = policy.base_url or os.environ.get("ANTHROPIC_BASE_URL") or None
    client = anthropic.Anthropic(
        api_key=read_key(policy, _KEY, base_url), base_url=base_url, max_retries=0, timeout=policy.timeout
    )

    def write(ask: Ask) -> Written:
        with typed_errors(anthropic, policy.timeout, _KEY):
            return read_reply(client.messages.create(**build_request(ask)), ask)

    return close_with(write, client)


def build_request(ask: Ask) -> dict[str, Any]:
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


def read_reply(reply: Any, ask: Ask, key: str = _KEY) -> Written:
    """The text of a reply with its tokens; raises a `SummaryError` for a reply that is a failure."""
    check_reply(reply, key)
    usage = reply.usage
    asked = (usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens) if usage else ()
    summary = make_written(
        "".join(block.text for block in reply.content or () if block.type == "text"),
        sum(filter(None, asked)) if usage else None,
        usage.output_tokens if usage else None,
        reply.model,
    )
    if reply.stop_reason == "model_context_window_exceeded":
        raise TokenLimitExceeded("the model's window was full before the summary ended; use a model with a larger one")
    return accept_reply(summary, ask, refused=reply.stop_reason == "refusal", cut_off=reply.stop_reason == "max_tokens")
