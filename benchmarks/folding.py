"""What folds cost, and sessions that have them: stages, growth, memory, and how long an agent waits for one.

Owns: the measurements behind the second part of `make bench`.
Must never: use a network, or write outside a temporary directory and its section of docs/benchmarks.md.

"Without facts" is `summary.measure: false`: nothing is read out of the folded text, and no summary is measured. The
built-in summarizer is never asked here, except for S39.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from document import figures_table, machine, write_section
from measuring import (
    LONG,
    PER_MESSAGE,
    SUMMARY,
    Figure,
    Judge,
    Messages,
    Part,
    Speaker,
    at_once,
    config_for,
    count,
    cpu,
    exponent,
    fast_extra,
    manager_for,
    measured,
    quiet,
    verdict,
    without_facts,
    without_fast,
)

from compact import CompactConfig, CompactManager
from compact.stores.fs import Disk, FileStore

RUNS = 9
"""Folds timed of each kind."""


# -- one fold ----------------------------------------------------------------------------------------------------------


def one_fold(speaker: Speaker) -> Iterator[Figure]:
    """The preflight that folds, in two sizes: plan, fit, splice and laws; then with facts, redaction and archive."""
    sizes = {"128k": (128_000, 15.0, RUNS), "1M": (1_000_000, 150.0, 2)}
    whole: dict[int, float] = {}
    for number, (name, (tokens, bar, runs)) in enumerate(sizes.items(), start=1):
        costs: dict[Any, list[float]] = {without_facts: [], manager_for: []}
        folded = 0
        for _ in range(runs):
            for make, taken in costs.items():
                manager, history = _about_to_fold(speaker, tokens, make)
                taken.append(cpu(lambda m=manager, h=history: m.preflight("bench", h)))  # type: ignore[misc]
                (fold,) = manager.session("bench").folds
                folded = fold.folded
        bare, whole_call = (quiet(taken) * 1e3 for taken in costs.values())
        detail = f"the whole call; {folded:,} messages folded; with facts and report {whole_call:,.0f} ms"
        yield Figure(f"{number} one fold of {name}: plan, fit, splice, laws", bare, "ms", bar, detail)
        whole[tokens] = quiet(list(_archived(speaker, tokens, max(2, runs // 2))))
    small, large = (whole[tokens] * 1e3 for tokens, _, _ in sizes.values())
    detail = "the disk's fsync does nothing"
    yield Figure("3 … of 128k with facts, redaction and archive", small, "ms", 300.0, detail)
    growth = exponent(list(whole), list(whole.values()))
    yield Figure("  … growth to 1M, exponent", growth, "", 1.1, f"1M: {large:,.0f} ms")


def _about_to_fold(speaker: Speaker, tokens: int, make: Any) -> tuple[Any, Messages]:
    """A manager that knows a history of so many tokens, and the history with the turn that makes a fold due."""
    history = speaker.history_of(tokens)
    total = count(m["content"] for m in history) + PER_MESSAGE * len(history) + 3
    last_turn = [history.pop(), history.pop()][::-1]
    manager = make(int(total / 0.85))
    manager.preflight("bench", history)
    history += last_turn
    gc.collect()
    return manager, history


def _archived(speaker: Speaker, tokens: int, runs: int) -> Iterator[float]:
    for _ in range(runs):
        with TemporaryDirectory() as folder:
            store = FileStore(folder, disk=Disk(fsync=lambda file: None))

            def keeping(window: int, store: FileStore = store) -> CompactManager:
                return CompactManager(config_for(window), summarizer=at_once, store=store)

            manager, history = _about_to_fold(speaker, tokens, keeping)
            yield cpu(lambda m=manager, h=history: m.preflight("bench", h))  # type: ignore[misc]
            manager.close()


# -- sessions ----------------------------------------------------------------------------------------------------------


@dataclass
class Session:
    """A session that was played: CPU seconds of counting alone, and of all preflights."""

    turns: int
    window: int
    floor: float = 0.0
    spent: float = 0.0
    folds: int = 0
    judge: Judge = field(init=False)

    def __post_init__(self) -> None:
        self.judge = Judge(self.window)

    @property
    def ratio(self) -> float:
        """Against counting."""
        return self.spent / self.floor


def played(turns: int, windows: float, seed: int, make: Callable[[int], CompactManager] = without_facts) -> Session:
    """So many turns, which are so many windows together, by a host that keeps what it is given."""
    speaker, others = Speaker(seed, LONG), Speaker(-1 - seed, LONG)
    session = Session(turns, int(turns * 2 * (191 + PER_MESSAGE) / windows))
    manager, history = make(session.window), speaker.history(messages=1)
    gc.collect()
    for turn in range(turns):
        history += speaker.turn()
        given, texts = history, [others.text(), others.text()]
        if turn % 2:
            session.floor += cpu(lambda t=texts: count(t))  # type: ignore[misc]
        started = time.process_time_ns()
        history = manager.preflight("bench", given)
        session.spent += (time.process_time_ns() - started) / 1e9
        if not turn % 2:
            session.floor += cpu(lambda t=texts: count(t))  # type: ignore[misc]
        session.folds += history is not given
        session.judge.see(history)
    return session


def _spent(session: Session) -> float:
    return session.spent


def tell_sessions() -> None:
    """The best of two sessions of three and of ten windows, as JSON: for the run that has another counter."""
    best = [min((played(1_000, windows, seed) for seed in range(2)), key=_ratio) for windows in (3.0, 10.0)]
    print(json.dumps([(run.spent, run.floor, run.folds) for run in best]))


def _ratio(session: Session) -> float:
    return session.ratio


def sessions(_: Speaker) -> Iterator[Figure]:
    """A thousand turns of three and of ten windows against counting them; then from 250 to 4,000 turns."""
    seen: list[Session] = []
    by_tiktoken = without_fast("folding", "tell_sessions") if fast_extra else []
    for number, windows in ((4, 3.0), (5, 10.0)):
        best = min((played(1_000, windows, seed) for seed in range(2)), key=_ratio)
        whole = played(1_000, windows, 0, manager_for)
        seen += best, whole
        detail = (
            f"{best.spent:.3f} s ÷ {best.floor:.3f} s; {best.folds} folds; with facts and report {whole.spent:.2f} s"
        )
        yield Figure(f"{number} 1,000 turns, {windows:g} × the window ÷ counting them", best.ratio, "×", 2.2, detail)
        if fast_extra:
            spent, floor, folds = by_tiktoken[number - 4]
            detail = f"{spent:.3f} s ÷ {floor:.3f} s; {folds} folds"
            yield Figure("  … without the fast extra", spent / floor, "×", 2.2, detail)
    sizes = (250, 500, 1_000, 2_000, 4_000)
    grown = [min((played(size, 3.0, seed) for seed in range(1 + (size < 2_000))), key=_spent) for size in sizes]
    seen += grown
    detail = ", ".join(f"{run.turns:,}: {run.spent:.2f} s" for run in grown)
    yield Figure("6 growth with the turns, exponent", exponent(sizes, [run.spent for run in grown]), "", 1.05, detail)
    requests = sum(run.judge.requests for run in seen)
    bad = sum(run.judge.invalid for run in seen), sum(run.judge.over for run in seen)
    detail = f"{requests:,} requests, {sum(run.folds for run in seen)} folds; by rules and counts that are not ours"
    yield Figure("7 invalid requests in all of these", bad[0], "", 0.0, detail)
    yield Figure("  … over the window", bad[1], "", 0.0)


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
    detail = f"{spent:.2f} s of {spent + waited:.1f} s, with the archive"
    yield Figure("8 share of wall time, 1,000 turns, 5 folds", share, "%", 10.0, detail)
    yield Figure("  … longest preflight without a fold, CPU", longest * 1e3, "ms", 10.0)


# -- memory ------------------------------------------------------------------------------------------------------------


def memory(_: Speaker) -> Iterator[Figure]:
    """The most that a session of three folds ever allocates, in a process of its own, against its live text."""
    names = {
        "bare": "9 peak memory ÷ text of the live history",
        "facts": "  … with facts",
        "kept": "  … with facts, redaction and archive",
    }
    for kind, name in names.items():
        command = [sys.executable, str(Path(__file__)), "--memory", kind]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        text, most = told["text"], told["most"]
        detail = f"{most / 1e6:.2f} MB, of them the text itself {text / 1e6:.2f}; {told['folds']} folds"
        yield Figure(name, most / text, "×", 3.0, detail)


def tell_memory(kind: str) -> None:
    """Play the session with every allocation traced, and print what came out as JSON."""
    with TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"storage": {"adapter": "fs", "path": folder}} if kind == "kept" else {}
        with manager_for(128_000, summary={"measure": kind != "bare"}, **settings) as manager:
            # Tables, patterns and modules are loaded before: they are there once, however many sessions there are.
            manager.manual_compact("warm", Speaker(1).history(messages=60))
            speaker, folds, text = Speaker(0, LONG), 0, 0
            gc.collect()
            tracemalloc.start()
            history = speaker.history(messages=1)
            size = len(history[0]["content"])
            while folds < 3:
                turn = speaker.turn()
                history += turn
                size += sum(len(message["content"]) for message in turn)
                text = max(text, size)
                given, history = history, manager.preflight("bench", history)
                if history is not given:
                    folds += 1
                    size = sum(len(message["content"]) for message in history)
            print(json.dumps({"most": tracemalloc.get_traced_memory()[1], "text": text, "folds": folds}))


# -- waiting -----------------------------------------------------------------------------------------------------------


def waiting(_: Speaker) -> Iterator[Figure]:
    """An async host whose summarizer takes 2 s and whose model takes 0.3 s: the call that crosses the trigger."""
    prepared, plain = asyncio.run(_both())
    detail = f"{plain * 1e3:,.0f} ms without policy.prepare_pct; the summarizer takes 2 s, a model call 0.3 s"
    yield Figure("10 async: the call that crosses the trigger waits", prepared * 1e3, "ms", detail=detail)


async def _both() -> list[float]:
    return await asyncio.gather(_waited(0.6), _waited(None))


async def _waited(prepare_pct: float | None) -> float:
    """Seconds of the `apreflight` that folds."""

    async def summarizer(ask: Any) -> str:
        await asyncio.sleep(2.0)
        return SUMMARY

    policy = {"hard_cap_buffer": 500, "prepare_pct": prepare_pct}
    speaker, history = Speaker(0, LONG), Speaker(1, LONG).history_of(8_500)
    with CompactManager(config_for(16_000, policy=policy), summarizer=summarizer) as manager:
        while True:
            history += speaker.turn()
            given, started = history, time.perf_counter()
            history = await manager.apreflight("bench", given)
            if history is not given:
                return time.perf_counter() - started
            await asyncio.sleep(0.3)


PARTS: tuple[Part, ...] = (one_fold, sessions, long_session, memory, waiting)


def main() -> int:
    """Measure, print, and write the section."""
    if "--memory" in sys.argv:
        tell_memory(sys.argv[-1])
        return 0
    started = time.perf_counter()
    figures = measured(PARTS)
    write_section("folding", ["## Folds and sessions", "", *figures_table(figures), "", *machine()])
    return verdict(figures, time.perf_counter() - started)


if __name__ == "__main__":
    sys.exit(main())
