"""What a compaction came to, as values.

Owns: `Compacted` (a compaction that was carried out), `Prepared` (one made in the background), `Outcome`.
Must never: act.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._compaction.plan import Plan
from .._conversation.message import History
from .._session.entries import Entry
from .._session.session import Session, SessionChange
from ..errors import CompactError


@dataclass(frozen=True, slots=True)
class Compacted:
    """A compaction that was carried out: the change to the session, and what the archive keeps of it."""

    change: SessionChange
    plan: Plan
    history: History
    """The list that was planned on."""
    arrived: History
    """The list that arrived, before it was made valid."""
    slots: tuple[int | Entry, ...]
    """For each message that goes out: its index in the list that arrived, or the entry that was made for it."""
    bodies: tuple[str | None, ...]
    """The summary of each fold; None where there is none."""
    below_trigger: bool
    settings: Mapping[str, Any]
    """The rules and limits it was made under, as plain values."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A compaction made in the background: its transcript is archived, its record is not."""

    compacted: Compacted
    shadow: Session
    """The copy of the session it was made on."""
    waited: float = 0.0
    """Seconds that the call which uses it waited for it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the pipeline returns: the compaction or the error, and what the session has to remember of the attempt."""

    compacted: Compacted | None = None
    error: CompactError | None = None
    """To be raised: the list may not go out as it came."""
    stale: bool = False
    """Whether the session changed meanwhile: the call has to be opened again."""
    above_trigger: bool = False
    failed_fold: tuple[bytes, ...] | None = None
    warned: frozenset[str] = field(default_factory=frozenset)


UNCHANGED = Outcome()
"""Nothing was done."""
