"""Finding what was folded: a full-text index over the archive, one small database per session.

Owns: `Steps` and `Folded` (what the archive tells of a session's folds), `Recalled` (one original, found again), and
`Index`: where the databases lie, and how they are brought up to date. What answers a query best, `_search` decides.
Must never: be the only place where something is kept, take part in a fold, or follow a symbolic link.

Rules:
- All of it is derived. A database that is missing, damaged, foreign or of another past is made anew from the archive;
  where none can be written, one in memory takes its place.
- A database is brought up to date when it is asked, step by step, so nothing is paid in a fold, what was just folded is
  found at once, and two processes may do it at the same time.
- A database's file has a name that was never used before and never is again, so whoever deletes it harms nobody who
  has it open: SQLite finds the files beside it by name, and would mix those of an old database with a new one.
- Nobody but SQLite opens it: whoever closes a file drops all locks that the process has on it, those of SQLite too.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._dialects import DIALECTS, detect
from ._messages import readable
from ._search import SELECT, Row, bindable, parts, search, snippet, spaced
from .errors import ArchiveError, CompactError, InvalidMessage

__all__ = ["DAMAGED", "Folded", "Index", "Recalled", "Steps"]

_VERSION = 1
_SCHEMA = (
    "CREATE TABLE step(step INTEGER PRIMARY KEY, sha256 TEXT NOT NULL)",
    "CREATE TABLE message(id INTEGER PRIMARY KEY, position INTEGER, step INTEGER, role TEXT, text TEXT, message TEXT)",
    "CREATE INDEX place ON message(position)",
    # `text` is what was said, `parts` what it can also be read as: words inside identifiers, text behind escapes.
    "CREATE VIRTUAL TABLE words USING fts5(text, parts, content='', tokenize='porter unicode61')",
    f"PRAGMA user_version={_VERSION}",
)
_DAMAGE = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_SUFFIX = ".sqlite3"
_TRIES = 5
"""How often a database is made anew, or sought again, before one in memory answers."""
_LARGEST = 2**62
_WAITED = 30.0
"""Seconds that another process may take to write a step."""
_IN_MEMORY = 8
"""Databases kept in memory at once; the one unused for longest is made anew when it is asked again."""

DAMAGED = "damaged"
"""Stands for the hash of a step whose record cannot be read."""


@dataclass(frozen=True, slots=True)
class Folded:
    """What one step folded or shortened: session positions and host messages as archived, summaries of ours left out.

    `sha256` is that of the step's transcript: the index belongs to it and to no other.
    """

    step: int
    sha256: str
    messages: tuple[tuple[int, Any], ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """The folds of a session: those that the archive lists, ascending, and how more is learned of one of them."""

    listed: Sequence[int]
    sha256: Callable[[int], str | None]
    """The hash of a step's transcript as the archive has it now, listed or not; None when there is no such step."""
    read: Callable[[int], Folded]


@dataclass(frozen=True, slots=True)
class Recalled:
    """One original message, found again. `message` is the host's own, as archived: redacted, otherwise whole."""

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


class Index:
    """The indexes of all sessions, in `folder` (made at the first search) or in memory. Safe to share by threads.

    A relative folder is taken from the working directory of now, and every step of it must be a real folder: what lies
    in a project may have been planted there. Of an absolute one only the last step is checked, and what is in it.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._folder = Path(os.path.abspath(folder)) if folder is not None else None
        self._checked: list[Path] = []
        """Steps on the way to a database that must not be links, the folder itself first."""
        if folder is not None and self._folder is not None:
            here = None if os.path.isabs(folder) else Path.cwd()
            inside = [one for one in self._folder.parents if here in one.parents]
            self._checked = [self._folder, *inside]
        self._memory: dict[str, sqlite3.Connection] = {}
        self._lock = threading.RLock()

    def search(self, place: str, query: str, steps: Steps, limit: int = 5) -> list[Recalled]:
        """The originals that answer a query, best first."""
        return self._ask(place, steps, lambda db: _found(db, query, limit))

    def positions(
        self, place: str, spans: Sequence[tuple[int, int]], steps: Steps, limit: int = 1_000
    ) -> list[Recalled]:
        """The originals at these session positions, first to last of each span, in the session's order."""
        return self._ask(place, steps, lambda db: _between(db, spans, limit))

    def forget(self, place: str) -> None:
        """Delete what is known of a session."""
        self._let_go(place)
        if self._folder is None:
            return
        folder = self._folder / place
        with _deleting():
            for _ in range(_TRIES):
                for name in self._names(place):
                    (folder / name).unlink(missing_ok=True)
                if _removed(folder):
                    return
            folder.rmdir()  # which says why it cannot be

    def close(self) -> None:
        """Let go of what is in memory."""
        with self._lock:
            while self._memory:
                self._memory.popitem()[1].close()

    def _ask(self, place: str, steps: Steps, answer: Callable[[sqlite3.Connection], list[Recalled]]) -> list[Recalled]:
        if not steps.listed:  # never folded, or forgotten by somebody who did not know of this index
            with suppress(ArchiveError):
                self.forget(place)
            return []
        for _ in range(_TRIES if self._folder is not None else 0):
            path = None
            try:
                path = self._database(place)
                with closing(_opened(path)) as db:
                    return _answered(db, steps, answer)
            except sqlite3.Error as error:
                if path is None or (not _is_damage(error) and path.exists()):
                    break  # no room, no access, locked for long
                with suppress(ArchiveError), _deleting():
                    for end in ("", "-wal", "-shm", "-journal"):
                        Path(f"{path}{end}").unlink(missing_ok=True)
            except FileNotFoundError:
                continue  # somebody forgets the session right now
            except OSError:
                break
        with self._lock:
            try:
                return _answered(self._in_memory(place), steps, answer)
            except sqlite3.Error as error:
                self._let_go(place)
                raise ArchiveError(
                    f"The folded messages could not be searched: SQLite {sqlite3.sqlite_version} said "
                    f"{type(error).__name__}: {error}. Free some memory, then ask again."
                ) from error

    def _let_go(self, place: str) -> None:
        with self._lock:
            if (db := self._memory.pop(place, None)) is not None:
                db.close()

    def _in_memory(self, place: str) -> sqlite3.Connection:
        db = self._memory.pop(place, None)
        if db is None:
            db = _prepared(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))
        self._memory[place] = db
        while len(self._memory) > _IN_MEMORY:
            self._memory.pop(next(iter(self._memory))).close()
        return db

    def _database(self, place: str) -> Path:
        """The session's database, the oldest where two processes made one at once; a new and empty one if need be."""
        assert self._folder is not None
        names = self._names(place)
        folder = self._folder / place
        if not any(name.endswith(_SUFFIX) for name in names):
            self._make(folder)
            new = f"{time.time_ns():016x}{secrets.token_hex(4)}"
            # SQLite would make it readable for others; what it puts beside it takes the mode of this one.
            _write_new(folder / f".{new}")
            os.rename(folder / f".{new}", folder / f"{new}{_SUFFIX}")
            names = self._names(place)
        found = min((name for name in names if name.endswith(_SUFFIX)), default=None)
        if found is None:
            raise FileNotFoundError
        return folder / found

    def _make(self, folder: Path) -> None:
        for step in [*reversed(folder.parents), folder]:
            if not step.exists():
                step.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileExistsError):  # an index that git can see is still an index, but nobody wants it there
            _write_new(folder.parent / ".gitignore", b"*\n")

    def _names(self, place: str) -> list[str]:
        """What lies in a session's folder, once nothing there or on the way is a link that somebody planted."""
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
                f"The index of folded messages was not opened: {linked[0]!r} is a symbolic link, and nothing of ours "
                "is one. Remove the link; the index is made anew from the archive."
            )
        return [entry.name for entry in entries]


def _write_new(path: Path, data: bytes = b"") -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        os.write(file, data)
    finally:
        os.close(file)


def _removed(folder: Path) -> bool:
    """Whether a folder is gone; it stays when a search under way has put something into it."""
    try:
        folder.rmdir()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return True


@contextmanager
def _deleting() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArchiveError(
            f"The index of folded messages could not be deleted ({error.strerror}). Give this process write access to "
            "its folder, or delete the folder."
        ) from error


def _is_damage(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _DAMAGE


def _opened(path: Path) -> sqlite3.Connection:
    """A database that exists; SQLite must not make one in the place of one that was just deleted."""
    db = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=_WAITED)
    try:
        with suppress(sqlite3.OperationalError):  # somebody else does the same right now
            db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        return _prepared(db)
    except BaseException:
        db.close()
        raise


def _answered(
    db: sqlite3.Connection, steps: Steps, answer: Callable[[sqlite3.Connection], list[Recalled]]
) -> list[Recalled]:
    _sync(db, steps)
    with _transaction(db, "DEFERRED"):  # one state of the database, whatever others do to it meanwhile
        try:
            return answer(db)
        except (AttributeError, TypeError, ValueError) as error:
            # Damage that SQLite did not see: rows that are missing, or not what was written.
            raise sqlite3.DatabaseError(f"what it holds cannot be read: {type(error).__name__}") from error


def _prepared(db: sqlite3.Connection) -> sqlite3.Connection:
    """A database with our tables in it."""
    if _version(db) == _VERSION:
        return db
    with _transaction(db):
        found = _version(db)  # again: somebody else may have been faster
        if found not in (0, _VERSION):
            raise sqlite3.DatabaseError(f"made by version {found}, not {_VERSION}")
        for statement in _SCHEMA if found == 0 else ():
            try:
                db.execute(statement)
            except sqlite3.OperationalError as error:
                if "fts5" not in str(error):
                    raise
                raise CompactError(
                    "recall needs SQLite with full-text search (FTS5), and the SQLite "
                    f"{sqlite3.sqlite_version} of this Python was built without it. Use a Python from python.org, "
                    "a Linux distribution, conda or uv."
                ) from error
    return db


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def _transaction(db: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    db.execute(f"BEGIN {kind}")
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _sync(db: sqlite3.Connection, steps: Steps) -> None:
    """Index the steps that are missing; begin anew when one is not what it was."""
    while _is_of_another_past(known := _known(db), steps):
        with _transaction(db):
            if _known(db) == known:  # nobody else was faster
                db.execute("DELETE FROM step")
                db.execute("DELETE FROM message")
                db.execute("INSERT INTO words(words) VALUES('delete-all')")
    for step in sorted(set(steps.listed) - known.keys()):
        folded = steps.read(step)  # may take its time, on a bucket: nobody is kept waiting
        rows = list(_rows(folded))
        with _transaction(db):
            if db.execute("SELECT 1 FROM step WHERE step=?", (step,)).fetchone() is None:
                _insert(db, step, rows)
                db.execute("INSERT INTO step VALUES(?,?)", (step, folded.sha256))


def _is_of_another_past(known: Mapping[int, str], steps: Steps) -> bool:
    """Whether the archive is not the one that was indexed, or was mended since.

    A past that is not the same differs at its ends: each transcript begins with what the fold before it left. A step
    that is newer than the listing is no sign of it, because somebody may have folded since: the archive is asked.
    """
    if not known:
        return False
    listed = set(steps.listed)
    if any(step not in listed for step in known if step < max(listed)):
        return True
    damaged = (step for step, sha256 in known.items() if sha256 == DAMAGED)
    return any(steps.sha256(step) != known[step] for step in {min(known), max(known), *damaged})


def _known(db: sqlite3.Connection) -> dict[int, str]:
    return dict(db.execute("SELECT step, sha256 FROM step"))


_New = tuple[int, str, str, str]
"""Position, role, text, and the host message as JSON."""


def _rows(folded: Folded) -> Iterator[_New]:
    dialect = detect([message for _, message in folded.messages]) or DIALECTS["openai-chat"]
    for position, raw in folded.messages:
        position = max(-1, min(position, _LARGEST))
        try:
            message = dialect.read(raw)
        except InvalidMessage:
            role = raw.get("role") if isinstance(raw, dict) else None
            yield position, str(role or "unknown"), bindable(json.dumps(raw, ensure_ascii=False)), json.dumps(raw)
            continue
        yield position, message.role, bindable(readable(message) or message.hidden), json.dumps(raw)


def _insert(db: sqlite3.Connection, step: int, rows: Sequence[_New]) -> None:
    """New rows; a message that was shortened before it folded, or folded on two branches, is there already."""
    for position, role, text, message in rows:
        twin = db.execute("SELECT 1 FROM message WHERE position=? AND text=?", (position, text)).fetchone()
        if twin is None:
            row = (position, step, role, text, message)
            new = db.execute("INSERT INTO message(position,step,role,text,message) VALUES(?,?,?,?,?)", row).lastrowid
            db.execute("INSERT INTO words(rowid,text,parts) VALUES(?,?,?)", (new, spaced(text), parts(text)))


def _found(db: sqlite3.Connection, query: str, limit: int) -> list[Recalled]:
    return [_recalled(db, hit.row, hit.score, hit.at) for hit in search(db, bindable(query), limit)]


def _between(db: sqlite3.Connection, spans: Sequence[tuple[int, int]], limit: int) -> list[Recalled]:
    found: dict[tuple[int, int], Row] = {}
    for first, last in spans:
        sql = f"{SELECT} WHERE position BETWEEN ? AND ? ORDER BY position, id LIMIT ?"
        rows = db.execute(sql, (min(first, _LARGEST), min(last, _LARGEST), limit))
        found.update(((row[1], row[0]), row) for row in rows)
    return [_recalled(db, found[key], 0.0, 0) for key in sorted(found)[:limit]]


def _recalled(db: sqlite3.Connection, row: Row, score: float, at: int) -> Recalled:
    number, position, step, role, text = row
    (message,) = db.execute("SELECT message FROM message WHERE id=?", (number,)).fetchone()
    return Recalled(position, step, role, text, f"#{position}", score, snippet(text, at), json.loads(message))
