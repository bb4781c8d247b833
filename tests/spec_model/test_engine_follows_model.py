"""The model and the code, held together from both sides.

`compact._spec` reads `spec/*.tla` in Python: its state graph is the one that TLC finds. The engine is then driven
through every step of that graph. `make prove` does the same with larger bounds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from model_driver import Disagreement, Memory, Walk, config_for, paths, without_waiting
from tlc import check, graph, models, require, rules_of

from compact import CompactConfig, CompactManager
from compact._spec.session import Rules, start, steps
from compact.testing import ScriptedModel, chat

DRIVEN = models("driven")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["in_place", "layered", "rolling", "twice", "tokens", "manual", "changes", "raise"])
def test_the_python_reading_is_the_model(name: str, tmp_path: Path) -> None:
    """State by state and step by step."""
    require()
    constants = DRIVEN[name]
    checked = check("Session", constants, tmp_path, dump=tmp_path / "graph.dot")
    assert checked.violated is None, checked.output
    states, edges = graph(tmp_path / "graph.dot")
    rules = rules_of(constants)
    first = start(rules)
    seen, todo = {first}, [first]
    ours = set()
    while todo:
        now = todo.pop()
        for label, _, then in steps(now, rules):
            ours.add((now, label, then))
            if then not in seen:
                seen.add(then)
                todo.append(then)
    assert set(states.values()) == seen
    assert {(states[one], label, states[other]) for one, label, other in edges} == ours


def drive(rules: Rules, config: CompactConfig) -> tuple[int, int]:
    """Walk every step of a model; returns how many states and steps it has."""
    states, taken, covering = paths(rules)
    for path, known in covering:
        Walk(rules, config, path, known).walk()
    return states, taken


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.spec("L01", "L02", "L03", "L04", "L07", "L16", "L17", "L19", "L24", "L28", "L31", "L33", "S23", "T24")
@pytest.mark.parametrize("name", DRIVEN)
def test_the_engine_takes_every_step_of_the_model(name: str, record_property: Any) -> None:
    """What it shows, holds, asks for and writes is what the model says, wherever it can be seen."""
    rules = rules_of(DRIVEN[name])
    config = config_for(rules)
    with without_waiting():
        states, taken = drive(rules, config)
    record_property("model", f"{name}: {states:,} states, {taken:,} steps")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("again", {"retention_window": 2}),
        ("again", {"message_threshold": 4}),
        ("again", {"message_threshold": 2}),
        ("again", {"layout": "rolling"}),
        ("extract", {"on_failure": "raise"}),
        ("layered", {"keep_recent_turns": 2}),
        ("layered", {"keep_tool_io_pairs": 2}),
        ("layered", {"layout": "in_place"}),
        ("rolling", {"window_rounds": 2}),
        ("tokens", {"target_pct": 0.3}),
        ("tokens", {"token_threshold": 10_000}),
        ("turns", {"turn_threshold": 1}),
        ("raise", {"on_failure": "prune"}),
        ("raise", {"max_retries": 2}),
        ("raise", {"max_tokens": 24}),
    ],
)
def test_an_engine_that_does_otherwise_is_found_out(name: str, changes: dict[str, Any]) -> None:
    """One setting that is not the model's, and some step disagrees."""
    rules = rules_of(DRIVEN[name])
    config = config_for(rules).changed(**changes)
    with without_waiting(), pytest.raises(Disagreement):
        drive(rules, config)


# -- what the model found --------------------------------------------------------------------------------------------


@pytest.mark.spec("L01", "L31")
@pytest.mark.parametrize("layout", ["in_place", "layered", "rolling"])
def test_after_a_restart_the_counters_still_count_from_the_last_fold(layout: str) -> None:
    """A host that kept the folded list is not told to fold again because its process is new."""
    policy = {
        "layout": layout,
        "message_threshold": 12,
        "retention_window": 2,
        "keep_recent_turns": 2,
        "window_rounds": 2,
    }
    config = CompactConfig(model="gpt-4o", max_context_tokens=100_000, policy=policy)
    store = Memory()
    before = CompactManager(config, summarizer=ScriptedModel(), store=store)
    kept = [*before.preflight("s", chat("uaatr" * 3)), *chat("aa", first=20)]
    before.preflight("s", kept)
    after = CompactManager(config, summarizer=ScriptedModel(), store=store)
    assert bool(before.should_compact("s", kept)) == bool(after.should_compact("s", kept))
    after.preflight("s", kept)
    assert before.session("s").counters == after.session("s").counters
    assert 1 == len(after.session("s").folds)


@pytest.mark.spec("L21", "S15")
def test_a_pinned_call_that_waits_stays_where_its_result_will_follow() -> None:
    """`layered` puts the pinned first, but not a call whose result is still to come."""
    policy = {"message_threshold": 6, "keep_recent_turns": 1, "keep_tool_io_pairs": 1}
    manager = CompactManager(
        CompactConfig(model="gpt-4o", max_context_tokens=100_000, policy=policy),
        summarizer=ScriptedModel(),
        store=Memory(),
    )
    messages = chat("uauauat")
    messages[-1]["meta"] = {"protected": True}
    folded = manager.preflight("s", messages)
    assert (messages[-1], 1) == (folded[-1], len(manager.session("s").folds))
    answer = {"role": "tool", "tool_call_id": messages[-1]["tool_calls"][0]["id"], "content": "done"}
    again = manager.manual_compact("s", [*folded, answer, *chat("uaua", first=30)])
    assert [messages[-1], answer] == again[:2]
