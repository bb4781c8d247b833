"""What a second pair of eyes found: each a small story that once went wrong."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from provider_rules import problems

from compact import CompactConfig, CompactManager, Fold, History, InsufficientBudget, Plan, Policy, compact_messages
from compact._compaction.layouts import in_place
from compact._engine.live_sessions import HOT_SESSIONS
from compact.errors import ArchiveError, CompactError, ConfigError, ModelUnavailable
from compact.stores.fs import FileStore
from compact.testing import Recorder, ScriptedModel, chat


def manager_for(summarizer: Any = None, seen: Any = None, **settings: Any) -> CompactManager:
    """A manager with a small window that archives nothing unless told so and does not retry."""
    arguments = {name: settings.pop(name) for name in ("store", "before_fold", "protect") if name in settings}
    policy = {"hard_cap_buffer": 60, **settings.pop("policy", {})}
    summary = {"max_retries": 0, "min_score": 0, **settings.pop("summary", {})}
    defaults = {"max_context_tokens": 1500, "storage": {"adapter": "none"}}
    config = CompactConfig(**{**defaults, **settings}, policy=policy, summary=summary)
    return CompactManager(config, summarizer=summarizer, sinks=[seen] if seen is not None else [], **arguments)


@pytest.mark.spec("T22")
@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])
@pytest.mark.parametrize("layout", ["layered", "rolling", "in_place"])
def test_an_answer_regenerated_after_a_fold_leaves_a_valid_list(layout: str, dialect: str) -> None:
    """A fold replayed in part is judged like any other list, pins at the end and calls without answers included."""
    history = chat("u" + "uatr" * 4 + "tpuaaatrt" + "ua" * 5 + "pu", dialect=dialect)
    for cut in range(1, 14):
        manager = manager_for(ScriptedModel("notes"), policy={"layout": layout, "retention_window": 2})
        manager.manual_compact("s", copy.deepcopy(history))
        out = manager.preflight("s", [*copy.deepcopy(history[:-cut]), *chat("ua", dialect=dialect, first=90)])
        assert [] == problems(dialect, out), cut


def test_an_edited_kept_message_does_not_cost_the_summary() -> None:
    """Words changed in place behind the fold are sent as they are now; the next fold merges, it does not start over."""
    model = ScriptedModel("notes one", "notes two")
    manager = manager_for(model)
    history = chat("s" + "ua" * 18)
    manager.preflight("s", history)
    history[-8]["content"] = "other words"
    history += chat("ua" * 18, first=50)
    manager.preflight("s", history)
    assert [None, "notes one"] == [ask.previous for ask in model.asks]


def test_a_list_that_stays_above_its_trigger_is_not_folded_at_every_call() -> None:
    """Pins and the newest words leave too little room: one summary, and the next when enough has come to be folded."""
    model = ScriptedModel("notes")
    manager = manager_for(model, policy={"keep_recent_turns": 1})
    system, newest = ({"role": role, "content": "word " * n} for role, n in (("system", 1050), ("user", 250)))
    out = manager.preflight("s", [system, *chat("ua" * 4), newest])
    for _ in range(5):
        out = manager.preflight("s", [*out, {"role": "assistant", "content": "yes, it is done."}])
    assert (1, 8, "needed") == (len(model.asks), len(out), manager.session("s").state)


class Down:
    """A store that is not there."""

    def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
        raise ConnectionError("no route")

    def append(self, key: str, lines: Any) -> None:
        raise ConnectionError("no route")

    def get(self, key: str) -> bytes:
        raise ConnectionError("no route")

    def list(self, prefix: str) -> Any:
        raise ConnectionError("no route")


def test_a_store_that_is_down_is_in_nobodys_way_until_a_fold() -> None:
    """With nothing due the list goes straight out; a fold stops, and only an overfull list is an error."""
    manager = manager_for(ScriptedModel("notes"), store=Down())
    short, long, overfull = chat("ua"), chat("ua" * 14), chat("ua" * 30)
    assert short is manager.preflight("s", short)
    assert long is manager.preflight("s", long)
    with pytest.raises(ArchiveError, match="ConnectionError"):
        manager.preflight("s", overfull)


def test_what_the_provider_counts_and_we_never_see_is_added_not_multiplied() -> None:
    """Tools that the host does not pass make every request larger by the same, not three times as large."""
    manager = manager_for(max_context_tokens=128_000)
    manager.preflight("s", chat("u", words=5))
    manager.observe("s", 5_000)
    usage = manager.should_compact("s", chat("u", words=5) + chat("a" + "ua" * 400, first=9)).usage.total
    plain = manager.should_compact("other", chat("u", words=5) + chat("a" + "ua" * 400, first=9)).usage.total
    assert 4_900 < usage - plain < 5_000


@pytest.mark.parametrize("limit", [None, 1_000_000])
def test_recover_makes_the_list_smaller_or_says_that_it_cannot(limit: int | None) -> None:
    """Also when the list is within the limit by our own count: the provider's count is the one that failed."""
    manager = manager_for(max_context_tokens=100_000)
    messages = chat("s" + "ua" * 20)
    out = manager.recover("s", messages, limit=limit)
    before, after = (manager.should_compact(name, m).usage.total for name, m in (("x", messages), ("y", out)))
    assert after <= before * 3 // 4
    with pytest.raises(InsufficientBudget):
        manager.recover("t", chat("su"), limit=limit)


def test_a_summarizer_that_is_back_is_asked_again() -> None:
    """An outage is no verdict on the fold: with `raise`, the same list folds once the model answers."""
    manager = manager_for(ScriptedModel(ModelUnavailable("down"), "notes"), policy={"on_failure": "raise"})
    messages = chat("s" + "ua" * 16)
    with pytest.raises(ModelUnavailable):
        manager.preflight("s", messages)
    assert len(manager.preflight("s", messages)) < len(messages)


def crowd(manager: CompactManager) -> None:
    """So many other sessions that those before them give way."""
    for number in range(HOT_SESSIONS + 1):
        manager.preflight(f"other {number}", chat("u", words=2))


def test_looking_at_a_session_that_gave_way_leaves_it_its_memory() -> None:
    """After a look, a session without an archive still knows its own summary."""
    model = ScriptedModel("notes one", "notes two")
    manager = manager_for(model)
    kept = manager.preflight("a", chat("s" + "ua" * 18))
    crowd(manager)
    assert 1 == manager.session("a").version
    manager.should_compact("a", kept)
    manager.preflight("a", [*kept, *chat("ua" * 18, first=50)])
    assert [None, "notes one"] == [ask.previous for ask in model.asks]


def test_a_room_in_use_does_not_give_way() -> None:
    """Sessions that come meanwhile push nobody out who is inside."""
    inside: list[Any] = []

    def model(ask: Any) -> str:
        crowd(manager)
        inside.append(manager._sessions.peek("a"))
        return "notes"

    manager = manager_for(model)
    manager.preflight("a", chat("s" + "ua" * 18))
    assert 1 == len(inside[0].session.folds)


def test_positions_go_on_after_a_restart(tmp_path: Path) -> None:
    """A session that comes back from its archive numbers new messages after the old ones."""
    storage = {"storage": {"adapter": "fs", "path": str(tmp_path / "archive")}}
    first = manager_for(ScriptedModel("notes"), **storage)
    kept = first.preflight("s", chat("s" + "ua" * 18))
    first.close()
    second = manager_for(ScriptedModel("notes two"), **storage)
    second.preflight("s", [*kept, *chat("ua" * 18, first=50)])
    one, two = second.session("s").folds
    assert two.range[1] > one.range[1]


def test_a_redacted_summary_is_still_known(tmp_path: Path) -> None:
    """A summary that the archive redacted is recognised both as it was written and as it reads now."""
    storage = {"storage": {"adapter": "fs", "path": str(tmp_path / "archive")}}
    history = chat("s" + "ua" * 18)
    first = manager_for(ScriptedModel("password=hunter2hunter2"), **storage)
    first.preflight("s", copy.deepcopy(history))
    first.close()
    model = ScriptedModel("never asked")
    second = manager_for(model, **storage)
    replayed = second.preflight("s", copy.deepcopy(history))
    assert "hunter2" not in json.dumps(replayed)
    model_two = ScriptedModel("notes two")
    third = manager_for(model_two, **storage)
    third.preflight("s", [*replayed, *chat("ua" * 18, first=50)])
    assert [] == model.asks
    assert ["password=<REDACTED>"] == [ask.previous for ask in model_two.asks]


@pytest.mark.spec("S09")
def test_a_message_pinned_after_it_was_folded_comes_back() -> None:
    """A host that passes everything and protects an old message gets it back, as it is."""
    manager = manager_for(ScriptedModel("notes"))
    history = chat("s" + "ua" * 18)
    manager.preflight("s", copy.deepcopy(history))
    again = copy.deepcopy(history)
    again[3]["meta"] = {"protected": True}
    assert any(message is again[3] for message in manager.preflight("s", again))


@pytest.mark.parametrize(
    "changes", [{"storage": {"adapter": "none"}}, {"redaction": {"enabled": True}}, {"provider": "openai"}]
)
def test_what_is_fixed_at_the_start_cannot_be_updated(changes: dict[str, Any]) -> None:
    """A change that could not take effect is refused."""
    with pytest.raises(ConfigError, match="make a new one"):
        manager_for().update(**changes)


def test_two_folds_of_a_users_own_layout_are_allowed() -> None:
    """The law of one summary speaks of `layered` and `rolling`."""

    def mine(history: History, policy: Policy) -> Plan:
        return in_place(history, policy)

    manager = manager_for(ScriptedModel("notes"), policy={"layout": mine, "retention_window": 2})
    out = manager.manual_compact("s", chat("suaaauaaauaaaua"))
    assert 3 == sum("<COMPACT-SUMMARY v" in str(message["content"]) for message in out)


@pytest.mark.spec("S14")
def test_words_beside_a_result_are_the_newest_words() -> None:
    """What a person says in a message that also carries a tool result is not folded before older words."""
    history = chat("u" + "tr" * 12, dialect="anthropic")
    history[-1]["content"].append({"type": "text", "text": "STOP: never touch production"})
    history += chat("tr" * 6, dialect="anthropic", first=60)
    out = manager_for(ScriptedModel("notes")).preflight("s", history)
    assert len(out) < len(history)
    assert "STOP: never touch production" in json.dumps(out)


@pytest.mark.parametrize(
    "act",
    [
        lambda m: compact_messages(chat("ua"), 0),
        lambda m: m.recover("s", chat("ua" * 9), limit=0),
        lambda m: m.preflight("s", None),
        lambda m: m.preflight("s", chat("u"), tools=5),
        lambda m: m.preflight("s", chat("u"), reserve_output=9_000),
        lambda m: m.restore(3),
        lambda m: manager_for(policy={"layout": lambda history, policy: None}).manual_compact("s", chat("ua" * 9)),
        lambda m: manager_for(before_fold=lambda plan: 3).manual_compact("s", chat("ua" * 9)),
    ],
)
def test_odd_arguments_get_a_typed_error(act: Any) -> None:
    """Nothing but errors of ours reaches the caller."""
    with pytest.raises(CompactError):
        act(manager_for())


def test_iterators_are_read_once_by_async_hosts_too() -> None:
    """What a cold `apreflight` looks at to find the format is still there to be counted."""
    tools = [{"type": "function", "function": {"name": "look", "description": "Looks. " * 50}}]
    seen = Recorder()
    asyncio.run(manager_for(None, seen).apreflight("s", deque(chat("ua")), tools=iter(tools)))
    assert seen["token_estimate"][0].data["breakdown"]["tools_schema"] > 100


def test_other_sequences_are_taken_too() -> None:
    """A deque of messages and an iterator of tools are as good as lists."""
    tools = [{"type": "function", "function": {"name": "look", "description": "Looks."}}]
    out = manager_for(ScriptedModel("notes")).preflight("s", deque(chat("s" + "ua" * 18)), tools=iter(tools))
    assert len(out) < 37


@pytest.mark.spec("L02")
def test_a_manual_fold_with_nothing_to_fold_needs_nothing() -> None:
    """The state says needed exactly when a threshold is reached."""
    manager = manager_for()
    manager.manual_compact("s", chat("su"))
    assert "not_needed" == manager.session("s").state


def test_a_turn_is_handed_on_past_a_loop_that_is_gone() -> None:
    """A task that waited on an event loop that was closed does not keep the turn for ever."""
    manager = manager_for()
    with manager._sessions.lock("s"):
        loop = asyncio.new_event_loop()
        waiting = loop.create_task(manager.apreflight("s", chat("u")))
        loop.run_until_complete(asyncio.sleep(0.05))
        waiting._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
    messages = chat("u")
    assert messages is manager.preflight("s", messages)


def test_a_clip_keeps_the_pointer_to_the_whole(tmp_path: Path) -> None:
    """An output that is cut twice still points to the step that holds all of it."""
    manager = manager_for(ScriptedModel("notes"), store=FileStore(tmp_path / "archive"))
    big = [*chat("ut"), {"role": "tool", "tool_call_id": "call_1_0", "content": "some words " * 2_000}]
    once = manager.preflight("s", big)
    assert "step 1, #2" in json.dumps(once)
    twice = manager.preflight("s", [*once, *chat("u" + "tr" * 6, words=110, first=50)])
    text = json.dumps(twice)
    assert "step 1, #2" in text or "step" not in text.replace("archived", "")
    assert "step 2, #2" not in text


@pytest.mark.parametrize("size", range(2_600, 4_000, 200))
def test_a_result_beside_other_words_is_clipped_by_its_own_tokens(size: int) -> None:
    """However dense the words beside it are, what is left fits, or the sum says why not."""
    history = chat("ut", dialect="anthropic")
    result = {"type": "tool_result", "tool_use_id": "call_1_0", "content": "plain words " * 4_000}
    history.append({"role": "user", "content": [result, {"type": "text", "text": "漢字の言葉" * 300}]})
    manager = manager_for(max_context_tokens=size, model="gpt-4o")
    with contextlib.suppress(InsufficientBudget):
        out = manager.preflight("s", history)
        assert manager.should_compact("other", out).usage.total <= size - 60


def test_a_plan_of_a_user_may_hold_folds_of_its_own() -> None:
    """`before_fold` may narrow a fold, and what it leaves out stays."""
    narrowed: list[Plan] = []

    def narrow(plan: Plan) -> Plan:
        (fold,) = plan.folds
        slots = [*fold.indices[4:], *(i for i in plan.kept if i > fold.indices[-1])]
        narrowed.append(Plan((0, Fold(fold.indices[:4]), *slots), plan.size))
        return narrowed[-1]

    out = manager_for(ScriptedModel("notes"), before_fold=narrow).manual_compact("s", chat("s" + "ua" * 12))
    assert len(out) == 25 - 4 + 1
