"""The viewer's database: its schema, and opening or creating its file.

Owns: the schema, and opening a file with private permissions and an exclusive lock.
Must never: alter a file that another program made, or leave a file locked that it does not use.

The content is derived from archives and received events, so a damaged or old database is deleted and created again.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from .._archive.viewer_database import VIEWER_DATABASE

_VERSION = 2
_TABLES = {"spans", "sessions", "files"}

_SCHEMA = """
CREATE TABLE IF NOT EXISTS spans (
    id INTEGER PRIMARY KEY, session TEXT, span_id TEXT, parent_id TEXT, kind TEXT, name TEXT, started REAL, ended REAL,
    status TEXT, brief TEXT, step INTEGER, grade INTEGER, tokens INTEGER, window INTEGER, saved INTEGER, mark TEXT,
    whole TEXT, UNIQUE (session, span_id)
);
CREATE INDEX IF NOT EXISTS by_session ON spans (session, id);
CREATE INDEX IF NOT EXISTS marks ON spans (session, ended) WHERE mark IS NOT NULL;
CREATE INDEX IF NOT EXISTS folds ON spans (session, step) WHERE name GLOB 'fold *';
CREATE TABLE IF NOT EXISTS sessions (
    session TEXT PRIMARY KEY, spans INTEGER, folds INTEGER, saved INTEGER, errors INTEGER, warnings INTEGER,
    first REAL, last REAL, tokens INTEGER, window INTEGER, told REAL
);
CREATE TABLE IF NOT EXISTS files (name TEXT PRIMARY KEY, session TEXT, stamp TEXT, read INTEGER, tail TEXT);
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


def open_in_memory() -> sqlite3.Connection:
    """A database that ends with the process."""
    return _prepare(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))


def open_database(path: Path) -> sqlite3.Connection:
    """The file, private and exclusively locked, created if needed. A foreign database raises and stays as it is."""
    for folder in reversed(path.absolute().parents):
        if not folder.exists():
            folder.mkdir(mode=0o700)
    if path.is_symlink() or path.parent.is_symlink():
        raise OSError("a symbolic link leads to it")
    if path.exists() and path.stat().st_size and _version(path) < _VERSION:
        _remove(path)
    if path.parent.name == VIEWER_DATABASE.parent.name:  # it does not belong into a repository
        _create(path.parent / ".gitignore", b"*\n")
    _create(path)  # SQLite would make it readable for others; its companion files take the mode of this one
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.2)
    try:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")
        return _prepare(db)
    except BaseException:
        db.close()
        raise


def recreate_database(path: Path) -> sqlite3.Connection:
    """A new file in place of a damaged one; only at the viewer's default path."""
    if path.parts[-2:] != VIEWER_DATABASE.parts or path.is_symlink() or path.parent.is_symlink():
        raise OSError("it is damaged")
    _remove(path)
    return open_database(path)


def is_damaged(error: Exception) -> bool:
    """Whether an error means that SQLite cannot read the file."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _version(path: Path) -> int:
    """The schema version of a viewer database, read without changing the file."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=0.2)) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables and version == 0:
        return _VERSION  # it is empty
    if tables != _TABLES:
        raise sqlite3.DatabaseError(f"another program made it ({len(tables):,} other tables)")
    if not 0 < version <= _VERSION:
        raise sqlite3.DatabaseError(f"it has version {version}, and this viewer reads up to {_VERSION}")
    return int(version)


def _remove(path: Path) -> None:
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


def _create(path: Path, data: bytes = b"") -> None:
    with suppress(FileExistsError):
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.write(file, data)
        finally:
            os.close(file)


def _prepare(db: sqlite3.Connection) -> sqlite3.Connection:
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA secure_delete = ON")  # a span that is replaced leaves nothing behind
    db.executescript(f"{_SCHEMA} PRAGMA user_version = {_VERSION};")
    return db
