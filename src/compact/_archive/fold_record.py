"""A compaction as plain values: written to the archive or to another process, and read back into a session.

Owns: the fields of `summary-NNN.json` and `undo-NNN.json`, their version, and the links between them (`FORMAT.md`);
the value by which processes share a compaction.
Must never: touch a store, redact, or read the clock; or let a damaged value change a session.

Every record names the hash of its own transcript, of the transcript before it, and of the record before it. A
transcript can only be written when the one before it exists, so that chain has no forks, whichever process writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from .._compaction.laws import LAWS
from .._conversation.formats import FORMATS
from .._conversation.message import as_mapping
from .._facts.report import Report
from .._pipeline.outcome import Compacted
from .._session.entries import Entry, FoldReplay, KnownList, Memory, Reader, chain_of
from .._session.session import FoldRecord, Session
from ..errors import ArchiveError, InvalidMessage

FORMAT = 1
"""The version of the record format."""


def digest(data: bytes) -> str:
    """What the archive knows a file by."""
    return sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class Links:
    """What a record is chained to, each by its SHA-256."""

    transcript: str
    previous_transcript: str | None
    previous_record: tuple[str, str] | None
    """Name and hash of the newest record that stood when this one was written."""

    def as_dict(self) -> dict[str, Any]:
        """The links as plain values."""
        previous = self.previous_record
        return {
            "transcript": self.transcript,
            "previous_transcript": self.previous_transcript,
            "previous_record": {"name": previous[0], "sha256": previous[1]} if previous else None,
        }


@dataclass(frozen=True, slots=True)
class ActiveFolds:
    """Which compactions of a session are active: the newest one that is, 0 for none, and the newest there is."""

    step: int = 0
    undone: tuple[int, ...] = ()
    """Steps that were undone and not redone."""
    redo: tuple[int, ...] = ()
    """Those of them that can be redone, the next one last; a new compaction leaves none."""
    newest: int = 0

    def after_undo(self, base: int) -> ActiveFolds:
        """After the active compaction was undone, which was made on top of `base`."""
        return ActiveFolds(base, (*self.undone, self.step), (*self.redo, self.step), self.newest)

    def after_redo(self) -> ActiveFolds:
        """After the newest undone compaction was redone."""
        step = self.redo[-1]
        return ActiveFolds(step, tuple(s for s in self.undone if s != step), self.redo[:-1], self.newest)


def record_value(session_id: str, compacted: Compacted, *, base: int, time: float, links: Links) -> dict[str, Any]:
    """What a compaction did, and enough to replay, undo and show it."""
    change, arrived, slots = compacted.change, compacted.arrived, compacted.slots
    fold, replay, entries = change.fold, change.replay, change.entries
    positions = compacted.history.positions
    made = _made_entries(slots, replay.slots)
    kept = {slot for slot in slots if isinstance(slot, int)}
    return {
        "format": FORMAT,
        "session_id": session_id,
        "step": fold.step,
        "base": base,
        "version": fold.version,
        "time": time,
        "reasons": fold.reasons,
        "note": fold.note,
        "fallback": fold.fallback,
        "range": fold.range,
        "tokens_before": fold.tokens_before,
        "tokens_after": fold.tokens_after,
        **compacted.settings,
        "laws": [law.id for law in LAWS],
        "report": fold.report.as_dict() if fold.report is not None else None,
        "positions": arrived.positions,
        "tokens": arrived.tokens,
        "pinned": sorted(arrived.pinned),
        "tools": sorted(i for block in arrived.blocks if block.tool for i in block.indices),
        "earlier_summaries": sorted(arrived.summaries),
        "gone": [line for line in range(len(arrived.positions)) if line not in kept],
        "gone_calls": sorted(arrived.abandoned),
        "folds": [
            {"positions": [positions[i] for i in one.indices], "summary": body}
            for one, body in zip(compacted.plan.folds, compacted.bodies, strict=True)
        ],
        "left": _slot_values(slots, made),
        "made": [_entry_value(entry) for entry in made],
        "replay": {
            **_replay_value(replay, made),
            "left_chain": chain_of(entries, range(len(entries))).hex(),
            "summaries": [
                [Memory.signature(entry.message), entry.message.role, entry.position]
                for entry in entries
                if entry.summary
            ],
        },
        "links": links.as_dict(),
    }


def _made_entries(*slots: Sequence[int | Entry]) -> list[Entry]:
    """The messages that a compaction made, each once."""
    return list({id(slot): slot for some in slots for slot in some if isinstance(slot, Entry)}.values())


def _slot_values(values: Sequence[int | Entry], made: Sequence[Entry]) -> list[Any]:
    number = {id(entry): n for n, entry in enumerate(made)}
    return [slot if isinstance(slot, int) else {"made": number[id(slot)]} for slot in values]


def _entry_value(entry: Entry) -> dict[str, Any]:
    """A message that a compaction made."""
    return {
        "message": as_mapping(entry.message.raw),
        "position": entry.position,
        "tokens": entry.tokens,
        "summary": entry.summary,
        "signature": Memory.signature(entry.message) if entry.summary else None,
    }


def _replay_value(replay: FoldReplay, made: Sequence[Entry]) -> dict[str, Any]:
    """What replays a compaction; its slots name the messages in `made` by number."""
    return {
        "size": replay.size,
        "chain": replay.chain.hex(),
        "reach": replay.reach,
        "reach_chain": replay.reach_chain.hex(),
        "slots": _slot_values(replay.slots, made),
    }


def undo_value(
    session_id: str,
    number: int,
    action: str,
    step: int,
    folds: ActiveFolds,
    *,
    time: float,
    previous: tuple[str, str] | None,
) -> dict[str, Any]:
    """That a compaction was undone or redone, and which are active after it."""
    return {
        "format": FORMAT,
        "session_id": session_id,
        "number": number,
        "time": time,
        "action": action,
        "step": step,
        "in_force": folds.step,
        "undone": folds.undone,
        "redo": folds.redo,
        "newest": folds.newest,
        "links": {"previous_record": {"name": previous[0], "sha256": previous[1]} if previous else None},
    }


def own_fields(clean: dict[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """A redacted record with its own names and hashes put back: a user's pattern may take them for secrets."""
    clean = clean | {field: value[field] for field in ("links", "replay") if field in value}
    if "made" in clean:
        made = zip(clean["made"], value["made"], strict=True)
        clean["made"] = [{**one, "signature": own["signature"]} for one, own in made]
    return clean


def parse(data: bytes, key: str) -> dict[str, Any]:
    """A record as it was written; `ArchiveError` when it is damaged or newer than this library."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArchiveError(
            f"{key!r} is damaged: its {len(data):,} bytes are not JSON ({error}). Put a backup of it in its place."
        ) from error
    version = value.get("format") if isinstance(value, dict) else None
    if not isinstance(version, int) or not 1 <= version <= FORMAT:
        raise ArchiveError(
            f"{key!r} is of format {version!r}, and this version of compact reads up to {FORMAT}. "
            "Upgrade agent-compact, or read it with the version that wrote it."
        )
    return value  # type: ignore[no-any-return]


def fold_of(value: Mapping[str, Any]) -> FoldRecord:
    """The compaction as a session's history keeps it."""
    first, last = value["range"]
    return FoldRecord(
        step=value["step"],
        version=value["version"],
        reasons=tuple(value["reasons"]),
        range=(first, last),
        folded=value["folded"] if "folded" in value else sum(len(one["positions"]) for one in value["folds"]),
        tokens_before=value["tokens_before"],
        tokens_after=value["tokens_after"],
        fallback=value["fallback"],
        note=value["note"],
        report=Report.from_dict(value["report"]) if value["report"] is not None else None,
    )


def replay_of(value: Mapping[str, Any], session: Session, reader: Reader) -> FoldReplay:
    """The compaction as it is found again by content; the session recognises its summaries from now on."""
    replay = value["replay"]
    session.memory.recognise({signature: (role, position) for signature, role, position in replay["summaries"]})
    made: list[Entry] = []
    for one in value["made"]:
        message = reader.format.read(one["message"])
        made.append(Entry(message, reader.cost(message), one["position"], summary=one["summary"]))
        if one["signature"]:
            # As it was written, and as it reads now: redaction may have changed it in between.
            session.memory.recognise({one["signature"]: (message.role, one["position"])})
            session.memory.sign(message, one["position"])
    return FoldReplay(
        step=value["step"],
        version=value["version"],
        size=replay["size"],
        chain=bytes.fromhex(replay["chain"]),
        reach=replay["reach"],
        reach_chain=bytes.fromhex(replay["reach_chain"]),
        slots=tuple(slot if isinstance(slot, int) else made[slot["made"]] for slot in replay["slots"]),
    )


def lists_of(value: Mapping[str, Any]) -> list[KnownList]:
    """The lists before and after a compaction."""
    before, made, replay = value["positions"], value["made"], value["replay"]
    after = tuple(before[slot] if isinstance(slot, int) else made[slot["made"]]["position"] for slot in value["left"])
    lists = [KnownList(bytes.fromhex(replay["left_chain"]), after, range(len(after)), folded=True)]
    if replay["size"] == len(before):  # the application's list was the one that was archived
        kept = [slot for slot in replay["slots"] if isinstance(slot, int)]
        lists.insert(0, KnownList(bytes.fromhex(replay["chain"]), tuple(before), kept, folded=False))
    return lists


def list_after(value: Mapping[str, Any], transcript: Sequence[Any]) -> list[Any]:
    """The list that went out after a compaction, built from the one before it."""
    made = value["made"]
    return [transcript[slot] if isinstance(slot, int) else made[slot["made"]]["message"] for slot in value["left"]]


# -- shared with other processes --------------------------------------------------------------------------------------


def shared_value(session: Session) -> dict[str, Any] | None:
    """The newest active compaction as another process needs it; None when this one knows none."""
    replay = session.memory.replays[-1] if session.memory.replays else None
    fold = next((fold for fold in reversed(session.folds) if replay and fold.step == replay.step), None)
    if replay is None or fold is None or session.reader is None:
        return None
    made = _made_entries(replay.slots)
    signatures = session.memory.signatures
    return {
        "format": FORMAT,
        "session_id": session.id,
        "dialect": session.reader.format.name if session.reader.settled else None,
        "step": fold.step,
        "version": fold.version,
        "reach": replay.reach,
        "size": replay.size,
        "reasons": list(fold.reasons),
        "note": fold.note,
        "fallback": fold.fallback,
        "range": list(fold.range),
        "folded": fold.folded,
        "tokens_before": fold.tokens_before,
        "tokens_after": fold.tokens_after,
        "report": fold.report.in_short().as_dict() if fold.report is not None else None,
        "gone_calls": sorted(session.memory.gone_calls),
        "made": [_entry_value(entry) for entry in made],
        "replay": {
            **_replay_value(replay, made),
            "summaries": [[signature, role, position] for signature, (role, position) in signatures.items()],
        },
    }


def read_shared(value: Mapping[str, Any], session: Session, reader: Reader) -> tuple[FoldRecord, FoldReplay, list[str]]:
    """A compaction of another process: its record, its replay, and ids of calls it left without a result.

    The reader takes over its message format, when it knows none yet. `ArchiveError` when it is damaged or newer than
    this library; then the session is unchanged.
    """
    name = f"a compaction of session {session.id!r} that came from another process"
    try:
        value = parse(json.dumps(value).encode(), name)
        if not reader.settled and value["dialect"] is not None:
            reader.format, reader.settled = FORMATS[value["dialect"]], True
        fold, replay = fold_of(value), replay_of(value, Session(session.id), reader)
        gone_calls = [str(call) for call in value["gone_calls"]]
        whole = 0 < replay.reach <= replay.size and fold.step > 0 and fold.version >= 0
        if not whole or any(isinstance(slot, int) and not 0 <= slot < replay.size for slot in replay.slots):
            raise ValueError(f"a reach of {replay.reach} of {replay.size} messages at step {fold.step}")
    except (InvalidMessage, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ArchiveError(
            f"{name} is damaged ({type(error).__name__}: {error}); without it the next compaction costs a summary"
        ) from error
    return fold, replay_of(value, session, reader), gone_calls


def same_fold(one: FoldReplay, other: FoldReplay) -> bool:
    """Whether two replays are of one compaction: of the same messages, with the same text."""

    def contents(replay: FoldReplay) -> list[Any]:
        return [slot if isinstance(slot, int) else slot.message.text for slot in replay.slots]

    return (one.step, one.chain, contents(one)) == (other.step, other.chain, contents(other))
