"""One event to many sinks.

Owns: `SinkList` and the sinks that the `tracing` section asks for.
Must never: let a sink's failure reach the agent; it is counted, and said in the log once per sink.
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
    """Sinks behind a redactor, as one sink. `failures` counts the events that a sink did not take.

    A sink with `redact_with` redacts by itself, where nobody waits for it; it may hand back what to call instead.
    """

    def __init__(self, sinks: Iterable[Sink], redactor: Redactor) -> None:
        self._redactor = redactor
        self._given = list(sinks)
        self._sinks = [_behind(sink, redactor) for sink in self._given]
        self._complained: set[int] = set()
        self.failures = 0

    def __call__(self, event: Event) -> None:
        """Hand the event to every sink."""
        if event.name == "compact.warning":
            self._log(event)
        for sink in self._sinks:
            try:
                sink(event)
            except Exception as error:
                self._failed(sink, error)

    def _failed(self, sink: Sink, error: Exception) -> None:
        self.failures += 1
        number = next(number for number, one in enumerate(self._sinks) if one is sink)
        if number not in self._complained:
            self._complained.add(number)
            who = described(self._given[number])
            self.complain(f"sink {who} failed and is counted from now on: {described(error)}")

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
        close_all(sink for sink in self._given if isinstance(sink, Queued))
        for sink in self._given:
            close = getattr(sink, "close", None)
            if callable(close) and not isinstance(sink, Queued):
                try:
                    close()
                except Exception as error:
                    self.complain(f"sink {described(sink)} could not be closed: {described(error)}")


def _behind(sink: Sink, redactor: Redactor) -> Sink:
    redact_with = getattr(sink, "redact_with", None)
    if not callable(redact_with):
        return redacting(sink, redactor)
    bound = redact_with(redactor)
    return bound if callable(bound) else sink


def configured_sinks(policy: TracingPolicy) -> list[Sink]:
    """The sinks that the `tracing` section asks for, each behind a queue."""
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
