"""The timeline of a session: its tokens at every call, and each compaction with its reason and cost.

Owns: `build_timeline`, from marks ordered by time (written by `span_brief`).
Must never: do I/O, or leave out a compaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

POINTS = 2_000
"""Points of a curve; of more, only the lowest and the highest of each stretch are kept."""

Point = tuple[float, int, int | None, int | None, int | None]
"""Time, tokens, and the limits at that time: window, trigger, budget."""


@dataclass(slots=True)
class Timeline:
    """The curve, the compactions, and the errors and warnings, by time."""

    points: list[Point] = field(default_factory=list)
    folds: list[dict[str, Any]] = field(default_factory=list)
    marks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def window(self) -> int | None:
        """The newest known window."""
        return next((point[2] for point in reversed(self.points) if point[2]), None)


@dataclass(slots=True)
class _CallMarks:
    """What the marks of one call say."""

    began: float | None = None
    reason: str | None = None
    note: str | None = None
    fallback: str | None = None
    cost_usd: float | None = None
    score: float | None = None

    def add(self, time: float, mark: Mapping[str, Any]) -> None:
        """Take the values of one mark."""
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


def build_timeline(marks: Sequence[tuple[float, Mapping[str, Any]]]) -> Timeline:
    """The timeline of some marks.

    A mark names its call; one without a name belongs to the call before it. The clock may go back.
    """
    line, call = Timeline(), _CallMarks()
    folds = {mark.get("call") for _, mark in marks if mark["event"] == "compact.pruned_messages"} - {None}
    calls: dict[Any, _CallMarks] = {}
    for time, mark in marks:
        if mark.get("call") in folds:
            calls.setdefault(mark["call"], _CallMarks()).add(time, mark)
    fixed: set[int] = set()
    """Points that are never thinned out: the one before a compaction, and the one after it."""
    window = trigger = budget = None
    for time, mark in marks:
        event = mark["event"]
        if event == "compact.token_estimate":
            call = _CallMarks()
            window = mark["window"] or window
            line.points.append((time, mark["tokens"] or 0, window, trigger, budget))
        call.add(time, mark)
        if event == "compact.trigger_decision":
            trigger, budget = _limits(mark, window)
            if line.points and call.began == line.points[-1][0]:
                line.points[-1] = (*line.points[-1][:2], window, trigger, budget)
        elif event == "compact.pruned_messages":
            if line.points:
                fixed.add(len(line.points) - 1)
            fixed.add(len(line.points))
            line.points.append((time, mark["tokens_after"] or 0, window, trigger, budget))
            line.folds.append(_fold(time, mark, calls.get(mark.get("call"), call)))
        elif event in ("compact.error", "compact.warning"):
            kind = event.removeprefix("compact.")
            line.marks.append({"time": time, "kind": kind, "title": mark["title"] or kind, "detail": mark["detail"]})
    line.points = _thin_out(line.points, fixed)
    return line


def fold_from_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A compaction of which only the archive has a record."""
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


def _fold(time: float, mark: Mapping[str, Any], call: _CallMarks) -> dict[str, Any]:
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


def _limits(mark: Mapping[str, Any], window: int | None) -> tuple[int | None, int | None]:
    """Trigger and budget; older events have only the policy to derive them from."""
    trigger, budget = mark["trigger"], mark["budget"]
    if budget is None and window is not None and mark["buffer"] is not None:
        budget = window - mark["buffer"]
    if trigger is None and window is not None and mark["trigger_pct"]:
        trigger = int(min(window * mark["trigger_pct"], budget if budget is not None else window))
    return trigger, budget


def _thin_out(points: Sequence[Point], fixed: set[int]) -> list[Point]:
    """The curve with at most `POINTS` points: of each stretch the lowest, the highest, and `fixed`."""
    if len(points) <= POINTS:
        return list(points)
    stretches = max(1, (POINTS - len(fixed)) // 2)
    size = -(-len(points) // stretches)
    kept = {0, len(points) - 1, *fixed}
    for start in range(0, len(points), size):
        numbers = range(start, min(start + size, len(points)))
        kept.add(min(numbers, key=lambda number: points[number][1]))
        kept.add(max(numbers, key=lambda number: points[number][1]))
    return [points[number] for number in sorted(kept)]
