"""Where spans come from besides `/ingest`: the events of an archive, or of a JSONL file.

Owns: `Source`: reading what is new, as often as it is asked, and at the cost of what is new.
Must never: write to what it reads, or stop at a line that cannot be read.

A span's id follows from its event, so an event that came live and stands in the archive too is one span.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._calls import Calls, Span, event_of, spans_of
from .._lines import read_lines
from ..errors import ArchiveError, CompactError
from ._shelf import Kept, Shelf
from ._spans import Spans, whole_text

__all__ = ["Source"]

_BAD = (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError, RecursionError)
"""What an event that is none may raise on its way to a span."""
_COMPLAINTS = 50
_END = 256


@dataclass(slots=True)
class _Tail:
    """How far a stream of events was read, and the calls that were open there."""

    read: dict[str, int] = field(default_factory=dict)
    """By file, the bytes that were read."""
    ends: dict[str, bytes] = field(default_factory=dict)
    """By file, the last of these bytes: a file that has others there is not the one that was read."""
    calls: Calls = field(default_factory=Calls)


class Source:
    """An archive, a JSONL file, or neither. `sync` may be called by any thread; one of them works."""

    def __init__(self, spans: Spans, shelf: Shelf | None, file: Path | None = None) -> None:
        self._spans = spans
        self._shelf = shelf
        self._file = file.absolute() if file is not None else None
        self._lock = threading.Lock()
        self._tails: dict[str, _Tail] = {}
        self._complaints: dict[str, str] = {}
        self.took = 0.0
        """Seconds that the last look took."""
        self.name = str(file) if file is not None else shelf.name if shelf is not None else "live events"

    @property
    def shows_archive(self) -> bool:
        """Whether all sessions of the archive are shown, rather than those of a file."""
        return self._file is None

    @property
    def complaints(self) -> list[str]:
        """What could not be read."""
        said = list(self._complaints.values())[:_COMPLAINTS]
        if self._spans.complaint:
            said.append(self._spans.complaint)
        return [*said, *(self._shelf.complaints if self._shelf is not None else ())]

    def sync(self) -> bool:
        """Read what is new; whether anything was."""
        with self._lock:
            started = time.monotonic()
            try:
                if self._file is not None:
                    return self._sync_file(self._file)
                return self._sync_shelf(self._shelf) if self._shelf is not None else False
            finally:
                self.took = time.monotonic() - started

    def _sync_file(self, path: Path) -> bool:
        name = str(path)
        tail = self._tails.setdefault(name, _Tail())
        done = tail.read.get(name, 0)
        try:
            if path.stat().st_size < done:  # somebody began it anew
                tail = self._tails[name] = _Tail()
                done = 0
            with path.open("rb") as file:
                file.seek(done)
                data = file.read()
        except OSError as error:
            self._complaints[name] = f"{path.name} cannot be read ({error.strerror}). Name a file of events."
            return False
        tail.read[name] = done + self._whole(data)
        return self._spans.add(self._spans_of(data[: self._whole(data)], path.name, tail.calls))

    def _sync_shelf(self, shelf: Shelf) -> bool:
        try:
            kept = shelf.look()
        except (CompactError, OSError) as error:
            self._complaints["archive"] = str(error)
            return False
        self._complaints.pop("archive", None)
        known = self._spans.files()
        news = self._forget(shelf, kept, known)
        waiting: list[tuple[int, str, Kept]] = []
        stamps: dict[str, str] = {}
        for session, one in kept.items():
            changed = 0
            for key in one.events:
                stamp = shelf.stamp(key)
                stamps[key] = str(stamp)
                if stamp is not None and known.get(self._named(shelf, key), ("", ""))[1] != stamps[key]:
                    changed = max(changed, stamp[1], 1)
            if changed:
                waiting.append((changed, session, one))
        for _, session, one in sorted(waiting, key=lambda each: each[0], reverse=True):
            news = self._read(shelf, session, one, stamps, known) or news
        return news

    def _read(
        self, shelf: Shelf, session: str, one: Kept, stamps: Mapping[str, str], known: Mapping[str, tuple[str, str]]
    ) -> bool:
        """The events of one session that are new since the last look; all of them when there was none."""
        tail = self._tails.get(one.place)
        if tail is None:
            tail = self._tails[one.place] = _Tail()
        news = False
        for key in one.events:
            if key in tail.read and known.get(self._named(shelf, key), ("", ""))[1] == stamps[key]:
                continue
            try:
                data = shelf.get(key)
            except ArchiveError as error:
                self._complaints[key] = str(error)
                continue
            done = tail.read.get(key, 0)
            if data[max(0, done - _END) : done] != tail.ends.get(key, b""):  # the session was forgotten and made anew
                self._spans.forget(whole_text(session))
                done, tail.calls = 0, Calls()
            new = data[done:]
            whole = self._whole(new)
            news = self._spans.add(self._spans_of(new[:whole], key, tail.calls)) or news
            tail.read[key] = done + whole
            tail.ends[key] = data[max(0, done + whole - _END) : done + whole]
            self._spans.remember(self._named(shelf, key), session, stamps[key])
        return news

    def _forget(self, shelf: Shelf, kept: Mapping[str, Kept], known: Mapping[str, tuple[str, str]]) -> bool:
        """Drop what is known of sessions that the archive has forgotten."""
        places = {one.place for one in kept.values()}
        prefix = self._named(shelf, "")
        gone = {
            (name.removeprefix(prefix).partition("/")[0], session)
            for name, (session, _) in known.items()
            if name.startswith(prefix)
        }
        news = False
        for place, session in gone:
            if place not in places:
                self._spans.forget(session)
                self._tails.pop(place, None)
                news = True
        return news

    def _named(self, shelf: Shelf, key: str) -> str:
        return f"{shelf.root or shelf.name}\n{key}"

    def _whole(self, data: bytes) -> int:
        """How many bytes are whole lines; a last line without its newline counts when it is a whole value."""
        end = data.rfind(b"\n") + 1
        try:
            json.loads(data[end:])
        except (ValueError, RecursionError):
            return end
        return len(data)

    def _spans_of(self, data: bytes, what: str, calls: Calls) -> Iterable[dict[str, Any]]:
        """The spans of some lines, each once."""
        values, complaint = read_lines(data, what, tolerant=True)
        latest: dict[str, Span] = {}
        bad = 0
        for value in values:
            try:
                event = event_of(value)
                for span in spans_of(event, calls.of(event)):
                    latest[whole_text(span.trace_id) + span.span_id] = span
            except _BAD:
                bad += 1
        spans: list[dict[str, Any]] = []
        for span in latest.values():
            try:
                spans.append(span.as_dict())
            except _BAD:
                bad += 1
        if bad:
            complaint = f"{what}: {bad:,} of {len(values):,} lines are no events of compact and were left out."
        if complaint:
            self._complaints[what] = complaint
        return spans
