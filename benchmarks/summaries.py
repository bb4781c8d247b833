"""What the built-in summarizer costs, and what it keeps of real transcripts, each next to its bar.

Owns: the measurements behind `make fidelity`, and `compacted`, the function that the scorer calls.
Must never: use a network, or write outside a temporary directory.

    python benchmarks/summaries.py                    cost and memory, and what is kept when ../shared is there
    retention.py FILES --compactor summaries:compacted    the scorer's own table

The cost is CPU time on a transcript grown from a seed (examples/demo_transcript.py); what is kept is scored by
`../shared/fidelity/retention.py` on `../shared/transcripts`, which are not part of this project.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from measuring import Figure

from compact import CompactConfig, compact_messages
from compact._conversation.formats import FORMATS
from compact._facts.facts import facts_of
from compact._facts.measure import measure
from compact._facts.values import values_in_token
from compact._summary.request import Ask
from compact.summarizers.extract import extract

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
CONFIG = CompactConfig(model="gpt-4o", counter="chars", max_context_tokens=10_000_000)
BARS = {"0.1": 0.65, "0.25": 0.85, "0.5": 0.95, "ref": 0.75}
ANSWERS = {"0.1": 0.25, "0.25": 0.50, "0.5": 0.75}


def compacted(history: list[Any], budget: int, count: Callable[[Any], int]) -> list[Any]:
    """What the scorer calls: this history in at most `budget` tokens, four characters to a token."""
    return compact_messages(history, budget, config=CONFIG)


def cost() -> Iterator[Figure]:
    """The built-in summarizer on 128,000 tokens, its memory, its growth, and the fidelity report beside it."""
    small, large = _ask(64_000), _ask(128_000)
    seconds = _seconds(lambda: extract(large))
    yield Figure("extract, 128,000 tokens, CPU", seconds, "s", 1.0)
    growth = seconds / _seconds(lambda: extract(small))
    yield Figure("  … growth for twice the text", growth, "×", 2.5)
    tracemalloc.start()
    body = extract(large)
    yield Figure("  … memory at its peak", tracemalloc.get_traced_memory()[1] / 1e6, "MB", 200.0)
    tracemalloc.stop()
    report = _seconds(lambda: measure(facts_of(large), body))
    yield Figure("facts and report, of one second", 100 * report, "%", 15.0, f"{report * 1e3:.0f} ms")


def _ask(tokens: int) -> Ask:
    sys.path.insert(0, str(ROOT / "examples"))
    story = importlib.import_module("demo_transcript").build(tokens=tokens)
    source = tuple(FORMATS["openai-chat"].read(message) for message in story if message["role"] != "system")
    count = count_characters
    return Ask(source, tuple(range(len(source))), None, "task_state", 2048, count=count)


def count_characters(text: str) -> int:
    """Four characters to a token, as the scorer counts."""
    return (len(text) + 3) // 4


def _seconds(work: Callable[[], Any]) -> float:
    """CPU time of the best of three runs, each with nothing remembered."""
    best = float("inf")
    for _ in range(3):
        values_in_token.cache_clear()
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def kept() -> Iterator[str]:
    """The scorer's table of what is left of real transcripts, and whether each bar is met."""
    sys.path[:0] = [str(SHARED / "fidelity"), str(Path(__file__).parent)]
    retention = importlib.import_module("retention")
    rows = ROOT / ".fidelity.json"
    files = sorted(map(str, (SHARED / "transcripts").glob("*.gz")))
    retention.main([*files, "--only", "none", "--compactor", "summaries:compacted", "--json", str(rows)])
    scored = [row for row in json.loads(rows.read_text()) if row["method"] == "summaries:compacted"]
    rows.unlink()
    for budget, bar in BARS.items():
        mine = [row for row in scored if str(row["budget"]) == budget]
        score = _geometric([_mean(mine, name) for name in ("far", "bound", "rules", "decisions")])
        spans, newest, answers = (_mean(mine, name) for name in ("spans", "newest", "qa"))
        sound = all(row["valid"] and not row["over"] for row in mine)
        marks = [score >= bar, sound, spans >= 0.85, newest >= 0.95, answers >= ANSWERS.get(budget, 0)]
        yield (
            f"{budget:>5}: SCORE {score:.3f} (bar {bar}), spans {spans:.2f}, newest {newest:.2f}, qa {answers:.2f}, "
            f"valid {sound}: {'met' if all(marks) else 'MISSED'}"
        )


def _mean(rows: list[dict[str, Any]], name: str) -> float:
    """Averaged inside a kind of transcript, then over kinds, as the scorer does."""
    kinds = sorted({row["kind"] for row in rows})
    means = []
    for kind in kinds:
        values = [float(row[name]) for row in rows if row["kind"] == kind and row[name] is not None]
        means += [sum(values) / len(values)] if values else []
    return sum(means) / len(means) if means else 1.0


def _geometric(values: list[float]) -> float:
    product = 1.0
    for value in values:
        product *= value
    return product ** (1 / len(values))


def main() -> int:
    """Print every figure; 1 when a bar is missed."""
    missed = 0
    for figure in cost():
        print(figure, flush=True)
        missed += not figure.met
    if not SHARED.exists():
        print("what is kept: not measured, ../shared is not there")
        return min(missed, 1)
    for line in kept():
        print(line, flush=True)
        missed += "MISSED" in line
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
