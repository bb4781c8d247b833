"""The life of one request: read it, compact it when due, send it to the upstream, and pass the response back.

Owns: `Relay`, an ASGI application. Must never: hold back a byte of a response, end a response that broke off as if it
were complete, or fail a request for an error of compact: what cannot be compacted is sent unchanged.

- A request is read whole before anything is sent, so an incomplete request is never sent.
- When the client disconnects, the upstream is closed at once. A running compaction is completed: the client will send
  the same list again, and should not pay for it twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpcore

from .._http.endpoints import CHAT, MESSAGES, RESPONSES, Endpoint
from ..errors import CompactError
from .body import Body
from .compression import readable_encodings, unpack_body
from .conversations import CompactedRequest, Conversations, ProxyExchange
from .fingerprint import CREDENTIAL_HEADERS, caller_digest
from .operations import Operations, RequestRecord
from .request_tokens import PrefixMatch, RequestPrefixes
from .responses import ClientResponse, RequestRefused, UsageListener
from .summarizer import CALLER, Caller
from .upstream import FAILURES, Headers, Upstream, forwardable_headers
from .upstream_response import UpstreamResponse

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_ENDPOINTS = (CHAT, RESPONSES, MESSAGES)
_ABOUT_THE_CALLER = frozenset(
    {*CREDENTIAL_HEADERS, b"anthropic-version", b"anthropic-beta", b"openai-organization", b"openai-project"}
)
_BODILESS = frozenset({204, 304})
_LONGEST_NAME = 128
_READ_AT_ONCE = 1_000_000
"""Bytes that are parsed as JSON on the event loop; more go to a thread."""
_SLOWEST_BODY = 120.0
"""Seconds that a request's body may take to arrive."""
_SHUTDOWN_WAIT = 5.0
"""Seconds that the shutdown waits for compactions whose clients have disconnected."""


class ClientDisconnected(Exception):
    """The client closed the connection."""


class ResponseBrokeOff(Exception):
    """The upstream closed the connection in the middle of a response, so the proxy does too."""


class Relay:
    """Relays requests to one upstream."""

    def __init__(
        self,
        upstream: Upstream,
        conversations: Conversations,
        operations: Operations,
        *,
        max_body: int,
        max_requests: int,
    ) -> None:
        self._upstream = upstream
        self._conversations = conversations
        self._operations = operations
        self._max_body = max_body
        self._max_requests = max_requests
        self._running = 0
        self._compacting: set[asyncio.Task[Any]] = set()
        self._prefixes = RequestPrefixes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        target: bytes = scope["raw_path"].split(b"?")[0]
        endpoint = _endpoint_of(scope["method"], target)
        record = self._operations.begin(endpoint.format if endpoint else "other")
        response = ClientResponse(send, record)
        running = max(self._running, len(self._compacting))  # a compaction goes on when its client disconnects
        if running >= self._max_requests:
            refusal = RequestRefused(503, f"{running:,} requests are running, and proxy.max_requests allows no more.")
            await response.refuse(refusal, (b"retry-after", b"1"))
            return
        self._running += 1
        try:
            content = await self._read_body(scope, receive, record)
            work = asyncio.ensure_future(self._handle(scope, target, endpoint, content, response))
            await _await_while_connected(work, receive)
        except ClientDisconnected:
            record.finish(status=499)
        except RequestRefused as refusal:
            await response.refuse(refusal)
        except ResponseBrokeOff:
            record.finish(status=response.status, error="broken off")
            raise
        finally:
            record.finish(status=response.status or 500, error="failed")  # no effect when it is finished already
            self._running -= 1
            self._operations.buffered.dec(record.bytes_in)

    async def finish_compactions(self) -> None:
        """Wait for compactions whose clients have disconnected."""
        if self._compacting:
            await asyncio.wait(self._compacting, timeout=_SHUTDOWN_WAIT)

    async def _read_body(self, scope: Scope, receive: Receive, record: RequestRecord) -> bytes:
        """Read the whole body of a request."""
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        promised, parts = int(length) if length.isdigit() and len(length) < 20 else 0, []
        try:
            async with asyncio.timeout(_SLOWEST_BODY):
                while max(promised, record.bytes_in) <= self._max_body:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnected
                    parts.append(message.get("body", b""))
                    record.bytes_in += len(parts[-1])
                    self._operations.buffered.inc(len(parts[-1]))
                    if not message.get("more_body", False):
                        return b"".join(parts) if len(parts) > 1 else parts[0]
        except TimeoutError:
            raise RequestRefused(408, f"The body did not arrive within {_SLOWEST_BODY:.0f} s; send it again.") from None
        raise RequestRefused(
            413, f"The body has more than {self._max_body:,} bytes, which is proxy.max_body; raise it."
        )

    async def _handle(
        self, scope: Scope, target: bytes, endpoint: Endpoint | None, content: bytes, response: ClientResponse
    ) -> None:
        if self._upstream.leaves_prefix(target):
            raise RequestRefused(400, "The path has . or .. in it and would leave the path of proxy.upstream.")
        exchange: ProxyExchange | None = None
        compacted: CompactedRequest | None = None
        if endpoint is not None:
            match = self._prefixes.match(_caller_digest(scope) + target, content)
            exchange = None if match.is_below else await self._parse(scope, target, endpoint, content)
            compacted = await self._compact(exchange, match) if exchange is not None else None
        answer = await self._send(scope, target, content, compacted, endpoint)
        try:
            if endpoint is not None and (refusal := await answer.read_overflow()) is not None:
                self._prefixes.clear()
                exchange = exchange or await self._parse(scope, target, endpoint, content)
                smaller = await self._compact_refused(exchange, refusal, compacted) if exchange is not None else None
                if smaller is not None:
                    await answer.close()
                    compacted = smaller
                    answer = await self._send(scope, target, content, compacted, endpoint)
            await self._respond(answer, exchange, compacted, response)
        finally:
            await answer.close()

    async def _parse(self, scope: Scope, target: bytes, endpoint: Endpoint, content: bytes) -> ProxyExchange | None:
        """Parse the conversation in a request; None when there is none, or a part of it is stored at the provider."""
        headers = dict(scope["headers"])
        packing = headers.get(b"content-encoding", b"")

        def read() -> Body | None:
            return Body.read(unpack_body(content, packing, self._max_body), endpoint.messages)

        # A long body would block other requests, and a compressed one may be long.
        body = await asyncio.to_thread(read) if packing or len(content) > _READ_AT_ONCE else read()
        if body is None or endpoint.is_on_server(body.fields):
            return None
        named = headers.get(b"x-compact-session", b"").decode("latin-1").strip()
        if len(named) > _LONGEST_NAME:
            raise RequestRefused(400, f"x-compact-session has {len(named)} characters; the most is {_LONGEST_NAME}.")
        if not named.isprintable():  # it is sent in a header of the response too
            raise RequestRefused(400, "x-compact-session has unprintable characters; use letters and digits.")
        exchange = ProxyExchange(endpoint, body, _caller_digest(scope), target.decode("latin-1"), named or None)
        CALLER.set(_caller_of(exchange, scope, target))
        return exchange

    async def _compact(self, exchange: ProxyExchange, match: PrefixMatch) -> CompactedRequest | None:
        """What to send in place of a request; None to send it unchanged."""
        with self._log_failures():
            counted = await self._conversations.count(exchange)
            if counted.may_be_due:
                return await self._complete(self._conversations.compact(exchange, counted))
            self._prefixes.remember(match, counted.room, exchange.body.ending)
        return None

    async def _compact_refused(
        self, exchange: ProxyExchange, refusal: str, refused: CompactedRequest | None
    ) -> CompactedRequest | None:
        """What to send again after a refusal; None when the request cannot be made smaller."""
        with self._log_failures():
            counted = await self._conversations.count(exchange, exactly=True)
            return await self._complete(self._conversations.compact_refused(exchange, counted, refusal, refused))
        return None

    @contextmanager
    def _log_failures(self) -> Iterator[None]:
        """Log errors of the block instead of raising them: they must not fail the request."""
        try:
            yield
        except CompactError as error:
            self._operations.log("error", "sent_unchanged", error=f"{type(error).__name__}: {error}")
        except Exception as error:  # only its kind: it may quote the request
            self._operations.log("error", "sent_unchanged", error=type(error).__name__)

    async def _complete(self, work: Coroutine[Any, Any, CompactedRequest | None]) -> CompactedRequest | None:
        """Await work that goes on when the client disconnects."""
        task = asyncio.ensure_future(work)
        self._compacting.add(task)
        task.add_done_callback(self._compacting.discard)
        return await asyncio.shield(task)

    async def _send(
        self, scope: Scope, target: bytes, content: bytes, compacted: CompactedRequest | None, endpoint: Endpoint | None
    ) -> UpstreamResponse:
        ours = (b"host", b"content-length", *((b"content-encoding",) if compacted else ()))
        headers = forwardable_headers(scope["headers"], *ours)
        if endpoint is not None:
            headers = [
                (name, readable_encodings(value) if name == b"accept-encoding" else value) for name, value in headers
            ]
        place = _target_with_query(scope, target)
        if compacted is not None:
            content = compacted.content
        try:
            return UpstreamResponse(await self._upstream.send(scope["method"], place, headers, content))
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            self._operations.log("error", "upstream_unreachable", error=type(error).__name__)
            raise RequestRefused(502, "The upstream cannot be reached. Check proxy.upstream and the network.") from None
        except httpcore.TimeoutException as error:
            self._operations.log("error", "upstream_silent", error=type(error).__name__)
            raise RequestRefused(
                504, "The upstream did not answer in time. Raise proxy.timeout, or try again."
            ) from None
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            self._operations.log("error", "upstream_failed", error=type(error).__name__)
            raise RequestRefused(502, "The upstream closed the connection without a response. Try again.") from None

    async def _respond(
        self,
        answer: UpstreamResponse,
        exchange: ProxyExchange | None,
        compacted: CompactedRequest | None,
        response: ClientResponse,
    ) -> None:
        """Pass a response back as it arrives."""
        bodiless = answer.status in _BODILESS  # with a content-length the server would wait for a body
        headers = forwardable_headers(answer.headers, *((b"content-length",) if bodiless else ()))
        for index, (name, value) in enumerate(headers):
            if name.lower() == b"location":
                place = self._upstream.rewrite_location(value)
                if place is None:
                    raise RequestRefused(502, "The upstream redirects the client and its key to another host; refused.")
                headers[index] = name, place
        listener = None
        if compacted is not None and exchange is not None:
            headers += _compaction_headers(compacted)
            response.record.add_compaction(compacted)
            if answer.status == 200:
                listener, unpacker = UsageListener(self._conversations, exchange, compacted.session), answer.unpacker()
        await response.start(answer.status, headers, answer.header(b"content-type"))
        try:
            async for part in answer.parts():
                if listener is not None:
                    listener.feed(unpacker.read(part))
                await response.send_part(part)
        except FAILURES as error:
            self._operations.log("error", "broken_off", error=type(error).__name__)
            raise ResponseBrokeOff from None
        await response.end()
        if listener is not None:
            listener.end()


async def _await_while_connected(work: asyncio.Future[None], receive: Receive) -> None:
    """Await work, and cancel it when the client disconnects."""

    async def wait_for_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    disconnect = asyncio.ensure_future(wait_for_disconnect())
    try:
        await asyncio.wait((work, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise ClientDisconnected
    finally:
        for task in (disconnect, work):
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, RequestRefused, ResponseBrokeOff):
                    await task


def _endpoint_of(method: str, target: bytes) -> Endpoint | None:
    if method != "POST":
        return None
    path = target.decode("latin-1")
    return next((endpoint for endpoint in _ENDPOINTS if path.endswith(endpoint.path)), None)


def _caller_digest(scope: Scope) -> bytes:
    return caller_digest(dict(scope["headers"]), scope["query_string"])


def _caller_of(exchange: ProxyExchange, scope: Scope, target: bytes) -> Caller:
    about = [(name, value) for name, value in scope["headers"] if name.lower() in _ABOUT_THE_CALLER]
    return Caller(
        exchange.endpoint.format, _target_with_query(scope, target).decode("latin-1"), about, exchange.model or ""
    )


def _target_with_query(scope: Scope, target: bytes) -> bytes:
    """A path with its query, unchanged."""
    query: bytes = scope["query_string"]
    return target + b"?" + query if query else target


def _compaction_headers(compacted: CompactedRequest) -> Headers:
    values = {
        "fold": compacted.kind,
        "session": compacted.session,
        "step": compacted.step,
        "tokens-before": compacted.before,
        "tokens-after": compacted.after,
    }
    return [(f"x-compact-{name}".encode(), str(value).encode("latin-1", "replace")) for name, value in values.items()]
