"""Shared state in a SQLite file, for the proxies of one machine.

Owns: `SqliteState`, the file's table, and checking that a file is such a state.
Must never: change a file that another program made or that is damaged, or do I/O on the event loop after its start.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from ..._archive.search_tables import transaction
from ...errors import ConfigError

T = TypeVar("T")

_VERSION = 1
_TABLE = "compact_state"
_SCHEMA = (
    f"CREATE TABLE IF NOT EXISTS {_TABLE} (key TEXT PRIMARY KEY, value BLOB NOT NULL, expires REAL NOT NULL)",
    f"CREATE INDEX IF NOT EXISTS ends ON {_TABLE} (expires)",
    f"PRAGMA user_version = {_VERSION}",
)
# The keys are looked up in their order; row ids only, so that one value is read.
_FIND = f"""
    SELECT asked.key, kept.rowid, kept.expires FROM json_each(?) AS asked CROSS JOIN {_TABLE} AS kept
    ON kept.key = asked.value WHERE kept.expires > ? ORDER BY asked.key LIMIT 1
"""  # noqa: S608
_READ = f"SELECT value FROM {_TABLE} WHERE rowid = ?"  # noqa: S608
_RENEW = f"UPDATE {_TABLE} SET expires = ? WHERE rowid = ?"  # noqa: S608
_PUT = f"INSERT OR REPLACE INTO {_TABLE} (key, value, expires) VALUES (?, ?, ?)"  # noqa: S608
_SWEEP = f"DELETE FROM {_TABLE} WHERE rowid IN (SELECT rowid FROM {_TABLE} WHERE expires <= ? LIMIT 1000)"  # noqa: S608

_WAITED = 1.0
"""Seconds to wait while another process writes."""
_SWEPT = 60.0
"""Seconds between two deletions of expired values."""
_UNWRITTEN = 0.25
"""The share of its time to live after which a value that is found is renewed."""


class SqliteState:
    """Values in one file, for any number of processes."""

    def __init__(self, path: Path, *, ttl: float) -> None:
        self._path, self._ttl = path, ttl
        self._db = _open(path)
        self._thread = ThreadPoolExecutor(1, "compact-proxy-state")
        self._swept = 0.0

    def __str__(self) -> str:
        return f"the SQLite file {self._path}"

    async def first(self, keys: Sequence[str]) -> tuple[int, bytes] | None:
        """See `State`."""
        return await self._in_thread(lambda: self._first(keys))

    async def claim(self, key: str, value: bytes) -> bytes:
        """See `State`."""
        return await self._in_thread(lambda: self._set(key, value, over=False))

    async def put(self, key: str, value: bytes) -> None:
        """See `State`."""
        await self._in_thread(lambda: self._set(key, value, over=True))

    async def close(self) -> None:
        """See `State`."""
        try:
            await self._in_thread(self._db.close)
        finally:
            self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _first(self, keys: Sequence[str]) -> tuple[int, bytes] | None:
        now = time.time()
        found = self._db.execute(_FIND, (json.dumps(list(keys)), now)).fetchone()
        value = found and self._db.execute(_READ, (found[1],)).fetchone()
        if not value:  # not found, or deleted since
            return None
        index, row, expires = found
        if expires - now < self._ttl * (1 - _UNWRITTEN):
            self._db.execute(_RENEW, (now + self._ttl, row))
        return index, value[0]

    def _set(self, key: str, value: bytes, *, over: bool) -> bytes:
        with transaction(self._db):
            now = time.time()
            found = None if over else self._db.execute(_FIND, (json.dumps([key]), now)).fetchone()
            winner: bytes = self._db.execute(_READ, (found[1],)).fetchone()[0] if found else value
            self._db.execute(_PUT, (key, winner, now + self._ttl))
            if now - self._swept > _SWEPT:
                self._swept = now
                self._db.execute(_SWEEP, (now,))
        return winner


def _open(path: Path) -> sqlite3.Connection:
    """Open the file, created if it does not exist, readable by its owner only."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # SQLite would make it readable by others
        _check(path)
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_WAITED)
        try:
            _prepare(db)
        except BaseException:
            db.close()
            raise
        return db
    except (sqlite3.Error, OSError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"proxy.state: the file {path} cannot be used ({cause}). It was not changed: name another file, or "
            "move this one away"
        ) from None


def _check(path: Path) -> None:
    """Raise for a file that is no state of a proxy, or damaged; only reads."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=_WAITED)) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if not tables and version == 0:
            return  # it is empty
        if tables != {_TABLE}:
            raise sqlite3.DatabaseError(f"another program made it: {len(tables):,} tables, and not the one of a proxy")
        if version != _VERSION:
            raise sqlite3.DatabaseError(f"it has version {version}, and this proxy reads version {_VERSION}")
        (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError("it is damaged")


def _prepare(db: sqlite3.Connection) -> None:
    deadline = time.monotonic() + 10 * _WAITED
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:  # several proxies start at once: SQLite does not wait here
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA secure_delete = ON")
    with transaction(db):
        for statement in _SCHEMA:
            db.execute(statement)


def _is_busy(error: Any) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
