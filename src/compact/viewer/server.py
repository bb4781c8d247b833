"""The viewer's server, ready to run.

Owns: `open_server`: what is shown (archive or file of events), the database, the socket and the server.
Must never: listen beyond loopback without a token.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from .._archive.viewer_database import VIEWER_DATABASE
from .._http.access import check_address
from .._http.listening import listen
from .._http.serving import Server
from ..config import CompactConfig
from ..errors import CompactError
from .access import ViewerGuard
from .app import Viewer
from .archive_reader import ArchiveReader
from .span_reader import SpanReader
from .span_table import SpanTable

_CLOSE_TIMEOUT = 1.0
"""Seconds that closing waits for open connections, and for a search in the archive."""
_FIRST_LINE_BYTES = 65_536
"""Bytes of a file in which its first line should end."""
_SESSION_FILES = ("summary-*.json", "transcript-pre-compact-*.jsonl", "events*.jsonl", "session.json")


class _ViewerServer(Server):
    """Ends its event streams at a shutdown, and aborts the connections that are still open afterwards."""

    def __init__(self, config: uvicorn.Config, viewer: Viewer) -> None:
        super().__init__(config)
        self._viewer = viewer

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, wait for the rest, and abort what is left."""
        self._viewer.end()
        ending = asyncio.create_task(super().shutdown(sockets))
        await asyncio.wait([ending], timeout=_CLOSE_TIMEOUT)
        for connection in list(self.server_state.connections):  # clients that do not read, or sent half a request
            connection.transport.abort()
        await ending


@contextmanager
def open_server(
    config: CompactConfig, source: Path | None, host: str, port: int, token: str | None, db: Path | None
) -> Iterator[tuple[Server, socket.socket, str]]:
    """The server, its listening socket, and the name of what is shown; all are closed with the block."""
    check_address(host, token, variable="COMPACT_VIEW_TOKEN", danger="the viewer shows whole conversations")
    listening = listen(host, port)
    try:
        config, file = _resolve_source(config, source)
        archive = ArchiveReader.of(config)
        if db is None and file is None and config.storage.adapter != "none":
            db = Path(config.storage.path).expanduser() / VIEWER_DATABASE
        spans = SpanTable(db)
        try:
            reader = SpanReader(spans, archive, file)
            viewer = Viewer(spans, reader, archive)
            guarded = ViewerGuard(viewer.app, host=host, port=listening.getsockname()[1], token=token)
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
            shown = reader.name
            if file is None and archive is not None and archive.root is not None and not archive.root.is_dir():
                shown = (
                    f"live events only, because there is no archive at {archive.name} yet (the first compaction of an "
                    "agent started here makes it; or name one: compact view FOLDER)"
                )
            yield _ViewerServer(settings, viewer), listening, shown
        finally:
            spans.close()
            if archive is not None:  # a search may still wait for an archive that does not answer
                closing = threading.Thread(target=archive.close, daemon=True)
                closing.start()
                closing.join(_CLOSE_TIMEOUT)
    finally:
        listening.close()


def _resolve_source(config: CompactConfig, source: Path | None) -> tuple[CompactConfig, Path | None]:
    """The configuration with the archive to show, and the file of events if `source` is one."""
    if source is None:
        return config, None
    if source.is_file():
        _check_events(source)
        return config, source
    if not source.is_dir():
        raise CompactError(f"{source} is neither a folder nor a file; name an archive's folder, or a .jsonl of events")
    if any(source.glob("summary-*.json")) or (source / "events.jsonl").is_file():
        source = source.absolute().parent  # one session's folder: its archive is shown
    entries = [entry for entry in source.iterdir() if not entry.name.startswith(".")]
    if entries and not any(
        next(entry.glob(name), None) for entry in entries if entry.is_dir() for name in _SESSION_FILES
    ):
        raise CompactError(
            f"{source} is not an archive: none of the {len(entries):,} entries in it is a session's folder. "
            "Name the folder that storage.path names, which is .compact/archive unless set otherwise."
        )
    return config.changed(storage={"adapter": "fs", "path": str(source)}), None


def _check_events(source: Path) -> None:
    """Refuse a file whose first line is not an event; a file without a complete line is accepted."""
    try:
        with source.open("rb") as file:
            line, newline, _ = file.read(_FIRST_LINE_BYTES).lstrip().partition(b"\n")
    except OSError as error:
        raise CompactError(f"{source} cannot be read ({error.strerror})") from None
    try:
        if line and (newline or not line.startswith(b"{")) and not isinstance(json.loads(line), dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise CompactError(
            f"{source} is not a file of events: its first line is not a JSON object. "
            "Name an archive's folder, or the file that tracing.jsonl names."
        ) from None
