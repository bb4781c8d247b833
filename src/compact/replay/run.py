"""One recorded conversation under one policy, call by call, as its agent would have lived it.

Owns: `run`, and what a result says. Must never: store a message, or keep anything between two runs.

The host is the common kind: it passes its whole list again at every call and keeps what was recorded. So a fold has to
be replayed from memory, as it is inside every framework.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from .._conversation.message import Message
from .._engine.manager import CompactManager
from .._facts.measure import contains_whole
from .._redaction import redact
from .._summary.request import Ask
from ..config import CompactConfig
from ..errors import CompactError, InsufficientBudget
from ..summarizers import Summarizer, Written, summarizer_for
from .cost import Bill
from .recording import Need, Recording, Scales, Span, words_of
from .results import Moment, Result
from .trial import Setting, Trial

__all__ = ["run"]

_SESSION = "replay"
_SHOWN = 4000
"""Characters of a summary, and a fortieth of it around a fact, that a result keeps for people."""
_NAMED = 12
"""Lost facts that a result names."""


def run(recording: Recording, trial: Trial, setting: Setting) -> Result:
    """Replay a conversation under a policy. A failure is a result too: it says what went wrong."""
    conversation = recording.conversation
    result = Result(conversation=conversation.id, source=conversation.source, policy=trial.name)
    try:
        config = setting.config_for(recording, trial)
        with _quiet():
            _Run(recording, config, setting, result).go()
    except CompactError as error:
        result.error = str(error)
    return result


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings of the library on the terminal: what they say of thousands of calls stands in the result."""
    log = logging.getLogger("compact")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


class _Run:
    """The state of one run."""

    def __init__(self, recording: Recording, config: CompactConfig, setting: Setting, result: Result) -> None:
        self.recording, self.config, self.result = recording, config, result
        self.scales: Scales = recording.scales(config.model, config.counter)
        prices = {**config.summary.prices, **setting.prices}
        caching = setting.caching_for(config.model)
        self.bill, self.untouched = Bill(config.model, caching, prices), Bill(config.model, caching, prices)
        self.weights = {id(raw): self.scales.tokens[i] for i, raw in enumerate(recording.conversation.messages)}
        self.places = {id(raw): i for i, raw in enumerate(recording.conversation.messages)}
        self.made: dict[int, tuple[Any, Message]] = {}
        """What folds wrote, by the object's id; the object is held, so that its id stays its own."""

    def go(self) -> None:
        """All calls, one after the other."""
        recording, result = self.recording, self.result
        conversation = recording.conversation
        result.model, result.window = self.config.model, self.config.window
        result.messages, result.calls = len(recording.messages), len(recording.calls)
        host: list[Any] = []
        folds = 0
        with CompactManager(self.config, summarizer=self._summarizer(), store=None) as manager:
            for span, needs in zip(recording.calls, recording.needs, strict=True):
                host.extend(conversation.messages[len(host) : span.start])
                started = perf_counter()
                try:
                    sent = manager.preflight(_SESSION, host, tools=conversation.tools, model=self.config.model)
                except InsufficientBudget:
                    sent = host
                    result.refused += 1
                result.seconds.append(round(perf_counter() - started, 6))
                made = manager.session(_SESSION).folds[folds:]
                if made:
                    result.fallbacks += sum(fold.fallback is not None for fold in made)
                    result.folded_at.append(len(result.series))
                    folds += len(made)
                self._account(span, host, sent)
                self._judge(host, sent)
                self._remember(span, needs, sent)
        result.folds = folds
        result.loops = sum(b - a == 1 for a, b in zip(result.folded_at, result.folded_at[1:], strict=False))
        result.sent, result.cached, result.cost = self.bill.sent, self.bill.cached, self.bill.total
        result.summaries = self.bill.summaries
        whole = self.untouched
        result.untouched_sent, result.untouched_cached, result.untouched_cost = whole.sent, whole.cached, whole.total

    def _account(self, span: Span, host: Sequence[Any], sent: Sequence[Any]) -> None:
        """What the request weighs and costs, and what it would have cost as it came."""
        tokens = [self._weight(raw) for raw in sent]
        times = self.recording.conversation.times
        time = times[span.start] if times is not None else None
        answer = sum(self.scales.tokens[span.start : span.end])
        self.bill.add(self.scales.fixed, list(sent), tokens, answer, time)
        self.untouched.add(self.scales.fixed, host[: span.start], self.scales.tokens[: span.start], answer, time)
        total = self.scales.fixed + sum(tokens)
        whole = self.scales.fixed + sum(self.scales.tokens[: span.start])
        result = self.result
        result.series.append(total)
        result.untouched_series.append(whole)
        result.largest = max(result.largest, total)
        result.over += total > result.window
        result.untouched_over += whole > result.window
        result.untouched_largest = max(result.untouched_largest, whole)

    def _weight(self, raw: Any) -> int:
        if id(raw) not in self.weights:
            message = self.recording.dialect.read(raw)
            self.made[id(raw)] = raw, message
            self.weights[id(raw)] = self.scales.weigh(message)
        return self.weights[id(raw)]

    def _judge(self, host: Sequence[Any], sent: Sequence[Any]) -> None:
        """Whether the provider would take the list. What was recorded broken is not our doing."""
        if sent is host:
            return
        read, dialect = self.recording.messages, self.recording.dialect
        problems = dialect.problems(
            [read[self.places[id(raw)]] if id(raw) in self.places else self.made[id(raw)][1] for raw in sent]
        )
        if problems and not dialect.problems(read[: len(host)]):
            self.result.invalid += 1
            if len(self.result.problems) < 3:
                self.result.problems.append(f"call {len(self.result.series)}: {problems[0].message}")

    def _remember(self, span: Span, needs: Sequence[Need], sent: Sequence[Any]) -> None:
        """Whether the agent still had what it then used."""
        result = self.result
        result.needs += len(needs)
        if result.series[-1] > result.window:
            result.lost += len(needs)  # the provider refuses it: an agent without an answer has nothing
            return
        places, made = self.places, self.made
        kept = {places[id(raw)] for raw in sent if id(raw) in places}
        if len(kept) == span.start:
            return
        written = [made[id(raw)][1] for raw in sent if id(raw) in made]
        text = "\n".join(words_of(message) for message in written)
        lost = [n for n in needs if kept.isdisjoint(n.said) and not contains_whole(text, n.key)]
        result.lost += len(lost)
        if lost and (result.moment is None or len(lost) > result.moment.count):
            result.moment = self._moment(span, lost, kept, text)

    def _moment(self, span: Span, lost: Sequence[Need], kept: set[int], text: str) -> Moment:
        return Moment(
            call=len(self.result.series),
            message=span.start,
            count=len(lost),
            lost=[self._where(need) for need in lost[:_NAMED]],
            before=self.scales.fixed + sum(self.scales.tokens[: span.start]),
            after=self.result.series[-1],
            shape="".join(
                m.role[0].upper() if i in kept else m.role[0]
                for i, m in enumerate(self.recording.messages[: span.start])
            ),
            summary=redact(text[:_SHOWN]),
        )

    def _where(self, need: Need) -> tuple[str, int, str]:
        """A lost fact, the message it was last said in, and the words around it."""
        place = need.said[-1]
        words = words_of(self.recording.messages[place])
        at, around = max(0, words.find(need.text)), _SHOWN // 40
        said = redact(" ".join(words[max(0, at - around) : at + len(need.text) + around].split()))
        return redact(need.text), place, said

    def _summarizer(self) -> Summarizer | None:
        """The policy's summarizer, with its bill; None when the built-in one is to write."""
        asked = summarizer_for(self.config.summary)
        if asked is None:
            return None
        count, default = self.scales.tally.count, self.config.summary.model

        def summarize(ask: Ask) -> Any:
            answer = asked(ask)
            if isinstance(answer, str):
                used = answer.tokens if isinstance(answer, Written) else None
                used = used or (sum(count(str(m["content"])) for m in ask.messages), count(answer))
                named = answer.model if isinstance(answer, Written) else None
                self.bill.add_summary(named or default, *used)
            return answer

        return summarize
