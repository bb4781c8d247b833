"""Random sessions with everything going wrong around them: no law is broken, and no message is lost.

Owns: many walks at once, shortening one that found something, and the program that `make prove` runs:

    python tests/support/random_walks.py --steps 100000 --seed 1 --jobs 2      exit 1 when anything was found
    python tests/support/random_walks.py --walk 1/17:90                        one walk again, by what a finding says

Must never: judge (`judge` does), or know what can go wrong (`faulty` and `walks` do).
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import TextIO

from session_walk import Result, Walk

HANGS = 300
"""Seconds that no walk takes, unless it hangs."""
SHORTENED = 5
"""Findings that are shortened and shown."""


def lengths(steps: int, seed: int) -> Iterator[tuple[str, int]]:
    """Walks of so many steps in all, each by its seed and its length."""
    for number in count():
        length = min(steps, random.Random(f"length {seed}/{number}").randint(30, 170))
        if not length:
            return
        yield f"{seed}/{number}", length
        steps -= length


@contextmanager
def quietly() -> Iterator[None]:
    """Without the library's complaints about the faults."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def walked(job: tuple[str, int]) -> Result:
    """One walk; one that hangs ends this process, and says where it stood."""
    faulthandler.dump_traceback_later(HANGS, exit=True, file=sys.__stderr__)
    try:
        with quietly():
            return Walk(*job).run()
    finally:
        faulthandler.cancel_dump_traceback_later()


def shortened(walk: type[Walk], seed: str, length: int, rule: str) -> list[tuple[str, int]]:
    """The fewest steps of a walk that still break this rule, as far as leaving out stretches of them leads."""

    def breaks(steps: list[tuple[str, int]]) -> bool:
        with quietly():
            return any(rule == found for _, found, _ in walk(seed, length).run(steps).found)

    steps = walk(seed, length).steps
    size = len(steps)
    while size:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if breaks(fewer):
                steps = fewer
            else:
                at += size
        size //= 2
    return steps


def run(steps: int, seed: int, jobs: int, tell: Callable[[str], None] = lambda line: None) -> Result:
    """Walk so many steps on so many processes."""
    total, started = Result(), time.monotonic()
    work = list(lengths(steps, seed))
    with ProcessPoolExecutor(jobs) as pool:
        for done in pool.map(walked, work, chunksize=4) if jobs > 1 else map(walked, work):
            total.add(done)
            spent = time.monotonic() - started
            left = spent / total.steps * (steps - total.steps)
            tell(f"{total.steps:,} of {steps:,} steps, {len(total.found)} findings, {left:,.0f} s left")
    return total


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for, and print what came of it."""
    parser = argparse.ArgumentParser(description="Random sessions with everything going wrong around them.")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--walk", metavar="SEED", help="one walk again, such as 1/17:90")
    given = parser.parse_args(arguments)
    started = time.monotonic()
    if given.walk is None:
        total = run(given.steps, given.seed, given.jobs, lambda line: _say(f"\r{line}  ", sys.stderr))
        _say("\n", sys.stderr)
    else:
        total = walked(_parsed(given.walk))
    faults = "".join(f"  {times:6,}  {name}\n" for name, times in sorted(total.struck.items()))
    told = ", ".join(f"{times:,} {name}" for name, times in sorted(total.errors.items()))
    lost = sum(rule == "lost" for _, rule, _ in total.found)
    _say(
        f"{total.steps:,} steps in {total.walks:,} walks, {time.monotonic() - started:.0f} s\n"
        f"{total.folds:,} folds, {total.judged:,} of them judged by every law from what the archive says of them\n"
        f"{total.struck.total():,} faults:\n{faults}what hosts were told: {told or 'nothing'}\n"
        f"violations: {len(total.found) - lost:,}, lost: {lost:,}\n",
        sys.stdout,
    )
    for walk, rule, _ in total.found[SHORTENED:]:
        _say(f"--walk {walk} breaks {rule!r}\n", sys.stdout)
    for walk, rule, wrong in total.found[:SHORTENED]:
        steps = shortened(Walk, *_parsed(walk), rule)
        _say(f"\n--walk {walk} breaks {rule!r}: {wrong}\nin {len(steps)} steps: {steps}\n", sys.stdout)
    return int(bool(total.found))


def _parsed(walk: str) -> tuple[str, int]:
    seed, _, length = walk.partition(":")
    return seed, int(length)


def _say(text: str, stream: TextIO) -> None:
    stream.write(text)
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
