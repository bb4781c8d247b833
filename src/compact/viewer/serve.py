"""Starting and stopping the viewer.

Owns: the server, and where spans are kept. Must never: listen beyond loopback without a token.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn

from .._archive.viewer_database import SEEN
from .._http.access import check_address
from .._http.listening import address_of, listen
from ..config import CompactConfig
from ..errors import CompactError
from .access import Guard
from .app import Viewer
from .archive_reader import Shelf
from .span_reader import Source
from .span_table import Spans

__all__ = ["running", "serve"]

_FAREWELL = 1.0
"""Seconds that the end waits for somebody."""
_FIRST = 65_536
"""Bytes of a file in which its first line should end."""
_KEPT = ("summary-*.json", "transcript-pre-compact-*.jsonl", "events*.jsonl", "session.json")


def serve(
    config: CompactConfig,
    source: Path | None,
    *,
    host: str,
    port: int,
    token: str | None,
    db: Path | None,
    started: Callable[[str, str], None],
) -> None:
    """Serve until Ctrl-C; `started` is told the address and what is shown, as soon as it answers."""
    with _server(config, source, host, port, token, db) as (server, listening, shown), suppress(KeyboardInterrupt):
        # Not before: until the server listens to signals, Python may lose one that comes while it tidies up.
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
    """A viewer in a thread of this process, and its address; it ends with the block."""
    with _server(config, source, host, port, token, db) as (server, listening, _):
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="compact-view", daemon=True)
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.005)
            yield address_of(listening)
        finally:
            server.should_exit = True
            thread.join(10)


class _Server(uvicorn.Server):
    """A server that ends its streams before it waits for them, and then whatever does not end."""

    def __init__(self, config: uvicorn.Config, viewer: Viewer) -> None:
        super().__init__(config)
        self._viewer = viewer
        self.ready: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start."""
        await super().startup(sockets)
        self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop."""
        self._viewer.end()
        ending = asyncio.create_task(super().shutdown(sockets))
        await asyncio.wait([ending], timeout=_FAREWELL)
        for connection in list(self.server_state.connections):  # who does not read, or has sent half a request
            connection.transport.abort()
        await ending


@contextmanager
def _server(
    config: CompactConfig, source: Path | None, host: str, port: int, token: str | None, db: Path | None
) -> Iterator[tuple[_Server, socket.socket, str]]:
    check_address(host, token, variable="COMPACT_VIEW_TOKEN", danger="the viewer shows whole conversations")
    listening = listen(host, port)
    try:
        config, file = _opened(config, source)
        shelf = Shelf.of(config)
        if db is None and file is None and config.storage.adapter != "none":
            db = Path(config.storage.path).expanduser() / SEEN
        spans = Spans(db)
        try:
            seen = Source(spans, shelf, file)
            viewer = Viewer(spans, seen, shelf)
            guarded = Guard(viewer.app, host=host, port=listening.getsockname()[1], token=token)
            settings = uvicorn.Config(
                guarded,
                log_level="warning",
                access_log=False,
                lifespan="on",
                http="h11",
                ws="none",
                server_header=False,
                headers=[("server", "compact view")],
                timeout_keep_alive=75,
                timeout_graceful_shutdown=2,
            )
            shown = seen.name
            if file is None and shelf is not None and shelf.root is not None and not shelf.root.is_dir():
                shown = (
                    f"live events only, because there is no archive at {shelf.name} yet (the first fold of an agent "
                    "started here makes it; or name one: compact view FOLDER)"
                )
            yield _Server(settings, viewer), listening, shown
        finally:
            spans.close()
            if shelf is not None:  # a search may hold it, of an archive that does not answer
                closing = threading.Thread(target=shelf.close, daemon=True)
                closing.start()
                closing.join(_FAREWELL)
    finally:
        listening.close()


def _opened(config: CompactConfig, source: Path | None) -> tuple[CompactConfig, Path | None]:
    """The configuration with the archive that is to be shown, and the file of events, if it is one."""
    if source is None:
        return config, None
    if source.is_file():
        _check_events(source)
        return config, source
    if not source.is_dir():
        raise CompactError(f"{source} is neither a folder nor a file; name an archive's folder, or a .jsonl of events")
    if any(source.glob("summary-*.json")) or (source / "events.jsonl").is_file():
        source = source.absolute().parent  # one session's folder: its archive is shown
    seen = [entry for entry in source.iterdir() if not entry.name.startswith(".")]
    if seen and not any(next(entry.glob(name), None) for entry in seen if entry.is_dir() for name in _KEPT):
        raise CompactError(
            f"{source} is no archive: none of the {len(seen):,} things in it is a session's folder. Name the folder "
            "that storage.path names, which is .compact/archive unless set otherwise."
        )
    return config.changed(storage={"adapter": "fs", "path": str(source)}), None


def _check_events(source: Path) -> None:
    """Refuse a file whose first line is no event; one without a whole line may still get it."""
    try:
        with source.open("rb") as file:
            line, newline, _ = file.read(_FIRST).lstrip().partition(b"\n")
    except OSError as error:
        raise CompactError(f"{source} cannot be read ({error.strerror})") from None
    try:
        if line and (newline or not line.startswith(b"{")) and not isinstance(json.loads(line), dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise CompactError(
            f"{source} is no file of events: its first line is no JSON object. Name an archive's folder, or the file "
            "that tracing.jsonl names."
        ) from None
