"""The commands of the replay lab: `replay` and `tune`.

Owns: what they print and write. Must never: evaluate a policy itself, or overwrite a configuration without `--force`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError, LogError
from .app import AsJson, ConfigFile, Overwrite, app
from .input import write_bytes
from .output import json_bytes, one_line, report, screen_width, show, show_json
from .replay_options import (  # fmt: skip
    Address,
    CacheRead,
    CacheWrite,
    EngineName,
    EngineOption,
    Format,
    Jobs,
    LabModel,
    LabWindow,
    Logs,
    NoCache,
    Out,
    engine_of,
    open_conversations,
    progress_bar,
    resume_note,
    setting_of,
    trials_of,
)

if TYPE_CHECKING:
    from ..replay import Comparison, Lab
    from ..replay.tune import TuningResult, Verdict


@app.command("replay")
def replay_command(
    logs: Logs,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            metavar="FILE|NAME",
            help="Replay under this configuration file, or default, layered, in_place or rolling; repeatable "
            "(default: default, and the compact.yaml of the working directory).",
        ),
    ] = None,
    window: LabWindow = None,
    model: LabModel = None,
    jobs: Jobs = None,
    engine: EngineOption = EngineName.LOCAL,
    address: Address = None,
    out: Out = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write the report as one HTML file.")] = None,
    as_json: AsJson = False,
    by_source: Annotated[bool, typer.Option("--by-source", help="Print a second table, by log file.")] = False,
    log_format: Format = None,
    cache_read: CacheRead = None,
    cache_write: CacheWrite = None,
    no_cache: NoCache = False,
) -> None:
    """Replay recorded conversations under policies: tokens, cost, waiting, and what the agent would have missed.

    Example:  compact replay chat.json --policy default --policy rolling --window 25% --html report.html
    """
    from ..replay import replay, summed
    from ..replay.table import report_parts

    setting = setting_of(window, model, cache_read, cache_write, no_cache)
    trials = trials_of(policy)
    conversations, alone = open_conversations(logs, log_format)
    with resume_note(out), progress_bar("replaying") as show_progress:
        lab = replay(
            conversations,
            trials,
            setting,
            engine=engine_of(engine, jobs, address, alone),
            folder=out,
            progress=lambda done, known: show_progress(f"{done:,} runs" + (f", {known:,} known" if known else "")),
        )
    with lab:
        comparison = summed(lab)
        _write(lab, comparison, out, html)
        if as_json:
            from ..replay.report import report_value

            show_json(report_value(lab, comparison))
        else:
            show(*report_parts(comparison, setting, screen_width(), by_source))
    if not any(sums.conversations for sums in comparison.policies):
        raise LogError("no conversation could be replayed; the sentences above say why")


@app.command()
def tune(
    logs: Logs,
    output: Annotated[Path, typer.Option("--output", "-o", help="Write this configuration file.")] = Path(
        "compact.yaml"
    ),
    candidates: Annotated[int, typer.Option("--candidates", min=1, help="Draw and try this many policies.")] = 48,
    seed: Annotated[int, typer.Option("--seed", help="Seed the drawing of policies.")] = 42,
    window: LabWindow = None,
    model: LabModel = None,
    config: ConfigFile = None,
    jobs: Jobs = None,
    engine: EngineOption = EngineName.LOCAL,
    address: Address = None,
    out: Out = None,
    log_format: Format = None,
    cache_read: CacheRead = None,
    cache_write: CacheWrite = None,
    no_cache: NoCache = False,
    force: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Search for a policy that costs less or keeps more than the configured one; write it with the measured effects.

    Example:  compact tune chat.json --window 25% --candidates 2 -o tuned.yaml
    """
    from ..config import CompactConfig
    from ..replay.config_writer import config_text
    from ..replay.tune import tune as search

    if output.exists() and not force:
        raise ConfigError(f"{output} exists; overwrite it with --force, or name another file with -o")
    setting = setting_of(window, model, cache_read, cache_write, no_cache)
    start = CompactConfig.load(config)
    conversations, alone = open_conversations(logs, log_format)
    with resume_note(out), progress_bar("tuning") as show_progress:
        tuned = search(
            conversations,
            setting,
            start=start,
            engine=engine_of(engine, jobs, address, alone),
            candidates=candidates,
            seed=seed,
            folder=out,
            progress=lambda stage, share: show_progress(f"{stage} {share}%"),
        )
    write_bytes(config_text(tuned, setting).encode(), output)
    if as_json:
        show_json(_tuning_value(tuned))
    else:
        _show_tuned(tuned)
    report(f"wrote {output}")


def _show_tuned(tuned: TuningResult) -> None:
    from ..replay.table import groups_table, sums_tables

    held = {verdict.source: [*_named_sums(verdict)] for verdict in tuned.held}
    shown: list[Any] = [
        "On the conversations of the search:",
        "",
        *sums_tables(_named_sums(tuned.trained), screen_width()),
    ]
    if held:
        shown += ["", "On conversations that were held back from it:", "", *groups_table(held, screen_width())]
    shown.append("")
    for reason in tuned.reasons:
        shown.append(f"{reason.name}: {reason.value} ({reason})")
    if not tuned.found:
        shown.append("No policy was better than the start on cost or fidelity and no worse on the other.")
    if not held:
        shown.append("There were too few conversations to hold any back: the effect on others is not known.")
    shown += [one_line(str(verdict)) for verdict in tuned.held]
    show(*shown)


def _named_sums(verdict: Verdict) -> list[Any]:
    return [replace(verdict.start, policy="start"), replace(verdict.chosen, policy="tuned")]


def _tuning_value(tuned: TuningResult) -> dict[str, Any]:
    def report_value(verdict: Verdict) -> dict[str, Any]:
        start, chosen = (sums.as_dict() for sums in _named_sums(verdict))
        return {"source": verdict.source, "better": verdict.better, "start": start, "tuned": chosen}

    return {
        "found": tuned.found,
        "changes": tuned.changes,
        "reasons": [{"field": one.name, "value": one.value, "reason": str(one)} for one in tuned.reasons],
        "trained": report_value(tuned.trained),
        "held": [report_value(verdict) for verdict in tuned.held],
    }


def _write(lab: Lab, comparison: Comparison, out: Path | None, html: Path | None) -> None:
    """Write the report files that were asked for."""
    from ..replay.html_page import page
    from ..replay.report import report_value

    written = [path for path in (out / "report.html" if out is not None else None, html) if path is not None]
    for path in written:
        write_bytes(page(lab, comparison).encode(), path)
    if out is not None:
        text = json.dumps(report_value(lab, comparison), indent=2, ensure_ascii=False) + "\n"
        write_bytes(json_bytes(text), out / "report.json")
        written.append(out / "report.json")
    if written:
        report(f"wrote {', '.join(map(str, written))}")
