"""The engine, driven through the steps of the model: whoever walks a path of `compact._spec` compares at every step.

A manager with a store and a summarizer of our own, used as any host uses it. The model says what happens next: what the
host says, whether the store fails, how the summarizer answers, when the process dies. Where the engine can be seen
(when the archive is looked at, before and after it writes, whenever it asks, when a call ends) it must be in the state
that the model is in: the three states it shows, the list, the counters, the size, what is on disk, what it asks for.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from compact import CompactConfig, CompactManager
from compact._conversation.formats import FORMATS
from compact._conversation.tokens import counter_for, message_tokens
from compact._pipeline import summarize as _chain
from compact._spec.conversation import Item
from compact._spec.session import ModelState, Rules, Step, due, start, steps
from compact._summary.marker import add_marker, strip_marker
from compact._summary.request import Ask
from compact.errors import CompactError, ContentFilter, ModelUnavailable, SummaryTimeout
from compact.stores import KeyMissing, KeyTaken

CHAT, TALLY = FORMATS["openai-chat"], counter_for("chars", "gpt-4")
BODY_TOKENS = 23
UNIT = message_tokens(
    CHAT.read({"role": "assistant", "content": add_marker("b" * 4 * BODY_TOKENS, "COMPACT-SUMMARY", 1)}), TALLY
)
"""What a summary costs that fills its limit: the unit in which the model weighs."""


class Disagreement(BaseException):
    """The engine is not where the model is. No exception: the engine must not take it for a failure of the store."""


class Over(BaseException):
    """The path ends here."""


class Died(BaseException):
    """The process is no more."""


class Memory:
    """A store in memory; what is under way asks `watch` before and after each write, and before each look."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.watch: Walk | None = None

    def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
        if if_absent and key in self.kept:
            raise KeyTaken(key)
        if self.watch is not None:
            self.watch.writes()
        self.kept[key] = data
        if self.watch is not None:
            self.watch.wrote(key)

    def append(self, key: str, lines: Iterable[bytes]) -> None:
        self.kept[key] = self.kept.get(key, b"") + b"".join(line + b"\n" for line in lines)

    def get(self, key: str) -> bytes:
        try:
            return self.kept[key]
        except KeyError:
            raise KeyMissing(key) from None

    def list(self, prefix: str) -> list[str]:
        if self.watch is not None:
            self.watch.looks()
        return sorted(key for key in self.kept if key.startswith(prefix))

    def delete(self, key: str) -> None:
        self.kept.pop(key, None)


def config_for(rules: Rules) -> CompactConfig:
    """The configuration that the constants of a model stand for."""
    shape = rules.shape
    return CompactConfig(
        model="gpt-4",
        max_context_tokens=10_000_000,
        counter="chars",
        policy={
            "layout": shape.layout,
            "trigger_pct": 0.99,
            "target_pct": rules.target / rules.token_threshold if rules.target else 0.7,
            "retention_window": rules.window,
            "keep_recent_turns": shape.keep_turns,
            "keep_tool_io_pairs": shape.keep_pairs,
            "window_rounds": shape.keep_turns,
            "message_threshold": rules.message_threshold or None,
            "turn_threshold": rules.turn_threshold or None,
            "token_threshold": rules.token_threshold * UNIT or None,
            "on_failure": rules.on_failure,
        },
        summary={"max_tokens": BODY_TOKENS, "min_score": 0, "max_retries": rules.max_retries},
        redaction={"enabled": False},
    )


class Walk:
    """One path through the model, walked by an engine of its own; the first `known` steps were compared before."""

    def __init__(self, rules: Rules, config: CompactConfig, path: Sequence[Step], known: int = 0) -> None:
        self._rules, self._config, self._path, self._known = rules, config, path, known
        self._at = 0
        self._store = Memory()
        self._host: list[dict[str, Any]] = []
        self._waiting: list[str] = []
        self._extracted: dict[str, frozenset[int]] = {}
        """What the summaries cover that the built-in summarizer wrote."""
        self._awake = False
        self._manager = self._process()

    def walk(self) -> None:
        """Take every step; raises `Disagreement` at the first where the engine is not where the model is."""
        while self._at < len(self._path):
            label, what, state = self._path[self._at]
            if label == "Say":
                self._host.append(self._message(str(what), len(state.said)))
                self._at += 1
            elif label == "Change":
                self._manager.update(retention_window=what)
                self._at += 1
            elif label == "Crash":
                self._manager = self._process()
                self._at += 1
            else:
                self._call(label)
        if self._path and self._path[-1][0] == "Say":
            self._judged(self._path[-1][2])

    # -- one call ----------------------------------------------------------------------------------------------------

    def _call(self, label: str) -> None:
        call = self._manager.preflight if label == "Judge" else self._manager.manual_compact
        self._store.watch = self
        try:
            self._host = list(call("s", self._host))
        except CompactError:
            pass
        except Over:
            return
        except Died:
            self._manager = self._process()
            return
        finally:
            self._store.watch = None
        self._arrive("a call ended")
        self._at += 1

    def looks(self) -> None:
        """The archive is looked at: by a session that wakes, and before a fold."""
        if not self._awake:
            self._awake = True
        elif self._path[self._at][0] in ("Judge", "Demand"):
            self._arrive("before a fold")
            self._next("Select")

    def writes(self) -> None:
        """Something is about to be written."""
        self._arrive("before a write")
        if self._next("Archive", "Save", "StoreFails") == "StoreFails":
            raise OSError("the disk is gone")

    def wrote(self, key: str) -> None:
        """Something was written."""
        if "summary-" in key:
            self._arrive("after a write")
            self._next("Return")

    def answer(self, ask: Ask) -> str:
        """The summarizer is asked."""
        self._arrive("asking")
        self._asked(ask, self._path[self._at][2])
        if self._next("Answer", "Fail") == "Answer":
            return _body(ask)
        error = self._path[self._at][1]
        if error == "unusable":
            return "" if self._at % 2 else "far too long for anybody to read " * 20
        raise {
            "refused": ContentFilter("no"),
            "late": SummaryTimeout("late"),
            "dead": ModelUnavailable("dead", retryable=False),
        }[str(error)]

    def _next(self, *expected: str) -> str:
        """What the model does now; what happens beside the call happens at once."""
        while True:
            self._at += 1
            if self._at == len(self._path):
                raise Over
            label, what, _ = self._path[self._at]
            if label == "Crash":
                self._at += 1
                raise Died
            if label == "Change":
                self._manager.update(retention_window=what)
                continue
            if label not in expected:
                raise Disagreement(f"the engine wants one of {expected}, the model {label}")
            return label

    # -- comparing ---------------------------------------------------------------------------------------------------

    def _arrive(self, where: str) -> None:
        if self._at < self._known:
            return
        _, _, state = self._path[self._at]
        view = self._manager.session("s")
        shown = view.state, view.phase, view.summary_state
        self._same(where, "states", shown, (state.state, state.phase, state.summarizer))
        self._same(where, "changed", view.config_changed, state.changed)
        self._same(where, "archive", self._archived(), [(entry.list, entry.left) for entry in state.archive])
        done = [entry for entry in state.archive if entry.done]
        if state.at != "saved":
            self._same(where, "folds", len(view.folds), len(done))
            self._same(where, "messages since the last fold", view.counters.messages, len(state.said) - state.since)
        starts = [fold.range[0] for fold in view.folds]
        self._same(where, "starts in order", starts, sorted(starts))
        if state.at == "rest":
            self._same(where, "list", self._items(self._host), state.host)
            self._judged(state)

    def _judged(self, state: ModelState) -> None:
        """Whether a fold is due, and on how much, without touching anything."""
        decision = self._manager.should_compact("s", self._host)
        list_ = next(s.list for label, _, s in steps(state, self._rules) if label == "Judge")
        weight = sum(item.size for item in list_)
        self._same("looking", "due", bool(decision), due(state.but(list=list_), self._rules))
        if self._rules.on_failure != "extract":
            # A summary that stands first speaks as a user, which is a token less.
            self._same("looking", "size", -(-(decision.usage.total - 3) // UNIT), weight)

    def _asked(self, ask: Ask, state: ModelState) -> None:
        fold = state.plan[len(state.bodies)]
        of = frozenset().union(*(state.list[i - 1].of for i in fold))
        self._same("asking", "what folds", _covered(ask), of)
        self._same("asking", "the limit", ask.max_tokens, BODY_TOKENS >> state.tries.halved)
        self._same("asking", "the strategy", ask.strategy == "brief", state.tries.brief)

    def _same(self, where: str, what: str, engine: Any, model: Any) -> None:
        if engine != model:
            taken = " ".join(f"{label}({given})" if given else label for label, given, _ in self._path[: self._at + 1])
            raise Disagreement(f"{where}, {what}: the engine has {engine!r}, the model {model!r}, after {taken}")

    # -- reading -----------------------------------------------------------------------------------------------------

    def _archived(self) -> list[tuple[tuple[Item, ...], tuple[Item, ...]]]:
        """What the archive holds: each list, and what its fold left."""
        entries = []
        for key in sorted(key for key in self._store.kept if "transcript" in key):
            before = [json.loads(line) for line in self._store.kept[key].splitlines()]
            record = self._store.kept.get(key.replace("transcript-pre-compact", "summary")[:-1])
            entries.append((self._items(before), self._left(before, json.loads(record)) if record else ()))
        return entries

    def _left(self, before: list[Any], record: dict[str, Any]) -> tuple[Item, ...]:
        made = [one["message"] for one in record["made"]]
        for fold in record["folds"]:
            if fold["summary"] and not fold["summary"].startswith("The work of"):
                of = frozenset(at + 1 for at in fold["positions"])
                earlier = (item.of for item in self._items(before) if item.kind == "summary" and item.at in of)
                self._extracted[fold["summary"]] = of.union(*earlier)
        return self._items([before[one] if isinstance(one, int) else made[one["made"]] for one in record["left"]])

    def _items(self, raws: Sequence[dict[str, Any]]) -> tuple[Item, ...]:
        return tuple(self._item(raw) for raw in raws)

    def _item(self, raw: dict[str, Any]) -> Item:
        text, cost = json.dumps(raw), self._rules.shape.message_cost
        if "COMPACT-SUMMARY" in text:
            body = strip_marker(raw["content"])
            of = self._extracted.get(body) or frozenset(int(n) + 1 for n in re.findall(r"\[#(\d+)\]", body))
            return Item(max(of), "summary", False, of, 1)
        at = int(re.search(r"message (\d+) ", text)[1])  # type: ignore[index]
        kind = {1: "call", 2: "twice"}.get(len(raw.get("tool_calls") or ()), raw["role"])
        return Item(at, "result" if kind == "tool" else kind, "meta" in raw, frozenset((at,)), cost)

    # -- making ------------------------------------------------------------------------------------------------------

    def _process(self) -> CompactManager:
        """A new process on the same archive, with the window that was asked for last."""
        self._awake = False
        wanted = self._path[self._at][2].wanted if self._at < len(self._path) else self._rules.window
        config = self._config if wanted == self._rules.window else self._config.changed(retention_window=wanted)
        return CompactManager(config, summarizer=self.answer, store=self._store)

    def _message(self, what: str, at: int) -> dict[str, Any]:
        # Every call has the same ids: real logs reuse them.
        if what == "result":
            return _made(what, at, self._waiting.pop(), self._rules.shape.message_cost)
        self._waiting = ["x", "y"] if what == "twice" else ["x"] if "call" in what else []
        return _made(what, at, "", self._rules.shape.message_cost)


def _body(ask: Ask) -> str:
    """A summary that says what it covers, and fills its limit without being cut off there."""
    cited = "".join(f"[#{at - 1}]" for at in sorted(_covered(ask)))
    text = f"The work of {cited} went on as planned and nothing else came of it, so it goes on from there now, as said"
    return f"{text[: 4 * BODY_TOKENS - 1]}."


def _covered(ask: Ask) -> frozenset[int]:
    earlier = re.findall(r"\[#(\d+)\]", ask.previous or "")
    return frozenset([*(at + 1 for at in ask.positions), *(int(at) + 1 for at in earlier)])


@cache
def _made(what: str, at: int, answers: str, units: int) -> dict[str, Any]:
    """A message of exactly so many units."""
    for length in range(4 * (units * UNIT - 40), 4 * units * UNIT):
        text = (f"message {at} " + "went on with the work and came to its end, " * 100)[:length]
        raw = _raw(what, text, answers)
        if message_tokens(CHAT.read(raw), TALLY) == units * UNIT:
            return raw
    raise AssertionError(f"no {what} of {units} units")


def _raw(what: str, text: str, answers: str) -> dict[str, Any]:
    if what == "result":
        return {"role": "tool", "tool_call_id": answers, "content": text}
    if what == "user":
        return {"role": "user", "content": text}
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if what != "assistant" and what != "pinned":
        parts = [text[: len(text) // 2], text[len(text) // 2 :]] if what == "twice" else [text]
        message["content"] = None
        message["tool_calls"] = [
            {"id": call, "type": "function", "function": {"name": "look", "arguments": json.dumps({"note": part})}}
            for call, part in zip("xy", parts, strict=False)
        ]
    if what.startswith("pinned"):
        message["meta"] = {"protected": True}
    return message


@contextmanager
def without_waiting() -> Iterator[None]:
    """Nobody waits between two tries of a summarizer: the model knows no time."""
    before, _chain.BACKOFF = _chain.BACKOFF, 0.0
    try:
        yield
    finally:
        _chain.BACKOFF = before


# -- every step ------------------------------------------------------------------------------------------------------


def paths(rules: Rules) -> tuple[int, int, Iterator[tuple[list[Step], int]]]:
    """How many states and steps a model has, and paths that together take every step, each from the beginning.

    With each path comes how many of its first steps a path before it has taken.
    """
    first = start(rules)
    reached: dict[ModelState, tuple[ModelState, Step] | None] = {first: None}
    depth = {first: 0}
    todo = deque([first])
    taken: list[tuple[ModelState, Step]] = []
    while todo:
        now = todo.popleft()
        for step in steps(now, rules):
            taken.append((now, step))
            if step[2] not in reached:
                reached[step[2]] = now, step
                depth[step[2]] = depth[now] + 1
                todo.append(step[2])

    def covering() -> Iterator[tuple[list[Step], int]]:
        covered: set[tuple[ModelState, str, Any]] = set()
        # The longest first: they take the steps of the shorter ones.
        for now, step in sorted(taken, key=lambda one: -depth[one[0]]):
            if (now, step[0], step[1]) in covered:
                continue
            path, state, fresh = [step], now, 1
            covered.add((now, step[0], step[1]))
            while (before := reached[state]) is not None:
                path.append(before[1])
                state = before[0]
                if (state, before[1][0], before[1][1]) not in covered:
                    covered.add((state, before[1][0], before[1][1]))
                    fresh = len(path)
            yield path[::-1], len(path) - fresh

    return len(reached), len(taken), covering()
