"""The driver for event loops: the same flow, the same results, without stopping the loop.

Owns: `adrive`, and waiting for a thread that must not be left alone. Must never: decide anything, or do blocking work
on the loop: stores and sync summarizers, the built-in one included, get a thread.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from .._pipeline.effects import Effect, Emit, Summarize, SummaryReply, Wait
from .._pipeline.job import Outcome
from .._summary.request import Ask
from ..config.sections import SummaryPolicy
from ..errors import ConfigError
from ..summarizers import Summarizer, offline_summarizer
from .run import Flow, failed_reply, in_thread, reply_of

__all__ = ["adrive", "to_the_end"]


async def adrive(
    flow: Flow, perform: Callable[[Effect], Any], summarizer: Summarizer | None, policy: SummaryPolicy
) -> Outcome:
    """Run a flow on the event loop; the requests of one batch are made side by side."""
    answer: Any = None
    try:
        while True:
            effect = flow.send(answer)
            if isinstance(effect, Summarize):
                chosen = None if effect.offline else summarizer
                answer = await asyncio.gather(*(_ask(chosen, ask, policy.timeout) for ask in effect.asks))
            elif isinstance(effect, Wait):
                await asyncio.sleep(effect.seconds)
                answer = None
            elif isinstance(effect, Emit):
                answer = perform(effect)
            else:
                answer = await to_the_end(asyncio.to_thread(perform, effect))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


async def to_the_end(work: Coroutine[Any, Any, Any]) -> Any:
    """Await work in a thread; a cancelled caller waits until the thread is done, so nothing goes on behind its back."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):  # again, by a timeout inside of a timeout
                await asyncio.wait([task])
        raise


async def _ask(summarizer: Summarizer | None, ask: Ask, timeout: float) -> SummaryReply:
    """Ask and wait; a caller that is cancelled leaves at once, whatever the summarizer does."""
    started = time.perf_counter()
    answer: Any
    try:
        if summarizer is None:  # as without a loop, it has all the time it needs
            return reply_of(await asyncio.wrap_future(in_thread(offline_summarizer(), ask)), started)
        async with asyncio.timeout(timeout):
            if inspect.iscoroutinefunction(summarizer):
                answer = await summarizer(ask)
            else:
                answer = await asyncio.wrap_future(in_thread(summarizer, ask))
                if inspect.isawaitable(answer):
                    answer = await answer
        return reply_of(answer, started)
    except ConfigError:  # the caller must act; no fallback would mend it
        raise
    except Exception as error:
        return failed_reply(error, started, timeout)
