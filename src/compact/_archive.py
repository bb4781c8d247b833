"""The archive of a session: what is written before anything is dropped, and how a session comes back from it.

Owns: the content of transcripts, summaries and event files, and their redaction.
Must never: decide when to write (the flow does), or hand a store anything unredacted.

A step is the number of a fold in its session, from 1. Two writers never share one: the transcript's key must be new,
and whoever finds it taken moves on to the next number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ._citations import cited
from ._entries import KEPT_RECORDS, Entry, Reader, Record
from ._events import Event
from ._fidelity import Report
from ._job import Outcome
from ._messages import as_mapping
from ._redact import Redactor
from ._session import FoldRecord, Session
from .errors import ArchiveError, InvalidMessage
from .sinks import event_json, plain, redacting
from .stores import KeyMissing, KeyTaken, Store, events_key, place_of, summary_key, transcript_key

__all__ = ["FORMAT", "Archive"]

FORMAT = 1
"""The version of the record format."""


class Archive:
    """A store seen through a redactor."""

    def __init__(self, store: Store, redactor: Redactor, adapter: str) -> None:
        self._store = store
        self._redactor = redactor
        self.adapter = adapter

    def save_transcript(self, session: Session, raws: Sequence[Any]) -> tuple[int, str, int]:
        """Keep the messages as they are now. Returns the step they were stored as, the key, and the size."""
        data = b"".join(self._line(raw) for raw in raws)
        step = session.step + 1
        while True:
            key = transcript_key(session.id, step)
            try:
                with _typed("archive a transcript"):
                    self._store.put(key, data)
            except KeyTaken:
                step += 1
            else:
                return step, key, len(data)

    def save_summary(self, session: Session, outcome: Outcome, fold: FoldRecord, record: Record) -> tuple[str, int]:
        """Keep what a fold did, and enough to replay it. Returns the key and the size."""
        assert outcome.plan is not None
        assert outcome.history is not None
        positions = outcome.history.positions
        made = [slot for slot in record.slots if isinstance(slot, Entry)]
        number = {id(entry): n for n, entry in enumerate(made)}
        value = {
            "format": FORMAT,
            "session_id": session.id,
            "step": fold.step,
            "version": fold.version,
            "reasons": fold.reasons,
            "note": fold.note,
            "fallback": fold.fallback,
            "range": fold.range,
            "tokens_before": fold.tokens_before,
            "tokens_after": fold.tokens_after,
            "report": fold.report.as_dict() if fold.report is not None else None,
            "positions": outcome.positions,
            "gone_calls": sorted(outcome.abandoned),
            "folds": [
                {"positions": [positions[i] for i in one.indices], "summary": body}
                for one, body in zip(outcome.plan.folds, outcome.bodies, strict=True)
            ],
            "replay": {
                "size": record.size,
                "chain": record.chain.hex(),
                "reach": record.reach,
                "reach_chain": record.reach_chain.hex(),
                "slots": [slot if isinstance(slot, int) else {"made": number[id(slot)]} for slot in record.slots],
                "made": [
                    {
                        "message": as_mapping(entry.message.raw),
                        "position": entry.position,
                        "summary": entry.summary,
                        "signature": session.memory.signature(entry.message) if entry.summary else None,
                    }
                    for entry in made
                ],
            },
        }
        key = summary_key(session.id, fold.step)
        data = self._json(value)
        with _typed("archive a summary"):
            self._store.put(key, data, if_absent=False)
        return key, len(data)

    def save_events(self, session_id: str, events: Iterable[Event]) -> None:
        """Add events to the session's file."""
        lines: list[bytes] = []
        collect = redacting(lambda event: lines.append(event_json(event).encode("ascii")), self._redactor)
        for event in events:
            collect(event)
        with _typed("archive events"):
            self._store.append(events_key(session_id), lines)

    def transcript(self, session_id: str, step: int | None = None) -> list[Any]:
        """The messages before the fold of this step, or before the newest one."""
        if step is None:
            steps = self._steps(session_id, "transcript-pre-compact-")
            if not steps:
                raise KeyMissing(f"nothing is archived for session {session_id!r}")
            step = steps[-1]
        data = self._get(transcript_key(session_id, step))
        return [json.loads(line) for line in data.splitlines() if line.strip()]

    def cited(self, session_id: str, citations: str) -> list[Any]:
        """The messages that the citations in a text name, as they were when they folded, in the session's order."""
        named = [span for _, spans in cited(citations) for span in spans]
        if not named:
            raise ArchiveError(
                f"no citation in the {len(citations):,} characters given; give one as a summary does, [#12] or [#12-18]"
            )
        found: dict[int, Any] = {}
        for step in self._steps(session_id, "summary-"):
            positions = json.loads(self._get(summary_key(session_id, step)))["positions"]
            if any(first <= position <= last for first, last in named for position in positions):
                # A message stands in the first transcript that has its position; later ones have its summary there.
                for position, message in zip(positions, self.transcript(session_id, step), strict=True):
                    found.setdefault(position, message)
        return [found[p] for p in sorted(found) if any(first <= p <= last for first, last in named)]

    def load(self, session: Session, reader: Reader) -> None:
        """Bring back what a session knew: its step, its summaries, and the folds that can be replayed."""
        step = max(self._steps(session.id, "transcript-pre-compact-"), default=0)
        folds: list[FoldRecord] = []
        for number in self._steps(session.id, "summary-")[-KEPT_RECORDS:]:
            try:
                value = json.loads(self._get(summary_key(session.id, number)))
                fold, record = _fold_record(value), _record(value, session, reader)
                gone = set(value["gone_calls"])
            except (ArchiveError, InvalidMessage, ValueError, KeyError, TypeError, IndexError):
                continue  # a record that cannot be read costs a new summary, and the knowledge of that one
            folds.append(fold)
            session.memory.remember(record)
            session.memory.gone_calls |= gone
        session.folds, session.step = folds, step
        session.version = max((fold.version for fold in folds), default=0)

    def _steps(self, session_id: str, name: str) -> list[int]:
        prefix = f"{place_of(session_id)}/{name}"
        with _typed("list the archive"):
            keys = self._store.list(prefix)
        numbers = (key[len(prefix) :].split(".")[0] for key in keys)
        return sorted(int(number) for number in numbers if number.isdigit())

    def _get(self, key: str) -> bytes:
        with _typed("read the archive"):
            return self._store.get(key)

    def _line(self, raw: Any) -> bytes:
        return self._json(as_mapping(raw)) + b"\n"

    def _json(self, value: Any) -> bytes:
        clean = self._redactor.redact(plain(value))
        return json.dumps(clean, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


@contextmanager
def _typed(what: str) -> Iterator[None]:
    """A store of the user's own may raise anything; to us it is all one: it did not acknowledge."""
    try:
        yield
    except ArchiveError:
        raise
    except Exception as error:
        raise ArchiveError(f"could not {what}: the store raised {type(error).__name__}: {error}") from error


def _fold_record(value: Any) -> FoldRecord:
    first, last = value["range"]
    return FoldRecord(
        step=value["step"],
        version=value["version"],
        reasons=tuple(value["reasons"]),
        range=(first, last),
        folded=sum(len(one["positions"]) for one in value["folds"]),
        tokens_before=value["tokens_before"],
        tokens_after=value["tokens_after"],
        fallback=value["fallback"],
        note=value["note"],
        report=Report.from_dict(value["report"]) if value.get("report") is not None else None,
    )


def _record(value: Any, session: Session, reader: Reader) -> Record:
    replay = value["replay"]
    made: list[Entry] = []
    for one in replay["made"]:
        message = reader.dialect.read(one["message"])
        made.append(Entry(message, reader.cost(message), one["position"], summary=one["summary"]))
        if one["signature"]:
            # As it was written, and as it reads now: redaction may have changed it in between.
            session.memory.recognise({one["signature"]: (message.role, one["position"])})
            session.memory.sign(message, one["position"])
    return Record(
        step=value["step"],
        version=value["version"],
        size=replay["size"],
        chain=bytes.fromhex(replay["chain"]),
        reach=replay["reach"],
        reach_chain=bytes.fromhex(replay["reach_chain"]),
        slots=tuple(slot if isinstance(slot, int) else made[slot["made"]] for slot in replay["slots"]),
    )
