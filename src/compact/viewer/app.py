"""The viewer's web application: pages, `/ingest`, the stream of rows, and JSON for the page.

Owns: `Viewer`: the routes, and the status of each error. The answers come from `queries`.
Must never:
- block the event loop: what touches SQLite, the archive or much JSON runs in a thread;
- let an archive that does not answer stop other requests: reads of the archive have separate threads;
- buffer rows for a client: each client reads on from the last id it got.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ..errors import CompactError
from ..sinks import plain
from ..stores import KeyMissing
from .archive_reader import ArchiveReader
from .export import STATIC, read_static
from .ingest import LIMIT, IngestError, body_too_large, parse_body
from .queries import BadParameter, NotFound, Params, Queries, parse_number
from .span_reader import SpanReader
from .span_table import SpanTable, replace_surrogates
from .workers import Workers

if TYPE_CHECKING:
    from starlette.requests import Request

_PING = 15.0
_STREAM_ROWS = 500
"""Rows in one message of the stream."""
_REFRESH_TIMEOUT = 0.15
"""Seconds that a response waits for new events of the archive; later ones arrive by the stream."""
_ARCHIVE_TIMEOUT = 60.0
"""Seconds that a response waits for the archive."""
_READERS = 4
"""Threads that read the archive."""
_CLOSE_TIMEOUT = 1.0
"""Seconds that closing waits for a read of the archive."""
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Viewer:
    """The application and its data."""

    def __init__(self, spans: SpanTable, reader: SpanReader, archive: ArchiveReader | None) -> None:
        self._spans = spans
        self._reader = reader
        self._queries = Queries(spans, reader, archive)
        self._waiting: set[asyncio.Event] = set()
        self._ending = asyncio.Event()
        self._sync_worker, self._readers = Workers(1), Workers(_READERS)
        self._syncing: asyncio.Task[bool] | None = None
        self.app = Starlette(routes=self._routes(), lifespan=self._lifespan)

    def _routes(self) -> list[Route]:
        queries = self._queries
        from_spans: Mapping[str, Callable[[Params], Any]] = {
            "/api/sessions": queries.sessions,
            "/api/spans": queries.rows,
            "/api/span": queries.span,
        }
        from_archive: Mapping[str, Callable[[Params], Any]] = {
            "/api/timeline": queries.timeline,
            "/api/fold": queries.fold,
            "/api/message": queries.message,
            "/api/where": queries.where,
            "/api/search": queries.search,
        }
        return [
            Route("/", self._index),
            Route("/static/{name}", self._static),
            Route("/ingest", self._ingest, methods=["POST"]),
            Route("/healthz", self._health),
            Route("/events", self._events),
            Route("/export", self._export),
            *(Route(path, self._endpoint(query, archive=False)) for path, query in from_spans.items()),
            *(Route(path, self._endpoint(query, archive=True)) for path, query in from_archive.items()),
        ]

    # -- the stream --------------------------------------------------------------------------------------------------

    async def _events(self, request: Request) -> Response:
        given = request.headers.get("last-event-id") or request.query_params.get("since")
        try:
            since = parse_number(given, "since") if given else self._spans.last
        except BadParameter as error:
            return _error(400, f"{error} It is the id of a row; leave it out for new rows only.")
        session = request.query_params.get("session")
        return StreamingResponse(
            self._stream(since, replace_surrogates(session) if session is not None else None),
            media_type="text/event-stream",
        )

    async def _stream(self, since: int, session: str | None) -> AsyncIterator[str]:
        new_rows = asyncio.Event()
        self._waiting.add(new_rows)
        try:
            yield ": rows follow\n\n"
            while not self._ending.is_set():
                new_rows.clear()
                rows = await asyncio.to_thread(self._spans.rows, since, _STREAM_ROWS, session)
                if rows:
                    since = rows[-1]["id"]
                    yield f"id: {since}\ndata: {_encode_json(rows)}\n\n"
                    continue
                try:
                    await asyncio.wait_for(new_rows.wait(), _PING)
                except TimeoutError:
                    yield ": ping\n\n"
        finally:
            self._waiting.discard(new_rows)

    def _notify(self) -> None:
        for new_rows in self._waiting:
            new_rows.set()

    def end(self) -> None:
        """End the streams, and the requests that wait for the archive, so that the server can stop."""
        self._ending.set()
        self._notify()

    async def _ingest(self, request: Request) -> Response:
        try:
            body = bytearray()
            length = request.headers.get("content-length", "0")
            if length.isdigit() and int(length) > LIMIT:
                raise body_too_large(int(length))
            async for chunk in request.stream():
                body += chunk
                if len(body) > LIMIT:
                    raise body_too_large(len(body))
            count, changed = await asyncio.to_thread(self._store, bytes(body))
        except IngestError as error:
            return JSONResponse(error.answer, error.status)
        except ClientDisconnect:
            return Response(status_code=400)  # the client is gone
        if changed:
            self._notify()
        return JSONResponse({"success": True, "count": count})

    def _store(self, body: bytes) -> tuple[int, bool]:
        events = parse_body(body)
        try:
            return len(events), self._spans.add(event for event in events if event["type"] == "span")
        except sqlite3.Error as error:
            why = f"{len(events):,} events cannot be stored ({error}). Make room on the viewer's disk, and send again."
            raise IngestError(500, "Internal server error", message=why) from None

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "events": len(self._spans)})

    # -- following the archive ---------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            if self._syncing is not None:
                _, hanging = await asyncio.wait([self._syncing], timeout=_CLOSE_TIMEOUT)
                for sync in hanging:
                    sync.cancel()
            self._sync_worker.close()
            self._readers.close()

    async def _follow(self) -> None:
        """While a client is connected, read new events; the longer a read takes, the less often."""
        while True:
            if self._waiting or self._syncing is None:
                await self._refresh()
            await asyncio.sleep(min(max(1.0, 20 * self._reader.sync_seconds), 60.0))

    async def _refresh(self, timeout: float | None = None) -> None:
        """Read new events of the archive; after `timeout` the read goes on in the background."""
        if self._syncing is None or self._syncing.done():
            self._syncing = asyncio.create_task(self._sync())
        await asyncio.wait([self._syncing], timeout=timeout)

    async def _sync(self) -> bool:
        try:
            changed = await self._sync_worker.submit(self._reader.sync)
        except Exception:  # the next sync tries again
            return False
        if changed:
            self._notify()
        return changed

    # -- JSON --------------------------------------------------------------------------------------------------------

    def _endpoint(self, query: Callable[[Params], Any], *, archive: bool) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            path, params = request.url.path, request.query_params
            if path in ("/api/sessions", "/api/timeline"):
                await self._refresh(_REFRESH_TIMEOUT)
            reads = archive and (path != "/api/timeline" or self._queries.reads_archive(params))
            return await self._respond(lambda: Response(_encode_json(query(params)), media_type=_JSON), archive=reads)

        return endpoint

    async def _respond(self, answer: Callable[[], Response], *, archive: bool = False) -> Response:
        """Compute a response in a thread; an error becomes a status and a sentence."""
        try:
            return await (self._from_archive(answer) if archive else asyncio.to_thread(answer))
        except BadParameter as error:
            return _error(400, str(error))
        except (NotFound, KeyMissing) as error:
            return _error(404, str(error))
        except CompactError as error:
            return _error(500, str(error))
        except Exception as error:
            return _error(500, f"The viewer failed on this request ({type(error).__name__}). Please report it.")

    async def _from_archive(self, answer: Callable[[], Response]) -> Response:
        """Compute a response in a reader thread, within the time limit and before the shutdown."""
        work, end = self._readers.submit(answer), asyncio.create_task(self._ending.wait())
        try:
            done, _ = await asyncio.wait((work, end), timeout=_ARCHIVE_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        finally:
            end.cancel()
        if work in done:
            return work.result()
        work.cancel()
        raise CompactError(f"The archive did not answer within {_ARCHIVE_TIMEOUT:.0f} s. Check that it can be reached.")

    # -- pages -------------------------------------------------------------------------------------------------------

    async def _export(self, request: Request) -> Response:
        def page() -> Response:
            name, text = self._queries.export(request.query_params)
            headers = {"content-disposition": f'attachment; filename="{name}"'}
            return Response(text, media_type=_MEDIA_TYPES[".html"], headers=headers)

        return await self._respond(page, archive=True)

    async def _index(self, request: Request) -> Response:
        return await self._file("index.html")

    async def _static(self, request: Request) -> Response:
        return await self._file(request.path_params["name"])

    async def _file(self, name: str) -> Response:
        """One of the files in `static/`, by its exact name."""

        def read() -> Response:
            path = STATIC / name
            if path.suffix not in _MEDIA_TYPES or name not in {file.name for file in STATIC.glob("*")}:
                raise NotFound("The page has no such file.")
            return Response(
                read_static(name), media_type=_MEDIA_TYPES[path.suffix], headers={"cache-control": "no-cache"}
            )

        return await self._respond(read)


_JSON = "application/json"


def _encode_json(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:  # a number that JSON does not have, from a foreign file
        return json.dumps(plain(value), separators=(",", ":"), allow_nan=False)


def _error(status: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, status)
