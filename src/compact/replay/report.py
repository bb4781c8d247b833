"""The content of a report, the same for terminal, page and JSON.

Owns: `report_value` (the report as plain values), `findings` (its conclusions as sentences), and the columns of its
tables. Must never: print, know a terminal or a page, or conclude more than the results show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .comparison import Comparison, Sums
from .cost import RequestTotals
from .lab import Lab
from .number_format import money, percent, seconds
from .trial import Setting

UNTOUCHED = "untouched"
_LOOPING = 0.25
"""The share of compactions right after another one at which a finding reports them."""
_PLACES = 3
"""Sources that a finding names."""


class ReportFinding(NamedTuple):
    """A sentence, and its severity: `good`, `note`, `warn` or `bad`."""

    kind: str
    text: str


def report_value(lab: Lab, comparison: Comparison) -> dict[str, Any]:
    """The report as plain values, for JSON."""
    setting = lab.setting
    caching = (
        setting.caching if isinstance(setting.caching, str) or setting.caching is None else setting.caching._asdict()
    )
    return {
        "setting": {
            "window": str(setting.window) if setting.window is not None else None,
            "model": setting.model,
            "caching": caching,
            "prices": setting.prices,
            "fingerprint": setting.fingerprint,
        },
        "conversations": len(lab),
        "fingerprints": {trial.name: trial.fingerprint for trial in lab.trials},
        "findings": [finding.text for finding in findings(comparison, setting)],
        **comparison.as_dict(),
    }


def untouched_sums(policies: list[Sums]) -> Sums:
    """The row without any policy, as if the window were unlimited: without losses and without waiting."""
    most = max(policies, key=lambda sums: sums.conversations)
    row = Sums(UNTOUCHED, conversations=most.conversations, calls=most.calls, needs=most.needs)
    for prefix in ("", "untouched_"):
        RequestTotals.of(most, "untouched_").store(row, prefix)
    return row


def setting_line(comparison: Comparison, setting: Setting) -> str:
    """The setting of a run in one line."""
    base = untouched_sums(comparison.policies)
    window = setting.window
    parts = [
        _count_of(base.conversations, "conversation"),
        _count_of(base.calls, "call"),
        f"model {setting.model}" if setting.model else "the model of each log, or else of each policy",
        "the models' own windows" if window is None
        else f"a window of {window} of each conversation" if window.share is not None
        else f"a window of {window} tokens",
    ]  # fmt: skip
    if setting.caching is None:
        parts.append("nothing cached")
    elif not isinstance(setting.caching, str):
        parts.append(f"cached input at {setting.caching.read:g} of the price, new input at {setting.caching.write:g}")
    return ", ".join(parts)


def findings(comparison: Comparison, setting: Setting) -> list[ReportFinding]:
    """The conclusions: the best edge, then each policy. Measured times are not used, so they are reproducible."""
    found = [*_edge_findings(comparison)]
    for sums in comparison.policies:
        if parts := [*_policy_findings(sums, comparison)]:
            kind = next(kind for kind in ("bad", "warn", "note") if any(one.kind == kind for one in parts))
            found.append(ReportFinding(kind, f"{sums.policy}: {'; '.join(one.text for one in parts)}."))
    found += _general_findings(comparison, setting)
    return found


def _edge_findings(comparison: Comparison) -> Iterator[ReportFinding]:
    names, edge = [sums.policy for sums in comparison.policies], comparison.edge
    if len(names) > 1 and edge:
        beaten = [name for name in names if name not in edge]
        best = f"Best edge of cost and fidelity, the cheapest first: {_join_names(edge)}."
        rest = f" Beaten: {_join_names(beaten)}." if beaten else ""
        yield ReportFinding("good", best + rest)


def _policy_findings(sums: Sums, comparison: Comparison) -> Iterator[ReportFinding]:
    """The parts of the sentence about one policy."""
    if sums.failed:
        all_ = sums.conversations + sums.failed
        yield ReportFinding("bad", f"{_part_of(sums.failed, all_)} conversations could not be replayed")
    dearer = _top_sources(comparison, sums, lambda one: one.dearer)
    if sums.saved is not None and sums.saved < 0:
        share = f" ({percent(-sums.saved / sums.untouched_cost)})" if sums.untouched_cost else ""
        yield ReportFinding(
            "bad",
            f"it costs more than it saves, {money(-sums.saved)}{share} more than untouched; "
            f"dearer in {_part_of(sums.dearer, sums.conversations)} conversations ({dearer})",
        )
    elif sums.dearer:
        yield ReportFinding(
            "warn",
            f"it costs more than it saves in {_part_of(sums.dearer, sums.conversations)} conversations ({dearer}), "
            f"although in all it saves {money(sums.saved)}",
        )
    if sums.over:
        yield ReportFinding(
            "bad",
            f"{_part_of(sums.over, sums.calls)} requests were over the window, so a provider refuses them and all "
            f"that was needed counts as lost ({_top_sources(comparison, sums, lambda one: one.over)})",
        )
    if sums.refused:
        yield ReportFinding("warn", f"at {_part_of(sums.refused, sums.calls)} calls no plan fitted the budget")
    if sums.invalid:
        yield ReportFinding(
            "bad", f"{_count_of(sums.invalid, 'list')} would be refused for their form, a bug to report"
        )
    if sums.folds and sums.loops / sums.folds >= _LOOPING:
        yield ReportFinding(
            "warn",
            f"{_part_of(sums.loops, sums.folds)} compactions followed another one at once, which had freed too little",
        )
    if sums.fallbacks:
        yield ReportFinding(
            "warn",
            f"in {_part_of(sums.fallbacks, sums.folds)} compactions the summary failed and the fallback was used",
        )


def _general_findings(comparison: Comparison, setting: Setting) -> Iterator[ReportFinding]:
    base = untouched_sums(comparison.policies)
    if base.over:
        yield ReportFinding(
            "note",
            f"Untouched, {_part_of(base.over, base.calls)} requests would have been over the window and refused; "
            "its cost assumes an unlimited window.",
        )
    if base.conversations and base.cost is None:
        yield ReportFinding(
            "warn",
            f"The price of {setting.model or 'at least one of the models'} is not known, so no cost is shown; "
            "add it to summary.prices of a policy, or name a listed model with --model.",
        )
    unpriced = [sums.policy for sums in comparison.policies if sums.cost is None and base.cost is not None]
    if unpriced:
        yield ReportFinding(
            "warn",
            f"The price of the summarizer of {_join_names(unpriced)} is not known, so its cost is not shown; "
            "add its model to summary.prices.",
        )
    if base.calls and setting.caching is not None and not any(sums.cached for sums in comparison.policies):
        yield ReportFinding(
            "note",
            "Nothing was found in the provider's cache: requests were too short or too far apart, "
            "or its prices are not known (--cache-read gives one).",
        )
    if base.calls and not base.needs:
        yield ReportFinding(
            "note", "No agent used a value that it last saw long before, so fidelity cannot be measured."
        )
    for problem in comparison.problems:
        yield ReportFinding("bad", problem)


class Column(NamedTuple):
    """A column of a table: its name, and its text for a policy."""

    name: str
    text: Callable[[Sums], str]
    is_bad: Callable[[Sums], bool] = lambda sums: False
    is_measured: bool = False


def _saved_share(sums: Sums) -> str:
    """The savings against untouched, as a share of its cost."""
    return (
        percent(sums.saved / sums.untouched_cost)
        if sums.saved is not None and sums.untouched_cost and sums.policy != UNTOUCHED
        else "–"
    )


def _cached_share(sums: Sums) -> str:
    return percent(sums.cached / sums.sent) if sums.sent else "–"


def _format_wait(time: float, sums: Sums) -> str:
    return seconds(time) if sums.policy != UNTOUCHED else "–"


SAVED = Column("saved", _saved_share, lambda sums: (sums.saved or 0) < 0)
COLUMNS = (
    Column("folds", lambda sums: f"{sums.folds:,}"),
    Column("tokens sent", lambda sums: f"{sums.sent:,}"),
    Column("cached", _cached_share),
    Column("cost", lambda sums: money(sums.cost)),
    SAVED,
    Column("largest", lambda sums: f"{sums.largest:,}"),
    Column("over", lambda sums: f"{sums.over:,}", lambda sums: sums.over > 0),
    Column("refused", lambda sums: f"{sums.refused:,}", lambda sums: sums.refused > 0),
    Column("invalid", lambda sums: f"{sums.invalid:,}", lambda sums: sums.invalid > 0),
    Column("fidelity", lambda sums: percent(sums.fidelity)),
    Column("loops", lambda sums: f"{sums.loops:,}"),
    Column("waiting", lambda sums: _format_wait(sums.seconds, sums), is_measured=True),
    Column("slowest", lambda sums: _format_wait(sums.slowest, sums), is_measured=True),
)
"""The columns of a table with a row for each policy."""


def _top_sources(comparison: Comparison, sums: Sums, number: Callable[[Sums], int]) -> str:
    """The sources with the largest parts of a number."""
    column = comparison.policies.index(sums)
    by_source = {source: number(group[column]) for source, group in comparison.groups.items()}
    most = sorted(
        (source for source in by_source if by_source[source]), key=lambda source: (-by_source[source], source)
    )
    named = ", ".join(f"{by_source[source]:,} in {source}" for source in most[:_PLACES])
    return named + (f", {len(most) - _PLACES:,} sources more" if len(most) > _PLACES else "")


def _part_of(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}"


def _count_of(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _join_names(names: list[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]
