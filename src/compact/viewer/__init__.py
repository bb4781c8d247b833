"""The viewer: a local page that shows each compaction: when, why, at what cost, and where the originals are.

Owns: the entry points. `serve` is `compact view`; `running` is a viewer in a thread, for tests and notebooks.
Must never: be imported by anything but the command line, write to an archive, or fetch anything from outside.

    POST /ingest ─▶ ingest ───────┐
    archive, JSONL ─▶ span_reader ┴▶ span_table (SQLite) ─▶ rows ─────────▶ app (SSE, JSON) ─▶ access ─▶ static/
                                            └─▶ timeline ─┐                  ▲
    archive ─▶ archive_reader ─▶ fold_document, export ───┴─▶ queries ───────┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .._http.listening import address_of
from ..config import CompactConfig
from ..errors import MissingExtra

__all__ = ["PORT", "running", "serve"]

PORT = 5175
"""The port of Ariadne, so that one `tracing.ariadne_url` reaches either."""


def serve(
    config: CompactConfig,
    source: Path | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    token: str | None = None,
    db: Path | None = None,
    started: Callable[[str, str], None] = lambda address, shown: None,
) -> None:
    """Show an archive or a JSONL file of events, and the events that are sent to it, until Ctrl-C.

    `started` is called with the address and the name of what is shown.
    """
    _need_extra()
    from .server import open_server

    with open_server(config, source, host, port, token, db) as (server, listening, shown), suppress(KeyboardInterrupt):
        # Not earlier: until the server handles signals, Python may lose one.
        server.ready = lambda: started(address_of(listening, named=True), shown)
        server.run(sockets=[listening])


@contextmanager
def running(
    config: CompactConfig,
    source: Path | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    db: Path | None = None,
) -> Iterator[str]:
    """A viewer in a thread of this process: `with running(config) as address: …`. It ends with the block."""
    _need_extra()
    from .server import open_server

    with (
        open_server(config, source, host, port, token, db) as (server, listening, _),
        server.in_thread(listening, "compact-view", 10) as address,
    ):
        yield address


def _need_extra() -> None:
    try:
        import starlette
        import uvicorn  # noqa: F401
    except ImportError:
        raise MissingExtra(
            'the viewer needs starlette and uvicorn, and one of them is not installed: install "agent-compact[view]"'
        ) from None
    del starlette
