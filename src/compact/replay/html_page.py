"""The report as one HTML file that needs no network.

Owns: `page`, and the layout of its parts. Must never: contain a script, or let a text be interpreted as HTML.

The conversation that is shown is chosen by radio buttons and the style sheet alone, so the content security policy of
the page allows that style sheet, by its hash, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from string import Template

from .. import __version__
from ..errors import CompactError
from .comparison import SHOWN_SERIES, Comparison, RequestSeries
from .html_parts import legend_entry, row, table
from .lab import Lab
from .number_format import money, percent, short
from .plots import PlotLine, Point, bar_svg, line_plot, scatter_plot
from .report import COLUMNS, SAVED, UNTOUCHED, findings, setting_line, untouched_sums
from .worst_moments import moment_article, worst_table

_FILES = Path(__file__).with_name("page")
_SOURCES = 12
"""Sources that have bars; the JSON has all."""

Numbers = Mapping[str, int]
"""The number of each policy, which selects its colour and marker."""


def page(lab: Lab, comparison: Comparison) -> str:
    """The report of a run as HTML."""
    numbers = {sums.policy: number for number, sums in enumerate(comparison.policies)}
    style = _read_file("report.css").replace("$choices", _choice_rules())
    sheet = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    made = Template(_read_file("report.html")).substitute(
        policy=escape(f"default-src 'none'; style-src 'sha256-{sheet}'; base-uri 'none'; form-action 'none'"),
        style=style,
        setting=escape(setting_line(comparison, lab.setting)),
        findings="".join(
            f'<li class="{finding.kind}">{escape(finding.text)}</li>' for finding in findings(comparison, lab.setting)
        ),
        summary=_summary_table(comparison, numbers),
        courses=_series_figures(comparison.courses, numbers),
        scatter=_scatter_figure(comparison, numbers),
        sources=_sources_table(comparison, numbers),
        worst=worst_table(comparison.worst),
        moments="".join(moment_article(place, worst) for place, worst in enumerate(comparison.worst, 1)),
        version=escape(__version__),
    )
    return made.encode("utf-8", "replace").decode()


@cache
def _read_file(name: str) -> str:
    try:
        return (_FILES / name).read_text("utf-8")
    except OSError as error:
        raise CompactError(
            f"{name} of the report is missing ({error.strerror}). Install agent-compact again."
        ) from error


def _choice_rules() -> str:
    """The CSS rules that show the chosen conversation."""
    shown = ", ".join(f"#course-{n}:checked ~ .of-course-{n}" for n in range(1, SHOWN_SERIES + 1))
    chosen = ", ".join(f'#course-{n}:checked ~ .tabs [for="course-{n}"]' for n in range(1, SHOWN_SERIES + 1))
    focused = ", ".join(f'#course-{n}:focus-visible ~ .tabs [for="course-{n}"]' for n in range(1, SHOWN_SERIES + 1))
    return (
        f"{shown} {{ display: block; }}\n"
        f"{chosen} {{ background: var(--panel); color: var(--ink); box-shadow: 0 1px 2px rgb(0 0 0 / .14); }}\n"
        f"{focused} {{ outline: 2px solid var(--accent); }}"
    )


def _summary_table(comparison: Comparison, numbers: Numbers) -> str:
    rows = []
    for sums in (untouched_sums(comparison.policies), *comparison.policies):
        number = numbers.get(sums.policy) if sums.policy != UNTOUCHED else None
        best = '<span class="chip">best edge</span>' if sums.policy in comparison.edge and len(numbers) > 1 else ""
        cells = [("", legend_entry(sums.policy, number) + best)]
        for column in COLUMNS:
            kind = "measured" if column.is_measured else "bad" if number is not None and column.is_bad(sums) else ""
            cells.append((kind, column.text(sums)))
        rows.append(row(cells, "apart" if number is None else ""))
    return table(["", *(column.name for column in COLUMNS)], rows)


def _series_figures(courses: Sequence[RequestSeries], numbers: Numbers) -> str:
    """A figure for each conversation, of which one is shown."""
    if not courses:
        return '<p class="dim">No conversation could be replayed.</p>'
    inputs, tabs, figures = [], [], []
    for place, course in enumerate(courses, 1):
        checked = " checked" if place == 1 else ""
        inputs.append(f'<input type="radio" name="course" id="course-{place}"{checked}>')
        name = escape(course.conversation)
        tabs.append(f'<label for="course-{place}" title="{name}"><bdi>{name}</bdi></label>')
        figures.append(_series_figure(place, course, numbers))
    chooser = f'<div class="tabs">{"".join(tabs)}</div>' if len(courses) > 1 else ""
    return f'<div class="courses">{"".join(inputs)}{chooser}{"".join(figures)}</div>'


def _series_figure(place: int, course: RequestSeries, numbers: Numbers) -> str:
    drawn = [
        PlotLine(name, values, course.folded_at.get(name, ()), numbers.get(name) if name != UNTOUCHED else None)
        for name, values in course.series.items()
    ]
    calls = max(len(line.values) for line in drawn)
    legend = "".join(f"<span>{legend_entry(line.name, line.number)}</span>" for line in drawn)
    title = f"tokens of each request of {course.conversation}"
    plots = "".join(
        f'<div class="{kind}">{line_plot(drawn, course.window, short, wide=kind == "wide", title=title)}</div>'
        for kind in ("wide", "narrow")
    )
    return (
        f'<figure class="course of-course-{place}"><figcaption><bdi>{escape(course.conversation)}</bdi> '
        f'<span class="dim">from <bdi>{escape(course.source)}</bdi>: {calls:,} calls, '
        f"a window of {course.window:,} tokens. A marker is a compaction.</span></figcaption>"
        f'<div class="legend">{legend}</div>{plots}</figure>'
    )


def _scatter_figure(comparison: Comparison, numbers: Numbers) -> str:
    known = [
        (sums.policy, sums.cost, sums.fidelity)
        for sums in (*comparison.policies, untouched_sums(comparison.policies))
        if sums.cost is not None and sums.fidelity is not None
    ]
    if not any(name in numbers for name, *_ in known):
        return '<p class="dim">No cost or no fidelity is known: see the sentences above.</p>'
    points = [
        Point(name, cost, kept, numbers.get(name), f"{name}: {money(cost)}, fidelity {percent(kept)}")
        for name, cost, kept in known
    ]
    places = {name: place for place, (name, *_) in enumerate(known)}
    edge = [places[name] for name in comparison.edge]
    plots = "".join(
        f'<div class="{kind}">{scatter_plot(points, edge, (money, _format_share), wide=kind == "wide")}</div>'
        for kind in ("wide", "narrow")
    )
    return f'{plots}<p class="dim small">Up and to the left is better. The line is the best edge.</p>'


def _format_share(share: float) -> str:
    return f"{round(100 * share, 2):g}%"


def _bar_with_text(text: str, share: float | None, number: int) -> str:
    return (bar_svg(share, number) if share is not None else "") + f"<span>{text}</span>"


def _sources_table(comparison: Comparison, numbers: Numbers) -> str:
    """Bars for each policy on the largest sources."""
    groups = sorted(comparison.groups.items(), key=lambda group: -group[1][0].untouched_sent)[:_SOURCES]
    dearest = {name: max([one.cost or 0.0 for one in group], default=0.0) or 1.0 for name, group in groups}
    rows = []
    for name, group in groups:
        for place, sums in enumerate(group):
            number = numbers[sums.policy]
            kept, cost = sums.fidelity, sums.cost
            rows.append(
                row(
                    [
                        ("", "" if place else f"<bdi>{escape(name)}</bdi>"),
                        ("left", legend_entry(sums.policy, number)),
                        ("", f"{sums.conversations:,}"),
                        ("", _bar_with_text(percent(kept), kept, number)),
                        ("", _bar_with_text(money(cost), cost and cost / dearest[name], number)),
                        ("bad" if (sums.saved or 0) < 0 else "", SAVED.text(sums)),
                        ("bad" if sums.over else "", f"{sums.over:,}"),
                    ],
                    "" if place else "group",
                )
            )
    more = len(comparison.groups) - len(groups)
    note = f'<p class="dim small">The largest sources; {more:,} more are in the JSON.</p>' if more > 0 else ""
    heads = ("source", "policy", "conversations", "fidelity", "cost", "saved", "over")
    return f'<div class="scroll">{table(heads, rows, "sources")}</div>{note}'
