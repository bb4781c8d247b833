"""One process under load and under fire: loops that must end, memory that must not grow, messages nobody expects."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import os
import random
import re
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from volume import FULL, volume

import compact
from compact import Ask, CompactConfig, CompactError, CompactManager, Event
from compact.errors import ContentFilter, ManagerClosed, ModelUnavailable, SummaryError
from compact.testing import Recorder, ScriptedModel, chat


def manager_for(summarizer: Any = None, *sinks: Any, **settings: Any) -> CompactManager:
    """A manager with a small window that archives nothing unless told so and does not retry."""
    policy = {"hard_cap_buffer": 100, **settings.pop("policy", {})}
    summary = {"max_retries": 0, "min_score": 0, **settings.pop("summary", {})}
    defaults = {"max_context_tokens": 1500, "storage": {"adapter": "none"}}
    config = CompactConfig(**{**defaults, **settings}, policy=policy, summary=summary)
    return CompactManager(config, summarizer=summarizer, sinks=sinks)


def summaries(messages: list[Any]) -> list[str]:
    """The texts that carry our marker."""
    return [m["content"] for m in messages if "<COMPACT-SUMMARY v" in str(m["content"])]


# -- loops that must end ---------------------------------------------------------------------------------------------


@pytest.mark.spec("T19", "S32")
@pytest.mark.parametrize("layout", ["layered", "rolling", "in_place"])
def test_a_summarizer_that_never_shrinks_prunes(layout: str) -> None:
    """Three calls, each for half of the one before, then the fold completes without a summary, and all is said."""
    model, seen = ScriptedModel("word " * 20_000), Recorder()
    policy = {"layout": layout, "token_threshold": 1200 if layout == "in_place" else None}
    manager = manager_for(model, seen, policy=policy, max_context_tokens=5000 if layout == "in_place" else 1500)
    history = chat("su" + "tr" * 12 + "ua" * 4 if layout == "in_place" else "s" + "ua" * 16)
    out = manager.preflight("s", history)
    first = model.asks[0].max_tokens
    assert [first, first // 2, first // 4] == [ask.max_tokens for ask in model.asks]
    assert [] == summaries(out)
    assert len(out) < len(history)
    assert ["half the size", "half the size", "pruning-only"] == [e.data["fallback"] for e in seen["error"]]
    assert {"BadSummary"} == {e.data["error_type"] for e in seen["error"]}
    assert 1 == len(seen["pruned_messages"])
    for _ in range(10):
        manager.preflight("s", copy.deepcopy(history))
    assert 3 == len(model.asks)


@pytest.mark.spec("T19")
def test_a_summarizer_that_never_shrinks_raises() -> None:
    """With `raise` the error is typed, and nobody is asked again until there is something new to fold."""
    model = ScriptedModel("word " * 20_000)
    manager = manager_for(model, policy={"on_failure": "raise"}, max_context_tokens=2000)
    history = chat("s" + "ua" * 18)
    for _ in range(5):
        with pytest.raises(SummaryError):
            manager.preflight("s", copy.deepcopy(history))
        assert 3 == len(model.asks)
    for message in chat("aaaa", first=100):
        history.append(message)
        with pytest.raises(SummaryError):
            manager.preflight("s", copy.deepcopy(history))
    assert 3 == len(model.asks)
    with pytest.raises(SummaryError):
        manager.preflight("s", [*history, *chat("ua", first=200)])
    assert 6 == len(model.asks)


@pytest.mark.spec("T19")
def test_a_summarizer_that_never_shrinks_is_replaced() -> None:
    """With `extract` the built-in summarizer takes over after the three calls."""
    model = ScriptedModel("word " * 20_000)
    manager = manager_for(model, policy={"on_failure": "extract"})
    history = chat("s" + "ua" * 16)
    out = manager.preflight("s", history)
    assert (3, 1) == (len(model.asks), len(summaries(out)))
    assert out == manager.preflight("s", copy.deepcopy(history))
    assert 3 == len(model.asks)


FIXED: dict[str, Callable[[], tuple[list[dict[str, Any]], list[dict[str, Any]]]]] = {
    "system": lambda: (chat("s", words=1000), []),
    "pinned": lambda: (chat("p", words=1000), []),
    "tools": lambda: (
        chat("s"),
        [{"type": "function", "function": {"name": "look", "description": chat("u", words=1000)[0]["content"]}}],
    ),
}


@pytest.mark.spec("T25")
@pytest.mark.parametrize("part", FIXED)
@pytest.mark.parametrize("layout", ["layered", "rolling"])
@pytest.mark.parametrize(
    "answer",
    ["goal: ship it", pytest.param("word " * 4_000, marks=[pytest.mark.slow, pytest.mark.untraced], id="endless")],
)
def test_fixed_parts_over_the_trigger(layout: str, part: str, answer: str) -> None:
    """It is said at once, once, with the sum; fifty more calls ask only when they fold, and what is free is used."""
    fixed, tools = FIXED[part]()
    model, seen = ScriptedModel(answer), Recorder()
    policy = {"layout": layout, "trigger_pct": 0.5}
    manager = manager_for(model, seen, policy=policy, max_context_tokens=2000)
    mine = manager.preflight("s", [*fixed, *chat("u", first=1)], tools=tools)
    (said,) = seen["warning"]
    assert ("cannot_fit", "high", 1000) == (said.data["code"], said.data["severity"], said.data["trigger"])
    assert said.data["needed"] >= 1000
    assert f"{said.data['needed']:,}" in said.data["message"]
    for number in range(50):
        mine = manager.preflight("s", [*mine, *chat("au", first=10 + 2 * number)], tools=tools)
        assert mine[-1] == chat("au", first=10 + 2 * number)[-1]
    assert ["cannot_fit"] == [e.data["code"] for e in seen["warning"]]
    assert all(e.data["tokens_after"] <= 1900 for e in seen["pruned_messages"])
    folds = len(seen["pruned_messages"])
    assert 2 <= folds <= 25
    assert len(model.asks) <= (folds if "goal" in answer else 3 * folds)
    assert len(summaries(mine)) == ("goal" in answer)


@pytest.mark.spec("T25")
def test_a_newest_message_over_the_trigger() -> None:
    """The newest message alone at the trigger: said once with the sum, and repeated calls ask nobody."""
    model, seen = ScriptedModel("goal: ship it"), Recorder()
    manager = manager_for(model, seen, policy={"trigger_pct": 0.5}, max_context_tokens=2000)
    history = [*chat("s"), *chat("u", words=1200, first=1)]
    for _ in range(50):
        assert history == manager.preflight("s", copy.deepcopy(history))
    assert ["cannot_fit"] == [e.data["code"] for e in seen["warning"]]
    assert [] == model.asks


# -- the summarizer fails --------------------------------------------------------------------------------------------


@pytest.mark.spec("S31")
def test_an_unreachable_summarizer() -> None:
    """After its retries the fold completes without a summary, and the trace says pruning-only."""
    model, seen = ScriptedModel(ModelUnavailable("nobody there")), Recorder()
    manager = manager_for(model, seen, summary={"max_retries": 1})
    out = manager.preflight("s", chat("s" + "ua" * 16))
    assert 2 == len(model.asks)
    assert [("ModelUnavailable", "retry"), ("ModelUnavailable", "pruning-only")] == [
        (e.data["error_type"], e.data["fallback"]) for e in seen["error"]
    ]
    assert ([], 1, 13) == (summaries(out), len(seen["pruned_messages"]), len(out))
    assert "pruning-only" == manager.session("s").folds[0].fallback


@pytest.mark.spec("S33")
@pytest.mark.parametrize(("answers", "left"), [((ContentFilter("no"),), 0), ((ContentFilter("no"), "goal: go"), 1)])
def test_a_refusal(answers: tuple[Any, ...], left: int) -> None:
    """A refusal is followed by one more request in the `brief` strategy, then by pruning; each is in the trace."""
    model, seen = ScriptedModel(*answers), Recorder()
    out = manager_for(model, seen).preflight("s", chat("s" + "ua" * 16))
    assert ["task_state", "brief"] == [ask.strategy for ask in model.asks]
    assert left == len(summaries(out))
    assert [("task_state", "brief"), ("brief", "pruning-only")][: 2 - left] == [
        (e.data["strategy"], e.data["fallback"]) for e in seen["error"]
    ]


# -- the rolling engine ----------------------------------------------------------------------------------------------


@pytest.mark.spec("E1", "E2")
def test_rolling_keeps_the_last_rounds_and_one_context() -> None:
    """Each round over the window folds the oldest into one context: one call at temperature 0, old notes labelled."""
    model = ScriptedModel(lambda ask: f"context {len(model.asks)} of g-77")
    manager = manager_for(model, policy={"layout": "rolling", "window_rounds": 3}, max_context_tokens=50_000)
    history = chat("s" + "utra" * 10)
    mine: list[Any] = history[:1]
    for round_ in range(10):
        mine = manager.preflight("s", [*mine, *history[1 + 4 * round_ : 5 + 4 * round_]])
        assert history[max(1, 4 * round_ - 7) : 4 * round_ + 5] == mine[-min(12, 4 * round_ + 4) :]
        assert len(summaries(mine)) == (round_ >= 3)
    assert 7 == len(model.asks)
    for number, ask in enumerate(model.asks):
        assert (0.0, True, 42) == (ask.temperature, ask.max_tokens <= 2048, ask.seed)
        system, user = ask.messages
        assert ("system", "user") == (system["role"], user["role"])
        notes, rounds = user["content"].split("NOTES SO FAR:\n")[1].split("MESSAGES TO FOLD IN:\n")
        assert (f"context {number} of g-77" if number else "(none yet)") in notes
        for label in ("user]", "call look]", "result of look]", "assistant]"):
            assert label in rounds
        assert f"(u{4 * number + 1})" in rounds
        assert f"(r{4 * number + 3})" in rounds
        assert str(ask.max_tokens) in system["content"]


@pytest.mark.spec("E1")
def test_rolling_folds_at_the_safety_valve() -> None:
    """Few but long rounds fold too, when their tokens reach the valve."""
    model = ScriptedModel("context")
    manager = manager_for(model, policy={"layout": "rolling", "token_threshold": 1000}, max_context_tokens=50_000)
    history = chat("s" + "ua" * 3, words=200)
    out = manager.preflight("s", history)
    assert 1 == len(model.asks)
    assert (1, history[-1]) == (len(summaries(out)), out[-1])


@pytest.mark.spec("E4")
@pytest.mark.parametrize("shrinks", [True, False])
def test_rolling_shrinks_a_context_that_has_grown(shrinks: bool) -> None:
    """A context above its limit gets one pass that shrinks it, with the same rules; if that fails it stays."""
    grown = "context of g-77 and s-12 " + "with much detail " * 40
    model = ScriptedModel(grown, "context of g-77 and s-12" if shrinks else ModelUnavailable("nobody there"))
    summary = {"context_max_tokens": 64}
    manager = manager_for(
        model, policy={"layout": "rolling", "window_rounds": 2}, max_context_tokens=20_000, summary=summary
    )
    out = manager.preflight("s", chat("s" + "ua" * 30))
    made, shrink = model.asks
    assert ("create", "shrink", (), 64) == (made.kind, shrink.kind, shrink.source, shrink.max_tokens)
    assert grown.strip() == shrink.previous
    assert (made.temperature, made.strategy, made.seed) == (shrink.temperature, shrink.strategy, shrink.seed)
    assert "keep every identifier, decision, blocker and open question" in shrink.messages[1]["content"]
    (body,) = summaries(out)
    assert ("context of g-77 and s-12" if shrinks else grown.strip()) in body
    assert shrinks == ("much detail" not in body)


def test_characters_divided_by_four() -> None:
    """The simple counter takes a quarter of the characters, and the usual overhead of a message and of the reply."""
    seen = Recorder()
    manager = manager_for(None, seen, counter="chars", max_context_tokens=10_000)
    manager.preflight("s", [{"role": "user", "content": "x" * 4000}])
    assert 1000 + 3 + len("user") // 4 + 3 == seen["token_estimate"][0].data["t_est"]


# -- many sessions ---------------------------------------------------------------------------------------------------

MARK = re.compile(r"mark-(\d\d)-")


class Crowd:
    """Sessions whose every message, summary and event carries the session's own mark; `foreign` must stay empty."""

    def __init__(self) -> None:
        self.foreign: list[str] = []
        self.folds = 0
        self.tidy = threading.Lock()

    def check(self, number: int | str, text: str, where: str) -> None:
        found = set(MARK.findall(text))
        if found - {f"{number:0>2}"}:
            self.foreign.append(f"{where} of {number}: {found}")

    def sink(self, event: Event) -> None:
        self.check(event.session_id, repr(event), event.name)
        if event.name == "compact.pruned_messages":
            with self.tidy:
                self.folds += 1

    def summarize(self, ask: Ask) -> str:
        text = repr((ask.source, ask.previous))
        (mark,) = set(MARK.findall(text)) or {"none"}
        return f"goal: mark-{mark}- {len(text)}"

    async def asummarize(self, ask: Ask) -> str:
        await asyncio.sleep(0)
        return self.summarize(ask)

    @staticmethod
    def message(number: int, at: int) -> dict[str, Any]:
        return {"role": "assistant" if at % 2 else "user", "content": f"mark-{number:02}- said {at} " + "word " * 12}

    def manager(self, adapter: str, summarizer: Any) -> CompactManager:
        settings: dict[str, Any] = {"counter": "chars", "max_context_tokens": 1200, "storage": {"adapter": adapter}}
        return manager_for(summarizer, self.sink, policy={"keep_recent_turns": 4, "hard_cap_buffer": 50}, **settings)


@pytest.mark.slow
@pytest.mark.volume
@pytest.mark.spec("T26")
def test_sessions_on_threads_never_mix() -> None:
    """64 sessions on 16 threads: no mark of another session in any list, event, request or file. 200 calls of each in
    `make torture`."""
    crowd = Crowd()
    manager = crowd.manager("fs", crowd.summarize)
    lists: list[list[Any]] = [[] for _ in range(64)]

    def work(seat: int) -> None:
        for at in range(volume(100, 200)):
            for number in range(seat, 64, 16):
                lists[number] = manager.preflight(f"{number:02}", [*lists[number], crowd.message(number, at)])
                crowd.check(number, repr(lists[number]), "list")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    manager.close()
    assert crowd.folds >= 64 * 2
    files = [file for file in Path(".compact").rglob("*") if file.is_file() and file.name != ".gitignore"]
    assert len(files) == 64 + 2 * crowd.folds
    for file in files:
        crowd.check(file.parent.name, file.read_text(), file.name)
    assert [] == crowd.foreign


@pytest.mark.slow
@pytest.mark.volume
@pytest.mark.spec("T26")
def test_sessions_on_a_loop_never_mix() -> None:
    """The same on an event loop, with all 64 sessions in flight at once."""
    crowd = Crowd()
    manager = crowd.manager("none", crowd.asummarize)

    async def work(number: int) -> None:
        mine: list[Any] = []
        for at in range(volume(100, 200)):
            mine = await manager.apreflight(f"{number:02}", [*mine, crowd.message(number, at)])
            crowd.check(number, repr(mine), "list")

    async def host() -> None:
        await asyncio.gather(*(work(number) for number in range(64)))

    asyncio.run(host())
    assert crowd.folds >= 64 * 2
    assert [] == crowd.foreign


@pytest.mark.spec("T28")
@pytest.mark.parametrize("adapter", ["fs", "none"])
@pytest.mark.slow
def test_sixteen_threads_on_one_session(adapter: str) -> None:
    """Every fold has the next step, whoever made it, and each step is archived once."""
    manager = manager_for(ScriptedModel("goal: ship it"), storage={"adapter": adapter})
    start = threading.Barrier(16)

    def work(seat: int) -> None:
        start.wait()
        for at in range(5):
            manager.manual_compact("s", chat("ua" * 10, first=1000 * seat + 100 * at))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert list(range(1, 81)) == [fold.step for fold in manager.session("s").folds]
    manager.close()
    if adapter == "fs":
        assert 80 == len(list(Path(".compact").rglob("transcript-pre-compact-*.jsonl")))


USES: dict[str, Callable[[CompactManager], Any]] = {
    "preflight": lambda m: m.preflight("s", chat("ua")),
    "manual_compact": lambda m: m.manual_compact("s", chat("ua")),
    "recover": lambda m: m.recover("s", chat("ua")),
    "should_compact": lambda m: m.should_compact("s", chat("ua")),
    "plan": lambda m: m.plan("s", chat("ua")),
    "session": lambda m: m.session("s"),
    "observe": lambda m: m.observe("s", 5),
    "update": lambda m: m.update(retention_window=3),
    "restore": lambda m: m.restore("s"),
    "undo": lambda m: m.undo("s"),
    "redo": lambda m: m.redo("s"),
    "diff": lambda m: m.diff("s"),
    "recall": lambda m: m.recall("s", "buffer"),
    "verify": lambda m: m.verify("s"),
    "sessions": lambda m: m.sessions(),
    "forget": lambda m: m.forget("s"),
    "prune": lambda m: m.prune(timedelta(days=1)),
}


@pytest.mark.spec("T28")
@pytest.mark.parametrize("use", USES)
def test_use_after_close(use: str) -> None:
    """Closing twice is safe, and every verb afterwards says that the manager is closed."""
    manager = manager_for(storage={"adapter": "fs"})
    manager.manual_compact("s", chat("s" + "ua" * 10))
    manager.close()
    manager.close()
    with pytest.raises(ManagerClosed, match="closed"):
        USES[use](manager)


# -- memory ----------------------------------------------------------------------------------------------------------

MEASURE = """
import ctypes, gc, sys, tracemalloc
from compact import CompactConfig, CompactManager
from compact.testing import chat

class Heap(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

heap = getattr(ctypes.CDLL(None), "mallinfo2", None)
if heap is None:  # another C library: the same numbers, in five times the time
    tracemalloc.start()
else:
    heap.restype = Heap

def held():
    gc.collect()
    if heap is None:
        return tracemalloc.get_traced_memory()[0]
    now = heap()
    return now.uordblks + now.hblkhd

def manager(adapter):
    config = CompactConfig(max_context_tokens=1500, counter="chars", policy={"hard_cap_buffer": 100},
                           storage={"adapter": adapter})
    return CompactManager(config, summarizer=lambda ask: "goal: ship it")
"""
IDLE = """
m, first, last, pattern = manager(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
for number in range(last):
    m.preflight(f"session-{number}", chat(pattern, first=number % 50))
    if number == first - 1:
        before = held()
print((held() - before) / (last - first))
"""
LONG_RUN = """
m, mine, sizes = manager("none"), chat("s"), []
for at in range(10_000):
    mine = m.preflight("s", [*mine, chat("ua"[at % 2], first=at)[0]])
    if at in (1_999, 9_999):
        sizes.append(held())
print(sizes[1] - sizes[0], m.session("s").step)
"""


def measured(script: str, *arguments: str) -> list[float]:
    """The numbers that a script prints in a process of its own."""
    command = [sys.executable, "-c", MEASURE + script, *arguments]
    # All memory is asked of the C library, which then knows every byte that is held, and keeps no spare ones as held.
    memory = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **memory})
    assert "" == done.stderr
    return [float(number) for number in done.stdout.split()]


@pytest.mark.spec("T27")
@pytest.mark.parametrize(
    ("adapter", "first", "last", "pattern"),
    [
        pytest.param("none", "1000", "2500", "sua", id="a few thousand"),
        *([pytest.param("none", "2000", "10000", "sua", id="ten thousand")] if FULL else []),
        pytest.param("fs", "540", "640", "s" + "ua" * 12, marks=pytest.mark.slow, id="folded and archived"),
        pytest.param("none", "540", "640", "s" + "ua" * 12, marks=pytest.mark.slow, id="folded, no archive"),
    ],
)
@pytest.mark.volume
def test_idle_sessions_cost_little(adapter: str, first: str, last: str, pattern: str) -> None:
    """Beyond the sessions that are kept at hand, an idle one costs at most 1 KB. 10,000 sessions in `make torture`."""
    (slope,) = measured(IDLE, adapter, first, last, pattern)
    assert slope <= 1024


@pytest.mark.spec("T27")
@pytest.mark.slow
def test_one_long_session_stays_small() -> None:
    """A session of 10,000 calls holds what is in its list, not what has been: under 128 bytes more per call."""
    grown, folds = measured(LONG_RUN)
    assert folds > 100
    assert grown <= 8_000 * 128


@pytest.mark.spec("T27")
@pytest.mark.parametrize("adapter", ["fs", "none"])
def test_a_manager_can_be_collected(adapter: str) -> None:
    """Nothing holds a manager once its user has let go, closed or not, after folds, threads and tasks."""
    dead = []
    for closes in (True, False):
        manager = manager_for(ScriptedModel("goal: ship it"), Recorder(), storage={"adapter": adapter})
        manager.preflight("s", chat("s" + "ua" * 20))
        asyncio.run(manager.apreflight("t", chat("s" + "ua" * 20)))
        thread = threading.Thread(target=manager.preflight, args=("s", chat("s" + "ua" * 20)))
        thread.start()
        thread.join()
        if closes:
            manager.close()
        dead.append(weakref.ref(manager))
        del manager, thread
    gc.collect()
    assert [None, None] == [ref() for ref in dead]


# -- messages nobody expects -----------------------------------------------------------------------------------------


def deep(levels: int, leaf: Any = "x") -> Any:
    """A value inside so many lists."""
    for _ in range(levels):
        leaf = [leaf]
    return leaf


def cyclic() -> dict[str, Any]:
    """A mapping that holds itself."""
    ring: dict[str, Any] = {"protected": False}
    ring["self"] = ring
    return ring


STRANGE: dict[str, Callable[[], dict[Any, Any]]] = {
    "surrogate": lambda: {"role": "user", "content": "lone \ud800 and \udfff halves"},
    "nul": lambda: {"role": "user", "content": "a\0b\x1b[31mred\x7f\u2028line\r\n"},
    "5 MB line": lambda: {"role": "user", "content": "x" * 5_000_000},
    "nan": lambda: {"role": "user", "content": "fine", "score": float("nan"), "far": float("-inf")},
    "bytes": lambda: {"role": "user", "content": "fine", "raw": b"\x00\xff"},
    "bytes as content": lambda: {"role": "user", "content": b"not text"},
    "cyclic meta": lambda: {"role": "user", "content": "fine", "meta": cyclic()},
    "deep meta": lambda: {"role": "user", "content": "fine", "meta": deep(10_000)},
    "deep arguments": lambda: {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": deep(10_000)}}],
    },
    "deep content": lambda: {"role": "user", "content": [{"type": "unheard of", "value": deep(10_000)}]},
    "deep JSON text": lambda: {"role": "user", "content": "[" * 10_000 + "]" * 10_000},
    "an object": lambda: {"role": "user", "content": "fine", "extra": object()},
    "huge number": lambda: {"role": "user", "content": "fine", "n": 10**5000},
    "a number as role": lambda: {"role": 7, "content": "fine"},
    "a set as content": lambda: {"role": "user", "content": {1, 2}},
    "keys that are no text": lambda: {"role": "user", "content": "fine", 5: {None: (1, 2)}},
}


def survives(manager: CompactManager, session_id: str, messages: list[Any]) -> bool:
    """Both verbs give a typed error or a list of the caller's own objects; the caller's list is never touched."""
    objects, fine = list(messages), True
    shown = [shape_of(message) for message in messages]
    for verb in (manager.preflight, manager.manual_compact):
        try:
            out = verb(session_id, messages)
        except CompactError:
            fine = False
        else:
            known = {id(message) for message in objects}
            assert all(id(raw) in known or isinstance(raw, dict) for raw in out)
    assert len(objects) == len(messages)
    assert all(one is other for one, other in zip(objects, messages, strict=True))
    assert shown == [shape_of(message) for message in messages]
    return fine


def shape_of(message: Any) -> str:
    """A message as text, as far as it can be shown."""
    try:
        return repr(message)[:100_000]
    except (RecursionError, ValueError):
        return f"a {type(message).__name__} that cannot be shown"


@pytest.mark.slow
@pytest.mark.spec("T30")
@pytest.mark.parametrize("adapter", ["fs", "none"])
@pytest.mark.parametrize("kind", STRANGE)
def test_strange_messages(kind: str, adapter: str) -> None:
    """Each of them, among ordinary ones, ends in a typed error or in a fold; never in a crash."""
    window = {"max_context_tokens": 3_000_000, "policy": {"message_threshold": 12, "keep_recent_turns": 2}}
    for place in (1, 16):
        manager = manager_for(ScriptedModel("goal: ship it"), storage={"adapter": adapter}, counter="chars", **window)
        history = chat("s" + "ua" * 10)
        survives(manager, f"place-{place}", [*history[:place], STRANGE[kind](), *history[place:]])
        manager.close()


@pytest.mark.spec("T30")
@pytest.mark.parametrize("kind", ["surrogate", "nul", "5 MB line", "deep JSON text"])
def test_strange_text_comes_back_exactly(kind: str) -> None:
    """Text that is only unusual leaves as it came and comes back from the archive as it was."""
    window = {"max_context_tokens": 3_000_000, "policy": {"keep_recent_turns": 2}}
    manager = manager_for(ScriptedModel("goal: ship it"), storage={"adapter": "fs"}, counter="chars", **window)
    history = [*chat("s" + "ua" * 6), STRANGE[kind]()]
    before = copy.deepcopy(history)
    out = manager.manual_compact("s", history)
    assert out[-1] is history[-1]
    assert before == history
    assert before == manager.restore("s")


class Nasty:
    """A host object whose every answer is an exception."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError(name)

    def __eq__(self, other: object) -> bool:
        raise ValueError("eq")

    def __repr__(self) -> str:
        return "Nasty()"

    __hash__ = object.__hash__


def strange_value(dice: random.Random, depth: int = 0) -> Any:
    """A value that no message should hold, or one that it could."""
    leaves: list[Callable[[], Any]] = [
        lambda: None,
        lambda: dice.choice(["", "user", "tool", "\ud800", "\0", "<COMPACT-SUMMARY v9>", "text", "{", "c1"]),
        lambda: dice.choice([0, -1, 10**400, True, 1.5, float("nan"), float("inf")]),
        lambda: dice.choice([b"\xff", bytearray(b"x"), object(), Nasty(), Ellipsis, range(3), {1}, lambda: None]),
        lambda: cyclic(),
    ]
    if depth < 3 and dice.random() < 0.4:
        size = dice.randrange(3)
        if dice.random() < 0.5:
            return [strange_value(dice, depth + 1) for _ in range(size)]
        keys = ["type", "text", "id", "content", "function", "name", "arguments", "input", "tool_use_id", 3, None]
        return {dice.choice(keys): strange_value(dice, depth + 1) for _ in range(size)}
    return dice.choice(leaves)()


def strange_message(dice: random.Random, message: Any) -> Any:
    """A message with something wrong in it, or something else in its place."""
    if dice.random() < 0.15:
        return strange_value(dice)
    fields = ["role", "content", "tool_calls", "tool_call_id", "meta", "name", "type", "function_call", "call_id", "id"]
    changed = copy.deepcopy(message)
    for _ in range(dice.randrange(1, 3)):
        name = dice.choice(fields)
        if dice.random() < 0.2:
            changed.pop(name, None)
        elif isinstance(changed.get(name), list) and dice.random() < 0.6:
            changed[name] = [*changed[name], strange_value(dice)]
        else:
            changed[name] = strange_value(dice)
    return changed


@pytest.mark.volume
@pytest.mark.spec("T30")
def test_many_strange_conversations() -> None:
    """Whatever stands in a list, a call ends in a typed error or in a list, and the caller's own stays as it was.

    10,000 of them in `make torture`.
    """
    managers = [
        manager_for(
            ScriptedModel("goal: ship it"), storage={"adapter": adapter}, counter="chars", max_context_tokens=700
        )
        for adapter in ("none", "fs")
    ]
    dialects = [
        [*chat(pattern, words=12, dialect=dialect)]
        for dialect in ("openai-chat", "openai-responses", "anthropic")
        for pattern in ("utra" * 3, "ua" * 6)
    ]
    fine = 0
    cases = volume(1_500, 10_000)
    for seed in range(cases):
        dice = random.Random(seed)
        messages: list[Any] = list(dice.choice(dialects))
        strange = False
        for _ in range(dice.randrange(1, 3)):
            at = dice.randrange(len(messages))
            messages[at] = strange_message(dice, chat("u", words=12)[0] if strange else messages[at])
            strange = True
        try:
            fine += survives(managers[seed % 25 == 0], f"case-{seed % 100}-{seed}", messages)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    assert 0.2 <= fine / cases <= 0.9


# -- the package itself ----------------------------------------------------------------------------------------------

WATCH = """
import sys, threading
seen = []

def watch(event, args):
    writes = event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+")
    if writes or event.startswith(("socket.", "subprocess.", "os.mkdir", "os.rename", "os.remove", "os.system",
                                   "_thread.start_new_thread", "urllib.", "tempfile.")):
        seen.append((event, str(args)[:80]))

sys.addaudithook(watch)
import compact
heavy = {"openai", "anthropic", "boto3", "starlette", "uvicorn", "httpx", "requests", "opentelemetry", "redis", "typer",
         "rich", "hypothesis", "langchain", "agents", "tiktoken", "numpy"}
print(seen, sorted(heavy & set(sys.modules)), threading.active_count())
"""


def test_importing_does_nothing(tmp_path: Path) -> None:
    """`import compact` starts no thread, opens no socket, writes no file, and loads no framework."""
    done = subprocess.run([sys.executable, "-B", "-c", WATCH], capture_output=True, text=True, check=True)
    assert "[] [] 1\n" == done.stdout
    assert [] == list(tmp_path.iterdir())


def test_public_names() -> None:
    """What can be seen at the top is what `__all__` names, and `__all__` is sorted out."""
    hidden = (types.ModuleType, type(compact.__dict__["annotations"]))
    visible = {
        name for name, value in vars(compact).items() if not name.startswith("_") and not isinstance(value, hidden)
    }
    assert set(compact.__all__) - {"__version__"} == visible
    assert len(set(compact.__all__)) == len(compact.__all__)


def public_callables() -> list[tuple[str, Any]]:
    """Every public class, method, property and function by name."""
    found: list[tuple[str, Any]] = []
    for name in compact.__all__:
        value = getattr(compact, name)
        if inspect.isclass(value):
            found.append((name, value))
            for part, member in list(vars(value).items()):
                member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if not part.startswith("_") and inspect.isfunction(member) and member.__module__.startswith("compact"):
                    found.append((f"{name}.{part}", member))
        elif inspect.isfunction(value):
            found.append((name, value))
    return found


@pytest.mark.parametrize(("name", "value"), public_callables(), ids=[name for name, _ in public_callables()])
def test_every_public_name_is_documented_and_typed(name: str, value: Any) -> None:
    """Each class, method and function has words of its own, and every parameter and result has a type."""
    own = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
    assert own
    assert not own.startswith(f"{value.__name__}(")
    if inspect.isfunction(value):
        signature = inspect.signature(value)
        untyped = [p.name for p in signature.parameters.values() if p.annotation is p.empty]
        assert [[], ["self"], ["cls"]].count(untyped) == 1
        assert signature.return_annotation is not signature.empty


@pytest.mark.spec("E5")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"model": "gpt-4o-mini"}, ("gpt-4o-mini", True, True)),
        ({"model": "openai/gpt-4.1-nano-2025"}, ("openai/gpt-4.1-nano-2025", True, True)),
        ({"model": "somebody-else"}, ("somebody-else", True, False)),
    ],
)
def test_every_call_is_logged_with_its_use_and_cost(settings: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """Each request to a summarizer, taken or not, tells its tokens and, where the price is known, its cost.

    A model that does not tell what it read: its request is not counted once more, but summed up from its messages.
    """
    model, seen = ScriptedModel("word " * 20_000, "goal: ship it"), Recorder()
    manager_for(model, seen, summary=settings).preflight("s", chat("s" + "ua" * 16))
    told = [event.data for event in seen["summary_call"]]
    assert len(model.asks) == len(told) == 2
    for ask, data in zip(model.asks, told, strict=True):
        exact = sum(ask.count(message["content"]) for message in ask.messages)
        assert 0.97 * exact <= data["input_tokens"] <= 1.03 * exact
        assert expected == (data["model"], data["output_tokens"] > 0, data["cost_usd"] is not None)
    if expected[2]:
        first, second = (data["cost_usd"] for data in told)
        assert first > second > 0


@pytest.mark.spec("E5")
def test_the_built_in_summarizer_costs_nothing() -> None:
    """It is logged too, with a cost of zero."""
    seen = Recorder()
    manager_for(None, seen).preflight("s", chat("s" + "ua" * 16))
    (call,) = seen["summary_call"]
    assert ("extract", 0, 0, 0.0) == tuple(
        call.data[name] for name in ("model", "input_tokens", "output_tokens", "cost_usd")
    )


def test_a_plain_conversation_with_claude_opens_with_a_user_message() -> None:
    """Plain text has no format of its own; for a Claude model an opening summary keeps Anthropic's rule."""
    out = manager_for(ScriptedModel("goal: ship it"), Recorder(), model="claude-sonnet-4-5").preflight(
        "s", chat("ua" * 16)
    )
    assert ("user", True) == (out[0]["role"], out[0]["content"].startswith("<COMPACT-SUMMARY v1>"))
