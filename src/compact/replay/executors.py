"""Executes replay tasks in this process or in several, and defines the interface of other executors.

Owns: `Task`, `Engine`, `in_process`, `processes`, and retrying the tasks of a worker that died.
Must never: know what a result means.

An engine takes tasks one by one and gives their results as they are done, in any order. It holds few tasks at a time,
so the logs are read no faster than they are replayed. A task contains its conversation: a worker needs no access to the
logs, and reading them is fast compared with replaying them.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from hashlib import blake2b
from multiprocessing import get_context, parent_process
from threading import Thread

from .. import __version__
from ..errors import CompactError
from ..importers import Conversation
from .recording import Recording
from .results import Result
from .run import run
from .trial import Setting, Trial

QUEUED_PER_WORKER = 2
"""Tasks that are queued for each worker, so that none is idle while the logs are read."""
MAX_ATTEMPTS = 3
"""How often a task is run when its worker dies."""


@dataclass(frozen=True, slots=True)
class Task:
    """One conversation, and the trials to replay it under with their keys."""

    conversation: Conversation
    trials: Sequence[tuple[str, Trial]]
    setting: Setting

    @classmethod
    def keys(cls, conversation: Conversation, trials: Sequence[Trial], setting: Setting) -> list[str]:
        """The key of each result: a hash of everything that it depends on."""
        one = conversation
        known = [__version__, one.id, one.source, one.model, one.messages, one.tools, one.times]
        whole = json.dumps(known, default=str)
        digest = blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        return [f"{digest}-{trial.fingerprint}-{setting.fingerprint}" for trial in trials]


TaskResults = list[tuple[str, Result]]
"""Results by key."""

Engine = Callable[[Iterable[Task]], Iterator[TaskResults]]
"""Takes tasks, and gives their results in any order."""


def run_task(task: Task) -> TaskResults:
    """Replay one conversation under its trials. An error in one of them is its result, and does not end the run."""
    recording = Recording(task.conversation)
    done = []
    for key, trial in task.trials:
        try:
            result = run(recording, trial, task.setting)
        except Exception as error:  # one conversation must not end a run of thousands
            result = _failed_result(
                task, trial, f"{type(error).__name__}: {error}" if isinstance(error, CompactError) else _BUG
            )
        done.append((key, result))
    return done


_BUG = "it could not be replayed; please report this with the log"


def crashed_results(task: Task) -> TaskResults:
    """The results of a task whose workers died `MAX_ATTEMPTS` times."""
    why = f"its process died {MAX_ATTEMPTS} times; it may need more memory than is free"
    return [(key, _failed_result(task, trial, why)) for key, trial in task.trials]


def unsendable_results(task: Task) -> TaskResults:
    """The results of a task that cannot be sent to another process."""
    why = "it is nested too deeply to be sent to another process; replay it alone, with one process"
    return [(key, _failed_result(task, trial, why)) for key, trial in task.trials]


def _failed_result(task: Task, trial: Trial, why: str) -> Result:
    return Result(conversation=task.conversation.id, source=task.conversation.source, policy=trial.name, error=why)


def in_process(tasks: Iterable[Task]) -> Iterator[TaskResults]:
    """Run tasks one by one in this process."""
    return map(run_task, tasks)


def processes(number: int) -> Engine:
    """An engine that runs tasks in this number of processes on this machine."""

    def engine(tasks: Iterable[Task]) -> Iterator[TaskResults]:
        fresh = iter(tasks)
        again: list[_Attempt] = []
        while True:
            # Not forked: a fork of a program with threads may hang.
            with ProcessPoolExecutor(number, mp_context=get_context("spawn"), initializer=_start_worker) as pool:
                running: dict[Future[TaskResults], _Attempt] = {}
                try:
                    while _submit_tasks(pool, running, again, fresh, number):
                        for future in wait(running, return_when=FIRST_COMPLETED).done:
                            error = future.exception()
                            if isinstance(error, BrokenProcessPool):
                                raise error
                            task, _ = running.pop(future)
                            yield future.result() if error is None else unsendable_results(task)
                    return
                except BrokenProcessPool:
                    # A worker died, and with it the pool. Which task it ran is unknown, so all are run again.
                    for task, deaths in running.values():
                        if deaths + 1 < MAX_ATTEMPTS:
                            again.append((task, deaths + 1))
                        else:
                            yield crashed_results(task)
                finally:
                    for future in running:
                        future.cancel()

    return engine


_Attempt = tuple[Task, int]
"""A task, and how many pools died while it ran."""


def _submit_tasks(
    pool: ProcessPoolExecutor,
    running: dict[Future[TaskResults], _Attempt],
    again: list[_Attempt],
    fresh: Iterator[Task],
    number: int,
) -> bool:
    """Submit tasks until the queue is full; False when no task is left.

    A task that was queued when a worker died runs alone, so that one which kills every worker affects no other.
    """
    while True:
        suspected = bool(again) or any(deaths for _, deaths in running.values())
        if len(running) >= (1 if suspected else number * (1 + QUEUED_PER_WORKER)):
            return True
        task, deaths = again.pop() if again else (next(fresh, None), 0)
        if task is None:
            return bool(running)
        try:
            running[pool.submit(run_task, task)] = task, deaths
        except BrokenProcessPool:
            again.append((task, deaths))
            raise


def _start_worker() -> None:
    """Initialize a worker: it ignores Ctrl-C, which its parent handles, and exits with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # it would wait for tasks forever: its end of the queue stays open
