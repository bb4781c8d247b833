"""Breaks the pure core in small ways, one at a time, and sees whether a test notices: `make mutants`.

Owns: the verdicts, and `spec/MUTANTS.md`. Must never: write into the project, but for that file.

A mutant meets the tests that ran its line in a recorded run, quickest first, until one fails; each in a fresh process.
A verdict is kept for the next run while the module, and the test that gave it, stay as they are; when they do not, the
test that found the fault before is asked first. `--fresh` keeps none. Every survivor must be explained in
`spec/survivors.yaml`, and counts as a survivor all the same; what is explained there and survives no more is listed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import yaml
from mutant_bench import PATIENCE, ROOT, SLOW, THOROUGH, Bench, digest
from mutations import Mutant, core, sample

BAR = 85
"""Per cent."""
CONTROL = 50
"""One in so many is also judged as it stood: a test that fails then fails for no reason."""
Change = tuple[str, str, str]
"""File, what stood there, what stands there now."""


def verdicts(bench: Bench, mutants: list[Mutant], pool: ThreadPoolExecutor, kept: Path) -> list[tuple[str, str]]:
    """The verdict of each mutant: the one that is known, or a new one."""
    known: dict[str, list[str]] = json.loads(kept.read_text()) if kept.exists() else {}

    def basis(mutant: Mutant, status: str, test: str) -> str:
        """What a verdict rests on: the module, and its test; the files of all that were asked when none failed."""
        if status != "survived":
            return digest(mutant.code, bench.texts.get("::".join(test.split("[")[0].split("::")[:2]), ""))
        asked = {*bench.tests_of(mutant), *bench.more_tests_of(mutant)}
        return digest(mutant.code, *sorted({bench.digests[one.split("::")[0]] for one in asked}))

    begun, done, tally = time.monotonic(), 0, Counter[str]()

    def verdict(mutant: Mutant, name: str) -> tuple[str, str]:
        nonlocal done
        status, test, held = known.get(name, ("", "", ""))
        if held != basis(mutant, status, test):
            status, test = bench.judge(mutant, test)
            known[name] = [status, test, basis(mutant, status, test)]
            done += 1
        tally[status] += 1
        if sum(tally.values()) % 20 == 0 or len(mutants) == sum(tally.values()):
            kept.write_text(json.dumps(known))
            pace = (time.monotonic() - begun) / max(done, 1)
            left = pace * (len(mutants) - sum(tally.values())) / 60
            print(f"  {sum(tally.values())} of {len(mutants)}: {dict(tally)}, about {left:.0f} min left", flush=True)
        return status, test

    return list(pool.map(verdict, mutants, names(mutants)))


def names(mutants: list[Mutant]) -> list[str]:
    """What a verdict is kept under: the change itself, so that it is found again when its module has changed."""
    alike: Counter[Change] = Counter()
    found = []
    for mutant in mutants:
        change = (mutant.file, mutant.was, mutant.now)
        alike[change] += 1
        found.append(digest(*change, str(alike[change])))
    return found


def explained() -> dict[Change, str]:
    """Why each survivor is let live."""
    notes = ROOT / "spec" / "survivors.yaml"
    entries = yaml.safe_load(notes.read_text()) if notes.exists() else []
    return {(entry["file"], entry["was"], entry["now"]): entry["why"] for entry in entries or []}


def report(
    mutants: list[Mutant], found: list[tuple[str, str]], why: dict[Change, str], seed: int, population: int
) -> tuple[str, float, int]:
    """The page, the score, and how many survivors nobody has explained."""
    by_module: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for mutant, (status, _) in zip(mutants, found, strict=True):
        by_module[mutant.module][status] += 1
    total = sum(by_module.values(), Counter[str]())
    score = 100 * (1 - total["survived"] / len(mutants))
    page = [
        "# Mutants",
        "",
        "Made by `make mutants`. Small faults are put into the pure core, one at a time; a fault that no test notices",
        "survives. Faults are those of [mutmut](https://github.com/boxed/mutmut), over every module that the import",
        "contract calls the core, sampled evenly from all of them by a seed. Left out is what no test could tell:",
        "docstrings, annotations, `__all__`, `if TYPE_CHECKING`, imports, type aliases. A fault meets only quick",
        f"tests: under {SLOW:.0f} s each, {PATIENCE:.0f} s in all, then {THOROUGH:.0f} s more of those that",
        "know its module. Survivors that change nothing count as well.",
        "",
        f"**Score: {score:.1f} %** — {len(mutants) - total['survived']} of {len(mutants)} killed, seed {seed}, "
        f"out of {population:,} mutants in all.",
        "",
        "| module | mutants | by a test | at import | too long | survived | score |",
        "|---|---|---|---|---|---|---|",
    ]
    for module, row in [*sorted(by_module.items()), ("**all**", total)]:
        share = 100 * (1 - row["survived"] / row.total())
        numbers = [row.total(), *(row[status] for status in ("killed", "import", "timeout", "survived"))]
        page.append(f"| {module} | {' | '.join(map(str, numbers))} | {share:.0f} % |")
    page += ["", "## Survivors", ""]
    unexplained = 0
    for mutant, (status, _) in zip(mutants, found, strict=True):
        if status == "survived":
            reason = why.get((mutant.file, mutant.was, mutant.now))
            unexplained += reason is None
            page.append(f"- `{mutant.file}:{mutant.line}` {_code(mutant.was)} → {_code(mutant.now)}")
            page.append(f"  {reason or '**not explained**'}")
    return "\n".join(page) + "\n", score, unexplained


def _code(line: str) -> str:
    return f"`` {line} ``" if line else "(nothing)"


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description="Mutation testing of the pure core.")
    parser.add_argument("--seed", type=int, default=9, help="which sample")
    parser.add_argument("--count", type=int, default=600, help="how many mutants; with 600 or more the page is written")
    parser.add_argument("--module", help="only mutants of this module, such as _trigger; the page is not written")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--work", type=Path, default=ROOT / ".mutants", help="where copies and verdicts are kept")
    parser.add_argument("--fresh", action="store_true", help="judge every mutant anew")
    options = parser.parse_args()

    begun = time.monotonic()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    sources = core()
    print("Choosing mutants ...", flush=True)
    wanted = {file: text for file, text in sources.items() if file.split("/")[0].removesuffix(".py") == options.module}
    mutants, population = sample(wanted if options.module else sources, options.seed, options.count)
    bench = Bench(work, options.jobs, sources)
    kept = work / "verdicts.json"
    if options.fresh:
        kept.unlink(missing_ok=True)
        shutil.rmtree(work / "recorded", ignore_errors=True)
    pool = ThreadPoolExecutor(options.jobs)
    try:
        print(f"{len(mutants)} of {population:,} mutants. Seeing which test runs which line ...", flush=True)
        bench.record(pool)
        controls = [replace(mutant, was="", now="", code=sources[mutant.file]) for mutant in mutants[::CONTROL]]
        print(f"{len(bench.seconds)} tests. {len(controls)} controls, which change nothing ...", flush=True)
        for control, (status, test) in zip(controls, verdicts(bench, controls, pool, kept), strict=True):
            if status != "survived":
                raise SystemExit(f"{test or control.file}: {status} without any change, so no verdict could be trusted")
        print("Judging ...", flush=True)
        found = verdicts(bench, mutants, pool, kept)
    finally:
        pool.shutdown(cancel_futures=True)
    why = explained()
    page, score, unexplained = report(mutants, found, why, options.seed, population)
    print(page)
    print(f"{score:.1f} % in {(time.monotonic() - begun) / 60:.0f} min; {unexplained} survivors are not explained")
    if not options.module and options.count >= 600:
        alive = {(m.file, m.was, m.now) for m, (status, _) in zip(mutants, found, strict=True) if status == "survived"}
        for file, was, now in why.keys() - alive:
            print(f"stale, survives no more: {file}: {was} → {now}")
        (ROOT / "spec" / "MUTANTS.md").write_text(page)
        return int(score < BAR or unexplained > 0)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
