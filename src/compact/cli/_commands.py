"""The commands.

Owns: their names, options and help texts. Must never: hold logic; they parse, call the library, and print.
"""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode, urlsplit

import typer

from .._manager import CompactManager
from ..config import CompactConfig
from ..errors import MissingExtra
from ..viewer import PORT, serve

__all__ = ["app"]

app = typer.Typer(
    name="compact",
    help="Keeps an agent's conversation inside its model's window, and everything that matters in it.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class LogLevel(StrEnum):
    """What is worth a line."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="A compact.yaml or .json; without it, the one in the working directory."),
]
ArchivePath = Annotated[
    Path | None, typer.Option("--path", help="The folder of the archive, instead of the configured storage.path.")
]


@app.callback()
def _root() -> None:
    """Keeps commands commands when there is only one."""


@app.command()
def mcp(
    session: Annotated[
        str | None,
        typer.Option("--session", "-s", help="Offer this session only; without it the agent names the session."),
    ] = None,
    config: ConfigFile = None,
    path: ArchivePath = None,
) -> None:
    """Serve recall over the archive to an agent, by the Model Context Protocol on standard input and output.

    Example, in the configuration of an MCP client:  compact mcp --session my-agent
    """
    from .._mcp import serve

    with _manager(config, path) as manager:
        serve(manager, session)


@app.command()
def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", help="Age in minutes, hours, days or weeks: 90m, 12h, 30d, 8w.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")] = False,
    config: ConfigFile = None,
    path: ArchivePath = None,
) -> None:
    """Delete, for good, every session to which nothing was written for so long. Says what it deleted.

    Example:  compact prune --older-than 30d --dry-run
    """
    with _manager(config, path) as manager:
        pruned = manager.prune(_age(older_than), dry_run=dry_run)
        kept = len(manager.sessions()) - sum(one.session_id is not None for one in pruned if dry_run)
    for forgotten in pruned:
        typer.echo(str(forgotten).replace(" deleted:", " would be deleted:") if dry_run else str(forgotten))
    verb = "would be deleted" if dry_run else "deleted"
    objects = sum(len(forgotten.keys) for forgotten in pruned)
    typer.echo(f"{len(pruned):,} sessions with {objects:,} objects {verb}, {kept:,} sessions stay")


@app.command()
def view(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="An archive's folder or a .jsonl file of events; without it, the configured archive.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Where to listen; anything but loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="0 takes any that is free.")] = PORT,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="COMPACT_VIEW_TOKEN",
            help="Let in only who has it. Better set as a variable: a command line can be seen by others.",
            show_default=False,
        ),
    ] = None,
    db: Annotated[
        Path | None,
        typer.Option("--db", help="The file that keeps what was seen; without it, one beside the archive."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = False,
    config: ConfigFile = None,
) -> None:
    """Show what was folded, when, why and at what price, in a page on this machine. Follows an agent live.

    Example:  compact view .compact/archive --open
    """
    token = token or None

    def started(address: str, shown: str) -> None:
        # With a token the variable stands for it: a shell puts it in, and the line can be shown to anybody.
        url = address if token is None else address.replace("://", "://token:$COMPACT_VIEW_TOKEN@")
        typer.echo(
            f"{address} shows {shown}; to follow an agent live, start it with "
            f"COMPACT_TRACING_ARIADNE_URL={url} (Ctrl-C ends)"
        )
        if open_:
            typer.launch(address if token is None else f"{address}/?{urlencode({'token': token})}")

    serve(CompactConfig.load(config), source, host=host, port=port, token=token, db=db, started=started)


@app.command()
def proxy(
    upstream: Annotated[
        str | None,
        typer.Option("--upstream", "-u", help="The API that requests are sent to.", show_default=False),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Where to listen; anything but loopback needs a token. [127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65_535, help="0 takes any that is free. [8788]")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", help="Where folds are known: memory, sqlite:PATH, or redis://… for many. [memory]"),
    ] = None,
    summary_model: Annotated[
        str | None,
        typer.Option(
            "--summary-model",
            help="A model of the upstream that writes summaries, same for the request's own; without it, no model.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="COMPACT_PROXY_TOKEN",
            help="Let in only who has it. Better set as a variable: a command line can be seen by others.",
            show_default=False,
        ),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="What is logged, as JSON lines.")] = LogLevel.INFO,
    config: ConfigFile = None,
) -> None:
    """Keep the conversations of any agent inside its model's window: point its base URL here, and change no code.

    Example:  compact proxy --upstream https://api.openai.com
    """
    try:
        from ..proxy import serve
    except ModuleNotFoundError as error:
        if (error.name or "compact").startswith("compact"):
            raise
        message = f"the proxy needs {error.name}, which is not installed: pip install 'agent-compact[proxy]'"
        raise MissingExtra(message) from None
    given = {"upstream": upstream, "host": host, "port": port, "state": state, "summary_model": summary_model}
    loaded = CompactConfig.load(config).changed(
        proxy={name: value for name, value in given.items() if value is not None}
    )
    token = token or None

    def started(address: str) -> None:
        # With a token the variable stands for it: a shell puts it in, and the line can be shown to anybody.
        base = address if token is None else f"{address}/~$COMPACT_PROXY_TOKEN"
        name = urlsplit(loaded.proxy.upstream or "").hostname
        typer.echo(f"{address} sends everything to {loaded.proxy.upstream} (Ctrl-C ends). Start your agent with")
        if name != "api.anthropic.com":
            typer.echo(f"  export OPENAI_BASE_URL={base}/v1")
        if name != "api.openai.com":
            typer.echo(f"  export ANTHROPIC_BASE_URL={base}")
        typer.echo(f"Summaries: {_summarizer(loaded)}. Archive: {_archive(loaded)}.")

    serve(loaded, token=token, log_level=log_level, started=started)


def _summarizer(config: CompactConfig) -> str:
    """Who writes the summaries of a proxy."""
    model, summary = config.proxy.summary_model, config.summary
    if model is not None:
        return "by the request's own model" if model == "same" else f"by {model}, of the same upstream"
    if summary.provider == "extract":
        return "taken from the messages, without a model (--summary-model names one)"
    return f"by {summary.model or 'the usual model'}, through {summary.provider}"


def _archive(config: CompactConfig) -> str:
    """Where the originals of what is folded are."""
    storage = config.storage
    if storage.adapter == "none":
        return "none, so what is folded cannot be brought back"
    return str(Path(storage.path).absolute()) if storage.adapter == "fs" else f"s3://{storage.bucket}/{storage.prefix}"


def _manager(config: Path | None, path: Path | None) -> CompactManager:
    loaded = CompactConfig.load(config)
    if path is not None:
        loaded = loaded.changed(storage={"adapter": "fs", "path": str(path)})
    return CompactManager(loaded)


def _age(text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,6})([mhdw])", text.strip().lower())
    if not match or not int(match[1]):
        raise typer.BadParameter(f"{text!r} is no age; write a number and m, h, d or w, such as 30d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
