"""The spans that were seen, in SQLite.

Owns: `Spans`: adding, listing, following, and forgetting the oldest. Must never: know where spans come from, or be the
only place where something is kept: the file may be deleted at any time.

Rules:
- A span that comes again with another content takes the place of the old one under a new id; the same content changes
  nothing. So whoever has seen id N has seen everything once it has read all above N.
- Ids never go back, not even with a new database: they start at the microseconds of the clock.
- One connection behind a lock; it holds the file alone. Whoever finds it held works in memory.
- A file that is not there is made when there is something to keep.
- What is forgotten is gone from the file and from its log when `forget` returns.

One idea, so one file: one table, and the statements that touch it.
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

from .database import in_memory, is_damaged, opened, renewed
from .ingest import seconds_of
from .span_brief import brief_of

__all__ = ["NEWEST", "TAIL", "Noted", "Spans", "whole_text"]

T = TypeVar("T")

NEWEST = 1_000_000
"""Spans kept; the oldest give way."""
_AT_ONCE = 2_000
"""Spans written in one transaction, so that nobody waits for long."""
TAIL = 256
"""Bytes by whose hash a file is known again."""
_ADD = """
INSERT INTO spans VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (session, span_id) DO UPDATE SET id = excluded.id, parent_id = excluded.parent_id, kind = excluded.kind,
    name = excluded.name, started = excluded.started, ended = excluded.ended, status = excluded.status,
    brief = excluded.brief, step = excluded.step, grade = excluded.grade, mark = excluded.mark, whole = excluded.whole
WHERE whole <> excluded.whole
"""
_LIGHT = "id, session, span_id, parent_id, kind, name, started, ended, status, brief, step"
_SESSION = ("session", "spans", "folds", "saved", "errors", "warnings", "first", "last", "tokens", "window")


def whole_text(text: str) -> str:
    """The text as a database and an address take it: half a pair of surrogates is no character."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True, slots=True)
class Noted:
    """How a file looked when it was read: whose it was, its stamp, how many bytes, and a hash of the last of them."""

    session: str
    stamp: str
    read: int
    tail: str

    @classmethod
    def of(cls, session: str, stamp: str, data: bytes, read: int) -> Noted:
        """The note of a file that was read so far, by the data before that place, or the end of it."""
        return cls(whole_text(session), stamp, read, _hash(data[-TAIL:]))

    def begins(self, data: bytes) -> bool:
        """Whether a file is still the one that was read, perhaps with more at its end."""
        return len(data) >= self.read and self.ends(data[max(0, self.read - TAIL) : self.read])

    def ends(self, data: bytes) -> bool:
        """Whether this is what was read last."""
        return _hash(data) == self.tail


class Spans:
    """Spans by session. Safe to share between threads; every method may block for a moment."""

    def __init__(self, path: Path | None = None, *, newest: int = NEWEST) -> None:
        self._lock = threading.Lock()
        self._newest = newest
        self._path = path
        self._later = path is not None and not path.exists() and not path.is_symlink()
        self._odd: str | None = None
        self._failing: str | None = None
        self._db = in_memory() if path is None or self._later else self._opened(path)
        self._id = int(time.time() * 1e6)
        self._count = 0
        self._with(self._start)

    @property
    def complaint(self) -> str | None:
        """Why spans are kept in memory only, or not at all, if they should be."""
        return " ".join(filter(None, (self._odd, self._failing))) or None

    # -- writing -----------------------------------------------------------------------------------------------------

    def add(self, spans: Iterable[Mapping[str, Any]]) -> bool:
        """Take spans as `/ingest` has them; whether any of them was news. Of one id in a batch the last one counts."""
        news = False
        waiting = iter(spans)
        while batch := list(islice(waiting, _AT_ONCE)):
            latest = {(whole_text(span["trace_id"]), whole_text(span["span_id"])): span for span in batch}
            rows = [_row(session, span_id, span) for (session, span_id), span in latest.items()]

            def write(db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]] = rows) -> bool:
                before = db.total_changes
                first, self._id = self._id + 1, self._id + len(rows)
                db.executemany(_ADD, ((number, *row) for number, row in enumerate(rows, first)))
                changed = db.total_changes > before
                self._make_room(db)
                return changed

            news = self._with(write, writes=True) or news
        return news

    def remember(self, name: str, noted: Noted) -> None:
        """Note how a file looked when it was read."""
        values = name, noted.session, noted.stamp, noted.read, noted.tail
        self._with(lambda db: db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", values), writes=True)

    def forget(self, *sessions: str) -> None:
        """Drop all that is known of some sessions, for good."""

        def write(db: sqlite3.Connection) -> None:
            for session in sessions:
                db.execute("DELETE FROM spans WHERE session = ?", (session,))
                db.execute("DELETE FROM files WHERE session = ?", (session,))

        self._with(write, writes=True)
        self._with(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    # -- reading -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    @property
    def last(self) -> int:
        """The newest id given out."""
        return self._id

    def rows(self, after: int, limit: int, session: str | None = None) -> list[dict[str, Any]]:
        """Light rows with ids above one, ascending: of one session or of all."""
        where, values = ("", ()) if session is None else ("session = ? AND ", (session,))
        sql = f"SELECT {_LIGHT} FROM spans WHERE {where}id > ? ORDER BY id LIMIT ?"  # noqa: S608 - constants
        return [_light(row) for row in self._read(sql, (*values, after, limit))]

    def span(self, session: str, span_id: str) -> dict[str, Any] | None:
        """One span as it was ingested, with its id."""
        sql = "SELECT id, whole FROM spans WHERE session = ? AND span_id = ?"
        for number, whole in self._read(sql, (session, span_id)):
            return {**json.loads(whole), "id": number}
        return None

    def fold(self, session: str, step: int) -> tuple[float, dict[str, Any]] | None:
        """How long the call took that made a fold, and its span; None when no event told of it."""
        sql = (
            "SELECT started, ended, whole FROM spans "
            "WHERE session = ? AND step = ? AND name = ? AND name GLOB 'fold *'"  # the last for the index
        )
        for started, ended, whole in self._read(sql, (session, step, f"fold {step}")):
            return (ended or 0) - (started or 0), json.loads(whole)
        return None

    def marks(self, session: str) -> list[tuple[float, dict[str, Any]]]:
        """What the timeline needs, in order of time."""
        sql = "SELECT ended, mark FROM spans WHERE session = ? AND mark IS NOT NULL ORDER BY ended, id"
        rows = [row for row in self._read(sql, (session,)) if row[0] is not None]
        marks: list[Any] = []
        for start in range(0, len(rows), _AT_ONCE):  # many in one go take a third of the time
            marks += json.loads(f"[{','.join(mark for _, mark in rows[start : start + _AT_ONCE])}]")
        return [(ended, mark) for (ended, _), mark in zip(rows, marks, strict=True)]

    def sessions(self) -> list[dict[str, Any]]:
        """Every session with its sums, the newest first. `folds` and `saved` count all folds made, undone or not."""
        rows = self._read(f"SELECT {', '.join(_SESSION)} FROM sessions ORDER BY last DESC, session", ())  # noqa: S608
        return [dict(zip(_SESSION, row, strict=True)) for row in rows]

    def files(self) -> dict[str, Noted]:
        """The files that were read, and how they looked."""
        return {name: Noted(*noted) for name, *noted in self._read("SELECT * FROM files", ())}

    # -- the parts ---------------------------------------------------------------------------------------------------

    def _opened(self, path: Path, how: Callable[[Path], sqlite3.Connection] = opened) -> sqlite3.Connection:
        try:
            db = how(path)
            if how is renewed:
                self._odd = f"{path.name} was damaged and made anew: of what was seen, only what is archived came back."
            return db
        except (OSError, sqlite3.Error) as error:
            if how is opened and is_damaged(error):
                return self._opened(path, renewed)
            self._odd = (
                f"spans are kept in memory only: {path.name} cannot be used ({error}). End the viewer that has it "
                "open, or name another file with --db."
            )
        return in_memory()

    def _read(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._with(lambda db: db.execute(sql, values).fetchall())

    def _with(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = False) -> T:
        """Do something with the database. A file that proves to be damaged gives way to a new one, or to none."""
        with self._lock:
            if writes and self._later and self._path is not None:
                self._later = False
                self._db.close()
                self._db = self._opened(self._path)
                self._start(self._db)
            try:
                return self._tried(work, writes)
            except sqlite3.DatabaseError as error:
                if self._path is None or not is_damaged(error):
                    raise
                self._db.close()
                self._db, self._count = self._opened(self._path, renewed), 0
                return self._tried(work, writes)

    def _tried(self, work: Callable[[sqlite3.Connection], T], writes: bool) -> T:
        db = self._db
        if not writes:
            return work(db)
        try:
            db.execute("BEGIN IMMEDIATE")
            result = work(db)
            count = _counted(db)
            db.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):  # some errors end a transaction by themselves
                db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                self._failing = f"what comes now is not kept ({error}): make room, or name another file with --db."
            raise
        self._count, self._failing = count, None
        return result

    def _start(self, db: sqlite3.Connection) -> None:
        (last,) = db.execute("SELECT max(id) FROM spans").fetchone()
        self._id = max(last or 0, self._id)
        self._count = _counted(db)

    def _make_room(self, db: sqlite3.Connection) -> None:
        if (count := _counted(db)) > self._newest:
            over = count - self._newest + self._newest // 100
            db.execute("DELETE FROM spans WHERE id IN (SELECT id FROM spans ORDER BY id LIMIT ?)", (over,))


def _counted(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT ifnull(sum(spans), 0) FROM sessions").fetchone()[0])


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _row(session: str, span_id: str, span: Mapping[str, Any]) -> tuple[Any, ...]:
    brief = brief_of(span)
    parent, name, kind = (whole_text(span.get(field, "")) for field in ("parent_id", "name", "kind"))
    return (
        session,
        span_id,
        parent or None,
        kind,
        name,
        seconds_of(span.get("started_at")),
        seconds_of(span.get("ended_at")),
        span.get("status", "ok"),
        whole_text(brief.line),
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
        return _encode({**span, "data": {"note": "nested too deep to be kept"}})


_encode: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":")).encode


def _light(row: tuple[Any, ...]) -> dict[str, Any]:
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
