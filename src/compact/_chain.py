"""From a request to a summary that may replace history: what is tried next when one fails.

Owns: the failure chain (S31 to S33, L17). Must never: call a model, or let an unusable answer through.

- too long, or not smaller than what it replaces: asked again at half the size, at most twice
- refused: once more with the `brief` strategy
- timed out or unreachable: again after a pause, at most `max_retries` times
- after that `policy.on_failure`: prune (no summary; an earlier one stays as it stands), extract, or raise

Of several requests the first is settled alone: when its answers cannot be used, nobody pays for the others. Otherwise
they are asked side by side.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ._asks import Ask, judge
from ._effects import Effect, Emit, Reply, Summarize, Wait, failed
from ._policy import SummaryPolicy
from ._prices import cost_of
from ._states import Machine
from .errors import BadSummary, ContentFilter, ModelUnavailable, SummaryError, SummaryTimeout

__all__ = ["BACKOFF", "Chain", "Request", "Summaries"]

BACKOFF = 0.25
"""Seconds before the first retry of a summarizer that could not be reached; doubled each time."""

Request = tuple[Ask, int]
"""An ask, and the tokens its answer would replace."""


@dataclass(frozen=True, slots=True)
class Summaries:
    """A body for each request, None where there is no summary to be had; the last failure, and the fallback taken."""

    bodies: list[str | None]
    failure: SummaryError | None = None
    fallback: str | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """The rules that hold for the summaries of one fold."""

    policy: SummaryPolicy
    machine: Machine
    on_failure: str
    offline: bool
    """Whether the built-in summarizer is asked, which costs nothing."""

    def summarize(self, requests: Sequence[Request]) -> Generator[Effect, Any, Summaries]:
        """Ask for all of them, as the rules above allow."""
        self.machine.summarizer("in_progress")
        (ask, replaced), rest = requests[0], requests[1:]
        (reply,) = yield Summarize((ask,), self.offline)
        body, error = yield from self._settle(ask, replaced, reply)
        bodies, failure = [body], error
        if rest and not isinstance(error, BadSummary):
            self.machine.summarizer("in_progress")
            replies = yield Summarize(tuple(ask for ask, _ in rest), self.offline)
            for (ask, replaced), reply in zip(rest, replies, strict=True):
                body, error = yield from self._settle(ask, replaced, reply)
                bodies.append(body)
                failure = error or failure
        bodies += [None] * (len(requests) - len(bodies))
        if self.on_failure == "extract":
            for number, (ask, replaced) in enumerate(requests):
                if bodies[number] is None:
                    bodies[number] = yield from self._offline(ask, replaced)
        self.machine.summarizer("idle")
        return Summaries(bodies, failure, self._fallback if failure else None)

    @property
    def _fallback(self) -> str:
        return "pruning-only" if self.on_failure == "prune" else self.on_failure

    def _settle(
        self, ask: Ask, replaced: int, reply: Reply
    ) -> Generator[Effect, Any, tuple[str | None, SummaryError | None]]:
        """Judge a reply and ask again as the rules above allow."""
        halvings, retries, briefer = 2, self.policy.max_retries, ask.strategy != "brief"
        while True:
            self.machine.summarizer("in_progress")
            yield self._called(ask, reply)
            body, error = self._judged(ask, replaced, reply)
            if error is None:
                self.machine.summarizer("completed")
                yield _created(ask, body, replaced, reply.seconds)
                return body, None
            self.machine.summarizer("failed")
            tried, pause = ask.strategy, 0.0
            if isinstance(error, BadSummary) and halvings:
                halvings -= 1
                ask, next_step = ask.halved(), "half the size"
            elif isinstance(error, ContentFilter) and briefer:
                briefer = False
                ask, next_step = replace(ask, strategy="brief"), "brief"
            elif isinstance(error, SummaryTimeout | ModelUnavailable) and retries:
                pause = BACKOFF * 2 ** (self.policy.max_retries - retries)
                retries, next_step = retries - 1, "retry"
            else:
                yield failed(error, self._fallback, strategy=tried)
                return None, error
            yield failed(error, next_step, strategy=tried)
            if pause:
                yield Wait(pause)
            self.machine.summarizer("in_progress")
            (reply,) = yield Summarize((ask,), self.offline)

    def _offline(self, ask: Ask, replaced: int) -> Generator[Effect, Any, str | None]:
        """The built-in summarizer in place of one that failed."""
        (reply,) = yield Summarize((ask,), offline=True)
        body, error = self._judged(ask, replaced, reply)
        if error is not None:
            yield failed(error, "pruning-only", strategy=ask.strategy)
            return None
        yield _created(ask, body, replaced, reply.seconds)
        return body

    def _judged(self, ask: Ask, replaced: int, reply: Reply) -> tuple[str, SummaryError | None]:
        if reply.error is not None:
            return "", reply.error
        tag, saving = self.policy.summary_tag, self.policy.min_compression_ratio
        try:
            return judge(reply.text, ask, tag=tag, replaced_tokens=replaced, min_saving=saving), None
        except BadSummary as error:
            return "", error

    def _called(self, ask: Ask, reply: Reply) -> Emit:
        """What one call used: tokens as the meter counts them, and money where the model's price is known."""
        asked = 0 if self.offline else sum(ask.count(message["content"]) for message in ask.messages)
        answered = 0 if self.offline else ask.count(reply.text)
        cost = 0.0 if self.offline else cost_of(ask.model, asked, answered)
        data = {
            "kind": ask.kind,
            "strategy": ask.strategy,
            "model": "extract" if self.offline else ask.model,
            "input_tokens": asked,
            "output_tokens": answered,
            "cost_usd": cost,
        }
        return Emit("compact.summary_call", data, "error" if reply.error else "ok", reply.seconds)


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
