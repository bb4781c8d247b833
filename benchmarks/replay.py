"""The replay lab: all shared transcripts on two processes, and ten thousand on Ray. `make bench-replay`.

Owns: the measurements. Must never: use a network but loopback, leave a process behind, or write outside a temporary
directory. `--quick` takes two minutes and is for trying it out; names of parts measure only these.

Rules:
- The ten thousand are the shared conversations with customers under other names and numbers, no two alike, as JSON
  lines in twenty files. Where `../shared` is missing, a generator makes longer ones.
- Conversations a second are counted from the first result to the last: to start a cluster takes as long for ten
  thousand as for ten. One worker and two get the same sample, in turns, and the better of two turns counts.
- Memory is what a process holds of its own (RssAnon), looked at twice a second: the driver, and the largest worker.
  Flat means that the peak of the second half is that of the first.
- The processes of Ray and the driver share the cores with the workers, so on a machine of two cores two workers cannot
  be twice as fast as one.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from random import Random
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

from measuring import Figure, Speaker, report

from compact.importers import read_logs
from compact.replay import Setting, Trial, Window, processes, replay, summed
from compact.replay.executors import Engine
from compact.replay.ray_executor import on_ray

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "transcripts"
QUICK = "--quick" in sys.argv
MANY, SAMPLE = (1_000, 300) if QUICK else (10_000, 1_500)
SHARDS = 20
SETTING = Setting(Window(share=0.25), model="gpt-4o")
NAMES = "ada aiko amir ben chloe dana elif emma fatima ivan juan kai lena liam mei noah olga omar raj sofia".split()
_USER = re.compile(r"\b([a-z]+)_([a-z]+)_(\d{4})\b")
_NUMBER = re.compile(r"\d{5,}|(?<=_)\d{4}\b")


class AtLeast(Figure):
    """A figure that has to be as large as its bar."""

    @property
    def met(self) -> bool:
        """Whether it is."""
        return self.bar is None or self.value >= self.bar

    def __str__(self) -> str:
        return super().__str__().replace("≤", "≥")


# -- ten thousand conversations ----------------------------------------------------------------------------------------


def originals() -> list[list[Any]]:
    """Conversations of some four thousand tokens each, with tools."""
    found = []
    for file in sorted(SHARED.glob("tau-*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            found += [json.loads(line)["messages"] for line in lines]
    if not found:
        sys.path.insert(0, str(ROOT / "examples"))
        build = import_module("demo_transcript").build
        found = [build(seed, 10_000) for seed in range(40)]
    return found


def renamed(messages: list[Any], chance: Random) -> list[Any]:
    """The same conversation of somebody else: other names, and other digits in long numbers, the same everywhere."""
    text = json.dumps(messages, ensure_ascii=False)
    digits = str.maketrans("123456789", "".join(chance.sample("123456789", 9)))
    others = {word: chance.choice(NAMES) for user in _USER.findall(text) for word in user[:2]}
    others |= {word.capitalize(): other.capitalize() for word, other in others.items()}
    if others:
        known = "|".join(sorted(others, key=len, reverse=True))
        text = re.sub(rf"(?<![^\W_])(?:{known})(?![^\W_])", lambda word: others[word[0]], text)
    return list(json.loads(_NUMBER.sub(lambda number: number[0].translate(digits), text)))


def generate(folder: Path, count: int) -> None:
    """So many conversations in a few files."""
    sources, chance, seen = originals(), Random(8), set[int]()
    for shard in range(SHARDS):
        with (folder / f"{shard:02}.jsonl").open("w", encoding="utf-8") as file:
            for number in range(shard * count // SHARDS, (shard + 1) * count // SHARDS):
                messages = renamed(sources[number % len(sources)], chance)
                first = next(message for message in messages if message["role"] == "user")
                first["content"] += f" My customer number is C-{number:06}."  # some talks have no name in them
                seen.add(hash(json.dumps(messages)))
                file.write(json.dumps({"id": f"customer {number}", "messages": messages}) + "\n")
    assert len(seen) == count, f"{count - len(seen):,} of {count:,} conversations are alike"


# -- what is measured --------------------------------------------------------------------------------------------------


class Watch:
    """What the processes of a run hold, over time."""

    def __init__(self) -> None:
        self.driver: list[int] = []
        self.worker: list[int] = []
        self._over = Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look twice a second."""
        thread = Thread(target=self._look)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            workers = [held for pid in below(os.getpid()) if (held := anonymous(pid, "ray::")) is not None]
            if workers:
                self.driver.append(anonymous(os.getpid()) or 0)
                self.worker.append(max(workers))

    @staticmethod
    def growth(held: Sequence[int]) -> tuple[float, str]:
        """The peak of the second half against that of the first, and the peak of each tenth."""
        middle = len(held) // 2
        tenths = [max(held[at * len(held) // 10 : (at + 1) * len(held) // 10]) >> 20 for at in range(10)]
        return max(held[middle:]) / max(held[:middle]), "peak of each tenth, MB: " + " ".join(map(str, tenths))


def below(pid: int) -> set[int]:
    """The processes below one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it ended meanwhile
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found and child not in found}:
        found |= more
    return found - {pid}


def anonymous(pid: int, title: str = "") -> int | None:
    """Bytes that a process of this title holds of its own."""
    try:
        if not Path(f"/proc/{pid}/cmdline").read_text().startswith(title):
            return None
        found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return None
    return int(found[1]) << 10 if found else None


def rate(folder: Path, count: int, engine: Engine) -> float:
    """Conversations a second, from the first result to the last."""
    moments: list[float] = []
    logs = islice(read_logs([str(folder)]), count)
    with replay(
        logs, [Trial.load("default")], SETTING, engine=engine, progress=lambda *_: moments.append(time.time())
    ) as lab:
        (sums,) = summed(lab).policies
    assert (sums.conversations, sums.failed, sums.invalid) == (count, 0, 0), sums
    return (count - 1) / (moments[count - 1] - moments[0])


def many(speaker: Speaker) -> Iterator[Figure]:
    """Ten thousand conversations on Ray."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder, MANY)
        ones, twos = [], []
        for _ in range(2):
            twos.append(rate(folder, SAMPLE, on_ray(workers=2)))
            ones.append(rate(folder, SAMPLE, on_ray(workers=1)))
        detail = " and ".join(f"{two:.1f} : {one:.1f}" for one, two in zip(ones, twos, strict=True))
        yield AtLeast("1 two workers against one", max(twos) / max(ones), "x", 1.6, f"a second: {detail}")
        watch = Watch()
        with watch.watching():
            whole = rate(folder, MANY, on_ray(workers=2))
        yield Figure(f"2 {MANY:,} on two workers, a second", whole, "", None, f"{MANY / whole:.0f} s in all")
        for name_, held in (("driver", watch.driver), ("largest worker", watch.worker)):
            growth, tenths = watch.growth(held)
            yield Figure(f"3 memory of the {name_}, second half : first", growth, "x", 1.1, tenths)


def shared(speaker: Speaker) -> Iterator[Figure]:
    """All shared transcripts under three policies."""
    files = sorted(map(str, SHARED.glob("*.jsonl.gz")))
    if not files:
        return
    started = time.perf_counter()
    trials = [Trial.load(name) for name in ("default", "rolling", "in_place")]
    with replay(read_logs(files), trials, SETTING, engine=processes(2)) as lab:
        seconds = time.perf_counter() - started
        compared = summed(lab)
    spent = sum(getrusage(RUSAGE_CHILDREN)[:2])
    said = ", ".join(f"{sums.policy} {sums.fidelity or 0:.2f} for ${sums.cost or 0:.2f}" for sums in compared.policies)
    assert not any(sums.failed or sums.invalid for sums in compared.policies), compared.problems
    yield Figure(
        "4 all shared transcripts, 3 policies, 2 processes", seconds, "s", 180, f"{spent:.0f} s of CPU; {said}"
    )


if __name__ == "__main__":
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")]
    sys.exit(report([part for part in (many, shared) if not wanted or part.__name__ in wanted]))
