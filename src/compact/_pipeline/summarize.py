"""From summary requests to summaries that may replace messages: what is tried next when one fails.

Owns: the failure chain (S31 to S33, L17), and requests that are too large for the summarizer.
Must never: call a model, accept an unusable answer, or an answer that was not measured.

An answer is checked, measured against the facts of the folded messages, and repaired when it scores below `min_score`;
a model is asked for less than the limit, so that there is room for the repair. When an answer fails:

- unusable (too long, not smaller than what it replaces, not a summary): asked again at half the size, at most twice
- refused: once more with the `brief` strategy
- timed out or unreachable for now: again after a pause, at most `max_retries` times, unless the server asks for a
  longer pause than `timeout`
- too large for the summarizer's window: in parts of half the size, at most three times
- below `refuse_below` after its repair: given up, because asking again would not help
- then `policy.on_failure`: prune (no summary; an earlier one stays unchanged), extract, or raise

Of several requests the first is settled alone: when its answers are unusable, the others are not paid for. Otherwise
they are asked as one batch, on an event loop side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .._facts.fidelity import measure_summary, restore_summary
from .._facts.report import Report
from .._summary.acceptance import accept_answer
from .._summary.chunking import request_tokens, split_request
from .._summary.marker import is_closed, is_opened
from .._summary.request import Ask
from ..config.sections import SummaryPolicy
from ..errors import BadSummary, ContentFilter, SummaryError, TokenLimitExceeded
from . import events
from .effects import Effect, Move, Summarize, SummaryReply, Wait

BACKOFF = 0.25
"""Seconds before the first retry of a summarizer that could not be reached; doubled each time."""
RESERVED = 0.4
"""The share of a summary's limit that a model is not asked to fill; a repair may need it. (Measured on summaries of a
frontier model: what a repair puts there keeps more than as much of the model's own text.)"""
_SPLITS = 3
"""How often a request that is too large is cut into smaller parts."""

Request = tuple[Ask, int]
"""A summary request, and the tokens its answer would replace."""


@dataclass(frozen=True, slots=True)
class Summaries:
    """A body and a report for each request, None where there is no summary; the last failure, and the fallback."""

    bodies: list[str | None]
    reports: list[Report | None]
    failure: SummaryError | None = None
    fallback: str | None = None


class _Answer(NamedTuple):
    """What a request came to: a usable body or the error that remained, and the last call."""

    body: str
    error: SummaryError | None
    strategy: str
    seconds: float


@dataclass(frozen=True, slots=True)
class FailureChain:
    """The rules for the summaries of one compaction."""

    policy: SummaryPolicy
    on_failure: str
    offline: bool
    """Whether the built-in summarizer is asked, which costs nothing."""
    repaired_tokens: int | None = None
    """What a repair may fill up to, where that is less than a summary may have."""
    redact: Callable[[str], str] = str
    """Redacts a text: a report names facts out of their context, where redaction would not find them."""

    def summarize(self, requests: Sequence[Request]) -> Generator[Effect, Any, Summaries]:
        """Ask for all of them, as the rules above allow."""
        yield Move(summary_state="in_progress")
        made = Summaries([None] * len(requests), [None] * len(requests))
        failure = yield from self._settle(made, 0, *requests[0])
        if not isinstance(failure, BadSummary):
            for number, reply in (yield from self._ask_side_by_side(requests)).items():
                failure = (yield from self._settle(made, number, *requests[number], reply)) or failure
        for number, (ask, replaced) in enumerate(requests):
            if made.bodies[number] is None and self.on_failure == "extract":
                yield from self._extract(made, number, ask, replaced)
            if made.bodies[number] is None:
                made.reports[number] = self.measure(ask, ask.previous or "")
        yield Move(summary_state="idle")
        return replace(made, failure=failure, fallback=self._fallback if failure else None)

    @property
    def _fallback(self) -> str:
        return "pruning-only" if self.on_failure == "prune" else self.on_failure

    @property
    def _window(self) -> int | None:
        """What the summarizer takes at once, where that is known."""
        return None if self.offline else self.policy.max_input_tokens

    def _ask_side_by_side(self, requests: Sequence[Request]) -> Generator[Effect, Any, dict[int, SummaryReply | None]]:
        """The first replies to all requests but the first; None where one is too large to be asked whole."""
        asks = {n: self._request_of(ask) for n, (ask, _) in enumerate(requests) if n}
        whole = [n for n, ask in asks.items() if self._window is None or request_tokens(ask) <= self._window]
        replies: dict[int, SummaryReply | None] = dict.fromkeys(asks)
        if whole:
            yield Move(summary_state="in_progress")
            replies |= zip(whole, (yield Summarize(tuple(asks[n] for n in whole), self.offline)), strict=True)
        return replies

    def _request_of(self, ask: Ask) -> Ask:
        """What a model is asked for: less than the limit, where a repair may need the rest."""
        if self.offline or not ask.source or not self.policy.min_score or not self.policy.measure:
            return ask
        return replace(ask, max_tokens=max(1, int(ask.max_tokens * (1 - RESERVED))))

    def _settle(
        self, made: Summaries, number: int, ask: Ask, replaced: int, reply: SummaryReply | None = None
    ) -> Generator[Effect, Any, SummaryError | None]:
        """One request, in parts where it is too large, until its summary is made or has failed."""
        yield Move(summary_state="in_progress")
        rest: Ask | None = self._request_of(ask)
        window, splits = self._window, _SPLITS
        got = _Answer("", None, ask.strategy, 0.0)
        while rest is not None:
            pending = rest
            try:
                part, rest = split_request(pending, window) if window else (pending, None)
            except TokenLimitExceeded as too_small:
                got = got._replace(error=too_small)
                break
            limit = ask.max_tokens if rest is None else part.max_tokens
            got = yield from self._answer(part, limit, replaced, reply)
            reply = None
            if isinstance(got.error, TokenLimitExceeded) and splits:
                splits -= 1
                window, rest = request_tokens(part) // 2, pending
                yield events.failure(got.error, "smaller parts", strategy=got.strategy)
            elif got.error is not None:
                break
            elif rest is not None:
                rest = rest.carrying(got.body)
        error = got.error or (yield from self._accept(made, number, ask, replaced, got))
        if error is not None:
            yield Move(summary_state="failed")
            yield events.failure(error, self._fallback, strategy=got.strategy)
        return error

    def _answer(
        self, ask: Ask, limit: int, replaced: int, reply: SummaryReply | None
    ) -> Generator[Effect, Any, _Answer]:
        """Ask until an answer is usable, as the rules above allow."""
        halvings, retries, briefer = 2, self.policy.max_retries, ask.strategy != "brief"
        while True:
            yield Move(summary_state="in_progress")
            if reply is None:
                (reply,) = yield Summarize((ask,), self.offline)
            yield events.summary_call(ask, reply, self.policy.prices, offline=self.offline)
            limited = ask if self._is_unclosed(reply) else replace(ask, max_tokens=limit)
            body, error = self._check(limited, replaced, reply)
            if error is None:
                return _Answer(body, None, ask.strategy, reply.seconds)
            yield Move(summary_state="failed")
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
                return _Answer("", error, ask.strategy, reply.seconds)
            yield events.failure(error, next_step, strategy=tried)
            if pause:
                yield Wait(pause)
            reply = None

    def _extract(self, made: Summaries, number: int, ask: Ask, replaced: int) -> Generator[Effect, Any, None]:
        """The built-in summarizer in place of one that failed."""
        yield Move(summary_state="in_progress")
        (reply,) = yield Summarize((ask,), offline=True)
        body, error = self._check(ask, replaced, reply, offline=True)
        if error is None:
            got = _Answer(body, None, ask.strategy, reply.seconds)
            error = yield from self._accept(made, number, ask, replaced, got)
        if error is not None:
            yield Move(summary_state="failed")
            yield events.failure(error, "pruning-only", strategy=ask.strategy)

    def _accept(
        self, made: Summaries, number: int, ask: Ask, replaced: int, got: _Answer
    ) -> Generator[Effect, Any, SummaryError | None]:
        """Measure a usable answer, repair it, and take it, unless it keeps too little even so."""
        policy = self.policy
        most = min(ask.max_tokens, replaced - 1, int(replaced * (1 - policy.min_compression_ratio)))
        most = min(most, self.repaired_tokens or most)
        body, report = self._repair(ask, got.body, most)
        if report is not None and report.score < policy.refuse_below:
            return BadSummary(
                f"repaired within {most:,} tokens, the summary keeps {report.score:g} of 100 of what mattered, below "
                f"summary.refuse_below {policy.refuse_below:g}: raise summary.max_tokens, or ask for less"
            )
        made.bodies[number], made.reports[number] = body, report
        yield Move(summary_state="completed")
        yield events.summary_created(replace(ask, strategy=got.strategy), body, report, replaced, got.seconds)
        return None

    def _repair(self, ask: Ask, body: str, most: int) -> tuple[str, Report | None]:
        """A body with what it lost put back, within a limit, and what it keeps then."""
        if not self.policy.measure:
            return body, None
        body, report = restore_summary(ask, body, most, self.policy.min_score)
        return body, report.redacted_with(ask.words, body, self.redact)

    def measure(self, ask: Ask, body: str) -> Report | None:
        """What a text keeps of what a request is about; None where `summary.measure` is off."""
        if not self.policy.measure:
            return None
        return measure_summary(ask, body).redacted_with(ask.words, body, self.redact)

    def _check(
        self, ask: Ask, replaced: int, reply: SummaryReply, *, offline: bool = False
    ) -> tuple[str, SummaryError | None]:
        """The body of an answer that may replace messages, or why it may not."""
        if reply.error is not None:
            return "", reply.error
        tag, saving = self.policy.summary_tag, self.policy.min_compression_ratio
        offline = offline or self.offline
        try:
            body = accept_answer(reply.text, ask, tag=tag, replaced_tokens=replaced, min_saving=saving, offline=offline)
        except SummaryError as error:
            return "", error
        return body, None

    def _is_unclosed(self, reply: SummaryReply) -> bool:
        """Whether an answer opened its tag and never closed it: then its limit is the one that the model was given."""
        tag = self.policy.summary_tag
        return is_opened(reply.text, tag) and not is_closed(reply.text, tag)
