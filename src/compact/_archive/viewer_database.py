"""The database of the viewer beside an archive.

Owns: where it lies, and deleting a session from it. Must never: read a span, or create the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

VIEWER_DATABASE = Path(".view", "spans.sqlite")
"""The viewer's database in an archive's folder."""


def forget_session_spans(folder: Path, place: str, names: Iterable[str]) -> None:
    """Delete a session from the viewer's database: what came from its place, and what has one of its names.

    A name that the database has for another place stays: ids that hold secrets may look the same when redacted. A
    viewer that is running holds the database, and deletes the session itself.
    """
    path = folder / VIEWER_DATABASE
    if not path.is_file() or path.is_symlink() or path.parent.is_symlink():
        return
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, timeout=0.2, isolation_level=None)) as db:
        db.execute("PRAGMA secure_delete = ON")
        files = db.execute("SELECT name, session FROM files").fetchall()
        # A file is stored as the archive, a newline, and its key there.
        own = [file for file in files if file[0].rpartition("\n")[2].startswith(f"{place}/")]
        others = {session for name, session in files if (name, session) not in own}
        named = {name.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for name in names}
        for session in named - others | {session for _, session in own}:
            db.execute("DELETE FROM spans WHERE session = ?", (session,))
        for name, _ in own:
            db.execute("DELETE FROM files WHERE name = ?", (name,))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
