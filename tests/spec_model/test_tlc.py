"""The laws of `spec/`, checked by TLC: they hold on small models, and each of them catches a planted fault.

Owns: the proof that the model keeps the laws, and that no law is empty. Must never: list a law by hand; they are read
from the modules. `scripts/prove.py` checks the same laws on large models, other tests the code against the model.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tlc

LAWS = {module: tlc.laws(module) for module in ("Laws", "Writers")}
IDS = sorted({name[:3] for name in sum(LAWS["Laws"], ()) if re.match(r"L\d\d_", name)})
"""The rows of the specification that are stated."""


def rows(name: str) -> Any:
    """The mark of a law that has a row."""
    return [pytest.mark.spec(name[:3])] if name[:3] in IDS else []


@pytest.mark.spec(*IDS)
def test_every_law_is_stated_and_has_a_planted_fault() -> None:
    """All 33 ids; a sentence over each law; nobody plants a fault for a law that is not there."""
    assert [f"L{number:02}" for number in range(1, 34)] == IDS
    planted = tlc.faults()
    assert {name for laws in LAWS.values() for name in sum(laws, ())} == {fault.breaks for fault in planted}
    assert len(planted) == len({(fault.breaks, fault.fault) for fault in planted})
    for module, laws in LAWS.items():
        text = (tlc.SPEC / f"{module}.tla").read_text()
        assert [] == [name for name in sum(laws, ()) if not re.search(rf"^\\\* .*\.\n{name} ==", text, re.MULTILINE)]


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.spec(*IDS)
@pytest.mark.parametrize("model", tlc.models("small"))
def test_the_laws_of_states_and_steps_hold(model: str, tmp_path: Path) -> None:
    """No state, no step and no dead end breaks one."""
    tlc.require()
    laws = LAWS["Laws"]
    checked = tlc.check(
        "Laws", tlc.models()[model], tmp_path, invariants=laws.states, properties=laws.steps, deadlock=True
    )
    assert checked.violated is None, checked.output[-3000:]
    assert checked.distinct > 1000


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.spec(*IDS)
@pytest.mark.parametrize("model", tlc.models("lively"))
def test_the_laws_hold_over_whole_runs(model: str, tmp_path: Path) -> None:
    """What must happen does happen in the end, however it is disturbed."""
    tlc.require()
    laws = LAWS["Laws"]
    checked = tlc.check(
        "Laws",
        tlc.models("lively")[model],
        tmp_path,
        invariants=laws.states,
        properties=(*laws.steps, *laws.runs),
        specification="Lawful",
        deadlock=True,
    )
    assert checked.violated is None, checked.output[-3000:]
    assert checked.distinct > 400


@pytest.mark.slow
@pytest.mark.untraced
def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    """Two processes that fold one session, one of which dies."""
    tlc.require()
    states, steps, runs = LAWS["Writers"]
    checked = tlc.check(
        "Writers", tlc.models("writers")["small"], tmp_path, invariants=states, properties=(*steps, *runs)
    )
    assert checked.violated is None, checked.output[-3000:]
    assert checked.distinct > 1000


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.parametrize(
    "fault", [pytest.param(fault, id=fault.breaks, marks=rows(fault.breaks)) for fault in tlc.faults()]
)
def test_a_planted_fault_is_found(fault: tlc.Fault, tmp_path: Path) -> None:
    """By the law that is there for it."""
    tlc.require()
    checked = fault.check(tmp_path)
    found = "Temporal properties" if any(fault.breaks in laws.runs for laws in LAWS.values()) else fault.breaks
    assert found == checked.violated, checked.output[-3000:]
