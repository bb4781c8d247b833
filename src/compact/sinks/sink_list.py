"""One event to many sinks.

Owns: `SinkList`, and the sinks that the `tracing` section configures.
Must never: let a sink's failure reach the agent; it is counted, and logged once per sink.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from .._events.event import Event, Sink
from .._events.serialize import described, plain, redacting
from .._redaction import Redactor
from ..config.sections import TracingPolicy
from ._queue import Queued, close_all, queued

__all__ = ["SinkList", "configured_sinks"]

log = logging.getLogger("compact")


class SinkList:
    """Sinks behind a redactor, as one sink. `failures` counts the events on which a sink raised.

    A sink with `redact_with` redacts by itself, off the agent's thread; it may return another callable to use instead.
    """

    def __init__(self, sinks: Iterable[Sink], redactor: Redactor) -> None:
        self._redactor = redactor
        self._sinks_given = list(sinks)
        self._sinks = [_with_redactor(sink, redactor) for sink in self._sinks_given]
        self._reported: set[int] = set()
        self.failures = 0

    def __call__(self, event: Event) -> None:
        """Pass the event to every sink."""
        if event.name == "compact.warning":
            self._log_warning(event)
        for sink in self._sinks:
            try:
                sink(event)
            except Exception as error:
                self._count_failure(sink, error)

    def _count_failure(self, sink: Sink, error: Exception) -> None:
        self.failures += 1
        number = next(number for number, one in enumerate(self._sinks) if one is sink)
        if number not in self._reported:
            self._reported.add(number)
            who = described(self._sinks_given[number])
            self.complain(f"sink {who} failed and is counted from now on: {described(error)}")

    def _log_warning(self, event: Event) -> None:
        """Warnings are also logged, for operators without a sink."""
        level = logging.INFO if event.data.get("severity") == "low" else logging.WARNING
        if log.isEnabledFor(level):
            data = self._redactor.redact(plain({"session": event.session_id, **event.data}))
            log.log(level, "%s: %s (session %r)", data.get("code"), data.get("message"), data["session"])

    def __bool__(self) -> bool:
        return bool(self._sinks)

    def complain(self, text: str) -> None:
        """Log what cannot be an event."""
        log.warning("%s", self._redactor.redact(text))

    def close(self) -> None:
        """Close the sinks that can be closed."""
        close_all(sink for sink in self._sinks_given if isinstance(sink, Queued))
        for sink in self._sinks_given:
            close = getattr(sink, "close", None)
            if callable(close) and not isinstance(sink, Queued):
                try:
                    close()
                except Exception as error:
                    self.complain(f"sink {described(sink)} could not be closed: {described(error)}")


def _with_redactor(sink: Sink, redactor: Redactor) -> Sink:
    redact_with = getattr(sink, "redact_with", None)
    if not callable(redact_with):
        return redacting(sink, redactor)
    bound = redact_with(redactor)
    return bound if callable(bound) else sink


def configured_sinks(policy: TracingPolicy) -> list[Sink]:
    """The sinks that the `tracing` section configures, each behind a queue."""
    sinks: list[Sink] = []
    if policy.console:
        from .console import console_sink

        sinks.append(queued(console_sink(), label="console"))
    if policy.jsonl:
        from .jsonl import JsonlSink

        sinks.append(queued(JsonlSink(policy.jsonl), label="JSONL", place=policy.jsonl))
    if policy.ariadne_url:
        from .ariadne import AriadneSink

        sinks.append(AriadneSink(policy.ariadne_url))
    if policy.otlp_endpoint:
        from .otel import OtelSink

        sinks.append(OtelSink(endpoint=policy.otlp_endpoint, capture_content=policy.capture_content))
    return sinks
