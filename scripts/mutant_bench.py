"""Runs chosen tests on a copy of the project, with one module changed; for `scripts/mutants.py`.

Owns: the copies, the processes in them, and which test runs which line.
Must never: write into the project itself.
"""

from __future__ import annotations

import ast
import hashlib
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from difflib import SequenceMatcher
from functools import cache
from keyword import kwlist
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mutations import Mutant

ROOT = Path(__file__).resolve().parents[1]
SLOW = 3.0
"""Seconds of work, not by the clock: others use the machine too. A longer test is not asked: quick ones should do."""
PATIENCE = 6.0
"""Seconds of tests that one mutant meets, by what they took when recorded; of those that do not speak of it, half."""
THOROUGH = 40.0
"""Seconds of tests that it meets when it has survived these: half of them import its module, half run most of it."""
TESTS = """archive compaction config conversation engine events facts pipeline redaction summarizers/test_extract*.py
    summarizers/test_model_summarizers.py summary stores/test_fs.py sinks/test_sinks.py replay/test_replay.py
    viewer/test_viewer.py project/test_demo_transcript.py project/test_docs.py
    promises/test_hosts.py promises/test_injection.py promises/test_laws.py promises/test_regressions.py
    promises/test_sharing.py promises/test_stateful.py promises/test_torture.py promises/test_whole_conversations.py"""
"""Folders and files of tests that run the core in this process."""
PRELOAD = ["__main__", "hypothesis.stateful", "pydantic", "tiktoken", "coverage", "sqlite3", "asyncio"]


class Chosen:
    """A plugin of pytest: runs these tests in this order, and notes the first that fails."""

    def __init__(self, tests: list[str]) -> None:
        self.tests = {test: place for place, test in enumerate(tests)}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave the chosen ones. A test whose name a mutant changed is missing, not failed."""
        items[:] = sorted((i for i in items if i.nodeid in self.tests), key=lambda i: self.tests[i.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note who failed."""
        if report.failed:
            self.failed = self.failed or report.nodeid


class Recording:
    """A plugin of pytest: which test runs which lines, how long it takes, and whether it passes at all."""

    def __init__(self, package: Path) -> None:
        import coverage

        self.cover = coverage.Coverage(data_file=None, config_file=False, include=[f"{package}/*"])
        self.took: dict[str, float] = {}
        self.bad: set[str] = set()

    # Innermost, because tests of properties are left untraced further out.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: Any) -> Generator[None, Any, Any]:
        """Trace the test."""
        begun = time.process_time()
        self.cover.start()
        self.cover.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self.cover.stop()
            self.took[item.nodeid] = time.process_time() - begun

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note what fails, or is skipped, or waits long."""
        if not report.passed or report.duration > 4 * SLOW:
            self.bad.add(report.nodeid)


def in_copy(copy: Path, answer: Any, tests: list[str], seconds: int | None) -> None:
    """Run tests in a copy, in a process of its own, and say what came of it; without a limit they are recorded."""
    os.setsid()
    os.chdir(copy)
    if seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, -1))
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    log = os.open(copy / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ |= {"HYPOTHESIS_PROFILE": "quick", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": f"{copy}/src"}
    sys.path.insert(0, f"{copy}/src")
    sys.dont_write_bytecode = False
    options = ["-p", "no:cacheprovider", "--tb=line", f"--basetemp={copy}/tmp"]
    if seconds is None:
        recording = Recording(copy / "src/compact")
        pytest.main([*options, *tests], plugins=[recording])
        data = recording.cover.get_data()
        lines = {os.path.relpath(f, copy / "src/compact"): data.contexts_by_lineno(f) for f in data.measured_files()}
        answer.send((recording.took, recording.bad, lines))
    else:
        chosen = Chosen(tests)
        code = pytest.main([*options, "-x", *sorted({test.split("::")[0] for test in tests})], plugins=[chosen])
        answer.send((int(code), chosen.failed))
    os._exit(0)


class Bench:
    """The copies, the processes in them, and what the tests were seen to run."""

    def __init__(self, work: Path, jobs: int, sources: dict[str, str]) -> None:
        self.work, self.sources = work, sources
        self.server = multiprocessing.get_context("forkserver")
        self.server.set_forkserver_preload(PRELOAD)
        self.copies: SimpleQueue[Path] = SimpleQueue()
        for job in range(jobs):
            self.copies.put(self._copied(work / f"copy{job}" / "project"))
        found = (path for name in TESTS.split() for path in (ROOT / "tests").glob(name))
        tests = [test for path in found for test in (sorted(path.glob("test_*.py")) if path.is_dir() else [path])]
        self.digests = {str(path.relative_to(ROOT)): digest(path.read_text()) for path in tests}
        self.texts = {test: text for path in tests for test, text in _tests_in(path)}
        self.imports = {str(path.relative_to(ROOT)): _modules_in(path.read_text()) for path in tests}
        self.seconds: dict[str, float] = {}
        self.runs: defaultdict[tuple[str, int], set[str]] = defaultdict(set)

    def _copied(self, copy: Path) -> Path:
        shutil.rmtree(copy.parent, ignore_errors=True)
        copy.mkdir(parents=True)
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in ROOT.iterdir():
            if not path.name.startswith(".") and not (copy / path.name).exists():
                (copy / path.name).symlink_to(path)
        if (shared := ROOT.parent / "shared").exists():
            (copy.parent / "shared").symlink_to(shared)
        return copy

    def _run(self, tests: list[str], seconds: int | None, changed: tuple[str, str] = ("", "")) -> Any:
        """What came of these tests in a copy: `None` when they took too long, `()` when the process died.

        The limit is one of work; by the clock it is forty times as long, as others use the machine too.
        """
        copy = self.copies.get()
        file = copy / "src/compact" / changed[0]
        try:
            if changed[0]:
                _write(file, changed[1])
            ours, theirs = self.server.Pipe(duplex=False)
            process = self.server.Process(target=in_copy, args=(copy, theirs, tests, seconds))
            process.start()
            theirs.close()
            try:
                return ours.recv() if ours.poll(40 * (seconds or 90)) else None
            except EOFError:
                process.join()
                return None if process.exitcode == -signal.SIGXCPU else ()
            finally:
                # Whatever the tests left running goes with them.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid or 0, signal.SIGKILL)
                process.kill()
                process.join()
        finally:
            if changed[0]:
                _write(file, self.sources[changed[0]])
            self.copies.put(copy)

    def record(self, pool: ThreadPoolExecutor) -> None:
        """See which test runs which line. That is kept while a test stays as it is; lines of the core may move."""
        kept = self.work / "recorded"
        kept.mkdir(exist_ok=True)
        state = digest(*self.sources.values())
        (kept / f"core-{state}.json").write_text(json.dumps(self.sources))

        def seen(file: str) -> dict[str, Any]:
            place = kept / f"{Path(file).stem}-{self.digests[file]}.json"
            if not place.exists():
                took, bad, lines = self._run([file], None) or ({}, {file}, {})
                found = {"state": state, "seconds": took, "bad": sorted(bad), "lines": lines}
                place.write_text(json.dumps(found))
                print(f"  {file}: {len(took)} tests, {sum(took.values()):.0f} s, {len(bad)} left out", flush=True)
            return dict(json.loads(place.read_text()))

        moved: dict[str, dict[tuple[str, int], int]] = {}
        for found in pool.map(seen, self.digests):
            good = {t: s for t, s in found["seconds"].items() if t not in found["bad"] and s < SLOW}
            self.seconds |= good
            if found["state"] not in moved:
                moved[found["state"]] = self._moved(json.loads((kept / f"core-{found['state']}.json").read_text()))
            for file, lines in found["lines"].items():
                for line, tests in lines.items():
                    if now := moved[found["state"]].get((file, int(line))):
                        self.runs[file, now] |= good.keys() & set(tests)

    def _moved(self, before: dict[str, str]) -> dict[tuple[str, int], int]:
        """Where the lines of the core stand now that stood elsewhere when a test was recorded."""
        places = {}
        for file in before.keys() & self.sources.keys():
            old, new = before[file].splitlines(), self.sources[file].splitlines()
            for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
                places.update({(file, block.a + n + 1): block.b + n + 1 for n in range(block.size)})
        return places

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that run a mutant's line, or use the name it makes, then others that run its module."""
        near = {(mutant.file, line) for line in mutant.lines}
        if mutant.names:
            uses = re.compile(r"\b(?:" + "|".join(mutant.names[:1]) + r")\b")
            near = {(f, n) for f, s in self.sources.items() for n, x in enumerate(s.split("\n"), 1) if uses.search(x)}
        first = set().union(*(self.runs.get(place, ()) for place in near))
        # What is worked out once and kept shows as run by one test only, so its whole module counts.
        breadth = self._breadth(mutant)
        order = sorted(self.seconds, key=lambda test: (test not in first, test not in breadth, self.seconds[test]))
        # Those whose names speak of what changed or where, the quickest, and the few that run the most of the module.
        changed = _words(f"{mutant.module} {mutant.was} {mutant.now}")
        shared = {test: changed & _words(test) for test in order}
        often = Counter(word for words in shared.values() for word in words)
        rarest = {test: min(often[word] for word in words) for test, words in shared.items() if words}
        named = sorted(rarest, key=lambda test: (rarest[test], test not in first, self.seconds[test]))
        chosen = {test for test, _ in breadth.most_common(5)}
        chosen |= {*self._within(PATIENCE, named), *self._within(PATIENCE / 2, order)}
        return sorted(chosen, key=lambda test: (test not in first, test not in rarest, self.seconds[test]))

    def more_tests_of(self, mutant: Mutant) -> list[str]:
        """The quickest tests of the files that import a mutant's module by name, and those that run the most of it."""
        breadth = self._breadth(mutant)
        own = [test for test in self.seconds if mutant.module in self.imports[test.split("::")[0]]]
        most = sorted(breadth, key=lambda test: (-breadth[test], self.seconds[test]))
        own = sorted(own, key=self.seconds.__getitem__)
        return list(dict.fromkeys([*self._within(THOROUGH / 2, own), *self._within(THOROUGH / 2, most)]))

    def _breadth(self, mutant: Mutant) -> Counter[str]:
        """How many lines of a mutant's module each test runs."""
        module = (tests for (file, _), tests in self.runs.items() if file.split("/")[0] == mutant.file.split("/")[0])
        return Counter(test for tests in module for test in tests)

    def _within(self, seconds: float, tests: list[str]) -> Generator[str]:
        """The first of some tests, until they take so long."""
        for test in tests:
            if (seconds := seconds - self.seconds[test]) < 0:
                return
            yield test

    def judge(self, mutant: Mutant, likely: str = "") -> tuple[str, str]:
        """What became of a mutant, and by which test. The likely one, where there is one, is asked first."""
        tests = self.tests_of(mutant)
        # To read many files of tests takes seconds; most mutants are found by the three that know them best.
        best = [file for file, _ in Counter(test.split("::")[0] for test in tests[:100]).most_common(3)]
        first = [test for test in tests if test.split("::")[0] in best][:60]
        alone = [likely] if likely in self.seconds else []
        others = [test for test in tests if test not in first]
        for part in (alone, first, others, [test for test in self.more_tests_of(mutant) if test not in tests]):
            enough = int(10 + 3 * sum(self.seconds[test] for test in part))
            match self._run(part, enough, (mutant.file, mutant.code)) if part else (0, ""):
                case None:
                    return "timeout", ""
                case (1, test):
                    return "killed", test
                case (code, _) if code not in (0, 5):
                    return "import", ""
                case ():
                    return "import", ""
        return "survived", ""


def _tests_in(path: Path) -> Generator[tuple[str, str]]:
    """The text of each test of a file, its marks included."""
    source = path.read_text()
    lines = source.splitlines()
    for one in ast.parse(source).body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            begin = min([one.lineno, *(mark.lineno for mark in one.decorator_list)])
            yield f"{path.relative_to(ROOT)}::{one.name}", "\n".join(lines[begin - 1 : one.end_lineno])


def _modules_in(source: str) -> set[str]:
    """The modules of the core that a file of tests imports by name."""
    return set(re.findall(r"\bcompact(?:\.| import )(_\w+)", source))


@cache
def _words(text: str) -> set[str]:
    """The words of a line of code, or of a test's name, that may say what it is about."""
    return set(re.findall(r"[a-z]{4,}", text.lower())) - {*kwlist, "test", "tests"}


def _write(file: Path, source: str) -> None:
    """A module anew. By time and length alone, Python might take what was compiled before for this."""
    file.write_text(source)
    for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        stale.unlink()


def digest(*texts: str) -> str:
    """A short name for these texts."""
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=10).hexdigest()
