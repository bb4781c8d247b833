"""The event: what sinks, the archive and the viewer receive.

Owns: `Event`, `Sink`, and the names that events may have.
Must never: emit, format or store an event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

EVENT_NAMES: Mapping[str, str] = {
    "compact.token_estimate": "the tokens of the conversation, once per preflight",
    "compact.trigger_decision": "whether a compaction is due and why, once per preflight, after the plan",
    "compact.summary_call": "a summarizer was called: tokens used, cost where the price is known, time",
    "compact.summary_created": "a summary was accepted; the summary is in the payload",
    "compact.pruned_messages": "a compaction is done: messages per layer, tokens before and after",
    "compact.archival": "a transcript or summary was acknowledged by the store",
    "compact.config_changed": "this session acknowledged changed parameters",
    "compact.warning": "neither an error nor routine; see `code` and `severity`",
    "compact.error": "something failed; see `error_type`, `message` and the `fallback` taken",
}
"""Every event there is, with its meaning."""


class Event(NamedTuple):
    """Something that happened in a session. `time` is seconds since the epoch, `duration` seconds.

    A tuple, because several are made in every call, and no other class is made as quickly.
    """

    name: str
    session_id: str
    step: int
    time: float
    duration: float = 0.0
    status: Literal["ok", "error"] = "ok"
    data: Mapping[str, Any] = MappingProxyType({})


Sink = Callable[[Event], None]
"""Any callable that takes an event. If it raises, that is counted and never reaches the agent."""
