"""The driver for threads: runs a flow where it is called.

Owns: `drive`, and turning whatever a summarizer does into a `Reply`. Must never: decide anything.
Its twin for event loops is `_drivers_async`; between them they are the only places where a summarizer is called and
time passes.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from ._asks import Ask
from ._effects import Effect, Reply, Summarize, Wait
from ._job import Outcome
from ._policy import SummaryPolicy
from .errors import ConfigError, ModelUnavailable, SummaryError, SummaryTimeout
from .models import Summarizer, offline_summarizer

__all__ = ["Flow", "drive", "reply_of", "typed"]

Flow = Generator[Effect, Any, Outcome]
"""A flow under way."""


def drive(
    flow: Flow, perform: Callable[[Effect], Any], summarizer: Summarizer | None, policy: SummaryPolicy
) -> Outcome:
    """Run a flow on this thread."""
    answer: Any = None
    try:
        while True:
            effect = flow.send(answer)
            if isinstance(effect, Summarize):
                chosen = offline_summarizer() if effect.offline or summarizer is None else summarizer
                answer = [_ask(chosen, ask, policy.timeout) for ask in effect.asks]
            elif isinstance(effect, Wait):
                time.sleep(effect.seconds)
                answer = None
            else:
                answer = perform(effect)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


def _ask(summarizer: Summarizer, ask: Ask, timeout: float) -> Reply:
    started = time.perf_counter()
    try:
        answer = summarizer(ask)
        if inspect.isawaitable(answer):
            answer = _wait_for(answer, timeout)
        return reply_of(answer, started)
    except ConfigError:  # the caller must act; no fallback would mend it
        raise
    except Exception as error:
        return Reply(error=typed(error, timeout), seconds=time.perf_counter() - started)


def _wait_for(answer: Awaitable[str], timeout: float) -> str:
    import asyncio  # here, for the same reason as in `_turnstile`

    async def wait() -> str:
        return await asyncio.wait_for(answer, timeout)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    if inspect.iscoroutine(answer):
        answer.close()
    raise ConfigError("an async summarizer cannot run in preflight() inside an event loop; await apreflight()")


def reply_of(answer: Any, started: float) -> Reply:
    """What a summarizer returned, as a reply."""
    seconds = time.perf_counter() - started
    if not isinstance(answer, str):
        wrong = ModelUnavailable(f"the summarizer returned {type(answer).__name__}, not text")
        return Reply(error=wrong, seconds=seconds)
    return Reply(answer, seconds=seconds)


def typed(error: Exception, timeout: float) -> SummaryError:
    """What a summarizer raised, as one of our errors."""
    if isinstance(error, SummaryError):
        return error
    if isinstance(error, TimeoutError):
        return SummaryTimeout(f"no summary within {timeout:g} s; raise summary.timeout or use a faster model")
    return ModelUnavailable(f"the summarizer raised {type(error).__name__}: {error}")
