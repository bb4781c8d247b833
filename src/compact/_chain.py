"""From a request to a summary that may replace history: what is tried next when one fails.

Owns: the failure chain (S31 to S33, L17). Must never: call a model, or let an unusable answer through.

- too long, or not smaller than what it replaces: asked again at half the size, at most twice
- refused: once more with the `brief` strategy
- timed out or unreachable: again after a pause, at most `max_retries` times
- after that `policy.on_failure`: prune (no summary; an earlier one stays as it stands), extract, or raise
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from ._asks import Ask, judge
from ._effects import Effect, Emit, Reply, Summarize, Wait, failed
from ._policy import SummaryPolicy
from ._states import Machine
from .errors import BadSummary, ContentFilter, ModelUnavailable, SummaryError, SummaryTimeout

__all__ = ["BACKOFF", "Request", "summarize"]

BACKOFF = 0.25
"""Seconds before the first retry of a summarizer that could not be reached; doubled each time."""

Request = tuple[Ask, int]
"""An ask, and the tokens its answer would replace."""


def summarize(
    requests: Sequence[Request], policy: SummaryPolicy, machine: Machine, *, on_failure: str, offline: bool
) -> Generator[Effect, Any, tuple[list[str | None], str | None]]:
    """A body for each request, or None where there is no summary to be had; and the fallback taken, if any."""
    machine.summarizer("in_progress")
    replies = yield Summarize(tuple(ask for ask, _ in requests), offline)
    bodies: list[str | None] = []
    fallback = None
    for (ask, replaced), reply in zip(requests, replies, strict=True):
        body = yield from _settle(ask, replaced, reply, policy, machine, offline, on_failure)
        if body is None:
            fallback = {"prune": "pruning-only"}.get(on_failure, on_failure)
            if on_failure == "extract":
                body = yield from _offline(ask, replaced, policy)
        bodies.append(body)
    machine.summarizer("idle")
    return bodies, fallback


def _settle(
    ask: Ask, replaced: int, reply: Reply, policy: SummaryPolicy, machine: Machine, offline: bool, on_failure: str
) -> Generator[Effect, Any, str | None]:
    """Judge a reply and ask again as the rules above allow."""
    halvings, retries, briefer = 2, policy.max_retries, ask.strategy != "brief"
    while True:
        machine.summarizer("in_progress")
        body, error = _accept(reply, ask, replaced, policy)
        if error is None:
            machine.summarizer("completed")
            yield _created(ask, body, replaced, reply.seconds)
            return body
        machine.summarizer("failed")
        tried = ask.strategy
        if isinstance(error, BadSummary) and halvings:
            halvings -= 1
            ask, fallback, pause = ask.halved(), "half the size", 0.0
        elif isinstance(error, ContentFilter) and briefer:
            briefer = False
            ask, fallback, pause = replace(ask, strategy="brief"), "brief", 0.0
        elif isinstance(error, SummaryTimeout | ModelUnavailable) and retries:
            pause = BACKOFF * 2 ** (policy.max_retries - retries)
            retries, fallback = retries - 1, "retry"
        else:
            yield failed(error, {"prune": "pruning-only"}.get(on_failure, on_failure), strategy=tried)
            return None
        yield failed(error, fallback, strategy=tried)
        if pause:
            yield Wait(pause)
        (reply,) = yield Summarize((ask,), offline)


def _offline(ask: Ask, replaced: int, policy: SummaryPolicy) -> Generator[Effect, Any, str | None]:
    (reply,) = yield Summarize((ask,), offline=True)
    body, error = _accept(reply, ask, replaced, policy)
    if error is not None:
        yield failed(error, "pruning-only", strategy=ask.strategy)
        return None
    yield _created(ask, body, replaced, reply.seconds)
    return body


def _accept(reply: Reply, ask: Ask, replaced: int, policy: SummaryPolicy) -> tuple[str, SummaryError | None]:
    if reply.error is not None:
        return "", reply.error
    tag, saving = policy.summary_tag, policy.min_compression_ratio
    try:
        return judge(reply.text, ask, tag=tag, replaced_tokens=replaced, min_saving=saving), None
    except BadSummary as error:
        return "", error


def _created(ask: Ask, body: str, replaced: int, seconds: float) -> Emit:
    size = ask.count(body)
    return Emit(
        "compact.summary_created",
        {
            "strategy": ask.strategy,
            "kind": ask.kind,
            "input_messages": len(ask.source),
            "summary_tokens": size,
            "compression_ratio": round(1 - size / replaced, 4),
            "summary": body,
        },
        duration=seconds,
    )
