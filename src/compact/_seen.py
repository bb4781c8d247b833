"""What the viewer has seen, beside an archive.

Owns: where that is kept, and forgetting a session there. Must never: read a span, or make the file.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

__all__ = ["SEEN", "forget_seen"]

SEEN = Path(".view", "spans.sqlite")
"""The viewer's database in an archive's folder."""


def forget_seen(folder: Path, session_id: str) -> None:
    """Delete a session from the viewer's database. One that is running holds it, and drops the session by itself."""
    path = folder / SEEN
    if not path.is_file() or path.is_symlink() or path.parent.is_symlink():
        return
    session = session_id.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, timeout=0.2, isolation_level=None)) as db:
        db.execute("PRAGMA secure_delete = ON")
        db.execute("DELETE FROM spans WHERE session = ?", (session,))
        db.execute("DELETE FROM files WHERE session = ?", (session,))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
