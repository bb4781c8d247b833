"""The fidelity report: how much of what mattered a summary keeps.

Owns: `Report`, and merging reports.
Must never: read a summary (`measure` does), or import what measuring needs: a report is read back without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from .._redaction import REDACTED

CRITICAL = ("wish", "rule", "decision", "open", "question", "error", "task", "id", "path", "branch", "environment")
"""Kinds of which a summary should keep something when it was given any."""

MAX_NAMED = 20
"""How many lost and invented facts a report names."""


@dataclass(frozen=True, slots=True)
class KindCounts:
    """Of one kind of facts: how many the summary kept, how many a repair restored, how many are lost."""

    kept: int = 0
    repaired: int = 0
    lost: int = 0


_NONE: Mapping[str, KindCounts] = {}


@dataclass(frozen=True, slots=True)
class Report:
    """The fidelity of one compaction. Counts are of facts that mattered and could have fitted."""

    score: float
    """0 to 100: the share of the weight that is kept, less inventions."""
    kept: int
    repaired: int
    lost: int
    invented: tuple[str, ...]
    """What the summary names that stands nowhere in its input; the first twenty."""
    missing: tuple[str, ...]
    """The best facts that are lost; at most twenty."""
    kinds: Mapping[str, KindCounts]
    unkept_kinds: tuple[str, ...]
    """Critical kinds that occurred and of which nothing was kept."""

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, for events and the archive."""
        return asdict(self)

    def redacted_with(self, words: Iterable[str], body: str, conceal: Callable[[str], str]) -> Report:
        """The report without secrets: where a value stood shows whether it is one, the value alone does not.

        `conceal` redacts a text; what is missing stood in the `words` of the request, what is invented in the `body`.
        """
        if not (self.missing or self.invented):
            return self
        around = [word for word in words if any(text in word for text in self.missing)]
        clean_words, clean_body = [conceal(word) for word in around], conceal(body)

        def redact(text: str, raw: Iterable[str], clean: Iterable[str]) -> str:
            if any(text in word for word in clean) or not any(text in word for word in raw):
                return text
            return known if (known := conceal(text)) != text else REDACTED

        return replace(
            self,
            missing=tuple(redact(text, around, clean_words) for text in self.missing),
            invented=tuple(redact(text, (body,), (clean_body,)) for text in self.invented),
        )

    def in_short(self) -> Report:
        """The totals alone, for old compactions; names and kinds are in the archive."""
        return replace(self, invented=(), missing=(), kinds=_NONE, unkept_kinds=())

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Report:
        """The report that `as_dict` was called on."""
        return cls(
            score=float(value["score"]),
            kept=int(value["kept"]),
            repaired=int(value["repaired"]),
            lost=int(value["lost"]),
            invented=tuple(value["invented"]),
            missing=tuple(value["missing"]),
            kinds={str(kind): KindCounts(**counts) for kind, counts in value["kinds"].items()},
            unkept_kinds=tuple(value["unkept_kinds"]),
        )


def merge_reports(reports: Iterable[Report | None]) -> Report | None:
    """One report for a compaction with several summaries; the score is the mean over their facts."""
    some = [report for report in reports if report is not None]
    if len(some) < 2:
        return some[0] if some else None
    sizes = [report.kept + report.repaired + report.lost for report in some]
    kinds: dict[str, KindCounts] = {}
    for report in some:
        for kind, one in report.kinds.items():
            sum_ = kinds.get(kind, KindCounts())
            kinds[kind] = KindCounts(sum_.kept + one.kept, sum_.repaired + one.repaired, sum_.lost + one.lost)
    return Report(
        score=round(
            sum(r.score * max(1, n) for r, n in zip(some, sizes, strict=True)) / sum(max(1, n) for n in sizes), 1
        ),
        kept=sum(report.kept for report in some),
        repaired=sum(report.repaired for report in some),
        lost=sum(report.lost for report in some),
        invented=tuple(dict.fromkeys(name for report in some for name in report.invented))[:MAX_NAMED],
        missing=tuple(dict.fromkeys(name for report in some for name in report.missing))[:MAX_NAMED],
        kinds=dict(sorted(kinds.items())),
        unkept_kinds=tuple(kind for kind in CRITICAL if kind in kinds and not kinds[kind].kept + kinds[kind].repaired),
    )
