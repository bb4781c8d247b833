"""The table of spans, in SQLite.

Owns: `SpanTable`: adding, listing, following, and deleting the oldest.
Must never: know where spans come from, or hold anything that exists nowhere else: the file may be deleted any time.

Rules:
- A span that comes again with other content replaces the old one under a new id; the same content changes nothing.
  So a client that has read up to id N needs only the rows above N.
- Ids never decrease, not even with a new database: they start at the clock's microseconds.
- One connection behind a lock has the file exclusively. A second process keeps its spans in memory.
- A missing file is created with the first span.
- Forgotten sessions are gone from the file and from its write-ahead log when `forget` returns.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from .database import is_damaged, open_database, open_in_memory, recreate_database
from .ingest import parse_timestamp
from .span_brief import brief_of

T = TypeVar("T")

MAX_SPANS = 1_000_000
"""Spans that are stored; the oldest are deleted."""
_BATCH = 2_000
"""Spans written in one transaction, so that the lock is never held for long."""
TAIL = 256
"""Bytes whose hash identifies a file that was read."""
_ADD = """
INSERT INTO spans VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (session, span_id) DO UPDATE SET id = excluded.id, parent_id = excluded.parent_id, kind = excluded.kind,
    name = excluded.name, started = excluded.started, ended = excluded.ended, status = excluded.status,
    brief = excluded.brief, step = excluded.step, grade = excluded.grade, mark = excluded.mark, whole = excluded.whole
WHERE whole <> excluded.whole
"""
_ROW_COLUMNS = "id, session, span_id, parent_id, kind, name, started, ended, status, brief, step"
_SESSION_COLUMNS = ("session", "spans", "folds", "saved", "errors", "warnings", "first", "last", "tokens", "window")


def replace_surrogates(text: str) -> str:
    """The text with lone surrogates replaced, as a database and a URL need it."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True, slots=True)
class FileProgress:
    """How far a file was read: its session, its stamp, the number of bytes, and a hash of the last of them."""

    session: str
    stamp: str
    read: int
    tail: str

    @classmethod
    def of(cls, session: str, stamp: str, data: bytes, read: int) -> FileProgress:
        """The progress after `read` bytes; `data` are the bytes before that place, or their end."""
        return cls(replace_surrogates(session), stamp, read, _hash(data[-TAIL:]))

    def is_start_of(self, data: bytes) -> bool:
        """Whether a file is still the one that was read, possibly with more at its end."""
        return len(data) >= self.read and self.matches_tail(data[max(0, self.read - TAIL) : self.read])

    def matches_tail(self, data: bytes) -> bool:
        """Whether these are the last bytes that were read."""
        return _hash(data) == self.tail


class SpanTable:
    """Spans by session. Safe to share between threads; every method may block briefly."""

    def __init__(self, path: Path | None = None, *, limit: int = MAX_SPANS) -> None:
        self._lock = threading.Lock()
        self._limit = limit
        self._path = path
        self._create_on_write = path is not None and not path.exists() and not path.is_symlink()
        self._file_problem: str | None = None
        self._write_problem: str | None = None
        self._db = open_in_memory() if path is None or self._create_on_write else self._open(path)
        self._last_id = int(time.time() * 1e6)
        self._count = 0
        self._with(self._load_counters)

    @property
    def complaint(self) -> str | None:
        """Why spans are kept in memory only, or not at all; None when the file works."""
        return " ".join(filter(None, (self._file_problem, self._write_problem))) or None

    # -- writing -----------------------------------------------------------------------------------------------------

    def add(self, spans: Iterable[Mapping[str, Any]]) -> bool:
        """Add spans in the form of `/ingest`, and return whether any was new. Of one id in a batch the last counts."""
        changed = False
        waiting = iter(spans)
        while batch := list(islice(waiting, _BATCH)):
            latest = {
                (replace_surrogates(span["trace_id"]), replace_surrogates(span["span_id"])): span for span in batch
            }
            rows = [_row(session, span_id, span) for (session, span_id), span in latest.items()]

            def write(db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]] = rows) -> bool:
                before = db.total_changes
                first, self._last_id = self._last_id + 1, self._last_id + len(rows)
                db.executemany(_ADD, ((number, *row) for number, row in enumerate(rows, first)))
                any_new = db.total_changes > before
                self._delete_oldest(db)
                return any_new

            changed = self._with(write, writes=True) or changed
        return changed

    def remember(self, name: str, progress: FileProgress) -> None:
        """Store how far a file was read."""
        values = name, progress.session, progress.stamp, progress.read, progress.tail
        self._with(lambda db: db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", values), writes=True)

    def forget(self, *sessions: str) -> None:
        """Delete some sessions for good."""

        def write(db: sqlite3.Connection) -> None:
            for session in sessions:
                db.execute("DELETE FROM spans WHERE session = ?", (session,))
                db.execute("DELETE FROM files WHERE session = ?", (session,))

        self._with(write, writes=True)
        self._with(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    # -- reading -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    @property
    def last(self) -> int:
        """The newest id."""
        return self._last_id

    def rows(self, after: int, limit: int, session: str | None = None) -> list[dict[str, Any]]:
        """Rows with ids above `after`, ascending, without payloads: of one session or of all."""
        where, values = ("", ()) if session is None else ("session = ? AND ", (session,))
        sql = f"SELECT {_ROW_COLUMNS} FROM spans WHERE {where}id > ? ORDER BY id LIMIT ?"  # noqa: S608 - constants
        return [_light_row(row) for row in self._read(sql, (*values, after, limit))]

    def span(self, session: str, span_id: str) -> dict[str, Any] | None:
        """One span as it was ingested, with its id."""
        sql = "SELECT id, whole FROM spans WHERE session = ? AND span_id = ?"
        for number, whole in self._read(sql, (session, span_id)):
            return {**json.loads(whole), "id": number}
        return None

    def fold(self, session: str, step: int) -> tuple[float, dict[str, Any]] | None:
        """The duration and the span of the call that made a compaction; None when no event of it was read."""
        sql = (
            "SELECT started, ended, whole FROM spans "
            "WHERE session = ? AND step = ? AND name = ? AND name GLOB 'fold *'"  # the last condition selects the index
        )
        for started, ended, whole in self._read(sql, (session, step, f"fold {step}")):
            return (ended or 0) - (started or 0), json.loads(whole)
        return None

    def marks(self, session: str) -> list[tuple[float, dict[str, Any]]]:
        """The marks for the timeline, by time."""
        sql = "SELECT ended, mark FROM spans WHERE session = ? AND mark IS NOT NULL ORDER BY ended, id"
        rows = [row for row in self._read(sql, (session,)) if row[0] is not None]
        marks: list[Any] = []
        for start in range(0, len(rows), _BATCH):  # parsing many at once takes a third of the time
            marks += json.loads(f"[{','.join(mark for _, mark in rows[start : start + _BATCH])}]")
        return [(ended, mark) for (ended, _), mark in zip(rows, marks, strict=True)]

    def sessions(self) -> list[dict[str, Any]]:
        """Every session with its totals, the newest first. `folds` and `saved` also count undone compactions."""
        rows = self._read(f"SELECT {', '.join(_SESSION_COLUMNS)} FROM sessions ORDER BY last DESC, session", ())  # noqa: S608
        return [dict(zip(_SESSION_COLUMNS, row, strict=True)) for row in rows]

    def files(self) -> dict[str, FileProgress]:
        """The files that were read, and how far."""
        return {name: FileProgress(*progress) for name, *progress in self._read("SELECT * FROM files", ())}

    # -- internals ---------------------------------------------------------------------------------------------------

    def _open(self, path: Path, how: Callable[[Path], sqlite3.Connection] = open_database) -> sqlite3.Connection:
        try:
            db = how(path)
            if how is recreate_database:
                self._file_problem = f"{path.name} was damaged and created again: only archived events are still there."
            return db
        except (OSError, sqlite3.Error) as error:
            if how is open_database and is_damaged(error):
                return self._open(path, recreate_database)
            self._file_problem = (
                f"spans are kept in memory only: {path.name} cannot be used ({error}). End the viewer that has it "
                "open, or name another file with --db."
            )
        return open_in_memory()

    def _read(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._with(lambda db: db.execute(sql, values).fetchall())

    def _with(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = False) -> T:
        """Use the database. A file that turns out to be damaged is created again, or replaced by memory."""
        with self._lock:
            if writes and self._create_on_write and self._path is not None:
                self._create_on_write = False
                self._db.close()
                self._db = self._open(self._path)
                self._load_counters(self._db)
            try:
                return self._execute(work, writes)
            except sqlite3.DatabaseError as error:
                if self._path is None or not is_damaged(error):
                    raise
                self._db.close()
                self._db, self._count = self._open(self._path, recreate_database), 0
                return self._execute(work, writes)

    def _execute(self, work: Callable[[sqlite3.Connection], T], writes: bool) -> T:
        db = self._db
        if not writes:
            return work(db)
        try:
            db.execute("BEGIN IMMEDIATE")
            result = work(db)
            count = _count_spans(db)
            db.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):  # some errors end a transaction by themselves
                db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                self._write_problem = f"new events are not stored ({error}): make room, or name another file with --db."
            raise
        self._count, self._write_problem = count, None
        return result

    def _load_counters(self, db: sqlite3.Connection) -> None:
        (last,) = db.execute("SELECT max(id) FROM spans").fetchone()
        self._last_id = max(last or 0, self._last_id)
        self._count = _count_spans(db)

    def _delete_oldest(self, db: sqlite3.Connection) -> None:
        if (count := _count_spans(db)) > self._limit:
            over = count - self._limit + self._limit // 100
            db.execute("DELETE FROM spans WHERE id IN (SELECT id FROM spans ORDER BY id LIMIT ?)", (over,))


def _count_spans(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT ifnull(sum(spans), 0) FROM sessions").fetchone()[0])


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _row(session: str, span_id: str, span: Mapping[str, Any]) -> tuple[Any, ...]:
    brief = brief_of(span)
    parent, name, kind = (replace_surrogates(span.get(field, "")) for field in ("parent_id", "name", "kind"))
    return (
        session,
        span_id,
        parent or None,
        kind,
        name,
        parse_timestamp(span.get("started_at")),
        parse_timestamp(span.get("ended_at")),
        span.get("status", "ok"),
        replace_surrogates(brief.line),
        brief.step,
        brief.grade,
        brief.tokens,
        brief.window,
        brief.saved,
        brief.mark,
        _json(span),
    )


def _json(span: Mapping[str, Any]) -> str:
    try:
        return _encode(span)
    except RecursionError:
        return _encode({**span, "data": {"note": "nested too deep to be stored"}})


_encode: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":")).encode


def _light_row(row: tuple[Any, ...]) -> dict[str, Any]:
    number, session, span_id, parent, kind, name, started, ended, status, brief, step = row
    light = {
        "id": number,
        "trace_id": session,
        "span_id": span_id,
        "kind": kind,
        "name": name,
        "started": started,
        "ended": ended,
        "status": status,
        "brief": brief,
    }
    if parent is not None:
        light["parent_id"] = parent
    if step is not None:
        light["step"] = step
    return light
