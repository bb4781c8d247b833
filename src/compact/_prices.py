"""What a summarizer's call costs.

Owns: the prices known to the library. Must never: guess; a model that is not listed has no price.
"""

from __future__ import annotations

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
    "claude-3-5-haiku": (0.80, 4.00),
    "claude-haiku-4-5": (1.00, 5.00),
    "claude-sonnet-4": (3.00, 15.00),
    "claude-opus-4": (15.00, 75.00),
}
"""US dollars per million tokens, input and output, as the vendors listed them in autumn 2025; by longest prefix."""


def cost_of(model: str | None, input_tokens: int, output_tokens: int) -> float | None:
    """What a call costs in US dollars; None when the model has no listed price."""
    known = [name for name in PRICES if model and model.rpartition("/")[2].startswith(name)]
    if not known:
        return None
    price_in, price_out = PRICES[max(known, key=len)]
    return round((input_tokens * price_in + output_tokens * price_out) / 1_000_000, 6)
