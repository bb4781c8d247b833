"""Finding what was folded: a full-text index over the archive, one small database per session.

Owns: `Recalled` (one folded message, found again) and `SearchIndex`: where the databases lie, who may read them, and
what happens when one cannot be used. `search_tables` has their contents, `search_ranking` the order of matches.
Must never: be the only place where something is kept, take part in a compaction, or follow a symbolic link.

- All of it is derived. A database that is missing, damaged, foreign or of another archive is built again; where none
  can be written, one in memory is used.
- A database is brought up to date when it is asked, step by step: nothing is paid during a compaction, what was just
  folded is found at once, and two processes may do it at the same time.
- The file of a database has a name that is used only once, so deleting it does not harm a process that has it open:
  SQLite finds the files beside it by name, and would mix those of an old database with a new one.
- Only SQLite opens it: closing a file drops all locks that the process has on it, those of SQLite too.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ArchiveError
from .search_ranking import SELECT, Row, bindable, search, snippet
from .search_tables import LARGEST, Steps, prepare_tables, sync, transaction

_DAMAGE = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_SUFFIX = ".sqlite3"
_TRIES = 5
"""How often a database is built again, or looked for, before one in memory is used."""
_LOCK_SECONDS = 30.0
"""Seconds that another process may take to write a step."""
_IN_MEMORY = 8
"""Databases kept in memory at once; the least recently used one is dropped."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """One folded message, found again. `message` is as archived: redacted, otherwise whole."""

    position: int
    step: int
    """The step that folded it."""
    role: str
    text: str
    """All there is to read in it, tool calls with their arguments and tool results included."""
    cite: str
    """How a summary cites it: `#12`."""
    score: float
    """Higher is better, within one answer: 4 and more for the words in a row, then 3, 2, 1, 0 for each lesser tier."""
    snippet: str
    """The place that answers the query, about 300 characters of it."""
    message: dict[str, Any] = field(repr=False)


class SearchIndex:
    """The indexes of all sessions, in `folder` (made at the first search) or in memory. Safe to share by threads.

    The folder must be a real one, and so must every step to it from `within`, which is the working directory of now for
    a relative folder: what lies in a project may have been planted there.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, within: str | os.PathLike[str] | None = None
    ) -> None:
        self._folder = Path(os.path.abspath(folder)) if folder is not None else None
        self._checked: list[Path] = []
        """Steps on the way to a database that must not be links."""
        if folder is not None and self._folder is not None:
            if within is None and not os.path.isabs(folder):
                within = os.getcwd()
            inside = [one for one in self._folder.parents if within is not None and Path(within) in one.parents]
            self._checked = [self._folder, *inside]
        self._memory: dict[str, sqlite3.Connection] = {}
        self._lock = threading.RLock()

    def search(self, place: str, query: str, steps: Steps, limit: int = 5) -> list[Recalled]:
        """The originals that answer a query, best first."""
        return self._ask(place, steps, lambda db: _search_rows(db, query, limit))

    def positions(
        self, place: str, spans: Sequence[tuple[int, int]], steps: Steps, limit: int = 1_000
    ) -> list[Recalled]:
        """The originals at these session positions, first to last of each span, in the session's order."""
        return self._ask(place, steps, lambda db: _rows_between(db, spans, limit))

    def forget(self, place: str) -> None:
        """Delete what is known of a session."""
        self._close_memory(place)
        if self._folder is None:
            return
        folder = self._folder / place
        with _deletion_errors():
            for _ in range(_TRIES):
                for name in sorted(self._names(place)):  # the database first, so that no half of it is opened
                    (folder / name).unlink(missing_ok=True)
                if _remove_folder(folder):
                    return
            folder.rmdir()  # raises the reason

    def close(self) -> None:
        """Close what is in memory."""
        with self._lock:
            while self._memory:
                self._memory.popitem()[1].close()

    def _ask(self, place: str, steps: Steps, answer: Callable[[sqlite3.Connection], list[Recalled]]) -> list[Recalled]:
        if not steps.listed:  # never compacted, or forgotten by a process without this index
            with suppress(ArchiveError):
                self.forget(place)
            return []
        for _ in range(_TRIES if self._folder is not None else 0):
            path = None
            try:
                path = self._database(place)
                with closing(_open_database(path)) as db:
                    return _sync_and_answer(db, steps, answer)
            except sqlite3.Error as error:
                if path is None or (not _is_damage(error) and path.exists()):
                    break  # no room, no access, locked for long
                _delete(path.parent, [f"{path.name}{end}" for end in ("", "-wal", "-shm", "-journal")])
            except FileNotFoundError:
                continue  # another process forgets the session right now
            except OSError:
                break
        with self._lock:
            try:
                return _sync_and_answer(self._in_memory(place), steps, answer)
            except sqlite3.Error as error:
                self._close_memory(place)
                raise ArchiveError(
                    f"The folded messages could not be searched: SQLite {sqlite3.sqlite_version} said "
                    f"{type(error).__name__}: {error}. Free some memory, then ask again."
                ) from error

    def _close_memory(self, place: str) -> None:
        with self._lock:
            if (db := self._memory.pop(place, None)) is not None:
                db.close()

    def _in_memory(self, place: str) -> sqlite3.Connection:
        db = self._memory.pop(place, None)
        if db is None:
            db = prepare_tables(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))
        self._memory[place] = db
        while len(self._memory) > _IN_MEMORY:
            self._memory.pop(next(iter(self._memory))).close()
        return db

    def _database(self, place: str) -> Path:
        """The session's database; a new and empty one if need be."""
        assert self._folder is not None
        folder = self._folder / place
        names = self._names(place)
        if not any(name.endswith(_SUFFIX) for name in names):
            _delete(folder, names)  # what a deleted database left
            self._make(folder)
            names = self._names(place)
        for name in names:
            if name.endswith(_SUFFIX):
                return folder / name
        raise FileNotFoundError

    def _make(self, folder: Path) -> None:
        """Make a session's folder with a database in it, unless another process is faster."""
        for step in reversed(folder.parents):
            if not step.exists():
                step.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileExistsError):  # keeps the index out of version control
            _write_new(folder.parent / ".gitignore", b"*\n")
        name = secrets.token_hex(12)
        new = folder.with_name(f".{name}")
        new.mkdir(mode=0o700)
        # SQLite would make it readable for others; what it puts beside it takes the mode of this one.
        _write_new(new / f"{name}{_SUFFIX}")
        try:
            os.rename(new, folder)  # which replaces nothing but an empty folder
        except OSError:
            _delete(new, [f"{name}{_SUFFIX}"])

    def _names(self, place: str) -> list[str]:
        """What lies in a session's folder; `ArchiveError` when anything there or on the way is a link."""
        assert self._folder is not None
        folder = self._folder / place
        linked = [one.name for one in (*self._checked, folder) if one.is_symlink()]
        entries: list[os.DirEntry[str]] = []
        if not linked:
            with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as found:
                entries = list(found)
            linked = [entry.name for entry in entries if entry.is_symlink()]
        if linked:
            raise ArchiveError(
                f"The index of folded messages was not opened: {linked[0]!r} is a symbolic link, which compact never "
                "makes. Remove the link; the index is built again from the archive."
            )
        return [entry.name for entry in entries]


def _write_new(path: Path, data: bytes = b"") -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        os.write(file, data)
    finally:
        os.close(file)


def _delete(folder: Path, names: Sequence[str]) -> None:
    """Delete some files as far as that can be done now, and their folder when nothing else is in it."""
    with suppress(OSError):
        for name in names:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def _remove_folder(folder: Path) -> bool:
    """Whether a folder is gone; it stays when a running search has put something into it."""
    try:
        folder.rmdir()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return True


@contextmanager
def _deletion_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArchiveError(
            f"The index of folded messages could not be deleted ({error.strerror}). Give this process write access to "
            "its folder, or delete the folder."
        ) from error


def _is_damage(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _DAMAGE


def _open_database(path: Path) -> sqlite3.Connection:
    """A database that exists; SQLite must not make one in the place of one that was just deleted."""
    db = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=_LOCK_SECONDS)
    try:
        with suppress(sqlite3.OperationalError):  # another process does the same right now
            db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        return prepare_tables(db)
    except BaseException:
        db.close()
        raise


def _sync_and_answer(
    db: sqlite3.Connection, steps: Steps, answer: Callable[[sqlite3.Connection], list[Recalled]]
) -> list[Recalled]:
    sync(db, steps)
    with transaction(db, "DEFERRED"):  # one state of the database, whatever others do to it meanwhile
        try:
            return answer(db)
        except (AttributeError, TypeError, ValueError) as error:
            # Damage that SQLite did not see: rows that are missing, or not what was written.
            raise sqlite3.DatabaseError(f"what it holds cannot be read: {type(error).__name__}") from error


def _search_rows(db: sqlite3.Connection, query: str, limit: int) -> list[Recalled]:
    return [_recalled_message(db, hit.row, hit.score, hit.at) for hit in search(db, bindable(query), limit)]


def _rows_between(db: sqlite3.Connection, spans: Sequence[tuple[int, int]], limit: int) -> list[Recalled]:
    found: dict[tuple[int, int], Row] = {}
    for first, last in spans:
        sql = f"{SELECT} WHERE position BETWEEN ? AND ? ORDER BY position, id LIMIT ?"
        rows = db.execute(sql, (min(first, LARGEST), min(last, LARGEST), limit))
        found.update(((row[1], row[0]), row) for row in rows)
    return [_recalled_message(db, found[key], 0.0, 0) for key in sorted(found)[:limit]]


def _recalled_message(db: sqlite3.Connection, row: Row, score: float, at: int) -> Recalled:
    number, position, step, role, text = row
    (message,) = db.execute("SELECT message FROM message WHERE id=?", (number,)).fetchone()
    return Recalled(position, step, role, text, f"#{position}", score, snippet(text, at), json.loads(message))
