"""The timeline of a session: what it weighed at every call, and each fold as a drop with its reason and its price.

Owns: `timeline`, from marks in order of time (`span_digest` writes them). Must never: do I/O, or leave out a fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Timeline", "archived_fold", "timeline"]

POINTS = 2_000
"""Points of a curve; of more, each stretch keeps its lowest and its highest."""

Point = tuple[float, int, int | None, int | None, int | None]
"""Time, tokens, and the lines of that moment: window, trigger, budget."""


@dataclass(slots=True)
class Timeline:
    """What happened, in order."""

    points: list[Point] = field(default_factory=list)
    folds: list[dict[str, Any]] = field(default_factory=list)
    marks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def window(self) -> int | None:
        """The newest window there is."""
        return next((point[2] for point in reversed(self.points) if point[2]), None)


@dataclass(slots=True)
class _Call:
    """What is known of the call under way."""

    began: float | None = None
    reason: str | None = None
    note: str | None = None
    fallback: str | None = None
    cost_usd: float | None = None
    score: float | None = None

    def hear(self, time: float, mark: Mapping[str, Any]) -> None:
        """Take what one of its events says."""
        event = mark["event"]
        if event == "compact.token_estimate":
            self.began = time
        elif event == "compact.trigger_decision":
            self.reason, self.note = mark["reason"], mark["note"]
        elif event == "compact.summary_call":
            if mark["cost_usd"] is not None:
                self.cost_usd = (self.cost_usd or 0.0) + mark["cost_usd"]
        elif event == "compact.summary_created":
            if mark["score"] is not None:
                self.score = mark["score"] if self.score is None else min(self.score, mark["score"])
        else:
            self.fallback = mark.get("fallback") or self.fallback


def timeline(marks: Sequence[tuple[float, Mapping[str, Any]]]) -> Timeline:
    """The timeline that some marks tell.

    What belongs to one call says so, and only where nothing does is it the call before: a clock may go back.
    """
    line, call = Timeline(), _Call()
    folds = {mark.get("call") for _, mark in marks if mark["event"] == "compact.pruned_messages"} - {None}
    calls: dict[Any, _Call] = {}
    for time, mark in marks:
        if mark.get("call") in folds:
            calls.setdefault(mark["call"], _Call()).hear(time, mark)
    own: set[int] = set()
    """Points that belong to a fold: the one before it, and the one it left."""
    window = trigger = budget = None
    for time, mark in marks:
        event = mark["event"]
        if event == "compact.token_estimate":
            call = _Call()
            window = mark["window"] or window
            line.points.append((time, mark["tokens"] or 0, window, trigger, budget))
        call.hear(time, mark)
        if event == "compact.trigger_decision":
            trigger, budget = _lines(mark, window)
            if line.points and call.began == line.points[-1][0]:
                line.points[-1] = (*line.points[-1][:2], window, trigger, budget)
        elif event == "compact.pruned_messages":
            if line.points:
                own.add(len(line.points) - 1)
            own.add(len(line.points))
            line.points.append((time, mark["tokens_after"] or 0, window, trigger, budget))
            line.folds.append(_fold(time, mark, calls.get(mark.get("call"), call)))
        elif event in ("compact.error", "compact.warning"):
            kind = event.removeprefix("compact.")
            line.marks.append({"time": time, "kind": kind, "title": mark["title"] or kind, "detail": mark["detail"]})
    line.points = _thinned(line.points, own)
    return line


def archived_fold(record: Mapping[str, Any]) -> dict[str, Any]:
    """A fold of which only the archive tells."""
    report, reasons = record.get("report"), record.get("reasons")
    return {
        "step": int(record["step"]),
        "time": float(record["time"]),
        "before": int(record["tokens_before"]),
        "after": int(record["tokens_after"]),
        "reason": ", ".join(map(str, reasons)) if isinstance(reasons, list) else None,
        "note": record.get("note"),
        "cost_usd": None,
        "score": report.get("score") if isinstance(report, Mapping) else None,
        "duration": None,
        "fallback": record.get("fallback"),
        "messages_before": len(record["positions"]),
        "messages_after": len(record["left"]),
    }


def _fold(time: float, mark: Mapping[str, Any], call: _Call) -> dict[str, Any]:
    return {
        "step": mark["step"],
        "time": time,
        "before": mark["tokens_before"],
        "after": mark["tokens_after"],
        "reason": call.reason,
        "note": mark["note"] or call.note,
        "cost_usd": call.cost_usd,
        "score": call.score,
        "duration": None if call.began is None else max(0.0, time - call.began),
        "fallback": call.fallback,
        "messages_before": mark["messages_before"],
        "messages_after": mark["messages_after"],
    }


def _lines(mark: Mapping[str, Any], window: int | None) -> tuple[int | None, int | None]:
    """Trigger and budget; older events tell only the rules that they follow from."""
    trigger, budget = mark["trigger"], mark["budget"]
    if budget is None and window is not None and mark["buffer"] is not None:
        budget = window - mark["buffer"]
    if trigger is None and window is not None and mark["trigger_pct"]:
        trigger = int(min(window * mark["trigger_pct"], budget if budget is not None else window))
    return trigger, budget


def _thinned(points: Sequence[Point], own: set[int]) -> list[Point]:
    """The curve with at most so many points, its shape kept: of each stretch the lowest and the highest, and `own`."""
    if len(points) <= POINTS:
        return list(points)
    stretches = max(1, (POINTS - len(own)) // 2)
    size = -(-len(points) // stretches)
    kept = {0, len(points) - 1, *own}
    for start in range(0, len(points), size):
        numbers = range(start, min(start + size, len(points)))
        kept.add(min(numbers, key=lambda number: points[number][1]))
        kept.add(max(numbers, key=lambda number: points[number][1]))
    return [points[number] for number in sorted(kept)]
