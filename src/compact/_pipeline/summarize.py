"""From a request to a summary that may replace history: what is tried next when one fails.

Owns: the failure chain (S31 to S33, L17), and the parts of a request that is too large.
Must never: call a model, let an unusable answer through, or an answer that was not measured.

An answer is judged, measured against the facts of what folds, and repaired when it scores below `min_score`. A model is
asked for less than the limit, so that there is room for that. When one fails:

- it cannot be used (too long, not smaller than what it replaces, no summary at all): asked again at half the size, at
  most twice
- refused: once more with the `brief` strategy
- timed out or unreachable for now: again after a pause, at most `max_retries` times, unless the server asks for a
  longer pause than `timeout`
- too large for the summarizer's window: in parts of half the size, at most three times
- it keeps less than `refuse_below` after its repair: given up, for asking again would not help
- after that `policy.on_failure`: prune (no summary; an earlier one stays as it stands), extract, or raise

Of several requests the first is settled alone: when its answers cannot be used, nobody pays for the others. Otherwise
they are asked side by side.

One idea, so one file: each step of the chain decides which comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from .._facts.fidelity import measure_summary, restore_summary
from .._facts.report import Report
from .._session.states import StateMachine
from .._summary.acceptance import accept_answer
from .._summary.chunking import request_tokens, split_request
from .._summary.marker import is_closed, is_opened
from .._summary.request import Ask
from ..config.model_catalog import cost_of
from ..config.sections import SummaryPolicy
from ..errors import BadSummary, ContentFilter, SummaryError, TokenLimitExceeded
from .effects import Effect, Emit, Summarize, SummaryReply, Wait, Work, failed

__all__ = ["BACKOFF", "RESERVED", "FailureChain", "Request", "Summaries"]

BACKOFF = 0.25
"""Seconds before the first retry of a summarizer that could not be reached; doubled each time."""
RESERVED = 0.4
"""The share of a summary's limit that a model is not asked to fill: it is for what the model forgets. (Measured on
summaries of a frontier model: what a repair puts there keeps more than as much of the model's own text.)"""
_NARROWER = 3
"""How often a request that is too large is cut into smaller parts."""
_FRAME = 20
"""About what the headings and the fence around what folds cost."""
_LABEL = 2
"""About what the label of a message costs beyond what a message costs in a list."""

Request = tuple[Ask, int]
"""An ask, and the tokens its answer would replace."""


@dataclass(frozen=True, slots=True)
class Summaries:
    """A body for each request, None where there is no summary to be had, and what it keeps; the last failure, and the
    fallback taken."""

    bodies: list[str | None]
    reports: list[Report | None]
    failure: SummaryError | None = None
    fallback: str | None = None


class _Answered(NamedTuple):
    """What a request came to: a usable body or the error that nothing helped against, and the call that ended it."""

    body: str
    error: SummaryError | None
    strategy: str
    seconds: float


@dataclass(frozen=True, slots=True)
class FailureChain:
    """The rules that hold for the summaries of one fold."""

    policy: SummaryPolicy
    machine: StateMachine
    on_failure: str
    offline: bool
    """Whether the built-in summarizer is asked, which costs nothing."""
    repaired_tokens: int | None = None
    """What a repair may fill up to, where that is less than a summary may have."""
    conceal: Callable[[str], str] = str
    """Redacts a text: reports name facts out of their context, where nobody sees that they are secrets."""

    def summarize(self, requests: Sequence[Request]) -> Generator[Effect, Any, Summaries]:
        """Ask for all of them, as the rules above allow."""
        self.machine.summarizer("in_progress")
        made = Summaries([None] * len(requests), [None] * len(requests))
        failure = yield from self._settle(made, 0, *requests[0])
        if not isinstance(failure, BadSummary):
            for number, reply in (yield from self._side_by_side(requests)).items():
                failure = (yield from self._settle(made, number, *requests[number], reply)) or failure
        for number, (ask, replaced) in enumerate(requests):
            if made.bodies[number] is None and self.on_failure == "extract":
                yield from self._offline(made, number, ask, replaced)
            if made.bodies[number] is None:
                made.reports[number] = yield Work(partial(self.measured, ask, ask.previous or ""))
        self.machine.summarizer("idle")
        return replace(made, failure=failure, fallback=self._fallback if failure else None)

    @property
    def _fallback(self) -> str:
        return "pruning-only" if self.on_failure == "prune" else self.on_failure

    @property
    def _window(self) -> int | None:
        """What the summarizer takes at once, as far as anybody knows."""
        return None if self.offline else self.policy.max_input_tokens

    def _side_by_side(self, requests: Sequence[Request]) -> Generator[Effect, Any, dict[int, SummaryReply | None]]:
        """The first replies to all requests but the first; None where one is too large to be asked whole."""
        asks = {n: self._asked(ask) for n, (ask, _) in enumerate(requests) if n}
        whole = [n for n, ask in asks.items() if self._window is None or request_tokens(ask) <= self._window]
        replies: dict[int, SummaryReply | None] = dict.fromkeys(asks)
        if whole:
            self.machine.summarizer("in_progress")
            replies |= zip(whole, (yield Summarize(tuple(asks[n] for n in whole), self.offline)), strict=True)
        return replies

    def _asked(self, ask: Ask) -> Ask:
        """What a model is asked for: less than the limit, where a repair may need the rest."""
        if self.offline or not ask.source or not self.policy.min_score or not self.policy.measure:
            return ask
        return replace(ask, max_tokens=max(1, int(ask.max_tokens * (1 - RESERVED))))

    def _settle(
        self, made: Summaries, number: int, ask: Ask, replaced: int, reply: SummaryReply | None = None
    ) -> Generator[Effect, Any, SummaryError | None]:
        """One request, part by part where it has to be, until its summary is made or there is none to be had."""
        self.machine.summarizer("in_progress")
        rest: Ask | None = self._asked(ask)
        window, narrower = self._window, _NARROWER
        got = _Answered("", None, ask.strategy, 0.0)
        while rest is not None:
            pending = rest
            divided = (yield Work(partial(_divided, pending, window))) if window else (pending, None)
            if isinstance(divided, TokenLimitExceeded):
                got = got._replace(error=divided)
                break
            part, rest = divided
            limit = ask.max_tokens if rest is None else part.max_tokens
            got = yield from self._answer(part, limit, replaced, reply)
            reply = None
            if isinstance(got.error, TokenLimitExceeded) and narrower:
                narrower -= 1
                window, rest = (yield Work(partial(request_tokens, part))) // 2, pending
                yield failed(got.error, "smaller parts", strategy=got.strategy)
            elif got.error is not None:
                break
            elif rest is not None:
                rest = rest.carrying(got.body)
        error = got.error or (yield from self._made(made, number, ask, replaced, got))
        if error is not None:
            self.machine.summarizer("failed")
            yield failed(error, self._fallback, strategy=got.strategy)
        return error

    def _answer(
        self, ask: Ask, limit: int, replaced: int, reply: SummaryReply | None
    ) -> Generator[Effect, Any, _Answered]:
        """Ask until an answer can be used, as the rules above allow."""
        halvings, retries, briefer = 2, self.policy.max_retries, ask.strategy != "brief"
        while True:
            self.machine.summarizer("in_progress")
            if reply is None:
                (reply,) = yield Summarize((ask,), self.offline)
            yield (yield Work(partial(self._called, ask, reply)))
            limited = ask if self._unclosed(reply) else replace(ask, max_tokens=limit)
            body, error = yield Work(partial(self._judged, limited, replaced, reply))
            if error is None:
                return _Answered(body, None, ask.strategy, reply.seconds)
            self.machine.summarizer("failed")
            tried, pause = ask.strategy, 0.0
            if isinstance(error, BadSummary) and halvings:
                halvings -= 1
                ask, next_step = ask.halved(), "half the size"
            elif isinstance(error, ContentFilter) and briefer:
                briefer = False
                ask, next_step = replace(ask, strategy="brief"), "brief"
            elif error.retryable and retries and (error.retry_after or 0.0) <= self.policy.timeout:
                pause = max(BACKOFF * 2 ** (self.policy.max_retries - retries), error.retry_after or 0.0)
                retries, next_step = retries - 1, "retry"
            else:
                return _Answered("", error, ask.strategy, reply.seconds)
            yield failed(error, next_step, strategy=tried)
            if pause:
                yield Wait(pause)
            reply = None

    def _offline(self, made: Summaries, number: int, ask: Ask, replaced: int) -> Generator[Effect, Any, None]:
        """The built-in summarizer in place of one that failed."""
        self.machine.summarizer("in_progress")
        (reply,) = yield Summarize((ask,), offline=True)
        body, error = yield Work(partial(self._judged, ask, replaced, reply, offline=True))
        if error is None:
            got = _Answered(body, None, ask.strategy, reply.seconds)
            error = yield from self._made(made, number, ask, replaced, got)
        if error is not None:
            self.machine.summarizer("failed")
            yield failed(error, "pruning-only", strategy=ask.strategy)

    def _made(
        self, made: Summaries, number: int, ask: Ask, replaced: int, got: _Answered
    ) -> Generator[Effect, Any, SummaryError | None]:
        """Measure an answer that can be used, repair it, and take it, unless it keeps too little even so."""
        policy = self.policy
        most = min(ask.max_tokens, replaced - 1, int(replaced * (1 - policy.min_compression_ratio)))
        most = min(most, self.repaired_tokens or most)
        body, report = yield Work(partial(self._repaired, ask, got.body, most))
        if report is not None and report.score < policy.refuse_below:
            return BadSummary(
                f"repaired within {most:,} tokens, the summary keeps {report.score:g} of 100 of what mattered, below "
                f"summary.refuse_below {policy.refuse_below:g}: raise summary.max_tokens, or ask for less"
            )
        made.bodies[number], made.reports[number] = body, report
        self.machine.summarizer("completed")
        yield _created(replace(ask, strategy=got.strategy), body, report, replaced, got.seconds)
        return None

    def _repaired(self, ask: Ask, body: str, most: int) -> tuple[str, Report | None]:
        """A body with what it lost given back, within a limit, and what it keeps then."""
        if not self.policy.measure:
            return body, None
        body, report = restore_summary(ask, body, most, self.policy.min_score)
        return body, report.concealed(ask.words, body, self.conceal)

    def measured(self, ask: Ask, body: str) -> Report | None:
        """What a text keeps of what a request is about; None where nobody wants to know."""
        if not self.policy.measure:
            return None
        return measure_summary(ask, body).concealed(ask.words, body, self.conceal)

    def _judged(
        self, ask: Ask, replaced: int, reply: SummaryReply, *, offline: bool = False
    ) -> tuple[str, SummaryError | None]:
        if reply.error is not None:
            return "", reply.error
        tag, saving = self.policy.summary_tag, self.policy.min_compression_ratio
        offline = offline or self.offline
        try:
            return accept_answer(
                reply.text, ask, tag=tag, replaced_tokens=replaced, min_saving=saving, offline=offline
            ), None
        except SummaryError as error:
            return "", error

    def _unclosed(self, reply: SummaryReply) -> bool:
        """Whether an answer opened its tag and never closed it: then its limit is the one that the model was given."""
        tag = self.policy.summary_tag
        return is_opened(reply.text, tag) and not is_closed(reply.text, tag)

    def _called(self, ask: Ask, reply: SummaryReply) -> Emit:
        """What one call used: tokens as the provider counts them, or else the meter; money where a price is known."""
        model = "extract" if self.offline else ask.model or reply.model
        asked, answered = (0, 0) if self.offline else reply.tokens or _counted(ask, reply)
        cost = 0.0 if self.offline else cost_of(model, asked, answered, self.policy.prices)
        data = {
            "kind": ask.kind,
            "strategy": ask.strategy,
            "model": model,
            "input_tokens": asked,
            "output_tokens": answered,
            "cost_usd": cost,
        }
        return Emit("compact.summary_call", data, "error" if reply.error else "ok", reply.seconds)


def _divided(ask: Ask, window: int) -> tuple[Ask, Ask | None] | TokenLimitExceeded:
    try:
        return split_request(ask, window)
    except TokenLimitExceeded as too_small:
        return too_small


def _counted(ask: Ask, reply: SummaryReply) -> tuple[int, int]:
    """What a call used, where the provider does not tell: about, for what folds was counted as it stood in the list."""
    if ask.tokens is None:
        asked = sum(ask.count(message["content"]) for message in ask.messages)
    else:
        asked = ask.tokens + sum(map(ask.count, ask.instructions)) + _FRAME + _LABEL * len(ask.source)
    return asked, ask.count(reply.text)


def _created(ask: Ask, body: str, report: Report | None, replaced: int, seconds: float) -> Emit:
    size = ask.count(body)
    return Emit(
        "compact.summary_created",
        {
            "strategy": ask.strategy,
            "kind": ask.kind,
            "input_messages": len(ask.source),
            "summary_tokens": size,
            "compression_ratio": round(1 - size / replaced, 4),
            "report": report.as_dict() if report is not None else None,
            "summary": body,
        },
        duration=seconds,
    )
