"""Conversations of every kind, driven through the manager by hosts of every kind: what must hold after each call.

The judge of the lists is `providers`, which knows nothing of the library. A `Host` writes a conversation in one
dialect, calls the manager as such hosts do, and checks every invariant after every call; a Hypothesis machine drives
it, and a seeded generator drives many thousands of it.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from applications import ANTHROPIC, CHAT, DIALECTS, HOSTS, LAYOUTS, RESPONSES, Item, Speaker, Writer, is_pinned, is_user
from fault_injection import Shelf
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from provider_rules import problems
from volume import volume

from compact import Ask, CompactConfig, CompactManager, InsufficientBudget
from compact.testing import Recorder, ScriptedModel, chat

WINDOW, BUFFER = 900, 60


class Summaries:
    """A summarizer whose every answer is new, so that a summary which is not ours would be noticed."""

    def __init__(self) -> None:
        self.model = ScriptedModel(self._answer)
        self.bodies: set[str] = set()

    def _answer(self, ask: Ask) -> str:
        body = f"notes {len(self.bodies)}"
        self.bodies.add(body)
        return f"<{ask.tag}>{body}</{ask.tag}>"


class Bench:
    """One manager for many hosts, with its summarizer and its events."""

    def __init__(self, layout: str, dialect: str, *, window: int = WINDOW, **policy: Any) -> None:
        self.layout, self.dialect = layout, dialect
        self.summaries, self.recorder = Summaries(), Recorder()
        self.hosts = 0
        small = {"keep_recent_turns": 2, "keep_tool_io_pairs": 2, "retention_window": 4, "window_rounds": 2}
        self.manager = CompactManager(
            CompactConfig(
                max_context_tokens=window,
                counter="chars",
                policy={"layout": layout, "hard_cap_buffer": BUFFER, **small, **policy},
                storage={"adapter": "none"},
                summary={"min_score": 0},  # what a script says goes in as it stands
                redaction={"enabled": False},  # not the point here
            ),
            summarizer=self.summaries.model,
            sinks=[self.recorder],
            dialect=dialect,
        )

    def host(self, kind: str) -> Host:
        """A new session."""
        self.hosts += 1
        return Host(self, kind, f"s{self.hosts}")


class Host(Speaker):
    """One session: its whole conversation, the list it sends, and what must hold of every list that comes back."""

    def __init__(self, bench: Bench, kind: str, id: str) -> None:
        super().__init__(bench.dialect, kind)
        self.bench, self.manager, self.id = bench, bench.manager, id
        self.before: list[Item] | None = None
        self.seen = 0
        self.positions: set[int] = set()
        self.folds = 0
        self.full = self.altered = False
        self.wrong: list[str] = []

    # -- the calls ---------------------------------------------------------------------------------------------------

    def preflight(self) -> None:
        """What the host does before each model call."""
        self._call(self.manager.preflight)

    def manual(self) -> None:
        """A fold that the host asks for."""
        self._call(self.manager.manual_compact)

    def _call(self, verb: Callable[[str, list[Item]], list[Item]]) -> None:
        given = self.given()
        if not given:
            return
        asked, told = len(self.bench.summaries.model.asks), len(self.bench.recorder.events)
        frozen = json.dumps(given)
        try:
            out = verb(self.id, given)
        except InsufficientBudget as error:
            fits = self.kind == "keeps" and self.weight(given) <= self.manager.config.budget
            self.note("needless", [str(error)] if fits or error.needed <= error.budget else [])
            self.full = True
            return
        finally:
            self.note("mutated", [] if frozen == json.dumps(given) else ["the host's list has changed"])
        folds = self.manager.session(self.id).folds
        self.check(
            given,
            out,
            folded=len(folds) > self.folds,
            asks=self.bench.summaries.model.asks[asked:],
            events=self.bench.recorder.events[told:],
        )
        self.folds = len(folds)
        self.before, self.seen = (None, 0) if self.kind == "keeps" else (list(out), len(given))
        if self.kind == "keeps":
            self.sent = out

    def weight(self, messages: list[Item]) -> int:
        """What a list weighs, judged by a session that never saw it."""
        return self.manager.should_compact("nobody", messages).usage.total

    # -- what must hold ----------------------------------------------------------------------------------------------

    def check(self, given: list[Item], out: list[Item], *, folded: bool, asks: list[Ask], events: list[Any]) -> None:
        """Judge one call by every rule; what is wrong goes into `wrong` under the rule's name."""
        dialect, policy = self.bench.dialect, self.manager.config.policy
        sound = not problems(dialect, given) or not problems(dialect, self.whole)
        repaired = any(event.data.get("code") == "repaired_history" for event in events)
        self.altered |= repaired or any(event.data.get("clipped") for event in events)
        if folded or sound:
            self.note("valid", problems(dialect, out))
        there = {id(item) for item in out}
        self.note("pins", [item for item in given if is_pinned(item) and id(item) not in there])
        if policy.layout == "in_place" and not repaired:
            self.note("users", [item for item in given if is_user(item) and id(item) not in there])
            if not self.altered:
                # A host that passes everything again sees its folds replayed: the window is that of what would go out.
                current = given if self.before is None else [*self.before, *given[self.seen :]]
                texts = {json.dumps(item) for item in out}
                newest = current[-policy.retention_window :]
                self.note("window", [item for item in newest if json.dumps(item) not in texts])
        if folded:
            usage, budget = self.weight(out), self.manager.config.budget
            self.note("budget", [f"{usage} of {budget}"] if usage > budget else [])
        elif self.before is not None and not repaired:
            same = json.dumps(self.before) == json.dumps(out[: len(self.before)])
            self.note("prefix", [] if same else ["what went out before is not the beginning of what goes out now"])
        self._check_asks(asks, folded, sound)
        self._check_history(sound)

    def note(self, rule: str, wrong: list[Any]) -> None:
        """Remember what a rule found."""
        if wrong:
            self.wrong.append(f"{rule}: {self.bench.dialect}, {self.bench.layout}, {self.kind}: {wrong}")

    def _check_asks(self, asks: list[Ask], folded: bool, sound: bool) -> None:
        if not folded and sound:
            self.note("paid for nothing", [ask.positions for ask in asks])
        if folded and self.bench.layout != "in_place":
            self.note("one ask", [ask.positions for ask in asks[1:]])
        for ask in asks:
            notes = set(ask.previous.split("\n")) if ask.previous is not None else set()
            self.note("foreign notes", sorted(notes - self.bench.summaries.bodies))
            fresh = [
                position
                for message, position in zip(ask.source, ask.positions, strict=True)
                if position < len(self.whole) and message.raw == self.whole[position]
            ]
            if folded:
                self.note("folded twice", [position for position in fresh if position in self.positions])
                self.positions |= set(fresh)

    def _check_history(self, sound: bool) -> None:
        folds = self.manager.session(self.id).folds
        steps, versions, starts = [f.step for f in folds], [f.version for f in folds], [f.range[0] for f in folds]
        self.note("steps", [] if steps == list(range(1, len(folds) + 1)) else steps)
        self.note("versions", [] if versions == sorted(versions) else versions)
        if sound and not self.lost:  # a block that was answered late may fold late
            self.note("starts", [] if starts == sorted(starts) else starts)


def test_what_only_mending_makes_too_large_goes_out_as_it_came() -> None:
    """Thirty-four results of no call, and a call that waits: 328 tokens arrive, and mended they would be 865 of 840."""
    host = Bench("layered", RESPONSES, target_pct=0.3).host("keeps")
    host.word("s", 8)
    host.word("u", 8)
    for _ in range(34):
        host.answers_nothing()
    host.calls_tools(1)
    given = list(host.sent)
    host.manual()
    assert ([], given, 0) == (host.wrong, host.sent, host.folds)
    assert "unchanged" == host.bench.recorder["error"][0].data["fallback"]


# -- the judge itself ------------------------------------------------------------------------------------------------


def _table() -> Iterator[tuple[str, list[Item], bool]]:
    """Lists in all dialects, and whether their provider would take them."""
    for dialect in DIALECTS:
        write = Writer(dialect)
        user, words, system = write.said("u", "do"), write.said("a", "done"), write.said("s", "be")
        step, late_step, both = write.step(["x"], "go"), write.step(["x"], "again"), write.step(["x", "y"], "go")
        x, y = write.results(["x"], "seen"), write.results(["y"], "seen")
        yield dialect, [], False
        yield dialect, [user], True
        yield dialect, [system, user, words, user, user], True
        yield dialect, [user, *step, *x, words], True
        yield dialect, [user, *step], True  # still waits
        yield dialect, [user, *both, *x], True  # waits for the other one
        yield dialect, [user, *both, *x, *y], True
        yield dialect, [user, *both, *y, *x, user], True
        yield dialect, [user, *step, *x, *late_step, *x], True  # an id may come again
        yield dialect, [user, *step, user], False
        yield dialect, [user, *step, words], dialect == RESPONSES  # there it is still one step
        yield dialect, [user, *both, *x, user], False
        yield dialect, [user, *both, *x, words], False
        yield dialect, [user, *x], False
        yield dialect, [user, *x, *step], False
        yield dialect, [user, *step, *x, *x], False
        yield dialect, [user, *step, *y], False
        yield dialect, [user, *step, user, *x], dialect == RESPONSES
        yield dialect, [user, *step, words, *x], dialect == RESPONSES
        yield dialect, [user, *step, system, *x], dialect != CHAT
        yield dialect, [words, user], dialect != ANTHROPIC
    yield CHAT, [{"role": "user", "content": "do"}, {"role": "assistant", "content": None}], False
    yield ANTHROPIC, [{"role": "user", "content": "do"}, {"role": "assistant", "content": []}], False
    yield ANTHROPIC, [{"role": "user", "content": [{"type": "text", "text": " "}]}], False
    yield ANTHROPIC, [{"role": "system", "content": "be"}], False
    (result,) = Writer(ANTHROPIC).results(["x"], "seen", words="go on")
    asked = [{"role": "user", "content": "do"}, *Writer(ANTHROPIC).step(["x"], "go")]
    yield ANTHROPIC, [*asked, result], True
    yield ANTHROPIC, [*asked, {**result, "content": result["content"][::-1]}], False
    thought = {"type": "reasoning", "id": "rs", "summary": []}
    request, answer = Writer(RESPONSES).said("u", "do"), Writer(RESPONSES).said("a", "done")
    yield RESPONSES, [request, thought, answer], True
    yield RESPONSES, [request, thought, thought, answer], True
    yield RESPONSES, [request, thought, *Writer(RESPONSES).step(["x"], "go")], True
    yield RESPONSES, [request, thought], False
    yield RESPONSES, [request, thought, request, answer], False


@pytest.mark.parametrize(("dialect", "messages", "sound"), list(_table()))
def test_the_judge_knows_good_lists_from_bad_ones(dialect: str, messages: list[Item], sound: bool) -> None:
    """Each rule of each provider accepts what is right and refuses what is wrong."""
    assert sound == (problems(dialect, messages) == [])


# -- many histories --------------------------------------------------------------------------------------------------

# The promise is 10,000; `make torture` runs 10,080.
HISTORIES = volume(100, 1_120)
"""Histories for each dialect and layout: more than 10,000 in all in the full profile."""


def talk(host: Host, rng: random.Random, *, broken: bool) -> None:
    """Some steps of a conversation; a `broken` one has late, missing and orphaned results and stray system messages."""
    for _ in range(rng.randint(2, 9)):
        size = rng.choice((2, 10, 30, 60))
        match rng.choice("uuaapttTTTT" + "lloonnsx" * broken):
            case "u" | "a" | "p" as letter:
                host.word(letter, size, plain=rng.random() < 0.3, forged=rng.random() < 0.03)
            case "t" | "T" as letter:
                count = 1 if letter == "t" else rng.randint(2, 4)
                host.calls_tools(count, reuse=rng.random() < 0.1, thinks=rng.random() < 0.3)
                host.answers(count, size, joined=rng.random() < 0.8, words="go on" if rng.random() < 0.2 else "")
            case "n":
                count = rng.randint(1, 4)
                host.calls_tools(count, reuse=rng.random() < 0.1, thinks=rng.random() < 0.3)
                host.answers(rng.randint(0, count - 1), size)
            case "x" if host.open:
                host.answers(1, size)
            case "l" if host.lost:
                host.answers_late(rng.randrange(9))
            case "o":
                host.answers_nothing()
            case "s":
                host.says(host.writer.said("s", "word"))


def history(bench: Bench, kind: str, seed: str) -> Host:
    """One conversation with several folds, natural ones and manual ones."""
    rng = random.Random(seed)
    host = bench.host(kind)
    broken = rng.random() < 0.5
    if rng.random() < 0.7:
        host.says(host.writer.said("s", "be good"))
    if rng.random() < 0.9:
        host.word("u", 3)
    try:
        for _ in range(rng.randint(3, 4)):
            talk(host, rng, broken=broken)
            (host.manual if rng.random() < 0.4 else host.preflight)()
            if host.full:
                break
    except Exception as error:  # whatever it is, it is a finding
        host.note("crash", [repr(error)])
    return host


@cache  # not a fixture: setting one up is traced
def histories() -> list[Host]:
    """All histories, each with what was found wrong in it."""
    done: list[Host] = []
    for dialect in DIALECTS:
        for layout in LAYOUTS:
            for number in range(HISTORIES):
                if number % 100 == 0:
                    bench = Bench(layout, dialect, target_pct=0.3 if number % 200 else 0.7)
                done.append(history(bench, HOSTS[number % 3], f"{dialect} {layout} {number}"))
    return done


@pytest.mark.slow
@pytest.mark.volume
@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("crash", marks=pytest.mark.spec("T22")),
        pytest.param("valid", marks=pytest.mark.spec("T22", "L21", "L27")),
        pytest.param("pins", marks=pytest.mark.spec("S38", "T24")),
        pytest.param("budget", marks=pytest.mark.spec("S38")),
        pytest.param("needless", marks=pytest.mark.spec("S38")),
        pytest.param("users", marks=pytest.mark.spec("L11", "L20")),
        pytest.param("window", marks=pytest.mark.spec("L22", "L29", "L32")),
        pytest.param("folded twice", marks=pytest.mark.spec("L23")),
        pytest.param("starts", marks=pytest.mark.spec("L28")),
        pytest.param("steps", marks=pytest.mark.spec("L28")),
        pytest.param("versions", marks=pytest.mark.spec("L28")),
        "prefix",
        pytest.param("one ask", marks=pytest.mark.spec("P3")),
        "paid for nothing",
        "foreign notes",
        "mutated",
    ],
)
def test_of_many_histories_none_breaks_a_rule(rule: str) -> None:
    """Parallel, pending, never-answered, late and orphaned results, reused ids, mixed blocks, folds of folds.

    A hundred histories of each layout and format; 10,080 in `make torture`.
    """
    assert [] == [wrong for host in histories() for wrong in host.wrong if wrong.startswith(f"{rule}:")]


@pytest.mark.slow
@pytest.mark.volume
@pytest.mark.spec("T22")
def test_the_histories_fold_often_enough_to_prove_anything() -> None:
    """Most of them fold, many a fold of a fold of a fold, in every dialect and layout."""
    done = histories()
    assert 9 * HISTORIES == len(done)
    for dialect in DIALECTS:
        for layout in LAYOUTS:
            counts = [host.folds for host in done if (host.bench.dialect, host.bench.layout) == (dialect, layout)]
            assert sum(count >= 1 for count in counts) > 0.7 * len(counts)
            assert sum(count >= 3 for count in counts) > 0.1 * len(counts)


# -- particular conversations ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.spec("T24", "S09", "S10")
@pytest.mark.parametrize("count", [1, 5, 20])
@pytest.mark.parametrize("kind", HOSTS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_pinned_messages_are_the_same_after_many_folds(dialect: str, layout: str, kind: str, count: int) -> None:
    """System and protected messages of every age are byte-identical, and were never shown to the summarizer."""
    bench = Bench(layout, dialect, window=9_000, window_rounds=1)
    host = bench.host(kind)
    host.says(host.writer.said("s", "be good"))
    pinned = [host.whole[0]]
    for number in range(count):
        host.word("u", 30)
        host.word("a", 30)
        host.word("u", 8)
        if number in (0, 3, 9):
            host.word("p", 8)
            pinned.append(host.whole[-1])
        for _ in range(3):
            host.calls_tools(2)
            host.answers(2, 8)
        host.word("a", 8)
        host.word("a", 8)
        host.manual()
    assert ([], count) == (host.wrong, host.folds)
    out = host.manager.preflight(host.id, host.sent if kind == "keeps" else copy.deepcopy(host.whole))
    assert json.dumps(pinned) == json.dumps([item for item in out if is_pinned(item)])
    shown = [message for ask in bench.summaries.model.asks for message in ask.source]
    assert [] == [message for message in shown if message.pinned or message.role == "system"]


@pytest.mark.spec("S16", "L21")
@pytest.mark.parametrize("layout", ["layered", "rolling"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_summary_is_no_part_of_the_step_behind_it(dialect: str, layout: str) -> None:
    """A kept tool step right behind the summary does not hold the next fold up."""
    host = Bench(layout, dialect, keep_recent_turns=1, keep_tool_io_pairs=1, window_rounds=1).host("keeps")
    for _ in range(2):
        host.word("u", 30)
        host.calls_tools(1)
        host.answers(1, 30)
    for folds in (1, 2, 3):
        for _ in range(2):
            host.word("u", 30)
            host.word("a", 30)
        host.manual()
        assert ([], folds) == (host.wrong, host.folds)


@pytest.mark.spec("S38")
@pytest.mark.parametrize("layout", ["layered", "rolling"])
def test_a_low_threshold_is_no_budget(layout: str) -> None:
    """A list far below the budget is never too large, however low a threshold is set and however much is pinned."""
    host = Bench(layout, CHAT, window_rounds=1, keep_recent_turns=1).host("keeps")
    for _ in range(3):
        host.word("u", 30)
        host.word("a", 30)
    host.manual()
    host.manager.update(token_threshold=200)
    host.word("p", 80)
    for _ in range(3):
        host.word("u", 30)
        host.word("a", 30)
        host.preflight()
    assert ([], False) == (host.wrong, host.full)


@pytest.mark.spec("S38")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_folds_needs_no_mending(layout: str, dialect: str) -> None:
    """Many orphans in a list far below the budget fold away; what mending them would cost is not held against it."""
    host = Bench(layout, dialect, window_rounds=1, keep_recent_turns=1).host("keeps")
    host.word("u", 3)
    for _ in range(34):
        host.answers_nothing()
    host.word("u", 3)
    host.word("a", 3)
    host.manual()
    assert ([], False) == (host.wrong, host.full)


@pytest.mark.spec("T22")
def test_a_system_message_between_a_call_and_its_result_does_not_survive_a_fold_there() -> None:
    """Chat wants results right behind their call, so a fold that keeps the pair puts it in order."""
    messages = chat("suaaauaatsrua")
    manager = CompactManager(
        CompactConfig(policy={"layout": "in_place", "retention_window": 5}, storage={"adapter": "none"}),
        summarizer=ScriptedModel("short"),
    )
    assert [] == problems(CHAT, manager.manual_compact("s", messages))


@pytest.mark.spec("S38")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_overfull_list_that_arrived_broken_still_fits_or_is_refused_as_too_large(dialect: str) -> None:
    """What mending adds counts: within the budget, or `InsufficientBudget`; never a broken law."""
    for size in range(400, 600, 4):
        host = Bench("in_place", dialect, retention_window=2).host("keeps")
        host.word("u", size)
        host.calls_tools(4, size=1)
        host.word("u", 2)
        host.calls_tools(1, size=1)
        host.answers(1, 300)
        host.preflight()
        assert [] == host.wrong


@pytest.mark.spec("T22")
@pytest.mark.parametrize("kind", HOSTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_result_that_comes_after_its_call_was_given_up_finds_its_place(layout: str, kind: str) -> None:
    """A fold mends a kept call that nobody answered; when its result comes all the same, it is no orphan."""
    host = Bench(layout, RESPONSES, window_rounds=1).host(kind)
    for _ in range(2):
        host.word("u", 30)
        host.word("a", 30)
        host.word("a", 30)
    host.calls_tools(1)
    host.word("u", 3)
    host.manual()
    assert ([], 1) == (host.wrong, host.folds)
    host.answers_late(0)
    host.preflight()
    host.word("u", 3)
    host.preflight()
    assert [] == host.wrong


@pytest.mark.spec("S38")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("layout", ["layered", "rolling"])
@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.slow
@pytest.mark.untraced
def test_whatever_the_limit_a_list_fits_or_is_refused_as_too_large(layout: str, dialect: str, folded: bool) -> None:
    """An earlier summary that stays, and what a provider's rules add, count as well: never a broken law."""
    refused: list[InsufficientBudget] = []
    for limit in range(30, 110, 3):
        host = Bench(layout, dialect, keep_recent_turns=1, window_rounds=1).host("keeps")
        host.says(host.writer.said("s", "be good"))
        host.word("u", 3)
        host.says({**host.writer.said("a", "word " * 4), "meta": {"protected": True}})
        host.word("u", 3)
        host.word("a", 12)
        host.word("u", 3)
        if folded:
            host.manual()
            host.word("u", 3)
            host.word("a", 9)
        try:
            out = host.manager.recover(host.id, host.sent, limit)
        except InsufficientBudget as error:
            refused.append(error)
        else:
            assert [] == problems(dialect, out)
    assert all(error.needed > error.budget for error in refused)


@pytest.mark.spec("S38", "L01")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", HOSTS)
def test_what_mending_adds_on_the_way_out_counts(kind: str, dialect: str) -> None:
    """Results of calls that were given up are told as notes: usage is that of the list that goes out."""
    host = Bench("in_place", dialect, retention_window=1).host(kind)
    host.word("u", 4)
    host.word("a", 9)
    host.word("a", 9)
    host.calls_tools(4)
    host.word("u", 4)
    host.manual()
    host.answers_late(0)
    host.answers_late(0)
    given = host.given()
    told = host.manager.should_compact(host.id, given).usage.total
    out = host.manager.preflight(host.id, given)
    assert (1, host.weight(out)) == (host.folds, told)
    assert [] == problems(dialect, out)


@pytest.mark.spec("S16")
@pytest.mark.parametrize("layout", ["layered", "rolling"])
def test_outputs_can_be_cleared_beside_summaries_of_another_layout(layout: str) -> None:
    """`in_place` left several summaries; a fold that only clears outputs leaves them, and breaks no law."""
    host = Bench("in_place", CHAT, retention_window=2, keep_recent_turns=9, window_rounds=9).host("keeps")
    for _ in range(3):
        host.word("u", 4)
        host.calls_tools(1)
        host.answers(1, 20)
        host.calls_tools(1)
        host.answers(1, 20)
    host.manual()
    host.manager.update(layout=layout, keep_tool_io_pairs=9, clear_tool_outputs={"keep": 1})
    for size in (120, 120, 20):
        host.calls_tools(1)
        host.answers(1, size)
    host.word("u", 4)
    host.manual()
    assert ([], 2, []) == (host.wrong, host.folds, host.bench.recorder["error"])
    assert sum("<COMPACT-SUMMARY v" in str(item) for item in host.sent) > 1


class CutOff(Shelf):
    """A store whose reader is interrupted at its second read."""

    reads = 0

    def get(self, key: str) -> bytes:
        self.reads += 1
        if self.reads == 2:
            raise KeyboardInterrupt
        return super().get(key)


@pytest.mark.spec("T06", "L28")
def test_a_session_that_was_interrupted_while_it_was_read_back_is_read_back_once() -> None:
    """Ctrl-C between two records: the next call knows each fold once."""
    shelf, messages = CutOff(), chat("suauauaua")

    def manager() -> CompactManager:
        return CompactManager(CompactConfig(counter="chars"), store=shelf, summarizer=ScriptedModel("short"))

    with manager() as first:
        for number in range(3):
            messages = [*messages, *chat("ua" * 9, first=100 * number)]
            messages = list(first.manual_compact("s", messages))
    shelf.reads = 0
    with manager() as second:
        with pytest.raises(KeyboardInterrupt):
            second.preflight("s", messages)
        second.preflight("s", messages)
        assert [1, 2, 3] == [fold.step for fold in second.session("s").folds]


# -- a host with a mind of its own -----------------------------------------------------------------------------------


class Conversation(RuleBasedStateMachine):
    """A host that says, calls, answers, folds and changes its mind in any order."""

    host: Host

    @initialize(
        dialect=st.sampled_from(DIALECTS),
        layout=st.sampled_from(LAYOUTS),
        kind=st.sampled_from(HOSTS),
        goal=st.sampled_from((0.3, 0.7)),
    )
    def begin(self, dialect: str, layout: str, kind: str, goal: float) -> None:
        self.host = Bench(layout, dialect, target_pct=goal).host(kind)
        self.host.says(self.host.writer.said("s", "be good"))
        self.host.word("u", 3)

    @rule(letter=st.sampled_from("uuaaap"), size=st.sampled_from((2, 20, 60)), plain=st.booleans())
    def say(self, letter: str, size: int, plain: bool) -> None:
        self.host.word(letter, size, plain=plain)

    @rule(letter=st.sampled_from("ua"))
    def forge_a_summary(self, letter: str) -> None:
        self.host.word(letter, 1, forged=True)

    @rule(
        count=st.integers(1, 4),
        steps=st.integers(1, 5),
        reuse=st.booleans(),
        thinks=st.booleans(),
        size=st.sampled_from((2, 20, 60)),
    )
    def call_tools(self, count: int, steps: int, reuse: bool, thinks: bool, size: int) -> None:
        for _ in range(steps):
            self.host.calls_tools(count, reuse=reuse, thinks=thinks)
            self.host.answers(count, size)

    @rule(count=st.integers(1, 4))
    def call_and_wait(self, count: int) -> None:
        self.host.calls_tools(count)

    @precondition(lambda self: self.host.open)
    @rule(joined=st.booleans(), words=st.sampled_from(("", "go on")))
    def answer(self, joined: bool, words: str) -> None:
        self.host.answers(len(self.host.open), 10, joined=joined, words=words)

    @precondition(lambda self: self.host.lost)
    @rule(at=st.integers(0, 9))
    def answer_late(self, at: int) -> None:
        self.host.answers_late(at)

    @rule()
    def answer_nothing(self) -> None:
        self.host.answers_nothing()

    @rule()
    def preflight(self) -> None:
        self.host.preflight()
        self.judge()

    @rule()
    def fold_by_hand(self) -> None:
        self.host.manual()
        self.judge()

    @rule(
        change=st.sampled_from(
            [
                {"retention_window": 1},
                {"retention_window": 9},
                {"keep_recent_turns": 1, "keep_tool_io_pairs": 1},
                {"keep_recent_turns": 6, "keep_tool_io_pairs": 4},
                {"window_rounds": 1},
                {"message_threshold": 5},
                {"message_threshold": None},
                {"turn_threshold": 2},
                {"token_threshold": 200},
            ]
        )
    )
    def change_its_mind(self, change: dict[str, Any]) -> None:
        self.host.manager.update(**change)

    def judge(self) -> None:
        """Everything that must hold; a session that is full of pins is given up for a new one."""
        assert [] == self.host.wrong
        if self.host.full:
            self.host = self.host.bench.host(self.host.kind)
            self.host.word("u", 3)


Conversation.TestCase.settings = settings(stateful_step_count=volume(40, 60))


@pytest.mark.spec("T22", "T24", "L22", "L23", "L29", "L32", "S38")
@pytest.mark.untraced
class TestConversation(Conversation.TestCase):  # type: ignore[valid-type,misc]
    """No order of steps breaks a rule."""
