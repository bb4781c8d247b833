"""Events to an Ariadne viewer, or to `compact view`, which has the same interface: POST to `/ingest`, spans in batches.

Owns: `AriadneSink`, and how events become request bodies. (`_batching` has the meaning of each status.)
Must never: send a body over 256 KiB, or lose other events because of a bad one.

An event that is too large alone is cut, and shows where. A span that is sent twice is one span to the viewer, because
its id is derived from its event.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from .._events.event import Event
from .._events.serialize import plain
from .._events.trace import CallTracer, TracedSpan, has_times, spans_of, trace_of
from ._batching import BatchSender
from ._http_post import ConnectionLost, Post
from ._queue import Queued, Undelivered

__all__ = ["AriadneSink"]

_MAX_BODY = 262_144
_FRAME = len('{"batch":[]}')
_SESSIONS = 10_000
_MIN_STRING = 16
_SHORT = 100
_MIN_ITEM = 4_096


class AriadneSink(Queued):
    """Sends every event to an Ariadne server within a fifth of a second, without blocking the caller.

    `url` is the server's base URL; `/ingest` is appended. While the server is down 2,048 events are kept.
    """

    def __init__(self, url: str) -> None:
        exporter = _AriadneExporter(Post(url, "/ingest"))
        super().__init__(exporter.deliver, label="Ariadne", place=exporter.post.place, closing=exporter.post.close)
        self.endpoint = exporter.post.place


class _Item(NamedTuple):
    """A trace or span, ready to be sent; `event` is the position of its event in the batch, if it has one."""

    value: Mapping[str, Any]
    text: str
    event: int | None = None


class _AriadneExporter(BatchSender[_Item]):
    """Sends batches. Used by the queue's thread only."""

    def __init__(self, post: Post) -> None:
        super().__init__(post, "tracing.ariadne_url")
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._calls = CallTracer()
        self._announced: set[str] = set()
        self._traces: dict[str, _Item] = {}
        """Of the sessions in the batch."""
        self._spans: dict[int, tuple[Event, list[TracedSpan]]] = {}
        """Of the batch, by the event's identity: an event that is delivered again must not be traced again."""

    def deliver(self, events: Sequence[Event]) -> None:
        """Send a batch; raises `Undelivered`."""
        if self._process != os.getpid():
            self.post.close()  # the connection is the parent's
            self._start()
        self._spans = {id(event): self._spans.get(id(event)) or (event, self._trace_event(event)) for event in events}
        if not self.post.connected:
            self._announced.clear()  # a restarted server remembers nothing
        items, lost = self._items(events)
        lost |= {item.event for item in self.send(_split_bodies(items)) if item.event is not None}
        self._announced.update(event.session_id for event in events)
        if len(self._announced) > _SESSIONS:
            self._announced.clear()
        self._spans, self._traces = {}, {}
        if lost:
            why = "the server refused it (400, or repeated 5xx), or it has no valid time; all others were delivered"
            raise Undelivered(f"{why}. Please report this", lost=len(lost))

    def _trace_event(self, event: Event) -> list[TracedSpan]:
        """The spans of an event. One without a valid time belongs to no call: it would break the call."""
        try:
            return spans_of(event, self._calls.add(event)) if has_times(event) else []
        except Exception:
            return []

    def _items(self, events: Sequence[Event]) -> tuple[list[_Item], set[int]]:
        """Traces first, then each span once, in its last version; and the events that have no valid span."""
        lost: set[int] = set()
        spans: dict[str, _Item] = {}
        self._traces = {}
        for number, event in enumerate(events):
            try:
                *call, own = self._spans[id(event)][1]
                if event.session_id not in self._traces:
                    self._traces[event.session_id] = _item(trace_of(event))
                for span in call:
                    spans[span.span_id] = _item(span.as_dict())
                spans[own.span_id] = _item(own.as_dict(), number)
            except Exception:  # for example a time that is out of range
                lost.add(number)
        new = [trace for session, trace in self._traces.items() if session not in self._announced]
        return [*new, *spans.values()], lost

    def reconnect(self) -> None:
        """Send the traces again: a restarted server does not know the sessions."""
        self._announced.clear()
        for items in _split_bodies(list(self._traces.values())):
            with suppress(ConnectionLost):
                self.post(self.body(items))

    def body(self, items: Sequence[_Item]) -> bytes:
        """The request body of a batch."""
        return f'{{"batch":[{",".join(item.text for item in items)}]}}'.encode("ascii")

    def smaller(self, item: _Item) -> _Item | None:
        """The item cut to half its size; None when it is small."""
        if len(item.text) > _MIN_ITEM:
            with suppress(ValueError):
                return _item(item.value, item.event, len(item.text) // 2)
        return None


def _split_bodies(items: Sequence[_Item]) -> Iterator[list[_Item]]:
    """The items in as few bodies as possible that are small enough."""
    body: list[_Item] = []
    size = _FRAME
    for item in items:
        if body and size + len(item.text) + 1 > _MAX_BODY:
            yield body
            body, size = [], _FRAME
        body.append(item)
        size += len(item.text) + 1
    if body:
        yield body


def _item(value: Mapping[str, Any], event: int | None = None, room: int = _MAX_BODY - _FRAME) -> _Item:
    """A trace or span as ASCII JSON; one that is too large has its longest strings cut as far as necessary."""
    value = plain(value)
    text = _json(value)
    size = longest = len(text)
    while len(text) > room and longest > _MIN_STRING:
        longest //= 2
        text = _json({**value, "data": _cut(value.get("data", {}), longest)})
    if len(text) > room:  # not long strings, but very many items
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
