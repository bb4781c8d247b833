"""The laws, each seen from outside: lists, states, events and plans of a manager that is used as a host would."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from project_paths import GOLDEN
from provider_rules import problems

from compact import LAWS, Ask, Clip, CompactConfig, CompactManager, Event, Fold, History, Message, Plan, Policy
from compact._compaction.laws import FoldCase, broken_law
from compact._conversation.message import ToolCall, ToolResult
from compact.errors import CompactError, ConfigError, InsufficientBudget, ModelUnavailable
from compact.testing import Recorder, ScriptedModel, chat, shape

Item = dict[str, Any]


def managed(
    window: int = 100_000,
    *,
    model: Callable[[Ask], str] | None = None,
    sinks: Any = (),
    before_fold: Callable[[Plan], Plan | None] | None = None,
    summary: dict[str, Any] | None = None,
    counter: str = "tiktoken",
    **policy: Any,
) -> CompactManager:
    """A manager with a small buffer, no archive, and the `in_place` layout unless said otherwise."""
    config = CompactConfig(
        max_context_tokens=window,
        counter=counter,
        policy={"layout": "in_place", "hard_cap_buffer": 50, **policy},
        summary={"min_score": 0, **(summary or {})},
        storage={"adapter": "none"},
    )
    return CompactManager(config, summarizer=model or ScriptedModel("short"), sinks=sinks, before_fold=before_fold)


def folds(pattern: str, **policy: Any) -> str:
    """The shape of a dry run over a conversation."""
    messages = chat(pattern)
    return shape(managed(**policy).plan("s", messages), messages)


def usage(messages: list[Any]) -> int:
    """What a list weighs by itself, judged by a manager that never saw it before."""
    return managed().should_compact("fresh", messages).usage.total


def cost(messages: list[Any]) -> int:
    """What messages weigh, without what every request carries."""
    return usage(messages) - usage([])


def marked(messages: list[Item]) -> list[Item]:
    """The summaries in a list."""
    return [message for message in messages if str(message.get("content")).startswith("<COMPACT-SUMMARY v")]


# -- when a fold is due ----------------------------------------------------------------------------------------------


@pytest.mark.spec("L01")
def test_the_token_counter_equals_the_conversation_whatever_happened_to_it() -> None:
    """After appends, a fold, more appends and a rewind the session counts what a fresh one counts."""
    manager = managed(1_500)
    messages = chat("su" + "aaau" * 3)
    for step in ("aau", "aaau" * 5, "tru", "aa"):
        messages = [*manager.preflight("s", messages), *chat(step, first=len(messages))]
        assert usage(messages) == manager.should_compact("s", messages).usage.total
    assert usage(messages[:5]) == manager.should_compact("s", messages[:5]).usage.total
    assert 1 <= len(manager.session("s").folds)


@pytest.mark.spec("L01", "L31")
def test_message_and_turn_counters_count_the_part_since_the_last_fold() -> None:
    """Six messages in two turns, a fold, then three messages in one turn."""
    manager = managed(retention_window=1)
    messages = manager.preflight("s", chat("suaaua"))
    counters = manager.session("s").counters
    assert (6, 2) == (counters.messages, counters.turns)
    messages = manager.manual_compact("s", messages)
    counters = manager.session("s").counters
    assert (0, 0) == (counters.messages, counters.turns)
    manager.preflight("s", [*messages, *chat("uaa", first=50)])
    counters = manager.session("s").counters
    assert (3, 1) == (counters.messages, counters.turns)


@pytest.mark.spec("L01", "A1")
@pytest.mark.parametrize(
    ("policy", "below", "reached"),
    [
        ({"message_threshold": 6}, "suaau", "suaaua"),
        ({"turn_threshold": 3}, "suauaa", "suauau"),
        ({"message_threshold": 4, "turn_threshold": 9}, "sua", "suaa"),
    ],
)
def test_a_threshold_fires_when_it_is_reached(policy: dict[str, Any], below: str, reached: str) -> None:
    """One less is not enough, exactly as many is, and the reason is named."""
    manager = managed(**policy)
    assert () == manager.should_compact("s", chat(below)).reasons
    assert (next(iter(policy)),) == manager.should_compact("s", chat(reached)).reasons


@pytest.mark.spec("L01", "A1")
def test_a_token_threshold_fires_when_it_is_reached() -> None:
    """The exact number of tokens is enough, one more to ask for is not reached."""
    messages = chat("suaua")
    total = usage(messages)
    assert ("token_threshold",) == managed(token_threshold=total).should_compact("s", messages).reasons
    assert () == managed(token_threshold=total + 1).should_compact("s", messages).reasons


@pytest.mark.spec("A1")
def test_any_threshold_fires_next_to_trigger_pct() -> None:
    """All that are reached are named together."""
    messages = chat("suaua")
    manager = managed(
        200, trigger_pct=0.5, token_threshold=usage(messages), message_threshold=5, turn_threshold=2, hard_cap_buffer=0
    )
    expected = {"trigger_pct", "token_threshold", "message_threshold", "turn_threshold"}
    assert expected <= set(manager.should_compact("s", messages).reasons)


@pytest.mark.spec("L01", "L27")
def test_needed_leads_to_done() -> None:
    """What is due folds at the next preflight and is no longer due; what is not due stays untouched."""
    manager = managed(message_threshold=9, retention_window=2)
    messages = chat("suaaaaaau")
    assert manager.should_compact("s", messages)
    out = manager.preflight("s", messages)
    assert 1 == len(marked(out))
    assert not manager.should_compact("s", out)
    assert out is manager.preflight("s", out)


@pytest.mark.spec("L01")
def test_at_least_one_threshold_is_configured() -> None:
    """A policy that could never fold is refused, at once and at run time."""
    off: dict[str, Any] = {"trigger_pct": 0, "token_threshold": 0, "message_threshold": 0, "turn_threshold": 0}
    with pytest.raises(ConfigError, match="at least one"):
        managed(**off)
    with pytest.raises(ConfigError, match="at least one"):
        managed().update(**off)


@pytest.mark.spec("A1")
def test_should_compact_leaves_no_trace() -> None:
    """Asked a hundred times, it emits nothing, folds nothing, calls nobody and changes no state."""
    model, recorder = ScriptedModel(), Recorder()
    manager = managed(1_000, model=model, sinks=[recorder])
    manager.preflight("s", chat("sua"))
    told = len(recorder.events)
    messages = chat("su" + "aaau" * 6)
    kept = list(messages)
    before = manager.session("s")
    assert all(manager.should_compact("s", messages) for _ in range(100))
    assert ([], [], before, kept) == (recorder.events[told:], model.asks, manager.session("s"), messages)


@pytest.mark.spec("L09")
def test_in_place_folds_at_60_000_tokens_unless_told_otherwise() -> None:
    """The default belongs to this layout alone, and a change of it is judged at once."""
    messages = chat("sua")
    filler = {"role": "user", "content": ""}
    manager = managed(counter="chars")
    rest = manager.should_compact("s", [*messages, filler]).usage.total
    filler["content"] = "x" * 4 * (60_000 - rest)
    assert 60_000 == manager.should_compact("s", [*messages, filler]).usage.total
    assert ("token_threshold",) == manager.should_compact("s", [*messages, filler]).reasons
    assert () == manager.should_compact("s", [*messages, {**filler, "content": filler["content"][4:]}]).reasons
    assert () == managed(counter="chars", layout="layered").should_compact("s", [*messages, filler]).reasons
    manager.update(token_threshold=60_001)
    assert () == manager.should_compact("s", [*messages, filler]).reasons
    manager.update(message_threshold=4)
    assert ("message_threshold",) == manager.should_compact("s", [*messages, filler]).reasons


@pytest.mark.spec("L31")
@pytest.mark.parametrize("off", [0, None])
@pytest.mark.parametrize("name", ["token_threshold", "message_threshold", "turn_threshold", "trigger_pct"])
def test_0_or_none_switches_a_threshold_off(name: str, off: int | None) -> None:
    """What fired does not fire any more, at run time."""
    low: dict[str, Any] = {"token_threshold": 100, "message_threshold": 3, "turn_threshold": 1, "trigger_pct": 0.001}
    manager = managed(**low)
    messages = chat("suaua")
    assert name in manager.should_compact("s", messages).reasons
    manager.update(**{name: off})
    assert name not in manager.should_compact("s", messages).reasons


@pytest.mark.spec("L31")
def test_a_conversation_of_users_alone_is_not_judged_again_before_it_has_grown() -> None:
    """Counters start again after a fold, so a message threshold fires once per so many messages."""
    recorder = Recorder()
    manager = managed(layout="layered", message_threshold=8, keep_recent_turns=1, sinks=[recorder])
    messages = chat("su" + "au" * 4)
    for at in range(12):
        messages = [*manager.preflight("s", messages), *chat("ua", first=20 + 2 * at)]
    assert 3 <= len(manager.session("s").folds) <= 4


# -- states ----------------------------------------------------------------------------------------------------------


class Watcher:
    """Looks at a session from every place a caller can: sinks, `before_fold` and the summarizer."""

    def __init__(self, *answers: str | Exception, window: int = 1_300, skip: bool = False, **options: Any) -> None:
        self.seen: list[tuple[str, str, str, str]] = []
        self.skip = skip
        self._answer = ScriptedModel(*answers or ("short",))
        self.manager = managed(window, model=self.model, sinks=[self.sink], before_fold=self.before_fold, **options)

    def model(self, ask: Ask) -> str:
        self._look("model")
        return self._answer(ask)

    def sink(self, event: Event) -> None:
        self._look(event.name.removeprefix("compact."))

    def before_fold(self, plan: Plan) -> Plan | None:
        self._look("before_fold")
        return None if self.skip else plan

    def _look(self, place: str) -> None:
        view = self.manager.session("s")
        self.seen.append((place, view.state, view.phase, view.summary_state))

    def at(self, place: str, column: int) -> list[str]:
        """The distinct values of one column that were seen in one place."""
        return list(dict.fromkeys(look[column] for look in self.seen if look[0] == place))


@pytest.mark.spec("L02")
def test_a_session_goes_from_not_needed_over_a_fold_to_completed_and_back() -> None:
    """In progress inside the fold, completed behind it, not needed at the next look."""
    watch = Watcher()
    assert "not_needed" == watch.manager.session("s").state
    out = watch.manager.preflight("s", chat("su" + "aaau" * 6))
    assert (["in_progress"], ["in_progress"]) == (watch.at("before_fold", 1), watch.at("model", 1))
    assert "completed" == watch.manager.session("s").state
    assert not watch.manager.should_compact("s", out)
    watch.manager.preflight("s", out)
    assert "not_needed" == watch.manager.session("s").state


@pytest.mark.spec("L02")
def test_a_fold_that_is_put_off_leaves_the_session_needed() -> None:
    """Needed means that a threshold is reached; when the list shrinks below it, it is needed no longer."""
    watch = Watcher(skip=True, hard_cap_buffer=0)
    messages = chat("su" + "aaau" * 6)
    watch.manager.preflight("s", messages)
    assert "needed" == watch.manager.session("s").state
    watch.manager.preflight("s", messages[:4])
    assert "not_needed" == watch.manager.session("s").state


@pytest.mark.spec("L02")
def test_a_fold_that_cannot_get_below_the_trigger_leaves_the_session_needed() -> None:
    """Completed means below every threshold; a fold of users that must stay cannot promise it."""
    watch = Watcher(window=1_000)
    watch.manager.preflight("s", chat("su" + "aaau" * 2 + "u" * 13))
    assert 1 == len(watch.manager.session("s").folds)
    assert "needed" == watch.manager.session("s").state


@pytest.mark.spec("L02")
def test_a_completed_session_is_needed_again_when_a_threshold_is_reached_again() -> None:
    """The second fold goes through the same states."""
    watch = Watcher()
    out = watch.manager.preflight("s", chat("su" + "aaau" * 6))
    watch.manager.preflight("s", [*out, *chat("aaau" * 4, first=60)])
    assert (2, "completed") == (len(watch.manager.session("s").folds), watch.manager.session("s").state)


@pytest.mark.spec("L04")
def test_a_fold_goes_through_its_phases_in_order() -> None:
    """Idle, selecting, compacting, replacing, idle; and at rest always idle."""
    watch = Watcher()
    assert "idle" == watch.manager.session("s").phase
    watch.manager.preflight("s", chat("su" + "aaau" * 6))
    phases = list(dict.fromkeys(look[2] for look in watch.seen))
    assert ["idle", "selecting", "compacting", "replacing"] == phases
    assert "idle" == watch.manager.session("s").phase


@pytest.mark.spec("L04")
def test_the_token_count_changes_by_what_went_and_what_came() -> None:
    """Usage after = usage before - the removed messages + the summary, to the token."""
    manager = managed(retention_window=2)
    messages = chat("suaatraaua")
    out = manager.manual_compact("s", messages)
    removed, came = messages[2:8], marked(out)
    assert usage(messages) - cost(removed) + cost(came) == usage(out)
    fold = manager.session("s").folds[0]
    assert (usage(messages), usage(out)) == (fold.tokens_before, fold.tokens_after)


@pytest.mark.spec("L33")
def test_the_summarizer_goes_from_idle_to_completed_and_back() -> None:
    """In progress while it is asked, completed when its answer is taken, idle outside."""
    watch = Watcher()
    watch.manager.preflight("s", chat("su" + "aaau" * 6))
    assert (["in_progress"], ["completed"]) == (watch.at("model", 3), watch.at("summary_created", 3))
    assert "idle" == watch.manager.session("s").summary_state


@pytest.mark.spec("L33")
@pytest.mark.parametrize("on_failure", ["prune", "extract", "raise"])
def test_a_summarizer_that_fails_comes_back_to_idle(on_failure: str) -> None:
    """Failed is seen when the failure is told, and the session rests at idle whatever happens then."""
    watch = Watcher(ModelUnavailable("down"), summary={"max_retries": 0}, on_failure=on_failure)
    try:
        watch.manager.preflight("s", chat("su" + "aaau" * 6))
    except CompactError:
        assert "raise" == on_failure
    assert ["failed"] == watch.at("error", 3)[:1]
    assert ("idle", "idle") == (watch.manager.session("s").summary_state, watch.manager.session("s").phase)


@pytest.mark.spec("L24", "L33")
@pytest.mark.parametrize("error", [ModelUnavailable("down"), "word " * 900, ""])
def test_one_run_of_several_may_fail(error: str | Exception) -> None:
    """The first and the third answer are taken; the second run is pruned, and the fold is done."""
    answers = ("short", error, "short", error)
    watch = Watcher(*answers, window=100_000, retention_window=1, summary={"max_retries": 0})
    out = watch.manager.manual_compact("s", chat("suaauaauaau"))
    assert (2, "completed", "pruning-only") == (
        len(marked(out)),
        watch.manager.session("s").state,
        watch.manager.session("s").folds[0].fallback,
    )


@pytest.mark.spec("L16", "L33")
@pytest.mark.parametrize("layout", ["layered", "in_place", "rolling"])
def test_every_request_has_a_limit_and_every_accepted_summary_respects_it(layout: str) -> None:
    """The limit is within the configured one; an answer over it is asked for again and never taken."""
    model, recorder = ScriptedModel("word " * 500, "word " * 10), Recorder()
    manager = managed(2_000, layout=layout, model=model, sinks=[recorder], summary={"max_tokens": 64}, target_pct=1.0)
    out = manager.preflight("s", chat("su" + "aaau" * 12))
    assert [ask for ask in model.asks if not 1 <= ask.max_tokens <= 64] == []
    taken = recorder["summary_created"]
    assert 1 <= len(taken)
    assert [event for event in taken if event.data["summary_tokens"] > 64] == []
    assert [message for message in marked(out) if cost([message]) > 64 + 30] == []
    assert f"at most {model.asks[0].max_tokens} tokens" in model.asks[0].messages[0]["content"]


# -- what in_place folds ---------------------------------------------------------------------------------------------


@pytest.mark.spec("L03", "L05", "L06", "L07", "L08", "L11", "L18", "L21", "P1", "P2")
@pytest.mark.parametrize(
    ("pattern", "window", "expected"),
    [
        pytest.param("", 1, "", id="empty"),
        pytest.param("s", 1, "s", id="system alone"),
        pytest.param("uuuu", 1, "uuuu", id="no run"),
        pytest.param("uauaua", 1, "uauaua", id="lone assistant messages stay"),
        pytest.param("aaau", 1, "[aaa]u", id="run at the start"),
        pytest.param("saaau", 1, "s[aaa]u", id="the system message stays first"),
        pytest.param("suaaaa", 1, "su[aaa]a", id="run at the end, up to the window"),
        pytest.param("suaauaaauau", 1, "su[aa]u[aaa]uau", id="several runs, users in place"),
        pytest.param("sutrtrua", 2, "su[trtr]ua", id="tool steps"),
        pytest.param("suTrraua", 2, "su[Trra]ua", id="parallel calls"),
        pytest.param("suaatraua", 4, "su[aa]traua", id="a result in the window keeps its call out of a fold"),
        pytest.param("suaaTrrua", 3, "su[aa]Trrua", id="one of two results in the window keeps the step out"),
        pytest.param("suaatua", 2, "su[aat]ua", id="a call that is never answered does not hold folding up"),
        pytest.param("suaaaat", 1, "su[aaaa]t", id="an open call stays"),
        pytest.param("suaapaau", 1, "su[aa]p[aa]u", id="a protected message stays in its place"),
        pytest.param("suaadaau", 1, "su[aa]d[aa]u", id="a developer message stays in its place"),
        pytest.param("uaaaaa", 6, "uaaaaa", id="no more messages than the window"),
        pytest.param("uaaaaa", 9, "uaaaaa", id="fewer messages than the window"),
        pytest.param("uaaaaaa", 5, "uaaaaaa", id="one message outside the window is no run"),
        pytest.param("uaaaaaaa", 5, "u[aa]aaaaa", id="two are"),
    ],
)
def test_in_place_folds_runs_outside_the_window(pattern: str, window: int, expected: str) -> None:
    """Runs of two or more assistant messages and tool results; all else stays where it is."""
    assert expected == folds(pattern, retention_window=window)


@pytest.mark.spec("L07")
def test_the_window_is_6_and_a_changed_one_counts_from_the_next_decision() -> None:
    """The default, then a wider and a narrower window over the same list."""
    messages = chat("suaaaaaaaa")
    manager = managed()
    assert "su[aa]aaaaaa" == shape(manager.plan("s", messages), messages)
    manager.update(retention_window=8)
    assert "suaaaaaaaa" == shape(manager.plan("s", messages), messages)
    manager.update(retention_window=2)
    assert "su[aaaaaa]aa" == shape(manager.plan("s", messages), messages)


@pytest.mark.spec("L03", "L22", "L29", "L32")
@pytest.mark.parametrize("window", [1, 2, 3, 6, 9])
def test_the_window_stays_whole_whatever_its_size(window: int) -> None:
    """At least min(window, length) messages survive, and they are the newest, as the very same objects."""
    for length in range(14):
        manager = managed(retention_window=window)
        messages = chat(("su" + "aatr" * 4)[:length])
        out = manager.manual_compact("s", messages)
        kept = min(window, length)
        assert len(out) >= kept
        assert [id(m) for m in messages[length - kept :]] == [id(m) for m in out[len(out) - kept :]]


@pytest.mark.spec("L23")
def test_what_was_folded_is_not_folded_again() -> None:
    """A summary of an earlier fold stands outside the window and is left alone; only what is new folds."""
    model = ScriptedModel("first", "second")
    manager = managed(retention_window=1, model=model)
    out = manager.manual_compact("s", chat("suaaau"))
    out = manager.manual_compact("s", [*out, *chat("aaau", first=20)])
    assert [(2, 3, 4), (6, 7, 8)] == [ask.positions for ask in model.asks]
    assert [None, None] == [ask.previous for ask in model.asks]
    assert ["<COMPACT-SUMMARY v1>\nfirst\n</COMPACT-SUMMARY>", "<COMPACT-SUMMARY v2>\nsecond\n</COMPACT-SUMMARY>"] == [
        message["content"] for message in marked(out)
    ]


@pytest.mark.spec("L12", "L13", "L19", "L20", "L27")
def test_a_run_becomes_one_assistant_summary_in_its_place() -> None:
    """Length' = length - k + 1; what stands before and behind are the same objects in the same order."""
    manager = managed(retention_window=2)
    messages = chat("suatraua")
    out = manager.manual_compact("s", messages)
    assert len(messages) - 4 + 1 == len(out)
    assert [id(message) for message in messages[:2]] == [id(message) for message in out[:2]]
    assert [id(message) for message in messages[6:]] == [id(message) for message in out[3:]]
    assert {"role": "assistant", "content": "<COMPACT-SUMMARY v1>\nshort\n</COMPACT-SUMMARY>"} == out[2]
    assert [] == problems("openai-chat", out)


@pytest.mark.spec("L11", "L20", "P1")
def test_every_user_message_is_still_there_after_many_folds() -> None:
    """Ten folds in a row; each user message is the same object in the same order."""
    manager = managed(retention_window=2)
    said: list[Item] = []
    messages: list[Item] = []
    for at in range(10):
        news = chat("uaatru", first=10 * at)
        said += [message for message in news if message["role"] == "user"]
        messages = manager.manual_compact("s", [*messages, *news])
    assert 10 == len(manager.session("s").folds)
    assert [id(message) for message in said] == [id(message) for message in messages if message["role"] == "user"]


@pytest.mark.spec("L10", "L19")
def test_a_surviving_message_keeps_its_type() -> None:
    """Dicts of the host's own kind, objects and dataclasses leave as the very objects that came in."""

    class Own(dict):  # type: ignore[type-arg]
        """A dict that the host subclassed."""

    @dataclass
    class Said:
        role: str
        content: str

    user = Own(chat("u")[0])
    spoken = SimpleNamespace(role="user", content="and now by an object")
    last = Said("assistant", "by a dataclass")
    mapping = UserDict({"role": "user", "content": "by another mapping"})
    messages = [user, *chat("aaa"), spoken, mapping, last]
    out = managed(retention_window=1).manual_compact("s", messages)
    assert [id(user), id(spoken), id(mapping), id(last)] == [id(out[i]) for i in (0, 2, 3, 4)]
    assert [Own, dict, SimpleNamespace, UserDict, Said] == [type(message) for message in out]


@pytest.mark.spec("L26")
def test_a_result_pairs_with_the_nearest_earlier_open_call_of_its_id() -> None:
    """With a repeated id the older call has been given up and folds; the newer one stays with its result."""
    messages = chat("utaatrua")
    for at in (1, 4):
        messages[at]["tool_calls"][0]["id"] = "same"
    messages[5]["tool_call_id"] = "same"
    assert "u[taa]trua" == shape(managed(retention_window=3).plan("s", messages), messages)
    messages[2:2] = [{**messages[5], "content": "the first result " * 20}]
    assert "u[traa]trua" == shape(managed(retention_window=3).plan("s", messages), messages)


@pytest.mark.spec("L26")
def test_a_result_before_its_call_is_no_pair() -> None:
    """The call comes first: a result of the same id that stands before it belongs to no one."""
    messages = chat("utruaaua")
    messages[1], messages[2] = messages[2], messages[1]
    out = managed(retention_window=2).manual_compact("s", messages)
    assert [] == problems("openai-chat", out)


@pytest.mark.spec("L27")
def test_a_fold_runs_only_when_it_is_needed_or_asked_for() -> None:
    """Below every threshold the same list comes back and nobody is asked; asked for, it folds."""
    model = ScriptedModel("short")
    manager = managed(model=model)
    messages = chat("su" + "aatr" * 4 + "u")
    assert messages is manager.preflight("s", messages)
    assert [] == model.asks
    assert 1 == len(marked(manager.manual_compact("s", messages)))


@pytest.mark.spec("P1", "P3", "L06", "L25")
def test_runs_fold_earliest_first_until_the_target_is_reached() -> None:
    """Early runs fold, late ones are left for later; one call for each run that folded."""
    model = ScriptedModel("short")
    manager = managed(2_000, model=model, summary={"max_tokens": 48}, retention_window=1)
    messages = chat("su" + "aaaau" * 8)
    out = manager.preflight("s", messages)
    made = len(marked(out))
    expected = "su" + "Su" * made + "aaaau" * (8 - made)
    assert expected == "".join("S" if message in marked(out) else message["role"][0] for message in out)
    assert 1 <= made < 8
    assert made == len(model.asks)
    assert usage(out) < 0.7 * 0.85 * 2_000


@pytest.mark.spec("L25")
def test_in_the_end_every_eligible_batch_is_folded() -> None:
    """Natural folds take the earliest runs, one after another, until none is left outside the window."""
    manager = managed(2_000, summary={"max_tokens": 48}, retention_window=1, target_pct=0.9)
    messages = chat("su" + "aaaau" * 8)
    starts: list[int] = []
    for _ in range(8):
        messages = manager.manual_compact("s", messages)
        starts += [fold.range[0] for fold in manager.session("s").folds[len(starts) :]]
    assert sorted(starts) == starts
    assert not manager.plan("s", messages).changes


@pytest.mark.spec("L25")
def test_changing_the_window_drops_a_pending_batch() -> None:
    """A batch that was chosen and put off is chosen anew under the new window."""
    chosen: list[str] = []

    def put_off(plan: Plan) -> Plan | None:
        chosen.append(shape(plan, messages))
        return plan if len(chosen) > 1 else None

    messages = chat("suaaaaaaau")
    manager = managed(message_threshold=9, retention_window=2, before_fold=put_off)
    assert messages is manager.preflight("s", messages)
    manager.update(retention_window=5)
    out = manager.preflight("s", messages)
    assert ["su[aaaaaa]au", "su[aaa]aaaau"] == chosen
    assert len(messages) - 3 + 1 == len(out)


# -- while a fold runs -----------------------------------------------------------------------------------------------


@pytest.mark.spec("L24")
def test_the_window_cannot_change_while_a_fold_is_in_progress() -> None:
    """A change from inside the summarizer waits: the fold goes on as planned, then the change is in force."""
    seen: list[int] = []

    def model(ask: Ask) -> str:
        manager.update(retention_window=9)
        seen.append(manager.config.policy.retention_window)
        return "short"

    manager = managed(retention_window=2, model=model)
    out = manager.manual_compact("s", chat("suaaaaaaau"))
    assert ([2], 1, 5) == (seen, len(marked(out)), len(out))
    assert 9 == manager.config.policy.retention_window


@pytest.mark.spec("L24")
def test_a_change_in_a_fold_of_one_session_waits_for_it_in_another() -> None:
    """Another session folds by the old window while the first fold runs."""
    shapes: list[int] = []

    def model(ask: Ask) -> str:
        if not shapes:
            shapes.append(0)
            manager.update(retention_window=9)
            shapes.append(len(manager.manual_compact("other", chat("suaaaaaaau"))))
        return "short"

    manager = managed(retention_window=2, model=model)
    manager.manual_compact("s", chat("suaaaaaaau"))
    assert ([0, 5], 9) == (shapes, manager.config.policy.retention_window)


@pytest.mark.spec("L24", "L30")
def test_a_fold_that_failed_is_finished_too() -> None:
    """When the fold in which a change was made raises, the change is in force all the same."""

    def model(ask: Ask) -> str:
        manager.update(retention_window=9)
        raise ModelUnavailable("down")

    manager = managed(retention_window=2, model=model, on_failure="raise", summary={"max_retries": 0})
    with pytest.raises(ModelUnavailable):
        manager.manual_compact("s", chat("suaaaaaaau"))
    assert ("not_needed", 9) == (manager.session("s").state, manager.config.policy.retention_window)


@pytest.mark.spec("L24")
@pytest.mark.parametrize(
    "error", [ModelUnavailable("down"), ValueError("a bug"), InsufficientBudget("x", needed=2, budget=1)]
)
def test_a_fold_always_finishes(error: Exception) -> None:
    """Whatever the summarizer raises, the fold ends, pruned, and the session rests."""
    manager = managed(retention_window=2, model=ScriptedModel(error), summary={"max_retries": 0})
    out = manager.manual_compact("s", chat("suaaaaaaau"))
    view = manager.session("s")
    assert (4, "idle", "idle") == (len(out), view.phase, view.summary_state)
    assert "pruning-only" == view.folds[0].fallback


@pytest.mark.spec("L24", "L33")
def test_a_fold_that_is_interrupted_comes_to_rest() -> None:
    """Ctrl-C inside the summarizer reaches the caller; nothing has changed, and the next call folds."""

    def model(ask: Ask) -> str:
        if not asked:
            asked.append(ask)
            raise KeyboardInterrupt
        return "short"

    asked: list[Ask] = []
    manager = managed(retention_window=2, model=model)
    messages = chat("suaaaaaaau")
    with pytest.raises(KeyboardInterrupt):
        manager.manual_compact("s", messages)
    view = manager.session("s")
    assert ("not_needed", "idle", "idle", ()) == (view.state, view.phase, view.summary_state, view.folds)
    assert 5 == len(manager.manual_compact("s", messages))


# -- history ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("L28")
@pytest.mark.parametrize("layout", ["layered", "in_place", "rolling"])
@pytest.mark.parametrize("keeps", [True, False], ids=["keeps what came back", "passes everything again"])
def test_the_history_of_folds_is_recorded_and_never_goes_backwards(layout: str, keeps: bool) -> None:
    """Twenty folds: steps and versions count up, starts never fall, ends always rise."""
    manager = managed(layout=layout, retention_window=2, keep_recent_turns=1, keep_tool_io_pairs=1, window_rounds=1)
    messages: list[Item] = chat("s")
    for at in range(20):
        messages += chat("uaatru", first=10 * at)
        out = manager.manual_compact("s", list(messages))
        messages = out if keeps else messages
    history = manager.session("s").folds
    assert list(range(1, 21)) == [fold.step for fold in history]
    assert sorted(fold.version for fold in history) == [fold.version for fold in history]
    starts, ends = [fold.range[0] for fold in history], [fold.range[1] for fold in history]
    assert sorted(starts) == starts
    assert sorted(set(ends)) == ends
    assert ["manual"] * 20 == [fold.reasons[0] for fold in history]


@pytest.mark.spec("L28")
def test_a_short_run_that_was_left_does_not_send_the_history_backwards() -> None:
    """A run too short to be worth a summary, folded later under pressure, starts no earlier than the fold before."""
    manager = managed(700, retention_window=2)
    messages = [*chat("suaa", words=6), *chat("uaaaaua", first=10)]
    messages = manager.manual_compact("s", messages)
    with suppress(InsufficientBudget):  # in the end the users' messages alone are too many
        for at in range(6):
            messages = manager.preflight("s", [*messages, *chat("uaatraa", first=30 + 10 * at)])
    starts = [fold.range[0] for fold in manager.session("s").folds]
    assert 3 <= len(starts)
    assert sorted(starts) == starts


# -- parameters at run time ------------------------------------------------------------------------------------------


@pytest.mark.spec("L30")
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("max_tokens", 512, 0),
        ("token_threshold", 5_000, -1),
        ("message_threshold", 40, -1),
        ("turn_threshold", 10, -3),
        ("retention_window", 8, 0),
        ("model", "small-model", ""),
        ("prompt", "Write like a clerk.", ""),
        ("summary_tag", "NOTES", "no tag!"),
    ],
)
def test_each_parameter_is_validated_and_changeable_at_run_time(name: str, good: Any, bad: Any) -> None:
    """A bad value is refused by name and changes nothing; a good one is flagged, then acknowledged with an event."""
    recorder = Recorder()
    manager = managed(sinks=[recorder])
    manager.preflight("s", chat("su"))
    before = manager.config
    with pytest.raises(ConfigError, match=name):
        manager.update(**{name: bad})
    assert (before, False) == (manager.config, manager.session("s").config_changed)
    manager.update(**{name: good})
    section = manager.config.policy if hasattr(manager.config.policy, name) else manager.config.summary
    assert (good, True) == (getattr(section, name), manager.session("s").config_changed)
    assert [] == recorder["config_changed"]
    manager.preflight("s", chat("sua"))
    assert [{"changed": {name: good}}] == [event.data for event in recorder["config_changed"]]
    assert not manager.session("s").config_changed


@pytest.mark.spec("L30")
def test_each_session_acknowledges_a_change_once() -> None:
    """The flag is the session's own: looking does not take it down, the next call does."""
    recorder = Recorder()
    manager = managed(sinks=[recorder])
    for session in ("a", "b"):
        manager.preflight(session, chat("su"))
    manager.update(retention_window=7)
    manager.should_compact("a", chat("su"))
    assert (True, True) == (manager.session("a").config_changed, manager.session("b").config_changed)
    for _ in range(2):
        manager.preflight("a", chat("su"))
    assert (False, True) == (manager.session("a").config_changed, manager.session("b").config_changed)
    assert ["a"] == [event.session_id for event in recorder["config_changed"]]


@pytest.mark.spec("L30")
def test_what_is_changed_reaches_the_summarizer() -> None:
    """Limit, model and prompt of the next request are the new ones."""
    model = ScriptedModel("short")
    manager = managed(model=model, retention_window=1)
    manager.update(max_tokens=99, model="small-model", prompt="Write like a clerk.")
    manager.manual_compact("s", chat("suaaaau", words=200))
    (ask,) = model.asks
    assert ask.max_tokens <= 99
    assert ("small-model", True) == (ask.model, "Write like a clerk." in ask.messages[0]["content"])


@pytest.mark.spec("L30")
def test_the_summary_tag_is_honoured_in_prompt_parsing_and_marker() -> None:
    """The model is told to answer inside it, only its inside is taken, and the marker carries it."""
    model = ScriptedModel("Sure! <NOTES>the inside</NOTES> Anything else?")
    manager = managed(model=model, retention_window=1)
    manager.update(summary_tag="NOTES")
    out = manager.manual_compact("s", chat("suaaaau"))
    assert "<NOTES> and </NOTES>" in model.asks[0].messages[0]["content"]
    assert "<NOTES v1>\nthe inside\n</NOTES>" == out[2]["content"]


@pytest.mark.spec("L30")
def test_the_default_tag_is_compact_summary() -> None:
    """The same, without a change."""
    model = ScriptedModel("Sure! <COMPACT-SUMMARY>the inside</COMPACT-SUMMARY> Anything else?")
    out = managed(model=model, retention_window=1).manual_compact("s", chat("suaaaau"))
    assert "<COMPACT-SUMMARY> and </COMPACT-SUMMARY>" in model.asks[0].messages[0]["content"]
    assert "<COMPACT-SUMMARY v1>\nthe inside\n</COMPACT-SUMMARY>" == out[2]["content"]


@pytest.mark.spec("L30", "S16")
def test_a_summary_under_an_old_tag_is_still_ours_after_the_tag_changed() -> None:
    """The next fold takes its facts over without the old marker, and leaves one summary."""
    model = ScriptedModel("first", "second")
    manager = managed(model=model, layout="layered", keep_recent_turns=1)
    out = manager.manual_compact("s", chat("suaaaaua"))
    manager.update(summary_tag="NOTES")
    out = manager.manual_compact("s", [*out, *chat("uaua", first=30)])
    assert [None, "first"] == [ask.previous for ask in model.asks]
    assert ["<NOTES v2>\nsecond\n</NOTES>"] == [m["content"] for m in out if str(m["content"]).startswith("<")]


@pytest.mark.spec("P2")
@pytest.mark.parametrize("layout", ["layered", "in_place", "rolling"])
@pytest.mark.parametrize("pattern", ["", "s", "sd", "u", "a", "aaaa", "saaaa", "t", "tr", "satrtr", "uuuu", "p", "sp"])
def test_no_conversation_is_too_odd(layout: str, pattern: str) -> None:
    """Empty, without a user, without an assistant: nothing raises, pins stay, and the system message stays first."""
    manager = managed(layout=layout, retention_window=1, keep_recent_turns=1, keep_tool_io_pairs=1, window_rounds=1)
    messages = chat(pattern)
    for verb in (manager.preflight, manager.manual_compact):
        out = verb("s", messages)
        assert [id(m) for m in messages if m["role"] in ("system", "developer")] == [
            id(m) for m in out[: sum(letter in "sd" for letter in pattern)]
        ]


# -- the laws themselves ---------------------------------------------------------------------------------------------


def said(letters: str) -> History:
    """A history, one letter per message: s system, u user, a assistant, t a call, r its result; ten tokens each."""
    kinds: dict[str, Message] = {
        "s": Message("system", "be", None),
        "u": Message("user", "do", None),
        "a": Message("assistant", "done", None),
        "t": Message("assistant", "", None, calls=(ToolCall("c", "look", "{}"),)),
        "r": Message("tool", "", None, answers=(ToolResult("c", "seen"),)),
    }
    return History([kinds[letter]._replace() for letter in letters], [10] * len(letters))


def case(letters: str, *slots: int | Fold | Clip, layout: Any = "in_place", **changes: Any) -> FoldCase:
    """A fold of such a history whose summary has five tokens; retention window 2."""
    before = said(letters)
    summary = Message("assistant", "<COMPACT-SUMMARY v1>", None)
    kept = [slot.index if isinstance(slot, Clip) else slot for slot in slots]
    after = History(
        [summary if isinstance(at, Fold) else before[at] for at in kept],
        [5 if isinstance(at, Fold) else 10 for at in kept],
        summaries=frozenset(at for at, slot in enumerate(slots) if isinstance(slot, Fold)),
    )
    policy = Policy(layout=layout, retention_window=2)
    good = FoldCase(before, Plan(slots, len(before)), after, slots, policy, fixed=3, budget=1_000, allowance=50)
    return replace(good, **changes)


GOOD = case("suaaua", 0, 1, Fold((2, 3)), 4, 5)
BROKEN: dict[str, FoldCase] = {
    "accounted": case("suaaua", 0, 1, Fold((2, 3)), 5),
    "identical": replace(GOOD, kept_identical=False),
    "pins": case("suaaua", Fold((0, 1, 2, 3)), 4, 5, layout="layered"),
    "pairs": case("sutrua", 0, 1, Fold((2,)), 3, 4, 5, layout="layered"),
    "open": case("suaat", 0, 1, Fold((2, 3, 4)), layout="layered"),
    "order": case("suaaua", 1, 0, Fold((2, 3)), 4, 5),
    "one summary": case("suaauaaua", 0, 1, Fold((2, 3)), 4, Fold((5, 6)), 7, 8, layout="rolling"),
    "in its place": case("suaaua", 0, 1, 4, Fold((2, 3)), 5),
    "users stay": case("suuaaua", 0, 1, Fold((2, 3, 4)), 5, 6),
    "window": case("suaaaa", 0, 1, Fold((2, 3, 4)), 5),
    "runs": case("suaaua", 0, 1, Fold((2,)), 3, 4, 5),
    "newest": case("suaaua", 0, 1, Fold((2, 3, 4)), 5, layout="layered"),
    "clips": case("suaaua", 0, 1, Fold((2, 3)), 4, Clip(5, 1)),
    "budget": replace(GOOD, budget=47),
    "smaller": replace(GOOD, after=History(GOOD.after.messages, [12] * 5)),
    "summary size": replace(GOOD, allowance=4),
    "valid": replace(GOOD, problems=("the provider says no",)),
}


def test_every_law_has_a_case_that_breaks_it() -> None:
    """No law is left out of the table above, and the rows they name are rows of the specification."""
    assert list(BROKEN) == [law.id for law in LAWS]
    assert {row[0] for law in LAWS for row in law.rows} <= set("SLETP")


@pytest.mark.spec("L04", "L10", "L13", "L19", "L21", "L27")
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.id)
def test_a_law_speaks_up_when_it_is_broken_and_only_then(law: Any) -> None:
    """A hand-made fold that breaks this law is the one it reports; a good fold passes."""
    assert law.broken(GOOD) is None
    assert law.broken(BROKEN[law.id])
    found = broken_law(BROKEN[law.id])
    assert found is not None


def test_a_good_fold_breaks_no_law() -> None:
    """The case from which the broken ones are made is sound."""
    assert broken_law(GOOD) is None


@pytest.mark.spec("L27")
def test_a_broken_law_never_reaches_the_model() -> None:
    """A `before_fold` that splits a pair is stopped: the list goes out as it came, and the trace says why."""
    recorder = Recorder()
    split = Plan((0, 1, Fold((2, 3)), 4, 5, 6, 7), 8)
    manager = managed(retention_window=2, before_fold=lambda plan: split, sinks=[recorder])
    messages = chat("suatraua")
    assert messages == manager.manual_compact("s", messages)
    assert ["LawViolation"] == [event.data["error_type"] for event in recorder["error"]]


def test_which_laws_wait_for_the_list() -> None:
    """A plan is judged before anything is archived or asked; these can only be seen in what came of it."""
    late = {"identical", "one summary", "budget", "smaller", "summary size", "valid"}
    assert late == {law.id for law in LAWS if law.judges == "list"}


def test_the_laws_are_numbered_and_worded_as_before() -> None:
    """People search for these words when a law is broken, so a change is made on purpose, here as well."""
    told = [f"{law.id} ({', '.join(law.rows)}): {law.says}" for law in LAWS]
    assert told == (GOLDEN / "laws.txt").read_text("utf-8").splitlines()
