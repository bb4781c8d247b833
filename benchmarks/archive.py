"""What keeping things costs: archiving, redacting beside an event loop, indexing. Part of `make bench`.

Owns: the measurements. Must never: use a network, or write outside a temporary directory.

Rules: as in `measuring`. Archiving is measured with a disk whose fsync does nothing, once with redaction and once
without: what a disk and the redactor cost is theirs.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from measuring import Figure, Speaker, cpu, report

from compact import CompactConfig, CompactManager, redact
from compact._archive.archive import Archive
from compact._redaction import Redactor
from compact._session.session import Session
from compact.stores.fs import Disk, FileStore

TOKENS = 128_000
RUNS = 7


def archiving(speaker: Speaker) -> Iterator[Figure]:
    """A transcript of 128k tokens, from the list to the file."""
    history = speaker.history_of(TOKENS)
    costs: dict[bool, list[float]] = {True: [], False: []}
    with TemporaryDirectory() as folder:
        store = FileStore(folder, disk=Disk(fsync=lambda file: None))
        for run in range(RUNS):
            for redacting, taken in costs.items():
                archive = Archive(store, Redactor(redacting), "fs")
                session = Session(f"{redacting}-{run}".lower())
                taken.append(cpu(lambda a=archive, s=session: a.save_transcript(s, history)) * 1e3)  # type: ignore[misc]
    whole, bare = median(costs[True]), median(costs[False])
    yield Figure("1 archiving 128k tokens, without redaction", bare, "ms", 30, f"with it {whole:.0f} ms")


def loop_lag(speaker: Speaker) -> Iterator[Figure]:
    """T29: how late an event loop ticks while a thread redacts a megabyte, and while `apreflight` folds it."""
    text = "\n".join(speaker.text() for _ in range(2_200))[:1_000_000]
    for name, big in (
        ("2 loop lag, redacting 1 MB of lines", text),
        ("3 loop lag, in one line", text.replace("\n", " ")),
    ):
        yield Figure(name, asyncio.run(_lag_while(lambda big=big: redact(big))) * 1e3, "ms", 50)  # type: ignore[misc]
    yield Figure("4 loop lag, apreflight with 1 MB", asyncio.run(_lag_of_fold(text)) * 1e3, "ms", 50)


async def _lag_while(work: Any) -> float:
    task = asyncio.create_task(asyncio.to_thread(work))
    return await _lag(task)


async def _lag(task: asyncio.Task[Any]) -> float:
    worst = 0.0
    while not task.done():
        started = time.perf_counter()
        await asyncio.sleep(0.001)
        worst = max(worst, time.perf_counter() - started - 0.001)
    await task
    return worst


async def _lag_of_fold(text: str) -> float:
    with TemporaryDirectory() as folder:
        config = CompactConfig(max_context_tokens=100_000, storage={"path": str(Path(folder) / "archive")})
        with CompactManager(config) as manager:
            history = [{"role": "user", "content": "read it"}, {"role": "assistant", "content": text}]
            history += [{"role": "user", "content": "go on"}]
            await manager.apreflight("warm", history[:1])
            return await _lag(asyncio.create_task(manager.apreflight("s", history)))


if __name__ == "__main__":
    sys.exit(report((archiving, loop_lag)))
