"""What a run would have cost, with the provider's prices for cached input.

Owns: `Bill`. Must never: know a policy, or guess a price.

A provider finds in its cache what a request has in common with the one before, from the first token on. A fold changes
the list near its beginning, so what follows is paid in full once more: that is its price, beside the summary's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..config.model_catalog import Caching, cost_of, rates_of

__all__ = ["Bill"]


@dataclass
class Bill:
    """Adds up requests, one after the other."""

    model: str
    caching: Caching | None
    """None: nothing is cached."""
    prices: dict[str, tuple[float, float]] = field(default_factory=dict)
    sent: int = 0
    cached: int = 0
    written: int = 0
    """Tokens that were put into the cache, at the price of that."""
    answered: int = 0
    summaries: float | None = 0.0
    """What the summarizer cost; None when its price is not known."""
    _before: Sequence[Any] = ()
    _time: float | None = None

    def add(self, fixed: int, messages: Sequence[Any], tokens: Sequence[int], answer: int, time: float | None) -> None:
        """One request: `fixed` tokens of tools, the messages as objects, what each weighs, and what came back.

        Two messages are the same for the provider when they are the same object here.
        """
        total = fixed + sum(tokens)
        found = 0
        caching = self.caching
        if caching is not None:
            late = time is not None and self._time is not None and time - self._time > caching.seconds
            if self._before and not late:
                found = fixed + sum(tokens[: _common(self._before, messages)])
                found = found - found % caching.step if found >= caching.least else 0
            self.written += total - found if total >= caching.least else 0
        self.sent += total
        self.cached += found
        self.answered += answer
        self._before, self._time = messages, time

    def add_summary(self, model: str | None, asked: int, answered: int) -> None:
        """One call of the summarizer."""
        cost = cost_of(model, asked, answered, self.prices)
        self.summaries = None if cost is None or self.summaries is None else self.summaries + cost

    @property
    def total(self) -> float | None:
        """US dollars; None when a price is not known."""
        rates = rates_of(self.model, self.prices)
        if rates is None or self.summaries is None:
            return None
        read, write = (self.caching.read, self.caching.write) if self.caching is not None else (1.0, 1.0)
        plain = self.sent - self.cached - self.written
        paid = plain + self.cached * read + self.written * write
        return round((paid * rates[0] + self.answered * rates[1]) / 1_000_000 + self.summaries, 6)


def _common(before: Sequence[Any], now: Sequence[Any]) -> int:
    """How many messages two lists begin with alike."""
    for number, (old, new) in enumerate(zip(before, now, strict=False)):
        if old is not new:
            return number
    return min(len(before), len(now))
