"""What it costs to be given something made to hurt. Part of `make bench`.

Owns: hostile configuration files (T31), texts full of what redaction looks for (T17), texts that trap an expression,
and leaving a model that never answers (T21).
Must never: use a network. The tests hold the same inputs to what has to come out; only here are they timed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from measuring import Figure, Speaker, cpu, report

from compact import Ask, CompactConfig, CompactManager, redact
from compact.errors import ConfigError
from compact.summarizers.extract import extract

import hostile_texts as hostile  # isort: skip  # of the tests, which `measuring` makes importable
from test_extract import TRAPS, trapped  # isort: skip

TEXT = 131_072
UNITS = 500


def best(work: Callable[[], object], tries: int = 3) -> float:
    """CPU milliseconds of the quickest of some tries: others on the machine only make it slower."""
    return min(cpu(work) for _ in range(tries)) * 1_000


def files(_: Speaker) -> Iterator[Figure]:
    """Configuration files that are refused."""
    took: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        for name, (text, _said) in hostile.YAML.items():
            file = Path(folder, "compact.yaml")
            file.write_bytes(text if isinstance(text, bytes) else text.encode())

            def load(file: Path = file) -> None:
                with suppress(ConfigError):
                    CompactConfig.load(file)

            took[name] = best(load)
    slowest = max(took, key=lambda name: took[name])
    yield Figure("a hostile YAML file is refused", took[slowest], "ms", 100, f"{slowest}, of {len(took)} files")


def secrets(_: Speaker) -> Iterator[Figure]:
    """Texts that are one literal of redaction, or two, again and again."""
    took: dict[str, float] = {}
    for unit in hostile.literal_units(UNITS):
        text = hostile.filled(unit, TEXT)
        took[unit] = best(lambda text=text: redact(text), 1)
    for unit in sorted(took, key=lambda unit: took[unit])[-20:]:
        text = hostile.filled(unit, TEXT)
        took[unit] = best(lambda text=text: redact(text))
    slowest = max(took, key=lambda unit: took[unit])
    over = sum(ms > 250 for ms in took.values())
    detail = f"{slowest!r} again and again; {over} of {len(took)} such texts above 250"
    yield Figure("128 KB of hostile text redacted", took[slowest], "ms", 250, detail)
    four = hostile.filled(slowest, 4 * TEXT)
    yield Figure("… and four times as much", best(lambda: redact(four)) / took[slowest], "×", 5)


def expressions(_: Speaker) -> Iterator[Figure]:
    """Texts that trap an expression which looks too far, for the summarizer without a model."""
    growth: dict[str, float] = {}
    for unit in TRAPS:
        small, large = trapped(unit, 20_000), trapped(unit, 80_000)
        growth[unit] = best(lambda large=large: extract(large)) / best(lambda small=small: extract(small))
    steepest = max(growth, key=lambda unit: growth[unit])
    yield Figure("extract, four times the text", growth[steepest], "×", 6, f"{steepest!r} again and again")


def leaving(speaker: Speaker) -> Iterator[Figure]:
    """A call that is cancelled while the model thinks."""

    async def never(_: Ask) -> str:
        await asyncio.sleep(600)
        return ""

    async def cancelled() -> float:
        config = CompactConfig(model="gpt-4o", max_context_tokens=8_000, storage={"adapter": "none"})
        with CompactManager(config, summarizer=never) as manager:
            task = asyncio.create_task(manager.apreflight("s", speaker.history_of(9_000)))
            await asyncio.sleep(0.3)
            started = time.perf_counter()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            return (time.perf_counter() - started) * 1_000

    took = [asyncio.run(cancelled()) for _ in range(5)]
    yield Figure("a cancelled call returns", max(took), "ms", 100, "the slowest of five, by the clock")


if __name__ == "__main__":
    sys.exit(report([files, secrets, expressions, leaving]))
