"""What the pipeline asks the engine to do, as values; the engine sends back the result.

Owns: the effects and the summarizer's reply. Must never: do anything.

    Move            a step in the session's states                     → nothing
    Refresh         read the session back if another process wrote     → True when it was read back
    Emit            an event                                           → nothing
    SaveTranscript  the list before the compaction                     → the step it was stored as, or ArchiveError
    SaveRecord      what the compaction did                            → None, or ArchiveError
    Summarize       requests for summaries                             → a SummaryReply for each
    Wait            seconds to back off                                → nothing
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from .._summary.request import Ask
from ..errors import SummaryError
from .outcome import Compacted, Outcome


class Emit(NamedTuple):
    """An event to send. A tuple, because two are sent before every model call."""

    name: str
    data: Mapping[str, Any]
    status: Literal["ok", "error"] = "ok"
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class Move:
    """A step in the session's states (`_session.states`); None leaves one where it is."""

    state: str | None = None
    phase: str | None = None
    summary_state: str | None = None


@dataclass(frozen=True, slots=True)
class Refresh:
    """Look at the archive: another process may have compacted or undone meanwhile."""


@dataclass(frozen=True, slots=True)
class SaveTranscript:
    """The messages before the compaction."""

    raws: Sequence[Any]


@dataclass(frozen=True, slots=True)
class SaveRecord:
    """What the compaction did."""

    compacted: Compacted


@dataclass(frozen=True, slots=True)
class Summarize:
    """Requests for summaries; `offline` asks for the built-in summarizer whatever is configured."""

    asks: tuple[Ask, ...]
    offline: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Seconds to wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SummaryReply:
    """A summarizer's answer, or why there is none, and how long it took."""

    text: str = ""
    error: SummaryError | None = None
    seconds: float = 0.0
    tokens: tuple[int, int] | None = None
    """Input and output tokens of the call, where the provider reported them."""
    model: str | None = None
    """The model that wrote, where the provider reported it."""


Effect = Move | Refresh | Emit | SaveTranscript | SaveRecord | Summarize | Wait

Steps = Generator[Effect, Any, Outcome]
"""The pipeline as it runs: effects until the outcome."""
