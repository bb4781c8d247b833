"""A fold that travels from one process to another, as plain values.

Owns: what another process is given to know a fold, and the check of what arrives. Must never: touch a store, redact, or
let a damaged value change a session.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .._conversation.formats import FORMATS
from .._session.entries import FoldReplay, Reader
from .._session.session import FoldRecord, Session
from ..errors import ArchiveError, InvalidMessage
from .fold_record import FORMAT, fold_of, made_by, made_value, parse, replay_of, replay_value

__all__ = ["arrived", "same_fold", "travel_value"]


def travel_value(session: Session) -> dict[str, Any] | None:
    """The newest fold in force, as another process needs it to know it; None when this one knows none."""
    record = session.memory.records[-1] if session.memory.records else None
    fold = next((fold for fold in reversed(session.folds) if record and fold.step == record.step), None)
    if record is None or fold is None or session.reader is None:
        return None
    made = made_by(record.slots)
    signatures = session.memory.signatures
    return {
        "format": FORMAT,
        "session_id": session.id,
        "dialect": session.reader.dialect.name if session.reader.settled else None,
        "step": fold.step,
        "version": fold.version,
        "reach": record.reach,
        "size": record.size,
        "reasons": list(fold.reasons),
        "note": fold.note,
        "fallback": fold.fallback,
        "range": list(fold.range),
        "folded": fold.folded,
        "tokens_before": fold.tokens_before,
        "tokens_after": fold.tokens_after,
        "report": fold.report.in_short().as_dict() if fold.report is not None else None,
        "gone_calls": sorted(session.memory.gone_calls),
        "made": [made_value(entry) for entry in made],
        "replay": {
            **replay_value(record, made),
            "summaries": [[signature, role, position] for signature, (role, position) in signatures.items()],
        },
    }


def arrived(value: Mapping[str, Any], session: Session, reader: Reader) -> tuple[FoldRecord, FoldReplay, list[str]]:
    """A fold of another process: its place in the history, what replays it, and calls it left without an answer.

    The reader takes over its dialect, when it knows none yet. `ArchiveError` when it is damaged or newer than this
    library; then the session knows nothing of it.
    """
    name = f"a fold of session {session.id!r} that came from another process"
    try:
        value = parse(json.dumps(value).encode(), name)
        if not reader.settled and value["dialect"] is not None:
            reader.dialect, reader.settled = FORMATS[value["dialect"]], True
        fold, record = fold_of(value), replay_of(value, Session(session.id), reader)
        gone_calls = [str(call) for call in value["gone_calls"]]
        whole = 0 < record.reach <= record.size and fold.step > 0 and fold.version >= 0
        if not whole or any(isinstance(slot, int) and not 0 <= slot < record.size for slot in record.slots):
            raise ValueError(f"a reach of {record.reach} of {record.size} messages at step {fold.step}")
    except (InvalidMessage, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ArchiveError(
            f"{name} is damaged ({type(error).__name__}: {error}); without it the next fold costs a summary"
        ) from error
    return fold, replay_of(value, session, reader), gone_calls


def same_fold(one: FoldReplay, other: FoldReplay) -> bool:
    """Whether two records are of one fold: of the same messages, in the same words."""

    def said(record: FoldReplay) -> list[Any]:
        return [slot if isinstance(slot, int) else slot.message.text for slot in record.slots]

    return (one.step, one.chain, said(one)) == (other.step, other.chain, said(other))
