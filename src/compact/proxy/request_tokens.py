"""Tokens of a request, counted without keeping the request.

Owns: `RequestCounter` (the tokens of each message, counted once and found again by a hash of its bytes), and
`RequestPrefixes` (requests that need not even be parsed).
Must never: keep a message, or decide that a compaction is due: `_compaction.trigger` has the rule, and the manager
applies it to every request that is not far below the limits.

Of a request below every limit only numbers are kept: sixteen bytes and a count for each message, up to a limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any, TypeVar

from .._compaction.trigger import least_tokens_due
from .._conversation.tokens import REPLY_PRIMER, counter_for
from .._conversation.tool_schemas import tools_tokens
from .._http.endpoints import Endpoint
from .._session.entries import Reader, content_digest
from ..config import CompactConfig, window_of
from ..config.limits import limits_for
from .body import Body
from .fingerprint import PREFIX_BLOCK, part_digests, prefix_digests
from .lru_cache import LruCache

Value = TypeVar("Value")

_CACHED_MESSAGES = 100_000
"""Messages whose tokens are cached: some 20 MB."""
_CACHED_PREFIXES = 20_000
_GROUP = 32
"""Messages that are looked up together."""
_COUNTED_AT_ONCE = 64_000
_HASHED_AT_ONCE = 1_000_000
"""Bytes that are counted, and hashed, on the event loop; more go to a thread."""
_LONGEST_ENDING = 65_536
_MEDIA = ('"image', '"input_image', '"input_file', '"file', '"document', '"input_audio', '"audio', '"video')
"""Beginnings of content types that may count more tokens than they have bytes."""
_MEDIA_BYTES = [kind.encode() for kind in _MEDIA]


@dataclass(frozen=True, slots=True)
class RequestTokens:
    """A counted request. `total` includes the margin of the tokenizer."""

    total: int
    by_message: Sequence[int]
    """Tokens of each message, as counted."""
    window: int
    reserve: int | None
    room: int
    """Tokens that can be added, as counted, before the manager has to see it."""
    may_be_due: bool
    """Whether the manager has to see it."""


class RequestCounter:
    """Counts requests for one configuration. Belongs to one event loop."""

    def __init__(self, config: CompactConfig) -> None:
        self._config = config
        self._readers: dict[tuple[str, str], Reader] = {}
        self._tokens: LruCache[bytes, int] = LruCache(_CACHED_MESSAGES)
        self._group_tokens: LruCache[bytes, tuple[int, ...]] = LruCache(_CACHED_MESSAGES)
        self._content_digests: LruCache[bytes, bytes] = LruCache(_CACHED_MESSAGES)

    async def count(
        self, endpoint: Endpoint, body: Body, model: str, learned: int | None = None, *, exactly: bool = False
    ) -> RequestTokens:
        """Count a request. `learned` is the window that the provider named in a refusal.

        A request with fewer bytes than any limit has tokens is counted only with `exactly`.
        """
        window = self._config.max_context_tokens or window_of(model)
        window = min(window, learned) if learned else window
        reserve = self._reserve(endpoint.reserved_output(body.fields), window)
        limits = limits_for(self._config.policy, window, reserve_output=reserve)
        least = least_tokens_due(self._config.policy, limits)
        reader = self._reader(endpoint, model)
        factor = 1 + reader.counter.margin
        if not exactly and body.size * factor < least and not any(kind in body.text for kind in _MEDIA):
            return RequestTokens(0, (), window, reserve, floor(least / factor) - body.size, False)
        by_message = await self._count_messages(endpoint, body, reader)
        counted = sum(by_message) + await self._count_tools(endpoint, body, reader, model) + REPLY_PRIMER
        total = ceil(counted * factor)
        # In a window without any room for messages nothing can be due: only the provider knows what it still takes.
        may_be_due = limits.budget > 0 and total >= least
        return RequestTokens(total, by_message, window, reserve, floor((least - total) / factor), may_be_due)

    def _reserve(self, asked: int | None, window: int) -> int | None:
        """Tokens reserved for the answer. Some clients ask for more than a window holds: at most half of the window
        is reserved, or half of what the buffer leaves where that is less."""
        if asked is None:
            return None
        room = max(0, window - self._config.policy.hard_cap_buffer)
        reserve = min(max(0, asked), window // 2)
        return reserve if reserve < room else room // 2

    def count_replaced(
        self, counted: RequestTokens, endpoint: Endpoint, body: Body, model: str, outgoing: Sequence[Any]
    ) -> int:
        """The total of the same request with other messages; those that it has already are not counted again."""
        reader = self._reader(endpoint, model)
        sent, own = set(map(id, outgoing)), set(map(id, body.messages))
        left = sum(tokens for one, tokens in zip(body.messages, counted.by_message, strict=True) if id(one) not in sent)
        new = sum(reader.cost(reader.message(one, i)) for i, one in enumerate(outgoing) if id(one) not in own)
        return counted.total - floor((left - new) * (1 + reader.counter.margin))

    async def content_digests(self, body: Body) -> Iterable[bytes]:
        """A hash of each message's content: equal for messages that differ only in bookkeeping or form."""
        everything, hashed = range(len(body.messages)), lambda index: content_digest(body.messages[index])
        return (await _per_message(self._content_digests, body, everything, b"", hashed, _HASHED_AT_ONCE)).values()

    async def _count_messages(self, endpoint: Endpoint, body: Body, reader: Reader) -> list[int]:
        """Tokens of each message. A long list is looked up group by group, which costs a third of one by one."""

        def count(index: int) -> int:
            return reader.cost(reader.message(body.messages[index], index))

        context = reader.counter.encoding.encode() + endpoint.format.encode()
        rest = range(len(body.messages) // _GROUP * _GROUP, len(body.messages))
        groups = [range(at, at + _GROUP) for at in range(0, rest.start, _GROUP)]
        digests = await _digests(body, groups, context)
        cached = [self._group_tokens.get(digest) for digest in digests]
        single = [i for group, tokens in zip(groups, cached, strict=True) if tokens is None for i in group]
        one_by_one = await _per_message(self._tokens, body, [*single, *rest], context, count, _COUNTED_AT_ONCE)
        by_message: list[int] = []
        for group, digest, tokens in zip(groups, digests, cached, strict=True):
            by_message += tokens or self._group_tokens.put(digest, tuple(one_by_one[i] for i in group))
        return by_message + [one_by_one[i] for i in rest]

    async def _count_tools(self, endpoint: Endpoint, body: Body, reader: Reader, model: str) -> int:
        """Tokens of the tools, and of instructions outside of the messages."""
        places = [body.places[name] for name in ("tools", *(endpoint.system or ())[:1]) if name in body.places]
        context = model.encode("utf-8", "surrogatepass") + reader.counter.encoding.encode() + endpoint.format.encode()
        (digest,) = part_digests(context, [b"".join(map(body.slice, places))])
        tokens = self._tokens.get(digest)
        if tokens is None:
            size = sum(end - start for start, end in places)
            tools = endpoint.counted_tools(body.fields)
            tokens = await _run(lambda: tools_tokens(tools, reader.counter, model), size > _COUNTED_AT_ONCE)
            self._tokens.put(digest, tokens)
        return tokens

    def _reader(self, endpoint: Endpoint, model: str) -> Reader:
        key = endpoint.format, model
        reader = self._readers.get(key)
        if reader is None:
            if len(self._readers) > 1_000:  # names of models come from clients
                self._readers.clear()
            reader = self._readers[key] = Reader(endpoint.format, counter_for(self._config.counter, model), None)
        return reader


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """The hashes of a request's prefixes, and whether they show that it is below every limit."""

    digests: list[bytes]
    is_below: bool


class RequestPrefixes:
    """Requests that were counted and are below every limit, by their first bytes. Belongs to one event loop.

    A conversation comes again and again, a little longer each time, and parsing 400 KB of JSON takes longer than
    sending them. A request that begins with the same bytes has at most one token more for each further byte.
    """

    def __init__(self) -> None:
        self._known: LruCache[bytes, tuple[int, bytes]] = LruCache(_CACHED_PREFIXES)
        """How many bytes may follow each prefix, and how its request ended: with the fields after the list."""

    def match(self, context: bytes, content: bytes) -> PrefixMatch:
        """Look a request up; `context` is what it must share with an earlier one besides its prefix."""
        digests = prefix_digests(context, content)
        return PrefixMatch(digests, self._is_below(digests, content))

    def _is_below(self, digests: list[bytes], content: bytes) -> bool:
        for number in range(len(digests), 0, -1):
            known = self._known.get(digests[number - 1])
            if known is not None:
                room, ending = known
                new = content[number * PREFIX_BLOCK :]
                return len(new) < room and content.endswith(ending) and not any(kind in new for kind in _MEDIA_BYTES)
        return False

    def remember(self, match: PrefixMatch, room: int, ending: bytes) -> None:
        """Remember a request that was counted: `room` is how many tokens it may grow by."""
        if match.digests and room > 0 and len(ending) <= _LONGEST_ENDING:
            self._known.put(match.digests[-1], (room, ending))

    def clear(self) -> None:
        """Forget every request: a window is smaller than was assumed."""
        self._known.clear()


async def _per_message(
    cache: LruCache[bytes, Value],
    body: Body,
    indices: Sequence[int],
    context: bytes,
    compute: Callable[[int], Value],
    at_once: int,
) -> dict[int, Value]:
    """A value for each of these messages, computed where it is not cached; in a thread above `at_once` bytes."""
    digests = await _digests(body, [range(i, i + 1) for i in indices], context)
    values = [cache.get(digest) for digest in digests]
    missing = [n for n, value in enumerate(values) if value is None]
    size = sum(end - start for start, end in (body.spans[indices[n]] for n in missing))
    computed = await _run(lambda: [compute(indices[n]) for n in missing], size > at_once)
    for n, value in zip(missing, computed, strict=True):
        values[n] = cache.put(digests[n], value)
    return {i: value for i, value in zip(indices, values, strict=True) if value is not None}


async def _digests(body: Body, parts: Sequence[range], context: bytes) -> list[bytes]:
    """A hash of each part of the list: a message, or several in a row."""
    spans = body.spans
    texts = (body.slice((spans[part[0]][0], spans[part[-1]][1])) for part in parts)
    return await _run(lambda: part_digests(context, texts), body.size > _HASHED_AT_ONCE)


async def _run(work: Callable[[], Value], is_long: bool) -> Value:
    """Do some work, in a thread when it takes long."""
    return await asyncio.to_thread(work) if is_long else work()
