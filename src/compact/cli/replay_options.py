"""What the commands of the lab share: which conversations, under what, where, and what is seen meanwhile.

Owns: the options of a run, and what they mean to the lab. Must never: show a result.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
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

__all__ = [
    "Address",
    "CacheRead",
    "CacheWrite",
    "EngineName",
    "EngineOption",
    "Format",
    "Jobs",
    "LabModel",
    "LabWindow",
    "Logs",
    "NoCache",
    "Out",
    "engine_of",
    "open_conversations",
    "progress_bar",
    "resume_note",
    "setting_of",
    "trials_of",
]  # fmt: skip

INTERRUPTED = 130


class EngineName(StrEnum):
    """Where the runs happen."""

    LOCAL = "local"
    RAY = "ray"


Logs = Annotated[
    list[str], typer.Argument(metavar="LOGS…", help="Logs: files, folders, patterns, s3://…, or - for a pipe.")
]
LabWindow = Annotated[
    str | None,
    typer.Option(
        "--window",
        "-w",
        metavar="TOKENS|SHARE",
        help="The window to replay with: tokens (32k), or a share of each conversation (25%); without it, the model's.",
    ),
]
LabModel = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Whose tokens and prices to count with; without it, the log's own model."),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--from",
        "--format",
        metavar="NAME",
        help="Whose logs these are; without it, the content tells.",
        autocompletion=importer_names,
    ),
]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Processes; without it, one for each core.")]
EngineOption = Annotated[EngineName, typer.Option("--engine", help="Processes on this machine, or a Ray cluster.")]
Address = Annotated[
    str | None,
    typer.Option("--address", help="The Ray cluster: auto, or host:port; without it, one is started here."),
]
CacheRead = Annotated[
    float | None,
    typer.Option("--cache-read", min=0, help="What cached input costs, as a share of the input price (0.1)."),
]
CacheWrite = Annotated[
    float | None,
    typer.Option("--cache-write", min=0, help="What input costs that is put into the cache, likewise (1.25)."),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Count as if the provider cached nothing.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="A folder for the report and for the results, from which a run can be taken up again."),
]


def setting_of(
    window: str | None, model: str | None, cache_read: float | None, cache_write: float | None, no_cache: bool
) -> Setting:
    """What holds for every policy of a run, as the options say it."""
    from ..config.model_catalog import Caching, caching_of
    from ..replay import Setting, Window

    caching: Caching | str | None = None if no_cache else "known"
    if cache_read is not None or cache_write is not None:
        known = caching_of(model) or (Caching(cache_read) if cache_read is not None else None)
        if no_cache or known is None:
            raise typer.BadParameter("--cache-write needs --cache-read beside it, and neither goes with --no-cache")
        read = known.read if cache_read is None else cache_read
        caching = replace(known, read=read, write=known.write if cache_write is None else cache_write)
    try:
        return Setting(Window.parse(window) if window is not None else None, model, caching)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


def trials_of(policies: list[str] | None) -> list[Trial]:
    """The policies that were named, or the default ones."""
    from ..config import FILE_NAMES
    from ..replay import Trial

    own = [name for name in FILE_NAMES if Path(name).is_file()]
    return [Trial.load(name) for name in policies or ["default", *own[:1]]]


def open_conversations(logs: list[str], log_format: str | None) -> tuple[Iterator[Conversation], bool]:
    """The conversations, and whether there is but one. What cannot be read is told, and passed over."""
    from .input import read_conversations

    found = read_conversations(logs, log_format)
    first = list(islice(found, 2))
    return chain(first, found), len(first) == 1


def engine_of(engine: EngineName, jobs: int | None, address: str | None, alone: bool) -> Engine:
    """Where the runs happen. One conversation alone needs no second process."""
    if engine == EngineName.RAY:
        from ..replay.ray_executor import on_ray

        return on_ray(address, jobs)
    if address is not None:
        raise typer.BadParameter("--address is a cluster's; add --engine ray")
    from ..replay.executors import in_process, processes

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    number = jobs or cores
    return in_process if alone or number == 1 else processes(number)


@contextmanager
def resume_note(out: Path | None) -> Iterator[None]:
    """Ctrl-C ends a run with a sentence about what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        kept = "what is done is kept: the same command takes it up again" if out is not None else "nothing is kept"
        report(f"compact: interrupted; {kept}" + ("" if out is not None else " without --out FOLDER"))
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[str], None]]:
    """A bar on stderr, while somebody looks on there. How much there is to do is not known before it is read."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda text: progress.update(task, description=f"{what}: {text}")
