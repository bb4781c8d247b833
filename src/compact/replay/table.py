"""The report on a terminal.

Owns: the layout of its tables, and the order of its parts. Must never: be wider than the terminal, or print control
characters of a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from .._events.serialize import escape_controls
from .comparison import Comparison, Sums
from .report import COLUMNS, UNTOUCHED, Column, findings, setting_line, untouched_sums
from .trial import Setting

_WIDE = 132
"""Width of a terminal from which on one table is used."""
_FIRST = 6
"""Columns of the first of two tables: the costs. The second one shows the effect on the agent."""
_SOURCES = 20
"""Sources that are listed; the JSON has all."""
_STYLES = {"good": "green", "warn": "yellow", "bad": "red", "note": "dim"}


def report_parts(comparison: Comparison, setting: Setting, width: int, by_source: bool = False) -> Iterator[Any]:
    """The parts to print, from top to bottom."""
    yield _printable_text(setting_line(comparison, setting) + ".")
    yield ""
    yield from sums_tables([untouched_sums(comparison.policies), *comparison.policies], width)
    if by_source:
        yield ""
        yield from groups_table(comparison.groups, width)
    sentences = findings(comparison, setting)
    if sentences:
        yield ""
    for finding in sentences:
        yield Text.assemble(("• ", _STYLES[finding.kind]), _printable_text(finding.text))


def sums_tables(rows: Sequence[Sums], width: int) -> Iterator[Any]:
    """A row for each of the sums: in one wide table, or in two on a narrow terminal."""
    halves = (COLUMNS,) if width >= _WIDE else (COLUMNS[:_FIRST], COLUMNS[_FIRST:])
    for number, columns in enumerate(halves):
        if number:
            yield ""
        yield _table(
            ["policy"],
            [column.name for column in columns],
            [([sums.policy], [_cell(sums, column) for column in columns]) for sums in rows],
            width,
        )


def groups_table(by_source: Mapping[str, Sequence[Sums]], width: int) -> Iterator[Any]:
    """A row for each policy of each source, the largest sources first."""
    groups = sorted(by_source.items(), key=lambda group: -group[1][0].untouched_sent)
    rows: list[Row] = []
    for source, group in groups[:_SOURCES]:
        for number, sums in enumerate(group):
            cells = [Text(f"{sums.conversations:,}"), *(_cell(sums, column) for column in _FEW)]
            rows.append((["" if number else source, sums.policy], cells))
    yield _table(["source", "policy"], ["runs", *(column.name for column in _FEW)], rows, width)
    if len(groups) > _SOURCES:
        yield f"The largest sources; --json has {len(groups) - _SOURCES:,} more."


_FEW = tuple(column for column in COLUMNS if column.name in ("folds", "cost", "saved", "over", "fidelity"))


def _cell(sums: Sums, column: Column) -> Text:
    is_bad = sums.policy != UNTOUCHED and column.is_bad(sums)
    return Text(column.text(sums), style="bold red" if is_bad else "")


def _table(words: Sequence[str], numbers: Sequence[str], rows: Sequence[Row], width: int) -> Table:
    """A table in which numbers are shown in full, and names share the remaining width."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    taken = sum(max([len(name), *(len(row[1][n]) for row in rows)]) + 2 for n, name in enumerate(numbers))
    for n, name in enumerate(words):
        wanted = max([len(name), *(len(_printable_text(row[0][n])) for row in rows)]) + 2
        granted = min(wanted, max(10, (width - taken) // (len(words) - n)))
        taken += granted
        made.add_column(name, no_wrap=True, overflow="ellipsis", max_width=granted - 2)
    for name in numbers:
        made.add_column(name, justify="right", no_wrap=True)
    for names, cells in rows:
        made.add_row(*map(_printable_text, names), *cells, style="dim" if names[0] == UNTOUCHED else "")
    return made


Row = tuple[Sequence[str], Sequence[Text]]
"""Names, and numbers."""


def _printable_text(text: str) -> Text:
    """Text with control characters escaped."""
    return Text(escape_controls(text))
