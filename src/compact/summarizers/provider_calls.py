"""What the summarizers that call a model share: the client and its key, replies, and failures as `SummaryError`.

Owns: importing a client, reading its key, and the error for whatever a client raises or a server answers.
Must never: retry (the pipeline does), or put a server's words into an error: they may quote the conversation or a key.

The official clients of both providers come from one generator and name their errors alike, so one function types both.
They are used synchronously, one per manager: a summarizer runs in a thread that can be abandoned, so the same client
serves threads and every event loop; an async client would belong to the loop that used it first.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any
from weakref import finalize

from pydantic import BaseModel

from .._summary.request import Ask
from ..config.sections import SummaryPolicy
from ..errors import (
    BadSummary,
    ConfigError,
    ContentFilter,
    MissingExtra,
    ModelUnavailable,
    SummaryError,
    SummaryTimeout,
    TokenLimitExceeded,
)
from .summarizer import Summarizer, Written

RETRYABLE = frozenset({408, 409, 429})
"""Statuses below 500 after which the same request may succeed."""

_TOO_LONG = re.compile(
    r"context[ _-]?(length|window|size|limit)|maximum context|(prompt|input|request) is too (long|large)"
    r"|too many (input |prompt )?tokens|(prompt|request)_too_l(ong|arge)",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"content[ _-]?(policy|filter|management)|usage polic|invalid_prompt|safety system", re.IGNORECASE
)
_NAME = re.compile(r"[A-Za-z]+_[A-Za-z_]{1,60}")
"""A server's name for its failure, not a sentence."""
_ADVICE = {
    401: "the key was not accepted; check {key}",
    402: "the account has no credit; check its billing",
    403: "the key may not use this model; check its rights and summary.model",
    404: "nothing is there; check summary.model and summary.base_url",
    429: "too many requests or no credit; slow down or raise the limit of the account",
}


def import_client(provider: str) -> Any:
    """The provider's official client, as a module."""
    try:
        return import_module(provider)
    except ImportError:
        raise MissingExtra(
            f"summary.provider '{provider}' needs the package {provider}: pip install 'agent-compact[{provider}]'"
        ) from None


def close_with(write: Summarizer, client: Any) -> Summarizer:
    """The summarizer; its client closes when the summarizer is garbage collected."""
    finalize(write, client.close)
    return write


def read_key(policy: SummaryPolicy, variable: str, base_url: str | None) -> str:
    """The key from the environment; a private server may need none, but the clients require a text."""
    key = os.environ.get(variable, "").strip() or ("none" if base_url else "")
    if not key:
        raise ConfigError(
            f"summary.provider: '{policy.provider}' needs a key; set {variable}, or summary.base_url for a server "
            "that needs none"
        )
    return key


def check_reply(reply: Any, key: str) -> None:
    """Refuse a reply with status 200 that is a web page, or that a gateway turned into a failure too late."""
    if not isinstance(reply, BaseModel | Mapping):
        raise ModelUnavailable("the server answered with a page; check summary.base_url", retryable=False)
    failure = getattr(reply, "error", None)
    if failure:
        status = failure.get("code") if isinstance(failure, Mapping) else None
        raise error_for_status(status if isinstance(status, int) and status >= 400 else 502, failure, key)


def make_written(text: Any, asked: Any, answered: Any, model: Any) -> Written:
    """A reply's text with the tokens it used. Clients pass on whatever a server sent; only numbers count."""
    if not isinstance(text, str):
        raise TypeError
    tokens = [count if isinstance(count, int) else None for count in (asked, answered)]
    name = model if isinstance(model, str) else None
    return Written(text, input_tokens=tokens[0], output_tokens=tokens[1], model=name)


def accept_reply(summary: Written, ask: Ask, *, refused: bool, cut_off: bool) -> Written:
    """The summary, unless the model refused or was cut off; the tokens are paid for either way."""
    failure: SummaryError | None = None
    if refused:
        failure = ContentFilter("the model refused to summarize")
    elif cut_off:
        failure = BadSummary(
            f"the summary was cut off at {ask.max_tokens:,} tokens; raise summary.max_tokens, or use a model that "
            "does not reason first"
        )
    if failure is not None:
        failure.tokens = summary.tokens
        raise failure
    return summary


@contextmanager
def typed_errors(client: Any, timeout: float, key: str) -> Iterator[None]:
    """Turn whatever the client raises inside into a `SummaryError`; `key` is the variable that holds the key."""
    try:
        yield
    except client.APITimeoutError:
        raise SummaryTimeout(f"no answer within {timeout:g} s; raise summary.timeout or use a faster model") from None
    except client.APIStatusError as error:
        raise error_for_status(error.status_code, error.body, key, parse_retry_after(error.response.headers)) from None
    except client.APIConnectionError as error:
        cause = type(error.__cause__ or error).__name__
        failure = ModelUnavailable(f"the connection failed ({cause}); check summary.base_url and the network")
        raise (mark_unpaid(failure) if cause.startswith("Connect") else failure) from None
    except (client.APIError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise unreadable_answer(error) from None


def unreadable_answer(error: Exception) -> SummaryError:
    """The error for an answer in which something is missing, or not what it should be."""
    return ModelUnavailable(f"the answer cannot be read ({type(error).__name__}): it is broken or cut off")


def error_for_status(status: int, body: object, key: str, retry_after: float | None = None) -> SummaryError:
    """The error for an answer that is a failure, by its status, its body, and the pause it asks for."""
    detail = body.get("error", body) if isinstance(body, Mapping) else body
    fields = [detail.get(name) for name in ("code", "type", "message")] if isinstance(detail, Mapping) else [detail]
    text = " ".join(field for field in fields if isinstance(field, str))
    name = ", ".join([str(status), *filter(_NAME.fullmatch, text.split(" ")[:1])])
    if status == 413 or (status in (400, 422) and _TOO_LONG.search(text)):
        return mark_unpaid(
            TokenLimitExceeded(
                f"the request is larger than the model's window (status {name}); set summary.max_input_tokens to the "
                "window, or use a model with a larger one"
            )
        )
    if status in (400, 422) and _REFUSED.search(text):
        return mark_unpaid(ContentFilter(f"the provider's content policy refused the request (status {name})"))
    advice = _ADVICE.get(status) or (
        "the service is failing; try later" if status >= 500 else "the request was not accepted; check summary.model"
    )
    retryable = status in RETRYABLE or status >= 500
    return mark_unpaid(
        ModelUnavailable(
            f"the server answered with status {name}: {advice.format(key=key)}",
            retryable=retryable,
            retry_after=retry_after if retryable else None,
        )
    )


def mark_unpaid(error: SummaryError) -> SummaryError:
    """The same error, marked as having cost nothing."""
    error.tokens = 0, 0
    return error


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait: `retry-after-ms`, or `retry-after` as seconds or as a date."""
    value, scale = headers.get("retry-after-ms"), 0.001
    if value is None:
        value, scale = headers.get("retry-after", ""), 1.0
    try:
        seconds = float(value) * scale
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError, OSError):
            return None
    return None if math.isnan(seconds) else max(0.0, seconds)
