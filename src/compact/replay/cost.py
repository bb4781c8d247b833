"""Tokens and cost of requests, with the provider's prices for cached input.

Owns: `RequestTotals` (the sums that every report uses) and `RequestCosts` (which adds up the requests of one run).
Must never: know a policy, or guess a price.

A provider finds in its cache what a request has in common with the one before, from the first token on. A compaction
changes the list near its beginning, so what follows is paid in full once more: that is its price, beside the summary's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from ..config.model_catalog import Caching, cost_of, rates_of


class RequestTotals(NamedTuple):
    """Sums over requests. `Result` and `Sums` have these fields twice: with the policy, and `untouched_` by it."""

    sent: int = 0
    cached: int = 0
    cost: float | None = 0.0
    largest: int = 0
    over: int = 0

    @classmethod
    def of(cls, owner: Any, prefix: str = "") -> Self:
        """The totals in the fields of a `Result` or `Sums`."""
        return cls(*(getattr(owner, prefix + name) for name in cls._fields))

    def store(self, owner: Any, prefix: str = "") -> None:
        """Set the fields of a `Result` or `Sums`."""
        for name, value in zip(self._fields, self, strict=True):
            setattr(owner, prefix + name, value)

    def plus(self, other: RequestTotals) -> RequestTotals:
        """The totals of both."""
        return RequestTotals(
            self.sent + other.sent,
            self.cached + other.cached,
            add_costs(self.cost, other.cost),
            max(self.largest, other.largest),
            self.over + other.over,
        )


@dataclass
class RequestCosts:
    """Adds up the requests of one run, in their order."""

    model: str
    caching: Caching | None
    """None: nothing is cached."""
    prices: dict[str, tuple[float, float]] = field(default_factory=dict)
    series: list[int] = field(default_factory=list)
    """Tokens of each request."""
    cached: int = 0
    written: int = 0
    """Tokens that were written to the cache, at the price for that."""
    answered: int = 0
    summaries: float | None = 0.0
    """What the summarizer cost; None when its price is not known."""
    _before: Sequence[Any] = ()
    _time: float | None = None

    def add(self, fixed: int, messages: Sequence[Any], tokens: Sequence[int], answer: int, time: float | None) -> None:
        """Add one request: `fixed` tokens of tools, the messages as objects, the tokens of each and of the answer.

        Two messages are the same for the provider when they are the same object here.
        """
        total = fixed + sum(tokens)
        found = 0
        caching = self.caching
        if caching is not None:
            late = time is not None and self._time is not None and time - self._time > caching.seconds
            if self._before and not late:
                found = fixed + sum(tokens[: _common_prefix(self._before, messages)])
                found = found - found % caching.step if found >= caching.least else 0
            self.written += total - found if total >= caching.least else 0
        self.series.append(total)
        self.cached += found
        self.answered += answer
        self._before, self._time = messages, time

    def add_summary(self, model: str | None, asked: int, answered: int) -> None:
        """Add one call of the summarizer."""
        self.summaries = add_costs(self.summaries, cost_of(model, asked, answered, self.prices))

    def totals(self, window: int) -> RequestTotals:
        """The sums; `over` counts the requests above the window."""
        over = sum(tokens > window for tokens in self.series)
        return RequestTotals(sum(self.series), self.cached, self._cost(), max(self.series, default=0), over)

    def _cost(self) -> float | None:
        """US dollars; None when a price is not known."""
        rates = rates_of(self.model, self.prices)
        if rates is None or self.summaries is None:
            return None
        read, write = (self.caching.read, self.caching.write) if self.caching is not None else (1.0, 1.0)
        plain = sum(self.series) - self.cached - self.written
        paid = plain + self.cached * read + self.written * write
        return round((paid * rates[0] + self.answered * rates[1]) / 1_000_000 + self.summaries, 6)


def add_costs(one: float | None, other: float | None) -> float | None:
    """The sum of two costs; None when one is not known."""
    return None if one is None or other is None else one + other


def _common_prefix(before: Sequence[Any], now: Sequence[Any]) -> int:
    """How many messages two lists begin with alike."""
    for number, (old, new) in enumerate(zip(before, now, strict=False)):
        if old is not new:
            return number
    return min(len(before), len(now))
