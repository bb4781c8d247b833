"""Async hosts: the same results and events as sync ones, in order, without stopping the event loop."""

from __future__ import annotations

import asyncio
import copy
import re
import threading
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compact import Ask, CompactConfig, CompactError, CompactManager
from compact._compaction.layouts import LAYOUTS
from compact._engine.live_sessions import HOT_SESSIONS
from compact.errors import ContentFilter, ManagerClosed, ModelUnavailable, SummaryTimeout, TokenLimitExceeded
from compact.stores.fs import FileStore
from compact.testing import Recorder, ScriptedModel, chat

SCRIPTS: dict[str, tuple[Any, ...]] = {
    "good": ("goal: ship it",),
    "unreachable": (ModelUnavailable("nobody there"),),
    "unreachable once": (ModelUnavailable("nobody there"), "goal: ship it"),
    "slow": (SummaryTimeout("too slow"), "goal: ship it"),
    "refused": (ContentFilter("no"),),
    "refused once": (ContentFilter("no"), "goal: ship it"),
    "too small": (TokenLimitExceeded("too much to read"),),
    "too long": ("word " * 5000,),
    "too long once": ("word " * 5000, "goal: ship it"),
    "empty": ("",),
    "broken": (ValueError("a bug of its own"),),
}


def manager_for(summarizer: Any, recorder: Recorder | None = None, **settings: Any) -> CompactManager:
    """A manager with a small window that archives nothing unless told so and does not retry."""
    policy = {"hard_cap_buffer": 100, **settings.pop("policy", {})}
    summary = {"max_retries": 0, "min_score": 0, **settings.pop("summary", {})}
    defaults = {"max_context_tokens": 1500, "storage": {"adapter": "none"}}
    config = CompactConfig(**{**defaults, **settings}, policy=policy, summary=summary)
    return CompactManager(config, summarizer=summarizer, sinks=[recorder] if recorder else [])


def told(recorder: Recorder) -> list[tuple[Any, ...]]:
    """The events without their times."""
    return [(e.name, e.session_id, e.step, e.status, dict(e.data)) for e in recorder]


async def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, awaited if need be, or the error it raises."""
    try:
        result = call()
        return await result if isinstance(result, Awaitable) else result
    except CompactError as error:
        return type(error), str(error)


# -- the same as sync ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("on_failure", ["prune", "extract", "raise"])
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("layout", ["layered", "in_place", "rolling"])
def test_the_same_results_and_events(layout: str, script: str, on_failure: str) -> None:
    """Whatever the summarizer does, `apreflight` and `amanual_compact` give what their sync twins give."""
    history = chat("s" + "utrtra" * 12)
    threshold = 1100 if layout == "in_place" else None
    policy = {"layout": layout, "on_failure": on_failure, "token_threshold": threshold, "retention_window": 3}
    settings: dict[str, Any] = {"policy": policy, "max_context_tokens": 8000 if layout == "in_place" else 1500}
    seen = [Recorder(), Recorder()]

    lists = [history[:size] for size in range(2, len(history), 5)]

    async def run(preflight: Any, manual_compact: Any) -> list[Any]:
        outs = [await outcome(partial(preflight, "s", messages)) for messages in lists]
        return [*outs, await outcome(partial(manual_compact, "s", history, note="by hand"))]

    one, other = (manager_for(ScriptedModel(*SCRIPTS[script]), recorder, **settings) for recorder in seen)
    wanted = asyncio.run(run(one.preflight, one.manual_compact))
    assert wanted == asyncio.run(run(other.apreflight, other.amanual_compact))
    assert told(seen[0]) == told(seen[1])
    assert any(e.data["triggered"] for e in seen[0]["trigger_decision"])


def test_the_same_archive(tmp_path: Any) -> None:
    """Both write the same files with the same content, times aside."""
    history = chat("s" + "ua" * 20)
    written = []
    for kind in ("sync", "async"):
        storage = {"adapter": "fs", "path": str(tmp_path / kind)}
        with manager_for(ScriptedModel("goal: ship it"), storage=storage) as manager:
            if kind == "sync":
                manager.preflight("s", history)
            else:
                asyncio.run(manager.apreflight("s", history))
        files = sorted((tmp_path / kind).rglob("*.json*"))
        untimed = re.compile(rb'"time":[0-9.]+,')
        written.append({f.name: untimed.sub(b"", f.read_bytes()) for f in files if f.name != "events.jsonl"})
        assert "events.jsonl" in [f.name for f in files]
    assert ["summary-001.json", "transcript-pre-compact-001.jsonl"] == list(written[0])
    assert written[0] == written[1]


# -- kinds of summarizers --------------------------------------------------------------------------------------------


async def _later(ask: Ask) -> str:
    await asyncio.sleep(0)
    return "goal: ship it"


class _Callable:
    async def __call__(self, ask: Ask) -> str:
        return await _later(ask)


KINDS: dict[str, Callable[[Ask], Any]] = {
    "sync": lambda ask: "goal: ship it",
    "async": _later,
    "sync that gives an awaitable": lambda ask: _later(ask),
    "async object": _Callable(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["preflight", "apreflight"])
def test_any_kind_of_summarizer_works_both_ways(how: str, kind: str) -> None:
    """Sync and async summarizers serve sync and async hosts alike."""
    manager = manager_for(KINDS[kind])
    history = chat("s" + "ua" * 20)
    out = manager.preflight("s", history) if how == "preflight" else asyncio.run(manager.apreflight("s", history))
    assert "<COMPACT-SUMMARY v1>\ngoal: ship it\n</COMPACT-SUMMARY>" == out[1]["content"]


def test_an_async_summarizer_in_a_sync_call_on_the_loop() -> None:
    """It cannot be awaited there: the caller is told to use `apreflight`, and nothing is lost silently."""
    seen = Recorder()
    manager = manager_for(_later, seen)

    async def host() -> None:
        manager.preflight("s", chat("s" + "ua" * 20))

    with pytest.raises(CompactError, match="apreflight"):
        asyncio.run(host())


# -- cancelling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", ["none", "fs"])
def test_cancelled_while_summarizing(adapter: str) -> None:
    """A cancelled fold has not happened: the list is untouched, the fold still needed, and the next call makes it."""

    async def host() -> None:
        asked, never = asyncio.Event(), asyncio.Event()

        async def hangs_once(ask: Ask) -> str:
            if not asked.is_set():
                asked.set()
                await never.wait()
            return "goal: ship it"

        manager = manager_for(hangs_once, storage={"adapter": adapter})
        history = chat("s" + "ua" * 20)
        before = copy.deepcopy(history)
        task = asyncio.create_task(manager.apreflight("s", history))
        await asked.wait()
        assert ("in_progress", "compacting", "in_progress") == states(manager)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert before == history
        assert ("needed", "idle", "idle") == states(manager)
        assert () == manager.session("s").folds
        out = await asyncio.wait_for(manager.apreflight("s", history), 10)
        assert "<COMPACT-SUMMARY v1>" in out[1]["content"]
        assert ("completed", "idle", "idle") == states(manager)
        assert before == history
        if adapter == "fs":
            assert before == manager.restore("s")

    asyncio.run(host())


def states(manager: CompactManager) -> tuple[str, str, str]:
    """The three states of the session."""
    view = manager.session("s")
    return view.state, view.phase, view.summary_state


def test_cancelled_while_waiting_for_a_turn() -> None:
    """A task that gives up in the queue does not take the turn of those behind it."""

    async def host() -> None:
        asked, go = asyncio.Event(), asyncio.Event()

        async def waits(ask: Ask) -> str:
            asked.set()
            await go.wait()
            return "goal: ship it"

        manager = manager_for(waits)
        history = chat("s" + "ua" * 20)
        first = asyncio.create_task(manager.apreflight("s", history))
        await asked.wait()
        second = asyncio.create_task(manager.apreflight("s", list(history)))
        third = asyncio.create_task(manager.apreflight("s", list(history)))
        await asyncio.sleep(0.01)
        second.cancel()
        await asyncio.sleep(0)
        go.set()
        outs = await asyncio.wait_for(asyncio.gather(first, third), 10)
        assert outs[0] == outs[1]
        with pytest.raises(asyncio.CancelledError):
            await second
        assert 1 == manager.session("s").step

    asyncio.run(host())


# -- many at once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm", [True, False])
def test_fifty_tasks_on_one_session(warm: bool) -> None:
    """They are served in the order they came, and each fold has the next step."""

    async def host() -> tuple[list[str], list[int]]:
        order: list[str] = []

        async def summarizer(ask: Ask) -> str:
            order.append(ask.source[0].text.split()[0])
            await asyncio.sleep(0)
            return f"goal: number {len(order)}"

        seen = Recorder()
        manager = manager_for(summarizer, seen)
        if warm:
            await manager.apreflight("s", chat("u"))
        lists = [chat("ua" * 20, first=1000 * (number + 1)) for number in range(50)]
        await asyncio.gather(*(manager.amanual_compact("s", messages) for messages in lists))
        assert [fold.step for fold in manager.session("s").folds] == list(range(1, 51))
        return order, [event.step for event in seen["pruned_messages"]]

    order, steps = asyncio.run(host())
    assert [f"(u{1000 * (number + 1)})" for number in range(50)] == order
    assert sorted(set(steps)) == sorted(steps)


def test_the_loop_runs_on_while_a_sync_summarizer_works() -> None:
    """A summarizer that blocks its thread until the loop has done something else gets its answer out."""

    async def host() -> Any:
        asked, moved = threading.Event(), threading.Event()

        def blocks(ask: Ask) -> str:
            asked.set()
            return "goal: ship it" if moved.wait(10) else "the loop stood still"

        manager = manager_for(blocks)
        task = asyncio.create_task(manager.apreflight("s", chat("s" + "ua" * 20)))
        while not asked.is_set():
            await asyncio.sleep(0.001)
        other = await manager.apreflight("another session", chat("ua"))
        assert chat("ua") == other
        moved.set()
        return await task

    assert "goal: ship it" in asyncio.run(host())[1]["content"]


def test_tasks_and_threads_share_a_session() -> None:
    """A thread that folds makes a task wait without stopping its loop, and both see one history of steps."""
    asked, go = threading.Event(), threading.Event()

    def waits(ask: Ask) -> str:
        asked.set()
        go.wait(10)
        return "goal: ship it"

    manager = manager_for(waits)
    history = chat("s" + "ua" * 20)
    outs: list[Any] = []
    thread = threading.Thread(target=lambda: outs.append(manager.preflight("s", history)))
    thread.start()
    asked.wait(10)

    async def host() -> Any:
        task = asyncio.create_task(manager.apreflight("s", list(history)))
        for _ in range(5):
            await asyncio.sleep(0.001)
        assert not task.done()
        go.set()
        return await asyncio.wait_for(task, 10)

    outs.append(asyncio.run(host()))
    thread.join()
    assert outs[0] == outs[1]
    assert 1 == manager.session("s").step


def test_closed() -> None:
    """The async verbs refuse to work after `close()` too."""
    manager = manager_for(ScriptedModel())
    manager.close()
    for call in (manager.apreflight, manager.amanual_compact):
        with pytest.raises(ManagerClosed):
            asyncio.run(call("s", chat("ua")))


class Watched(FileStore):
    """A store that notes which threads came to it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.threads: dict[str, set[int]] = {}

    def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
        self.threads.setdefault("put", set()).add(threading.get_ident())
        super().put(key, data, if_absent=if_absent)

    def append(self, key: str, lines: Iterable[bytes]) -> None:
        self.threads.setdefault("append", set()).add(threading.get_ident())
        super().append(key, lines)


def test_a_store_is_never_used_on_the_loop(tmp_path: Path) -> None:
    """Neither by folds, nor when many events are held, nor when sessions give way."""
    store = Watched(tmp_path / "archive")
    config = CompactConfig(max_context_tokens=1500, policy={"hard_cap_buffer": 100})
    manager = CompactManager(config, store=store)

    async def host() -> int:
        messages = await manager.apreflight("s", chat("s" + "ua" * 40))
        written = len(store.list("s/"))
        for _ in range(200):
            messages = await manager.apreflight("s", messages)
        await manager.apreflight("t", chat("s" + "ua" * 40))
        await manager.apreflight("t", chat("s" + "ua" * 40))
        for number in range(HOT_SESSIONS + 1):
            await manager.apreflight(f"n{number}", chat("su"))
        assert threading.get_ident() not in set().union(*store.threads.values())
        return written

    assert 3 == asyncio.run(host())
    lines = (tmp_path / "archive" / "s" / "events.jsonl").read_text("utf-8").splitlines()
    assert len(lines) > 300, "events were written while nothing folded"
    last = (tmp_path / "archive" / "t" / "events.jsonl").read_text("utf-8").splitlines()[-1]
    assert "trigger_decision" in last, "a session that gave way wrote what it held"


# -- what a loop never does --------------------------------------------------------------------------------------------


@pytest.mark.spec("T29")
def test_a_long_list_is_read_and_planned_in_a_thread() -> None:
    """A text that takes long to count, many messages, every fold: the thread of the loop does none of it."""
    where: list[tuple[str, bool]] = []
    loop_thread = threading.current_thread()

    def note(what: str) -> None:
        where.append((what, threading.current_thread() is loop_thread))

    def layout(history: Any, policy: Any) -> Any:
        note("planned")
        return LAYOUTS["layered"].choose(history, policy)

    def protect(raw: Any) -> bool:
        note("read")
        return False

    async def calls(messages: list[Any], **settings: Any) -> set[tuple[str, bool]]:
        policy = {"layout": layout, **settings}
        config = CompactConfig(counter="chars", policy=policy, storage={"adapter": "none"})
        with CompactManager(config, summarizer=ScriptedModel("short"), protect=protect) as manager:
            await manager.apreflight("s", messages[:1])
            del where[:]
            await manager.apreflight("s", messages)
            return set(where)

    few, long, many = chat("u" + "au" * 9), chat("uau", words=12_000), chat("u" + "au" * 300)
    assert {("read", True)} == asyncio.run(calls(few))
    assert {("read", False)} == asyncio.run(calls(long))
    assert {("read", False)} == asyncio.run(calls(many))
    assert ("planned", False) in asyncio.run(calls(few, message_threshold=5))
    assert ("planned", True) not in where
