"""Folds made ahead of need (`policy.prepare_pct`), and folds that travel between processes.

Owns: the proof that nobody waits for a fold below the trigger, that the call that crosses it pays for no second
summary, and that a fold made elsewhere is used exactly where a list begins with what it consumed.
"""

from __future__ import annotations

import asyncio
import copy
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from provider_rules import problems

from compact import Ask, CompactConfig, CompactManager
from compact._engine.live_sessions import HOT_SESSIONS
from compact._engine.manager import internals_of
from compact.errors import ArchiveError, ConfigError, InsufficientBudget, ModelUnavailable
from compact.stores.fs import FileStore
from compact.testing import Recorder, ScriptedModel, chat, transcripts

GUARD = 30
"""Seconds that nothing here takes, unless it hangs."""
Messages = list[dict[str, Any]]


class Gate:
    """A summarizer that answers when it is let."""

    def __init__(self) -> None:
        self.asks: list[Ask] = []
        self.asked, self.open = threading.Event(), threading.Event()

    def __call__(self, ask: Ask) -> str:
        self.asks.append(ask)
        self.asked.set()
        assert self.open.wait(GUARD)
        return f"notes number {len(self.asks)}"


class AsyncGate(Gate):
    """The same for event loops."""

    async def __call__(self, ask: Ask) -> str:  # type: ignore[override]
        self.asks.append(ask)
        self.asked.set()
        while not self.open.is_set():
            await asyncio.sleep(0.001)
        return f"notes number {len(self.asks)}"


def manager_for(model: Any = None, root: Path | None = None, **settings: Any) -> CompactManager:
    """A manager of a small window that prepares at half of it and folds at 80 %."""
    policy = {"hard_cap_buffer": 100, "trigger_pct": 0.8, "prepare_pct": 0.5, **settings.pop("policy", {})}
    storage = {"path": str(root)} if root else {"adapter": "none"}
    arguments = {name: settings.pop(name) for name in ("sinks", "store", "before_fold") if name in settings}
    settings = {"max_context_tokens": 4_000, "summary": {"min_score": 0, "max_retries": 0}, **settings}
    config = CompactConfig(counter="chars", storage=storage, policy=policy, **settings)
    return CompactManager(config, summarizer=model or ScriptedModel(numbered()), **arguments)


def numbered() -> Callable[[Ask], str]:
    count = iter(range(1, 1_000))
    return lambda ask: f"notes number {next(count)}"


def talk(tokens: int, first: int = 0) -> Messages:
    """A conversation of about so many tokens, by four characters each: a turn has about 100."""
    return chat("s" if not first else "", words=30) + chat("utra" * (tokens // 200), words=30, first=first + 1)


EARLY, DUE = talk(2_400), talk(3_600)
"""The same conversation above the prepare line and above the trigger."""
assert DUE[: len(EARLY)] == EARLY


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + GUARD
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def prepared(manager: CompactManager, messages: Messages = EARLY, session: str = "s") -> None:
    """Pass a list above the prepare line, and wait until its fold is ready."""
    assert manager.preflight(session, messages) is messages
    settled()


def settled() -> None:
    """Wait until no fold is being made ahead."""
    until(lambda: "compact-prepare" not in {thread.name for thread in threading.enumerate()})


def told(messages: Any) -> str:
    return json.dumps(messages)


# -- nobody waits ------------------------------------------------------------------------------------------------------


def test_no_request_waits_and_the_one_that_crosses_finds_a_fold() -> None:
    """Below the trigger lists go out as they came, whatever the summarizer does; one summary is paid for."""
    gate, seen = Gate(), Recorder()
    manager = manager_for(gate, sinks=[seen])
    assert manager.preflight("s", EARLY) is EARLY
    assert gate.asked.wait(GUARD)
    longer = [*EARLY, *talk(400, first=900)]
    assert manager.preflight("s", longer) is longer
    assert () == manager.session("s").folds
    gate.open.set()
    until(lambda: seen["summary_created"])
    assert manager.preflight("s", longer) is longer  # a fold that is ready is not used below the trigger
    sent = manager.preflight("s", DUE)
    assert 1 == len(gate.asks)
    assert "notes number 1" in told(sent)
    assert sent[-4:] == DUE[-4:]
    assert len(sent) < len(DUE)
    (fold,) = manager.session("s").folds
    assert ("prepare",) == fold.reasons
    (left,) = seen["pruned_messages"]
    assert left.data["messages_after"] == len(sent)
    assert left.data["waited"] < 1
    assert left.data["tokens_after"] == seen["token_estimate"][-1].data["t_est"] < left.data["tokens_before"]
    assert {"summary_call", "summary_created"} <= {e.name[8:] for e in seen if e.data.get("ahead")}


def test_the_call_that_crosses_waits_for_a_fold_under_way() -> None:
    gate, seen = Gate(), Recorder()
    manager = manager_for(gate, sinks=[seen])
    manager.preflight("s", EARLY)
    assert gate.asked.wait(GUARD)
    sent: list[Any] = []
    crossing = threading.Thread(target=lambda: sent.extend(manager.preflight("s", DUE)))
    crossing.start()
    crossing.join(0.1)
    assert crossing.is_alive()
    gate.open.set()
    crossing.join(GUARD)
    assert 1 == len(gate.asks)
    assert "notes number 1" in told(sent)
    assert seen["pruned_messages"][0].data["waited"] > 0.05


def test_event_loops_prepare_alike() -> None:
    """A task of the loop makes the fold; other tasks go on, and the call that crosses waits for it alone."""

    async def run() -> None:
        gate = AsyncGate()
        with manager_for(gate) as manager:
            assert await manager.apreflight("s", EARLY) is EARLY
            while not gate.asked.is_set():
                await asyncio.sleep(0.001)
            longer = [*EARLY, *talk(400, first=900)]
            assert await manager.apreflight("s", longer) is longer
            crossing = asyncio.create_task(manager.apreflight("s", DUE))
            await asyncio.sleep(0.05)
            assert not crossing.done()
            assert await manager.apreflight("other", DUE[:5]) == DUE[:5]
            gate.open.set()
            sent = await asyncio.wait_for(crossing, GUARD)
            assert 1 == len(gate.asks)
            assert "notes number 1" in told(sent)

    asyncio.run(run())


def test_a_fold_prepared_on_a_loop_that_is_gone_is_made_anew() -> None:
    """A host that runs a loop for each call, and a sync call on the loop's own thread, never hang."""
    model = ScriptedModel(numbered())
    manager = manager_for(model)
    assert asyncio.run(manager.apreflight("s", EARLY)) is EARLY
    assert "notes" in told(asyncio.run(manager.apreflight("s", DUE)))
    gate = AsyncGate()

    async def run() -> Any:
        manager = manager_for(gate)
        await manager.apreflight("s", EARLY)
        while not gate.asked.is_set():
            await asyncio.sleep(0.001)
        with pytest.raises(ConfigError, match="await apreflight"):
            manager.preflight("s", DUE)

    asyncio.run(run())
    loop = asyncio.new_event_loop()
    manager = manager_for(model)
    loop.run_until_complete(manager.apreflight("s", EARLY))
    assert "notes" in told(manager.preflight("s", DUE))  # though the loop stands still
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()


# -- only what the list begins with ------------------------------------------------------------------------------------


def test_an_edited_end_keeps_the_fold_and_an_edited_beginning_does_not() -> None:
    for edited, asks in ((len(EARLY) - 1, 1), (2, 2)):
        model = ScriptedModel(numbered())
        manager = manager_for(model)
        prepared(manager)
        due = copy.deepcopy(DUE)
        due[edited] = {**due[edited], "content": "said otherwise"}
        sent = manager.preflight("s", due)
        assert asks == len(model.asks), edited
        assert f"notes number {asks}" in told(sent)
        assert [] == problems("openai-chat", sent)
        assert told(sent) == told(manager.preflight("s", copy.deepcopy(due)))  # a retry gets the same, for nothing
        assert asks == len(model.asks)


def test_a_message_edited_while_its_fold_is_made_is_noticed() -> None:
    """A host that writes on its own messages: what was folded is not what the list begins with any more."""
    gate = Gate()

    def hold(plan: Any) -> Any:
        gate.asked.set()
        assert gate.open.wait(GUARD)
        return plan

    manager = manager_for(before_fold=hold)
    mine = copy.deepcopy(EARLY)
    manager.preflight("s", mine)
    assert gate.asked.wait(GUARD)
    mine[1]["content"] = "said otherwise"
    gate.open.set()
    settled()
    mine += DUE[len(EARLY) :]
    assert "notes number 2" in told(manager.preflight("s", mine))


@pytest.mark.parametrize("keeps", [True, False], ids=["keeps what it got", "passes everything"])
@pytest.mark.parametrize("layout", ["layered", "in_place", "rolling"])
def test_a_long_session_folds_ahead_again_and_again(tmp_path: Path, layout: str, keeps: bool) -> None:
    """Each fold carries the one before on, every list is valid, nothing is lost, and nobody asks twice."""
    model, seen = ScriptedModel(numbered()), Recorder()
    policy = {"layout": layout, "token_threshold": 3_200, "retention_window": 4, "window_rounds": 40}
    manager = manager_for(model, tmp_path, sinks=[seen], policy=policy)
    full, mine = chat("sp", words=30), chat("sp", words=30)
    for number in range(30 if layout == "in_place" else 60):
        more = chat("utra", words=30, first=100 * number + 10)
        full, mine = [*full, *more], [*mine, *more]
        mine = list(manager.preflight("s", mine if keeps else full))
        assert [] == problems("openai-chat", mine)
        assert full[:2] == mine[:2]
        assert mine[-4:] == more
        settled()
    folds = manager.session("s").folds
    assert len(folds) >= 2
    assert {("prepare",)} == {fold.reasons for fold in folds}
    starts = [fold.range[0] for fold in folds]
    assert starts == sorted(starts)
    if layout != "in_place":
        assert all(ask.previous and "notes number" in ask.previous for ask in model.asks[1:])
        assert len(model.asks) <= len(folds) + 1
    assert manager.verify("s")
    archived = [told(m) for step in range(1, manager.session("s").step + 1) for m in manager.restore("s", step)]
    assert {told(message) for message in full} <= {*archived, *map(told, mine)}
    for fold in folds:  # and every message is known by its place
        record = json.loads((tmp_path / "s" / f"summary-{fold.step:03}.json").read_bytes())
        for line, message in enumerate(manager.restore("s", fold.step)):
            assert line in record["earlier_summaries"] or message == full[record["positions"][line]]
    other = manager_for(model, tmp_path, policy=policy)  # a new process finds all of it
    assert told(other.preflight("s", mine if keeps else full)) == told(mine)


# -- when it fails, or nobody wants it ---------------------------------------------------------------------------------


def test_a_preparation_that_fails_changes_nothing() -> None:
    """Its events say so, it is tried again after some growth, and the call that crosses folds as ever."""
    model, seen = ScriptedModel(ModelUnavailable("down"), ModelUnavailable("down"), "notes at last"), Recorder()
    manager = manager_for(model, sinks=[seen])
    prepared(manager)
    assert ["ModelUnavailable"] == [e.data["error_type"] for e in seen["error"]]
    prepared(manager, [*EARLY, *chat("u", first=700)])
    assert 1 == len(model.asks)
    prepared(manager, talk(2_800))
    assert 2 == len(model.asks)
    assert "notes at last" in told(manager.preflight("s", DUE))
    assert "ahead" not in seen["pruned_messages"][0].data


def test_somebody_elses_bug_stays_in_the_background(caplog: pytest.LogCaptureFixture) -> None:
    def broken(plan: Any) -> Any:
        raise ZeroDivisionError("the text of a message")

    manager = manager_for(before_fold=broken)
    prepared(manager)
    assert "ZeroDivisionError" in caplog.text
    assert "the text" not in caplog.text
    with pytest.raises(ZeroDivisionError):
        manager.preflight("s", DUE)


def test_a_store_that_is_down_costs_no_summary(tmp_path: Path) -> None:
    """Down while a fold is prepared: nothing is asked. Down when it is to be used: it is used the next time."""

    class Store(FileStore):
        refuses = "transcript"
        read = 0

        def get(self, key: str) -> bytes:
            self.read += 1
            return super().get(key)

        def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
            if self.refuses and self.refuses in key:
                raise OSError("no space")
            super().put(key, data, if_absent=if_absent)

    model, store = ScriptedModel(numbered()), Store(tmp_path)
    manager = manager_for(model, store=store)
    prepared(manager)
    assert [] == model.asks
    store.refuses = "summary"
    prepared(manager, talk(2_800))
    assert manager.preflight("s", DUE) is DUE
    store.refuses = ""
    assert "notes number 1" in told(manager.preflight("s", DUE))
    assert 1 == len(model.asks)
    read, mine = store.read, DUE
    while 2 > len(manager.session("s").folds):
        mine = [*mine, *chat("ua", words=60, first=10 * len(mine))]
        manager.preflight("s", mine)
        settled()
    assert 2 == len(model.asks)
    assert read == store.read  # what is written ahead is no reason to read the session back
    assert manager.verify("s")


def test_another_fold_meanwhile_wins(tmp_path: Path) -> None:
    """A fold that was asked for, an overflow, an undo: what was prepared is not used, and no record tells of it."""
    model = ScriptedModel(numbered())
    manager = manager_for(model, tmp_path)
    prepared(manager)
    kept = manager.manual_compact("s", EARLY)
    assert "notes number 2" in told(kept)
    sent = manager.preflight("s", [*EARLY, *talk(3_200, first=5_000)])
    assert "notes number 3" in told(sent)
    assert [2, 3] == [fold.step for fold in manager.session("s").folds]
    assert [2, 3] == [int(path.stem[-3:]) for path in sorted((tmp_path / "s").glob("summary-*"))]
    assert manager.verify("s")
    assert manager.undo("s") == manager.restore("s", 3)
    assert manager.undo("s") == EARLY == manager.restore("s", 2)
    with pytest.raises(ArchiveError, match="no compaction to undo"):
        manager.undo("s")
    assert manager.redo("s") == kept

    prepared(manager, EARLY, "t")
    assert len(manager.recover("t", EARLY)) < len(EARLY)
    assert ["overflow"] == [fold.reasons[0] for fold in manager.session("t").folds]

    prepared(manager, EARLY, "v")
    assert manager.preflight("v", DUE) != DUE
    assert manager.undo("v") == EARLY  # the list that was folded, some calls ago
    assert manager.redo("v") != EARLY


def test_two_processes_that_prepare_the_same_fold_use_one(tmp_path: Path) -> None:
    """Each has a transcript in the archive; whoever crosses first uses its own, and the other one takes it over."""
    models = [ScriptedModel("notes of one"), ScriptedModel("notes of two")]
    one, other = (manager_for(model, tmp_path) for model in models)
    for manager in (one, other):
        prepared(manager)
    sent = one.preflight("s", DUE)
    assert "notes of one" in told(sent)
    assert told(sent) == told(other.preflight("s", copy.deepcopy(DUE)))
    assert [1, 1] == [len(model.asks) for model in models]
    assert [1] == [fold.step for fold in other.session("s").folds]
    assert other.preflight("s", [*DUE, *talk(2_800, first=2_000)]) != sent
    assert [3] == [fold.step for fold in other.session("s").folds[1:]]
    assert one.verify("s")

    other.preflight("t", chat("s"))
    one.manual_compact("t", EARLY)
    prepared(other, EARLY, "t")  # it finds that somebody folded, and asks nobody
    assert 2 == len(models[1].asks)


def test_nothing_is_written_once_a_session_is_forgotten_or_the_manager_closed(tmp_path: Path) -> None:
    gate, seen = Gate(), Recorder()
    manager = manager_for(gate, tmp_path, sinks=[seen])
    manager.preflight("s", EARLY)
    assert gate.asked.wait(GUARD)
    assert 1 <= len(manager.forget("s").keys)
    gate.open.set()
    settled()
    assert [] == list(tmp_path.glob("s/*"))

    gate.open.clear()
    gate.asked.clear()
    manager.preflight("t", EARLY)
    assert gate.asked.wait(GUARD)
    manager.close()
    files, events = sorted(tmp_path.rglob("*")), len(seen.events)
    gate.open.set()
    settled()
    assert files == sorted(tmp_path.rglob("*"))
    assert events == len(seen.events)


def test_closing_ends_the_task(tmp_path: Path) -> None:
    async def run() -> None:
        gate = AsyncGate()
        manager = manager_for(gate, tmp_path)
        await manager.apreflight("s", EARLY)
        while not gate.asked.is_set():
            await asyncio.sleep(0.001)
        manager.close()
        await asyncio.sleep(0.05)
        assert {asyncio.current_task()} == asyncio.all_tasks()

    asyncio.run(run())


def test_parameters_may_change_meanwhile() -> None:
    """An update is in force at once; a fold made before it is used, and what is over the new budget folds further."""
    gate = Gate()
    manager = manager_for(gate)
    manager.preflight("s", EARLY)
    assert gate.asked.wait(GUARD)
    manager.update(max_context_tokens=1_000)
    assert 1_000 == manager.config.window
    gate.open.set()
    sent = manager.preflight("s", EARLY)
    assert not manager.should_compact("s", sent)
    assert [("prepare",), ("trigger_pct", "budget")] == [fold.reasons for fold in manager.session("s").folds]
    assert "notes number 2" in told(sent)


def test_a_session_that_gives_way_loses_its_preparation() -> None:
    gate = Gate()
    manager = manager_for(gate)
    manager.preflight("s", EARLY)
    assert gate.asked.wait(GUARD)
    for number in range(HOT_SESSIONS + 1):
        manager.preflight(f"other {number}", chat("u", words=3))
    gate.open.set()
    settled()
    assert "notes number 2" in told(manager.preflight("s", DUE))


def test_off_means_off(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedModel()
    manager = manager_for(model, policy={"prepare_pct": None})
    prepared(manager)
    monkeypatch.setenv("COMPACT_DISABLED", "1")
    prepared(manager_for(model))
    assert [] == model.asks


# -- any conversation --------------------------------------------------------------------------------------------------


def long_talks(broken: bool) -> st.SearchStrategy[tuple[bool, Messages]]:
    """Conversations that fold more than once, and whether they may break the provider's rules."""

    def joined(talks: list[Messages]) -> tuple[bool, Messages]:
        whole = [talk[:-1] if talk[-1].get("tool_calls") and not broken else talk for talk in talks]
        return broken, [message for talk in whole for message in talk if "meta" not in message]

    return st.lists(transcripts(broken=broken, max_steps=25), min_size=3, max_size=6).map(joined)


@pytest.mark.slow
@settings(max_examples=min(settings().max_examples, 60))
@given(
    st.booleans().flatmap(long_talks),
    st.sampled_from(["layered", "in_place", "rolling"]),
    st.sampled_from([0.35, 0.5, 0.7]),
    st.booleans(),
)
def test_whatever_is_said_the_same_rules_hold(
    said: tuple[bool, Messages], layout: str, share: float, keeps: bool
) -> None:
    """With folds made ahead: no list breaks a law or a provider's rule, none is over the budget, nothing is lost."""
    broken, messages = said
    window = max(250, int(len(told(messages)) / 4 * share))
    policy = {"layout": layout, "hard_cap_buffer": 20, "prepare_pct": 0.4, "token_threshold": int(window * 0.8)}
    seen = Recorder()
    with (
        TemporaryDirectory() as root,
        manager_for(root=Path(root), max_context_tokens=window, policy=policy, sinks=[seen]) as manager,
    ):
        full: Messages = []
        mine: Messages = []
        for number, message in enumerate(messages):
            full, mine = [*full, message], [*mine, message]
            if number % 4:
                continue
            folds = len(manager.session("s").folds)
            try:
                sent = list(manager.preflight("s", mine if keeps else full))
            except InsufficientBudget:
                return
            settled()
            if len(manager.session("s").folds) > folds:
                assert [] == problems("openai-chat", sent)
                assert manager.should_compact("other", sent).usage.total <= window - 20
            assert [m for m in full if m["role"] in ("system", "developer")] == [
                m for m in sent if m["role"] in ("system", "developer") and "COMPACT-SUMMARY" not in told(m)
            ]
            mine = sent if keeps else mine
        event(f"{len([e for e in seen['pruned_messages'] if 'waited' in e.data])} folds made ahead")
        assert "LawViolation" not in {e.data["error_type"] for e in seen["error"]}
        steps = range(1, manager.session("s").step + 1)
        archived = {told(m) for step in steps for m in manager.restore("s", step)}
        assert broken or {told(m) for m in full} <= {*archived, *map(told, mine), *map(told, sent)}
        assert manager.session("s").step == 0 or manager.verify("s")


# -- folds that travel -------------------------------------------------------------------------------------------------


def test_a_fold_is_known_elsewhere() -> None:
    """Two managers that share nothing: the second sends what the first does, and goes on from its summary."""
    one, other = (manager_for(ScriptedModel(numbered()), policy={"prepare_pct": None}) for _ in range(2))
    assert internals_of(one).shared_fold("s") is None
    sent = one.preflight("s", DUE)
    value = json.loads(json.dumps(internals_of(one).shared_fold("s")))
    assert value["size"] == len(DUE)
    assert 0 < value["reach"] <= value["size"]
    for _ in range(2):  # the second time nothing changes
        asyncio.run(internals_of(other).adopt_fold("s", value))
    assert 1 == len(other.session("s").folds)
    longer = [*DUE, *chat("ua", first=800)]
    assert told(other.preflight("s", copy.deepcopy(longer))) == told(one.preflight("s", longer))
    assert told(sent) == told(other.preflight("s", DUE))
    assert value == json.loads(json.dumps(internals_of(other).shared_fold("s")))
    asks = other._runner._summarizer.asks  # type: ignore[union-attr]
    assert [] == asks
    assert "notes" in told(other.preflight("s", [*DUE, *talk(2_800, first=2_000)]))
    assert ["notes number 1"] == [ask.previous for ask in asks]
    assert [1, 2] == [fold.step for fold in other.session("s").folds]


@pytest.mark.parametrize(
    ("dialect", "round_"), [("anthropic", "atrau"), ("openai-responses", "atrau"), ("openai-chat", "aauau")]
)
def test_a_fold_travels_in_any_dialect(dialect: str, round_: str) -> None:
    """Also where nothing tells yet which it is."""
    messages = chat("u" + round_ * 14, words=40, dialect=dialect)
    one, other = (manager_for(policy={"prepare_pct": None}) for _ in range(2))
    sent = one.preflight("s", messages)
    asyncio.run(internals_of(other).adopt_fold("s", internals_of(one).shared_fold("s") or {}))
    assert told(sent) == told(other.preflight("s", messages))
    assert len(sent) < len(messages)


def test_of_two_folds_of_the_same_messages_the_adopted_one_stays(tmp_path: Path) -> None:
    """Both processes and the archive agree on it, and the next fold of either carries it on."""
    off = {"prepare_pct": None}
    one, other = (manager_for(ScriptedModel(f"notes of {name}"), tmp_path, policy=off) for name in ("one", "two"))
    for manager in (one, other):
        manager.preflight("s", EARLY)  # both know the session before either folds
    first = one.preflight("s", DUE)
    # The race: the other had looked before the first one wrote.
    other._sessions.peek("s").session.archive_state.known = (1, 1, 0)
    assert "notes of two" in told(other.preflight("s", DUE))
    value = internals_of(one).shared_fold("s") or {}
    asyncio.run(internals_of(other).adopt_fold("s", value))
    assert told(first) == told(other.preflight("s", copy.deepcopy(DUE))) == told(one.preflight("s", DUE))
    third = manager_for(root=tmp_path, policy=off)
    assert told(first) == told(third.preflight("s", DUE))
    assert third.verify("s")
    longer = [*DUE, *talk(2_800, first=2_000)]
    sent = other.preflight("s", longer)
    assert "notes of one" in other._runner._summarizer.asks[-1].previous  # type: ignore[union-attr]
    assert told(sent) == told(one.preflight("s", [*longer, *chat("u")])[:-1])
    assert [1, 3] == [fold.step for fold in manager_for(root=tmp_path).session("s").folds]
    assert other.verify("s")


def test_without_an_archive_the_adopted_fold_stays_too() -> None:
    one, other = (manager_for(ScriptedModel(f"notes of {name}"), policy={"prepare_pct": None}) for name in ("1", "2"))
    sent, lost = one.preflight("s", DUE), other.preflight("s", DUE)
    assert sent != lost
    asyncio.run(internals_of(other).adopt_fold("s", internals_of(one).shared_fold("s") or {}))
    assert told(sent) == told(other.preflight("s", DUE)) == told(other.preflight("s", copy.deepcopy(DUE)))
    assert 1 == len(other.session("s").folds)
    assert told(lost) == told(other.preflight("s", lost))  # a host that kept what it was given goes on with that


def test_a_fold_of_fewer_messages_does_not_displace_ours() -> None:
    one, other = (manager_for(ScriptedModel(f"notes of {name}"), policy={"prepare_pct": None}) for name in ("1", "2"))
    one.preflight("s", DUE)
    value = internals_of(one).shared_fold("s") or {}
    longer = [*DUE, *talk(2_800, first=2_000)]
    other.preflight("s", DUE)
    mine = other.preflight("s", longer)
    asyncio.run(internals_of(other).adopt_fold("s", value))
    assert told(mine) == told(other.preflight("s", longer))
    assert 2 == len(other._runner._summarizer.asks)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 99},
        {"format": None},
        {"made": []},
        {"made": [{"message": 7}]},
        {"range": None},
        {"step": 0},
        {"dialect": "morse"},
        {"replay": {}},
        {"gone_calls": 3},
    ],
    ids=str,
)
def test_a_damaged_fold_is_refused_whole(damage: dict[str, Any]) -> None:
    one, other = (manager_for(policy={"prepare_pct": None}) for _ in range(2))
    one.preflight("s", DUE)
    value = internals_of(one).shared_fold("s") or {}
    with pytest.raises(ArchiveError, match="came from another process"):
        asyncio.run(internals_of(other).adopt_fold("s", {**value, **damage}))
    with pytest.raises(ArchiveError, match="came from another process"):
        asyncio.run(internals_of(other).adopt_fold("s", {**value, "replay": {**value["replay"], "slots": [10_000]}}))
    assert () == other.session("s").folds
    assert "notes" in told(other.preflight("s", DUE))


def test_a_fold_travels_without_secrets() -> None:
    secret = "sk-ant-api03-" + "A1b2C3d4" * 10
    manager = manager_for(ScriptedModel(f"the key is {secret}"), policy={"prepare_pct": None})
    assert secret in told(manager.preflight("s", DUE))
    assert secret not in told(internals_of(manager).shared_fold("s"))
    assert internals_of(manager).shared_fold("another") is None
