"""Finding what was folded: a full-text index over the archive, one small database per session.

Owns: `Folded` (what a step took out of the context), `Recalled` (one original, found again), and `Index`: where the
databases lie, and how they are brought up to date. What answers a query best is decided in `_search`.
Must never: be the only place where something is kept, take part in a fold, or follow a symbolic link.

Rules:
- All of it is derived. A database that is missing, damaged, foreign or of another past is made anew from the archive;
  where none can be written, one in memory takes its place.
- A database is brought up to date when it is asked, step by step, so nothing is paid in a fold, what was just folded is
  found at once, and two processes may do it at the same time.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ._dialects import DIALECTS, detect
from ._search import SELECT, Row, bindable, parts, search, snippet, spaced
from .errors import ArchiveError, CompactError, InvalidMessage

__all__ = ["Folded", "Index", "Recalled"]

T = TypeVar("T")

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
_FILES = ("", "-wal", "-shm", "-journal")
_LARGEST = 2**62
_WAITED = 30.0
"""Seconds that another process may take to write a step."""
_IN_MEMORY = 8
"""Databases kept in memory at once; the one unused for longest is made anew when it is asked again."""


@dataclass(frozen=True, slots=True)
class Folded:
    """What one step folded or shortened: session positions and host messages as archived, summaries of ours left out.

    `sha256` is that of the step's transcript: the index belongs to it and to no other.
    """

    step: int
    sha256: str
    messages: tuple[tuple[int, Any], ...]


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


Reader = Callable[[int], Folded]
"""Gives what a step folded."""


class Index:
    """The indexes of all sessions, in `folder` (made at the first search) or in memory. Safe to share by threads."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._folder = Path(os.path.abspath(folder)) if folder is not None else None
        self._memory: dict[str, sqlite3.Connection] = {}
        self._lock = threading.RLock()

    def search(self, place: str, query: str, steps: Mapping[int, str], read: Reader, limit: int = 5) -> list[Recalled]:
        """The originals that answer a query, best first.

        `steps` are all steps of the session with the hashes of their transcripts; `read` gives what one of them folded.
        """
        return self._ask(place, steps, read, lambda db: _found(db, query, limit))

    def positions(
        self,
        place: str,
        spans: Sequence[tuple[int, int]],
        steps: Mapping[int, str],
        read: Reader,
        limit: int = 1_000,
    ) -> list[Recalled]:
        """The originals at these session positions, first to last of each span, in the session's order."""
        return self._ask(place, steps, read, lambda db: _between(db, spans, limit))

    def forget(self, place: str) -> None:
        """Delete what is known of a session."""
        with self._lock:
            if (db := self._memory.pop(place, None)) is not None:
                db.close()
        if self._folder is not None and self._folder.exists():
            self._delete(self._path(place))

    def close(self) -> None:
        """Let go of what is in memory."""
        with self._lock:
            while self._memory:
                self._memory.popitem()[1].close()

    def _ask(self, place: str, steps: Mapping[int, str], read: Reader, answer: Callable[[sqlite3.Connection], T]) -> T:
        def work(db: sqlite3.Connection) -> T:
            _sync(db, steps, read)
            with _transaction(db, "DEFERRED"):  # one state of the database, whatever others do to it meanwhile
                return answer(db)

        if self._folder is not None:
            path = self._path(place)
            for _ in range(2):
                try:
                    with closing(self._open(path)) as db:
                        return work(db)
                except sqlite3.Error as error:
                    if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF not in _DAMAGE:
                        break  # no room, no access, locked for long
                    with suppress(ArchiveError):
                        self._delete(path)
                except OSError:
                    break
        with self._lock:
            return work(self._in_memory(place))

    def _in_memory(self, place: str) -> sqlite3.Connection:
        db = self._memory.pop(place, None)
        if db is None:
            db = _prepared(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))
        self._memory[place] = db
        while len(self._memory) > _IN_MEMORY:
            self._memory.pop(next(iter(self._memory))).close()
        return db

    def _open(self, path: Path) -> sqlite3.Connection:
        for step in [*reversed(path.parent.parents), path.parent]:
            if not step.exists():
                step.mkdir(mode=0o700, exist_ok=True)
        # SQLite would make it readable for others; what it puts beside it takes the mode of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
        db = sqlite3.connect(path, isolation_level=None, timeout=_WAITED)
        try:
            with suppress(sqlite3.OperationalError):  # somebody else does the same right now
                db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            return _prepared(db)
        except BaseException:
            db.close()
            raise

    def _path(self, place: str) -> Path:
        """The session's database, once neither it nor its folder is a symbolic link that somebody planted."""
        assert self._folder is not None
        path = self._folder / f"{place}.sqlite3"
        for one in [self._folder, *(Path(f"{path}{end}") for end in _FILES)]:
            if one.is_symlink():
                raise ArchiveError(
                    f"The index of folded messages was not opened: {one.name!r} is a symbolic link, and nothing of "
                    "ours is one. Remove the link; the index is made anew from the archive."
                )
        return path

    def _delete(self, path: Path) -> None:
        try:
            for end in _FILES:
                Path(f"{path}{end}").unlink(missing_ok=True)
        except OSError as error:
            raise ArchiveError(
                f"The index of folded messages could not be deleted ({error.strerror}). Give this process write "
                "access to its folder, or delete the folder."
            ) from error


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


def _sync(db: sqlite3.Connection, steps: Mapping[int, str], read: Reader) -> None:
    """Index the steps that are missing; begin anew when one is not what it was."""
    known = _known(db)
    if known.items() - steps.items():
        with _transaction(db):
            if _known(db).items() - steps.items():  # nobody else was faster
                db.execute("DELETE FROM step")
                db.execute("DELETE FROM message")
                db.execute("INSERT INTO words(words) VALUES('delete-all')")
        known = _known(db)
    for step in sorted(steps.keys() - known.keys()):
        folded = read(step)  # may take its time, on a bucket: nobody is kept waiting
        rows = list(_rows(folded))
        with _transaction(db):
            if db.execute("SELECT 1 FROM step WHERE step=?", (step,)).fetchone() is None:
                _insert(db, step, rows)
                db.execute("INSERT INTO step VALUES(?,?)", (step, folded.sha256))


def _known(db: sqlite3.Connection) -> dict[int, str]:
    return dict(db.execute("SELECT step, sha256 FROM step"))


_New = tuple[int, str, str, str]
"""Position, role, text, and the host message as JSON."""


def _rows(folded: Folded) -> Iterator[_New]:
    dialect = detect([message for _, message in folded.messages]) or DIALECTS["openai-chat"]
    for position, raw in folded.messages:
        try:
            message = dialect.read(raw)
        except InvalidMessage:
            role = raw.get("role") if isinstance(raw, dict) else None
            yield position, str(role or "unknown"), bindable(json.dumps(raw, ensure_ascii=False)), json.dumps(raw)
            continue
        calls = (f"{call.name}({call.arguments})" for call in message.calls)
        said = [message.text, *calls, *(answer.text for answer in message.answers)]
        text = "\n".join(filter(None, said)) or message.hidden
        yield position, message.role, bindable(text), json.dumps(raw)


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
