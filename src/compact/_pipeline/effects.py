"""What the flow wants done, as values; the drivers do it and send back how it went.

Owns: the effects and the reply. Must never: do anything.

    Refresh         whether somebody else wrote to the archive        → True when the session was read back anew
    Emit            an event for whoever watches                      → nothing
    SaveTranscript  the list before the fold, to be acknowledged      → the step it was stored as, or ArchiveError
    SaveSummary     what the fold did, to be acknowledged             → None, or ArchiveError
    Summarize       a batch of requests for summaries                 → a Reply for each
    Work            something to compute that takes a while           → what it comes to
    Wait            seconds to back off                               → nothing
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .._summary.request import Ask
from ..errors import CompactError, SummaryError

if TYPE_CHECKING:
    from .job import Outcome

__all__ = [
    "Effect",
    "Emit",
    "Refresh",
    "SaveSummary",
    "SaveTranscript",
    "Summarize",
    "SummaryReply",
    "Wait",
    "Work",
    "failed",
    "warning",
]


@dataclass(frozen=True, slots=True)
class Emit:
    """An event to send."""

    name: str
    data: Mapping[str, Any]
    status: Literal["ok", "error"] = "ok"
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class Refresh:
    """A look at the archive before a fold: another process may have folded or undone meanwhile."""


@dataclass(frozen=True, slots=True)
class SaveTranscript:
    """The messages as they stood before the fold."""

    raws: Sequence[Any]


@dataclass(frozen=True, slots=True)
class SaveSummary:
    """What the fold did."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Summarize:
    """Requests for summaries; `offline` asks for the built-in summarizer whatever is configured."""

    asks: tuple[Ask, ...]
    offline: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """Something to compute that takes a while: an event loop has better things to do meanwhile."""

    run: Callable[[], Any]


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
    """Input and output tokens of the call, where the provider told them."""
    model: str | None = None
    """The model that wrote, where the provider told it."""


Effect = Emit | Refresh | SaveTranscript | SaveSummary | Summarize | Work | Wait


def failed(error: CompactError, fallback: str, **context: Any) -> Emit:
    """The event of a failure: what happened, and what is done instead."""
    data = {"error_type": type(error).__name__, "message": str(error), "fallback": fallback, **context}
    return Emit("compact.error", data, status="error")


def warning(code: str, severity: str, message: str, **context: Any) -> Emit:
    """The event of something a person should know that is no failure."""
    return Emit("compact.warning", {"code": code, "severity": severity, "message": message, **context})
