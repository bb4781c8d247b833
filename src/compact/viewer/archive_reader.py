"""An archive to look at: which sessions and folds there are, one fold as a picture, and where a message lies.

Owns: `Shelf`, every read of the archive for the viewer, and what is remembered of it. Must never: write to the archive
(recall keeps its index beside it, as ever), or stop at a damaged file: what can be read is shown, the rest is told.

One idea, so one file: all of it is answered from what one look at the archive found.
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._archive.archive import Archive
from .._archive.fold_record import digest, parse
from .._archive.history import ArchiveHistory
from .._archive.search_index import SearchIndex
from .._redaction import Redactor, held_secrets
from ..config import CompactConfig
from ..errors import ArchiveError
from ..stores import KeyMissing, Store, open_store, summary_key, transcript_key
from .fold_document import Fold, lines_of
from .span_table import whole_text
from .timeline import archived_fold

__all__ = ["Kept", "Shelf"]

_FOLDS = 6
"""Folds remembered whole, so that reading one message after another reads the file once."""
_LARGEST = 64 << 20
"""Bytes of a transcript above which it is not remembered."""
_PLACES = 512
"""Folds of which is remembered where messages lie."""
_WORD = re.compile(r"[^\W_]+")


@dataclass(slots=True)
class Kept:
    """What the archive has of one session."""

    place: str
    told: str = ""
    """What the session is called in its own files; several may be called the same once secrets are gone."""
    steps: list[int] = field(default_factory=list)
    """Folds with a record, ascending."""
    events: list[str] = field(default_factory=list)
    """Keys of its events, in order."""


@dataclass(frozen=True, slots=True)
class _Lie:
    """Where the messages of a fold's transcript lie, and which of them it clipped, by position."""

    lines: Mapping[int, int]
    clipped: frozenset[int]


class Shelf:
    """The archive that a configuration names. Safe to share between threads."""

    def __init__(self, config: CompactConfig, store: Store) -> None:
        storage, redaction = config.storage, config.redaction
        redactor = Redactor(redaction.enabled, redaction.patterns, held_secrets(os.environ))
        given = Path(storage.path).expanduser()
        self.root = given.absolute() if storage.adapter == "fs" else None
        """The folder, where there is one."""
        self.name = str(given) if self.root else f"s3://{storage.bucket}/{storage.prefix}"
        self._store = store
        self._archive = Archive(store, redactor, storage.adapter)
        within = None if given.is_absolute() else Path.cwd()
        index = SearchIndex(given.absolute() / ".index" if self.root else None, within=within)
        self._past = ArchiveHistory(self._archive, index, self._complain)
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._kept: dict[str, Kept] = {}
        self._folds: OrderedDict[tuple[str, int, str], Fold] = OrderedDict()
        self._lies: OrderedDict[tuple[str, int, str], _Lie] = OrderedDict()
        self._unread: dict[str, str] = {}
        self._searched: list[str] = []

    @property
    def complaints(self) -> list[str]:
        """What timelines and the newest search could not read."""
        return [*self._unread.values(), *self._searched]

    @classmethod
    def of(cls, config: CompactConfig) -> Shelf | None:
        """The archive of a configuration; None when it keeps none."""
        store = open_store(config.storage)
        return cls(config, store) if store is not None else None

    def close(self) -> None:
        """Let go of the index."""
        self._past.close()

    # -- what there is -----------------------------------------------------------------------------------------------

    def look(self) -> dict[str, Kept]:
        """Look again at what there is: the sessions by name."""
        kept: dict[str, Kept] = {}
        for key in self._store.list(""):
            place, _, name = key.partition("/")
            if not name:
                continue
            one = kept.setdefault(place, Kept(place))
            if name.startswith("events"):
                one.events.append(key)
            elif found := re.fullmatch(r"summary-([0-9]+)\.json", name):
                one.steps.append(int(found[1]))
        left = {place: len(one.steps) for place, one in kept.items()}
        self._drop({one.place for one in self._kept.values() if len(one.steps) > left.get(one.place, 0)})
        names = {place: self._names.get(place) or self._archive.name_of(place) for place in kept}
        self._names = {place: name for place, name in names.items() if name is not None}
        for one in kept.values():
            one.steps.sort()
            one.told = whole_text(self._names.get(one.place, one.place))
        often = Counter(one.told for one in kept.values())
        self._kept = {_unlike(one) if often[one.told] > 1 else one.told: one for one in kept.values()}
        return self._kept

    def kept(self) -> Mapping[str, Kept]:
        """The sessions by name, as of the last look."""
        return self._kept

    def get(self, key: str) -> bytes:
        """What is kept under a key."""
        return self._archive.get(key)

    def stamp(self, key: str) -> tuple[int, int] | None:
        """Size and time of a file, to know it again; None when it is gone. An object of a bucket is not altered."""
        if self.root is None:
            return 0, 0
        try:
            found = os.stat(self.root / key, follow_symlinks=False)
        except OSError:
            return None
        return found.st_size, found.st_mtime_ns

    def steps(self, session: str) -> list[int]:
        """The folds of a session that have a record, as of now; none for a session that is not kept."""
        return self._archive.contents(self._place(session)).summaries

    def undone(self, session: str) -> frozenset[int]:
        """Folds that were undone and not redone."""
        try:
            return frozenset(self._archive.line(self._place(session)).undone)
        except (ArchiveError, KeyError, TypeError):
            return frozenset()

    # -- one fold ----------------------------------------------------------------------------------------------------

    def record(self, session: str, step: int) -> dict[str, Any]:
        """The record of a fold; `ArchiveError` when it is missing or damaged."""
        return self._archive.fold(self._place(session), step)

    def brief(self, session: str, step: int) -> dict[str, Any] | None:
        """A fold as the timeline shows it, by its record; None, and a complaint, when that cannot be read."""
        key = summary_key(self._place(session), step)
        try:
            fold = archived_fold(self.record(session, step))
        except (ArchiveError, KeyError, TypeError, ValueError, OverflowError) as error:
            why = str(error) if isinstance(error, ArchiveError) else f"{key}: a field of it is no value for it."
            self._unread = {**dict(list(self._unread.items())[-19:]), key: why}
            return None
        self._unread.pop(key, None)
        return fold

    def asks_store(self, session: str) -> bool:
        """Whether anything may be kept of a session: a bucket that was not seen yet may not answer."""
        return self.root is not None or session in self._kept

    def fold(self, session: str, step: int) -> Fold:
        """A fold; `KeyMissing` when neither its record nor its transcript is there."""
        place = self._place(session)
        record, transcript = summary_key(place, step), transcript_key(place, step)
        known = place, step, self._print(record, transcript)
        with self._lock:
            if known in self._folds and "None" not in known[2]:
                self._folds.move_to_end(known)
                return self._folds[known]
        fold, size = self._read(session, step, record, transcript)
        if size <= _LARGEST:
            with self._lock:
                self._folds[known] = fold
                while len(self._folds) > _FOLDS:
                    self._folds.popitem(last=False)
        return fold

    def where(self, session: str, position: int, step: int) -> tuple[int, int] | None:
        """The fold and the line where a message lies as it was said: the newest fold up to a step, else any."""
        steps = self.steps(session)
        ordered = [*(s for s in reversed(steps) if s <= step), *(s for s in steps if s > step)]
        found = [(one, lie) for one in ordered if (lie := self._lie(session, one)) and position in lie.lines]
        # After a fold clipped it, later transcripts have the message only in part.
        whole = [one for one in found if position in one[1].clipped] or found
        if not whole:
            return None
        number, lie = min(whole, key=lambda one: one[0]) if whole is not found else found[0]
        return number, lie.lines[position]

    def search(self, session: str, query: str, limit: int) -> list[dict[str, Any]]:
        """What was folded, found again by words."""
        if self._place(session) != self._archive.place(session):
            raise KeyMissing(
                "The id of this session was redacted or is no whole text, so its index cannot be found here. "
                "Search it with manager.recall() and the id as your program knows it."
            )
        hits = []
        self._searched = []
        for hit in self._past.recall(session, query, None, limit):
            lie = self._lie(session, hit.step)
            hits.append(
                {
                    "position": hit.position,
                    "step": hit.step,
                    "line": lie.lines.get(hit.position) if lie else None,
                    "role": hit.role,
                    "snippet": hit.snippet,
                    "spans": _marked(hit.snippet, query),
                }
            )
        return hits

    # -- the parts ---------------------------------------------------------------------------------------------------

    def _place(self, session: str) -> str:
        """Where a session is kept. One whose id was redacted is found by what its place says it is called."""
        one = self._kept.get(session)
        return one.place if one is not None else self._archive.place(session)

    def _print(self, record: str, transcript: str) -> str:
        """What tells a fold from another of the same number. In a bucket its record does, which names what it read."""
        if self.root is None:
            with suppress(KeyMissing):
                return digest(self.get(record))
            return str(None)
        return f"{self.stamp(record)} {self.stamp(transcript)}"

    def _drop(self, places: Set[str]) -> None:
        """Remember nothing of folds that may not be there any more."""
        remembered: Iterable[OrderedDict[tuple[str, int, str], Any]] = (self._folds, self._lies)
        with self._lock:
            for known in remembered:
                for one in [one for one in known if one[0] in places]:
                    del known[one]

    def _read(self, session: str, step: int, record_key: str, transcript_key_: str) -> tuple[Fold, int]:
        complaints: list[str] = []
        record: dict[str, Any] = {}
        try:
            record = parse(self.get(record_key), record_key)
        except KeyMissing:
            raise KeyMissing(
                f"No fold {step} of this session is in the archive, which has {len(self.steps(session)):,} others. "
                "A transcript without a record is a fold that did not end: nothing was dropped."
            ) from None
        except ArchiveError as error:
            complaints.append(str(error))
            record = {"session_id": session, "step": step}
        messages: list[Any] = []
        size = 0
        try:
            data = self.get(transcript_key_)
            size = len(data)
            messages, bad = lines_of(data, transcript_key_)
            complaints += bad
        except ArchiveError as error:
            complaints.append(str(error))
        expected = record.get("positions")
        if isinstance(expected, list) and messages and len(messages) < len(expected):
            complaints.append(
                f"{transcript_key_}: {len(messages):,} of {len(expected):,} messages are left. "
                "Put a backup of the file in its place."
            )
        return Fold(record, messages, complaints), size

    def _lie(self, session: str, step: int) -> _Lie | None:
        """Where the messages of a fold lie; None when its record cannot be read."""
        place = self._place(session)
        known = place, step, str(self.stamp(summary_key(place, step)))
        with self._lock:
            if known in self._lies:
                self._lies.move_to_end(known)
                return self._lies[known]
        try:
            fold = Fold(self.record(session, step), ())
        except ArchiveError:
            return None
        positions = fold.positions
        lie = _Lie(fold.places, frozenset(positions[line] for line in fold.clipped.values()))
        with self._lock:
            self._lies[known] = lie
            while len(self._lies) > _PLACES:
                self._lies.popitem(last=False)
        return lie

    def _complain(self, text: str) -> None:
        if text not in self._searched:
            self._searched = [*self._searched[-19:], text]


def _unlike(one: Kept) -> str:
    """A name for a session whose own is told by others too."""
    return f"{one.told} ({digest(one.place.encode())[:8]})"


def _marked(text: str, query: str) -> list[tuple[int, int]]:
    """Where the words of a query stand in a text, counted in UTF-16 units, as a page counts."""
    words = sorted(set(_WORD.findall(query.lower())), key=len, reverse=True)
    if not words:
        return []
    low = text.lower()
    if len(low) != len(text):  # a letter whose small form is longer: places would not fit
        low = text
    found = re.finditer("|".join(map(re.escape, words)), low)
    return [(_units(text[: one.start()]), _units(text[: one.end()])) for one in found]


def _units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
