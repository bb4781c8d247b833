"""Replays conversations under policies, and gives the results in order.

Owns: `replay`, and the order of its results. Must never: print, or know how a report looks.

Results are stored as they arrive and read in the order of conversations and policies, so a report does not depend on
the number of workers, on their speed, or on whether the run was killed and resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from ..errors import ConfigError
from ..importers import Conversation
from .executors import Engine, Task, in_process
from .results import Result, Results
from .trial import Setting, Trial

RESULTS = "results.jsonl"
"""The file that a run is resumed from."""

Progress = Callable[[int, int], None]
"""Called with the number of results, and how many of them were known before."""


class Lab:
    """The results of a run, in order. Iterating gives one conversation's results at a time, one for each trial."""

    def __init__(self, results: Results, trials: Sequence[Trial], setting: Setting) -> None:
        self.trials, self.setting = tuple(trials), setting
        self._results = results
        self._order: list[list[str]] = []

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[list[Result]]:
        names = [trial.name for trial in self.trials]  # the key of a result does not depend on the trial's name
        return (
            [replace(self._results[key], policy=name) for key, name in zip(keys, names, strict=True)]
            for keys in self._order
        )

    def close(self) -> None:
        """Close the file of results."""
        self._results.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def replay(
    conversations: Iterable[Conversation],
    trials: Sequence[Trial],
    setting: Setting | None = None,
    *,
    engine: Engine = in_process,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Lab:
    """Replay every conversation under every trial. With a `folder`, results are stored there and reused next time."""
    setting = setting or Setting()
    names = [trial.name for trial in trials]
    if not names or len(set(names)) < len(names):
        twice = next((name for name in names if names.count(name) > 1), None)
        raise ConfigError(f"two policies are named {twice}; give each file its own name" if twice else "no policy")
    results = Results(folder / RESULTS if folder is not None else None)
    lab = Lab(results, trials, setting)
    new = known = 0
    asked: set[str] = set()

    def tasks() -> Iterator[Task]:
        nonlocal known
        for conversation in conversations:
            keys = Task.keys(conversation, trials, setting)
            lab._order.append(keys)
            # A log that is named twice is run once.
            left = [(k, trial) for k, trial in zip(keys, trials, strict=True) if k not in results and k not in asked]
            asked.update(key for key, _ in left)
            known += len(keys) - len(left)
            if left:
                yield Task(conversation, left, setting)

    try:
        for done in engine(tasks()):
            for key, result in done:
                results.add(key, result)
                new += 1
            if progress is not None:
                progress(new + known, known)
    except BaseException:
        results.close()
        raise
    if progress is not None:
        progress(new + known, known)
    return lab
