"""Plots as SVG: tokens by call, cost by fidelity, and bars.

Owns: the content of each plot, and what it leaves out when there is no room.
Must never: know a policy or a result, or use the network. The same numbers give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import ceil
from typing import NamedTuple

from .svg import LINE, Box, NumberFormat, PlotArea, axes, colour, labels, marker, svg_document, text_element, truncate

_APART = 5
"""The least distance of two markers on one line, in pixels."""
_ABOVE = 2
"""The reference line is drawn up to this many times the limit; above that it would flatten the others."""


class PlotLine(NamedTuple):
    """Values at 1, 2, 3 …, and the indices of those with a marker. Number None is the reference."""

    name: str
    values: Sequence[int]
    marked: Sequence[int] = ()
    number: int | None = None


class Point(NamedTuple):
    """A point, and its tooltip. Number None is the reference."""

    name: str
    x: float
    y: float
    number: int | None = None
    title: str = ""


def thin_out(values: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Indices and values, about `most` of them: of each interval the smallest and the largest, so peaks stay."""
    size = ceil(2 * len(values) / most)
    if len(values) <= most:
        return list(enumerate(values))
    places: set[int] = {0, len(values) - 1}
    for start in range(0, len(values), size):
        stretch = range(start, min(start + size, len(values)))
        places |= {min(stretch, key=values.__getitem__), max(stretch, key=values.__getitem__)}
    return [(place, values[place]) for place in sorted(places)]


def line_plot(drawn: Sequence[PlotLine], limit: int, written: NumberFormat, *, wide: bool, title: str) -> str:
    """Values by index, with a line for the limit, and markers for compactions."""
    size = Box(0, 0, 1040, 360) if wide else Box(0, 0, 360, 260)
    names = 118 if wide else 8
    count = max((len(line.values) for line in drawn), default=1)
    ours = max((max(line.values, default=0) for line in drawn if line.number is not None), default=0)
    all_ = max((max(line.values, default=0) for line in drawn), default=0)
    high = max(1.08 * ours, 1.12 * limit, min(1.05 * all_, _ABOVE * limit))
    frame = PlotArea(Box(46, 14, size.width - 46 - names, size.height - 50), 1, max(2, count), 0, high)
    parts = axes(frame, ("call of the model", "tokens in the request"), (lambda call: f"{call:,.0f}", written), wide)
    height = frame.y(limit)
    parts.append(
        f'<path class="limit" d="M{frame.paper.x:g} {height:.1f}H{frame.paper.x + frame.paper.width:g}">'
        f"<title>the window, {limit:,} tokens</title></path>"
        f'<text class="of-limit" x="{frame.paper.x + 4:g}" y="{height - 4:.1f}">window {escape(written(limit))}</text>'
    )
    # Lines are cut at the top of the area: an inner SVG shows nothing outside of its box.
    inner = frame.paper
    parts.append(
        f'<svg x="{inner.x:g}" y="{inner.y:g}" width="{inner.width:g}" height="{inner.height:g}" '
        f'viewBox="{inner.x:g} {inner.y:g} {inner.width:g} {inner.height:g}">'
    )
    for line in drawn:
        path = "L".join(f"{frame.x(at + 1):.1f} {frame.y(value):.1f}" for at, value in thin_out(line.values, 700))
        if path:
            parts.append(
                f'<path class="line {colour(line.number)}" d="M{path}"><title>{escape(line.name)}</title></path>'
            )
    for line in sorted(drawn, key=lambda line: -len(line.marked)):  # few markers are not hidden by many
        parts += _markers(frame, line)
    parts.append("</svg>")
    if wide:
        parts += _end_names(frame, drawn, written)
    return svg_document(size, parts, title)


def _markers(frame: PlotArea, line: PlotLine) -> Iterable[str]:
    last = float("-inf")
    size = 1.5 if len(line.marked) * _APART > frame.paper.width / 4 else 3
    for at in line.marked:
        if (x := frame.x(at + 1)) - last >= _APART:
            last = x
            value = line.values[at]
            yield marker(
                line.number,
                x,
                frame.y(value),
                size,
                f"{line.name}, call {at + 1:,}: {value:,} tokens after a compaction",
            )


def _end_names(frame: PlotArea, drawn: Sequence[PlotLine], written: NumberFormat) -> Iterable[str]:
    """The names beside the ends of their lines, moved apart where they would overlap."""
    edge = frame.paper.x + frame.paper.width + 8
    lowest = frame.paper.y + frame.paper.height
    ends = sorted(
        (max(frame.paper.y + 4, frame.y(line.values[-1])), order, line)
        for order, line in enumerate(drawn)
        if line.values
    )
    at = 0.0
    for left, (wanted, _, line) in zip(range(len(ends) - 1, -1, -1), ends, strict=True):
        at = max(at, min(wanted, lowest - LINE * left))
        gone = f" {written(line.values[-1])} ↑" if line.values[-1] > frame.high else ""
        yield text_element(
            edge, at + 4, truncate(line.name, 16 - len(gone)) + gone, f"name {colour(line.number)}", title=line.name
        )
        at += LINE


def scatter_plot(
    points: Sequence[Point], edge: Sequence[int], written: tuple[NumberFormat, NumberFormat], *, wide: bool
) -> str:
    """Fidelity by cost, with the best edge: steps that have no point above and to the left.

    `edge` are indices of `points`, from the left. A reference far from the others is drawn at the margin, with an arrow
    and its numbers.
    """
    size = Box(0, 0, 1040, 380) if wide else Box(0, 0, 360, 300)
    ours = [point for point in points if point.number is not None] or points
    left, right = _padded_range([point.x for point in ours], 0, float("inf"))
    low, high = _padded_range([point.y for point in ours], 0, 1)
    for point in points:
        if point.x <= 2 * right - left:
            right = max(right, point.x + 0.06 * (point.x - left))
        if point.y <= 2 * high - low:
            high = max(high, point.y)
    frame = PlotArea(Box(52, 14, size.width - 68, size.height - 54), left, right, low, high)
    inner = frame.paper
    parts = axes(frame, ("cost", "fidelity"), written, wide)
    places, names = [], []
    for point in points:
        x, y = min(frame.x(point.x), inner.x + inner.width), max(frame.y(point.y), inner.y)
        away = (x, y) != (frame.x(point.x), frame.y(point.y))
        places.append((x, y))
        names.append(truncate(point.name, 24) + (f" ({written[0](point.x)}, {written[1](point.y)}) ↗" if away else ""))
    steps = _steps([places[at] for at in edge], inner)
    if steps:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in steps)
        tooltip = "<title>the best edge: no policy was both cheaper and better</title>"
        parts.append(f'<path class="edge" d="M{path}">{tooltip}</path>')
    marks = [marker(point.number, *place, 6, point.title) for point, place in zip(points, places, strict=True)]
    for point, (x, y), name, box in zip(points, places, names, labels(places, names, inner, steps), strict=True):
        near, middle = min(max(x, box.x), box.x + box.width), box.y + box.height / 2
        if abs(near - x) > 16 or abs(middle - y) > 22:
            parts.append(f'<path class="leader" d="M{x:.1f} {y:.1f}L{near:.1f} {middle:.1f}"/>')
        parts.append(text_element(box.x + 2, box.y + 11, name, f"name {colour(point.number)}", title=point.name))
    return svg_document(size, [*parts, *marks], "cost against fidelity")


def _steps(edge: Sequence[tuple[float, float]], paper: Box) -> list[tuple[float, float]]:
    """The corners of the best edge, from the bottom to the right margin."""
    if not edge:
        return []
    corners = [(edge[0][0], paper.y + paper.height), edge[0]]
    for x, y in edge[1:]:
        corners += [(x, corners[-1][1]), (x, y)]
    return [*corners, (paper.x + paper.width, corners[-1][1])]


def bar_svg(share: float, number: int | None) -> str:
    """A share of one as a bar; the style sheet sets its size."""
    width = 100 * min(1.0, max(0.0, share))
    return (
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="mark {colour(number)}" width="{width:.2f}" height="8"/></svg>'
    )


def _padded_range(values: Sequence[float], least: float, most: float) -> tuple[float, float]:
    """The range of the values with a margin, within `least` and `most`."""
    low, high = min(values), max(values)
    room = (high - low) * 0.15 or abs(high) * 0.1 or 0.1
    return max(least, low - room), min(most, high + room)
