"""Known models: their prices, what providers charge for cached input, and their windows.

Owns: these tables, and looking up a model in them.
Must never: guess a price: a model that is not listed has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["CACHING", "PRICES", "Caching", "caching_of", "cost_of", "rates_of", "window_of"]

PRICES: Mapping[str, tuple[float, float]] = {
    "gpt-4o": (2.50, 10.00),
    "gpt-4o-mini": (0.15, 0.60),
    "gpt-4.1": (2.00, 8.00),
    "gpt-4.1-mini": (0.40, 1.60),
    "gpt-4.1-nano": (0.10, 0.40),
    "gpt-5": (1.25, 10.00),
    "gpt-5-mini": (0.25, 2.00),
    "gpt-5-nano": (0.05, 0.40),
    "gpt-5.4": (2.50, 15.00),
    "gpt-5.4-mini": (0.75, 4.50),
    "gpt-5.6-luna": (0.20, 1.20),
    "gpt-5.6-terra": (2.00, 12.00),
    "gpt-6-luna": (0.10, 0.50),
    "gpt-6-sol": (2.00, 10.00),
    "claude-3-5-haiku": (0.80, 4.00),
    "claude-haiku-4-5": (1.00, 5.00),
    "claude-haiku-5-5": (0.10, 0.50),
    "claude-sonnet-4": (3.00, 15.00),
    "claude-sonnet-4-5": (3.00, 15.00),
    "claude-sonnet-4-6": (3.00, 15.00),
    "claude-sonnet-5": (2.00, 10.00),
    "claude-sonnet-5-5": (2.00, 10.00),
    "claude-opus-4": (15.00, 75.00),
    "claude-opus-4-1": (15.00, 75.00),
    "claude-opus-4-5": (5.00, 25.00),
    "claude-opus-4-6": (5.00, 25.00),
    "claude-opus-4-7": (5.00, 25.00),
    "claude-opus-5": (5.00, 25.00),
    "claude-opus-5-5": (4.00, 20.00),
}
"""US dollars per million tokens, input and output, as listed in November 2026. Base rates: what a vendor adds for very
long prompts or takes off for cached ones is left out. `summary.prices` adds models and replaces rates."""


class Caching(NamedTuple):
    """What a provider charges for input that begins like an earlier request, as shares of the input price."""

    read: float
    """For a token that was found in the cache."""
    write: float = 1.0
    """For a token that was not."""
    least: int = 1024
    """Tokens below which nothing is cached."""
    step: int = 1
    """Cached tokens come in multiples of this many."""
    seconds: float = 300.0
    """How long an unused beginning is kept."""


CACHING: Mapping[str, Caching] = {
    "claude": Caching(0.1, write=1.25),
    "claude-haiku": Caching(0.1, write=1.25, least=2048),
    "claude-3-5-haiku": Caching(0.1, write=1.25, least=2048),
    "gpt-4o": Caching(0.5, step=128),
    "gpt-4.1": Caching(0.25, step=128),
    "gpt-5": Caching(0.1, step=128),
    "gpt-6": Caching(0.1, step=128),
}
"""By how a model's name begins, the longest that fits; November 2026. Anthropic's is its cache of five minutes, which a
client has to request; OpenAI's is automatic, and is kept for five to ten minutes."""

_DATE = r"-(latest|\d{4}(-?\d{2}-?\d{2})?)$"
"""What a model's name may end with."""

UNKNOWN_WINDOW = 128_000
WINDOWS: Mapping[str, int] = {
    "gpt-3.5-turbo": 16_385,
    "gpt-4": 8_192,
    "gpt-4-turbo": 128_000,
    "gpt-4o": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-5": 400_000,
    "o1": 200_000,
    "o3": 200_000,
    "o4-mini": 200_000,
    "claude": 200_000,
    "gemini": 1_048_576,
}
"""Windows of known models by the beginning of their names; the longest that fits counts."""


def window_of(model: str) -> int:
    """The window of a model in tokens, by its name without a provider in front (`openai/gpt-4o`)."""
    name = model.rpartition("/")[2].lower()
    known = max((prefix for prefix in WINDOWS if name.startswith(prefix)), key=len, default="")
    return WINDOWS.get(known, UNKNOWN_WINDOW)


def cost_of(
    model: str | None, input_tokens: int, output_tokens: int, prices: Mapping[str, tuple[float, float]] | None = None
) -> float | None:
    """What a call costs in US dollars, by `prices` and then by the table; None when neither lists the model.

    A model is looked up by its whole name, then without the provider in front, then without the date behind.
    """
    rates = rates_of(model, prices)
    return None if rates is None else round((input_tokens * rates[0] + output_tokens * rates[1]) / 1_000_000, 6)


def rates_of(model: str | None, prices: Mapping[str, tuple[float, float]] | None = None) -> tuple[float, float] | None:
    """US dollars per million tokens, input and output; None when the model is not listed."""
    if not model:
        return None
    known = {**PRICES, **(prices or {})}
    short = model.rpartition("/")[2]
    return next((known[name] for name in (model, short, re.sub(_DATE, "", short)) if name in known), None)


def caching_of(model: str | None) -> Caching | None:
    """What the model's provider charges for cached input; None when that is not known."""
    name = (model or "").rpartition("/")[2]
    return CACHING.get(max((prefix for prefix in CACHING if name.startswith(prefix)), key=len, default=""))
