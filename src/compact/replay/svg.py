"""SVG elements of plots: scales, ticks, axes, markers, and labels that overlap nothing.

Owns: `Box`, `PlotArea`, and the SVG of each element. Must never: know what is drawn, or let a name be interpreted as
SVG.

Colours are classes (`c0`, `c1`, …) for which the page's style sheet has a light and a dark value. Each name also has
a marker shape, so that plots can be read without colours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from typing import NamedTuple

_COLOURS = 6
"""Classes in the style sheet. The seventh name has the first one's colour, and another marker."""
_LETTER, LINE = 6.6, 14
"""Pixels of a label: the width of a wide letter, and the height of a line."""

NumberFormat = Callable[[float], str]
"""Formats a number on an axis."""


class Box(NamedTuple):
    """A rectangle by its top left corner."""

    x: float
    y: float
    width: float
    height: float

    def intersects(self, other: Box) -> bool:
        """Whether the two overlap."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )

    def contains(self, other: Box) -> bool:
        """Whether the other is inside."""
        return (
            self.x <= other.x
            and self.y <= other.y
            and other.x + other.width <= self.x + self.width
            and other.y + other.height <= self.y + self.height
        )


class PlotArea(NamedTuple):
    """The area of a plot, and the range of values in it."""

    paper: Box
    left: float
    right: float
    low: float
    high: float

    def x(self, value: float) -> float:
        """The horizontal position of a value."""
        return self.paper.x + self.paper.width * (value - self.left) / ((self.right - self.left) or 1)

    def y(self, value: float) -> float:
        """The vertical position of a value."""
        return self.paper.y + self.paper.height * (1 - (value - self.low) / ((self.high - self.low) or 1))


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from `low` to `high`: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** floor(log10(raw))
    step = power * next((factor for factor in (1, 2, 5) if factor * power >= raw), 10)
    digits = max(0, -floor(log10(step)))
    return [round(number * step, digits) for number in range(ceil(low / step), floor(high / step) + 1)]


def colour(number: int | None) -> str:
    """The CSS class of a colour."""
    return "ref" if number is None else f"c{number % _COLOURS}"


def marker(number: int | None, x: float = 6, y: float = 6, size: float = 4, title: str = "") -> str:
    """A marker: circle, square, triangle, diamond, inverted triangle, cross; a ring for the reference."""
    inside = f"<title>{escape(title)}</title>" if title else ""
    if number is None:
        return f'<circle class="mark ref" cx="{x:.1f}" cy="{y:.1f}" r="{size:g}">{inside}</circle>'
    outline = _SHAPES[(number + number // _COLOURS) % len(_SHAPES)]
    if outline is None:
        return f'<circle class="mark {colour(number)}" cx="{x:.1f}" cy="{y:.1f}" r="{size:g}">{inside}</circle>'
    corners = " ".join(f"{x + size * right:.1f},{y + size * down:.1f}" for right, down in outline)
    return f'<polygon class="mark {colour(number)}" points="{corners}">{inside}</polygon>'


_THIN, _WIDE = 0.35, 1.1
_SHAPES: tuple[tuple[tuple[float, float], ...] | None, ...] = (
    None,
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    ((0, -1.2), (1.15, 0.9), (-1.15, 0.9)),
    ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    ((0, 1.2), (1.15, -0.9), (-1.15, -0.9)),
    (
        (-_THIN, -_WIDE), (_THIN, -_WIDE), (_THIN, -_THIN), (_WIDE, -_THIN), (_WIDE, _THIN), (_THIN, _THIN),
        (_THIN, _WIDE), (-_THIN, _WIDE), (-_THIN, _THIN), (-_WIDE, _THIN), (-_WIDE, -_THIN), (-_THIN, -_THIN),
    ),
)  # fmt: skip


def labels(
    places: Sequence[tuple[float, float]], names: Sequence[str], paper: Box, line: Sequence[tuple[float, float]] = ()
) -> list[Box]:
    """A box for each name, near its point, without overlapping markers, other names and the line if possible."""
    taken = [Box(x - 7, y - 7, 14, 14) for x, y in places]
    drawn = [
        Box(min(x, right) - 1, min(y, down) - 1, abs(right - x) + 2, abs(down - y) + 2)
        for (x, y), (right, down) in pairwise(line)
    ]
    found: list[Box] = []
    for (x, y), name in zip(places, names, strict=True):
        width = _LETTER * len(name) + 4
        tried = [
            Box(x + right - (0 if right > 0 else width if right < 0 else width / 2), y + down - LINE / 2, width, LINE)
            for ring in range(1, 14)
            for right, down in _around(ring)
        ]
        inside = [box for box in tried if paper.contains(box)] or [
            Box(min(max(paper.x, box.x), paper.x + paper.width - width), box.y, width, LINE) for box in tried
        ]
        free = [box for box in inside if not any(box.intersects(other) for other in taken)]
        best = next((box for box in free if not any(box.intersects(other) for other in drawn)), (free or inside)[0])
        taken.append(best)
        found.append(best)
    return found


def _around(ring: int) -> Sequence[tuple[float, float]]:
    """Offsets to try, the nearest first: right, left, above, below, and diagonal."""
    side, up = 10 + 4 * (ring - 1), 15.0 * ring
    if ring == 1:
        return ((side, 0), (-side, 0), (0, -up), (0, up), (side, -up), (side, up), (-side, -up), (-side, up))
    return ((0, -up), (0, up), (side, -up), (side, up), (-side, -up), (-side, up))


def axes(frame: PlotArea, names: tuple[str, str], written: tuple[NumberFormat, NumberFormat], wide: bool) -> list[str]:
    """Both axes with round numbers, and a grid line at each number of the vertical one."""
    paper = frame.paper
    bottom = paper.y + paper.height
    parts = []
    for value in ticks(frame.low, frame.high, 5):
        y = frame.y(value)
        parts.append(f'<path class="grid" d="M{paper.x:g} {y:.1f}H{paper.x + paper.width:g}"/>')
        parts.append(text_element(paper.x - 6, y + 4, written[1](value), "tick", "end"))
    for value in ticks(frame.left, frame.right, 8 if wide else 4):
        x = frame.x(value)
        parts.append(f'<path class="grid" d="M{x:.1f} {bottom:g}v4"/>')
        parts.append(text_element(x, bottom + 16, written[0](value), "tick", "middle"))
    parts.append(text_element(paper.x + paper.width, bottom + 31, f"{names[0]} →", "axis", "end"))
    parts.append(text_element(0, 9, f"↑ {names[1]}", "axis"))
    parts.append(f'<path class="base" d="M{paper.x:g} {bottom:g}H{paper.x + paper.width:g}"/>')
    return parts


def text_element(x: float, y: float, text: str, kind: str, anchor: str = "start", title: str = "") -> str:
    """A text; `title` is the full text of a truncated one."""
    more = f"<title>{escape(title)}</title>" if title and title != text else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}{more}</text>'


def truncate(name: str, most: int) -> str:
    """A name of at most `most` letters."""
    return name if len(name) <= most else name[: most - 1] + "…"


def svg_document(size: Box, parts: Iterable[str], title: str) -> str:
    """The SVG document, scaled to the width on the page."""
    return (
        f'<svg class="plot" role="img" aria-label="{escape(title)}" viewBox="0 0 {size.width:g} {size.height:g}">'
        f"{''.join(parts)}</svg>"
    )
