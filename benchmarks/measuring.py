"""What all benchmarks share: figures with bars, texts nobody has seen, clocks, and the one who judges every request.

Owns: `Figure`, `report`, `Speaker`, `Judge`, the clocks, and managers that ask nobody.
Must never: use a network, or know what is measured.

Rules:
- A cost is compared with something measured in the same run. Only such ratios carry over to another machine.
- Both sides of a ratio get texts they have not seen, in turn and in alternating order, so that neither finds a
  warmer cache. Making texts and copies is never timed.
- CPU time, the lower quartile of many, unless a figure says otherwise: on a busy machine the upper half of them is the
  others' work, which empties caches.
- The garbage collector stays on: a host has it on too.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import linear_regression, quantiles
from typing import Any

from compact import CompactConfig, CompactManager
from compact._conversation.tables import encoding
from compact._conversation.tokens import counter_for

ROOT = Path(__file__).resolve().parents[1]
# Behind all else, so that nobody gets another version of anything.
sys.path += [*(str(ROOT / "tests" / name) for name in ("support", "summarizers")), str(Path(sys.prefix) / "peers")]

from provider_rules import problems  # noqa: E402

Messages = list[dict[str, Any]]

ROOMY = 100_000_000
"""A window in which nothing is ever due."""
SHORT, LONG = 84, 134
"""Words of a text: about 120 tokens, and 192, so that a thousand turns have three times 128,000."""
WORDS = (
    "the parser reads one token at a time and keeps the newest three in a small buffer so that a caller may look ahead "
    "without paying twice because we decided to retry src/app/reader.py after timeout=30 raised ValueError: bad offset "
    "4096 in commit 4f2a91c on branch feature/lookahead; next step is tests/test_reader.py::test_peek, then user 7731"
).split()
SUMMARY = "Goal: ship the parser. Decided: peek() takes no offset."
"""What every summarizer here answers, at once."""
PER_MESSAGE = 4
"""What a message costs besides its text: three tokens and its role."""

FAST = "toktok"
"""What the extra `fast` brings; whoever cannot import it counts with tiktoken."""
fast_extra = getattr(counter_for("tiktoken", "gpt-4o"), "encoder", "tiktoken") != "tiktoken"
"""Whether the meter has chosen it."""


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

    @property
    def shown(self) -> tuple[str, str, str]:
        """The value, the bar and the verdict, as they are printed."""
        bar = "" if self.bar is None else f"≤ {self.bar:g} {self.unit}".rstrip()
        value = f"{self.value:,.0f}" if abs(self.value) >= 1_000 else f"{self.value:.3g}"
        return f"{value} {self.unit}".rstrip(), bar, "" if self.bar is None else "met" if self.met else "MISSED"

    def __str__(self) -> str:
        value, bar, verdict = self.shown
        return f"{self.name:<50} {value:>10}  {bar:<9} {verdict:<7} {self.detail}"


class Speaker:
    """Messages of about 120 tokens, or as many as the words give, no two alike, the same ones in every run."""

    def __init__(self, seed: int, words: int = SHORT) -> None:
        self._random = Random(seed)
        self._words = words

    def text(self) -> str:
        """A text nobody has seen."""
        return " ".join(self._random.choices(WORDS, k=self._words))

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
            used += count(message["content"] for message in turn) + 2 * PER_MESSAGE
            history += turn
        return history


class Judge:
    """Looks at every request from outside: would a provider refuse it, and is it over the window?

    A list that only grew is judged by what is new; any other is judged whole. Messages need text and nothing else,
    unless they are passed with `whole`.
    """

    def __init__(self, window: int) -> None:
        self.requests = self.invalid = self.over = 0
        self.largest = 0
        self._window = window
        self._last: Messages | None = None
        self._size = self.tokens = 0

    def see(self, request: Messages, *, whole: bool = False) -> None:
        """Judge one request."""
        start = self._size if request is self._last and not whole else 0
        if not start:
            self.tokens = 3
        fresh = request[start:]
        self.tokens += count(_texts(fresh)) + PER_MESSAGE * len(fresh)
        self._last, self._size = request, len(request)
        self.requests += 1
        self.invalid += problems("openai-chat", fresh) != []
        self.over += self.tokens > self._window
        self.largest = max(self.largest, self.tokens)


def _texts(messages: Messages) -> Iterator[str]:
    for message in messages:
        yield message.get("content") or ""
        for call in message.get("tool_calls") or ():
            yield call["function"]["name"]
            yield call["function"]["arguments"]


encode = encoding("o200k_base").encode_ordinary
"""tiktoken's encoder: the floor that everything is compared with."""


def count(texts: Iterable[str]) -> int:
    """Tokens of some texts, by tiktoken's encoder alone."""
    return sum([len(encode(text)) for text in texts])


def at_once(_: Any) -> str:
    """A summarizer that answers at once, and keeps nothing of what it was asked."""
    return SUMMARY


def manager_for(window: int, **settings: Any) -> CompactManager:
    """A manager without archive and sinks, whose summarizer answers at once."""
    return CompactManager(config_for(window, **settings), summarizer=at_once)


def config_for(window: int, **settings: Any) -> CompactConfig:
    """A configuration without an archive, unless one is given."""
    return CompactConfig(model="gpt-4o", max_context_tokens=window, **{"storage": {"adapter": "none"}, **settings})


def without_facts(window: int) -> CompactManager:
    """Such a manager that measures no summary."""
    return manager_for(window, summary={"measure": False})


def without_fast(module: str, function: str) -> Any:
    """What a function of a benchmark prints, in a process that cannot find the fast extra: it counts with tiktoken."""
    code = f"import sys; sys.modules['{FAST}'] = None; import {module}; {module}.{function}()"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=Path(__file__).parent, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


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


def quiet(costs: Sequence[float]) -> float:
    """The lower quartile: what it costs while nobody else is in the way."""
    return quantiles(costs, n=4)[0] if len(costs) > 2 else min(costs)


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of cost over size, both as logarithms: 0 is flat, 1 is linear."""
    return linear_regression(list(map(math.log, sizes)), list(map(math.log, costs))).slope


Part = Callable[[Speaker], Iterator[Figure]]


def measured(parts: Sequence[Part]) -> list[Figure]:
    """Measure, and print every figure as it comes."""
    print(f"{'what':<50} {'measured':>10}  {'bar':<9} {'':<7} behind it")
    figures = []
    for seed, part in enumerate(parts):
        print(f"\r{part.__name__.replace('_', ' ')} …", end="\x1b[K", file=sys.stderr, flush=True)
        for figure in part(Speaker(seed)):
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            print(figure, flush=True)
            figures.append(figure)
    return figures


def report(parts: Sequence[Part]) -> int:
    """Print every figure as it is measured; 1 when a bar is missed."""
    started = time.perf_counter()
    return verdict(measured(parts), time.perf_counter() - started)


def verdict(figures: Sequence[Figure], seconds: float) -> int:
    """Say how many bars were missed; 1 when any was."""
    missed = sum(not figure.met for figure in figures)
    print(f"{missed} bars missed, {seconds:.0f} s")
    return min(missed, 1)


def copies_of(history: Messages) -> Messages:
    """The same messages as other objects, as they come from a file or a wire."""
    again: Messages = json.loads(json.dumps(history))
    return again
