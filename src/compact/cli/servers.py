"""The servers: the viewer, the proxy, and recall for agents.

Owns: `view`, `proxy` and `mcp`: their options and what they say when they begin.
Must never: import a server before its command is given.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode, urlsplit

import typer

from ..config import CompactConfig
from ..config.environment import SWITCHED_OFF, switched_off
from ..errors import MissingExtra
from ..viewer import PORT
from .app import ArchivePath, ConfigFile, app, archive_manager

__all__: list[str] = []


class LogLevel(StrEnum):
    """What is worth a line."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


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

    Example:  compact view .compact/archive
    """
    from ..viewer import serve

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
        if switched_off():
            typer.echo(f"{SWITCHED_OFF}.")
        typer.echo(f"Summaries: {_summarizer_text(loaded)}. Archive: {_archive_text(loaded)}.")

    serve(loaded, token=token, log_level=log_level, started=started)


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

    Example:  compact mcp --session chat
    """
    from .mcp_server import serve

    with archive_manager(config, path) as manager:
        serve(manager, session)


def _summarizer_text(config: CompactConfig) -> str:
    """Who writes the summaries of a proxy."""
    model, summary = config.proxy.summary_model, config.summary
    if model is not None:
        return "by the request's own model" if model == "same" else f"by {model}, of the same upstream"
    if summary.provider == "extract":
        return "taken from the messages, without a model (--summary-model names one)"
    return f"by {summary.model or 'the usual model'}, through {summary.provider}"


def _archive_text(config: CompactConfig) -> str:
    """Where the originals of what is folded are."""
    storage = config.storage
    if storage.adapter == "none":
        return "none, so what is folded cannot be brought back"
    return str(Path(storage.path).absolute()) if storage.adapter == "fs" else f"s3://{storage.bucket}/{storage.prefix}"
