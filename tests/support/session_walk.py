"""A session with everything going wrong around it, step by step.

Owns: `Walk` (one session: its host, its processes, its archive, the weather, and every step there is), `Result`.
Must never: let chance or the clock decide between two runs. What a walk does follows from its seed, step by step: each
step has a number of its own, so a step that is left out changes none of the others.
"""

from __future__ import annotations

import asyncio
import copy
import random
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from applications import DIALECTS, HOSTS, LAYOUTS, Item, Speaker, is_pinned, is_user
from fault_injection import CRASHES, LIES, STRIKES, Crash, Fault, Model, Roof, Shelf, Weather
from provider_rules import problems
from walk_checks import FOLDING, Judge, Seen

from compact import CompactConfig, CompactManager, InsufficientBudget, Plan
from compact.config.sections import Policy
from compact.errors import CompactError
from compact.stores import Store
from compact.stores.fs import FileStore
from compact.testing import Recorder

SESSION = "s"
BUFFER = 60
SIZES = (2, 10, 30, 60)
TOOLS = [{"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object"}}]

STEPS = {
    "say": 16,
    "call_tools": 16,
    "answer": 6,
    "answer_late": 4,
    "answer_nothing": 2,
    "say_system": 1,
    "pin": 2,
    "preflight": 26,
    "fold": 12,
    "recover": 2,
    "look": 2,
    "update": 4,
    "undo": 3,
    "redo": 2,
    "restore": 2,
    "restart": 1,
    "die": 1,
    "visit": 2,
    "move": 2,
    "twice": 1,
    "storm": 2,
}
"""What may happen next, and how often it does."""

CHANGES: tuple[dict[str, Any], ...] = (
    *({"layout": layout} for layout in LAYOUTS),
    {"retention_window": 1},
    {"retention_window": 9},
    {"keep_recent_turns": 1, "keep_tool_io_pairs": 1},
    {"keep_recent_turns": 6, "keep_tool_io_pairs": 4},
    {"window_rounds": 1},
    {"message_threshold": 5},
    {"message_threshold": None},
    {"turn_threshold": 2},
    {"token_threshold": 200},
    {"max_tokens": 40},
    {"max_tokens": 2048},
)
"""What a host may change while it runs."""


@dataclass
class Result:
    """What came of walks."""

    steps: int = 0
    walks: int = 0
    folds: int = 0
    judged: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    found: list[tuple[str, str, str]] = field(default_factory=list)
    """The walk, the rule, and what was wrong."""

    def add(self, other: Result) -> None:
        """Take another result in."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class Process:
    """A manager, what it tells, and what it was about to fold."""

    def __init__(self, walk: Walk, summarizer: Any) -> None:
        self.recorder = Recorder()
        self.plans: list[tuple[Plan, Policy]] = []
        self.manager = walk.manager_class(
            walk.config,
            summarizer=summarizer,
            sinks=[self.recorder],
            store=walk.roof,
            dialect=walk.dialect,
            before_fold=self._told,
        )

    def _told(self, plan: Plan) -> Plan:
        self.plans.append((plan, self.manager.config.policy))
        return plan


class Walk(Speaker):
    """One session: its host, its processes, its archive, and the weather around them."""

    manager_class: type[CompactManager] = CompactManager
    shelf: Callable[[], Store] = Shelf

    def __init__(self, seed: str, length: int) -> None:
        chance = random.Random(seed)
        self.name = f"{seed}:{length}"
        self.dialect, self.layout = chance.choice(DIALECTS), chance.choice(LAYOUTS)
        super().__init__(self.dialect, chance.choice(HOSTS))
        self.tidy = chance.random() < 0.5
        """Whether every call is answered in time: then no list is mended before it is folded."""
        self.orphans = not self.tidy and chance.random() < 0.5
        self.prepares = chance.random() < 0.15
        self.config = _config(chance, self.layout, self.prepares)
        self.summarizer = chance.choice(("sync", "sync", "async", "built-in" if chance.random() < 0.3 else "async"))
        self.tools = TOOLS if self.dialect == "openai-responses" and chance.random() < 0.5 else None
        self.on_disk, self.appends = chance.random() < 0.04, chance.random() < 0.8
        kinds = chance.choices(list(STEPS), list(STEPS.values()), k=length)
        self.steps = [(kind, chance.getrandbits(32)) for kind in kinds]

    # -- walking -----------------------------------------------------------------------------------------------------

    def run(self, steps: list[tuple[str, int]] | None = None) -> Result:
        """Take all steps, or as many as it needs to find something."""
        result = Result(walks=1)
        with ExitStack() as stack:
            self.store: Store = self.shelf()
            if self.on_disk:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-"))
                self.store = FileStore(Path(folder, "archive"))
            self.weather = Weather()
            self.roof = Roof(self.store, self.weather, appends=self.appends)
            self.judge = Judge(self.dialect, SESSION, self.store, self.tools)
            self.model = Model(self.weather)
            self.runner = asyncio.Runner()
            stack.callback(lambda: self.runner.close())
            self.here, self.there = self.process(), self.process(visitor=True)
            self.errors: Counter[str] = Counter()
            self.stormy = 0
            self.says(self.writer.said("s", "be good"))
            self.word("u", 3)
            try:
                for kind, number in self.steps if steps is None else steps:
                    result.steps += 1
                    self.stormy -= 1
                    getattr(self, kind)(random.Random(number))
                    if self.judge.found:
                        break
                else:
                    self.end()
            except Exception:  # a verb that should never raise did
                self.judge.note("crash", [traceback.format_exc(limit=-4)])
        result.folds, result.judged = self.judge.folds, self.judge.judged
        result.struck, result.errors = self.weather.struck, self.errors
        result.found = [(self.name, *found) for found in self.judge.found]
        return result

    def end(self) -> None:
        """The weather clears, a new process takes over, and everything is looked at once more."""
        self.weather.clear(lasting=True)
        self.here = self.process()
        self.preflight(random.Random(0), fault=False)
        if not self.judge.found:
            self.judge.last_look(self.whole, self.sent if self.kind == "keeps" else self.whole)
            self.here.manager.close()

    def process(self, *, visitor: bool = False) -> Process:
        """A new process on the same archive."""
        kind = "sync" if visitor and self.summarizer == "async" else self.summarizer
        summarizers: dict[str, Any] = {"sync": self.model, "async": self.model.later, "built-in": None}
        return Process(self, summarizers[kind])

    def says(self, *items: Item) -> None:
        """Say something that must not be lost."""
        super().says(*items)
        self.judge.said(items)

    # -- what is said ------------------------------------------------------------------------------------------------

    def say(self, chance: random.Random) -> None:
        """A user, an assistant, a protected user, or somebody who forges a summary."""
        letter, size = chance.choice("uuuaaaap" if chance.random() < 0.5 else "ua"), chance.choice(SIZES)
        self.word(letter, size, plain=chance.random() < 0.3, forged=chance.random() < 0.04)

    def give_up(self) -> None:
        """Somebody speaks while calls are open."""
        if self.tidy and self.open:
            self.answers(len(self.open), 10)
        super().give_up()

    def call_tools(self, chance: random.Random) -> None:
        """A step with calls; some are answered at once, some in part, some not."""
        count = chance.choice((1, 1, 2, 3, 4))
        self.calls_tools(count, reuse=chance.random() < 0.1, thinks=chance.random() < 0.3)
        if chance.random() < 0.75:
            self.answers(
                count, chance.choice(SIZES), joined=chance.random() < 0.8, words=chance.choice(("", "", "go on"))
            )

    def answer(self, chance: random.Random) -> None:
        """Results of open calls, in any order."""
        if not self.open:
            return self.call_tools(chance)
        chance.shuffle(self.open)
        return self.answers(chance.randint(1, len(self.open)), chance.choice(SIZES), joined=chance.random() < 0.8)

    def answer_late(self, chance: random.Random) -> None:
        """Results that nobody waits for any more: one, or all there are, so that nothing is missing afterwards."""
        if not self.lost:
            return self.call_tools(chance)
        for _ in range(chance.choice((1, len(self.lost)))):
            self.answers_late(chance.randrange(9))
        return None

    def answer_nothing(self, chance: random.Random) -> None:
        """A result for a call that never was."""
        self.answers_nothing() if self.orphans else self.say(chance)

    def say_system(self, chance: random.Random) -> None:
        """Instructions in the middle of a conversation."""
        if self.tidy:
            self.give_up()
        self.says(self.writer.said("s", "mind this"))

    def pin(self, chance: random.Random) -> None:
        """Protect a message that was said before."""
        held = self.sent if self.kind == "keeps" else self.whole
        said = {id(item) for item in self.whole}
        # A result whose call is gone becomes a note, pinned or not: no provider takes it as it is.
        choice = [i for i, item in enumerate(held) if id(item) in said and (self.tidy or is_user(item))]
        at = chance.choice(choice or [0])
        if not choice or is_pinned(held[at]):
            return self.say(chance)
        old, new = held[at], {**held[at], "meta": {"protected": True}}
        self.judge.unsaid(old)
        self.judge.said([new])
        self.whole = [new if item is old else item for item in self.whole]
        self.sent = [new if item is old else item for item in self.sent]
        return None

    # -- calls of the library ----------------------------------------------------------------------------------------

    def preflight(self, chance: random.Random, *, fault: bool = True) -> None:
        """What a host does before each model call; sometimes for a model with a smaller window."""
        window = self.config.window * 3 // 4 if chance.random() < 0.1 else None
        self.call(chance, "preflight", fault=fault, max_context_tokens=window, tools=self.tools)

    def fold(self, chance: random.Random) -> None:
        """A fold that somebody asks for."""
        self.call(chance, "manual_compact", tools=self.tools)

    def recover(self, chance: random.Random) -> None:
        """The provider says that the list is too long."""
        self.call(chance, "recover", tools=self.tools)

    def undo(self, chance: random.Random) -> None:
        """Take the newest fold back."""
        self.call(chance, "undo") if self.kept("summary") else self.fold(chance)

    def redo(self, chance: random.Random) -> None:
        """And put it in force again."""
        self.call(chance, "redo") if self.kept("undo") else self.preflight(chance)

    def restore(self, chance: random.Random) -> None:
        """Read a transcript."""
        self.call(chance, "restore") if self.kept("transcript") else self.fold(chance)

    def look(self, chance: random.Random) -> None:
        """Questions that leave no trace."""
        keys, given = self.store.list(""), self.given()
        self.here.manager.should_compact(SESSION, given, tools=self.tools)
        with suppress(InsufficientBudget):
            self.here.manager.plan(SESSION, given, tools=self.tools)
        self.judge.note("trace", [] if keys == self.store.list("") else ["a question wrote to the archive"])

    def update(self, chance: random.Random) -> None:
        """Change a parameter; the other process knows nothing of it."""
        change = chance.choice(CHANGES)
        self.here.manager.update(**change)
        self.config = self.config.changed(**change)

    def restart(self, chance: random.Random) -> None:
        """End the process, and start a new one."""
        self.here.manager.close()
        self.here = self.process()

    def die(self, chance: random.Random) -> None:
        """The process is gone between two calls."""
        self.here = self.process()

    def move(self, chance: random.Random) -> None:
        """The host goes on in the other process, which has not seen the conversation for a while."""
        if self.summarizer != "async":
            self.here, self.there = self.there, self.here
        else:
            self.here = self.process()

    def visit(self, chance: random.Random) -> None:
        """The other process folds this conversation, and its host throws the list away."""
        with self.weather.sheltered():
            self.visitor(chance)()
            self.settle()

    def twice(self, chance: random.Random) -> None:
        """Two calls of one session at once."""
        self.call(chance, "preflight", fault=False, twin=copy.deepcopy(self.given()), tools=self.tools)

    def storm(self, chance: random.Random) -> None:
        """The store is out of order for a stretch of steps."""
        point, kind = (
            chance.choice(("put", "get", "list", "store", "append")),
            chance.choice(("refused", "late refused")),
        )
        self.weather.arm(Fault(point, kind, times=chance.randint(2, 20)))
        self.stormy = chance.randint(2, 12)

    # -- one call, and what comes of it ------------------------------------------------------------------------------

    def call(self, chance: random.Random, verb: str, *, fault: bool = True, **options: Any) -> None:
        """Call the library in any weather, judge what it did, and go on as such a host does."""
        process, given, keeps = self.here, self.given(), self.kind == "keeps"
        config = process.manager.config
        seen = Seen(verb, given, config, keeps, self.sound(given), self.window(verb, given, options))
        if fault and chance.random() < 0.75:
            self.weather.arm(self.fault(chance))
        self.weather.visit = self.visitor(chance)
        self.twin: Any = None
        told, struck = len(process.recorder.events), Counter(self.weather.struck)
        steps = [int(key[-9:-6]) for key in self.kept("transcript")]
        step = chance.choice([None, *steps]) if verb == "restore" else None
        try:
            if verb in FOLDING:
                seen.out = self.drive(chance, verb, given, options)
            elif verb == "restore":
                seen.out = process.manager.restore(SESSION, step)
            else:
                seen.out = getattr(process.manager, verb)(SESSION, given if keeps else None)
        except BaseException as error:
            seen.error = error
        self.settle()
        seen.struck = self.weather.struck - struck
        if isinstance(seen.error, KeyboardInterrupt) and not any("interrupt" in name for name in seen.struck):
            raise seen.error  # a person's
        self.weather.clear(lasting=self.stormy <= 0)
        seen.events, seen.plans = process.recorder.events[told:], process.plans
        with self.weather.sheltered():
            self.take(seen, step)

    def take(self, seen: Seen, step: int | None) -> None:
        """Judge a call; then the host takes the list it was given, or goes on with its own."""
        died = any(name.endswith("crash") for name in seen.struck)
        self.judge.note("error", ["a crash went unnoticed"] if died and not isinstance(seen.error, Crash) else [])
        if seen.verb == "restore":
            if seen.out is not None:
                self.judge.restored(step, seen.out)
            seen.out = None
        self.judge.call(seen)
        if isinstance(self.twin, list):
            self.judge.lost(self.twin)
        if seen.error is not None:
            self.errors[type(seen.error).__name__] += 1
        if seen.keeps and seen.out is not None:
            self.sent = seen.out
        if isinstance(seen.error, Crash):
            self.here = self.process()
        elif seen.verb in FOLDING:
            view = self.here.manager.session(SESSION)
            resting = (view.phase, view.summary_state) == ("idle", "idle") and view.state != "in_progress"
            self.judge.note("at rest", [] if resting else [f"{view.state}, {view.phase}, {view.summary_state}"])
            steps = [fold.step for fold in view.folds]
            self.judge.note("steps", [] if steps == sorted(set(steps)) else [steps])
        if isinstance(seen.error, InsufficientBudget) and seen.verb != "recover":
            self.enlarge()

    def drive(self, chance: random.Random, verb: str, given: list[Item], options: dict[str, Any]) -> Any:
        """Call a verb that folds, on this thread or on an event loop."""
        manager, twin = self.here.manager, options.pop("twin", None)
        on_loop = verb != "recover" and (self.summarizer == "async" or chance.random() < 0.5)
        if not (on_loop or twin):
            return getattr(manager, verb)(SESSION, given, **options)

        async def main() -> Any:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            self.weather.cancel = lambda: loop.call_soon_threadsafe(task.cancel) and None
            if twin is None:
                return await getattr(manager, f"a{verb}")(SESSION, given, **options)
            calls = (manager.apreflight(SESSION, each, **options) for each in (given, twin))
            first, self.twin = await asyncio.gather(*calls, return_exceptions=True)
            if isinstance(first, BaseException):
                raise first
            return first

        try:
            return self.runner.run(main())
        except (Crash, KeyboardInterrupt):  # as `asyncio.run` would: whatever still runs is cancelled
            with suppress(Crash, KeyboardInterrupt):
                self.runner.close()
            self.runner = asyncio.Runner()
            raise
        finally:
            self.weather.cancel = None

    def settle(self) -> None:
        """Wait until no fold is being made ahead of need: what it does must not depend on the clock."""
        if not self.prepares:
            return
        for thread in threading.enumerate():
            if thread.name == "compact-prepare":
                thread.join()

        async def rest() -> None:
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others)

        self.runner.run(rest())

    def fault(self, chance: random.Random) -> Fault:
        """What goes wrong next. In a background thread nobody can be interrupted, and nobody comes to visit."""
        lies, crashes = tuple(LIES), tuple(CRASHES)
        if chance.random() < 0.5:
            kind = chance.choice(chance.choice((lies, lies, crashes, crashes if self.prepares else STRIKES)))
            return Fault("ask", kind, chance.choice((0, 0, 0, 1, 2)), chance.choice((1, 1, 2, 9)))
        point = chance.choice(("put", "put", "put", "append", "get", "list", "store"))
        kind = "refused" if self.prepares or chance.random() < 0.5 else chance.choice(STRIKES)
        late = "late " if chance.random() < 0.4 else ""
        return Fault(point, f"{late}{kind}", chance.choice((0, 0, 0, 1, 1, 2, 3)), chance.choice((1, 1, 1, 2, 5)))

    def visitor(self, chance: random.Random) -> Callable[[], None]:
        """What the other process does with this session: a list of its own goes in, and what comes out is its own."""
        verb, messages = (
            chance.choice(("manual_compact", "manual_compact", "preflight", "undo")),
            copy.deepcopy(self.given()),
        )

        def act() -> None:
            manager = self.there.manager
            try:
                out = manager.undo(SESSION) if verb == "undo" else getattr(manager, verb)(SESSION, messages)
            except CompactError as error:
                self.errors[f"visitor: {type(error).__name__}"] += 1
            else:
                if verb != "undo" and self.sound(messages):
                    self.judge.note("visitor", problems(self.dialect, out))

        return act

    def sound(self, given: list[Item]) -> bool:
        """Whether a provider would take this list, or all that was said.

        A host that keeps may have been given a note in place of a late result; after an undo the call stands there
        again, and has no result.
        """
        whole = self.kind != "keeps" or not self.kept("undo")
        return not problems(self.dialect, given) or (whole and not problems(self.dialect, self.whole))

    def window(self, verb: str, given: list[Item], options: dict[str, Any]) -> int:
        """What the model takes; after an overflow a list only has to shrink."""
        window = options.get("max_context_tokens") or self.here.manager.config.window
        return max(window, self.judge.weight(given) + BUFFER) if verb == "recover" else window

    def kept(self, kind: str) -> list[str]:
        """The keys of one kind that the archive has."""
        return self.store.list(f"{SESSION}/{kind}")

    def enlarge(self) -> None:
        """What must stay does not fit: a larger window."""
        wider = {"max_context_tokens": self.config.window * 3 // 2}
        self.config = self.config.changed(**wider)
        for process in (self.here, self.there):
            process.manager.update(**wider)


def _config(chance: random.Random, layout: str, prepares: bool) -> CompactConfig:
    policy: dict[str, Any] = {
        "layout": layout,
        "hard_cap_buffer": BUFFER,
        "keep_recent_turns": 2,
        "keep_tool_io_pairs": 2,
        "retention_window": 4,
        "window_rounds": 2,
        "target_pct": chance.choice((0.3, 0.7)),
        "strategy": chance.choice(("task_state", "decision_log", "code_delta", "brief")),
        "on_failure": chance.choice(("prune", "prune", "extract", "raise")),
        "oversized": chance.choice(("clip", "clip", "raise")),
        "clear_tool_outputs": chance.random() < 0.15,
        "prepare_pct": 0.5 if prepares else None,
        "message_threshold": chance.choice((None, 6)),
    }
    summary = {
        "max_retries": int(chance.random() < 0.03),  # each one waits for a quarter of a second
        "min_score": chance.choice((0, 70)),
        "refuse_below": 60 if chance.random() < 0.1 else 0,
        "min_compression_ratio": 0.3 if chance.random() < 0.1 else 0,
        "max_input_tokens": 1_500 if chance.random() < 0.1 else None,
    }
    return CompactConfig(
        max_context_tokens=chance.choice((700, 900, 1500)),
        counter="chars",
        policy=policy,
        summary=summary,
        redaction={"enabled": False},  # not the point here
    )
