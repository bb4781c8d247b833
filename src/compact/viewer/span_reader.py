"""Where spans come from besides `/ingest`: the events of an archive, or of a JSONL file.

Owns: `Source`: reading what is new, as often as it is asked, and at the cost of what is new.
Must never: write to what it reads, or stop at a line that cannot be read.

A span's id follows from its event, so an event that came live and stands in the archive too is one span.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._archive.jsonl import read_lines
from .._events.trace import CallTracer, TracedSpan, event_of, spans_of
from ..errors import ArchiveError, CompactError
from .archive_reader import Kept, Shelf
from .span_table import TAIL, Noted, Spans, whole_text

__all__ = ["Source"]

_BAD = (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError, RecursionError)
"""What an event that is none may raise on its way to a span."""
_COMPLAINTS = 50
_CHECKED = 3
"""Sessions of a bucket that each look checks by their first events: a listing does not tell one made anew."""


class Source:
    """An archive, a JSONL file, or neither. `sync` may be called by any thread; one of them works."""

    def __init__(self, spans: Spans, shelf: Shelf | None, file: Path | None = None) -> None:
        self._spans = spans
        self._shelf = shelf
        self._file = file.absolute() if file is not None else None
        self._lock = threading.Lock()
        self._calls: dict[str, CallTracer] = {}
        """By place, the calls that were open where its events were read to; a place that is new here is read anew."""
        self._at: Noted | None = None
        """How far the file was read."""
        self._complaints: dict[str, str] = {}
        self._turn = 0
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
        done = self._at.read if self._at is not None else 0
        try:
            with path.open("rb") as file:
                file.seek(max(0, done - TAIL))
                data = file.read()
                if self._at is not None and not self._at.ends(data[: min(done, TAIL)]):  # somebody began it anew
                    file.seek(0)
                    data, done = file.read(), 0
                    self._calls.clear()
        except OSError as error:
            self._complaints[name] = f"{path.name} cannot be read ({error.strerror}). Name a file of events."
            return False
        self._complaints.pop(name, None)
        if done == 0:
            self._complaints.pop(path.name, None)
        new = data[min(done, TAIL) :]
        whole = self._whole(new)
        calls = self._calls.setdefault(name, CallTracer())
        news = self._spans.add(self._spans_of(new[:whole], path.name, calls))
        self._at = Noted.of("", "", data[: min(done, TAIL) + whole], done + whole)
        return news

    def _sync_shelf(self, shelf: Shelf) -> bool:
        try:
            kept = shelf.look()
        except (CompactError, OSError) as error:
            self._complaints["archive"] = str(error)
            return False
        self._complaints.pop("archive", None)
        known = self._known(shelf)
        news = self._forget(kept, known)
        waiting: list[tuple[int, str, Kept]] = []
        stamps: dict[str, str] = {}
        checked = self._next_checked(kept) if shelf.root is None else ()
        for session, one in kept.items():
            noted = known.get(one.place, {})
            changed = int(_is_another(session, one, noted))
            for key in one.events:
                stamp = shelf.stamp(key)
                stamps[key] = str(stamp)
                if stamp is not None and (key not in noted or noted[key].stamp != stamps[key]):
                    changed = max(changed, stamp[1], 1)
            if changed or one.place in checked:
                waiting.append((changed, session, one))
        for _, session, one in sorted(waiting, key=lambda each: each[0], reverse=True):
            news = self._read(shelf, session, one, stamps, known.get(one.place, {})) or news
        return news

    def _read(
        self, shelf: Shelf, session: str, one: Kept, stamps: Mapping[str, str], noted: Mapping[str, Noted]
    ) -> bool:
        """The events of one session that are new since the last look; all of them when there was none."""
        if not noted:
            self._calls.pop(one.place, None)
        resumed = one.place in self._calls
        same = {key for key in one.events if key in noted and noted[key].stamp == stamps[key]}
        if len(same) < len(one.events) and not resumed:
            same = set()  # the calls that are open where it was read to are known by reading all
        if shelf.root is None:
            same -= set(one.events[:1])
        data: dict[str, bytes] = {}
        for key in one.events:
            if key in same:
                continue
            try:
                data[key] = shelf.get(key)
                self._complaints.pop(key, None)
            except ArchiveError as error:
                self._complaints[key] = str(error)
        other = any(key in noted and not noted[key].begins(found) for key, found in data.items())
        if other or _is_another(session, one, noted):
            self._spans.forget(session, *{file.session for file in noted.values()})
            self._read(shelf, session, one, stamps, {})
            return True
        if not resumed and same:
            return False
        calls = self._calls.setdefault(one.place, CallTracer())
        news = False
        for key, found in data.items():
            done = noted[key].read if resumed and key in noted else 0
            end = done + self._whole(found[done:])
            spans = self._spans_of(found[done:end], key, calls)
            for span in spans:
                if whole_text(span["trace_id"]) == one.told:
                    span["trace_id"] = session  # not always the same: others may be told by this name
            news = self._spans.add(spans) or news
            self._spans.remember(self._named(shelf, key), Noted.of(session, stamps[key], found[:end], end))
        return news

    def _next_checked(self, kept: Mapping[str, Kept]) -> list[str]:
        places = [one.place for one in kept.values() if one.events]
        self._turn += _CHECKED
        return [places[(self._turn + number) % len(places)] for number in range(_CHECKED) if places]

    def _known(self, shelf: Shelf) -> dict[str, dict[str, Noted]]:
        """What was read of this archive: by place and key."""
        known: dict[str, dict[str, Noted]] = {}
        prefix = self._named(shelf, "")
        for name, noted in self._spans.files().items():
            if name.startswith(prefix):
                key = name.removeprefix(prefix)
                known.setdefault(key.partition("/")[0], {})[key] = noted
        return known

    def _forget(self, kept: Mapping[str, Kept], known: Mapping[str, Mapping[str, Noted]]) -> bool:
        """Drop what is known of sessions that the archive has forgotten."""
        gone = known.keys() - {one.place for one in kept.values()}
        if gone:
            self._spans.forget(*{noted.session for place in gone for noted in known[place].values()})
            for key in [key for place in gone for key in known[place]]:
                self._complaints.pop(key, None)
            for place in gone:
                self._calls.pop(place, None)
        return bool(gone)

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

    def _spans_of(self, data: bytes, what: str, calls: CallTracer) -> list[dict[str, Any]]:
        """The spans of some lines, each once."""
        values, complaint = read_lines(data, what, tolerant=True)
        latest: dict[str, TracedSpan] = {}
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


def _is_another(session: str, one: Kept, noted: Mapping[str, Noted]) -> bool:
    """Whether a session cannot be what was read: it was forgotten and made anew, or is called otherwise now."""
    return not noted.keys() <= set(one.events) or any(file.session != session for file in noted.values())
