"""Events at an Ariadne viewer, or at `compact view`, which speaks the same: POST to `/ingest`, spans in batches.

Owns: `AriadneSink`; how events become bodies that `/ingest` takes, and what each answer means.
Must never: send a body over 256 KiB, lose the others because of one bad event, or put content into a message.

    400  the halves are sent apart until what is refused stands alone; that is lost and counted
    413  the halves likewise; an event that is too large alone is cut, and shows where
    else, refused, no answer in 2 s: all is kept and tried again (`_queue`)

What is sent twice is one span to the viewer: ids follow from events.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from itertools import islice
from typing import Any, NamedTuple

from .._calls import Calls, Span, spans_of, trace_of
from .._events import Event
from . import plain
from ._post import Post, Stale
from ._queue import Queued, Undelivered

__all__ = ["AriadneSink"]

_LARGEST = 262_144
_FRAME = len('{"batch":[]}')
_SESSIONS = 10_000
_SHORTEST = 16
_SHORT = 100
_SMALLEST = 4_096


class AriadneSink(Queued):
    """Sends every event to an Ariadne server within a fifth of a second, and never stands in anybody's way.

    `url` is the server's base address; `/ingest` is added. While the server is away 2,048 events are kept.
    """

    def __init__(self, url: str) -> None:
        exporter = _Exporter(Post(url, "/ingest"))
        super().__init__(exporter.deliver, label="Ariadne", place=exporter.post.place, closing=exporter.post.close)
        self.endpoint = exporter.post.place


class _Item(NamedTuple):
    """A trace or span, ready to be sent; `event` is its place in the batch when it stands for an event."""

    value: Mapping[str, Any]
    text: str
    event: int | None = None


class _Exporter:
    """Only ever used by the queue's thread."""

    def __init__(self, post: Post) -> None:
        self.post = post
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._calls = Calls()
        self._announced: set[str] = set()
        self._spans: dict[int, tuple[Event, list[Span]]] = {}
        """Of the batch in hand, by the event's identity: one that comes again must not be sorted into calls again."""

    def deliver(self, events: Sequence[Event]) -> None:
        """Send a batch; raises `Undelivered`."""
        if self._process != os.getpid():
            self.post.close()  # the connection is the parent's
            self._start()
        self._spans = {id(event): self._spans.get(id(event)) or (event, self._sorted(event)) for event in events}
        if not self.post.connected:
            self._announced.clear()  # a server that was started anew remembers nothing
        items, lost = self._items(events)
        for body in _bodies(items):
            lost |= {item.event for item in self._offer(body) if item.event is not None}
        self._announced.update(event.session_id for event in events)
        if len(self._announced) > _SESSIONS:
            self._announced.clear()
        self._spans = {}
        if lost:
            why = "the server refused it (400), or it has no valid time; all others went through. Please report this"
            raise Undelivered(why, lost=len(lost))

    def _sorted(self, event: Event) -> list[Span]:
        try:
            return spans_of(event, self._calls.of(event))
        except Exception:
            return []

    def _items(self, events: Sequence[Event]) -> tuple[list[_Item], set[int]]:
        """Traces first, then each span once, in its last version; and the events of which nothing can be made."""
        lost: set[int] = set()
        traces: dict[str, _Item] = {}
        spans: dict[str, _Item] = {}
        for number, event in enumerate(events):
            try:
                if event.session_id not in self._announced and event.session_id not in traces:
                    traces[event.session_id] = _item(trace_of(event))
                *call, own = self._spans[id(event)][1]
                for span in call:
                    spans[span.span_id] = _item(span.as_dict())
                spans[own.span_id] = _item(own.as_dict(), number)
            except Exception:  # a time that no calendar has, say
                lost.add(number)
        return [*traces.values(), *spans.values()], lost

    def _offer(self, items: Sequence[_Item]) -> list[_Item]:
        """Send items together if the server takes them so; those that it refuses even alone."""
        status = self._answer(items)
        if 200 <= status < 300:
            return []
        if status not in (400, 413):
            redirect = " (a redirect, which is not followed)" if 300 <= status < 400 else ""
            raise Undelivered(f"it answered {status}{redirect}; look at the server, or mend tracing.ariadne_url")
        if len(items) > 1:
            middle = len(items) // 2
            return self._offer(items[:middle]) + self._offer(items[middle:])
        (item,) = items
        if status == 413 and len(item.text) > _SMALLEST:
            with suppress(ValueError):
                return self._offer([_item(item.value, item.event, len(item.text) // 2)])
        return [item]

    def _answer(self, items: Sequence[_Item]) -> int:
        body = f'{{"batch":[{",".join(item.text for item in items)}]}}'.encode("ascii")
        try:
            try:
                return self.post(body)
            except Stale:
                return self.post(body)
        except TimeoutError:
            raise Undelivered("no answer within 2 s; look at the server, or take tracing.ariadne_url out") from None
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise Undelivered(f"{why}; start the server, or take tracing.ariadne_url out") from None
        except HTTPException as error:
            why = f"the answer is no HTTP ({type(error).__name__})"
            raise Undelivered(f"{why}; look at what listens there") from None


def _bodies(items: Sequence[_Item]) -> Iterator[list[_Item]]:
    """The items in bodies that are small enough, as few as may be."""
    body: list[_Item] = []
    size = _FRAME
    for item in items:
        if body and size + len(item.text) + 1 > _LARGEST:
            yield body
            body, size = [], _FRAME
        body.append(item)
        size += len(item.text) + 1
    if body:
        yield body


def _item(value: Mapping[str, Any], event: int | None = None, room: int = _LARGEST - _FRAME) -> _Item:
    """A trace or span as ASCII; one that is too large has its longest strings cut, as far as need be."""
    value = plain(value)
    text = _json(value)
    size = longest = len(text)
    while len(text) > room and longest > _SHORTEST:
        longest //= 2
        text = _json({**value, "data": _cut(value.get("data", {}), longest)})
    if len(text) > room:  # not its strings: very many of something
        short = {key: item for key, item in value.get("data", {}).items() if len(key) + len(_json(item)) < _SHORT}
        short = dict(islice(short.items(), _SHORT)) | {"cut": f"[cut: {size:,} bytes are more than a viewer takes]"}
        text = _json({**value, "data": short})
    if len(text) > room:
        raise ValueError(f"{size:,} bytes, and none of them can be spared")
    return _Item(value, text, event)


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= longest else f"{value[:longest]} [cut: {len(value):,} characters]"
    if isinstance(value, dict):
        return {_cut(key, longest): _cut(item, longest) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut(item, longest) for item in value]
    return value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
