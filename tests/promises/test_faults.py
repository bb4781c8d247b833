"""Walks through everything that can go wrong, and the proof that they would find it.

`walks` takes the steps, `faulty` is what goes wrong, `judge` what must hold. A short walk runs here, a long one in
`make prove`; each rule of the judge is shown to notice what it is there for.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from applications import is_pinned
from fault_injection import Crash, Shelf
from random_walks import lengths, main, shortened, walked
from session_walk import Result, Walk

from compact import CompactError, CompactManager, Fold, Plan
from compact.testing import chat

pytestmark = [pytest.mark.slow, pytest.mark.untraced]

SEED, STEPS, SHORT = 2, 1_500, 40


@pytest.mark.spec("L17", "L24", "S38", "T06", "T18", "T24")
def test_whatever_goes_wrong_no_law_is_broken_and_no_message_is_lost() -> None:
    """A summarizer that lies, fails or is cancelled; a store that refuses; processes that die; others that write."""
    total = Result()
    for job in lengths(STEPS, SEED):
        total.add(walked(job))
    assert ([], STEPS) == (total.found, total.steps)
    assert total.folds > STEPS // 20
    assert total.judged > total.folds // 3
    struck = " ".join(total.struck)
    for kind in ("put: refused", "put: late refused", "list: ", "get: ", "append: ", "summarizer: ", "crash"):
        assert kind in struck
    for kind in ("interrupt", "cancel", "visitor"):
        assert kind in struck


def test_a_walk_is_the_same_twice() -> None:
    """What was found once can be looked at again."""
    job = f"{SEED}/0", 80
    assert vars(walked(job)) == vars(walked(job))


def test_the_program_tells_what_came_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Steps, walks, folds, faults by kind, violations and what was lost; no findings is exit 0."""
    assert 0 == main(["--steps", "40", "--seed", "2", "--jobs", "1"])
    said = capsys.readouterr()
    assert said.out.startswith("40 steps in 1 walks, ")
    assert said.out.endswith("violations: 0, lost: 0\n")
    assert "40 of 40 steps, 0 findings, 0 s left" in said.err


class Waits(Shelf):
    """A store that lists when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.open = threading.Event(), threading.Event()

    def list(self, prefix: str) -> Any:
        self.asked.set()
        assert self.open.wait(60)
        return super().list(prefix)


@pytest.mark.spec("T06")
def test_a_call_that_is_cancelled_twice_still_leaves_nothing_running_behind_it() -> None:
    """A timeout inside of a timeout: the call ends when its thread does, or two would read back one session at once."""
    store = Waits()

    async def twice() -> None:
        call = asyncio.create_task(CompactManager(store=store).apreflight("s", chat("ua")))
        await asyncio.to_thread(store.asked.wait)
        for _ in range(2):
            call.cancel()
            for _ in range(9):
                await asyncio.sleep(0)
        assert not call.done()
        store.open.set()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(twice())


# -- what the judge is there for ---------------------------------------------------------------------------------------


class SaysYes(Shelf):
    """Acknowledges transcripts, and keeps every third."""

    puts = 0

    def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
        self.puts += "transcript" in key
        if "transcript" not in key or self.puts % 3 == 0:
            super().put(key, data, if_absent=if_absent)


class CutsShort(Shelf):
    """Keeps all but the last line of a transcript."""

    def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
        lines = data.splitlines(keepends=True)
        super().put(key, b"".join(lines[:-1]) if "transcript" in key else data, if_absent=if_absent)


class Forgets(Shelf):
    """Keeps the newest two transcripts."""

    def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
        super().put(key, data, if_absent=if_absent)
        for old in [key for key in self.list("") if "transcript" in key][:-2]:
            self.delete(old)


class OtherBudget(Shelf):
    """Keeps records that say that less was allowed."""

    def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
        if "summary" in key:
            data = json.dumps({**json.loads(data), "budget": 9}).encode()
        super().put(key, data, if_absent=if_absent)


class Spoils(CompactManager):
    """Does something to the list that it should give back, or to the error that it should raise."""

    def preflight(self, session_id: str, messages: Any, **options: Any) -> Any:
        return self.spoiled(messages, partial(super().preflight, session_id, messages, **options))

    def manual_compact(self, session_id: str, messages: Any, **options: Any) -> Any:
        return self.spoiled(messages, partial(super().manual_compact, session_id, messages, **options))

    def spoiled(self, messages: Any, call: Callable[[], Any]) -> Any:
        raise NotImplementedError


class Drops(Spoils):
    """Loses the newest message that is not pinned."""

    def spoiled(self, messages: Any, call: Callable[[], Any]) -> Any:
        out = call()
        at = max((i for i, item in enumerate(out) if not is_pinned(item)), default=0)
        return out[:at] + out[at + 1 :]


class DropsPins(Spoils):
    """Loses what is pinned."""

    def spoiled(self, messages: Any, call: Callable[[], Any]) -> Any:
        return [item for item in call() if not is_pinned(item)]


class Copies(Spoils):
    """Gives copies of messages for the messages."""

    def spoiled(self, messages: Any, call: Callable[[], Any]) -> Any:
        return [dict(item) for item in call()]


class Scribbles(Spoils):
    """Writes on the host's list."""

    def spoiled(self, messages: Any, call: Callable[[], Any]) -> Any:
        messages[0]["seen"] = True
        return call()


class LetsThrough(Spoils):
    """Never folds."""

    def spoiled(self, messages: Any, call: Callable[[], Any]) -> Any:
        return messages


class Orphans(Spoils):
    """Adds a result of no call."""

    def spoiled(self, messages: Any, call: Callable[[], Any]) -> Any:
        orphans = [
            {"type": "function_call_output", "call_id": "x", "output": "-"},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "-"}]},
            {"role": "tool", "tool_call_id": "x", "content": "-"},
        ]
        return [*call(), orphans[("'type': 'message'" not in str(messages)) + ("tool_calls" in str(messages))]]


class OtherErrors(Spoils):
    """Raises what nobody has heard of."""

    def spoiled(self, messages: Any, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except CompactError as error:
            raise KeyError("s") from error


class SurvivesAll(Spoils):
    """Goes on where it should have died."""

    def spoiled(self, messages: Any, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Crash:
            return messages


class FoldsPins(CompactManager):
    """Wants to fold everything."""

    def __init__(self, *given: Any, **options: Any) -> None:
        options["before_fold"] = lambda plan: Plan((Fold(tuple(range(plan.size))),), plan.size)
        super().__init__(*given, **options)


PLANTED: list[tuple[type[Any], str, int]] = [
    (SaysYes, "lost", 0),
    (CutsShort, "lost", 0),
    (Forgets, "rewritten", 0),
    (OtherBudget, "law budget", 0),
    (Drops, "lost", 0),
    (DropsPins, "pins", 0),
    (Copies, "not the object", 0),
    (Scribbles, "mutated", 0),
    (LetsThrough, "budget", 2),
    (Orphans, "valid", 0),
    (OtherErrors, "error", 26),
    (SurvivesAll, "error", 7),
    (FoldsPins, "law broken", 0),
]
"""What is planted, the rule that it breaks, and a walk not long before the first that finds it: any would do."""


def walks_with(planted: type[Any]) -> type[Walk]:
    """Walks with a store or a manager of this kind."""
    name = "shelf" if issubclass(planted, Shelf) else "manager_class"
    return type("Planted", (Walk,), {name: planted})


def findings(walk: type[Walk], first: int) -> Iterator[tuple[str, str]]:
    """What short walks of one kind find: the walk's seed, and the rule."""
    for number in range(first, first + 100):
        seed = f"{SEED}/{number}"
        yield from ((seed, rule) for _, rule, _ in walk(seed, SHORT).run().found)


@pytest.mark.parametrize(("planted", "rule", "first"), PLANTED, ids=[planted.__name__ for planted, _, _ in PLANTED])
def test_what_is_planted_is_found(planted: type[Any], rule: str, first: int) -> None:
    """Each rule notices what breaks it, within some walks."""
    assert any(rule == found for _, found in findings(walks_with(planted), first))


def test_a_finding_is_told_in_the_steps_that_it_takes() -> None:
    """Whatever can be left out is left out, and the rest still breaks the rule."""
    walk = walks_with(Drops)
    seed, rule = next(each for each in findings(walk, 0) if each[1] == "lost")
    steps = shortened(walk, seed, SHORT, rule)
    assert len(steps) <= 5
    assert rule in {found for _, found, _ in walk(seed, SHORT).run(steps).found}
    for at in range(len(steps)):
        assert rule not in {found for _, found, _ in walk(seed, SHORT).run(steps[:at] + steps[at + 1 :]).found}
