"""Replays one recorded conversation under one policy, call by call.

Owns: `run`, and how each field of a result is computed. Must never: store a message, or keep anything between two runs.

The simulated application is the common kind: it passes its whole recorded list at every call. So a compaction has to
be replayed from memory, as it is inside every framework.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from .._conversation.message import Message
from .._conversation.tokens import message_tokens
from .._engine.manager import CompactManager
from .._facts.measure import contains_whole
from .._redaction import redact
from .._summary.request import Ask
from ..config import CompactConfig
from ..errors import CompactError, InsufficientBudget
from ..summarizers import Summarizer, Written, summarizer_for
from .cost import RequestCosts
from .recording import ModelCall, Need, Recording, RecordingTokens, text_of
from .results import Moment, Result
from .trial import Setting, Trial

_SESSION = "replay"
_SHOWN = 4000
"""Characters of a summary that a result keeps; around a lost value it keeps a fortieth of that."""
_NAMED = 12
"""Lost values that a result names."""


def run(recording: Recording, trial: Trial, setting: Setting) -> Result:
    """Replay a conversation under a policy. A failure is a result too, with its error."""
    conversation = recording.conversation
    result = Result(conversation=conversation.id, source=conversation.source, policy=trial.name)
    try:
        config = setting.config_for(recording, trial)
        with _quiet():
            _Run(recording, config, setting, result).replay_calls()
    except CompactError as error:
        result.error = str(error)
    return result


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the library's warnings: there would be thousands, and the result has their numbers."""
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
        self.counted: RecordingTokens = recording.count(config.model, config.counter)
        prices = {**config.summary.prices, **setting.prices}
        caching = setting.caching_for(config.model)
        self.costs, self.untouched = (RequestCosts(config.model, caching, prices) for _ in range(2))
        self.tokens = {id(raw): self.counted.tokens[i] for i, raw in enumerate(recording.conversation.messages)}
        self.places = {id(raw): i for i, raw in enumerate(recording.conversation.messages)}
        self.made: dict[int, tuple[Any, Message]] = {}
        """Messages that compactions made, by the object's id; holding the object keeps its id unique."""

    def replay_calls(self) -> None:
        """Replay all calls in their order."""
        recording, result = self.recording, self.result
        conversation = recording.conversation
        result.model, result.window = self.config.model, self.config.window
        result.messages, result.calls = len(recording.messages), len(recording.calls)
        result.series, result.untouched_series = self.costs.series, self.untouched.series
        host: list[Any] = []
        folds = 0
        with CompactManager(self.config, summarizer=self._summarizer(), store=None) as manager:
            for call, needs in zip(recording.calls, recording.needs, strict=True):
                host.extend(conversation.messages[len(host) : call.start])
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
                self._add_costs(call, host, sent)
                self._check_validity(host, sent)
                self._check_needs(call, needs, sent)
        result.folds = folds
        result.loops = sum(b - a == 1 for a, b in zip(result.folded_at, result.folded_at[1:], strict=False))
        result.summaries = self.costs.summaries
        self.costs.totals(result.window).store(result)
        self.untouched.totals(result.window).store(result, "untouched_")

    def _add_costs(self, call: ModelCall, host: Sequence[Any], sent: Sequence[Any]) -> None:
        """Add the request as it is sent, and as it was recorded."""
        times = self.recording.conversation.times
        time = times[call.start] if times is not None else None
        fixed, before = self.counted.fixed, self.counted.tokens[: call.start]
        answer = sum(self.counted.tokens[call.start : call.end])
        self.costs.add(fixed, list(sent), [self._tokens_of(raw) for raw in sent], answer, time)
        self.untouched.add(fixed, host[: call.start], before, answer, time)

    def _tokens_of(self, raw: Any) -> int:
        if id(raw) not in self.tokens:
            message = self.recording.format.read(raw)
            self.made[id(raw)] = raw, message
            self.tokens[id(raw)] = message_tokens(message, self.counted.counter)
        return self.tokens[id(raw)]

    def _check_validity(self, host: Sequence[Any], sent: Sequence[Any]) -> None:
        """Whether the provider would accept the list. A list that was recorded invalid does not count."""
        if sent is host:
            return
        read, rules = self.recording.messages, self.recording.format
        problems = rules.problems(
            [read[self.places[id(raw)]] if id(raw) in self.places else self.made[id(raw)][1] for raw in sent]
        )
        if problems and not rules.problems(read[: len(host)]):
            self.result.invalid += 1
            if len(self.result.problems) < 3:
                self.result.problems.append(f"call {len(self.result.series)}: {problems[0].message}")

    def _check_needs(self, call: ModelCall, needs: Sequence[Need], sent: Sequence[Any]) -> None:
        """Whether the context still held the values that the agent then used."""
        result = self.result
        result.needs += len(needs)
        if result.series[-1] > result.window:
            result.lost += len(needs)  # the provider refuses the request, so nothing in it reaches the model
            return
        places, made = self.places, self.made
        kept = {places[id(raw)] for raw in sent if id(raw) in places}
        if len(kept) == call.start:
            return
        written = [made[id(raw)][1] for raw in sent if id(raw) in made]
        text = "\n".join(text_of(message) for message in written)
        lost = [n for n in needs if kept.isdisjoint(n.places) and not contains_whole(text, n.key)]
        result.lost += len(lost)
        if lost and (result.moment is None or len(lost) > result.moment.count):
            result.moment = self._moment(call, lost, kept, text)

    def _moment(self, call: ModelCall, lost: Sequence[Need], kept: set[int], text: str) -> Moment:
        return Moment(
            call=len(self.result.series),
            message=call.start,
            count=len(lost),
            lost=[self._describe_lost(need) for need in lost[:_NAMED]],
            before=self.result.untouched_series[-1],
            after=self.result.series[-1],
            shape="".join(
                m.role[0].upper() if i in kept else m.role[0]
                for i, m in enumerate(self.recording.messages[: call.start])
            ),
            summary=redact(text[:_SHOWN]),
        )

    def _describe_lost(self, need: Need) -> tuple[str, int, str]:
        """A lost value, the message that held it last, and the text around it."""
        place = need.places[-1]
        words = text_of(self.recording.messages[place])
        at, around = max(0, words.find(need.text)), _SHOWN // 40
        excerpt = redact(" ".join(words[max(0, at - around) : at + len(need.text) + around].split()))
        return redact(need.text), place, excerpt

    def _summarizer(self) -> Summarizer | None:
        """The policy's summarizer, with its costs added up; None for the built-in one."""
        asked = summarizer_for(self.config.summary)
        if asked is None:
            return None
        count, default = self.counted.counter.count, self.config.summary.model

        def summarize(ask: Ask) -> Any:
            answer = asked(ask)
            if isinstance(answer, str):
                used = answer.tokens if isinstance(answer, Written) else None
                used = used or (sum(count(str(m["content"])) for m in ask.messages), count(answer))
                named = answer.model if isinstance(answer, Written) else None
                self.costs.add_summary(named or default, *used)
            return answer

        return summarize
