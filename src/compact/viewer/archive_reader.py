"""Reading an archive for the viewer: its sessions and compactions, one compaction in full, and where a message is.

Owns: `ArchiveReader`, every read of the archive for the viewer, and its caches.
Must never: write to the archive (except the search index beside it), or stop at a damaged file: what can be read is
shown, and the rest is reported.
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
from .fold_document import FoldDocument, parse_transcript
from .span_table import replace_surrogates
from .timeline import fold_from_record

_CACHED_FOLDS = 6
"""Compactions that are cached in full, so that reading message after message reads the file once."""
_MAX_CACHED_BYTES = 64 << 20
"""Bytes of a transcript above which it is not cached."""
_CACHED_LINES = 512
"""Compactions whose message lines are cached."""
_WORD = re.compile(r"[^\W_]+")


@dataclass(slots=True)
class ArchivedSession:
    """The files of one session in the archive."""

    place: str
    name: str = ""
    """The name in its files; several sessions may have the same one after redaction."""
    steps: list[int] = field(default_factory=list)
    """Numbers of the compactions that have a record, ascending."""
    events: list[str] = field(default_factory=list)
    """Keys of its event files, in order."""


@dataclass(frozen=True, slots=True)
class _TranscriptLines:
    """The line of each message in a transcript, and the messages that the compaction clipped, by position."""

    lines: Mapping[int, int]
    clipped: frozenset[int]


class ArchiveReader:
    """The archive of a configuration. Safe to share between threads."""

    def __init__(self, config: CompactConfig, store: Store) -> None:
        storage, redaction = config.storage, config.redaction
        redactor = Redactor(redaction.enabled, redaction.patterns, held_secrets(os.environ))
        path = Path(storage.path).expanduser()
        self.root = path.absolute() if storage.adapter == "fs" else None
        """The folder; None for a bucket."""
        self.name = str(path) if self.root else f"s3://{storage.bucket}/{storage.prefix}"
        self._store = store
        self._archive = Archive(store, redactor, storage.adapter)
        within = None if path.is_absolute() else Path.cwd()
        index = SearchIndex(path.absolute() / ".index" if self.root else None, within=within)
        self._history = ArchiveHistory(self._archive, index, self._report)
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._sessions: dict[str, ArchivedSession] = {}
        self._folds: OrderedDict[tuple[str, int, str], FoldDocument] = OrderedDict()
        self._lines: OrderedDict[tuple[str, int, str], _TranscriptLines] = OrderedDict()
        self._unreadable: dict[str, str] = {}
        self._search_problems: list[str] = []

    @property
    def complaints(self) -> list[str]:
        """What timelines and the last search could not read."""
        return [*self._unreadable.values(), *self._search_problems]

    @classmethod
    def of(cls, config: CompactConfig) -> ArchiveReader | None:
        """The archive of a configuration; None when it has none."""
        store = open_store(config.storage)
        return cls(config, store) if store is not None else None

    def close(self) -> None:
        """Close the search index."""
        self._history.close()

    # -- sessions and files ------------------------------------------------------------------------------------------

    def refresh(self) -> dict[str, ArchivedSession]:
        """List the archive again: the sessions by name."""
        sessions: dict[str, ArchivedSession] = {}
        for key in self._store.list(""):
            place, _, name = key.partition("/")
            if not name:
                continue
            one = sessions.setdefault(place, ArchivedSession(place))
            if name.startswith("events"):
                one.events.append(key)
            elif found := re.fullmatch(r"summary-([0-9]+)\.json", name):
                one.steps.append(int(found[1]))
        left = {place: len(one.steps) for place, one in sessions.items()}
        self._drop({one.place for one in self._sessions.values() if len(one.steps) > left.get(one.place, 0)})
        names = {place: self._names.get(place) or self._archive.name_of(place) for place in sessions}
        self._names = {place: name for place, name in names.items() if name is not None}
        for one in sessions.values():
            one.steps.sort()
            one.name = replace_surrogates(self._names.get(one.place, one.place))
        uses = Counter(one.name for one in sessions.values())
        self._sessions = {_unique_name(one) if uses[one.name] > 1 else one.name: one for one in sessions.values()}
        return self._sessions

    @property
    def sessions(self) -> Mapping[str, ArchivedSession]:
        """The sessions by name, as of the last `refresh`."""
        return self._sessions

    def get(self, key: str) -> bytes:
        """The bytes of a key."""
        return self._archive.get(key)

    def stamp(self, key: str) -> tuple[int, int] | None:
        """Size and modification time of a file; None when it is gone. Objects of a bucket do not change."""
        if self.root is None:
            return 0, 0
        try:
            found = os.stat(self.root / key, follow_symlinks=False)
        except OSError:
            return None
        return found.st_size, found.st_mtime_ns

    def steps(self, session: str) -> list[int]:
        """The compactions of a session that have a record, as of now."""
        return self._archive.contents(self._place(session)).summaries

    def undone_steps(self, session: str) -> frozenset[int]:
        """Compactions that were undone and not redone."""
        try:
            return frozenset(self._archive.active_folds(self._place(session)).undone)
        except (ArchiveError, KeyError, TypeError):
            return frozenset()

    # -- one compaction ----------------------------------------------------------------------------------------------

    def record(self, session: str, step: int) -> dict[str, Any]:
        """The record of a compaction; `ArchiveError` when it is missing or damaged."""
        return self._archive.fold(self._place(session), step)

    def timeline_fold(self, session: str, step: int) -> dict[str, Any] | None:
        """A compaction as the timeline shows it; None, and a complaint, when its record cannot be read."""
        key = summary_key(self._place(session), step)
        try:
            fold = fold_from_record(self.record(session, step))
        except (ArchiveError, KeyError, TypeError, ValueError, OverflowError) as error:
            why = str(error) if isinstance(error, ArchiveError) else f"{key}: a field has a value of the wrong type."
            self._unreadable = {**dict(list(self._unreadable.items())[-19:]), key: why}
            return None
        self._unreadable.pop(key, None)
        return fold

    def may_have(self, session: str) -> bool:
        """Whether the archive may have a session; of a bucket, which may not answer, only the listed ones count."""
        return self.root is not None or session in self._sessions

    def fold(self, session: str, step: int) -> FoldDocument:
        """A compaction in full; `KeyMissing` when it has no record."""
        place = self._place(session)
        record, transcript = summary_key(place, step), transcript_key(place, step)
        known = place, step, self._fingerprint(record, transcript)
        with self._lock:
            if known in self._folds and "None" not in known[2]:
                self._folds.move_to_end(known)
                return self._folds[known]
        fold, size = self._read_fold(session, step, record, transcript)
        if size <= _MAX_CACHED_BYTES:
            with self._lock:
                self._folds[known] = fold
                while len(self._folds) > _CACHED_FOLDS:
                    self._folds.popitem(last=False)
        return fold

    def locate(self, session: str, position: int, step: int) -> tuple[int, int] | None:
        """The compaction and the line that have a message in full: the newest compaction up to a step, else any."""
        steps = self.steps(session)
        ordered = [*(s for s in reversed(steps) if s <= step), *(s for s in steps if s > step)]
        found = [
            (one, known)
            for one in ordered
            if (known := self._transcript_lines(session, one)) and position in known.lines
        ]
        # After a compaction clipped a message, later transcripts have only a part of it.
        whole = [one for one in found if position in one[1].clipped] or found
        if not whole:
            return None
        number, known = min(whole, key=lambda one: one[0]) if whole is not found else found[0]
        return number, known.lines[position]

    def search(self, session: str, query: str, limit: int) -> list[dict[str, Any]]:
        """Search the archived messages of a session."""
        if self._place(session) != self._archive.place(session):
            raise KeyMissing(
                "The id of this session was redacted or is not valid text, so its index cannot be found here. "
                "Search it with manager.recall() and the id that your application uses."
            )
        hits = []
        self._search_problems = []
        for hit in self._history.recall(session, query, None, limit):
            known = self._transcript_lines(session, hit.step)
            hits.append(
                {
                    "position": hit.position,
                    "step": hit.step,
                    "line": known.lines.get(hit.position) if known else None,
                    "role": hit.role,
                    "snippet": hit.snippet,
                    "spans": _word_spans(hit.snippet, query),
                }
            )
        return hits

    # -- internals ---------------------------------------------------------------------------------------------------

    def _place(self, session: str) -> str:
        """The folder of a session. A session whose id was redacted is found by the name in its files."""
        one = self._sessions.get(session)
        return one.place if one is not None else self._archive.place(session)

    def _fingerprint(self, record: str, transcript: str) -> str:
        """What distinguishes a compaction from another of the same number; in a bucket the hash of its record."""
        if self.root is None:
            with suppress(KeyMissing):
                return digest(self.get(record))
            return str(None)
        return f"{self.stamp(record)} {self.stamp(transcript)}"

    def _drop(self, places: Set[str]) -> None:
        """Remove sessions from the caches."""
        caches: Iterable[OrderedDict[tuple[str, int, str], Any]] = (self._folds, self._lines)
        with self._lock:
            for cache in caches:
                for key in [key for key in cache if key[0] in places]:
                    del cache[key]

    def _read_fold(self, session: str, step: int, record_key: str, messages_key: str) -> tuple[FoldDocument, int]:
        complaints: list[str] = []
        record: dict[str, Any] = {}
        try:
            record = parse(self.get(record_key), record_key)
        except KeyMissing:
            raise KeyMissing(
                f"The archive has no compaction {step} of this session, and {len(self.steps(session)):,} others. "
                "A transcript without a record belongs to a compaction that did not finish: nothing was dropped."
            ) from None
        except ArchiveError as error:
            complaints.append(str(error))
            record = {"session_id": session, "step": step}
        messages: list[Any] = []
        size = 0
        try:
            data = self.get(messages_key)
            size = len(data)
            messages, bad = parse_transcript(data, messages_key)
            complaints += bad
        except ArchiveError as error:
            complaints.append(str(error))
        expected = record.get("positions")
        if isinstance(expected, list) and messages and len(messages) < len(expected):
            complaints.append(
                f"{messages_key}: {len(messages):,} of {len(expected):,} messages are left. "
                "Put a backup of the file in its place."
            )
        return FoldDocument(record, messages, complaints), size

    def _transcript_lines(self, session: str, step: int) -> _TranscriptLines | None:
        """The lines of a transcript's messages; None when the record cannot be read."""
        place = self._place(session)
        known = place, step, str(self.stamp(summary_key(place, step)))
        with self._lock:
            if known in self._lines:
                self._lines.move_to_end(known)
                return self._lines[known]
        try:
            fold = FoldDocument(self.record(session, step), ())
        except ArchiveError:
            return None
        positions = fold.positions
        lines = _TranscriptLines(fold.line_by_position, frozenset(positions[line] for line in fold.clipped.values()))
        with self._lock:
            self._lines[known] = lines
            while len(self._lines) > _CACHED_LINES:
                self._lines.popitem(last=False)
        return lines

    def _report(self, text: str) -> None:
        if text not in self._search_problems:
            self._search_problems = [*self._search_problems[-19:], text]


def _unique_name(one: ArchivedSession) -> str:
    """A name for a session whose name others have too."""
    return f"{one.name} ({digest(one.place.encode())[:8]})"


def _word_spans(text: str, query: str) -> list[tuple[int, int]]:
    """The places of a query's words in a text, in UTF-16 units, as JavaScript counts."""
    words = sorted(set(_WORD.findall(query.lower())), key=len, reverse=True)
    if not words:
        return []
    low = text.lower()
    if len(low) != len(text):  # a letter whose lower case is longer: places would not match
        low = text
    found = re.finditer("|".join(map(re.escape, words)), low)
    return [(_utf16_length(text[: one.start()]), _utf16_length(text[: one.end()])) for one in found]


def _utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
