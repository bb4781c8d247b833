"""What a request weighs, without keeping it.

Owns: `Scales`: the tokens of each message once, known again by a hash of its bytes; and whether a list may need
anything from the manager. Must never: hold a message, or decide what folds.

A list below every line is not touched, so nothing of it needs to be remembered but numbers: sixteen bytes and a count
for each message, the longest unused giving way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import ceil, floor
from typing import Any, TypeVar

from .._conversation.tokens import REPLY_PRIMER, counter_for
from .._conversation.tool_schemas import tools_tokens
from .._http.endpoints import Endpoint
from .._session.entries import Reader, content_digest
from ..config import CompactConfig, window_of
from ..config.limits import limits_for
from .body import Body
from .bounded import Bounded
from .light import HEAVY

__all__ = ["Scales", "Weight"]

Result = TypeVar("Result")

_KNOWN = 100_000
"""Messages whose weight is remembered: some 20 MB."""
_GROUP = 32
"""Messages that are known again together."""
_COUNTED_AT_ONCE = 64_000
_HASHED_AT_ONCE = 1_000_000
"""Bytes that are counted, and hashed, on the event loop; more go to a thread."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A request on the scales, in the provider's tokens as far as they are known."""

    total: int
    each: Sequence[int]
    """What each message weighs, as counted."""
    window: int
    reserve: int | None
    room: int
    """Tokens that it could have more, as counted, until the manager should see it."""
    may_be_due: bool
    """Whether the manager should see it: it is near a line, or a line that counts something else is set."""


class Scales:
    """Weighs requests for one configuration. Belongs to one event loop."""

    def __init__(self, config: CompactConfig) -> None:
        self._config = config
        policy = config.policy
        self._by_tokens = not (policy.message_threshold or policy.turn_threshold or policy.layout == "rolling")
        self._readers: dict[tuple[str, str], Reader] = {}
        self._weights: Bounded[bytes, int] = Bounded(_KNOWN)
        self._groups: Bounded[bytes, tuple[int, ...]] = Bounded(_KNOWN)
        self._contents: Bounded[bytes, bytes] = Bounded(_KNOWN)

    async def weigh(
        self, endpoint: Endpoint, body: Body, model: str, limit: int | None = None, *, exactly: bool = False
    ) -> Weight:
        """The weight of a request; `limit` is the window that the provider was heard to have.

        A request that is far too short for any line is not counted, unless it must be told `exactly`.
        """
        policy = self._config.policy
        window = self._config.max_context_tokens or window_of(model)
        window = min(window, limit) if limit else window
        reserve = self._reserve(endpoint.reserved_output(body.fields), window)
        lines = limits_for(policy, window, reserve_output=reserve)
        line = min(lines.trigger, lines.prepare or lines.trigger)
        reader = self._reader(endpoint, model)
        factor = 1 + reader.tally.margin
        uncounted = self._by_tokens and not exactly and body.size * factor < line
        if uncounted and not any(f'"{kind}' in body.text for kind in HEAVY):
            return Weight(0, (), window, reserve, floor(line / factor) - body.size, False)
        *each, besides = await self._counted(endpoint, body, reader, model)
        total = ceil((sum(each) + besides + REPLY_PRIMER) * factor)
        # In a window without any room for messages nothing can be due: only the provider knows what it still takes.
        may_be_due = lines.budget > 0 and (total >= line or not self._by_tokens)
        room = floor((line - total) / factor) if self._by_tokens else 0
        return Weight(total, each, window, reserve, room, may_be_due)

    def _reserve(self, asked: int | None, window: int) -> int | None:
        """What is kept free for the answer. Some clients ask for more than a window holds: half of it is the most, or
        half of what is left beside the buffer where that is little."""
        if asked is None:
            return None
        room = max(0, window - self._config.policy.hard_cap_buffer)
        reserve = min(max(0, asked), window // 2)
        return reserve if reserve < room else room // 2

    def after(self, weight: Weight, endpoint: Endpoint, body: Body, model: str, outgoing: Sequence[Any]) -> int:
        """The weight of the same request with these messages."""
        reader = self._reader(endpoint, model)
        sent, own = set(map(id, outgoing)), set(map(id, body.messages))
        gone = sum(tokens for one, tokens in zip(body.messages, weight.each, strict=True) if id(one) not in sent)
        made = sum(reader.cost(reader.message(one, i)) for i, one in enumerate(outgoing) if id(one) not in own)
        return weight.total - floor((gone - made) * (1 + reader.tally.margin))

    async def contents(self, body: Body) -> list[bytes]:
        """A hash of the content of each message: alike for messages that differ only in bookkeeping or form."""
        marks = await _marks(body, [range(i, i + 1) for i in range(len(body.spans))], b"")
        contents = [self._contents.get(mark) for mark in marks]
        fresh = [i for i, content in enumerate(contents) if content is None]
        size = sum(end - start for start, end in (body.spans[i] for i in fresh))
        hashed = await _done(lambda: [content_digest(body.messages[i]) for i in fresh], size > _HASHED_AT_ONCE)
        for i, content in zip(fresh, hashed, strict=True):
            contents[i] = self._contents.keep(marks[i], content)
        return [content for content in contents if content is not None]

    async def _counted(self, endpoint: Endpoint, body: Body, reader: Reader, model: str) -> list[int]:
        """Tokens of each message, and last of what comes with them; only what is new is counted.

        A long list is known again group by group, which costs a third of one by one; its end fills no group yet.
        """
        table = reader.tally.encoding.encode() + endpoint.dialect.encode()
        count = len(body.messages)
        groups = [range(at, at + _GROUP) for at in range(0, count - _GROUP + 1, _GROUP)]
        marks = await _marks(body, groups, table)
        known = [self._groups.get(mark) for mark in marks]
        single = [i for group, weights in zip(groups, known, strict=True) if weights is None for i in group]
        single += range(len(groups) * _GROUP, count)
        one_by_one = dict(zip(single, await self._one_by_one(body, single, reader, table), strict=True))
        each: list[int] = []
        for group, mark, weights in zip(groups, marks, known, strict=True):
            each += weights or self._groups.keep(mark, tuple(one_by_one[i] for i in group))
        each += (one_by_one[i] for i in range(len(groups) * _GROUP, count))
        return [*each, await self._besides(endpoint, body, reader, model)]

    async def _one_by_one(self, body: Body, which: Sequence[int], reader: Reader, table: bytes) -> list[int]:
        marks = await _marks(body, [range(i, i + 1) for i in which], table)
        weights = [self._weights.get(mark) for mark in marks]
        fresh = [n for n, weight in enumerate(weights) if weight is None]

        def count() -> list[int]:
            return [reader.cost(reader.message(body.messages[which[n]], which[n])) for n in fresh]

        size = sum(end - start for start, end in (body.spans[which[n]] for n in fresh))
        for n, tokens in zip(fresh, await _done(count, size > _COUNTED_AT_ONCE), strict=True):
            weights[n] = self._weights.keep(marks[n], tokens)
        return [weight for weight in weights if weight is not None]

    async def _besides(self, endpoint: Endpoint, body: Body, reader: Reader, model: str) -> int:
        """Tokens of the tools, and of instructions beside the messages."""
        beside = [body.places[name] for name in ("tools", *(endpoint.system or ())[:1]) if name in body.places]
        named = model.encode("utf-8", "surrogatepass") + reader.tally.encoding.encode() + endpoint.dialect.encode()
        mark = sha256(named + b"".join(map(body.slice, beside))).digest()[:16]
        weight = self._weights.get(mark)
        if weight is None:
            size = sum(end - start for start, end in beside)
            tools = endpoint.counted_tools(body.fields)
            tokens = await _done(lambda: tools_tokens(tools, reader.tally, model), size > _COUNTED_AT_ONCE)
            weight = self._weights.keep(mark, tokens)
        return weight

    def _reader(self, endpoint: Endpoint, model: str) -> Reader:
        key = endpoint.dialect, model
        reader = self._readers.get(key)
        if reader is None:
            if len(self._readers) > 1_000:  # names of models come from clients
                self._readers.clear()
            reader = self._readers[key] = Reader(endpoint.dialect, counter_for(self._config.counter, model), None)
        return reader


async def _marks(body: Body, pieces: Sequence[range], besides: bytes) -> list[bytes]:
    """What each piece of a list is known by: a message, or several in a row."""

    def hashed() -> list[bytes]:
        begun, marks = sha256(besides), []
        for piece in pieces:
            mark = begun.copy()
            mark.update(body.slice((body.spans[piece[0]][0], body.spans[piece[-1]][1])))
            marks.append(mark.digest()[:16])
        return marks

    return await _done(hashed, body.size > _HASHED_AT_ONCE)


async def _done(work: Callable[[], Result], long: bool) -> Result:
    """What comes of some work, which is done in a thread when it takes long."""
    return await asyncio.to_thread(work) if long else work()
