"""One request: read it, make it lighter when that is due, send it on, and hand back what comes.

Owns: `Relay`, an ASGI app. Must never: hold back a byte of an answer, end an answer that broke off as if it were whole,
or let a failure of ours cost a request: what cannot be made lighter is sent as it is.

- A request is read whole before anything is sent, so half a request reaches nobody.
- When the client leaves, the upstream is closed at once. A fold under way is finished all the same: the client will
  be back with the same list, and should not pay for it again.

One idea, so one file: the life of one request, in its order.
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
from .compression import overheard, unpacked
from .conversations import Conversations, Exchange, Folded
from .fingerprint import CREDENTIAL_HEADERS, caller_digest
from .operations import Operations, Record
from .request_tokens import PrefixMatch, RequestPrefixes
from .responses import Answer, Listener, Refused
from .summarizer import CALLER, Caller
from .upstream import FAILURES, Headers, Upstream, forwarded
from .upstream_response import Reply

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

__all__ = ["Relay"]

_ENDPOINTS = (CHAT, RESPONSES, MESSAGES)
_ABOUT_THE_CALLER = frozenset(
    {*CREDENTIAL_HEADERS, b"anthropic-version", b"anthropic-beta", b"openai-organization", b"openai-project"}
)
_BODILESS = frozenset({204, 304})
_LONGEST_NAME = 128
_READ_AT_ONCE = 1_000_000
"""Bytes that are read as JSON on the event loop; more go to a thread."""
_SLOWEST_BODY = 120.0
"""Seconds that a request's body may take to come."""
_SETTLING = 5.0
"""Seconds that the end waits for folds whose clients have left."""


class ClientLeft(Exception):
    """Nobody waits for the answer any more."""


class BrokenOff(Exception):
    """The upstream ended in the middle of an answer: so does ours."""


class Relay:
    """Sends on whatever it gets to one upstream."""

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
        self._folding: set[asyncio.Task[Any]] = set()
        self._prefixes = RequestPrefixes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        target: bytes = scope["raw_path"].split(b"?")[0]
        endpoint = _endpoint_of(scope["method"], target)
        record = self._operations.begin(endpoint.dialect if endpoint else "other")
        answer = Answer(send, record)
        running = max(self._running, len(self._folding))  # a fold goes on, and holds its list, when its client has left
        if running >= self._max_requests:
            refusal = Refused(503, f"{running:,} requests are running, and proxy.max_requests allows no more.")
            await answer.refuse(refusal, (b"retry-after", b"1"))
            return
        self._running += 1
        try:
            content = await self._content(scope, receive, record)
            work = asyncio.ensure_future(self._exchange(scope, target, endpoint, content, answer))
            await _while_there(work, receive)
        except ClientLeft:
            record.done(status=499)
        except Refused as refusal:
            await answer.refuse(refusal)
        except BrokenOff:
            record.done(status=answer.status, error="broken off")
            raise
        finally:
            record.done(status=answer.status or 500, error="failed")  # whatever ended it, if nothing above has
            self._running -= 1
            self._operations.buffered.dec(record.bytes_in)

    async def settle(self) -> None:
        """Wait for folds that nobody waits for."""
        if self._folding:
            await asyncio.wait(self._folding, timeout=_SETTLING)

    async def _content(self, scope: Scope, receive: Receive, record: Record) -> bytes:
        """The whole body of a request."""
        said = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        promised, parts = int(said) if said.isdigit() and len(said) < 20 else 0, []
        try:
            async with asyncio.timeout(_SLOWEST_BODY):
                while max(promised, record.bytes_in) <= self._max_body:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientLeft
                    parts.append(message.get("body", b""))
                    record.bytes_in += len(parts[-1])
                    self._operations.buffered.inc(len(parts[-1]))
                    if not message.get("more_body", False):
                        return b"".join(parts) if len(parts) > 1 else parts[0]
        except TimeoutError:
            raise Refused(408, f"The body did not come within {_SLOWEST_BODY:.0f} s.") from None
        raise Refused(413, f"The body has more than {self._max_body:,} bytes, which is proxy.max_body; raise it.")

    async def _exchange(
        self, scope: Scope, target: bytes, endpoint: Endpoint | None, content: bytes, answer: Answer
    ) -> None:
        if self._upstream.leaves(target):
            raise Refused(400, "The path has . or .. in it and would leave the part of the upstream that is served.")
        exchange: Exchange | None = None
        folded: Folded | None = None
        if endpoint is not None:
            match = self._prefixes.match(_caller_digest(scope) + target, content)
            exchange = None if match.is_below else await self._read(scope, target, endpoint, content)
            folded = await self._lighter(exchange, match) if exchange is not None else None
        reply = await self._sent(scope, target, content, folded, endpoint)
        try:
            if endpoint is not None and (refusal := await reply.too_long()) is not None:
                self._prefixes.clear()
                exchange = exchange or await self._read(scope, target, endpoint, content)
                lightest = await self._lightest(exchange, refusal, folded) if exchange is not None else None
                if lightest is not None:
                    await reply.close()
                    folded = lightest
                    reply = await self._sent(scope, target, content, folded, endpoint)
            await self._answered(reply, exchange, folded, answer)
        finally:
            await reply.close()

    async def _read(self, scope: Scope, target: bytes, endpoint: Endpoint, content: bytes) -> Exchange | None:
        """The conversation in a request, when all of it is there."""
        headers = dict(scope["headers"])
        packing = headers.get(b"content-encoding", b"")

        def read() -> Body | None:
            return Body.read(unpacked(content, packing, self._max_body), endpoint.messages)

        # Nobody else should wait for a long one, and what is packed may be long.
        body = await asyncio.to_thread(read) if packing or len(content) > _READ_AT_ONCE else read()
        if body is None or endpoint.is_held(body.fields):
            return None
        named = headers.get(b"x-compact-session", b"").decode("latin-1").strip()
        if len(named) > _LONGEST_NAME:
            raise Refused(400, f"x-compact-session has {len(named)} characters; the most is {_LONGEST_NAME}.")
        if not named.isprintable():  # it stands in a header of the answer too
            raise Refused(400, "x-compact-session has characters in it that cannot be printed; use letters and digits.")
        exchange = Exchange(endpoint, body, _caller_digest(scope), target.decode("latin-1"), named or None)
        CALLER.set(_caller(exchange, scope, target))
        return exchange

    async def _lighter(self, exchange: Exchange, match: PrefixMatch) -> Folded | None:
        """What to send in the place of a request; None when it stays as it is."""
        with self._unharmed():
            counted = await self._conversations.count(exchange)
            if counted.may_be_due:
                return await self._finished(self._conversations.lighter(exchange, counted))
            self._prefixes.remember(match, counted.room, exchange.body.end)
        return None

    async def _lightest(self, exchange: Exchange, refusal: str, refused: Folded | None) -> Folded | None:
        """What to send once more after a refusal; None when there is no way out."""
        with self._unharmed():
            counted = await self._conversations.count(exchange, exactly=True)
            return await self._finished(self._conversations.lightest(exchange, counted, refusal, refused))
        return None

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Whatever fails inside is ours, and costs no request."""
        try:
            yield
        except CompactError as error:
            self._operations.say("error", "sent_unchanged", error=f"{type(error).__name__}: {error}")
        except Exception as error:  # only its kind: it may quote the request
            self._operations.say("error", "sent_unchanged", error=type(error).__name__)

    async def _finished(self, work: Coroutine[Any, Any, Folded | None]) -> Folded | None:
        """What comes of work that goes on although nobody may wait for it any more."""
        task = asyncio.ensure_future(work)
        self._folding.add(task)
        task.add_done_callback(self._folding.discard)
        return await asyncio.shield(task)

    async def _sent(
        self, scope: Scope, target: bytes, content: bytes, folded: Folded | None, endpoint: Endpoint | None
    ) -> Reply:
        ours = (b"host", b"content-length", *((b"content-encoding",) if folded else ()))
        headers = forwarded(scope["headers"], *ours)
        if endpoint is not None:
            headers = [(name, overheard(value) if name == b"accept-encoding" else value) for name, value in headers]
        place = _place(scope, target)
        if folded is not None:
            content = folded.content
        try:
            return Reply(await self._upstream.send(scope["method"], place, headers, content))
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            self._operations.say("error", "upstream_unreachable", error=type(error).__name__)
            raise Refused(502, "The upstream cannot be reached. Check proxy.upstream and the network.") from None
        except httpcore.TimeoutException as error:
            self._operations.say("error", "upstream_silent", error=type(error).__name__)
            raise Refused(504, "The upstream did not answer in time. Raise proxy.timeout, or try again.") from None
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            self._operations.say("error", "upstream_failed", error=type(error).__name__)
            raise Refused(502, "The upstream closed the connection without an answer. Try again.") from None

    async def _answered(self, reply: Reply, exchange: Exchange | None, folded: Folded | None, answer: Answer) -> None:
        """Hand back an answer as it comes."""
        bodiless = reply.status in _BODILESS  # with the length of a body, the server would wait for one
        headers = forwarded(reply.headers, *((b"content-length",) if bodiless else ()))
        for index, (name, value) in enumerate(headers):
            if name.lower() == b"location":
                place = self._upstream.location(value)
                if place is None:
                    raise Refused(502, "The upstream sends the client to another host, and its key with it; refused.")
                headers[index] = name, place
        listener = None
        if folded is not None and exchange is not None:
            headers += _told(folded)
            answer.record.folded(folded)
            if reply.status == 200:
                listener, unpacker = Listener(self._conversations, exchange, folded.session), reply.unpacker()
        await answer.start(reply.status, headers, reply.header(b"content-type"))
        try:
            async for part in reply.parts():
                if listener is not None:
                    listener.hear(unpacker.read(part))
                await answer.part(part)
        except FAILURES as error:
            self._operations.say("error", "broken_off", error=type(error).__name__)
            raise BrokenOff from None
        await answer.end()
        if listener is not None:
            listener.end()


async def _while_there(work: asyncio.Future[None], receive: Receive) -> None:
    """Await work for as long as the client is there."""

    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    leaving = asyncio.ensure_future(left())
    try:
        await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise ClientLeft
    finally:
        for task in (leaving, work):
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, Refused, BrokenOff):
                    await task


def _endpoint_of(method: str, target: bytes) -> Endpoint | None:
    if method != "POST":
        return None
    path = target.decode("latin-1")
    return next((endpoint for endpoint in _ENDPOINTS if path.endswith(endpoint.path)), None)


def _caller_digest(scope: Scope) -> bytes:
    return caller_digest(dict(scope["headers"]), scope["query_string"])


def _caller(exchange: Exchange, scope: Scope, target: bytes) -> Caller:
    about = [(name, value) for name, value in scope["headers"] if name.lower() in _ABOUT_THE_CALLER]
    return Caller(exchange.endpoint.dialect, _place(scope, target).decode("latin-1"), about, exchange.model or "")


def _place(scope: Scope, target: bytes) -> bytes:
    """A path with its query, as it came."""
    query: bytes = scope["query_string"]
    return target + b"?" + query if query else target


def _told(folded: Folded) -> Headers:
    values = {
        "fold": folded.kind,
        "session": folded.session,
        "step": folded.step,
        "tokens-before": folded.before,
        "tokens-after": folded.after,
    }
    return [(f"x-compact-{name}".encode(), str(value).encode("latin-1", "replace")) for name, value in values.items()]
