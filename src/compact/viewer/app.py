"""The viewer's addresses: pages, `/ingest`, the stream of rows, and JSON for the page.

Owns: `Viewer`; what is asked where, and which status an error has. What is answered, `queries` knows.
Must never: block the event loop: whatever touches SQLite, the archive or much JSON runs in a thread; let an archive
that does not answer stop what needs none: it has threads of its own; or hold rows for a client: each has a place in
the stream of ids, and reads on from there when it can take more.
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
from .archive_reader import Shelf
from .export import STATIC, static_text
from .ingest import LIMIT, Refused, accept, too_large
from .queries import Answers, Params, Unknown, Wrong, number_of
from .span_reader import Source
from .span_table import Spans, whole_text
from .workers import Workers

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["Viewer"]

_PING = 15.0
_AT_ONCE = 500
"""Rows in one message of the stream."""
_PATIENCE = 0.15
"""Seconds that an answer waits for news of the archive; what comes later comes by the stream."""
_LONGEST = 60.0
"""Seconds that an answer waits for the archive."""
_READERS = 4
_FAREWELL = 1.0
"""Seconds that the end waits for a look at the archive."""
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Viewer:
    """The application, and what it shows."""

    def __init__(self, spans: Spans, source: Source, shelf: Shelf | None) -> None:
        self._spans = spans
        self._source = source
        self._answers = Answers(spans, source, shelf)
        self._waiting: set[asyncio.Event] = set()
        self._end = asyncio.Event()
        self._looker, self._readers = Workers(1), Workers(_READERS)
        self._syncing: asyncio.Task[bool] | None = None
        self.app = Starlette(routes=self._routes(), lifespan=self._life)

    def _routes(self) -> list[Route]:
        answers = self._answers
        asked: Mapping[str, Callable[[Params], Any]] = {
            "/api/sessions": answers.sessions,
            "/api/spans": answers.rows,
            "/api/span": answers.span,
        }
        archived: Mapping[str, Callable[[Params], Any]] = {
            "/api/timeline": answers.timeline,
            "/api/fold": answers.document,
            "/api/message": answers.message,
            "/api/where": answers.where,
            "/api/search": answers.search,
        }
        return [
            Route("/", self._index),
            Route("/static/{name}", self._static),
            Route("/ingest", self._ingest, methods=["POST"]),
            Route("/healthz", self._health),
            Route("/events", self._events),
            Route("/export", self._export),
            *(Route(path, self._answering(answer, archive=False)) for path, answer in asked.items()),
            *(Route(path, self._answering(answer, archive=True)) for path, answer in archived.items()),
        ]

    # -- the stream --------------------------------------------------------------------------------------------------

    async def _events(self, request: Request) -> Response:
        given = request.headers.get("last-event-id") or request.query_params.get("since")
        try:
            since = number_of(given, "since") if given else self._spans.last
        except Wrong as error:
            return _error(400, f"{error} It is the id of a row; leave it out for new rows only.")
        session = request.query_params.get("session")
        return StreamingResponse(
            self._stream(since, whole_text(session) if session is not None else None),
            media_type="text/event-stream",
        )

    async def _stream(self, since: int, session: str | None) -> AsyncIterator[str]:
        bell = asyncio.Event()
        self._waiting.add(bell)
        try:
            yield ": rows follow\n\n"
            while not self._end.is_set():
                bell.clear()
                rows = await asyncio.to_thread(self._spans.rows, since, _AT_ONCE, session)
                if rows:
                    since = rows[-1]["id"]
                    yield f"id: {since}\ndata: {_encoded(rows)}\n\n"
                    continue
                try:
                    await asyncio.wait_for(bell.wait(), _PING)
                except TimeoutError:
                    yield ": ping\n\n"
        finally:
            self._waiting.discard(bell)

    def _ring(self) -> None:
        for bell in self._waiting:
            bell.set()

    def end(self) -> None:
        """End the streams, and what waits for the archive, so that the server can stop."""
        self._end.set()
        self._ring()

    async def _ingest(self, request: Request) -> Response:
        try:
            body = bytearray()
            told = request.headers.get("content-length", "0")
            if told.isdigit() and int(told) > LIMIT:
                raise too_large(int(told))
            async for chunk in request.stream():
                body += chunk
                if len(body) > LIMIT:
                    raise too_large(len(body))
            count, news = await asyncio.to_thread(self._take, bytes(body))
        except Refused as refused:
            return JSONResponse(refused.answer, refused.status)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody hears it
        if news:
            self._ring()
        return JSONResponse({"success": True, "count": count})

    def _take(self, body: bytes) -> tuple[int, bool]:
        events = accept(body)
        try:
            return len(events), self._spans.add(event for event in events if event["type"] == "span")
        except sqlite3.Error as error:
            why = f"{len(events):,} events cannot be kept ({error}). Make room on the viewer's disk, and send again."
            raise Refused(500, "Internal server error", message=why) from None

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "events": len(self._spans)})

    # -- the archive, followed ---------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _life(self, app: Starlette) -> AsyncIterator[None]:
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            if self._syncing is not None:
                _, hanging = await asyncio.wait([self._syncing], timeout=_FAREWELL)
                for look in hanging:
                    look.cancel()
            self._looker.close()
            self._readers.close()

    async def _follow(self) -> None:
        """While somebody looks on, look for news; the longer a look takes, the more seldom."""
        while True:
            if self._waiting or self._syncing is None:
                await self._news()
            await asyncio.sleep(min(max(1.0, 20 * self._source.took), 60.0))

    async def _news(self, patience: float | None = None) -> None:
        """See that the newest files of the archive are read, or are being read when patience ends."""
        if self._syncing is None or self._syncing.done():
            self._syncing = asyncio.create_task(self._sync())
        await asyncio.wait([self._syncing], timeout=patience)

    async def _sync(self) -> bool:
        try:
            news = await self._looker.ask(self._source.sync)
        except Exception:  # a look that fails is made again
            return False
        if news:
            self._ring()
        return news

    # -- JSON --------------------------------------------------------------------------------------------------------

    def _answering(self, answer: Callable[[Params], Any], *, archive: bool) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            path, params = request.url.path, request.query_params
            if path in ("/api/sessions", "/api/timeline"):
                await self._news(_PATIENCE)
            asks = archive and (path != "/api/timeline" or self._answers.asks_store(params))
            return await self._answered(lambda: Response(_encoded(answer(params)), media_type=_JSON), archive=asks)

        return endpoint

    async def _answered(self, answer: Callable[[], Response], *, archive: bool = False) -> Response:
        """What a thread answers, or what it could not in a sentence."""
        try:
            return await (self._from_archive(answer) if archive else asyncio.to_thread(answer))
        except Wrong as error:
            return _error(400, str(error))
        except (Unknown, KeyMissing) as error:
            return _error(404, str(error))
        except CompactError as error:
            return _error(500, str(error))
        except Exception as error:
            return _error(500, f"The viewer failed on this one ({type(error).__name__}). Please report it.")

    async def _from_archive(self, answer: Callable[[], Response]) -> Response:
        """What one of the readers answers, within its time and before the end."""
        work, end = self._readers.ask(answer), asyncio.create_task(self._end.wait())
        try:
            done, _ = await asyncio.wait((work, end), timeout=_LONGEST, return_when=asyncio.FIRST_COMPLETED)
        finally:
            end.cancel()
        if work in done:
            return work.result()
        work.cancel()
        raise CompactError(f"The archive did not answer within {_LONGEST:.0f} s. Check that it can be reached.")

    # -- pages -------------------------------------------------------------------------------------------------------

    async def _export(self, request: Request) -> Response:
        def page() -> Response:
            name, text = self._answers.exported(request.query_params)
            given = {"content-disposition": f'attachment; filename="{name}"'}
            return Response(text, media_type=_TYPES[".html"], headers=given)

        return await self._answered(page, archive=True)

    async def _index(self, request: Request) -> Response:
        return await self._file("index.html")

    async def _static(self, request: Request) -> Response:
        return await self._file(request.path_params["name"])

    async def _file(self, name: str) -> Response:
        """One of the files that are there by name, and no other."""

        def read() -> Response:
            path = STATIC / name
            if path.suffix not in _TYPES or name not in {one.name for one in STATIC.glob("*")}:
                raise Unknown("The page has no such file.")
            return Response(static_text(name), media_type=_TYPES[path.suffix], headers={"cache-control": "no-cache"})

        return await self._answered(read)


_JSON = "application/json"


def _encoded(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:  # a number that JSON does not have, from a file that somebody else wrote
        return json.dumps(plain(value), separators=(",", ":"), allow_nan=False)


def _error(status: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, status)
