"""Two drivers for one flow: the only places where a summarizer is called and time passes.

Owns: `drive`, `adrive`, and turning whatever a summarizer does into a `Reply`. Must never: decide anything.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from ._asks import Ask
from ._effects import Effect, Emit, Reply, Summarize, Wait
from ._job import Outcome
from ._policy import SummaryPolicy
from .errors import ConfigError, ModelUnavailable, SummaryError, SummaryTimeout
from .models import Summarizer, extract

__all__ = ["adrive", "drive"]

Flow = Generator[Effect, Any, Outcome]


def drive(flow: Flow, perform: Callable[[Effect], Any], summarizer: Summarizer, policy: SummaryPolicy) -> Outcome:
    """Run a flow on this thread."""
    answer: Any = None
    try:
        while True:
            effect = flow.send(answer)
            if isinstance(effect, Summarize):
                chosen = extract if effect.offline else summarizer
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


async def adrive(
    flow: Flow, perform: Callable[[Effect], Any], summarizer: Summarizer, policy: SummaryPolicy
) -> Outcome:
    """Run a flow on the event loop: summarizers are awaited side by side, stores work in a thread."""
    answer: Any = None
    try:
        while True:
            effect = flow.send(answer)
            if isinstance(effect, Summarize):
                chosen = extract if effect.offline else summarizer
                answer = await asyncio.gather(*(_aask(chosen, ask, policy.timeout) for ask in effect.asks))
            elif isinstance(effect, Wait):
                await asyncio.sleep(effect.seconds)
                answer = None
            elif isinstance(effect, Emit):
                answer = perform(effect)
            else:
                answer = await asyncio.to_thread(perform, effect)
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
        return _reply(answer, started)
    except Exception as error:
        return Reply(error=_typed(error, timeout), seconds=time.perf_counter() - started)


async def _aask(summarizer: Summarizer, ask: Ask, timeout: float) -> Reply:
    started = time.perf_counter()
    try:
        if inspect.iscoroutinefunction(summarizer):
            answer: Any = summarizer(ask)
        else:
            answer = await asyncio.wait_for(asyncio.to_thread(summarizer, ask), timeout)
        if inspect.isawaitable(answer):
            answer = await asyncio.wait_for(answer, timeout)
        return _reply(answer, started)
    except Exception as error:
        return Reply(error=_typed(error, timeout), seconds=time.perf_counter() - started)


def _wait_for(answer: Awaitable[str], timeout: float) -> str:
    async def wait() -> str:
        return await asyncio.wait_for(answer, timeout)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    if inspect.iscoroutine(answer):
        answer.close()
    raise ConfigError("an async summarizer cannot run in preflight() inside an event loop; await apreflight()")


def _reply(answer: Any, started: float) -> Reply:
    seconds = time.perf_counter() - started
    if not isinstance(answer, str):
        wrong = ModelUnavailable(f"the summarizer returned {type(answer).__name__}, not text")
        return Reply(error=wrong, seconds=seconds)
    return Reply(answer, seconds=seconds)


def _typed(error: Exception, timeout: float) -> SummaryError:
    if isinstance(error, SummaryError):
        return error
    if isinstance(error, TimeoutError):
        return SummaryTimeout(f"no summary within {timeout:g} s; raise summary.timeout or use a faster model")
    return ModelUnavailable(f"the summarizer raised {type(error).__name__}: {error}")
