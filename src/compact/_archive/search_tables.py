"""The tables of one search index, and bringing them up to date with the archive.

Owns: `Steps` and `FoldedMessage` (what the archive says of a session's compactions), the schema, and `sync`.
Must never: know where a database lies, or hold a lock while the archive is read.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from .._conversation.formats import FORMATS, detect
from .._conversation.message import readable_text
from ..errors import CompactError, InvalidMessage
from .search_ranking import add_spaces, bindable, parts

_VERSION = 1
_SCHEMA = (
    "CREATE TABLE step(step INTEGER PRIMARY KEY, sha256 TEXT NOT NULL)",
    "CREATE TABLE message(id INTEGER PRIMARY KEY, position INTEGER, step INTEGER, role TEXT, text TEXT, message TEXT)",
    "CREATE INDEX place ON message(position)",
    # `text` is what was said, `parts` what it can also be read as: words inside identifiers, text behind escapes.
    "CREATE VIRTUAL TABLE words USING fts5(text, parts, content='', tokenize='porter unicode61')",
    f"PRAGMA user_version={_VERSION}",
)
LARGEST = 2**62
"""Larger positions are stored as this one: SQLite has no larger numbers."""

DAMAGED = "damaged"
"""Stands for the hash of a step whose record cannot be read."""


@dataclass(frozen=True, slots=True)
class FoldedMessage:
    """What one step folded or shortened: session positions and messages as archived, without our summaries.

    `sha256` is that of the step's transcript: the index belongs to it.
    """

    step: int
    sha256: str
    messages: tuple[tuple[int, Any], ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """The compactions of a session that the archive lists, ascending, and how one of them is read."""

    listed: Sequence[int]
    sha256: Callable[[int], str | None]
    """The hash of a step's transcript as the archive has it now, listed or not; None when there is no such step."""
    read: Callable[[int], FoldedMessage]


def prepare_tables(db: sqlite3.Connection) -> sqlite3.Connection:
    """A database with our tables in it."""
    if _version(db) == _VERSION:
        return db
    with transaction(db):
        found = _version(db)  # again: another process may have been faster
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
def transaction(db: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    db.execute(f"BEGIN {kind}")
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def sync(db: sqlite3.Connection, steps: Steps) -> None:
    """Index the steps that are missing; start again when one has changed."""
    while _is_other_archive(known := _indexed_steps(db), steps):
        with transaction(db):
            if _indexed_steps(db) == known:  # no other process was faster
                db.execute("DELETE FROM step")
                db.execute("DELETE FROM message")
                db.execute("INSERT INTO words(words) VALUES('delete-all')")
    for step in sorted(set(steps.listed) - known.keys()):
        folded = steps.read(step)  # may take long, on a bucket: no lock is held
        rows = list(_rows(folded))
        with transaction(db):
            if db.execute("SELECT 1 FROM step WHERE step=?", (step,)).fetchone() is None:
                _insert(db, step, rows)
                db.execute("INSERT INTO step VALUES(?,?)", (step, folded.sha256))


def _is_other_archive(known: Mapping[int, str], steps: Steps) -> bool:
    """Whether the archive is not the one that was indexed, or was repaired since.

    Another archive differs at its ends: each transcript begins with what the compaction before it left. A step that is
    newer than the listing may come from another process: the archive is asked.
    """
    if not known:
        return False
    listed = set(steps.listed)
    if any(step not in listed for step in known if step < max(listed)):
        return True
    damaged = (step for step, sha256 in known.items() if sha256 == DAMAGED)
    return any(steps.sha256(step) != known[step] for step in {min(known), max(known), *damaged})


def _indexed_steps(db: sqlite3.Connection) -> dict[int, str]:
    return dict(db.execute("SELECT step, sha256 FROM step"))


_NewRow = tuple[int, str, str, str]
"""Position, role, text, and the message as JSON."""


def _rows(folded: FoldedMessage) -> Iterator[_NewRow]:
    message_format = detect([message for _, message in folded.messages]) or FORMATS["openai-chat"]
    for position, raw in folded.messages:
        position = max(-1, min(position, LARGEST))
        try:
            message = message_format.read(raw)
        except InvalidMessage:
            role = raw.get("role") if isinstance(raw, dict) else None
            yield position, str(role or "unknown"), bindable(json.dumps(raw, ensure_ascii=False)), json.dumps(raw)
            continue
        yield position, message.role, bindable(readable_text(message) or message.hidden), json.dumps(raw)


def _insert(db: sqlite3.Connection, step: int, rows: Sequence[_NewRow]) -> None:
    """New rows; a message that was shortened before it folded, or folded on two branches, is there already."""
    for position, role, text, message in rows:
        twin = db.execute("SELECT 1 FROM message WHERE position=? AND text=?", (position, text)).fetchone()
        if twin is None:
            row = (position, step, role, text, message)
            new = db.execute("INSERT INTO message(position,step,role,text,message) VALUES(?,?,?,?,?)", row).lastrowid
            db.execute("INSERT INTO words(rowid,text,parts) VALUES(?,?,?)", (new, add_spaces(text), parts(text)))
