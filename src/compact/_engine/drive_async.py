"""Running the pipeline on an event loop: the same steps and results, without blocking the loop.

Owns: `adrive`, and awaiting a thread that must not be left alone.
Must never: hold a rule of compaction, or do blocking work on the loop: the pipeline advances in a thread.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from .._pipeline.effects import Effect, Steps, SummaryReply, Wait
from .._pipeline.outcome import Outcome
from .._summary.request import Ask
from ..config.sections import SummaryPolicy
from ..errors import ConfigError
from ..summarizers import Summarizer, offline_summarizer
from .drive import advance, failed_reply, in_thread, reply_of


async def adrive(
    steps: Steps, perform: Callable[[Effect], Any], summarizer: Summarizer | None, policy: SummaryPolicy
) -> Outcome:
    """Run the pipeline to its end; the requests of one batch are asked side by side."""
    answer: Any = None
    try:
        while not isinstance(state := await in_thread_to_end(advance, steps, answer, perform), Outcome):
            if isinstance(state, Wait):
                await asyncio.sleep(state.seconds)
                answer = None
            else:
                chosen = None if state.offline else summarizer
                answer = await asyncio.gather(*(_ask(chosen, ask, policy.timeout) for ask in state.asks))
        return state
    finally:
        steps.close()


async def in_thread_to_end(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a thread and await it, also when the caller is cancelled."""
    return await run_to_end(asyncio.to_thread(function, *arguments))


async def run_to_end(work: Coroutine[Any, Any, Any]) -> Any:
    """Await work; a cancelled caller waits until it is done, so that it does not go on alone."""
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
        if summarizer is None:  # as without a loop, it has no time limit
            return reply_of(await asyncio.wrap_future(in_thread(offline_summarizer(), ask)), started)
        async with asyncio.timeout(timeout):
            if inspect.iscoroutinefunction(summarizer):
                answer = await summarizer(ask)
            else:
                answer = await asyncio.wrap_future(in_thread(summarizer, ask))
                if inspect.isawaitable(answer):
                    answer = await answer
        return reply_of(answer, started)
    except ConfigError:  # the caller must act; no fallback would help
        raise
    except Exception as error:
        return failed_reply(error, started, timeout)
