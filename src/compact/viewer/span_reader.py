"""Reading the events of an archive, or of a JSONL file, into the table of spans.

Owns: `SpanReader`: reading only what is new since the last `sync`.
Must never: write to what it reads, or stop at a line that cannot be read.

The id of a span is derived from its event, so an event that came live and is also in the archive is one span.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._archive.jsonl import read_lines
from .._events.serialize import parse_event
from .._events.trace import CallTracer, TracedSpan, spans_of
from ..errors import ArchiveError, CompactError
from .archive_reader import ArchivedSession, ArchiveReader
from .span_table import TAIL, FileProgress, SpanTable, replace_surrogates

_INVALID_EVENT = (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError, RecursionError)
"""What an invalid event may raise on its way to a span."""
_MAX_COMPLAINTS = 50
_CHECKED_SESSIONS = 3
"""Sessions of a bucket whose first event file each sync reads again: a listing does not show that one was replaced."""


class SpanReader:
    """Reads an archive, a JSONL file, or nothing. Any thread may call `sync`; one at a time works."""

    def __init__(self, spans: SpanTable, archive: ArchiveReader | None, file: Path | None = None) -> None:
        self._spans = spans
        self._archive = archive
        self._file = file.absolute() if file is not None else None
        self._lock = threading.Lock()
        self._calls: dict[str, CallTracer] = {}
        """By session folder, the calls that were open where reading stopped; other folders are read from the start."""
        self._file_progress: FileProgress | None = None
        """How far the JSONL file was read."""
        self._complaints: dict[str, str] = {}
        self._next_check = 0
        self.sync_seconds = 0.0
        """Seconds that the last `sync` took."""
        self.name = str(file) if file is not None else archive.name if archive is not None else "live events"

    @property
    def shows_archive(self) -> bool:
        """Whether all sessions of the archive are shown, rather than those of a file."""
        return self._file is None

    @property
    def complaints(self) -> list[str]:
        """What could not be read."""
        complaints = list(self._complaints.values())[:_MAX_COMPLAINTS]
        if self._spans.complaint:
            complaints.append(self._spans.complaint)
        return [*complaints, *(self._archive.complaints if self._archive is not None else ())]

    def sync(self) -> bool:
        """Read what is new, and return whether anything was."""
        with self._lock:
            started = time.monotonic()
            try:
                if self._file is not None:
                    return self._sync_file(self._file)
                return self._sync_archive(self._archive) if self._archive is not None else False
            finally:
                self.sync_seconds = time.monotonic() - started

    def _sync_file(self, path: Path) -> bool:
        name = str(path)
        done = self._file_progress.read if self._file_progress is not None else 0
        try:
            with path.open("rb") as file:
                file.seek(max(0, done - TAIL))
                data = file.read()
                if self._file_progress is not None and not self._file_progress.matches_tail(
                    data[: min(done, TAIL)]
                ):  # the file was replaced
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
        whole = _complete_bytes(new)
        calls = self._calls.setdefault(name, CallTracer())
        changed = self._spans.add(self._to_spans(new[:whole], path.name, calls))
        self._file_progress = FileProgress.of("", "", data[: min(done, TAIL) + whole], done + whole)
        return changed

    def _sync_archive(self, archive: ArchiveReader) -> bool:
        try:
            sessions = archive.refresh()
        except (CompactError, OSError) as error:
            self._complaints["archive"] = str(error)
            return False
        self._complaints.pop("archive", None)
        known = self._progress_by_place(archive)
        changed = self._forget_deleted(sessions, known)
        waiting: list[tuple[int, str, ArchivedSession]] = []
        stamps: dict[str, str] = {}
        checked = self._places_to_check(sessions) if archive.root is None else ()
        for session, one in sessions.items():
            progress = known.get(one.place, {})
            newest = int(_is_replaced(session, one, progress))
            for key in one.events:
                stamp = archive.stamp(key)
                stamps[key] = str(stamp)
                if stamp is not None and (key not in progress or progress[key].stamp != stamps[key]):
                    newest = max(newest, stamp[1], 1)
            if newest or one.place in checked:
                waiting.append((newest, session, one))
        for _, session, one in sorted(waiting, key=lambda each: each[0], reverse=True):
            changed = self._read_session(archive, session, one, stamps, known.get(one.place, {})) or changed
        return changed

    def _read_session(
        self,
        archive: ArchiveReader,
        session: str,
        one: ArchivedSession,
        stamps: Mapping[str, str],
        progress: Mapping[str, FileProgress],
    ) -> bool:
        """Read the events of one session that are new since the last sync, and return whether there were any."""
        if not progress:
            self._calls.pop(one.place, None)
        resumed = one.place in self._calls
        same = {key for key in one.events if key in progress and progress[key].stamp == stamps[key]}
        if len(same) < len(one.events) and not resumed:
            same = set()  # which calls were open is only known after reading everything
        if archive.root is None:
            same -= set(one.events[:1])
        data: dict[str, bytes] = {}
        for key in one.events:
            if key in same:
                continue
            try:
                data[key] = archive.get(key)
                self._complaints.pop(key, None)
            except ArchiveError as error:
                self._complaints[key] = str(error)
        rewritten = any(key in progress and not progress[key].is_start_of(found) for key, found in data.items())
        if rewritten or _is_replaced(session, one, progress):
            self._spans.forget(session, *{file.session for file in progress.values()})
            self._read_session(archive, session, one, stamps, {})
            return True
        if not resumed and same:
            return False
        calls = self._calls.setdefault(one.place, CallTracer())
        changed = False
        for key, found in data.items():
            done = progress[key].read if resumed and key in progress else 0
            end = done + _complete_bytes(found[done:])
            spans = self._to_spans(found[done:end], key, calls)
            for span in spans:
                if replace_surrogates(span["trace_id"]) == one.name:
                    span["trace_id"] = session  # several sessions may have the same name
            changed = self._spans.add(spans) or changed
            progress_now = FileProgress.of(session, stamps[key], found[:end], end)
            self._spans.remember(_file_name(archive, key), progress_now)
        return changed

    def _places_to_check(self, sessions: Mapping[str, ArchivedSession]) -> list[str]:
        places = [one.place for one in sessions.values() if one.events]
        self._next_check += _CHECKED_SESSIONS
        return [places[(self._next_check + number) % len(places)] for number in range(_CHECKED_SESSIONS) if places]

    def _progress_by_place(self, archive: ArchiveReader) -> dict[str, dict[str, FileProgress]]:
        """What was read of this archive: by session folder and key."""
        known: dict[str, dict[str, FileProgress]] = {}
        prefix = _file_name(archive, "")
        for name, progress in self._spans.files().items():
            if name.startswith(prefix):
                key = name.removeprefix(prefix)
                known.setdefault(key.partition("/")[0], {})[key] = progress
        return known

    def _forget_deleted(
        self, sessions: Mapping[str, ArchivedSession], known: Mapping[str, Mapping[str, FileProgress]]
    ) -> bool:
        """Drop the spans of sessions that are no longer in the archive."""
        gone = known.keys() - {one.place for one in sessions.values()}
        if gone:
            self._spans.forget(*{file.session for place in gone for file in known[place].values()})
            for key in [key for place in gone for key in known[place]]:
                self._complaints.pop(key, None)
            for place in gone:
                self._calls.pop(place, None)
        return bool(gone)

    def _to_spans(self, data: bytes, what: str, calls: CallTracer) -> list[dict[str, Any]]:
        """The spans of some lines, each once; lines that are not events become a complaint."""
        values, complaint = read_lines(data, what, tolerant=True)
        latest: dict[str, TracedSpan] = {}
        bad = 0
        for value in values:
            try:
                event = parse_event(value)
                for span in spans_of(event, calls.add(event)):
                    latest[replace_surrogates(span.trace_id) + span.span_id] = span
            except _INVALID_EVENT:
                bad += 1
        spans: list[dict[str, Any]] = []
        for span in latest.values():
            try:
                spans.append(span.as_dict())
            except _INVALID_EVENT:
                bad += 1
        if bad:
            complaint = f"{what}: {bad:,} of {len(values):,} lines are not events of compact and were left out."
        if complaint:
            self._complaints[what] = complaint
        return spans


def _file_name(archive: ArchiveReader, key: str) -> str:
    """The name of an archived file in the table of files."""
    return f"{archive.root or archive.name}\n{key}"


def _complete_bytes(data: bytes) -> int:
    """The number of bytes in complete lines; a last line without a newline counts when it is a complete value."""
    end = data.rfind(b"\n") + 1
    try:
        json.loads(data[end:])
    except (ValueError, RecursionError):
        return end
    return len(data)


def _is_replaced(session: str, one: ArchivedSession, progress: Mapping[str, FileProgress]) -> bool:
    """Whether a session is another one than was read: it was deleted and created again, or has another name now."""
    return not progress.keys() <= set(one.events) or any(file.session != session for file in progress.values())
