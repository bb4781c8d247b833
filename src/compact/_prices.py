"""What a summarizer's call costs.

Owns: the one table of prices, and looking a model up in it. Must never: guess; a model that is not listed has no price.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["PRICES", "cost_of"]

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

_DATE = re.compile(r"-(latest|\d{4}(-?\d{2}-?\d{2})?)$")


def cost_of(
    model: str | None, input_tokens: int, output_tokens: int, prices: Mapping[str, tuple[float, float]] | None = None
) -> float | None:
    """What a call costs in US dollars, by `prices` and then by the table; None when neither lists the model.

    A model is looked up by its whole name, then without the provider in front, then without the date behind.
    """
    if not model:
        return None
    known = {**PRICES, **(prices or {})}
    short = model.rpartition("/")[2]
    price = next((known[name] for name in (model, short, _DATE.sub("", short)) if name in known), None)
    if price is None:
        return None
    return round((input_tokens * price[0] + output_tokens * price[1]) / 1_000_000, 6)
