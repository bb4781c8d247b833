"""What all commands share: the program, its exit codes, the options that several commands have.

Owns: `app`, how errors are printed, and the configuration of a command. Must never: know a command.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ..config import CompactConfig
from ..config.config import rebuild_config
from ..config.environment import SECTIONS
from ..errors import ArchiveError, CompactError, ConfigError
from .output import printable

if TYPE_CHECKING:
    from .._engine.manager import CompactManager

PROBLEM = 3
EXIT_CODES = {
    0: "success",
    1: "failure; one sentence on stderr gives the reason",
    2: "usage error: wrong options or arguments",
    PROBLEM: "a check found a problem: `verify`, `doctor`, and `--check` of `count` and `plan`",
    130: "interrupted",
}
"""The exit codes. A reader that closes the pipe early (`| head`) is not an error."""


class Commands(TyperGroup):
    """A group that prints an error as one sentence on stderr."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command, and exit with its exit code."""
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False}) or 0
        except OSError as error:
            if isinstance(error, CompactError):
                raise
            where = error.filename or "standard input or output"
            code = _print_error(
                f"{where} cannot be read or written ({error.strerror or error}); check its name and permissions"
            )
        except CompactError as error:
            # Errors of the library name its methods; here they are commands.
            text = str(error).replace(" list()", " sessions()")
            code = _print_error(re.sub(r"\b(sessions|verify|restore|undo|redo)\(\)", r"`compact \1`", text))
        except Exception as error:  # a class of click, whose module differs between releases of typer
            if not hasattr(error, "format_message"):
                raise
            code = _print_error(_usage_error(error), getattr(error, "exit_code", 2))
        except SystemExit as end:
            code = 0 if end.code == 1 else end.code  # rich exits with 1 when the pipe of the help is closed
        with _ignore_broken_pipe():
            sys.stdout.flush()
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; its output may be a pipe that is closed early."""
        with _ignore_broken_pipe():
            return super().invoke(ctx)


@contextmanager
def _ignore_broken_pipe() -> Iterator[None]:
    """Discard the rest of the output without an error when its pipe is closed."""
    try:
        yield
    except BrokenPipeError:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


app = typer.Typer(
    name="compact",
    cls=Commands,
    help="Keep an agent's conversation within its model's context window, without losing what matters in it.",
    epilog="Exit codes: " + "; ".join(f"{code} {meaning.split(';')[0]}" for code, meaning in EXIT_CODES.items()) + ".",
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        from .. import __version__

        typer.echo(f"compact {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _usage_error(error: Any) -> str:
    """The text of a usage error, with the command for its help."""
    text = " ".join(error.format_message().split()).removeprefix("Invalid value: ").rstrip(".")
    context = getattr(error, "ctx", None)
    stop = "" if text.endswith("?") else "."
    return f"{text}{stop} See `{context.command_path} --help`." if context is not None else text


def _print_error(text: str, code: int = 1) -> int:
    typer.echo(f"compact: {printable(text)}", err=True)
    return code


# Options


def complete_sessions(incomplete: str) -> list[str]:
    """Session ids of the archive in the working directory, for shell completion."""
    try:
        with archive_manager() as manager:
            return [name for name in manager.sessions() if name.startswith(incomplete)]
    except CompactError:
        return []


ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Read this configuration file (default: compact.yaml or .json here)."),
]
ArchivePath = Annotated[
    Path | None, typer.Option("--path", help="Use the archive in this folder (default: the configured storage.path).")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change a setting for this run, such as policy.trigger_pct=0.5."),
]
ModelName = Annotated[
    str | None, typer.Option("--model", "-m", help="Use this model (default: the configured one, or the log's).")
]
Window = Annotated[
    int | None, typer.Option("--window", "-w", min=1, help="Use a window of this many tokens (default: the model's).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Overwrite = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
AllRows = Annotated[bool, typer.Option("--all", "-a", help="Show every message on its own line.")]
SessionId = Annotated[
    str,
    typer.Argument(
        metavar="SESSION", help="The id of a session; `compact sessions` lists them.", autocompletion=complete_sessions
    ),
]
Step = Annotated[
    int | None, typer.Option("--step", "-n", min=1, help="Number of the compaction (default: the newest).")
]


# The configuration


def option_values(
    settings: Sequence[str] | None, model: str | None = None, window: int | None = None
) -> dict[str, Any]:
    """The settings that options change, by dotted names."""
    values: dict[str, Any] = {}
    for setting in settings or ():
        import yaml  # here, because most runs set nothing

        name, equals, text = setting.partition("=")
        if not equals:
            raise typer.BadParameter(f"{setting!r} sets nothing; write NAME=VALUE, such as policy.trigger_pct=0.5")
        try:
            values[name.strip()] = yaml.safe_load(text)
        except yaml.YAMLError:
            values[name.strip()] = text
    if model is not None:
        values["model"] = model
    if window is not None:
        values["max_context_tokens"] = window
    return values


def load_config(file: Path | None, options: dict[str, Any] | None = None, path: Path | None = None) -> CompactConfig:
    """Load the configuration, and apply the settings of options."""
    config = CompactConfig.load(file)
    if path is not None:
        config = config.changed(storage={"adapter": "fs", "path": str(path)})
    nested: dict[str, Any] = {}
    for name, value in (options or {}).items():
        section, dot, field = name.partition(".")
        if section in (*SECTIONS, "agents") and not (dot and field):
            raise typer.BadParameter(f"{section} is a section; name one of its settings, {section}.NAME=VALUE")
        nested[section] = {**nested.get(section, {}), field: value} if dot else value
    try:
        return rebuild_config(config, nested)
    except (ConfigError, AttributeError, TypeError) as error:
        text = str(error) if isinstance(error, ConfigError) else f"{', '.join(nested)}: no such section"
        raise typer.BadParameter(text) from None


def archive_manager(file: Path | None = None, path: Path | None = None) -> CompactManager:
    """A manager for reading the archive, which needs no model. A folder that is named must exist."""
    from .._engine.manager import CompactManager
    from ..summarizers import offline_summarizer

    if path is not None and not path.is_dir():
        raise ArchiveError(f"{path} is not a folder; --path names the folder of an archive, such as .compact/archive")
    return CompactManager(load_config(file, path=path), summarizer=offline_summarizer())
