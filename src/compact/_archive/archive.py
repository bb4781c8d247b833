"""The archive of a session: what is written before anything is dropped, and how a session comes back from it.

Owns: what is written where and in which order, its redaction, and reading it back.
Must never: decide when to write (the pipeline does), or hand a store anything unredacted: what cannot be redacted is
not written.

A step is the number of a compaction in its session, from 1. Two writers never share one: the transcript's key must be
new, and a writer that finds it taken tries the next. `FORMAT.md` describes every file; `fold_record` owns the fields.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from .._conversation.message import as_mapping
from .._events.event import Event
from .._events.serialize import event_json, plain, redact_event
from .._pipeline.outcome import Compacted
from .._redaction import Redactor
from .._session.entries import KEPT_REPLAYS, Memory, Reader
from .._session.session import Session
from ..errors import ArchiveError, InvalidMessage
from ..stores import (
    KeyMissing,
    KeyTaken,
    Store,
    events_key,
    name_key,
    place_of,
    session_of,
    summary_key,
    transcript_key,
    undo_key,
)
from .fold_record import (
    FORMAT,
    ActiveFolds,
    Links,
    digest,
    fold_of,
    lists_of,
    own_fields,
    parse,
    record_value,
    replay_of,
    undo_value,
)
from .jsonl import read_lines

_TRIES = 1_000
"""Steps tried in a row before the store counts as broken."""
_NUMBERED = ("transcript-pre-compact", "summary", "undo")
_NAME = re.compile(r"(transcript-pre-compact|summary|undo|events)(?:-([0-9]+)(?:_[0-9]+)?)?\.jsonl?")


@dataclass(frozen=True, slots=True)
class Stored:
    """One acknowledged write."""

    step: int
    key: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Contents:
    """What is kept of one session: the numbers of its files by kind, ascending, and all its keys."""

    transcripts: list[int]
    summaries: list[int]
    undos: list[int]
    events: list[str]
    keys: list[str]

    @property
    def newest(self) -> tuple[int, int, int]:
        """The newest of each kind, 0 for none."""
        return tuple(max(kind, default=0) for kind in (self.transcripts, self.summaries, self.undos))  # type: ignore[return-value]


class Archive:
    """A store seen through a redactor."""

    def __init__(self, store: Store, redactor: Redactor, adapter: str) -> None:
        self._store = store
        self._redactor = redactor
        self._named: set[str] = set()
        self.adapter = adapter
        self.appends: bool = getattr(store, "appends", True)
        """Whether events can be appended to one file; else each compaction's events are one object."""

    # -- writing -----------------------------------------------------------------------------------------------------

    def save_transcript(self, session: Session, raws: Sequence[Any]) -> Stored:
        """Store the messages as they are now, under the next free step."""
        lines = BytesIO()  # joining them would hold each of them besides
        lines.writelines(self._json(as_mapping(raw)) + b"\n" for raw in raws)
        data = lines.getvalue()
        place, step, state = self.place(session.id), session.step + 1, session.archive_state
        self._keep_name(place, session.id)
        for _ in range(_TRIES):
            key = transcript_key(place, step)
            try:
                self._put(key, data)
                break
            except KeyTaken:  # another process compacted this session: what we know of its newest files is old
                step = max([step, *self.contents(place).transcripts]) + 1
                state.transcript = state.record = None
        else:
            raise ArchiveError(
                f"no free step for session {session.id!r}: {_TRIES:,} were taken, the last one tried is {step - 1:,}. "
                "Let fewer agents compact this session at once, and check that the store lists what it holds."
            )
        known = state.transcript is not None and state.transcript[0] == step - 1
        state.previous = state.transcript[1] if known and state.transcript else self._digest_of(place, step - 1)
        state.transcript = step, digest(data)
        state.known = step, *state.known[1:]
        return Stored(step, key, len(data), state.transcript[1])

    def save_record(self, session: Session, compacted: Compacted) -> Stored:
        """Store what a compaction did, and enough to replay, undo and show it."""
        place, state, step = self.place(session.id), session.archive_state, compacted.change.fold.step
        assert state.transcript is not None
        links = Links(state.transcript[1], state.previous, state.record or self._newest_record(place))
        value = record_value(session.id, compacted, base=state.active_step, time=time.time(), links=links)
        stored = self._put_record(session, summary_key(place, step), step, value)
        state.known = max(state.known[0], step), step, state.known[2]
        return stored

    def save_undo(self, session: Session, action: str, step: int, folds: ActiveFolds) -> Stored:
        """Store that a compaction was undone or redone."""
        place = self.place(session.id)
        number = max(self.contents(place).undos, default=0) + 1
        previous = session.archive_state.record or self._newest_record(place)
        value = undo_value(session.id, number, action, step, folds, time=time.time(), previous=previous)
        return self._put_record(session, undo_key(place, number), step, value)

    def save_events(self, session_id: str, step: int, events: Iterable[Event]) -> None:
        """Add events to the session's."""
        with _archive_errors("archive events"):
            lines = [event_json(redact_event(event, self._redactor)).encode("ascii") for event in events]
            self._store.append(events_key(self.place(session_id), None if self.appends else step), lines)

    def delete(self, place: str) -> list[str]:
        """Remove all that is kept of one session, for good; returns the keys."""
        keys = self.contents(place).keys
        with _archive_errors("delete from the archive"):
            for key in keys:
                self._store.delete(key)
        if left := self.contents(place).keys:
            raise ArchiveError(
                f"{len(keys):,} objects were deleted and {len(left):,} are there still or again, the first is "
                f"{left[0]!r}. Stop the agent that writes to this session, then forget it once more."
            )
        self._named.discard(place)
        return keys

    # -- reading -----------------------------------------------------------------------------------------------------

    def place(self, session_id: str) -> str:
        """Where a session is kept. An id that holds a secret does not show in a key."""
        return place_of(session_id, secret=self._redactor.redact(session_id) != session_id)

    def places(self) -> list[str]:
        """Where anything is kept."""
        with _archive_errors("list the archive"):
            return list(dict.fromkeys(key.split("/")[0] for key in self._store.list("") if "/" in key))

    def name_of(self, place: str) -> str | None:
        """The id of the session that is kept here; redacted when it holds a secret, None when nothing tells it."""
        if (session_id := session_of(place)) is not None:
            return session_id
        try:
            return str(parse(self.get(name_key(place)), name_key(place))["session_id"])
        except (ArchiveError, KeyError):
            return None

    def contents(self, place: str) -> Contents:
        """What is kept of one session."""
        with _archive_errors("list the archive"):
            keys = self._store.list(f"{place}/")
        numbers: dict[str, set[int]] = {}
        events: list[str] = []
        for key in keys:
            if match := _NAME.fullmatch(key.rpartition("/")[2]):
                if match[1] == "events":
                    events.append(key)
                elif match[2]:
                    numbers.setdefault(match[1], set()).add(int(match[2]))
        transcripts, summaries, undos = (sorted(numbers.get(kind, ())) for kind in _NUMBERED)
        return Contents(transcripts, summaries, undos, events, keys)

    def get(self, key: str) -> bytes:
        """What is kept under a key."""
        with _archive_errors("read the archive"):
            return self._store.get(key)

    def transcript(self, place: str, step: int) -> tuple[list[Any], str | None]:
        """The messages before the compaction of this step, and a warning when the end of the file is damaged."""
        key = transcript_key(place, step)
        return read_lines(self.get(key), key)

    def fold(self, place: str, step: int) -> dict[str, Any]:
        """The record of a compaction."""
        key = summary_key(place, step)
        return parse(self.get(key), key)

    def active_folds(self, place: str, contents: Contents | None = None) -> ActiveFolds:
        """Which compactions of a session are active."""
        contents = contents or self.contents(place)
        newest = max(contents.summaries, default=0)
        if not contents.undos:
            return ActiveFolds(newest, newest=newest)
        key = undo_key(place, contents.undos[-1])
        value = parse(self.get(key), key)
        if value["newest"] == newest:
            return ActiveFolds(value["in_force"], tuple(value["undone"]), tuple(value["redo"]), newest)
        return ActiveFolds(newest, tuple(value["undone"]), newest=newest)

    def load(self, session: Session, reader: Reader) -> list[str]:
        """Bring back what a session knew: its step, its summaries, and the compactions that can be replayed.

        Returns what could not be read: it costs a new summary.
        """
        place = self.place(session.id)
        contents = self.contents(place)
        problems: list[str] = []
        session.folds, session.memory = [], Memory()  # an earlier attempt may have been interrupted half-way
        try:
            active = self.active_folds(place, contents)
        except (ArchiveError, KeyError, TypeError) as error:
            problems.append(str(error))
            active = ActiveFolds(max(contents.summaries, default=0))
        undone = set(active.undone)
        standing = [step for step in contents.summaries if step not in undone]
        # An undone compaction is not replayed, but its summary is still recognised where the application kept it.
        for step in sorted([*standing[-KEPT_REPLAYS:], *sorted(undone)[-KEPT_REPLAYS:]]):
            try:
                value = self.fold(place, step)
                fold, record = fold_of(value), replay_of(value, session, reader)
                gone = set(value["gone_calls"])
            except (ArchiveError, InvalidMessage, ValueError, KeyError, TypeError, IndexError) as error:
                problems.append(f"{summary_key(place, step)!r} cannot be used: {type(error).__name__}: {error}")
                continue
            session.version = max(session.version, fold.version)
            if step not in undone:
                session.folds.append(fold)
                session.memory.remember(record)
                session.memory.lists += lists_of(value)
                session.memory.gone_calls |= gone
        session.step = max(contents.transcripts, default=0)
        session.archive_state.active_step = active.step
        session.archive_state.known = contents.newest
        return problems

    def is_changed(self, session: Session) -> bool:
        """Whether another process wrote to this session, or deleted it, since this one last wrote or read it."""
        place = self.place(session.id)
        contents = self.contents(place)
        if not contents.keys:
            self._named.discard(place)
        return contents.newest != session.archive_state.known

    def last_time(self, place: str) -> float | None:
        """When anything was last written for a session, by its records; None when they do not say."""
        contents = self.contents(place)
        records = [summary_key(place, step) for step in contents.summaries[-1:]]
        records += [undo_key(place, number) for number in contents.undos[-1:]]
        times: list[float] = []
        for key in (*records, *contents.events[-1:]):
            try:
                data = self.get(key)
                value = read_lines(data, key, tolerant=True)[0][-1:] if key in contents.events else [parse(data, key)]
                times += [float(one["time"]) for one in value]
            except (ArchiveError, KeyError, TypeError, ValueError):
                continue
        return max(times, default=None)

    # -- the parts ---------------------------------------------------------------------------------------------------

    def _keep_name(self, place: str, session_id: str) -> None:
        """Store the session id beside its files, where the place does not contain it."""
        if place in self._named or session_of(place) is not None:
            return
        with suppress(KeyTaken):
            self._put(name_key(place), self._json({"format": FORMAT, "session_id": session_id}))
        self._named.add(place)

    def _put_record(self, session: Session, key: str, step: int, value: Any) -> Stored:
        data = self._json(value, own_fields)
        self._put(key, data)
        stored = Stored(step, key, len(data), digest(data))
        session.archive_state.record = key.rpartition("/")[2], stored.sha256
        return stored

    def _put(self, key: str, data: bytes) -> None:
        with _archive_errors(f"archive {key!r}"):
            self._store.put(key, data)

    def _digest_of(self, place: str, step: int) -> str | None:
        try:
            return digest(self.get(transcript_key(place, step))) if step else None
        except KeyMissing:
            return None

    def _newest_record(self, place: str) -> tuple[str, str] | None:
        contents = self.contents(place)
        keys = [summary_key(place, step) for step in contents.summaries[-1:]]
        if contents.undos:
            undo = undo_key(place, contents.undos[-1])
            with suppress(ArchiveError):  # a damaged one must not stop a compaction
                if parse(self.get(undo), undo).get("newest") == max(contents.summaries, default=0):
                    keys = [undo]
        return next(((key.rpartition("/")[2], digest(self.get(key))) for key in keys), None)

    def as_kept(self, value: Any) -> Any:
        """A value as it comes back from the archive."""
        return json.loads(self._json(value))

    def _json(self, value: Any, restore: Callable[[Any, Any], Any] = lambda clean, value: clean) -> bytes:
        try:
            clean = restore(self._redactor.redact(plain(value)), value)
            return json.dumps(clean, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
        except Exception as error:
            raise ArchiveError(
                f"something to be archived could not be redacted ({type(error).__name__}), so it was not written. "
                "Pass messages of plain values, and check redaction.patterns."
            ) from error


@contextmanager
def _archive_errors(what: str) -> Iterator[None]:
    """A store of the user's own may raise anything; to us it is all one: it did not acknowledge."""
    try:
        yield
    except ArchiveError:
        raise
    except Exception as error:
        raise ArchiveError(f"could not {what}: the store raised {type(error).__name__}: {error}") from error
