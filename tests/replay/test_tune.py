"""The search for a better policy: what it finds, what it says of it, and the file it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from compact import CompactConfig
from compact.errors import ConfigError
from compact.importers import Conversation
from compact.replay import Setting, Window
from compact.replay.config_writer import config_text
from compact.replay.search_space import changed_fields, draw, neighbours
from compact.replay.tune import TuningResult, tune

WASTEFUL = CompactConfig().changed(layout="in_place", trigger_pct=0.8)
"""Has nothing to fold where there are no tools, and so sends what no provider takes."""
SETTING = Setting(Window(tokens=900), model="gpt-4o")


def conversation(number: int, turns: int = 14) -> Conversation:
    """Orders are named once, talked around, and used again much later."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You look after orders."}]
    for turn in range(turns):
        order = f"#W{7_000_000 + 1_000 * number + turn}"
        older = f"#W{7_000_000 + 1_000 * number + turn - 6}"
        messages.append(
            {"role": "user", "content": f"Please note order {order} for depot {number}-{turn}. " + _talk(turn)}
        )
        used = f" I come back to {older}." if turn >= 6 else ""
        messages.append({"role": "assistant", "content": f"It is noted.{used} " + _talk(turn + 7)})
    return Conversation(f"talk-{number}", messages, f"shop.jsonl#{number}", "plain")


def _talk(seed: int) -> str:
    words = "the parcel waits near the door while somebody looks for a pen and the clock goes on without a word".split()
    return " ".join(words[(seed + i) % len(words)] for i in range(30)) + "."


@pytest.fixture(scope="module")
def tuned() -> TuningResult:
    return search([conversation(n) for n in range(3)], candidates=3)


def search(conversations: Sequence[Conversation], **options: Any) -> TuningResult:
    return tune(conversations, SETTING, **{"start": WASTEFUL, "candidates": 4, **options})


@pytest.mark.slow
def test_a_better_policy_is_found_and_is_better_on_what_was_held_back(tuned: TuningResult) -> None:
    assert tuned.found
    assert tuned.trained.better
    (held,) = tuned.held
    assert (held.source, held.chosen.conversations, tuned.trained.chosen.conversations) == ("shop", 1, 2)
    assert held.better, str(held)
    assert (held.chosen.over, held.start.over > 0) == (0, True)


@pytest.mark.slow
def test_the_file_holds_what_was_chosen_with_reasons(tuned: TuningResult, tmp_path: Path) -> None:
    file = tmp_path / "compact.yaml"
    file.write_text(text := config_text(tuned, SETTING))
    assert CompactConfig.load(file) == tuned.chosen.config
    for reason in tuned.reasons:
        assert f"  # {reason}\n  {reason.name}: " in text
    assert "on 2 conversations, with a window of 900, the prices of\n# gpt-4o, and summaries by extract" in text
    assert f"#   {tuned.held[0]}" in text


@pytest.mark.slow
def test_the_same_seed_gives_the_same_file(tuned: TuningResult) -> None:
    again = search([conversation(n) for n in range(3)], candidates=3)
    assert config_text(again, SETTING) == config_text(tuned, SETTING)


@pytest.mark.slow
def test_every_reason_is_a_difference(tuned: TuningResult) -> None:
    """A field that changes nothing is not in the file."""
    assert {reason.name for reason in tuned.reasons} == set(tuned.changes) - {"layout"}
    assert all(reason.cheaper or reason.kept for reason in tuned.reasons)


@pytest.mark.slow
def test_where_nothing_is_better_the_start_is_kept_and_the_file_says_so(tmp_path: Path) -> None:
    """At a window that nothing reaches, no policy does anything."""
    wide = Setting(Window(tokens=200_000), model="gpt-4o")
    found = tune([conversation(n, turns=4) for n in range(3)], wide, start=WASTEFUL, candidates=3)
    assert not found.found
    text = config_text(found, wide)
    assert "None was better than the start of the search" in text
    (tmp_path / "compact.yaml").write_text(text)
    assert CompactConfig.load(tmp_path / "compact.yaml") == WASTEFUL
    assert "the same on" in str(found.held[0])


@pytest.mark.slow
def test_one_conversation_leaves_none_to_hold_back() -> None:
    found = search([conversation(0, turns=10)], candidates=2)
    assert not found.held
    assert "too few conversations to hold any back" in config_text(found, SETTING)


def test_without_a_price_nothing_can_be_said_of_cost() -> None:
    with pytest.raises(ConfigError, match="price of the model is not known"):
        tune([conversation(0, turns=2)], Setting(Window(tokens=900), model="nobodys-model"), candidates=1)


def test_without_a_conversation_there_is_nothing_to_tune_on() -> None:
    with pytest.raises(ConfigError, match="no conversation to tune on"):
        tune([], SETTING)


def test_every_candidate_and_every_neighbour_is_a_valid_policy() -> None:
    random = Random(7)
    for _ in range(15):
        changes = draw(random)
        assert changed_fields(CompactConfig().changed(**changes), changes) == {}
        for near in neighbours(changes):
            CompactConfig().changed(**near)
            assert sum(near[name] != changes[name] for name in changes) == 1
