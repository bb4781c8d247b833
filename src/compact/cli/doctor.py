"""The command `doctor`: checks the configuration, the counter, the archive, the summarizer and the policy.

Owns: `doctor`, and all checks but those of `installed`. Must never: change anything except for a trial write that it
deletes, or use the network without `--online`.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..config import CompactConfig
from ..errors import BadSummary, CompactError, ConfigError, InsufficientBudget
from .app import PROBLEM, AsJson, ConfigFile, ModelName, Settings, Window, app, load_config, option_values
from .input import ConversationId, LogFormat, config_for, read_conversation
from .installed import CheckResult, check_extras, check_variables
from .output import plural, printable, show, show_json, spinner
from .plan import dry_run, outcome, verdict


@app.command()
def doctor(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A conversation to check: whether it fits, and its compaction.")
    ] = None,
    online: Annotated[
        bool,
        typer.Option("--online", help="Ask the summarizer for a short summary, and write a trial object to a bucket."),
    ] = False,
    id: ConversationId = None,
    log_format: LogFormat = None,
    model: ModelName = None,
    window: Window = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
    settings: Settings = None,
) -> None:
    """Check that everything works: installed packages, the archive, the summarizer, and whether the policy can fit.

    Example:  compact doctor chat.json
    """
    options = option_values(settings, model, window)
    with spinner("checking"):
        findings = list(_run_checks(file, online, id, log_format, config, options))
    if as_json:
        show_json([asdict(finding) for finding in findings])
    else:
        _show_results(findings)
    if any(finding.state == "problem" for finding in findings):
        raise typer.Exit(PROBLEM)


def _run_checks(
    file: str | None,
    online: bool,
    id: str | None,
    log_format: str | None,
    config: Path | None,
    options: dict[str, object],
) -> Iterator[CheckResult]:
    from .. import __version__

    yield CheckResult("ok", "compact", f"{__version__} on Python {platform.python_version()}, {platform.system()}")
    try:
        loaded = load_config(config, options)
    except ConfigError as error:
        yield from check_extras(frozenset())
        for line in str(error).splitlines():
            yield CheckResult("problem", "configuration", line)
        return
    yield from check_extras(_needed_extras(loaded))
    yield from check_variables()
    yield _check_counter(loaded)
    yield _check_archive(loaded, online)
    yield _check_summarizer(loaded, online)
    yield from _check_policy(loaded)
    if file is not None:
        conversation = read_conversation(file, id, log_format)
        try:
            dry = dry_run(conversation, config_for(config, options, conversation), None)
            yield CheckResult("ok", "conversation", f"{verdict(dry)} {outcome(dry)}")
        except InsufficientBudget as error:
            yield CheckResult("problem", "conversation", str(error))


def _show_results(findings: list[CheckResult]) -> None:
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "note": "yellow", "problem": "bold red"}
    rows = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column()
    for finding in findings:
        rows.add_row(Text(finding.state, styles[finding.state]), finding.what, Text(printable(finding.says)))
    bad = sum(finding.state == "problem" for finding in findings)
    show(rows, "", plural(bad, "problem") if bad else "No problems found.")


def _needed_extras(config: CompactConfig) -> frozenset[str]:
    """The extras that the configuration needs."""
    needed = {
        "s3": config.storage.adapter == "s3",
        "otel": config.tracing.otlp_endpoint is not None,
        "redis": config.proxy.state.partition(":")[0] in ("redis", "rediss", "unix"),
        "proxy": config.proxy.upstream is not None,
        config.summary.provider: config.summary.provider != "extract",
    }
    return frozenset(extra for extra, is_needed in needed.items() if is_needed)


def _check_counter(config: CompactConfig) -> CheckResult:
    if config.counter == "chars":
        return CheckResult("note", "counter", "counter is chars: every four characters count as one token")
    from .._conversation.tokens import counter_for

    try:
        counter = counter_for(config.counter, config.model)
    except CompactError as error:
        return CheckResult("problem", "counter", str(error))
    table = "its own table" if counter.exact else f"the nearest table: it may have {counter.margin:.0%} more"
    return CheckResult("ok", "counter", f"{counter.encoder} counts {config.model} with {counter.encoding}, {table}")


def _check_archive(config: CompactConfig, online: bool) -> CheckResult:
    storage = config.storage
    if storage.adapter == "none":
        return CheckResult("note", "archive", "storage.adapter is none: compacted messages cannot be restored")
    if storage.adapter == "fs":
        return _check_folder(Path(storage.path).expanduser().absolute())
    place = f"s3://{storage.bucket}/{storage.prefix}"
    if not online:
        return CheckResult("note", "archive", f"{place} was not checked; --online writes a trial object to it")
    from ..stores import open_store

    try:
        store = open_store(storage)
        assert store is not None
        key = f"doctor-{os.getpid()}/trial.json"
        store.put(key, b"{}")
        store.delete(key)
    except CompactError as error:
        return CheckResult("problem", "archive", str(error))
    return CheckResult("ok", "archive", f"{place} can be written")


def _check_folder(folder: Path) -> CheckResult:
    """Check that files can be written where the archive is, or will be."""
    place = next(one for one in (folder, *folder.parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=place) as trial:
            trial.write(b"trial")
            trial.flush()
    except OSError as error:
        return CheckResult("problem", "archive", f"{folder} cannot be written ({error.strerror}); set storage.path")
    return CheckResult(
        "ok", "archive", f"{folder} can be written" + ("" if place == folder else " (it does not exist yet)")
    )


def _check_summarizer(config: CompactConfig, online: bool) -> CheckResult:
    summary = config.summary
    if summary.provider == "extract":
        return CheckResult("ok", "summarizer", "extract works offline and needs no model")
    from ..summarizers import summarizer_for

    name = f"{summary.model or 'the default model'} through {summary.provider}"
    try:
        summarizer_for(summary)
    except CompactError as error:
        return CheckResult("problem", "summarizer", str(error))
    if not online:
        return CheckResult(
            "note", "summarizer", f"{name} has a key and was not asked; --online asks it for a short summary"
        )
    return _ask_summarizer(config, name)


def _ask_summarizer(config: CompactConfig, name: str) -> CheckResult:
    """Ask for one short summary, as a compaction does."""
    from .._engine.one_shot import compact_messages

    words = "The build of the doctor's trial is d-0042, and it must stay on staging until Friday. "
    talk = [{"role": role, "content": words * 12} for role in ("user", "assistant") * 3]
    trial = config.changed(
        policy={"on_failure": "raise"}, summary={"max_retries": 0, "max_tokens": 200}, storage={"adapter": "none"}
    )
    try:
        compact_messages(talk, 700, config=trial)
    except BadSummary as error:
        return CheckResult("note", "summarizer", f"{name} answered, and the summary was rejected: {error}")
    except CompactError as error:
        return CheckResult("problem", "summarizer", f"{name}: {error}")
    return CheckResult("ok", "summarizer", f"{name} answered")


def _check_policy(config: CompactConfig) -> Iterator[CheckResult]:
    """Report the limits, and check that they leave room for a summary."""
    policy, window, budget, trigger = config.policy, config.window, config.budget, config.trigger_line
    known = "configured" if config.max_context_tokens else f"of {config.model}"
    yield CheckResult(
        "ok",
        "policy",
        f"{policy.layout if isinstance(policy.layout, str) else 'custom'} layout: window {window:,} ({known}) - "
        f"hard_cap_buffer {policy.hard_cap_buffer:,} - reserve_output {policy.reserve_output:,} = budget {budget:,}; "
        f"a compaction is due at {trigger:,}",
    )
    # A summary gets a quarter of what pins and tools leave below the trigger, and is useless with a few dozen tokens.
    room, asked = trigger // 4, config.summary.max_tokens
    if room < 64:
        yield CheckResult(
            "problem", "policy", f"a summary would get at most {room:,} tokens, which is too few; raise the window"
        )
    elif room < asked:
        yield CheckResult(
            "note",
            "policy",
            f"a summary gets at most {room:,} tokens, a quarter of those below the trigger, not the {asked:,} of "
            "summary.max_tokens",
        )
    if policy.trigger_pct and policy.trigger_pct * window > budget:
        yield CheckResult(
            "note",
            "policy",
            f"trigger_pct {policy.trigger_pct} of the window is {round(policy.trigger_pct * window):,}, above the "
            f"budget: a compaction is due at {budget:,}",
        )
