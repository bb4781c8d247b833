"""HTML elements of the report page: legend entries, rows, tables.

Owns: their HTML. Must never: know what a table is about, or let a name be interpreted as HTML.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from .svg import marker

_TEXTS = frozenset({"policy", "was missing"})
"""Columns of text; all others but the first hold numbers."""


def legend_entry(name: str, number: int | None) -> str:
    """A name after its marker."""
    return f'<svg class="key" viewBox="0 0 12 12" aria-hidden="true">{marker(number)}</svg><bdi>{escape(name)}</bdi>'


def table(heads: Iterable[str], rows: Iterable[str], kind: str = "") -> str:
    """A table from rows of HTML."""
    top = "".join(f'<th class="{"left" if head in _TEXTS else ""}" scope="col">{escape(head)}</th>' for head in heads)
    return f'<table class="{kind}"><thead><tr>{top}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def row(cells: Iterable[tuple[str, str]], kind: str = "") -> str:
    """A row from cells, each with a class and HTML."""
    inside = "".join(f'<td class="{name}">{html}</td>' if name else f"<td>{html}</td>" for name, html in cells)
    return f'<tr class="{kind}">{inside}</tr>' if kind else f"<tr>{inside}</tr>"
