"""Running the pipeline on a thread: advance it, perform its effects, ask the summarizer, wait.

Owns: `drive`, `advance`, and calling a summarizer in a thread that can be abandoned.
Must never: hold a rule of compaction, or wait longer for a summarizer than `summary.timeout`.

`drive_async` does the same on an event loop; these two are the only modules in which a summarizer is called and time
passes. A thread cannot be stopped, so a sync summarizer that hangs is abandoned: its daemon thread neither holds up the
end of the interpreter nor takes a place in an executor of the application.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from .._pipeline.effects import Effect, Steps, Summarize, SummaryReply, Wait
from .._pipeline.outcome import Outcome
from .._summary.request import Ask
from ..config.sections import SummaryPolicy
from ..errors import ConfigError, ModelUnavailable, SummaryError, SummaryTimeout
from ..summarizers import Summarizer, Written, offline_summarizer

if TYPE_CHECKING:
    from concurrent.futures import Future


def advance(steps: Steps, answer: Any, perform: Callable[[Effect], Any]) -> Summarize | Wait | Outcome:
    """Run the pipeline on this thread until it needs a summarizer or a pause, or is done."""
    try:
        effect = steps.send(answer)
        while not isinstance(effect, Summarize | Wait):
            effect = steps.send(perform(effect))
        return effect
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def drive(
    steps: Steps, perform: Callable[[Effect], Any], summarizer: Summarizer | None, policy: SummaryPolicy
) -> Outcome:
    """Run the pipeline to its end on this thread."""
    answer: Any = None
    try:
        while not isinstance(state := advance(steps, answer, perform), Outcome):
            if isinstance(state, Wait):
                time.sleep(state.seconds)
                answer = None
            else:
                chosen = None if state.offline else summarizer
                answer = [_ask(chosen, ask, policy.timeout) for ask in state.asks]
        return state
    finally:
        steps.close()


def _ask(summarizer: Summarizer | None, ask: Ask, timeout: float) -> SummaryReply:
    started = time.perf_counter()
    answer: Any
    try:
        if summarizer is None:
            answer = offline_summarizer()(ask)
        elif inspect.iscoroutinefunction(summarizer):
            answer = summarizer(ask)
        else:
            answer = in_thread(summarizer, ask).result(timeout)
        if inspect.isawaitable(answer):
            answer = _wait_for(answer, timeout - (time.perf_counter() - started))
        return reply_of(answer, started)
    except ConfigError:  # the caller must act; no fallback would help
        raise
    except Exception as error:
        return failed_reply(error, started, timeout)


def _wait_for(answer: Awaitable[str], timeout: float) -> str:
    import asyncio  # here, for the same reason as in `_engine.fair_lock`

    async def wait() -> str:
        return await asyncio.wait_for(answer, timeout)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    if inspect.iscoroutine(answer):
        answer.close()
    raise ConfigError("an async summarizer cannot run in preflight() inside an event loop; await apreflight()")


def in_thread(summarizer: Summarizer, ask: Ask) -> Future[Any]:
    """Call a summarizer in a new daemon thread, with the caller's context variables."""
    from concurrent.futures import Future  # here, because only summarizers that are passed in need it

    future: Future[Any] = Future()
    context = copy_context()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(context.run(summarizer, ask))
        except StopIteration:  # a future cannot carry it: it would end the waiting generator
            future.set_exception(RuntimeError("StopIteration"))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="compact-summarizer", daemon=True).start()
    return future


def reply_of(answer: Any, started: float) -> SummaryReply:
    """What a summarizer returned, as a reply."""
    seconds = time.perf_counter() - started
    if isinstance(answer, Written):
        return SummaryReply(str(answer), seconds=seconds, tokens=answer.tokens, model=answer.model)
    if isinstance(answer, str):
        return SummaryReply(answer, seconds=seconds)
    wrong = ModelUnavailable(f"the summarizer returned {type(answer).__name__}, not text")
    return SummaryReply(error=wrong, seconds=seconds)


def failed_reply(error: Exception, started: float, timeout: float) -> SummaryReply:
    """What a summarizer raised, as a reply with one of our errors."""
    seconds = time.perf_counter() - started
    if isinstance(error, SummaryError):
        return SummaryReply(error=error, seconds=seconds, tokens=error.tokens)
    if isinstance(error, TimeoutError):
        late = SummaryTimeout(f"no summary within {timeout:g} s; raise summary.timeout or use a faster model")
        return SummaryReply(error=late, seconds=seconds)
    failure = ModelUnavailable(f"the summarizer raised {type(error).__name__}: {error}")
    return SummaryReply(error=failure, seconds=seconds)
