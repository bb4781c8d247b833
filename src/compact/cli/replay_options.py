"""Options of `replay` and `tune`, and the objects they stand for.

Owns: the options of a run, and turning them into a setting, trials, conversations and an engine.
Must never: show a result.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError
from .input import importer_names
from .output import report

if TYPE_CHECKING:
    from ..importers import Conversation
    from ..replay import Setting, Trial
    from ..replay.executors import Engine

INTERRUPTED = 130


class EngineName(StrEnum):
    """Where runs are executed."""

    LOCAL = "local"
    RAY = "ray"


Logs = Annotated[
    list[str], typer.Argument(metavar="LOGS…", help="Logs: files, folders, patterns, s3://…, or - for standard input.")
]
LabWindow = Annotated[
    str | None,
    typer.Option(
        "--window",
        "-w",
        metavar="TOKENS|SHARE",
        help="Replay with this window: tokens (32k), or a share of each conversation (25%) (default: the model's).",
    ),
]
LabModel = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Use the tokens and prices of this model (default: the log's model)."),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--from",
        "--format",
        metavar="NAME",
        help="Read the logs as this format (default: detected).",
        autocompletion=importer_names,
    ),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Use this many processes (default: one for each core).")
]
EngineOption = Annotated[
    EngineName, typer.Option("--engine", help="Run in processes on this machine, or on a Ray cluster.")
]
Address = Annotated[
    str | None,
    typer.Option("--address", help="Use this Ray cluster: auto, or host:port (default: start one)."),
]
CacheRead = Annotated[
    float | None,
    typer.Option("--cache-read", min=0, help="Price cached input at this share of the input price, such as 0.1."),
]
CacheWrite = Annotated[
    float | None,
    typer.Option("--cache-write", min=0, help="Price input that is written to the cache likewise, such as 1.25."),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Calculate costs without a cache.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Write the report and the results to this folder; the same command resumes the run."),
]


def setting_of(
    window: str | None, model: str | None, cache_read: float | None, cache_write: float | None, no_cache: bool
) -> Setting:
    """The setting of a run."""
    from ..config.model_catalog import Caching, caching_of
    from ..replay import Setting, Window

    caching: Caching | str | None = None if no_cache else "known"
    if cache_read is not None or cache_write is not None:
        known = caching_of(model) or (Caching(cache_read) if cache_read is not None else None)
        if no_cache or known is None:
            raise typer.BadParameter("--cache-write needs --cache-read, and neither can be used with --no-cache")
        read = known.read if cache_read is None else cache_read
        caching = known._replace(read=read, write=known.write if cache_write is None else cache_write)
    try:
        return Setting(Window.parse(window) if window is not None else None, model, caching)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


def trials_of(policies: list[str] | None) -> list[Trial]:
    """The policies that are named, or the default ones."""
    from ..config import FILE_NAMES
    from ..replay import Trial

    own = [name for name in FILE_NAMES if Path(name).is_file()]
    return [Trial.load(name) for name in policies or ["default", *own[:1]]]


def open_conversations(logs: list[str], log_format: str | None) -> tuple[Iterator[Conversation], bool]:
    """The conversations, and whether there is only one. What cannot be read is reported and skipped."""
    from .input import read_conversations

    found = read_conversations(logs, log_format)
    first = list(islice(found, 2))
    return chain(first, found), len(first) == 1


def engine_of(engine: EngineName, jobs: int | None, address: str | None, alone: bool) -> Engine:
    """The engine of a run. One conversation needs no second process."""
    if engine == EngineName.RAY:
        from ..replay.ray_executor import on_ray

        return on_ray(address, jobs)
    if address is not None:
        raise typer.BadParameter("--address names a Ray cluster; add --engine ray")
    from ..replay.executors import in_process, processes

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    number = jobs or cores
    return in_process if alone or number == 1 else processes(number)


@contextmanager
def resume_note(out: Path | None) -> Iterator[None]:
    """Report at Ctrl-C whether the run can be resumed."""
    try:
        yield
    except KeyboardInterrupt:
        kept = "the same command resumes the run" if out is not None else "nothing is kept"
        report(f"compact: interrupted; {kept}" + ("" if out is not None else " without --out FOLDER"))
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr when it is a terminal. The total is not known before the logs are read."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda text: progress.update(task, description=f"{what}: {text}")
