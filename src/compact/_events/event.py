"""The one stream that everything watching reads: console, files, archive, exporters, the viewer.

Owns: `Event`, and the names events may have. Must never: emit, format or store one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

__all__ = ["EVENT_NAMES", "Event", "Sink"]

EVENT_NAMES: Mapping[str, str] = {
    "compact.token_estimate": "what the conversation weighs, once per preflight",
    "compact.trigger_decision": "whether a fold is due and why, once per preflight, after the plan when there is one",
    "compact.summary_call": "a summarizer was asked: tokens used, money where the price is known, time",
    "compact.summary_created": "a summary was accepted; the summary is in the payload",
    "compact.pruned_messages": "a fold left: messages per layer, tokens before and after",
    "compact.archival": "a transcript or summary was acknowledged by the store",
    "compact.config_changed": "changed parameters were acknowledged by this session",
    "compact.warning": "neither an error nor routine; see `code` and `severity`",
    "compact.error": "something failed; see `error_type`, `message` and the `fallback` taken",
}
"""Every event there is, with its meaning."""


class Event(NamedTuple):
    """Something that happened in a session. `time` is seconds since the epoch, `duration` seconds.

    A tuple, because one is made at every step of every call, and nothing else is made as quickly.
    """

    name: str
    session_id: str
    step: int
    time: float
    duration: float = 0.0
    status: Literal["ok", "error"] = "ok"
    data: Mapping[str, Any] = MappingProxyType({})


Sink = Callable[[Event], None]
"""Anything that takes an event. It may raise: that is counted and never reaches the agent."""
