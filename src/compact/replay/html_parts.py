"""The small parts that a page of the report is made of: a name with its mark, a row, a table.

Owns: their HTML. Must never: know what a table is about, or take a name for anything but text.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from .svg import marker

__all__ = ["legend_entry", "row", "table"]

_TEXTS = frozenset({"policy", "was missing"})
"""Columns of words; all others but the first are of numbers."""


def legend_entry(name: str, number: int | None) -> str:
    """A name behind its mark."""
    return f'<svg class="key" viewBox="0 0 12 12" aria-hidden="true">{marker(number)}</svg><bdi>{escape(name)}</bdi>'


def table(heads: Iterable[str], rows: Iterable[str], kind: str = "") -> str:
    """A table. Its rows are HTML."""
    top = "".join(f'<th class="{"left" if head in _TEXTS else ""}" scope="col">{escape(head)}</th>' for head in heads)
    return f'<table class="{kind}"><thead><tr>{top}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def row(cells: Iterable[tuple[str, str]], kind: str = "") -> str:
    """A row of cells: the class and the HTML of each."""
    inside = "".join(f'<td class="{name}">{html}</td>' if name else f"<td>{html}</td>" for name, html in cells)
    return f'<tr class="{kind}">{inside}</tr>' if kind else f"<tr>{inside}</tr>"
