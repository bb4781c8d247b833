"""The spans that were seen, in SQLite.

Owns: `Spans`: adding, listing, following, and forgetting the oldest. Must never: know where spans come from, or be the
only place where something is kept: the file may be deleted at any time.

Rules:
- A span that comes again with another content takes the place of the old one under a new id; the same content changes
  nothing. So whoever has seen id N has seen everything once it has read all above N.
- Ids never go back, not even with a new database: they start at the microseconds of the clock.
- One connection behind a lock; it holds the file alone. Whoever finds it held works in memory.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from .._seen import SEEN
from ._brief import brief_of
from ._ingest import seconds_of

__all__ = ["NEWEST", "Spans", "whole_text"]

NEWEST = 1_000_000
"""Spans kept; the oldest give way."""
_AT_ONCE = 2_000
"""Spans written in one transaction, so that nobody waits for long."""
_SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS spans (
    id INTEGER PRIMARY KEY, session TEXT, span_id TEXT, parent_id TEXT, kind TEXT, name TEXT, started REAL, ended REAL,
    status TEXT, brief TEXT, step INTEGER, grade INTEGER, tokens INTEGER, window INTEGER, saved INTEGER, mark TEXT,
    whole TEXT, UNIQUE (session, span_id)
);
CREATE INDEX IF NOT EXISTS by_session ON spans (session, id);
CREATE INDEX IF NOT EXISTS marks ON spans (session, ended) WHERE mark IS NOT NULL;
CREATE TABLE IF NOT EXISTS sessions (
    session TEXT PRIMARY KEY, spans INTEGER, folds INTEGER, saved INTEGER, errors INTEGER, warnings INTEGER,
    first REAL, last REAL, tokens INTEGER, window INTEGER, told REAL
);
CREATE TABLE IF NOT EXISTS files (name TEXT PRIMARY KEY, session TEXT, stamp TEXT);
CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON spans BEGIN
    INSERT OR IGNORE INTO sessions VALUES (new.session, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL);
    UPDATE sessions SET spans = spans + 1,
        folds = folds + (new.saved IS NOT NULL), saved = saved + ifnull(new.saved, 0),
        errors = errors + (new.grade = 2), warnings = warnings + (new.grade = 1),
        first = min(ifnull(first, new.started), ifnull(new.started, first)),
        tokens = CASE WHEN ifnull(told, 0) <= ifnull(new.ended, 0) THEN ifnull(new.tokens, tokens) ELSE tokens END,
        told = CASE WHEN new.tokens IS NULL THEN told ELSE max(ifnull(told, new.ended), ifnull(new.ended, told)) END,
        window = ifnull(new.window, window),
        last = max(ifnull(last, new.ended), ifnull(new.ended, last)) WHERE session = new.session;
END;
CREATE TRIGGER IF NOT EXISTS grown AFTER UPDATE ON spans BEGIN
    UPDATE sessions SET errors = errors + (new.grade = 2) - (old.grade = 2),
        warnings = warnings + (new.grade = 1) - (old.grade = 1),
        last = max(ifnull(last, new.ended), ifnull(new.ended, last)) WHERE session = new.session;
END;
CREATE TRIGGER IF NOT EXISTS gone AFTER DELETE ON spans BEGIN
    UPDATE sessions SET spans = spans - 1,
        folds = folds - (old.saved IS NOT NULL), saved = saved - ifnull(old.saved, 0),
        errors = errors - (old.grade = 2), warnings = warnings - (old.grade = 1) WHERE session = old.session;
    DELETE FROM sessions WHERE session = old.session AND spans <= 0;
END;
"""

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


class Spans:
    """Spans by session. Safe to share between threads; every method may block for a moment."""

    def __init__(self, path: Path | None = None, *, newest: int = NEWEST) -> None:
        self._lock = threading.Lock()
        self._newest = newest
        self.complaint: str | None = None
        """Why spans are kept in memory only, if they are and should not be."""
        self._db = self._opened(path)
        (last,) = self._db.execute("SELECT max(id) FROM spans").fetchone()
        self._id = max(last or 0, int(time.time() * 1e6))
        self._count = 0
        self._recount(self._db)

    # -- writing -----------------------------------------------------------------------------------------------------

    def add(self, spans: Iterable[Mapping[str, Any]]) -> bool:
        """Take spans as `/ingest` has them; whether any of them was news. Of one id in a batch the last one counts."""
        news = False
        waiting = iter(spans)
        while batch := list(islice(waiting, _AT_ONCE)):
            latest = {(whole_text(span["trace_id"]), whole_text(span["span_id"])): span for span in batch}
            rows = [_row(session, span_id, span) for (session, span_id), span in latest.items()]
            with self._writing() as db:
                before = db.total_changes
                first, self._id = self._id + 1, self._id + len(rows)
                db.executemany(_ADD, ((number, *row) for number, row in enumerate(rows, first)))
                news = news or db.total_changes > before
                self._make_room(db)
        return news

    def remember(self, name: str, session: str, stamp: str) -> None:
        """Note how a file looked when it was read."""
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", (name, whole_text(session), stamp))

    def forget(self, session: str) -> None:
        """Drop all that is known of a session."""
        with self._writing() as db:
            db.execute("DELETE FROM spans WHERE session = ?", (session,))
            db.execute("DELETE FROM files WHERE session = ?", (session,))
            self._recount(db)

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
        sql = "SELECT started, ended, whole FROM spans WHERE session = ? AND step = ? AND name = ?"
        for started, ended, whole in self._read(sql, (session, step, f"fold {step}")):
            return (ended or 0) - (started or 0), json.loads(whole)
        return None

    def marks(self, session: str) -> list[tuple[float, dict[str, Any]]]:
        """What the timeline needs, in order of time."""
        sql = "SELECT ended, mark FROM spans WHERE session = ? AND mark IS NOT NULL ORDER BY ended, id"
        return [(ended, json.loads(mark)) for ended, mark in self._read(sql, (session,)) if ended is not None]

    def sessions(self) -> list[dict[str, Any]]:
        """Every session with its sums, the newest first."""
        rows = self._read(f"SELECT {', '.join(_SESSION)} FROM sessions ORDER BY last DESC, session", ())  # noqa: S608
        return [dict(zip(_SESSION, row, strict=True)) for row in rows]

    def files(self) -> dict[str, tuple[str, str]]:
        """The files that were read: their session, and how they looked."""
        return {name: (session, stamp) for name, session, stamp in self._read("SELECT * FROM files", ())}

    # -- the parts ---------------------------------------------------------------------------------------------------

    def _opened(self, path: Path | None) -> sqlite3.Connection:
        if path is not None:
            try:
                return _prepared(_file(path))
            except (OSError, sqlite3.Error) as error:
                self.complaint = (
                    f"spans are kept in memory only: {path.name} cannot be used ({error}). End the viewer that has it "
                    "open, or name another file with --db."
                )
        return _prepared(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))

    def _read(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _make_room(self, db: sqlite3.Connection) -> None:
        self._recount(db)
        if self._count > self._newest:
            over = self._count - self._newest + self._newest // 100
            db.execute("DELETE FROM spans WHERE id IN (SELECT id FROM spans ORDER BY id LIMIT ?)", (over,))
            self._recount(db)

    def _recount(self, db: sqlite3.Connection) -> None:
        self._count = int(db.execute("SELECT ifnull(sum(spans), 0) FROM sessions").fetchone()[0])


def _file(path: Path) -> sqlite3.Connection:
    """The file, private and held by us alone; made if need be. One that is no database of ours is left as it is."""
    for folder in reversed(path.absolute().parents):
        if not folder.exists():
            folder.mkdir(mode=0o700)
    if path.is_symlink() or path.parent.is_symlink():
        raise OSError("a symbolic link leads to it")
    if path.parent.name == SEEN.parent.name:  # nobody wants it in a repository
        _make(path.parent / ".gitignore", b"*\n")
    _make(path)  # SQLite would make it readable for others; what it puts beside it takes the mode of this one
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.2)
    try:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version not in (0, _SCHEMA_VERSION):
            raise sqlite3.DatabaseError(f"it is of version {version}, and this one reads {_SCHEMA_VERSION}")
    except BaseException:
        db.close()
        raise
    return db


def _make(path: Path, data: bytes = b"") -> None:
    with suppress(FileExistsError):
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.write(file, data)
        finally:
            os.close(file)


def _prepared(db: sqlite3.Connection) -> sqlite3.Connection:
    db.execute("PRAGMA synchronous = NORMAL")
    db.executescript(f"{_SCHEMA} PRAGMA user_version = {_SCHEMA_VERSION};")
    return db


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
