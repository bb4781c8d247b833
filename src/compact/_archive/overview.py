"""What an archive holds of each session, in numbers.

Owns: `SessionOverview`. Must never: change anything, or fail for a damaged record.
"""

from __future__ import annotations

from dataclasses import dataclass

from .archive import Archive
from .law_check import UNREADABLE


@dataclass(frozen=True, slots=True)
class SessionOverview:
    """A session of the archive. `saved` are the tokens that its compactions removed, undone ones left out."""

    session_id: str | None
    folds: int
    undone: int
    saved: int
    last: float | None
    """When something was last written."""


def session_overview(archive: Archive, place: str) -> SessionOverview:
    """The numbers of the session at this place; a damaged record counts as a compaction that saved nothing."""
    contents = archive.contents(place)
    try:
        undone = set(archive.active_folds(place, contents).undone)
    except UNREADABLE:
        undone = set()
    saved = 0
    for step in contents.summaries:
        try:
            record = archive.fold(place, step)
            saved += 0 if step in undone else record["tokens_before"] - record["tokens_after"]
        except UNREADABLE:
            continue
    return SessionOverview(
        archive.name_of(place), len(contents.summaries), len(undone), saved, archive.last_time(place)
    )
