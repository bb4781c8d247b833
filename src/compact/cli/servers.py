"""The commands that start a server: `view`, `proxy` and `mcp`.

Owns: their options, and what they print at the start. Must never: import the proxy or the MCP server before its
command is run.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode, urlsplit

import typer

from ..config import CompactConfig
from ..config.environment import DISABLED_NOTICE, is_disabled
from ..errors import MissingExtra
from ..viewer import PORT
from .app import ArchivePath, ConfigFile, app, archive_manager


class LogLevel(StrEnum):
    """The least severity that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _token_option(variable: str) -> Any:
    return typer.Option(
        "--token",
        envvar=variable,
        help="Require this token. Prefer the variable: other users can see a command line.",
        show_default=False,
    )


@app.command()
def view(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="The folder of an archive, or a .jsonl file of events (default: the configured archive).",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Listen on this address; any but loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, help="Listen on this port; 0 chooses a free one.")
    ] = PORT,
    token: Annotated[str | None, _token_option("COMPACT_VIEW_TOKEN")] = None,
    db: Annotated[
        Path | None,
        typer.Option("--db", help="Store the viewer's data in this file (default: one beside the archive)."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = False,
    config: ConfigFile = None,
) -> None:
    """Show every compaction with its time, reason and cost on a local web page, and follow agents live.

    Example:  compact view .compact/archive
    """
    from ..viewer import serve

    token = token or None

    def started(address: str, shown: str) -> None:
        # The variable stands for the token: a shell inserts it, and the printed line holds no secret.
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
        typer.Option("--upstream", "-u", help="Send requests to this API.", show_default=False),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option("--host", help="Listen on this address; any but loopback needs a token (default: 127.0.0.1)."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65_535, help="Listen on this port; 0 chooses a free one (default: 8788)."),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", help="Share compactions through memory, sqlite:PATH or redis://… (default: memory)."),
    ] = None,
    summary_model: Annotated[
        str | None,
        typer.Option(
            "--summary-model",
            help="Let this model of the upstream write summaries; same is the request's own (default: no model).",
        ),
    ] = None,
    token: Annotated[str | None, _token_option("COMPACT_PROXY_TOKEN")] = None,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="Log from this level on, as JSON lines.")
    ] = LogLevel.INFO,
    config: ConfigFile = None,
) -> None:
    """Run a proxy that compacts the conversations of any agent: point its base URL here, without a change in code.

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
        # The variable stands for the token: a shell inserts it, and the printed line holds no secret.
        base = address if token is None else f"{address}/~$COMPACT_PROXY_TOKEN"
        name = urlsplit(loaded.proxy.upstream or "").hostname
        typer.echo(f"{address} sends everything to {loaded.proxy.upstream} (Ctrl-C ends). Start your agent with")
        if name != "api.anthropic.com":
            typer.echo(f"  export OPENAI_BASE_URL={base}/v1")
        if name != "api.openai.com":
            typer.echo(f"  export ANTHROPIC_BASE_URL={base}")
        if is_disabled():
            typer.echo(f"{DISABLED_NOTICE}.")
        typer.echo(f"Summaries: {_summarizer_text(loaded)}. Archive: {_archive_text(loaded)}.")

    serve(loaded, token=token, log_level=log_level, started=started)


@app.command()
def mcp(
    session: Annotated[
        str | None,
        typer.Option("--session", "-s", help="Serve only this session (default: the agent names one)."),
    ] = None,
    config: ConfigFile = None,
    path: ArchivePath = None,
) -> None:
    """Serve recall over the archive to an agent, with the Model Context Protocol on standard input and output.

    Example:  compact mcp --session chat
    """
    from .mcp_server import serve

    with archive_manager(config, path) as manager:
        serve(manager, session)


def _summarizer_text(config: CompactConfig) -> str:
    """How a proxy makes its summaries."""
    model, summary = config.proxy.summary_model, config.summary
    if model is not None:
        return "by the request's own model" if model == "same" else f"by {model} of the same upstream"
    if summary.provider == "extract":
        return "taken from the messages, without a model (--summary-model names one)"
    return f"by {summary.model or 'the default model'} through {summary.provider}"


def _archive_text(config: CompactConfig) -> str:
    """Where a proxy archives the original messages."""
    storage = config.storage
    if storage.adapter == "none":
        return "none, so compacted messages cannot be restored"
    return str(Path(storage.path).absolute()) if storage.adapter == "fs" else f"s3://{storage.bucket}/{storage.prefix}"
