"""What it costs to find folded messages again, and how often it succeeds, each next to its bar.

Owns: the measurements behind `make recall`.
Must never: use a network, or write outside a temporary directory.

    python benchmarks/recall.py               found facts (where ../shared is at hand) and the cost of indexing
    python benchmarks/recall.py --million     also a million messages, in one session and in a thousand: some minutes

A fact is a value (an identifier, a path, a number, a name, something quoted) of a folded message that the list which
went out after the fold does not hold. It is looked for within its session by two neighbouring words, the pair nearest
to it of which neither is one of the 200 commonest words of the whole archive. Words are what stands between blanks
("blanks"), runs of letters, digits and underscores ("words"), or runs of three and more letters ("letters"; the
values themselves are often not even part of such a query), always in lower case.
"""

from __future__ import annotations

import argparse
import bisect
import gzip
import importlib
import json
import logging
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from measuring import Figure

from compact import CompactConfig, CompactManager, InsufficientBudget
from compact._archive.search_index import SearchIndex
from compact._archive.search_tables import FoldedMessage, Steps
from compact._conversation.formats import FORMATS
from compact._facts.values import find_values

ROOT = Path(__file__).resolve().parents[1]
TRANSCRIPTS = ROOT.parent / "shared" / "transcripts"
PER_FILE, PER_SESSION = 12, 40
CUTS = {"blanks": r"\S+", "words": r"\w+", "letters": r"[^\W\d_]{3,}"}
FAR = 200
"""Characters between a fact and the words it is looked for by, at most."""

Messages = list[dict[str, Any]]


@dataclass
class Session:
    """A session that was folded: what each fold took out, and the text of what it left."""

    id: str
    folds: list[tuple[list[tuple[int, str]], str]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every figure; 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description="How well and how fast folded messages are found again.")
    parser.add_argument("--million", action="store_true", help="also search a million messages")
    options = parser.parse_args(arguments)
    logging.getLogger("compact").setLevel(logging.ERROR)  # small windows that cannot fit are no news here
    missed = 0
    for part in (found, indexing, *((million,) if options.million else ())):
        with tempfile.TemporaryDirectory() as folder:
            for figure in part(Path(folder)):
                print(figure, flush=True)
                missed += not figure.met
    return min(missed, 1)


# -- facts that a fold dropped --------------------------------------------------------------------------------------


def found(folder: Path) -> Iterator[Figure]:
    """How often a dropped fact is among the first three answers."""
    if not TRANSCRIPTS.exists():
        print("facts: not measured, ../shared is not there", file=sys.stderr)
        return
    config = CompactConfig(model="gpt-4o", counter="chars", storage={"path": str(folder / "archive")})
    with CompactManager(config) as manager:
        sessions = list(_read_folded(folder / "archive"))
        for name, pattern in CUTS.items():
            asked = holds = same = 0
            for session, position, value, query in _facts(sessions, re.compile(pattern)):
                answers = manager.recall(session, query, limit=3)
                asked += 1
                holds += any(value in answer.text for answer in answers)
                same += any(answer.position == position for answer in answers)
            detail = f"{asked:,} facts; the very message in {same / asked:.1%}"
            yield Figure(f"facts not in the first three, {name}", 100 * (1 - holds / asked), "%", 5.0, detail)


def _read_folded(archive: Path) -> Iterator[Session]:
    """The shared transcripts lived through in small windows."""
    for path in sorted(TRANSCRIPTS.glob("*.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            stories = [json.loads(line) for line in file][:PER_FILE]
        for number, story in enumerate(stories):
            _say(f"folding {path.name}: {number + 1} of {len(stories)}")
            yield _fold(f"{path.name.partition('.')[0].lower()}-{number}", story["messages"], archive)
    _say("")


def _fold(session_id: str, story: Messages, archive: Path) -> Session:
    tokens = sum(len(_text(message)) for message in story) // 4
    window = max(3_000, min(16_000, tokens // 3))
    config = CompactConfig(
        model="gpt-4o",
        counter="chars",
        max_context_tokens=window,
        policy={"hard_cap_buffer": window // 10},
        storage={"path": str(archive)},
    )
    session = Session(session_id, [])
    with CompactManager(config) as manager:
        context: Messages = []
        done = 0
        for until in [i for i in range(1, len(story)) if story[i]["role"] == "assistant"] + [len(story)]:
            context, done = [*context, *story[done:until]], until
            step = manager.session(session_id).step
            try:
                context = manager.preflight(session_id, context)
            except InsufficientBudget:
                break
            if manager.session(session_id).step > step:
                gone = [f"[#{one.position}]" for one in manager.diff(session_id).changes if one.mark in "-~"]
                originals = manager.recall(session_id, cite=" ".join(gone))
                left = "\n".join(map(_text, context))
                session.folds.append(([(one.position, one.text) for one in originals], left))
    return session


def _facts(sessions: Sequence[Session], word: re.Pattern[str]) -> Iterator[tuple[str, int, str, str]]:
    """Session, position, value and query of facts, at most so many of a session."""
    counts = Counter(
        spelled.lower()
        for session in sessions
        for originals, _ in session.folds
        for _, text in originals
        for spelled in word.findall(text)
    )
    common = {spelled for spelled, _ in counts.most_common(200)}
    chance = random.Random(7)
    for session in sessions:
        facts = []
        for originals, left in session.folds:
            for position, text in originals:
                pairs = _pairs(text, word, common)
                values = [(value, at + len(value) // 2) for _, value, at in find_values(text)]
                for value, middle in values:
                    if len(value) >= 4 and value not in left and (query := _nearest(pairs, middle)):
                        facts.append((session.id, position, value, query))
        yield from chance.sample(facts, min(len(facts), PER_SESSION))


def _pairs(text: str, word: re.Pattern[str], common: set[str]) -> list[tuple[float, str]]:
    """Neighbouring words, neither of them common, with where their middle is."""
    words = [(match.start(), match.end(), match.group().lower()) for match in word.finditer(text)]
    return [
        ((start + end) / 2, f"{first} {second}")
        for (start, _, first), (_, end, second) in pairwise(words)
        if first not in common and second not in common
    ]


def _nearest(pairs: Sequence[tuple[float, str]], middle: float) -> str:
    at = bisect.bisect(pairs, (middle, ""))
    far, query = min(((abs(where - middle), pair) for where, pair in pairs[max(0, at - 1) : at + 1]), default=(FAR, ""))
    return query if far < FAR else ""


def _text(message: dict[str, Any]) -> str:
    read = FORMATS["openai-chat"].read(message)
    calls = (f"{call.name}({call.arguments})" for call in read.calls)
    return "\n".join([read.text, *calls, *(answer.text for answer in read.answers)])


# -- cost -----------------------------------------------------------------------------------------------------------


def indexing(folder: Path) -> Iterator[Figure]:
    """The first search after a fold of 128,000 tokens of four characters, which indexes it, and the next one."""
    sys.path.insert(0, str(ROOT / "examples"))
    story: Messages = importlib.import_module("demo_transcript").build(tokens=152_000)
    sizes = f"{len(story):,} messages, {sum(len(_text(message)) for message in story):,} characters"
    folded = FoldedMessage(1, "", tuple(enumerate(story)))
    first, next_ = [], []
    for run in range(7):
        index = SearchIndex(folder / str(run))
        for times in (first, next_):
            started = time.perf_counter()
            index.search("one", "no such words", Steps([1], lambda _: "", lambda _: folded))
            times.append(time.perf_counter() - started)
    yield Figure("index 128,000 tokens and search", 1e3 * min(first), "ms", 60.0, f"{sizes}; best of 7")
    yield Figure("  … search again", 1e3 * min(next_), "ms")


# -- a million ------------------------------------------------------------------------------------------------------


def million(folder: Path) -> Iterator[Figure]:
    """Queries of all kinds over a million messages."""
    corpus = Corpus()
    for name, sessions, steps in (("1 session", 1, 1_000), ("1,000 sessions", 1_000, 1)):
        index = SearchIndex(folder / name.replace(" ", "-"))
        listed = range(1, steps + 1)
        started = time.perf_counter()
        for number in range(sessions):
            index.search(f"s{number}", "zzzz", Steps(listed, _same, partial(corpus.step, number)))
        _say("")
        spent = time.perf_counter() - started
        yield Figure(f"a million messages in {name}: indexing", spent, "s", None, f"{spent:.0f} µs a message")
        times: dict[str, list[float]] = {}
        for kind, query in corpus.queries(2_000):
            place = f"s{corpus.random.randrange(sessions)}"
            started = time.perf_counter()
            if kind == "citation":
                at = corpus.random.randrange(steps * 1_000)
                index.positions(place, [(at, at + 6)], Steps(listed, _same, _never))
            else:
                index.search(place, query, Steps(listed, _same, _never))
            times.setdefault(kind, []).append(1e3 * (time.perf_counter() - started))
        everything = sorted(value for values in times.values() for value in values)
        detail = ", ".join(f"{kind} {_share(sorted(values), 0.95):.2g}" for kind, values in times.items())
        yield Figure("  … search, p95", _share(everything, 0.95), "ms", 50.0, f"p95 by kind: {detail}")
        yield Figure("  … search, p99", _share(everything, 0.99), "ms", 400.0, f"longest {everything[-1]:.0f} ms")


def _share(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))]


def _same(step: int) -> str:
    return ""


def _never(step: int) -> FoldedMessage:
    raise AssertionError(f"step {step} was indexed before")


class Corpus:
    """Messages of words that are as unequal as those of a language, the same ones in every run."""

    def __init__(self) -> None:
        self.random = random.Random("queries")
        self.words = [self._word(number) for number in range(120_000)]
        # The n-th commonest word comes 1/n as often as the commonest.
        self.weights: list[float] = []
        total = 0.0
        for number in range(len(self.words)):
            total += 1 / (number + 3)
            self.weights.append(total)

    def step(self, session: int, step: int) -> FoldedMessage:
        """A thousand messages of 40 words each."""
        _say(f"indexing session {session + 1:,}, step {step:,}")
        chance = random.Random(session * 100_000 + step)
        words = chance.choices(self.words, cum_weights=self.weights, k=40_000)
        texts = [" ".join(words[40 * n : 40 * n + 40]) for n in range(1_000)]
        first = (step - 1) * 1_000
        return FoldedMessage(
            step, "", tuple((first + n, {"role": "user", "content": text}) for n, text in enumerate(texts))
        )

    def queries(self, count: int) -> Iterator[tuple[str, str]]:
        """Queries of every kind, in turn."""
        kinds: dict[str, Callable[[], list[str]]] = {
            "rare pair": lambda: self.random.choices(self.words[5_000:], k=2),
            "pair": lambda: self.random.choices(self.words[200:20_000], k=2),
            "common pair": lambda: self.random.choices(self.words[:200], k=2),
            "common word": lambda: self.random.choices(self.words[:200], k=1),
            "rare word": lambda: self.random.choices(self.words[20_000:], k=1),
            "question": lambda: self.random.choices(self.words, cum_weights=self.weights, k=8),
            "part of a word": lambda: [self.random.choice(self.words[2_000:])[1:-1]],
            "citation": list,
        }
        for number in range(count):
            kind = list(kinds)[number % len(kinds)]
            yield kind, " ".join(kinds[kind]())

    def _word(self, number: int) -> str:
        syllables = "ba ce di fo gu ha ke li mo nu pa re si to vu wa ye zi".split()
        word = ""
        while number or not word:
            number, rest = divmod(number, len(syllables))
            word += syllables[rest]
        return word + "nrst"[len(word) % 4]


def _say(what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
