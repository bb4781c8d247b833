"""`spec/Session.tla` in Python, action by action: the next-state relation of one session.

Owns: `Rules`, `ModelState`, `start` and `steps`. Must never: import the engine.

`steps(state, rules)` gives every step that the model allows from a state, by the name of its action. Tests compare it
with TLC on whole state graphs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from .conversation import FoldIndices, Item, Items, Shape, after, message, open_in, plan_for, starts, tokens


@dataclass(frozen=True, slots=True)
class Rules:
    """The constants of the model."""

    shape: Shape
    window: int
    sayable: tuple[str, ...] = ("user", "assistant", "pinned", "call", "pinned call", "twice", "result")
    message_threshold: int = 0
    turn_threshold: int = 0
    token_threshold: int = 0
    target: int = 0
    changes: tuple[int, ...] = ()
    manual: bool = False
    errors: tuple[str, ...] = ()
    max_retries: int = 0
    on_failure: str = "prune"
    max_messages: int = 0
    max_failures: int = 0
    max_crashes: int = 0


class Tries(NamedTuple):
    """What was tried for the current summary."""

    again: int = 0
    halved: int = 0
    brief: bool = False


class Archived(NamedTuple):
    """A list before a compaction, and its result when it is done."""

    list: Items
    upto: int
    done: bool = False
    folds: tuple[FoldIndices, ...] = ()
    left: Items = ()


class ModelState(NamedTuple):
    """The variables of the model."""

    said: Items = ()
    host: Items = ()
    list: Items = ()
    window: int = 0
    wanted: int = 0
    changed: bool = False
    state: str = "not_needed"
    phase: str = "idle"
    summarizer: str = "idle"
    at: str = "rest"
    forced: bool = False
    plan: tuple[FoldIndices, ...] = ()
    bodies: tuple[int, ...] = ()
    tries: Tries = Tries()
    broken: str = "no"
    archive: tuple[Archived, ...] = ()
    missed: bool = False
    refused: frozenset[int] = frozenset()
    failures: int = 0
    crashes: int = 0

    @property
    def newest(self) -> Archived | None:
        """The newest finished compaction."""
        return next((entry for entry in reversed(self.archive) if entry.done), None)

    @property
    def since(self) -> int:
        """The number of messages up to the last compaction."""
        return self.newest.upto if self.newest else 0

    @property
    def positions(self) -> frozenset[int]:
        """The positions that the plan compacts."""
        return frozenset().union(*(self.list[i - 1].of for fold in self.plan for i in fold))

    def but(self, **values: Any) -> ModelState:
        """The same state with other values."""
        return self._replace(**values)


Step = tuple[str, str | int | None, ModelState]
"""The action, its argument, and the next state."""

_CALL_OVER: dict[str, Any] = {
    "at": "rest",
    "forced": False,
    "plan": (),
    "bodies": (),
    "tries": Tries(),
    "broken": "no",
    "phase": "idle",
    "summarizer": "idle",
}


def start(rules: Rules) -> ModelState:
    """The initial state."""
    return ModelState(window=rules.window, wanted=rules.window)


def steps(now: ModelState, rules: Rules) -> Iterator[Step]:
    """Every step that the model allows."""
    if now.at == "rest":
        yield from _say(now, rules)
    for to in rules.changes:
        if to != now.wanted:
            yield "Change", to, now.but(wanted=to, changed=True, window=to if now.at == "rest" else now.window)
    if now.at == "rest":
        yield from _begin(now.but(list=_list_on_call(now)), rules)
    elif now.at == "judged":
        yield "Select", None, _select(now, rules)
    elif now.at == "selected":
        entry = Archived(now.list, len(now.said))
        yield (
            "Archive",
            None,
            now.but(archive=(*now.archive, entry), at="asking", phase="compacting", summarizer="in_progress"),
        )
    elif now.at == "asking":
        yield "Answer", 1, _settle(now, rules, (1,), now.broken)
        if now.failures < rules.max_failures:
            for error in rules.errors:
                yield "Fail", error, _fail(now.but(failures=now.failures + 1), rules, error)
    elif now.at == "replacing":
        left = after(now.list, now.plan, now.bodies, rules.shape.layout)
        done = now.archive[-1]._replace(done=True, folds=now.plan, left=left)
        yield "Save", None, now.but(archive=(*now.archive[:-1], done), at="saved")
    elif now.at == "saved":
        yield "Return", None, _return_list(now, rules)
    if now.at in ("selected", "replacing") and now.failures < rules.max_failures:
        yield "StoreFails", None, _give_up(now.but(failures=now.failures + 1), rules)
    if now.crashes < rules.max_crashes:
        yield "Crash", None, _crash(now)


def due(now: ModelState, rules: Rules) -> bool:
    """Whether a threshold is reached."""
    shape, found = rules.shape, starts(now.list)
    turns = sum(now.list[i - 1].at > now.since for i in found)
    return (
        0 < rules.message_threshold <= len(now.said) - now.since
        or 0 < rules.turn_threshold <= turns
        or 0 < rules.token_threshold <= tokens(now.list)
        or (shape.layout == "rolling" and len(found) > shape.keep_turns)
    )


def _state_by_trigger(now: ModelState, rules: Rules) -> str:
    return "needed" if due(now, rules) else "not_needed"


def _new_item(now: ModelState, rules: Rules, what: str) -> Item:
    kind = {"pinned": "assistant", "pinned call": "call"}.get(what, what)
    return message(len(now.said) + 1, kind, kind != what, rules.shape.message_cost)


def _say(now: ModelState, rules: Rules) -> Iterator[Step]:
    if len(now.said) < rules.max_messages:
        waiting = bool(open_in(now.host))
        for what in rules.sayable:
            if (what == "result") == waiting:
                item = _new_item(now, rules, what)
                host = (*now.host, item)
                yield "Say", what, now.but(said=(*now.said, item), host=host, list=host)


def _give_back(now: ModelState) -> ModelState:
    return now.but(**_CALL_OVER, window=now.wanted, host=now.list, missed=False)


def _raise_error(now: ModelState) -> ModelState:
    return now.but(**_CALL_OVER, window=now.wanted, list=now.host)


def _give_up(now: ModelState, rules: Rules) -> ModelState:
    """The compaction was given up, and nothing changed."""
    judged = now.but(state=_state_by_trigger(now, rules))
    return _raise_error(judged) if rules.on_failure == "raise" else _give_back(judged)


def _list_on_call(now: ModelState) -> Items:
    """The application's list, with the result of a compaction that was archived before a crash."""
    newest = now.newest
    if newest is None or not now.missed:
        return now.host
    return newest.left + tuple(item for item in now.host if item.at > newest.upto)


def _begin(now: ModelState, rules: Rules) -> Iterator[Step]:
    judged = now.but(state=_state_by_trigger(now, rules), changed=False)
    yield "Judge", None, judged.but(at="judged") if judged.state == "needed" else _give_back(judged)
    if rules.manual:
        yield "Demand", None, now.but(state="needed", at="judged", forced=True, changed=False)


def _select(now: ModelState, rules: Rules) -> ModelState:
    by_tokens = not now.forced and 0 < rules.token_threshold <= tokens(now.list)
    chosen = now.but(plan=plan_for(now.list, now.window, rules.target if by_tokens else 0, rules.shape))
    if not chosen.plan or (chosen.positions == now.refused and not now.forced):
        judged = now.but(state=_state_by_trigger(now, rules))
        return _raise_error(judged) if chosen.plan and rules.on_failure == "raise" else _give_back(judged)
    return chosen.but(state="in_progress", phase="selecting", at="selected")


def _settle(now: ModelState, rules: Rules, more: tuple[int, ...], why: str) -> ModelState:
    """Add a body for the current fold, or for all remaining ones."""
    bodies = now.bodies + more
    if len(bodies) < len(now.plan):
        return now.but(bodies=bodies, tries=Tries(), broken=why)
    if why != "no" and rules.on_failure == "raise":
        refused = now.positions if why == "unusable" else frozenset[int]()
        return _raise_error(now.but(state=_state_by_trigger(now, rules), refused=refused))
    return now.but(bodies=bodies, tries=Tries(), broken=why, at="replacing", phase="replacing", summarizer="idle")


def _fail(now: ModelState, rules: Rules, error: str) -> ModelState:
    tries = now.tries
    if error == "unusable" and tries.halved < 2:
        return now.but(tries=tries._replace(halved=tries.halved + 1))
    if error == "refused" and not tries.brief:
        return now.but(tries=tries._replace(brief=True))
    if error == "late" and tries.again < rules.max_retries:
        return now.but(tries=tries._replace(again=tries.again + 1))
    # When the first answer cannot be used, the others are not requested.
    count = len(now.plan) if not now.bodies and error == "unusable" else 1
    return _settle(now, rules, (int(rules.on_failure == "extract"),) * count, error)


def _return_list(now: ModelState, rules: Rules) -> ModelState:
    left = now.archive[-1].left
    full = 0 < rules.token_threshold <= tokens(left)
    over = now.but(**_CALL_OVER, window=now.wanted, list=left, host=left, missed=False, refused=frozenset())
    return over.but(state="needed" if full else "completed")


def _crash(now: ModelState) -> ModelState:
    """The process loses its state; the archive and the application's list stay."""
    missed = now.missed or now.at == "saved"
    over = now.but(**_CALL_OVER, window=now.wanted, list=now.host, state="not_needed", missed=missed)
    return over.but(refused=frozenset(), changed=False, crashes=now.crashes + 1)
