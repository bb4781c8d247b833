"""Formats the numbers of a report.

Owns: the format of money, shares, tokens and times. Must never: round a loss to no loss.
"""

from __future__ import annotations


def money(dollars: float | None) -> str:
    """US dollars; more digits for small amounts."""
    if dollars is None:
        return "–"
    sign, amount = "−" if dollars < 0 else "", abs(dollars)
    return (
        f"{sign}${amount:,.0f}" if amount >= 1000 else f"{sign}${amount:.2f}" if amount >= 1 else f"{sign}${amount:.4f}"
    )


def percent(share: float | None) -> str:
    """A share of one; less than one never reads as 100 %."""
    if share is None:
        return "–"
    text = f"{abs(share):.1%}"
    text = "99.9%" if text == "100.0%" and abs(share) < 1 else text
    return f"−{text}" if share < 0 and text != "0.0%" else text


def short(number: float) -> str:
    """A number of tokens in about four characters: 950, 18.2k, 5.61M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= 0.9995 * size:
            return f"{number / size:.3g}{letter}" if abs(number) < 999.5 * size else f"{number / size:,.0f}{letter}"
    return f"{number:.3g}"


def seconds(time: float) -> str:
    """A duration."""
    if time >= 90:
        return f"{time / 60:,.1f} min"
    return f"{time:.1f} s" if time >= 1 else f"{time * 1000:.0f} ms"
