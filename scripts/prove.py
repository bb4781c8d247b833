"""Prove the laws on large models, the engine against them, and both against whatever can fail.

`make prove` runs this: tables on stdout, progress on stderr, exit 1 when anything is broken. `--only models` runs one
part. The tests run the same parts with small bounds.
"""

from __future__ import annotations

import argparse
import gc
import logging
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import model_driver
import tlc

CORES = 2

STATES = 5_000_000
"""Distinct states that the large models must have in all."""


def models() -> bool:
    """TLC over the large models: laws of states and steps on all, laws of whole runs on the patient ones."""
    laws, writers = tlc.laws("Laws"), tlc.laws("Writers")
    runs = [("Laws", name, own, laws._replace(runs=()), "Spec") for name, own in tlc.models("large").items()]
    runs += [("Laws", name, own, laws, "Lawful") for name, own in tlc.models("patient").items()]
    runs += [("Writers", "writers", tlc.models("writers")["large"], writers, "Spec")]
    table = [("model", "laws", "distinct states", "steps", "depth", "seconds", "result")]
    distinct, broken = 0, 0
    for number, (module, name, constants, checked_laws, specification) in enumerate(runs, start=1):
        _say(f"[{number}/{len(runs)}] {name}: {distinct:,} states so far")
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="prove-", ignore_cleanup_errors=True) as folder:
            done = tlc.check(
                module,
                constants,
                Path(folder),
                invariants=checked_laws.states,
                properties=(*checked_laws.steps, *checked_laws.runs),
                specification=specification,
                workers=2,
                memory="8g",
                watch=_progress,
            )
        if done.violated is not None:
            print(done.output[-5000:], file=sys.stderr)
        distinct, broken = distinct + done.distinct, broken + (done.violated is not None)
        seconds = time.perf_counter() - started
        kinds = "states, steps, runs" if checked_laws.runs else "states, steps"
        result = "held" if done.violated is None else f"BROKEN: {done.violated}"
        table.append(
            (name, kinds, f"{done.distinct:,}", f"{done.generated:,}", str(done.depth), f"{seconds:.0f}", result)
        )
    _print(table)
    print(f"{distinct:,} distinct states of at least {STATES:,}, {broken} models broken")
    return broken == 0 and distinct >= STATES


def engine() -> bool:
    """The engine through every step of every model that it is driven through."""
    table = [("model", "states", "steps", "paths", "seconds", "result")]
    total, broken = 0, 0
    for name, constants in tlc.models("driven_far").items():
        started = time.perf_counter()
        with ProcessPoolExecutor(CORES) as pool:
            parts = list(pool.map(_driven, [name] * CORES, [constants] * CORES, range(CORES)))
        states, steps = parts[0][:2]
        wrong = [text for part in parts for text in part[3]]
        for text in wrong[:3]:
            _say(f"      {text}")
        total, broken = total + steps, broken + len(wrong)
        seconds, paths = time.perf_counter() - started, sum(part[2] for part in parts)
        result = "agrees" if not wrong else f"DISAGREES on {len(wrong):,} paths"
        table.append((name, f"{states:,}", f"{steps:,}", f"{paths:,}", f"{seconds:.0f}", result))
    _print(table)
    print(f"the engine took {total:,} steps of the model; on {broken:,} paths it was elsewhere")
    return broken == 0


def _driven(name: str, constants: Mapping[str, Any], part: int) -> tuple[int, int, int, list[str]]:
    """Every n-th path of a model: how many states and steps it has, how many paths were walked, what was wrong."""
    logging.disable(logging.CRITICAL)  # what the engine warns of, it is made to do
    rules = tlc.rules_of(constants)
    config = model_driver.config_for(rules)
    states, steps, paths = model_driver.paths(rules)
    gc.freeze()  # a graph of a million things that stay is not looked through again and again
    walked, wrong = 0, []
    with model_driver.without_waiting():
        for path, known in islice(paths, part, None, CORES):
            try:
                model_driver.Walk(rules, config, path, known).walk()
            except model_driver.Disagreement as error:
                wrong.append(str(error))
            walked += 1
            if walked % 5_000 == 0 and part == 0:
                _say(f"      {name}: {walked * CORES:,} paths, {len(wrong):,} wrong")
    return states, steps, walked, wrong


def faults() -> bool:
    """A hundred thousand random steps, with everything failing that can."""
    script = str(Path(tlc.__file__).with_name("random_walks.py"))
    command = [sys.executable, script, "--steps", "100000", "--seed", "1", "--jobs", str(CORES)]
    return subprocess.run(command, check=False).returncode == 0


PARTS: list[tuple[str, Callable[[], bool]]] = [
    ("models", models),
    ("engine", engine),
    ("faults", faults),
]
"""What is proved, by its name. A part prints what it did and tells whether all of it held."""


def _progress(line: str) -> None:
    if found := re.match(r"Progress\((\d+)\).*?, ([\d,]+) distinct states.*?, ([\d,]+) states left", line):
        _say(f"      depth {found[1]}: {found[2]} distinct states, {found[3]} to go on from")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print(table: list[tuple[str, ...]]) -> None:
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def main() -> int:
    """Run what was asked for."""
    names = [name for name, _ in PARTS]
    parser = argparse.ArgumentParser(description="The laws, proved with large bounds.")
    parser.add_argument("--only", metavar="PART", choices=names, help=f"one part: {', '.join(names)}")
    only = parser.parse_args().only
    results = [part() for name, part in PARTS if only in (None, name)]
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
