"""The engine from outside: what goes in, what comes out, what is said about it, and what is on the disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compact import (
    CompactConfig,
    CompactManager,
    Fold,
    History,
    InsufficientBudget,
    Plan,
    Policy,
    compact_messages,
)
from compact._conversation.tables import encoding
from compact.errors import ArchiveError, BadSummary, CompactError, LawViolation, ModelUnavailable, SummaryError
from compact.testing import Recorder, ScriptedModel, chat, shape, transcripts

MARKER = "<COMPACT-SUMMARY v"
NO_STORE = {"adapter": "none"}

Messages = list[dict[str, Any]]


# -- helpers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bench:
    """A manager with a scripted model and a recorder beside it."""

    manager: CompactManager
    model: ScriptedModel
    recorder: Recorder

    def data(self, name: str) -> list[dict[str, Any]]:
        return [dict(event.data) for event in self.recorder[name]]


def bench(
    window: int = 4_000,
    *,
    model: ScriptedModel | None = None,
    config: dict[str, Any] | None = None,
    manager: dict[str, Any] | None = None,
    **policy: Any,
) -> Bench:
    """A manager with a small window, nothing stored, and this policy."""
    model, recorder = model or ScriptedModel("what mattered so far"), Recorder()
    settings = {"storage": NO_STORE, **(config or {})}
    settings["summary"] = {"min_score": 0, **settings.get("summary", {})}  # what a script says goes in as it stands
    made = CompactConfig(max_context_tokens=window, policy={"hard_cap_buffer": 100, **policy}, **settings)
    return Bench(CompactManager(made, summarizer=model, sinks=[recorder], **(manager or {})), model, recorder)


def counted(messages: Iterable[dict[str, Any]], table: str = "o200k_base") -> int:
    """Tokens of a chat request by the published rules, counted here and not by the library."""
    return 3 + sum(weight(message, table) for message in messages)


def weight(message: dict[str, Any], table: str = "o200k_base") -> int:
    """Tokens of one chat message."""

    def count(text: str | None) -> int:
        return len(encoding(table).encode_ordinary(text or ""))

    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return (
        3
        + count(message["role"])
        + count(message.get("content"))
        + sum(3 + count(call["name"]) + count(call["arguments"]) for call in calls)
    )


def filled(messages: Messages, total: int) -> Messages:
    """The same conversation with its last user message padded so that the request has exactly `total` tokens."""
    at = max(i for i, message in enumerate(messages) if message["role"] == "user")
    padding = " word" * (total - counted(messages))
    filled = [*messages[:at], {**messages[at], "content": messages[at]["content"] + padding}, *messages[at + 1 :]]
    assert total == counted(filled)
    return filled


def same_objects(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether both hold the very same objects in the same order."""
    return [id(one) for one in some] == [id(other) for other in others]


def summaries(messages: Iterable[dict[str, Any]]) -> list[str]:
    """The texts of all summaries in a list."""
    return [m["content"] for m in messages if str(m.get("content")).startswith(MARKER)]


def is_pinned(message: dict[str, Any]) -> bool:
    """Whether the default policy pins this message."""
    return message["role"] in ("system", "developer") or message.get("meta", {}).get("protected", False)


def text_of(messages: Iterable[Any]) -> str:
    """Everything that a list says, as one text."""
    return json.dumps(list(messages), ensure_ascii=False)


class FailingStore:
    """A store that acknowledges nothing."""

    def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
        raise ArchiveError("the disk is full; free some space")

    def append(self, key: str, lines: Iterable[bytes]) -> None:
        raise ArchiveError("the disk is full; free some space")

    def get(self, key: str) -> bytes:
        raise ArchiveError("nothing here")

    def list(self, prefix: str) -> list[str]:
        return []


# -- counting and triggering -------------------------------------------------------------------------------------------


@pytest.mark.spec("S01")
@pytest.mark.parametrize(("name", "table", "opening"), [("gpt-4o", "o200k_base", 7), ("gpt-4", "cl100k_base", 10)])
def test_the_breakdown_equals_an_independent_count(name: str, table: str, opening: int) -> None:
    """System, developer, tools and messages are each what the published rules give with the model's own table."""
    box = bench(1_000_000, config={"model": name})
    messages = chat("sd" + "utra" * 5 + "ua" * 5)
    tool = {"type": "function", "function": {"name": "look", "description": "Looks at one file"}}
    box.manager.preflight("s", messages, tools=[tool])
    expected = {
        "system": weight(messages[0], table),
        "developer": weight(messages[1], table),
        "tools_schema": opening + len(encoding(table).encode_ordinary("look:Looks at one file")) + 12,
        "messages": counted(messages[2:], table),
    }
    assert {"user": 10, "assistant": 15, "tool": 5} == {
        role: sum(m["role"] == role for m in messages) for role in ("user", "assistant", "tool")
    }
    assert expected == box.data("token_estimate")[0]["breakdown"]
    assert sum(expected.values()) == box.data("token_estimate")[0]["t_est"]


@pytest.mark.spec("S02")
def test_a_fold_respects_the_budget_of_126500() -> None:
    """With a buffer of 1,500 the line is at 126,500 even where the trigger would be the whole window."""
    box = bench(128_000, hard_cap_buffer=1_500, trigger_pct=1.0)
    messages = chat("s" + "ua" * 20, words=200)
    below = filled(messages, 126_499)
    assert below is box.manager.preflight("below", below)
    out = box.manager.preflight("at", filled(messages, 126_500))
    assert 1 == len(summaries(out))
    assert counted(out) <= 126_500


@pytest.mark.spec("S03")
def test_exactly_85_percent_of_the_window_triggers() -> None:
    """108,800 of 128,000 folds before the next model call, and the event says so."""
    box = bench(128_000, hard_cap_buffer=1_500)
    out = box.manager.preflight("s", filled(chat("s" + "ua" * 20, words=2_000), 108_800))
    (decision,) = box.data("trigger_decision")
    assert 1 == len(summaries(out))
    assert (True, "trigger_pct") == (decision["triggered"], decision["reason"])


@pytest.mark.spec("S03", "S04")
@pytest.mark.parametrize("total", [96_000, 107_525, 108_799])
def test_below_85_percent_of_the_window_nothing_happens(total: int) -> None:
    """96,000 does not trigger, nor 85 % of the budget, nor one token below the line; the very list comes back."""
    box = bench(128_000, hard_cap_buffer=1_500)
    messages = filled(chat("s" + "ua" * 20, words=2_000), total)
    assert messages is box.manager.preflight("s", messages)
    assert [False] == [decision["triggered"] for decision in box.data("trigger_decision")]
    assert ["token_estimate", "trigger_decision"] == box.recorder.names


@pytest.mark.spec("S03")
@pytest.mark.parametrize("share", [0.07, 0.14, 0.28, 0.29, 0.55, 0.56, 0.57, 0.58])
def test_the_trigger_is_the_decimal_share(share: float) -> None:
    """A share that binary fractions cannot hold still fires at its own line, not one token later."""
    box = bench(10_000, trigger_pct=share)
    line = round(share * 10_000)
    messages = chat("s" + "ua" * 4)
    assert not box.manager.should_compact("below", filled(messages, line - 1))
    assert box.manager.should_compact("at", filled(messages, line))


@pytest.mark.spec("S17", "S18")
def test_each_preflight_estimates_and_decides_once() -> None:
    """Both events come once per preflight, in this order, with their fields, whether or not a fold is due."""
    box = bench(2_000, keep_recent_turns=2)
    small, large = chat("s" + "ua" * 3), chat("s" + "ua" * 20)
    box.manager.preflight("a", small)
    box.manager.preflight("b", large)
    assert [counted(small), counted(large)] == [event["t_est"] for event in box.data("token_estimate")]
    assert {
        "model": "gpt-4o",
        "t_est": counted(small),
        "max_tokens": 2_000,
        "usage_pct": round(counted(small) / 2_000, 4),
        "breakdown": {
            "system": weight(small[0]),
            "developer": 0,
            "tools_schema": 0,
            "messages": counted(small[1:]),
        },
    } == box.data("token_estimate")[0]
    waiting, folding = box.data("trigger_decision")
    policy = {"trigger_pct": 0.85, "hard_cap_buffer": 100, "strategy": "task_state", "layout": "layered"}
    assert (policy, policy) == (waiting["policy"], folding["policy"])
    assert (False, True) == (waiting["triggered"], folding["triggered"])
    assert {"pinned": 1, "recent_turns": 2, "tool_pairs": 0} == folding["kept"]
    assert 36 == folding["pruned_count"]
    names = box.recorder.names
    assert names.index("trigger_decision", 2) < names.index("summary_created") < names.index("pruned_messages")


@pytest.mark.spec("S18")
@pytest.mark.parametrize(
    ("window", "policy", "error"),
    [
        (400, {"roles_never_prune": ["system", "user", "assistant"]}, InsufficientBudget),
        (1_000, {"on_failure": "raise"}, ModelUnavailable),
    ],
)
def test_a_failed_preflight_also_decides_once(window: int, policy: dict[str, Any], error: type[CompactError]) -> None:
    """One decision per preflight holds when the preflight ends in an error."""
    model = ScriptedModel(ModelUnavailable("down"))
    box = bench(window, model=model, config={"summary": {"max_retries": 0}}, **policy)
    with pytest.raises(error):
        box.manager.preflight("s", chat("s" + "ua" * 20))
    assert 1 == len(box.recorder["trigger_decision"])


@pytest.mark.spec("A1")
@pytest.mark.parametrize(
    ("policy", "pattern", "reasons"),
    [
        ({"token_threshold": 100}, "sua", ("token_threshold",)),
        ({"message_threshold": 4}, "sua", ()),
        ({"message_threshold": 3}, "sua", ("message_threshold",)),
        ({"turn_threshold": 2}, "suaa", ()),
        ({"turn_threshold": 2}, "suaua", ("turn_threshold",)),
        ({"layout": "rolling", "window_rounds": 2}, "suauaua", ("window_rounds",)),
        ({"message_threshold": 2, "turn_threshold": 1, "trigger_pct": 0.0001}, "sua", 3),
    ],
)
def test_any_threshold_is_enough_and_each_is_named(policy: dict[str, Any], pattern: str, reasons: Any) -> None:
    """`should_compact` names every threshold that is reached, and leaves no event behind."""
    box = bench(100_000, **policy)
    decision = box.manager.should_compact("s", chat(pattern))
    assert reasons in (decision.reasons, len(decision.reasons))
    assert bool(decision.reasons) == bool(decision)
    assert [] == box.recorder.events


# -- what stays --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("S05")
def test_a_manual_fold_needs_no_threshold_and_leaves_its_note() -> None:
    """At 1 % of the window `manual_compact` folds, returns the messages, and the note is in the trace and archive."""
    box = bench(128_000, config={"storage": {"adapter": "fs"}}, keep_recent_turns=1)
    messages = chat("s" + "ua" * 5)
    out = box.manager.manual_compact("s", messages, note="before the release")
    assert ["system", "assistant", "user", "assistant"] == [message["role"] for message in out]
    (decision,), (pruned,) = box.data("trigger_decision"), box.data("pruned_messages")
    assert (True, "manual") == (decision["triggered"], decision["reason"])
    assert ["before the release"] * 2 == [decision["note"], pruned["note"]]
    assert "before the release" == box.manager.session("s").folds[0].note
    assert "before the release" in Path(".compact/archive/s/events.jsonl").read_text()


@pytest.mark.spec("S05")
def test_a_manual_fold_may_be_asked_for_again_after_a_failure() -> None:
    """Whoever asks again, once the summarizer is back, gets the fold."""
    model = ScriptedModel(ModelUnavailable("down"), "back again")
    box = bench(model=model, config={"summary": {"max_retries": 0}}, keep_recent_turns=1, on_failure="raise")
    messages = chat("s" + "ua" * 5)
    with pytest.raises(ModelUnavailable):
        box.manager.manual_compact("s", messages)
    assert 1 == len(summaries(box.manager.manual_compact("s", messages)))


@pytest.mark.spec("S09")
def test_a_protected_message_leaves_as_it_came_and_is_never_summarized() -> None:
    """The very object comes out, unchanged, and no summarizer sees a word of it, over several folds."""
    box = bench(keep_recent_turns=1)
    messages = chat("suapauaua")
    messages[3]["content"] = "PROTECTED " + messages[3]["content"]
    before = json.loads(json.dumps(messages))
    out = messages
    for n in range(3):
        out = box.manager.manual_compact("s", [*out, *chat("ua", first=20 + 2 * n)])
        assert 1 == sum(message is messages[3] for message in out)
    assert before == messages
    assert 3 == len(box.model.asks)
    assert not [ask for ask in box.model.asks if "PROTECTED" in text_of(ask.messages)]
    assert not [m for ask in box.model.asks for m in ask.source if m.raw is messages[3]]


@pytest.mark.spec("S09")
def test_a_pin_is_kept_from_the_summarizer_even_when_before_fold_would_fold_it() -> None:
    """A plan that folds a pin is refused before anything is sent to the summarizer."""

    def everything(plan: Plan) -> Plan:
        return Plan((Fold(tuple(range(plan.size - 2))), plan.size - 2, plan.size - 1), plan.size)

    box = bench(manager={"before_fold": everything}, keep_recent_turns=1)
    messages = chat("suapauaua")
    assert messages == box.manager.manual_compact("s", messages)
    assert [] == box.model.asks


@pytest.mark.spec("S10")
@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_a_role_never_pruned_stays(role: str) -> None:
    """Every message of such a role leaves as the object it was and is in no summarizer's input."""
    box = bench(keep_recent_turns=1, keep_tool_io_pairs=1, roles_never_prune=[role])
    messages = chat("sduautrautraua")
    out = box.manager.manual_compact("s", messages)
    pinned = [message for message in messages if message["role"] == role]
    assert 1 == len(summaries(out))
    assert same_objects(pinned, [message for message in out if message in pinned])
    assert not [m for ask in box.model.asks for m in ask.source if m.role == role]


@pytest.mark.spec("S10")
def test_protect_pins_what_the_host_says() -> None:
    """`protect` is asked about each host message; what it names is pinned."""
    box = bench(manager={"protect": lambda message: "(a4)" in message["content"]}, keep_recent_turns=1)
    messages = chat("suauauaua")
    out = box.manager.manual_compact("s", messages)
    assert same_objects([messages[0], messages[4]], out[:2])
    assert not [ask for ask in box.model.asks if "(a4)" in text_of(ask.messages)]


def test_two_earlier_summaries_are_carried_on_line_by_line() -> None:
    """A layout that leaves one summary takes over from one that left two."""
    box = bench(128_000, layout="in_place", keep_recent_turns=1, retention_window=2)
    out = box.manager.manual_compact("s", chat("suaauaaua"))
    assert 2 == len(summaries(out))
    box.manager.update(layout="layered", keep_recent_turns=1)
    box.manager.manual_compact("s", [*out, *chat("ua")])
    assert "what mattered so far\nwhat mattered so far" == box.model.asks[-1].previous


def test_half_a_surrogate_folds_and_is_recognised_like_any_text() -> None:
    """A host that passes its whole history pays once, whatever is in it."""
    box = bench(keep_recent_turns=1)
    messages = [{"role": m["role"], "content": f"\ud800 {m['content']}"} for m in chat("s" + "ua" * 30, words=60)]
    first = box.manager.preflight("s", messages)
    assert len(first) < len(messages)
    assert first == box.manager.preflight("s", json.loads(json.dumps(messages)))
    assert 1 == len(box.model.asks)


@pytest.mark.parametrize(("layout", "start"), [("in_place", 2), ("layered", 1)])
def test_a_fold_in_place_is_recorded_from_its_first_message(layout: str, start: int) -> None:
    """One that leaves a single summary at the front begins where the list does."""
    box = bench(128_000, layout=layout, keep_recent_turns=1, retention_window=2)
    box.manager.manual_compact("s", chat("suaaaaua"))
    (fold,) = box.manager.session("s").folds
    assert start == fold.range[0]


def test_what_a_providers_rules_add_after_a_fold_is_told() -> None:
    """Without a summary the pinned answer would come first, and Anthropic wants a user there."""
    seen, asleep = Recorder(), ScriptedModel(ModelUnavailable("asleep", retryable=False))
    config = CompactConfig(max_context_tokens=3_000, storage={"adapter": "none"}, policy={"keep_recent_turns": 1})
    pins: dict[str, Any] = {"protect": lambda message: "(a3)" in message["content"], "dialect": "anthropic"}
    with CompactManager(config, summarizer=asleep, sinks=[seen], **pins) as manager:
        out = manager.manual_compact("s", chat("uauauauaua"))
    assert ["user", "assistant", "user", "assistant"] == [message["role"] for message in out]
    told = [event.data["message"] for event in seen["warning"] if event.data["code"] == "repaired_history"]
    assert ["The list did not start with a user message, so one was added."] == told


@pytest.mark.spec("S11", "S20")
def test_pins_alone_over_budget_raise_with_the_sum() -> None:
    """The error says by how much, and what to reduce or raise; the event says the same and that nothing was done."""
    box = bench(1_000)
    messages = chat("s" + "pa" * 30)
    with pytest.raises(InsufficientBudget) as caught:
        box.manager.preflight("s", messages)
    error = caught.value
    assert isinstance(error, CompactError)
    assert 900 == error.budget
    assert error.needed >= counted(message for message in messages if is_pinned(message))
    assert f"{error.needed - error.budget:,} over the budget of 900" in str(error)
    assert ("protect fewer", "raise max_context_tokens") == tuple(
        words for words in ("protect fewer", "raise max_context_tokens") if words in str(error)
    )
    (event,) = box.recorder["error"]
    assert "error" == event.status
    assert {"error_type": "InsufficientBudget", "message": str(error), "fallback": "none"} == event.data
    assert [] == box.model.asks


@pytest.mark.spec("S12")
def test_six_of_twenty_turns_stay() -> None:
    """The last 6 pairs are the objects that came in; the other 14 are what the summarizer was given."""
    box = bench()
    messages = chat("ua" * 20)
    out = box.manager.manual_compact("s", messages)
    assert same_objects(messages[-12:], out[1:])
    (ask,) = box.model.asks
    assert same_objects(messages[:28], [message.raw for message in ask.source])


@pytest.mark.spec("S13")
@pytest.mark.parametrize("pairs", [10, 12])
def test_four_tool_pairs_stay_also_inside_one_turn(pairs: int) -> None:
    """An agent with one user message and many steps keeps its message, its answer and the newest 4 pairs."""
    box = bench()
    messages = chat("u" + "tr" * pairs + "a")
    out = box.manager.manual_compact("s", messages)
    assert same_objects([messages[0], *messages[-9:]], out[1:])
    assert 2 * (pairs - 4) == len(box.model.asks[0].source)


@pytest.mark.spec("S13")
def test_tool_pairs_stay_by_their_own_number_outside_recent_turns() -> None:
    """Pairs of turns that fold stay when they are among the newest 4."""
    messages = chat("utra" * 10)
    out = bench(keep_recent_turns=2).manager.manual_compact("s", messages)
    kept = [*messages[25:27], *messages[29:31], *messages[32:]]
    assert same_objects(kept, out[1:])


# -- S14: how keeps give way -------------------------------------------------------------------------------------------


def keeps(plan: Plan, messages: Messages) -> tuple[int, int]:
    """How many users' messages and tool pairs a plan keeps."""
    kept = [messages[i] for i in plan.kept]
    return sum(m["role"] == "user" for m in kept), sum(m["role"] == "tool" for m in kept)


@pytest.mark.slow
@pytest.mark.spec("S14")
@pytest.mark.untraced
def test_keeps_give_way_in_turn_down_to_the_floor() -> None:
    """As the window shrinks: a turn less, a pair less, in turn, to (1, 1), to the floor, and then the error."""
    messages = chat("s" + "utra" * 8)
    seen: list[Any] = []
    for window in range(counted(messages) + 10, 100, -1):
        manager = bench(window, hard_cap_buffer=0, trigger_pct=1.0, config={"summary": {"max_tokens": 64}}).manager
        try:
            seen.append(keeps(manager.plan("s", messages), messages))
        except InsufficientBudget:
            seen.append("error")
    order = [seen[0], *(after for before, after in pairwise(seen) if before != after)]
    assert [(6, 4), (5, 4), (5, 3), (4, 3), (4, 2), (3, 2), (3, 1), (2, 1), (1, 1), (1, 0), "error"] == order


@pytest.mark.spec("S14")
@pytest.mark.parametrize(
    ("pattern", "floor"),
    [
        ("suautrtrtr", "s[uatrtr]utr"),
        ("suauaua", "s[uaua]ua"),
        ("suauuu", "s[uauu]u"),
        ("suaua" + "tr" * 6 + "a", "s[uaatrtrtrtrtrtr]ua"),
    ],
)
def test_the_floor_is_the_newest_user_message_and_the_newest_block(pattern: str, floor: str) -> None:
    """In the smallest window that does not raise, only these two and the pins are left."""
    messages = chat(pattern, words=60)
    plans = []
    for window in range(1_000, 100, -5):
        manager = bench(window, hard_cap_buffer=0, trigger_pct=1.0, oversized="raise").manager
        try:
            plans.append(shape(manager.plan("s", messages), messages))
        except InsufficientBudget:
            break
    assert floor == plans[-1]


@pytest.mark.spec("S14")
def test_the_pressure_of_one_call_is_gone_in_the_next() -> None:
    """After a call that kept one turn, the next call and another session keep what the policy says."""
    box = bench(20_000)
    messages = chat("s" + "ua" * 30)
    pressed = box.manager.preflight("s", messages, max_context_tokens=700)
    assert sum(message["role"] == "user" for message in pressed) < 6
    assert 6 == box.manager.config.policy.keep_recent_turns
    grown = [*pressed, *chat("ua" * 10, first=100)]
    for session, conversation in (("s", grown), ("other", messages)):
        out = box.manager.manual_compact(session, conversation)
        assert 6 == sum(message["role"] == "user" for message in out)


@pytest.mark.spec("S14")
def test_nothing_fits_below_the_floor() -> None:
    """A newest user message that is larger than the budget raises, with the numbers, and asks no summarizer."""
    box = bench(500)
    messages = [*chat("s" + "ua" * 5), *chat("u", words=800, first=50)]
    with pytest.raises(InsufficientBudget) as caught:
        box.manager.preflight("s", messages)
    assert caught.value.needed > caught.value.budget == 400
    assert [] == box.model.asks


# -- what comes out ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("S15")
def test_layered_output_is_pinned_summary_recent() -> None:
    """Pins first, one assistant message with the marker, then recent turns and pairs in time order, and the counts."""
    box = bench(keep_recent_turns=2, keep_tool_io_pairs=1)
    messages = chat("sdutrapautrauaua")
    out = box.manager.manual_compact("s", messages)
    recent = [*messages[9:11], *messages[12:]]
    assert same_objects([*messages[:2], messages[6], *recent], [*out[:3], *out[4:]])
    assert ("assistant", "<COMPACT-SUMMARY v1>\nwhat mattered so far\n</COMPACT-SUMMARY>") == (
        out[3]["role"],
        out[3]["content"],
    )
    (pruned,) = box.data("pruned_messages")
    assert {"pinned": 3, "summary": 1, "recent_turns": 2, "tool_pairs": 1} == pruned["kept"]
    assert (16, 10, 7) == (pruned["messages_before"], pruned["messages_after"], pruned["folded"])
    assert (counted(messages), counted(out)) == (pruned["tokens_before"], pruned["tokens_after"])


@pytest.mark.spec("S16")
def test_each_fold_takes_the_last_summary_in() -> None:
    """Fold after fold: one summary, one version more, and the last one's words are in the next request."""
    answers = [f"goal: ship g-{n}" for n in range(1, 6)]
    box = bench(model=ScriptedModel(*answers), keep_recent_turns=1)
    out: Messages = chat("suaua")
    for n, answer in enumerate(answers, start=1):
        out = box.manager.manual_compact("s", [*out, *chat("uaua", first=10 * n)])
        assert [f"<COMPACT-SUMMARY v{n}>\n{answer}\n</COMPACT-SUMMARY>"] == summaries(out)
        assert (n, n) == (box.manager.session("s").step, box.manager.session("s").version)
    assert [None, *answers[:-1]] == [ask.previous for ask in box.model.asks]
    assert ["create", *["merge"] * 4] == [ask.kind for ask in box.model.asks]


@pytest.mark.spec("S16")
def test_facts_of_the_first_turn_survive_several_offline_folds() -> None:
    """With the built-in summarizer an id, a path and a decision are still there after four folds."""
    recorder = Recorder()
    config = CompactConfig(max_context_tokens=4_000, storage=NO_STORE, policy={"keep_recent_turns": 1})
    manager = CompactManager(config, sinks=[recorder])
    out: Messages = [
        {"role": "user", "content": "Goal g-7f3a: move the importer in src/ledger/importer.py to streaming."},
        {"role": "assistant", "content": "Decision: we use PostgreSQL 16 because COPY is fast enough."},
    ]
    for n in range(4):
        out = manager.manual_compact("s", [*out, *chat("uaua", first=10 * n)])
    (summary,) = summaries(out)
    assert summary.startswith("<COMPACT-SUMMARY v4>")
    assert [] == [fact for fact in ("g-7f3a", "src/ledger/importer.py", "PostgreSQL 16") if fact not in summary]


@pytest.mark.spec("S19")
def test_the_summary_is_in_its_event() -> None:
    """`summary_created` has strategy, inputs, size, ratio, duration, and the summary itself."""
    box = bench(keep_recent_turns=1, strategy="decision_log")
    messages = chat("s" + "ua" * 5)
    box.manager.manual_compact("s", messages)
    (event,) = box.recorder["summary_created"]
    tokens = len(encoding("o200k_base").encode_ordinary("what mattered so far"))
    replaced = sum(weight(message) for message in messages[1:9])
    assert ("decision_log", 8, tokens, "what mattered so far") == tuple(
        event.data[field] for field in ("strategy", "input_messages", "summary_tokens", "summary")
    )
    assert abs(event.data["compression_ratio"] - (1 - tokens / replaced)) < 0.01
    assert event.duration >= 0


@pytest.mark.spec("S20")
def test_a_failing_summarizer_is_an_error_event_with_its_fallback() -> None:
    """The fold completes without a summary, and the event names the error and the fallback."""
    model = ScriptedModel(ModelUnavailable("the model is down"))
    box = bench(model=model, config={"summary": {"max_retries": 0}}, keep_recent_turns=1)
    messages = chat("s" + "ua" * 5)
    assert same_objects([messages[0], *messages[9:]], box.manager.manual_compact("s", messages))
    (event,) = box.recorder["error"]
    assert "error" == event.status
    assert ("ModelUnavailable", "the model is down", "pruning-only") == tuple(
        event.data[field] for field in ("error_type", "message", "fallback")
    )


@pytest.mark.spec("S20")
@pytest.mark.parametrize("bad", [0, 1, 2])
def test_one_run_of_several_may_fail(bad: int) -> None:
    """Of three runs in place one gets no summary: it is pruned, the others have theirs, and one error is told."""
    script = [ModelUnavailable("down") if n == bad else "notes" for n in range(3)]
    config = {"summary": {"max_retries": 0}}
    box = bench(model=ScriptedModel(*script), config=config, layout="in_place", retention_window=1)
    messages = chat("sutrutrutrua")
    out = box.manager.manual_compact("s", messages)
    assert 2 == len(summaries(out))
    users = [message for message in messages if message["role"] == "user"]
    assert same_objects(users, [message for message in out if message["role"] == "user"])
    assert ["pruning-only"] == [error["fallback"] for error in box.data("error")]


@pytest.mark.spec("S20")
def test_a_failing_store_stops_the_fold() -> None:
    """Nothing is dropped and no summarizer is asked; over budget the error reaches the caller."""
    box = bench(3_000, manager={"store": FailingStore()}, keep_recent_turns=1)
    due, over = chat("s" + "ua" * 26), chat("s" + "ua" * 40)
    assert 2_550 <= counted(due) <= 2_900 < counted(over)
    assert due is box.manager.preflight("due", due)
    with pytest.raises(ArchiveError):
        box.manager.preflight("over", over)
    assert [("error", "ArchiveError", "unchanged")] * 2 == [
        (event.status, event.data["error_type"], event.data["fallback"]) for event in box.recorder["error"]
    ]
    assert [] == box.model.asks


@pytest.mark.parametrize("layout", ["layered", "in_place", "rolling"])
@pytest.mark.parametrize("pattern", ["saaaaaaaa", "sd" + "tr" * 12, "aaaaaaaaaaaa", "trtrtrtrtr" * 2])
def test_a_conversation_without_a_user_is_judged_like_any_other(layout: str, pattern: str) -> None:
    """No message of a user is no reason to fail: it folds, stays, or raises our own error."""
    box = bench(500, layout=layout, hard_cap_buffer=10)
    messages = chat(pattern)
    try:
        out = box.manager.preflight("s", messages)
    except InsufficientBudget:
        return
    assert counted(out) <= 490


# -- hosts -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("S29")
def test_a_plain_hook_sends_what_preflight_gave_back() -> None:
    """Any object with `session_id` and `messages` will do, and the model receives the compacted list."""
    manager = bench(1_000, keep_recent_turns=2).manager
    received: list[Messages] = []

    class Hook:
        def before_model_call(self, ctx: Any) -> None:
            ctx.messages = manager.preflight(ctx.session_id, ctx.messages)

    def run(ctx: Any, hook: Hook) -> None:
        hook.before_model_call(ctx)
        received.append(ctx.messages)

    ctx = SimpleNamespace(session_id="s", messages=chat("s"))
    for n in range(20):
        ctx.messages = [*ctx.messages, *chat("ua", first=1 + 2 * n)]
        run(ctx, Hook())
    assert 20 == len(received)
    assert max(map(counted, received)) <= 900
    assert 1 == len(summaries(received[-1]))
    assert ctx.messages is received[-1]


SNIPPET = """
from compact import CompactConfig, CompactManager

manager = CompactManager(CompactConfig(model="gpt-4o"))

def before_model_call(ctx):
    ctx.messages = manager.preflight(ctx.session_id, ctx.messages)
"""


@pytest.mark.spec("S30")
def test_enabling_it_takes_fewer_than_ten_lines() -> None:
    """The snippet that enables compaction has fewer than 10 lines, runs, and compacts."""
    assert len(SNIPPET.strip().splitlines()) < 10
    names: dict[str, Any] = {}
    exec(SNIPPET, names)
    ctx = SimpleNamespace(session_id="s", messages=chat("s" + "ua" * 30, words=2_000))
    assert counted(ctx.messages) > 108_800
    names["before_model_call"](ctx)
    assert counted(ctx.messages) < 108_800
    assert 1 == len(summaries(ctx.messages))


def test_a_smaller_model_folds_before_it_is_called() -> None:
    """The window of the model of this call decides, for this call alone."""
    box = bench(128_000, hard_cap_buffer=1_500)
    messages = filled(chat("s" + "ua" * 20, words=200), 9_000)
    assert messages is box.manager.preflight("s", messages)
    out = box.manager.preflight("s", messages, model="gpt-4")
    assert counted(out, "cl100k_base") <= 8_192 - 1_500
    assert ("gpt-4", 8_192) == (box.data("token_estimate")[1]["model"], box.data("token_estimate")[1]["max_tokens"])
    box.manager.preflight("t", messages)
    assert 128_000 == box.data("token_estimate")[2]["max_tokens"]


def test_naming_the_configured_model_changes_nothing() -> None:
    """A host that always names its model still gets the window it configured."""
    box = bench(1_000, config={"model": "gpt-4o"})
    box.manager.preflight("s", chat("sua"), model="gpt-4o")
    assert 1_000 == box.data("token_estimate")[0]["max_tokens"]


def test_a_window_or_an_output_of_this_call_moves_its_line() -> None:
    """`max_context_tokens` and `reserve_output` fold a list that the configuration would let pass."""
    box = bench(4_000)
    messages = chat("s" + "ua" * 20)
    assert messages is box.manager.preflight("a", messages)
    assert counted(box.manager.preflight("b", messages, max_context_tokens=1_200)) <= 1_100
    assert counted(box.manager.preflight("c", messages, reserve_output=2_500)) <= 1_400


@pytest.mark.parametrize(
    "report",
    [
        lambda n: n,
        lambda n: {"prompt_tokens": n, "completion_tokens": 5},
        lambda n: {"input_tokens": n - 30, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 10},
        lambda n: SimpleNamespace(input_tokens=n, input_tokens_details=SimpleNamespace(cached_tokens=7)),
        lambda n: SimpleNamespace(usage=SimpleNamespace(prompt_tokens=n)),
    ],
)
def test_a_doubled_report_makes_the_fold_come_earlier(report: Callable[[int], Any]) -> None:
    """What the provider counted, in any of its forms, calibrates this session's meter and no other's."""
    box = bench(4_000)
    messages = chat("s" + "ua" * 20)
    assert messages is box.manager.preflight("s", messages)
    box.manager.observe("s", report(2 * counted(messages)))
    decision = box.manager.should_compact("s", messages)
    assert (True, 2 * counted(messages)) == (bool(decision), decision.usage.total)
    out = box.manager.preflight("s", messages)
    assert 1 == len(summaries(out))
    assert 2 * counted(out) <= 3_900
    assert messages is box.manager.preflight("other", messages)


# -- properties --------------------------------------------------------------------------------------------------------

policies = st.fixed_dictionaries(
    {
        "layout": st.sampled_from(["layered", "in_place", "rolling"]),
        "trigger_pct": st.sampled_from([0.3, 0.85, 1.0]),
        "keep_recent_turns": st.integers(1, 6),
        "keep_tool_io_pairs": st.integers(1, 4),
        "retention_window": st.integers(1, 6),
        "window_rounds": st.integers(1, 6),
        "hard_cap_buffer": st.sampled_from([0, 10, 100]),
        "clear_tool_outputs": st.sampled_from([None, {"keep": 1}]),
    }
)
shares = st.integers(10, 130)
"""How much of the conversation fits, in percent."""
answers = st.sampled_from(["notes", "what mattered " * 20, ModelUnavailable("down"), ""])


@pytest.mark.spec("S38")
@given(transcripts(max_steps=40), shares, policies, answers)
def test_protected_stays_and_usage_ends_within_the_budget(
    messages: Messages, share: int, policy: dict[str, Any], answer: Any
) -> None:
    """For any conversation, window, policy and summarizer: every pin is kept, the budget holds, or it is said why."""
    budget = 100 + counted(messages) * share // 100
    window = budget + policy["hard_cap_buffer"]
    box = bench(window, model=ScriptedModel(answer), config={"summary": {"max_retries": 0}}, **policy)
    before = json.loads(json.dumps(messages))
    try:
        out = box.manager.preflight("s", messages)
    except InsufficientBudget as error:
        numbers = error.needed, error.budget
        assert numbers[0] > numbers[1] == budget
        return
    pinned = [message for message in messages if is_pinned(message)]
    identities = {id(message) for message in out}
    assert [] == [message for message in pinned if id(message) not in identities]
    assert counted(out) <= budget
    assert before == messages


@pytest.mark.spec("S38")
@given(transcripts(max_steps=40), shares, policies)
def test_a_meter_with_a_margin_also_ends_within_the_budget(
    messages: Messages, share: int, policy: dict[str, Any]
) -> None:
    """Where counts carry a margin, the list that left is within the budget when it is measured again."""
    budget = 100 + counted(messages) * share // 100
    box = bench(budget + policy["hard_cap_buffer"], config={"model": "claude-sonnet-4"}, **policy)
    try:
        out = box.manager.preflight("s", messages)
    except InsufficientBudget:
        return
    assert box.manager.should_compact("s", out).usage.total <= budget


@pytest.mark.spec("S42")
def test_three_windows_of_conversation_pass_through_one() -> None:
    """384,000 tokens at 128,000: several folds, never over budget, no error, every new message arrives."""
    box = bench(128_000, hard_cap_buffer=1_500)
    out: Messages = chat("s")
    said = 0
    for n in range(0, 400, 5):
        new = chat("utrua", words=1_000, first=n)
        said += counted(new)
        out = box.manager.preflight("s", [*out, *new])
        assert box.manager.should_compact("s", out).usage.total <= 126_500
        assert same_objects(new, out[-5:])
    assert said >= 384_000
    assert box.manager.session("s").step >= 3
    assert counted(out) <= 126_500
    assert [] == box.recorder["error"]


# -- large tool outputs ------------------------------------------------------------------------------------------------


def with_output(messages: Messages, index: int, text: str) -> Messages:
    """The same list with the content of one message replaced."""
    return [*messages[:index], {**messages[index], "content": text}, *messages[index + 1 :]]


HUGE = "\n".join(f"line {n} of the log" for n in range(3_000))


def test_an_output_too_large_to_fit_alone_is_cut_in_its_middle() -> None:
    """Head and tail stay, a pointer says what is missing and where it is, and the archive has it whole."""
    box = bench(config={"storage": {"adapter": "fs"}})
    messages = with_output(chat("sutr"), 3, HUGE)
    out = box.manager.preflight("s", messages)
    clipped = out[-1]["content"]
    assert counted(out) <= 3_900
    assert clipped.startswith("line 0 of the log\n")
    assert clipped.endswith("\nline 2999 of the log")
    assert "tokens cut here; whole in the archive: step 1, #3" in clipped
    assert counted(out) > 1_000
    assert HUGE == messages[3]["content"]
    assert messages == box.manager.restore("s", 1)
    assert same_objects(messages[:3], out[:3])
    assert 1 == box.data("pruned_messages")[0]["clipped"]


def test_an_oversized_output_raises_when_asked_to() -> None:
    """`oversized="raise"` cuts nothing and names the other choice."""
    box = bench(oversized="raise")
    with pytest.raises(InsufficientBudget, match='"clip"'):
        box.manager.preflight("s", with_output(chat("sutr"), 3, HUGE))


def test_a_pinned_output_is_never_cut() -> None:
    """A protected tool result that does not fit raises."""
    messages = with_output(chat("sutr"), 3, HUGE)
    messages[3]["meta"] = {"protected": True}
    with pytest.raises(InsufficientBudget):
        bench().manager.preflight("s", messages)


def test_in_place_cuts_an_output_inside_its_window_before_it_raises() -> None:
    """Clearing old outputs does not stand in the way of cutting a huge one."""
    messages = chat("su" + "tr" * 5, words=150)
    for policy in ({}, {"clear_tool_outputs": {"keep": 1}}):
        box = bench(layout="in_place", retention_window=12, **policy)
        out = box.manager.preflight("s", with_output(messages, len(messages) - 1, HUGE))
        assert counted(out) <= 3_900
        assert "line 0 of the log" in out[-1]["content"]


def with_long_outputs(pattern: str) -> Messages:
    """A conversation whose tool outputs have about 400 tokens each."""
    messages = chat(pattern)
    return [
        {**message, "content": message["content"] + " word" * 350} if message["role"] == "tool" else message
        for message in messages
    ]


def whole_outputs(messages: Messages) -> list[bool]:
    """For each tool output, whether it is still whole."""
    return [message["content"].startswith("(r") for message in messages if message["role"] == "tool"]


@pytest.mark.parametrize(
    ("rule", "whole"),
    [
        ({"keep": 3}, [False] * 5 + [True] * 3),
        ({"keep": 1}, [False] * 7 + [True]),
        ({"keep": 3, "exclude_tools": ["peek"]}, [False, True, False, False, False, True, True, True]),
        ({"keep": 3, "at_least": 500}, [False] * 5 + [True] * 3),
    ],
)
def test_old_tool_outputs_are_cleared_without_a_summarizer(rule: dict[str, Any], whole: list[bool]) -> None:
    """When clearing is enough nothing folds; the newest outputs and those of excluded tools stay whole."""
    box = bench(4_000, clear_tool_outputs=rule, target_pct=0.9)
    messages = with_long_outputs("su" + "tr" * 8 + "a")
    messages[4]["tool_calls"][0]["function"]["name"] = "peek"
    out = box.manager.preflight("s", messages)
    assert whole == whole_outputs(out)
    assert len(messages) == len(out)
    assert counted(out) < counted(messages) - 500
    assert [] == box.model.asks
    assert [] == box.recorder["summary_created"]
    cleared = next(message["content"] for message in out if message["role"] == "tool")
    assert "cleared" in cleared


def test_clearing_that_gains_too_little_is_left_alone() -> None:
    """Below `at_least` no output is cleared; the fold does the work."""
    box = bench(4_000, clear_tool_outputs={"keep": 3, "at_least": 100_000})
    out = box.manager.preflight("s", with_long_outputs("su" + "tr" * 8 + "a"))
    assert [True] * 4 == whole_outputs(out)
    assert 1 == len(box.model.asks)


# -- before_fold and layouts of one's own ------------------------------------------------------------------------------


def test_before_fold_may_skip_a_fold() -> None:
    """None leaves the list as it is, asks no summarizer, and the decision says who skipped it."""
    box = bench(1_000, manager={"before_fold": lambda plan: None})
    messages = chat("s" + "ua" * 9)
    assert messages is box.manager.manual_compact("s", messages)
    (decision,) = box.data("trigger_decision")
    assert False is decision["triggered"]
    assert "before_fold" in decision["reason"]
    assert [] == box.model.asks


def test_before_fold_may_change_the_plan() -> None:
    """The plan that comes back is the one carried out."""

    def keep_the_first(plan: Plan) -> Plan:
        (fold,) = plan.folds
        return Plan((0, fold.indices[0], Fold(fold.indices[1:]), *plan.kept[1:]), plan.size)

    box = bench(manager={"before_fold": keep_the_first}, keep_recent_turns=1)
    messages = chat("s" + "ua" * 5)
    out = box.manager.manual_compact("s", messages)
    assert same_objects([*messages[:2], *messages[9:]], [*out[:2], *out[3:]])
    assert same_objects(messages[2:9], [message.raw for message in box.model.asks[0].source])


BROKEN_PLANS: dict[str, Callable[[Plan], Plan]] = {
    "a message lost": lambda plan: Plan(plan.slots[:-1], plan.size),
    "a message twice": lambda plan: Plan((*plan.slots, plan.size - 1), plan.size),
    "a pin folded": lambda plan: Plan((Fold((0, *plan.folds[0].indices)), *plan.kept[1:]), plan.size),
    "a pair split": lambda plan: Plan((0, Fold((1, 2)), *range(3, plan.size)), plan.size),
    "the newest user folded": lambda plan: Plan((0, Fold(tuple(range(1, plan.size - 1))), plan.size - 1), plan.size),
    "the order changed": lambda plan: Plan((0, plan.folds[0], *reversed(plan.kept[1:])), plan.size),
    "an answer clipped that is none": lambda plan: plan.clipping({plan.size - 1: 5}),
    "an index that is not there": lambda plan: Plan((*plan.slots[:-1], plan.size + 7), plan.size),
    "a fold of what is not there": lambda plan: Plan((0, Fold((1, plan.size + 7)), *plan.kept[1:]), plan.size),
}


@pytest.mark.parametrize("change", BROKEN_PLANS.values(), ids=BROKEN_PLANS)
def test_a_plan_that_breaks_a_law_never_leaves(change: Callable[[Plan], Plan]) -> None:
    """The list goes out as it came and the event names the law; with on_failure="raise" it raises."""
    messages = chat("sutrauaua")
    gentle = bench(manager={"before_fold": change}, keep_recent_turns=1, keep_tool_io_pairs=1)
    assert same_objects(messages, gentle.manager.manual_compact("s", messages))
    assert [("LawViolation", "unchanged")] == [(e["error_type"], e["fallback"]) for e in gentle.data("error")]
    strict = bench(manager={"before_fold": change}, keep_recent_turns=1, keep_tool_io_pairs=1, on_failure="raise")
    with pytest.raises(LawViolation):
        strict.manager.manual_compact("s", messages)


def test_a_layout_may_be_any_callable() -> None:
    """A function of history and policy chooses what folds; the laws judge it like any other."""

    def keep_three(history: History, policy: Policy) -> Plan:
        first = len(history) - 3
        return Plan((0, Fold(tuple(range(1, first))), *range(first, len(history))), len(history))

    box = bench(layout=keep_three)
    messages = chat("suauaua")
    assert "s[uau]aua" == shape(box.manager.plan("s", messages), messages)
    out = box.manager.manual_compact("s", messages)
    assert same_objects([messages[0], *messages[4:]], [out[0], *out[2:]])


# -- recover -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["layered", "in_place", "rolling"])
@pytest.mark.parametrize("limit", [None, 600, 1_000, 1_500])
def test_recover_gives_a_smaller_list_without_a_model(layout: str, limit: int | None) -> None:
    """After "context too long" the list ends within the limit, or at three quarters, and no summarizer is asked."""
    box = bench(128_000, layout=layout)
    messages = chat("s" + "utratra" * 6)
    if layout == "in_place" and limit == 600:
        with pytest.raises(InsufficientBudget, match="layered"):
            box.manager.recover("s", messages, limit)
        return
    out = box.manager.recover("s", messages, limit)
    assert counted(out) <= (limit or counted(messages) * 3 // 4)
    assert [] == box.model.asks
    assert "overflow" in box.data("trigger_decision")[0]["reason"]


def test_recover_says_when_it_cannot() -> None:
    """A limit that the pins alone exceed is `InsufficientBudget`."""
    with pytest.raises(InsufficientBudget):
        bench().manager.recover("s", chat("sppppua"), 100)


def test_recover_helps_after_a_preflight_that_failed() -> None:
    """A preflight that raised for want of a summarizer does not keep `recover` from folding the same messages."""
    model = ScriptedModel(ModelUnavailable("down"))
    box = bench(2_000, model=model, config={"summary": {"max_retries": 0}}, keep_recent_turns=2, on_failure="raise")
    messages = chat("s" + "ua" * 40)
    with pytest.raises(ModelUnavailable):
        box.manager.preflight("s", messages)
    asked = len(model.asks)
    assert counted(box.manager.recover("s", messages)) <= counted(messages) * 3 // 4
    assert counted(box.manager.recover("s", messages, 1_900)) <= 1_900
    assert asked == len(model.asks)


# -- compact_messages --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["layered", "in_place", "rolling"])
@pytest.mark.parametrize(
    "pattern", ["ua" * 20, "u" + "tr" * 20 + "a", "tr" * 20, "a" * 30, "u" * 30], ids=["ua", "utr", "tr", "a", "u"]
)
def test_one_shot_fits_any_size(layout: str, pattern: str) -> None:
    """Without pins the list fits whatever the limit, and stays as it is when it fits already."""
    messages = chat(pattern)
    sizes = (60, 80, 100, 150, 250, 400, 700, 1_200, 2_000, 5_000)
    outs = {n: compact_messages(messages, n, config=CompactConfig(policy={"layout": layout})) for n in sizes}
    assert {} == {n: counted(out) for n, out in outs.items() if counted(out) > n}
    assert [n >= counted(messages) for n in sizes] == [out == messages for out in outs.values()]
    assert not Path(".compact").exists()


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["tr" * 3, "Trra", "uaua", "sua", "uaut"])
@pytest.mark.parametrize("answer", ["notes", "", ModelUnavailable("down")])
def test_one_shot_in_hardly_any_room_fits_or_says_so(pattern: str, answer: Any) -> None:
    """Down to one token there is a list that fits and is not empty, or `InsufficientBudget`, and no other error."""
    messages = chat(pattern)
    config = CompactConfig(summary={"max_retries": 0})
    for limit in range(1, 64):
        try:
            out = compact_messages(messages, limit, config=config, summarizer=ScriptedModel(answer))
        except InsufficientBudget:
            continue
        assert out
        assert counted(out) <= limit


@given(
    transcripts(max_steps=25), st.integers(0, 800), st.sampled_from([None, ScriptedModel("notes"), ScriptedModel("")])
)
def test_one_shot_raises_for_pins_only(messages: Messages, room: int, summarizer: Any) -> None:
    """It fits when the pins do (and a call that still waits); pins that do not fit raise."""
    fixed = [m for i, m in enumerate(messages) if is_pinned(m) or (i == len(messages) - 1 and m.get("tool_calls"))]
    room = room if fixed else room + 64  # an empty list is no request
    out = compact_messages(messages, counted(fixed) + room, summarizer=summarizer)
    assert counted(out) <= counted(fixed) + room
    identities = {id(message) for message in out}
    assert [] == [message for message in fixed if id(message) not in identities]
    pins = counted(filter(is_pinned, messages))
    if pins > 3:
        with pytest.raises(InsufficientBudget):
            compact_messages(messages, pins - 1, summarizer=summarizer)


@pytest.mark.parametrize("layout", ["layered", "in_place", "rolling"])
@pytest.mark.parametrize("last", [40, 400])
def test_one_shot_keeps_the_newest_user_message_when_it_needs_less_than_half(layout: str, last: int) -> None:
    """It stays verbatim in twice its room, whatever else must go; one that is too large gives way."""
    config = CompactConfig(policy={"layout": layout})
    messages = [*chat("s" + "utra" * 6 + "u"), *chat("a", words=last, first=50)]
    newest = messages[-2]
    tight = counted(messages[:1]) + 2 * weight(newest) + 4
    out = compact_messages(messages, tight, config=config)
    assert counted(out) <= tight
    assert 1 == sum(message is newest for message in out)
    huge = [*messages, *chat("u", words=800, first=90)]
    assert counted(compact_messages(huge, 300, config=config)) <= 300


def test_one_shot_counts_the_tools() -> None:
    """The limit holds for the whole request."""
    tools = [{"type": "function", "function": {"name": "look", "description": "Looks. " * 100}}]
    messages = chat("s" + "ua" * 20)
    plain, with_tools = compact_messages(messages, 600), compact_messages(messages, 600, tools=tools)
    assert counted(with_tools) <= 400 < counted(plain) <= 600


@pytest.mark.parametrize("failure", [ModelUnavailable("down"), BadSummary("no"), RuntimeError("bug")])
@pytest.mark.parametrize("on_failure", ["prune", "extract", "raise"])
def test_one_shot_needs_no_working_summarizer_unless_told_to(failure: Exception, on_failure: str) -> None:
    """A summarizer that fails costs the summary, not the result; `raise` raises what the flow raises."""
    config = CompactConfig(policy={"on_failure": on_failure}, summary={"max_retries": 0})
    messages = chat("s" + "ua" * 20)
    if on_failure == "raise":
        expected = type(failure) if isinstance(failure, SummaryError) else ModelUnavailable
        with pytest.raises(expected):
            compact_messages(messages, 500, config=config, summarizer=ScriptedModel(failure))
        return
    assert counted(compact_messages(messages, 500, config=config, summarizer=ScriptedModel(failure))) <= 500


# -- the archive -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("S23", "S36")
def test_the_archive_holds_transcripts_summaries_and_events() -> None:
    """Two folds leave two transcripts, two summaries and one event file, under the names of the specification."""
    box = bench(config={"storage": {"adapter": "fs"}}, keep_recent_turns=1)
    first = chat("s" + "ua" * 5)
    second = [*box.manager.manual_compact("s", first), *chat("uaua", first=50)]
    box.manager.manual_compact("s", second)
    box.manager.close()
    folder = Path(".compact/archive/s")
    names = [f"{kind}-{step:03d}.{end}" for kind, end in ARCHIVED for step in (1, 2)]
    assert sorted(["events.jsonl", *names]) == sorted(path.name for path in folder.iterdir())
    for step, given_list in ((1, first), (2, second)):
        lines = (folder / f"transcript-pre-compact-{step:03d}.jsonl").read_text().splitlines()
        assert given_list == [json.loads(line) for line in lines]
        summary = json.loads((folder / f"summary-{step:03d}.json").read_text())
        assert ("s", step, step) == (summary["session_id"], summary["step"], summary["version"])
        assert ["what mattered so far"] == [fold["summary"] for fold in summary["folds"]]
    written = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [event.name for event in box.recorder] == [event["name"] for event in written]
    archival = [event for event in written if event["name"] == "compact.archival"]
    assert sorted(f"s/{name}" for name in names) == sorted(event["data"]["key"] for event in archival)
    assert [("s", 1, "fs"), ("s", 1, "fs"), ("s", 2, "fs"), ("s", 2, "fs")] == [
        (event["data"]["session_id"], event["step"], event["data"]["storage_adapter"]) for event in archival
    ]


ARCHIVED = [("transcript-pre-compact", "jsonl"), ("summary", "json")]


def test_restore_gives_back_what_stood_before_each_fold() -> None:
    """The newest transcript by default, an older one by its step, and an error that says so when there is none."""
    box = bench(config={"storage": {"adapter": "fs"}}, keep_recent_turns=1)
    first = chat("s" + "utra" * 5)
    second = [*box.manager.manual_compact("s", first), *chat("uaua", first=50)]
    box.manager.manual_compact("s", second)
    assert second == box.manager.restore("s")
    assert first == box.manager.restore("s", 1)
    with pytest.raises(ArchiveError):
        box.manager.restore("s", 3)
    with pytest.raises(ArchiveError, match="nobody"):
        box.manager.restore("nobody")
    with pytest.raises(ArchiveError, match="fs"):
        bench().manager.restore("s")


def test_a_session_that_never_folds_leaves_no_file() -> None:
    """Below every threshold nothing is written, not even at the end."""
    box = bench(config={"storage": {"adapter": "fs"}})
    box.manager.preflight("s", chat("sua"))
    box.manager.close()
    assert not Path(".compact").exists()
