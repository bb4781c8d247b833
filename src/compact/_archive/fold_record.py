"""What the archive keeps of a fold, as plain values: written from an outcome, read back into what a session knows.

Owns: the fields of `summary-NNN.json` and `undo-NNN.json`, their version, and the links between them (`FORMAT.md`).
Must never: touch a store, redact, or read the clock.

Links: every record names the hash of its own transcript, of the transcript before it, and of the record before it. A
transcript can only be claimed when the one before it stands, so that chain has no forks, whoever writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from .._compaction.laws import LAWS
from .._conversation.message import as_mapping
from .._facts.report import Report
from .._pipeline.job import Outcome
from .._session.entries import Entry, FoldReplay, KnownList, Memory, Reader, chain_of
from .._session.session import FoldRecord, Session
from ..errors import ArchiveError

__all__ = [
    "FORMAT",
    "ActiveFolds",
    "Links",
    "digest",
    "fold_of",
    "fold_value",
    "left_list",
    "lists_of",
    "made_by",
    "made_value",
    "own_fields",
    "parse",
    "replay_of",
    "replay_value",
    "undo_value",
]

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
    """Where a session stands among its folds: the one in force, 0 for none, and the newest there is."""

    in_force: int = 0
    undone: tuple[int, ...] = ()
    """Steps that were undone and not redone."""
    redo: tuple[int, ...] = ()
    """Those of them that can be redone, the next one last; a new fold leaves none."""
    newest: int = 0

    def without(self, step: int, base: int) -> ActiveFolds:
        """The line after the fold in force was undone, which stood on another one."""
        return ActiveFolds(base, (*self.undone, step), (*self.redo, step), self.newest)

    def again(self) -> ActiveFolds:
        """The line after the newest undone fold was redone."""
        step = self.redo[-1]
        return ActiveFolds(step, tuple(s for s in self.undone if s != step), self.redo[:-1], self.newest)


def fold_value(
    session: Session, outcome: Outcome, fold: FoldRecord, record: FoldReplay, *, base: int, time: float, links: Links
) -> dict[str, Any]:
    """What a fold did, and enough to replay, undo and show it."""
    assert outcome.plan is not None
    assert outcome.history is not None
    positions = outcome.history.positions
    made = made_by(outcome.slots, record.slots)
    kept = {slot for slot in outcome.slots if isinstance(slot, int)}
    return {
        "format": FORMAT,
        "session_id": session.id,
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
        **outcome.setting,
        "laws": [law.id for law in LAWS],
        "report": fold.report.as_dict() if fold.report is not None else None,
        "positions": outcome.positions,
        "tokens": outcome.tokens,
        "pinned": sorted(outcome.pinned),
        "tools": sorted(outcome.tools),
        "earlier_summaries": sorted(outcome.earlier),
        "gone": [line for line in range(len(outcome.positions)) if line not in kept],
        "gone_calls": sorted(outcome.abandoned),
        "folds": [
            {"positions": [positions[i] for i in one.indices], "summary": body}
            for one, body in zip(outcome.plan.folds, outcome.bodies, strict=True)
        ],
        "left": _slots(outcome.slots, made),
        "made": [made_value(entry) for entry in made],
        "replay": {
            **replay_value(record, made),
            "left_chain": chain_of(outcome.entries, range(len(outcome.entries))).hex(),
            "summaries": [
                [session.memory.signature(entry.message), entry.message.role, entry.position]
                for entry in outcome.entries
                if entry.summary
            ],
        },
        "links": links.as_dict(),
    }


def made_by(*slots: Sequence[int | Entry]) -> list[Entry]:
    """The messages that a fold made, each once."""
    return list({id(slot): slot for some in slots for slot in some if isinstance(slot, Entry)}.values())


def _slots(values: Sequence[int | Entry], made: Sequence[Entry]) -> list[Any]:
    number = {id(entry): n for n, entry in enumerate(made)}
    return [slot if isinstance(slot, int) else {"made": number[id(slot)]} for slot in values]


def made_value(entry: Entry) -> dict[str, Any]:
    """A message that a fold made."""
    return {
        "message": as_mapping(entry.message.raw),
        "position": entry.position,
        "tokens": entry.tokens,
        "summary": entry.summary,
        "signature": Memory.signature(entry.message) if entry.summary else None,
    }


def replay_value(record: FoldReplay, made: Sequence[Entry]) -> dict[str, Any]:
    """What replays a fold; `made` are the messages it made, which its slots name by number."""
    return {
        "size": record.size,
        "chain": record.chain.hex(),
        "reach": record.reach,
        "reach_chain": record.reach_chain.hex(),
        "slots": _slots(record.slots, made),
    }


def undo_value(
    session_id: str,
    number: int,
    action: str,
    step: int,
    line: ActiveFolds,
    *,
    time: float,
    previous: tuple[str, str] | None,
) -> dict[str, Any]:
    """That a fold was undone or redone, and where the session stands after it."""
    return {
        "format": FORMAT,
        "session_id": session_id,
        "number": number,
        "time": time,
        "action": action,
        "step": step,
        "in_force": line.in_force,
        "undone": line.undone,
        "redo": line.redo,
        "newest": line.newest,
        "links": {"previous_record": {"name": previous[0], "sha256": previous[1]} if previous else None},
    }


def own_fields(clean: dict[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """A redacted record with the names and hashes that we made up: to a user's pattern they may look like secrets."""
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
            f"{key!r} is damaged: its {len(data):,} bytes are no JSON ({error}). Put a backup of it in its place."
        ) from error
    version = value.get("format") if isinstance(value, dict) else None
    if not isinstance(version, int) or not 1 <= version <= FORMAT:
        raise ArchiveError(
            f"{key!r} is of format {version!r}, and this version of compact reads up to {FORMAT}. "
            "Upgrade agent-compact, or read it with the version that wrote it."
        )
    return value  # type: ignore[no-any-return]


def fold_of(value: Mapping[str, Any]) -> FoldRecord:
    """The fold as a session's history keeps it."""
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
    """The fold as it is found again by content; its summaries are known as the session's own from now on."""
    replay = value["replay"]
    session.memory.recognise({signature: (role, position) for signature, role, position in replay["summaries"]})
    made: list[Entry] = []
    for one in value["made"]:
        message = reader.dialect.read(one["message"])
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
    """The lists before and after a fold."""
    before, made, replay = value["positions"], value["made"], value["replay"]
    after = tuple(before[slot] if isinstance(slot, int) else made[slot["made"]]["position"] for slot in value["left"])
    lists = [KnownList(bytes.fromhex(replay["left_chain"]), after, range(len(after)), folded=True)]
    if replay["size"] == len(before):  # the host's list was the one that was archived
        kept = [slot for slot in replay["slots"] if isinstance(slot, int)]
        lists.insert(0, KnownList(bytes.fromhex(replay["chain"]), tuple(before), kept, folded=False))
    return lists


def left_list(value: Mapping[str, Any], transcript: Sequence[Any]) -> list[Any]:
    """The list that went out after a fold, built from the one before it."""
    made = value["made"]
    return [transcript[slot] if isinstance(slot, int) else made[slot["made"]]["message"] for slot in value["left"]]
