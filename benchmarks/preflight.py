"""What a preflight costs its host while nothing is due, as figures of one run on one machine, each next to its bar.

Owns: the measurements behind the first part of `make bench`; folds and sessions are in `folding`, peers in `peers`.
Must never: use a network, sleep, or write outside a temporary directory and its section of docs/benchmarks.md.
"""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from statistics import mean
from tempfile import TemporaryDirectory

from document import figures_table, machine, write_section
from measuring import (
    ROOMY,
    Figure,
    Messages,
    Part,
    Speaker,
    copies_of,
    count,
    cpu,
    exponent,
    fast_extra,
    manager_for,
    measured,
    quiet,
    verdict,
    without_fast,
)

from compact import CompactManager
from compact._conversation.tokens import counter_for

TURNS = 300
"""Turns timed."""


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
    """One turn appended at 123,000 tokens, against counting that turn alone with tiktoken."""
    if not fast_extra:
        yield _steady("1 steady preflight ÷ counting the new text", speaker, 1.5)
        return
    yield Figure(**without_fast("preflight", "tell_steady"))  # the bar is for tiktoken on both sides
    yield _steady("  … with the fast extra ÷ tiktoken", speaker, None)


def _steady(name: str, speaker: Speaker, bar: float | None) -> Figure:
    history = speaker.history_of(123_000)
    size = len(history)
    (preflights,), counts = steady(speaker, history)
    detail = (
        f"{quiet(preflights) * 1e6:.1f} µs ÷ {quiet(counts) * 1e6:.1f} µs; mean {mean(preflights) * 1e6:.0f}, "
        f"longest {max(preflights) * 1e6:,.0f} µs; from {size:,} messages"
    )
    return Figure(name, quiet(preflights) / quiet(counts), "×", bar, detail)


def tell_steady() -> None:
    """The first figure, as JSON: for the run that has another counter."""
    print(json.dumps(asdict(_steady("1 steady preflight ÷ counting the new text", Speaker(0), 1.5))))


def growth(speaker: Speaker) -> Iterator[Figure]:
    """The same at three lengths; the exponent is the slope of cost over length, both as logarithms."""
    sizes = (1_000, 5_000, 20_000)
    preflights, _ = steady(speaker, *(speaker.history(messages=size) for size in sizes))
    costs = list(map(quiet, preflights))
    detail = ", ".join(f"{size:,}: {cost * 1e6:.1f} µs" for size, cost in zip(sizes, costs, strict=True))
    yield Figure("2 growth with the messages, exponent", exponent(sizes, costs), "", 0.1, detail)


def copies(speaker: Speaker) -> Iterator[Figure]:
    """Hosts that do not pass the same list again: equal copies, new lists, and the full history after a fold."""
    kinds: tuple[tuple[str, Callable[[Messages], Messages], int, float], ...] = (
        ("3 equal copies (JSON and back), 128k tokens", copies_of, 128_000, 1.0),
        ("4 equal copies, 1M tokens", copies_of, 1_000_000, 4.0),
        ("5 a new list of the same messages, 128k tokens", list, 128_000, 1.0),
    )
    for name, passed_on, tokens, bar in kinds:
        history = speaker.history_of(tokens)
        size, costs = len(history), again(speaker, manager_for(ROOMY), history, passed_on)
        yield Figure(name, quiet(costs) * 1e3, "ms", bar, f"longest {max(costs) * 1e3:.2f} ms; {size:,} messages")
        manager = manager_for(tokens)
        costs = again(speaker, manager, speaker.history_of(tokens), passed_on)
        yield Figure(
            "  … of the full history, folded before",
            quiet(costs) * 1e3,
            "ms",
            bar,
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
    for _ in range(60):
        history += speaker.turn()
        given = passed_on(history)
        costs.append(cpu(partial(manager.preflight, "bench", given)))
    return costs


def cold_count(speaker: Speaker) -> Iterator[Figure]:
    """Counting 128,000 tokens that nobody has counted, by the meter and by tiktoken, both loaded."""
    meter = counter_for("tiktoken", "gpt-4o").count
    meter(speaker.text())
    costs: dict[str, list[float]] = {"meter": [], "tiktoken": []}
    for run in range(12):
        texts = [message["content"] for message in speaker.history_of(128_000)]
        works = {"meter": lambda t=texts: sum(map(meter, t)), "tiktoken": lambda t=texts: count(t)}
        for name in sorted(works, reverse=bool(run % 2)):
            costs[name].append(cpu(works[name]))
    ours, theirs = (quiet(costs[name]) * 1e3 for name in ("meter", "tiktoken"))
    with_what = "the fast extra" if fast_extra else "tiktoken: the bar is for the fast extra, which is not installed"
    bar = 10.0 if fast_extra else None
    yield Figure("6 cold count of 128k tokens", ours, "ms", bar, f"by {with_what}; tiktoken alone {theirs:.1f} ms")


# -- import ------------------------------------------------------------------------------------------------------------


def imports(_: Speaker) -> Iterator[Figure]:
    """`import compact` against a program that defines one pydantic model, each in a fresh interpreter."""
    programs = {
        "compact": "import compact",
        "pydantic": "from pydantic import BaseModel\nclass Model(BaseModel):\n    field: int = 1",
    }
    best = dict.fromkeys(programs, math.inf)
    with TemporaryDirectory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
        for _run in range(16):  # the first run only writes the bytecode
            for name, program in programs.items():
                start = time.perf_counter()
                subprocess.run([sys.executable, "-c", program], env=environment, check=True)
                best[name] = min(best[name], time.perf_counter() - start)
    detail = " ÷ ".join(f"{seconds * 1e3:.0f} ms" for seconds in best.values())
    yield Figure("7 import compact ÷ a pydantic model", best["compact"] / best["pydantic"], "×", 1.3, detail)


PARTS: tuple[Part, ...] = (steady_ratio, growth, copies, cold_count, imports)


def main() -> int:
    """Measure, print, and write the section."""
    started = time.perf_counter()
    figures = measured(PARTS)
    write_section("preflight", ["## A preflight in which nothing is due", "", *figures_table(figures), "", *machine()])
    return verdict(figures, time.perf_counter() - started)


if __name__ == "__main__":
    sys.exit(main())
