"""Sinks: callables that take an `Event`. Each is in its own module, which is imported when it is used.

Owns: the names that sinks share.
Must never: import an exporter that is not used.

    console, jsonl          on this machine
    ariadne, otel           to a viewer or a collector, behind a queue
    agents_sdk              as spans of the OpenAI Agents SDK
    queued(sink)            any callable of yours, off the agent's thread
"""

from __future__ import annotations

from .._events.serialize import described, event_json, plain, redacting
from ._queue import Queued, queued

__all__ = ["Queued", "described", "event_json", "plain", "queued", "redacting"]
