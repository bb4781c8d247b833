"""A thousand sessions of three windows each, judged from outside: `make soak`.

Owns: the soak and its section of docs/benchmarks.md. Must never: use a network, or let the engine judge itself.

An agent with tools speaks to a scripted model at a window of 128,000 tokens: words, calls (one or three at once), and
results of very different sizes. Every request is judged by `tests/support/provider_rules.py` and counted
again. Two processes share the sessions; each has one manager for twenty sessions, which take turns, and notes its
memory when they are done.
`--sessions N` plays fewer.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median

from document import figures_table, machine, write_section
from measuring import Figure, Judge, Messages, at_once, config_for, verdict

from compact import CompactManager

WINDOW, TIMES = 128_000, 3
TOGETHER = 20
"""Sessions that one manager has at a time."""
LOG = [
    f"{level} {name} {what} in {n} ms"
    for level in ("INFO", "DEBUG", "WARN")
    for name in ("reader", "parser", "index", "store", "queue")
    for n, what in enumerate(
        ("opened the next file", "kept three tokens back", "looked ahead", "gave the buffer away", "found nothing new")
    )
]
SAID = (
    "I will look at the reader before I change it, because the offset is not what the test expects.",
    "The buffer keeps three tokens and the caller may look ahead; that is what we decided, so it stays.",
    "Two tests still fail, and both read past the end; I will mend the first and run them again.",
    "Please go on, and do not touch the public names.",
)


@dataclass
class Played:
    """What one process saw."""

    sessions: int = 0
    requests: int = 0
    folds: int = 0
    invalid: int = 0
    over: int = 0
    largest: int = 0
    tokens: int = 0
    memory: list[int] = field(default_factory=list)
    """Resident bytes after each twenty sessions."""


class Agent:
    """One session: its words, its list, and who judges its requests."""

    def __init__(self, number: int) -> None:
        self.id = f"soak-{number}"
        self.history: Messages = [{"role": "system", "content": f"You are agent {number}. {SAID[3]}"}]
        self.judge = Judge(WINDOW)
        self.said = self.folds = 0
        self._random = Random(number)
        self._calls = 0

    def goes_on(self, manager: CompactManager) -> None:
        """A step or two of a conversation, and the request behind each."""
        self._says({"role": "user", "content": self._words(3)})
        self._asks(manager)
        for _ in range(self._random.choice((1, 2, 4))):
            count = self._random.choice((1, 1, 3))
            ids = [f"call_{self._calls + n}" for n in range(count)]
            self._calls += count
            calls = [
                {"id": i, "type": "function", "function": {"name": "look", "arguments": json.dumps({"at": i})}}
                for i in ids
            ]
            self._says({"role": "assistant", "content": None, "tool_calls": calls})
            for i in ids:
                lines = self._random.choice((4, 40, 40, 400))
                self._says({"role": "tool", "tool_call_id": i, "content": self._log(lines)})
            self._asks(manager)
        self._says({"role": "assistant", "content": self._words(5)})

    def _asks(self, manager: CompactManager) -> None:
        given, self.history = self.history, manager.preflight(self.id, self.history)
        self.folds += self.history is not given
        before = self.judge.requests and self.judge.tokens
        self.judge.see(self.history, whole=self.history is not given)
        self.said += max(0, self.judge.tokens - before)

    def _says(self, message: dict[str, object]) -> None:
        self.history.append(message)

    def _words(self, sentences: int) -> str:
        return " ".join(self._random.choices(SAID, k=sentences)) + f" ({self._random.random():.6f})"

    def _log(self, lines: int) -> str:
        number = self._random.randrange(10**6)
        return "\n".join(f"{number + n} {line}" for n, line in enumerate(self._random.choices(LOG, k=lines)))


def play(numbers: range, told: bool) -> Played:
    """So many sessions, twenty at a time."""
    seen = Played()
    for start in range(numbers.start, numbers.stop, TOGETHER):
        with CompactManager(config_for(WINDOW), summarizer=at_once) as manager:
            agents = [Agent(number) for number in range(start, min(start + TOGETHER, numbers.stop))]
            waiting = agents
            while waiting:
                for agent in waiting:
                    agent.goes_on(manager)
                waiting = [agent for agent in waiting if agent.said < TIMES * WINDOW]
            seen.memory.append(_resident())
        for agent in agents:
            judge = agent.judge
            seen.sessions, seen.requests = seen.sessions + 1, seen.requests + judge.requests
            seen.invalid, seen.over = seen.invalid + judge.invalid, seen.over + judge.over
            seen.folds, seen.tokens = seen.folds + agent.folds, seen.tokens + agent.said
            seen.largest = max(seen.largest, judge.largest)
        if told:
            share = (start - numbers.start + TOGETHER) / len(numbers)
            print(f"\rsoak: {min(1, share):.0%}", end="\x1b[K", file=sys.stderr, flush=True)
    return seen


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def figures_of(halves: list[Played], seconds: float) -> list[Figure]:
    """What came of it, with the bars."""
    sessions, requests = sum(half.sessions for half in halves), sum(half.requests for half in halves)
    tokens, folds = sum(half.tokens for half in halves), sum(half.folds for half in halves)
    worst, first, second = max(_growth(half.memory) for half in halves)
    said = f"{requests:,} requests, {tokens:,} tokens said, {folds:,} folds, in {seconds:,.0f} s"
    largest = f"the largest had {max(half.largest for half in halves):,} of {WINDOW:,} tokens"
    grown = f"median of the second half {second / 1e6:.0f} MB ÷ first half {first / 1e6:.0f} MB"
    return [
        Figure("sessions of three windows", sessions, "", detail=said),
        Figure("requests over the window", sum(half.over for half in halves), "", 0.0, largest),
        Figure("requests that a provider would refuse", sum(half.invalid for half in halves), "", 0.0),
        Figure("memory, second half ÷ first", worst, "×", 1.1, grown),
    ]


def _growth(memory: list[int]) -> tuple[float, float, float]:
    # What the first manager loads once is no growth.
    samples = memory[1:] or memory
    middle = max(1, len(samples) // 2)
    first, second = median(samples[:middle]), median(samples[middle:] or samples)
    return second / first, first, second


def main() -> int:
    """Play, print, and write the section."""
    sessions = int(sys.argv[sys.argv.index("--sessions") + 1]) if "--sessions" in sys.argv else 1_000
    started = time.perf_counter()
    parts = range(sessions // 2), range(sessions // 2, sessions)
    with ProcessPoolExecutor(2) as pool:
        halves = list(pool.map(play, parts, (True, False)))
    print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    seconds = time.perf_counter() - started
    figures = figures_of(halves, seconds)
    print(*figures, sep="\n")
    write_section("soak", ["## Soak", "", *figures_table(figures), "", *machine()])
    return verdict(figures, seconds)


if __name__ == "__main__":
    sys.exit(main())
