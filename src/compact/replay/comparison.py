"""The results of a run as a comparison: sums for each policy, the best edge, the worst moments.

Owns: `Comparison`, `Sums`, `summed`, `best_edge`.
Must never: run or print anything, or keep more results than it shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from heapq import heappush, heappushpop
from pathlib import PurePosixPath
from typing import Any

from .cost import RequestTotals, add_costs
from .lab import Lab
from .results import Moment, Result

SHOWN_MOMENTS = 12
"""Moments that a comparison shows."""
SHOWN_SERIES = 8
"""Conversations whose requests are drawn: the ones with most tokens."""


@dataclass
class Sums:
    """What a policy did to some conversations. A cost is None when a price is not known."""

    policy: str
    conversations: int = 0
    failed: int = 0
    """Conversations that could not be replayed; no other sum includes them."""
    calls: int = 0
    folds: int = 0
    fallbacks: int = 0
    loops: int = 0
    sent: int = 0
    cached: int = 0
    cost: float | None = 0.0
    summaries: float | None = 0.0
    dearer: int = 0
    """Conversations that cost more than they would have untouched."""
    largest: int = 0
    over: int = 0
    refused: int = 0
    invalid: int = 0
    needs: int = 0
    lost: int = 0
    untouched_sent: int = 0
    untouched_cached: int = 0
    untouched_cost: float | None = 0.0
    untouched_over: int = 0
    untouched_largest: int = 0
    seconds: float = 0.0
    """How long agents waited, in all: measured."""
    slowest: float = 0.0

    def add(self, result: Result) -> None:
        """Add the result of one conversation."""
        if result.error is not None:
            self.failed += 1
            return
        self.conversations += 1
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(result, name))
        for prefix in ("", "untouched_"):
            RequestTotals.of(self, prefix).plus(RequestTotals.of(result, prefix)).store(self, prefix)
        self.summaries = add_costs(self.summaries, result.summaries)
        self.dearer += result.cost is not None and result.cost > (result.untouched_cost or 0)
        self.seconds += sum(result.seconds)
        self.slowest = max([self.slowest, *result.seconds])

    @property
    def fidelity(self) -> float | None:
        """The share of needs that were met; None when there were none."""
        return 1 - self.lost / self.needs if self.needs else None

    @property
    def saved(self) -> float | None:
        """US dollars saved against untouched; below zero the policy costs more than it saves."""
        return None if self.cost is None or self.untouched_cost is None else self.untouched_cost - self.cost

    def as_dict(self) -> dict[str, Any]:
        """Plain values; measured ones are separate, because they differ between two runs."""
        values = asdict(self) | {"fidelity": self.fidelity, "saved": self.saved}
        measured = {"seconds": round(values.pop("seconds"), 3), "slowest": round(values.pop("slowest"), 3)}
        rounded = {name: round(value, 6) if isinstance(value, float) else value for name, value in values.items()}
        return {**rounded, "measured": measured}


_ADDED = ("calls", "folds", "fallbacks", "loops", "refused", "invalid", "needs", "lost")


@dataclass(frozen=True, slots=True)
class RequestSeries:
    """Tokens of each request of a conversation: untouched, and under each policy."""

    conversation: str
    source: str
    window: int
    series: dict[str, list[int]]
    folded_at: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class WorstMoment:
    """A moment, with its conversation and policy."""

    conversation: str
    source: str
    policy: str
    moment: Moment


@dataclass
class Comparison:
    """The outcome of a run."""

    policies: list[Sums]
    groups: dict[str, list[Sums]] = field(default_factory=dict)
    """The same by the file or folder of the conversations."""
    courses: list[RequestSeries] = field(default_factory=list)
    worst: list[WorstMoment] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Conversations that could not be replayed and lists that were invalid, a sentence each; the first twenty."""
    edge: list[str] = field(default_factory=list)
    """Policies that no other one beats on both cost and fidelity, the cheapest first."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "policies": [sums.as_dict() for sums in self.policies],
            "groups": {name: [sums.as_dict() for sums in group] for name, group in self.groups.items()},
            "edge": self.edge,
            "worst": [asdict(worst) for worst in self.worst],
            "problems": self.problems,
        }


def summed(lab: Lab) -> Comparison:
    """Compare the policies of a run."""
    names = [trial.name for trial in lab.trials]
    all_ = Comparison([Sums(name) for name in names])
    worst: list[tuple[int, int, int, WorstMoment]] = []
    longest: list[tuple[int, int, RequestSeries]] = []
    for number, results in enumerate(lab):
        group = all_.groups.setdefault(group_of(results[0].source), [Sums(name) for name in names])
        for column, result in enumerate(results):
            all_.policies[column].add(result)
            group[column].add(result)
            _add_problems(all_.problems, result)
        moments = [
            (one.moment.count, -number, -column, _worst_moment(one)) for column, one in enumerate(results) if one.moment
        ]
        if moments:
            # One for each conversation. The smallest is replaced first; of two equal ones the earlier one stays.
            _keep_largest(worst, max(moments), SHOWN_MOMENTS)
        if course := _series_of(results):
            _keep_largest(longest, (max(course.series["untouched"], default=0), -number, course), SHOWN_SERIES)
    all_.worst = [one[-1] for one in sorted(worst, key=lambda one: one[:3], reverse=True)]
    all_.courses = [one[-1] for one in sorted(longest, key=lambda one: one[:2], reverse=True)]
    all_.edge = best_edge({sums.policy: (sums.cost, sums.fidelity) for sums in all_.policies})
    return all_


def best_edge(points: dict[str, tuple[float | None, float | None]]) -> list[str]:
    """Names of the points that no other one beats: cheaper and no worse, or better and no dearer."""
    known = {name: (cost, kept) for name, (cost, kept) in points.items() if cost is not None and kept is not None}
    return sorted(
        (
            name
            for name, (cost, kept) in known.items()
            if not any(c <= cost and k >= kept and (c, k) != (cost, kept) for c, k in known.values())
        ),
        key=lambda name: (known[name][0], name),
    )


def _keep_largest(heap: list[Any], item: Any, most: int) -> None:
    heappush(heap, item) if len(heap) < most else heappushpop(heap, item)


def group_of(source: str) -> str:
    """The name of a conversation's file, without its folder and extensions."""
    name = PurePosixPath(source.partition("#")[0].replace("\\", "/"))
    return (name.name.partition(".")[0] or name.name) if name.name else source


def _worst_moment(result: Result) -> WorstMoment:
    assert result.moment is not None
    return WorstMoment(result.conversation, result.source, result.policy, result.moment)


def _series_of(results: Sequence[Result]) -> RequestSeries | None:
    fine = [result for result in results if result.error is None]
    if not fine or not fine[0].series:
        return None
    return RequestSeries(
        fine[0].conversation,
        fine[0].source,
        min(result.window for result in fine),
        {"untouched": fine[0].untouched_series, **{result.policy: result.series for result in fine}},
        {result.policy: result.folded_at for result in fine},
    )


def _add_problems(problems: list[str], result: Result) -> None:
    sentences: Iterable[str] = result.problems if result.error is None else (result.error,)
    for sentence in sentences:
        if len(problems) < 20:
            problems.append(f"{result.conversation} under {result.policy}: {sentence}")
