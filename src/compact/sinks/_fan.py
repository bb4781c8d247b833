"""One event to many sinks.

Owns: `SinkList` and the sinks that the `tracing` section asks for.
Must never: let a sink's failure reach the agent; it is counted, and said in the log once per sink.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from .._events import Event, Sink
from .._policy import TracingPolicy
from .._redact import Redactor
from . import plain, redacting

__all__ = ["SinkList", "configured_sinks"]

log = logging.getLogger("compact")


class SinkList:
    """Sinks behind a redactor, as one sink. `failures` counts the events that a sink did not take."""

    def __init__(self, sinks: Iterable[Sink], redactor: Redactor) -> None:
        self._redactor = redactor
        self._given = list(sinks)
        self._sinks = [redacting(sink, redactor) for sink in self._given]
        self._complained: set[int] = set()
        self.failures = 0

    def __call__(self, event: Event) -> None:
        if event.name == "compact.warning":
            self._log(event)
        for number, sink in enumerate(self._sinks):
            try:
                sink(event)
            except Exception as error:
                self.failures += 1
                if number not in self._complained:
                    self._complained.add(number)
                    self.complain(f"sink {self._given[number]!r} failed and is counted from now on: {error!r}")

    def _log(self, event: Event) -> None:
        """Warnings also go where an operator looks without having set up a sink."""
        level = logging.INFO if event.data.get("severity") == "low" else logging.WARNING
        if log.isEnabledFor(level):
            said = self._redactor.redact(plain({"session": event.session_id, **event.data}))
            log.log(level, "%s: %s (session %r)", said.get("code"), said.get("message"), said["session"])

    def __bool__(self) -> bool:
        return bool(self._sinks)

    def complain(self, text: str) -> None:
        """Say something that no sink can carry."""
        log.warning("%s", self._redactor.redact(text))

    def close(self) -> None:
        """Close the sinks that can be closed."""
        for sink in self._given:
            close = getattr(sink, "close", None)
            if callable(close):
                try:
                    close()
                except Exception as error:
                    self.complain(f"sink {sink!r} could not be closed: {error!r}")


def configured_sinks(policy: TracingPolicy) -> list[Sink]:
    """The sinks that the `tracing` section asks for."""
    sinks: list[Sink] = []
    if policy.console:
        from .console import console_sink

        sinks.append(console_sink())
    if policy.jsonl:
        from .jsonl import JsonlSink

        sinks.append(JsonlSink(policy.jsonl))
    return sinks
