"""What `compact` costs its host, as figures of one run on one machine, each next to its bar.

Owns: the measurements behind `make bench`. Must never: use a network, sleep, or write outside a temporary directory.

Rules:
- A cost is compared with something measured in the same run: counting the new text alone, importing a library that
  is needed anyway, the time an agent spends waiting for its model. Only such ratios carry over to another machine.
- Both sides of a ratio get texts they have not seen, in turn and in alternating order, so that neither finds a
  warmer cache. Making texts and copies is never timed.
- Short stretches are CPU time, median of many; imports are CPU time, best of many; S39 is wall time, as it says.
- The garbage collector stays on: a host has it on too. The longest call is shown beside the median for that reason.
"""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import linear_regression, mean, median
from tempfile import TemporaryDirectory
from typing import Any

from compact import CompactConfig, CompactManager
from compact._tables import encoding
from compact.testing import ScriptedModel

Messages = list[dict[str, str]]

TURNS = 300
"""Turns timed where a median is wanted."""
ROOMY = 100_000_000
"""A window in which nothing is ever due."""
WORDS_PER_TEXT = 84
WORDS = (
    "the parser reads one token at a time and keeps the newest three in a small buffer so that a caller may look ahead "
    "without paying twice because we decided to retry src/app/reader.py after timeout=30 raised ValueError: bad offset "
    "4096 in commit 4f2a91c on branch feature/lookahead; next step is tests/test_reader.py::test_peek, then user 7731"
).split()


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: what was measured, what came out, and the bar it is held against, if any."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    detail: str = ""

    @property
    def met(self) -> bool:
        """Whether the bar is met; without a bar there is nothing to miss."""
        return self.bar is None or self.value <= self.bar

    def __str__(self) -> str:
        bar = "" if self.bar is None else f"≤ {self.bar:g} {self.unit}".rstrip()
        verdict = "" if self.bar is None else "met" if self.met else "MISSED"
        return f"{self.name:<46} {f'{self.value:.3g} {self.unit}'.rstrip():>10}  {bar:<9} {verdict:<7} {self.detail}"


class Speaker:
    """Messages of about 120 tokens, no two alike, the same ones in every run."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def text(self) -> str:
        """A text nobody has seen."""
        return " ".join(self._random.choices(WORDS, k=WORDS_PER_TEXT))

    def turn(self) -> Messages:
        """What a user and an assistant say."""
        return [{"role": "user", "content": self.text()}, {"role": "assistant", "content": self.text()}]

    def history(self, *, messages: int) -> Messages:
        """A system message and turns, of this many messages together."""
        history = [{"role": "system", "content": self.text()}]
        while len(history) < messages:
            history += self.turn()
        return history[:messages]

    def history_of(self, tokens: int) -> Messages:
        """A system message and turns, of this many tokens together, less one turn at most."""
        history, used = self.history(messages=1), 130
        while used < tokens - 270:
            turn = self.turn()
            used += count(message["content"] for message in turn) + 8
            history += turn
        return history


encode = encoding("o200k_base").encode_ordinary
"""The very encoder that the meter counts with."""


def count(texts: Iterable[str]) -> int:
    """Tokens of some texts, by the encoder alone."""
    return sum([len(encode(text)) for text in texts])


def manager_for(window: int, **settings: Any) -> CompactManager:
    """A manager without archive and sinks, whose summarizer answers at once."""
    config = CompactConfig(model="gpt-4o", max_context_tokens=window, **{"storage": {"adapter": "none"}, **settings})
    return CompactManager(config, summarizer=ScriptedModel("Goal: ship the parser. Decided: peek() takes no offset."))


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of one piece of work."""
    started = time.process_time_ns()
    work()
    return (time.process_time_ns() - started) / 1e9


def wall(work: Callable[[], object]) -> float:
    """Seconds of one piece of work."""
    started = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - started) / 1e9


# -- preflights in which nothing is due --------------------------------------------------------------------------------


def steady(speaker: Speaker, *histories: Messages) -> tuple[list[list[float]], list[float]]:
    """CPU seconds of each preflight of lists that grow side by side, and of counting as much new text alone."""
    manager = manager_for(ROOMY)
    for number, history in enumerate(histories):
        manager.preflight(f"bench-{number}", history)
    gc.collect()
    preflights: list[list[float]] = [[] for _ in histories]
    counts: list[float] = []
    for turn in range(TURNS):
        texts = [speaker.text(), speaker.text()]
        works: list[tuple[list[float], Callable[[], object]]] = [(counts, partial(count, texts))]
        for number, history in enumerate(histories):
            history += speaker.turn()
            works.append((preflights[number], partial(manager.preflight, f"bench-{number}", history)))
        for costs, work in works if turn % 2 else reversed(works):
            costs.append(cpu(work))
    return preflights, counts


def steady_ratio(speaker: Speaker) -> Iterator[Figure]:
    """One turn appended at 123,000 tokens, against counting that turn alone."""
    history = speaker.history_of(123_000)
    size = len(history)
    (preflights,), counts = steady(speaker, history)
    yield Figure(
        "1 steady preflight ÷ counting the new text",
        median(preflights) / median(counts),
        "×",
        2.0,
        f"{median(preflights) * 1e6:.1f} µs ÷ {median(counts) * 1e6:.1f} µs; mean {mean(preflights) * 1e6:.0f}, "
        f"longest {max(preflights) * 1e6:,.0f} µs; from {size:,} messages",
    )


def growth(speaker: Speaker) -> Iterator[Figure]:
    """The same at three lengths; the exponent is the slope of cost over length, both as logarithms."""
    sizes = (1_000, 5_000, 20_000)
    preflights, _ = steady(speaker, *(speaker.history(messages=size) for size in sizes))
    medians = list(map(median, preflights))
    exponent = linear_regression(list(map(math.log, sizes)), list(map(math.log, medians))).slope
    detail = ", ".join(f"{size:,}: {cost * 1e6:.1f} µs" for size, cost in zip(sizes, medians, strict=True))
    yield Figure("2 growth with the messages, exponent", exponent, "", 0.1, detail)


def copies(speaker: Speaker) -> Iterator[Figure]:
    """Hosts that do not pass the same list again: equal copies, new lists, and the full history after a fold."""
    kinds: dict[str, Callable[[Messages], Messages]] = {
        "3 equal copies (JSON and back)": lambda history: json.loads(json.dumps(history)),
        "4 a new list of the same messages": list,
    }
    for name, passed_on in kinds.items():
        history = speaker.history_of(128_000)
        size, costs = len(history), again(speaker, manager_for(ROOMY), history, passed_on)
        yield Figure(name, median(costs) * 1e3, "ms", 1.0, f"longest {max(costs) * 1e3:.2f} ms; {size:,} messages")
        manager = manager_for(128_000)
        history = speaker.history_of(128_000)
        costs = again(speaker, manager, history, passed_on)
        yield Figure(
            "  … of the full history, folded before",
            median(costs) * 1e3,
            "ms",
            1.0,
            f"longest {max(costs) * 1e3:.2f} ms; {len(manager.session('bench').folds)} fold replayed",
        )


def again(
    speaker: Speaker, manager: CompactManager, history: Messages, passed_on: Callable[[Messages], Messages]
) -> list[float]:
    """CPU seconds of each preflight of a host that passes its whole history on, in its own way, a turn longer each."""
    manager.preflight("bench", passed_on(history))
    manager.preflight("bench", passed_on(history))
    gc.collect()
    costs = []
    for _ in range(100):
        history += speaker.turn()
        given = passed_on(history)
        costs.append(cpu(partial(manager.preflight, "bench", given)))
    return costs


# -- folds -------------------------------------------------------------------------------------------------------------


def one_fold(speaker: Speaker) -> Iterator[Figure]:
    """The preflight that folds 128,000 tokens: read again, plan, fit, splice, laws; then with the archive as well."""
    kinds = {
        "5 one fold at 128k, instant summarizer": "none",
        "  … with redaction and a durable archive": "fs",
    }
    for name, adapter in kinds.items():
        costs: list[float] = []
        folded = 0
        for _ in range(7):
            history = speaker.history_of(128_000)
            total = manager_for(ROOMY).should_compact("bench", history).usage.total
            last_turn = [history.pop(), history.pop()][::-1]
            with (
                TemporaryDirectory() as folder,
                manager_for(int(total / 0.85), storage={"adapter": adapter, "path": folder}) as manager,
            ):
                manager.preflight("bench", history)
                history += last_turn
                gc.collect()
                costs.append(wall(partial(manager.preflight, "bench", history)))
                (fold,) = manager.session("bench").folds
                folded = fold.folded
        detail = f"longest {max(costs) * 1e3:.1f} ms; {folded:,} messages folded"
        yield Figure(name, median(costs) * 1e3, "ms", detail=detail)


def long_session(speaker: Speaker) -> Iterator[Figure]:
    """S39: 1,000 turns of an agent that waits 50 ms for each answer, with 5 folds by the built-in summarizer."""
    waited, window = 1_000 * 0.050, 60_000
    history = speaker.history(messages=1)
    spent, folds, longest = 0.0, 0, 0.0
    with (
        TemporaryDirectory() as folder,
        CompactManager(CompactConfig(max_context_tokens=window, storage={"path": folder})) as manager,
    ):
        manager.preflight("bench", history)
        gc.collect()
        for _ in range(1_000):
            history += speaker.turn()
            given = history
            at, used = time.perf_counter(), time.process_time()
            history = manager.preflight("bench", given)
            used, took = time.process_time() - used, time.perf_counter() - at
            spent += took
            if history is given:
                longest = max(longest, used)
            else:
                folds += 1
    if folds != 5:
        raise SystemExit(f"S39 wants 5 folds, and {folds} happened: change the window of {window:,} tokens.")
    share = 100 * spent / (spent + waited)
    detail = f"{spent:.2f} s of {spent + waited:.1f} s"
    yield Figure("7 share of wall time, 1,000 turns, 5 folds", share, "%", 10.0, detail)
    yield Figure("  … longest preflight without a fold, CPU", longest * 1e3, "ms", 10.0)


# -- import ------------------------------------------------------------------------------------------------------------


def imports(_: Speaker) -> Iterator[Figure]:
    """`import compact` against `import pydantic_settings`, which it needs, each in a fresh interpreter."""
    best = {"compact": math.inf, "pydantic_settings": math.inf}
    with TemporaryDirectory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
        for _run in range(16):  # the first run only writes the bytecode
            for name in best:
                code = f"import time; t = time.process_time(); import {name}; print(time.process_time() - t)"
                command = [sys.executable, "-c", code]
                printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
                best[name] = min(best[name], float(printed))
    detail = " ÷ ".join(f"{seconds * 1e3:.0f} ms" for seconds in best.values())
    ratio = best["compact"] / best["pydantic_settings"]
    yield Figure("6 import compact ÷ import pydantic_settings", ratio, "×", 1.5, detail)


PARTS: Sequence[Callable[[Speaker], Iterator[Figure]]] = (
    steady_ratio,
    growth,
    copies,
    one_fold,
    imports,
    long_session,
)


def report(parts: Sequence[Callable[[Speaker], Iterator[Figure]]]) -> int:
    """Print every figure as it is measured; 1 when a bar is missed."""
    started = time.perf_counter()
    print(f"{'what':<46} {'measured':>10}  {'bar':<9} {'':<7} behind it")
    missed = 0
    for seed, part in enumerate(parts):
        for figure in part(Speaker(seed)):
            print(figure, flush=True)
            missed += not figure.met
    print(f"{missed} bars missed, {time.perf_counter() - started:.0f} s")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(report(PARTS))
