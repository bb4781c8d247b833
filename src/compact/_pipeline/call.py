"""One call of the application as a value: its list, what it costs, the rules that hold for it, and the decision.

Owns: `Call` and `Purpose`. Must never: read or count a list, do I/O, or change a session.

Usage and limits are in the provider's tokens, plans in counted ones; `factor` is what a counted token costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .._compaction.plan import Layout, Plan
from .._compaction.trigger import Decision
from .._conversation.message import History
from .._conversation.tokens import REPLY_PRIMER, Usage
from .._session.entries import Entry, Reader
from .._session.host_list import HostList
from .._session.session import Session
from ..config.limits import Limits
from ..config.sections import Policy, SummaryPolicy

if TYPE_CHECKING:
    from .outcome import Prepared


@dataclass(frozen=True, slots=True)
class Purpose:
    """Why a call is made. Without a reason it compacts only when a limit is reached."""

    reason: Literal["manual", "overflow", "limit"] | None = None
    """A person asked for it; the provider refused the list as too long; the one-shot form asked for a size."""
    note: str | None = None
    limit: int | None = None
    """The tokens to get below, for an overflow or a limit."""
    layout: Layout | None = None
    """A layout in place of the policy's."""


PREFLIGHT = Purpose()
"""Before a model call: compact only when a limit is reached."""


class Call(NamedTuple):
    """One call. A tuple, because one is made before every model call."""

    session: Session
    host_list: HostList
    messages: Sequence[Any]
    tools: Sequence[Any] | None
    overrides: tuple[str | None, int | None, int | None]
    """Model, window and output reserve that the call asked for."""
    purpose: Purpose
    reader: Reader
    model: str
    policy: Policy
    summary: SummaryPolicy
    limits: Limits
    decision: Decision
    tools_tokens: int
    """Tokens that every request carries besides its messages, as counted."""
    factor: float
    offline: bool
    """Whether the built-in summarizer writes."""
    archived: bool
    """Whether there is an archive."""
    before_fold: Callable[[Plan], Plan | None] | None
    redact: Callable[[str], str]
    reopened: bool = False
    """Whether the call was opened again because the session had changed."""
    prepared: Prepared | None = None
    """A background compaction that this list begins with."""
    used_prepared: bool = False
    """Whether a background compaction was activated in this call."""
    headroom: int | None = None
    """For a background compaction: the tokens that may be added before it is used."""

    @property
    def forced(self) -> bool:
        """Whether the compaction was asked for: by a person, a provider's overflow, or the one-shot form."""
        return self.purpose.reason is not None

    @property
    def must_shrink(self) -> bool:
        """Whether a list that cannot become smaller is an error."""
        return self.purpose.reason == "overflow"

    @property
    def one_shot(self) -> bool:
        """Whether the list must fit whatever folds, and the summary may use the room that is left."""
        return self.purpose.reason == "limit"

    @property
    def due(self) -> bool:
        """Whether a threshold is reached, whatever was asked for."""
        return len(self.decision.reasons) > self.forced

    @property
    def usage(self) -> Usage:
        """What the list costs at the provider."""
        return self.decision.usage

    @property
    def fixed(self) -> int:
        """Tokens of a request besides its messages: tools, and the start of the reply."""
        return self.tools_tokens + REPLY_PRIMER

    def outgoing(self) -> tuple[list[Any], list[Entry]]:
        """The list that goes out when nothing is compacted, as objects of the application and as entries."""
        return self.host_list.outgoing(self.messages)

    def history(self, entries: Sequence[Entry]) -> History:
        """Entries as the conversation that the rules of compaction work on."""
        return self.session.history(entries, self.policy.roles_never_prune)

    def settings(self) -> dict[str, Any]:
        """The rules and limits of this call as plain values, for the archive."""
        return {
            "model": self.model,
            "layout": self.policy.layout_name,
            "strategy": self.policy.strategy,
            "window": self.limits.window,
            "trigger": self.limits.trigger,
            "budget": self.limits.budget,
        }
