"""Lines on log-log paper as one SVG file that is read on light and on dark pages alike.

Owns: the plot of docs/benchmarks.svg. Must never: know what is drawn. The same numbers give the same bytes.

Names stand at the ends of their lines, pushed apart where they would meet. Ours are thick and blue, a floor is dashed,
everybody else is thin and grey, with a mark at each measured point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import ceil, floor, log10
from typing import NamedTuple

from compact.replay.svg import Box, PlotArea, text_element

__all__ = ["Line", "log_log"]

SIZE = Box(0, 0, 1040, 560)
PAPER = Box(64, 34, 560, 470)
ROW = 17
"""Pixels of a name's line."""
STYLE = """
text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1f2328}
.tick,.axis{fill:#59636e}
.title{font-weight:600;font-size:14px}
.grid{stroke:#d1d9e0;stroke-width:1;fill:none}
.base{stroke:#818b98;stroke-width:1;fill:none}
.line{fill:none;stroke:#818b98;stroke-width:1.5;stroke-linejoin:round}
.dot{fill:#818b98}
.ours{stroke:#0969da;stroke-width:3}
.dot.ours{fill:#0969da;stroke:none}
text.ours{fill:#0969da;stroke:none;font-weight:600}
.floor{stroke:#1a7f37;stroke-width:2;stroke-dasharray:5 4}
.dot.floor{fill:#1a7f37;stroke:none}
text.floor{fill:#1a7f37;stroke:none}
.leader{stroke:#818b98;stroke-width:.75;fill:none}
@media (prefers-color-scheme:dark){
text{fill:#f0f6fc}.tick,.axis{fill:#9198a1}.grid{stroke:#3d444d}.base,.line,.leader{stroke:#9198a1}.dot{fill:#9198a1}
.ours{stroke:#4493f8}.dot.ours,text.ours{fill:#4493f8}.floor{stroke:#3fb950}.dot.floor,text.floor{fill:#3fb950}}
"""


class Line(NamedTuple):
    """Points from the left to the right, both values above zero; `kind` is ours, floor or nothing."""

    name: str
    points: Sequence[tuple[float, float]]
    kind: str = ""


def log_log(
    lines: Sequence[Line], title: str, names: tuple[str, str], written: tuple[Callable[[float], str], ...]
) -> str:
    """The whole file."""
    xs = [log10(x) for line in lines for x, _ in line.points]
    ys = [log10(y) for line in lines for _, y in line.points]
    frame = PlotArea(PAPER, min(xs), max(xs), floor(min(ys)), ceil(max(ys)))
    bottom, edge = PAPER.y + PAPER.height, PAPER.x + PAPER.width
    parts = [text_element(PAPER.x - 44, 16, title, "title")]
    for power in range(int(frame.low), int(frame.high) + 1):
        y = frame.y(power)
        parts.append(f'<path class="grid" d="M{PAPER.x:g} {y:.1f}H{edge:g}"/>')
        parts.append(text_element(PAPER.x - 8, y + 4, written[1](10.0**power), "tick", "end"))
    for x in sorted({x for line in lines for x, _ in line.points}):
        parts.append(f'<path class="base" d="M{frame.x(log10(x)):.1f} {bottom:g}v5"/>')
        parts.append(text_element(frame.x(log10(x)), bottom + 19, written[0](x), "tick", "middle"))
    parts.append(f'<path class="base" d="M{PAPER.x:g} {bottom:g}H{edge:g}"/>')
    parts.append(text_element(edge, bottom + 38, f"{names[0]} →", "axis", "end"))
    parts.append(text_element(PAPER.x + 6, PAPER.y + 14, f"↑ {names[1]}", "axis"))
    for line in sorted(lines, key=lambda line: ("", "floor", "ours").index(line.kind)):
        places = [(frame.x(log10(x)), frame.y(log10(y))) for x, y in line.points]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        parts.append(f'<path class="line {line.kind}" d="M{path}"><title>{escape(line.name)}</title></path>')
        parts += (f'<circle class="dot {line.kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places)
    parts += _names(frame, lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {SIZE.width:g} {SIZE.height:g}"><style>{STYLE}</style>{"".join(parts)}</svg>\n'
    )


def _names(frame: PlotArea, lines: Sequence[Line]) -> list[str]:
    """A name to the right of each line's end, with a thin line to it where it had to be moved."""
    ends = [(frame.x(log10(x)), frame.y(log10(y)), line) for line in lines for x, y in line.points[-1:]]
    ends.sort(key=lambda end: (end[1], end[2].name))
    places = [y for _, y, _ in ends]
    # Pushed down from the top, then up from the bottom: close to where they belong, and never on each other.
    for at in range(1, len(places)):
        places[at] = max(places[at], places[at - 1] + ROW)
    lowest = PAPER.y + PAPER.height - 4
    for at in range(len(places) - 1, -1, -1):
        places[at] = min(places[at], lowest)
        lowest = places[at] - ROW
    at_right, parts = PAPER.x + PAPER.width + 22, []
    for (x, y, line), place in zip(ends, places, strict=True):
        parts.append(f'<path class="leader" d="M{x + 5:.1f} {y:.1f}L{at_right - 4:g} {place:.1f}"/>')
        parts.append(text_element(at_right, place + 4, line.name, f"name {line.kind}".strip()))
    return parts
