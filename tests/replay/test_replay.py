"""The replay lab: what a run says, worked out by hand; runs that are torn, killed, or done by many; all formats."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from project_paths import environment
from provider_server import serving

from compact import CompactConfig
from compact.config.model_catalog import Caching
from compact.errors import ConfigError, LogError
from compact.importers import Conversation
from compact.replay import Comparison, Result, Setting, Trial, Window, processes, replay, summed
from compact.replay.comparison import best_edge
from compact.replay.executors import Task, TaskResults, run_task
from compact.replay.results import FORMAT
from compact.testing import chat, transcripts

DIALECTS = ("openai-chat", "openai-responses", "anthropic")
SMALL = Setting(Window(tokens=900), caching=Caching(0.5, least=0))
TRIALS = [Trial(name, CompactConfig(counter="chars", policy={"layout": name})) for name in ("layered", "rolling")]
ORDER, FILE = "ORD-77812", "/srv/app/deep/config.yaml"
GUARD = 60
"""Seconds after which a test has hung."""


def say(role: str, tokens: int, text: str = "") -> dict[str, Any]:
    """A message that weighs so many tokens by its characters: 3, its role, and a quarter of its text."""
    size = 4 * (tokens - 3 - len(role) // 4)
    return {"role": role, "content": (text + " " + "word " * size)[:size]}


def talk(messages: list[Any], id: str = "c", source: str = "talk.jsonl", **more: Any) -> Conversation:
    return Conversation(id, messages, source, "plain", **more)


def policy(window: int = 1_000_000, model: str = "gpt-4o", **sections: Any) -> Trial:
    """A policy that counts characters, so that people can."""
    return Trial("p", CompactConfig(model=model, counter="chars", max_context_tokens=window, **sections))


def result_of(conversation: Conversation, trial: Trial, setting: Setting | None = None) -> Result:
    with replay([conversation], [trial], setting) as lab:
        ((result,),) = lab
    return result


def report_of(conversations: Iterable[Conversation], **how: Any) -> tuple[Any, int]:
    """All that a run decides, and how many of its results were known before."""
    known: list[int] = []
    how.setdefault("progress", lambda done, before: known.append(before))
    with replay(conversations, TRIALS, SMALL, **how) as lab:
        return [decided(lab), comparison(summed(lab))], known[-1] if known else 0


def decided(lab: Iterable[list[Result]]) -> list[Any]:
    return [[result.decided() for result in results] for results in lab]


def comparison(compared: Comparison) -> Any:
    """A comparison without what was measured."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: bare(one) for name, one in value.items() if name != "measured"}
        return [bare(one) for one in value] if isinstance(value, list) else value

    return bare(compared.as_dict())


@cache
def whole(count: int) -> Any:
    """The report of a run in one go."""
    return report_of(talks(count))[0]


def talks(count: int) -> list[Conversation]:
    """Conversations that differ, and that fold at a window of 900."""
    return [talk(chat("s" + "utra" * 5, first=40 * n), f"talk {n}", f"{'ab'[n % 2]}.jsonl") for n in range(count)]


# -- calls, tokens, money ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_is_where_the_assistant_begins_to_speak(dialect: str) -> None:
    """What it says in several pieces, calls among them, is one answer; each result is followed by a call of its own."""
    result = result_of(talk(chat("sutraTrraaua", dialect=dialect)), policy())
    assert None is result.error
    assert 4 == result.calls == len(result.series) == len(result.seconds)
    assert sorted(result.series) == result.series == result.untouched_series
    assert 0 == result.folds == result.over == result.invalid


@pytest.mark.parametrize("messages", [[], chat("s"), chat("su"), chat("a")])
def test_a_conversation_without_a_call_costs_nothing(messages: list[Any]) -> None:
    result = result_of(talk(messages), policy())
    assert (None, 0, 0, 0.0, []) == (result.error, result.calls, result.sent, result.cost, result.series)


ROUNDS = [say("user", 2000), say("assistant", 100), say("user", 2000), say("assistant", 100), say("user", 2000)]
ROUNDS.append(say("assistant", 100))
# The reply's primer is 3 tokens, so the requests have 2,003, 4,103 and 6,203: 12,309 in all, and 300 are answered.
MONEY = {
    "no cache": (Setting(caching=None), "gpt-4o", None, 0, 12_309 * 2.5 + 3_000),
    # 2,003 tokens of the second request were in the first, and 4,103 of the third: whole steps of 128 are found.
    "OpenAI": (Setting(), "gpt-4o", None, 1_920 + 4_096, (12_309 - 6_016) * 2.5 + 6_016 * 1.25 + 3_000),
    # All that was not found is written, at a quarter more.
    "Anthropic": (Setting(), "claude-sonnet-4-5", None, 6_106, (6_106 * 0.1 + 6_203 * 1.25) * 3 + 300 * 15),
    "in time": (Setting(), "gpt-4o", (0, 9, 9, 300, 300, 600), 6_016, 6_293 * 2.5 + 6_016 * 1.25 + 3_000),
    # Between the second and the third call the cache has forgotten.
    "too late": (Setting(), "gpt-4o", (0, 9, 9, 300, 300, 601), 1_920, 10_389 * 2.5 + 1_920 * 1.25 + 3_000),
    # The first request is below the least that is cached, so the second finds nothing.
    "too short": (Setting(caching=Caching(0.5, least=4_000)), "gpt-4o", None, 4_103, (8_206 + 4_103 / 2) * 2.5 + 3_000),
    # What is not cached is not written either.
    "too short to write": (
        Setting(caching=Caching(0.1, 1.25, 4_000)),
        "gpt-4o",
        None,
        4_103,
        2.5 * (2_003 + 6_203 * 1.25 + 410.3) + 3_000,
    ),
    "a price of one's own": (Setting(caching=None, prices={"gpt-4o": (1, 2)}), "gpt-4o", None, 0, 12_309 + 600),
}


@pytest.mark.parametrize("row", MONEY)
def test_requests_cost_what_the_provider_takes(row: str) -> None:
    setting, model, times, cached, cost = MONEY[row]
    result = result_of(talk(ROUNDS, times=times), policy(model=model), setting)
    assert ([2_003, 4_103, 6_203], 12_309, cached) == (result.series, result.sent, result.cached)
    assert cost / 1e6 == pytest.approx(result.cost, abs=1e-6)
    assert result.cost == result.untouched_cost


def test_a_model_without_a_price_has_no_cost() -> None:
    with replay([talk(ROUNDS)], [policy(model="somebody's-own")]) as lab:
        (sums,) = summed(lab).policies
    assert (None, None, 12_309) == (sums.cost, sums.saved, sums.sent)


def test_a_fold_resets_the_cache() -> None:
    """After a fold only the instructions are found again; then, until the next, all of the request before."""
    messages = [say("system", 500), *(say(role, 300) for role in ("user", "assistant") * 10)]
    setting = Setting(caching=Caching(0.5, least=0))
    result = result_of(talk(messages), policy(4_000, policy={"hard_cap_buffer": 100}), setting)
    assert ([5, 7, 9], 3, 0) == (result.folded_at, result.folds, result.loops)
    assert [803, 1_403, 2_003, 2_603, 3_203] == result.series[:5] == result.untouched_series[:5]
    found = [503 if call in result.folded_at else result.series[call - 1] for call in range(1, 10)]
    assert sum(found) == result.cached
    answered = 10 * 300 * 10
    assert ((result.sent - result.cached / 2) * 2.5 + answered) / 1e6 == pytest.approx(result.cost, abs=1e-6)


# -- what does not fit -------------------------------------------------------------------------------------------------


def test_what_cannot_be_made_to_fit_is_over_and_refused() -> None:
    """Instructions larger than the window: every request would be refused, and nobody who asks is told anything."""
    messages = [say("system", 1_000), say("user", 50, ORDER), say("assistant", 50), say("user", 400)]
    messages.append(say("assistant", 50, ORDER))
    result = result_of(talk(messages), policy(900, policy={"hard_cap_buffer": 10}))
    assert (2, 2, 2, 2, 0) == (result.calls, result.over, result.refused, result.untouched_over, result.folds)
    assert (1_503, 1, 1) == (result.largest, result.needs, result.lost)


def test_a_fold_right_after_a_fold_is_a_loop() -> None:
    """A window that one round fills has to fold at every call."""
    messages = [say("system", 100), *(say(role, 330) for role in ("user", "assistant") * 6)]
    result = result_of(talk(messages), policy(1_000, policy={"hard_cap_buffer": 10}))
    assert result.folds == len(result.folded_at)
    assert sum(b - a == 1 for a, b in zip(result.folded_at, result.folded_at[1:], strict=False)) == result.loops > 0


@pytest.mark.parametrize("layout", ["layered", "in_place", "rolling"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_list_is_invalid(dialect: str, layout: str) -> None:
    conversation = talk(chat("s" + "utrTrra" * 6, dialect=dialect, words=30))
    result = result_of(
        conversation, policy(1_500, policy={"layout": layout, "token_threshold": 900, "hard_cap_buffer": 50})
    )
    assert (None, 0, []) == (result.error, result.invalid, result.problems)
    assert result.folds > 0
    assert result.sent < result.untouched_sent


def test_a_message_that_cannot_be_read_is_a_result() -> None:
    """It says which one, without what stands in it, and the others go on."""
    broken = talk([*chat("su"), {"role": "canary", "content": 5}, *chat("a")], "broken", "b.jsonl")
    with replay([broken, *talks(1)], TRIALS, SMALL) as lab:
        (bad, _), (good, _) = lab
        compared = summed(lab)
    assert "b.jsonl: message 2 cannot be read" in str(bad.error)
    assert (None, 1, 1) == (good.error, compared.policies[0].failed, compared.policies[0].conversations)
    assert ["broken under layered", "broken under rolling"] == [said.partition(":")[0] for said in compared.problems]


# -- what the agent needed ---------------------------------------------------------------------------------------------


def calling(**arguments: str) -> dict[str, Any]:
    function = {"name": "look_up", "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


FAR, NEAR = say("user", 500), say("user", 5)
NEEDS = {
    "told long before": (["hello", f"it is {ORDER}", FAR, f"I see {ORDER}"], 1),
    "told just now": (["hello", f"it is {ORDER} " + "and " * 30, NEAR, f"I see {ORDER}"], 0),
    "never told": (["hello", "it is late", FAR, f"I see {ORDER}"], 0),
    "told again just now": (["hello", f"it is {ORDER}", FAR, "fine", f"again {ORDER}", f"I see {ORDER}"], 0),
    "in the instructions": ([f"{ORDER} is open", f"it is {ORDER}", FAR, f"I see {ORDER}"], 0),
    "named twice in one answer": (["hello", f"it is {ORDER}", FAR, f"{ORDER}, yes, {ORDER}"], 1),
    "two things": (["hello", f"{ORDER} in {FILE}", FAR, f"{ORDER} in {FILE}"], 2),
    "a small number": (["hello", "about 12.5k", FAR, "about 12.5k"], 0),
    "a large number": (["hello", "room 4512", FAR, "room 4512"], 1),
    "an argument": (["hello", f"it is {ORDER}", FAR, calling(order=ORDER)], 1),
    "the name of a tool": (["hello", "try look_up then", FAR, calling(order="look_up")], 0),
    "a number in a long body": (["hello", "room 4512", FAR, calling(body="text " * 100 + "4512")], 0),
    "a path in a long body": (["hello", f"see {FILE}", FAR, calling(body="text " * 100 + FILE)], 1),
}


def spoken(words: list[Any]) -> list[Any]:
    roles = ["system", "user", "user", "assistant", "user", "assistant"]
    return [word if isinstance(word, dict) else {"role": role, "content": word} for role, word in zip(roles, words)]  # noqa: B905


@pytest.mark.parametrize("row", NEEDS)
def test_a_need_is_what_was_told_long_before(row: str) -> None:
    words, needs = NEEDS[row]
    result = result_of(talk(spoken(words)), policy())
    assert (None, needs, 0) == (result.error, result.needs, result.lost)


def test_what_stays_as_it_was_is_not_lost() -> None:
    """A fold of what came before takes nothing from the newest turn."""
    old = [say("system", 50), say("user", 500), say("assistant", 500), say("user", 500), say("assistant", 100)]
    result = {"role": "tool", "tool_call_id": "c1", "content": "word " * 300}
    new = [say("user", 100, f"Mind {ORDER} well"), calling(what="all"), result, say("assistant", 50, f"I use {ORDER}")]
    found = result_of(talk([*old, *new]), policy(2_000, policy={"hard_cap_buffer": 100, "keep_recent_turns": 1}))
    assert (None, [2], 1, 0) == (found.error, found.folded_at, found.needs, found.lost)


# What the summary says, what the agent used later, and whether it still had it.
SUMMARIES = {
    "the name": (f"The order {ORDER} is due.", ORDER, 0),
    "no name": ("An order is due.", ORDER, 1),
    "a longer name": (f"The order {ORDER}9 is due.", ORDER, 1),
    "the end of a path": ("They edit deep/config.yaml there.", FILE, 0),
    "only the file": ("They edit config.yaml there.", FILE, 1),
}


@pytest.mark.slow
def test_what_a_summary_keeps_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a real client and a server that says what the row says; the bill is by what the server counted."""
    monkeypatch.setenv("OPENAI_API_KEY", "of-no-use")
    with serving() as server:
        summary = {"provider": "openai", "base_url": f"{server.url}/v1", "model": "gpt-4o-mini", "min_score": 0}
        trial = policy(2_000, policy={"hard_cap_buffer": 100, "keep_recent_turns": 1}, summary=summary)
        for row, (says, used, lost) in SUMMARIES.items():
            server.says = says
            server.sizes.clear()
            told = [say("system", 50), say("user", 500, f"Mind {used} well"), say("assistant", 500)]
            rest = [say("user", 500), say("assistant", 100), say("user", 300), say("assistant", 50, f"I use {used}")]
            result = result_of(talk([*told, *rest]), trial)
            assert (None, [2], 0) == (result.error, result.folded_at, result.fallbacks), row
            assert (1, lost) == (result.needs, result.lost), row
            # It calls itself gpt-4o and counts 9 tokens of answer: 2.50 and 10 dollars a million.
            assert (sum(server.sizes) * 2.5 + 9 * 10) / 1e6 == pytest.approx(result.summaries, abs=1e-6), row
            assert result.cost is not None
            assert result.untouched_cost is not None
            if not lost:
                assert None is result.moment
                continue
            assert result.moment is not None
            ((name, message, words),) = result.moment.lost
            assert (used, 1, True) == (name, message, f"Mind {used} well" in words)
            assert (3, 6, 1, "SuauaU") == tuple(
                getattr(result.moment, field) for field in ("call", "message", "count", "shape")
            )
            assert (result.untouched_series[2], result.series[2]) == (result.moment.before, result.moment.after)
            assert says in result.moment.summary


# -- settings and sums -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("32000", Window(tokens=32_000)),
        ("32k", Window(tokens=32_000)),
        (" 1.5K ", Window(tokens=1_500)),
        ("25%", Window(share=0.25)),
        ("12,5 %", Window(share=0.125)),
        ("100%", Window(share=1.0)),
        *((text, None) for text in ("", "0", "511", "k", "-5k", "0%", "101%", "25%%", "much", "1e5", "32 k tokens")),
    ],
)
def test_a_window_is_tokens_or_a_share(text: str, expected: Window | None) -> None:
    if expected is None:
        with pytest.raises(ConfigError, match=r"512 up .* share \(25%\)"):
            Window.parse(text)
    else:
        assert expected == Window.parse(text)


def test_a_share_is_of_what_can_fold() -> None:
    """A quarter of 4,000 tokens besides the instructions, which are there in any case."""
    messages = [say("system", 1_000), *(say(role, 500) for role in ("user", "assistant") * 4)]
    result = result_of(talk(messages), policy(), Setting(Window(share=0.25)))
    assert 1_003 + 1_000 == result.window


@pytest.mark.parametrize(
    ("points", "edge"),
    [
        ({}, ""),
        ({"a": (1, 0.5)}, "a"),
        ({"a": (1, 0.5), "b": (2, 0.9), "c": (3, 0.9)}, "ab"),  # c is dearer than b and no better
        ({"a": (1, 0.5), "b": (1, 0.6)}, "b"),
        ({"b": (1, 0.5), "a": (1, 0.5)}, "ab"),  # alike: neither beats the other
        ({"a": (2, 0.9), "b": (1, 0.5), "c": (1.5, 0.4)}, "ba"),
        ({"a": (None, 0.9), "b": (2, None), "c": (9, 0.1)}, "c"),
    ],
)
def test_the_best_edge(points: dict[str, Any], edge: str) -> None:
    assert list(edge) == best_edge(points)


def test_sums_are_by_policy_and_by_source() -> None:
    with replay(talks(3), TRIALS, SMALL) as lab:
        rows, compared = list(lab), summed(lab)
    for column, sums in enumerate(compared.policies):
        results = [row[column] for row in rows]
        assert (3, 0) == (sums.conversations, sums.failed)
        for name in ("calls", "folds", "sent", "cached", "needs", "lost", "over", "untouched_sent"):
            assert sum(getattr(result, name) for result in results) == getattr(sums, name), name
        assert max(result.largest for result in results) == sums.largest
        assert sum(result.cost or 0 for result in results) == pytest.approx(sums.cost)
    assert {"a": 2, "b": 1} == {name: group[0].conversations for name, group in compared.groups.items()}
    assert [["layered", "rolling"]] * 3 == [
        [name for name in c.series if name != "untouched"] for c in compared.courses
    ]


@pytest.mark.parametrize("names", [[], ["same", "same"]])
def test_every_policy_has_a_name_of_its_own(names: list[str]) -> None:
    with pytest.raises(ConfigError, match="named same" if names else "no policy"):
        replay(talks(1), [Trial(name, CompactConfig()) for name in names])


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_any_conversation_can_be_replayed(dialect: str) -> None:
    """Whatever is said: numbers that agree with each other, no list that its provider refuses, and the same twice."""

    @settings(max_examples=25)
    @given(transcripts(dialect) | transcripts(dialect, broken=True))
    def holds(messages: list[Any]) -> None:
        if dialect == "anthropic":
            messages = [message for message in messages if message["role"] != "developer"]
        setting = Setting(Window(tokens=512), caching=Caching(0.5, least=0))
        with replay([talk(messages)], TRIALS, setting) as lab, replay([talk(messages)], TRIALS, setting) as again:
            (results,) = lab
            assert decided(lab) == decided(again)
        for result in results:
            assert (None, 0, []) == (result.error, result.invalid, result.problems)
            pairs = list(zip(result.series, result.untouched_series, strict=True))
            assert len(pairs) == result.calls
            assert all(sent <= max(untouched, result.window) for sent, untouched in pairs)
            assert sum(result.series) == result.sent >= result.cached
            assert sum(sent > 512 for sent in result.series) == result.over <= result.refused
            assert result.lost <= result.needs
            if result.folds == 0:
                assert (result.untouched_sent, result.untouched_cost) == (result.sent, result.cost)

    holds()


# -- runs that end before their time -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_file_of_results_may_be_torn_anywhere(tmp_path: Path) -> None:
    """Every whole line is known, the rest is run again, and the report is the same."""
    assert (whole(2), 0) == report_of(talks(2), folder=tmp_path)
    assert (whole(2), 4) == report_of(talks(2), folder=tmp_path)
    file = tmp_path / "results.jsonl"
    data = file.read_bytes()
    ends = [at + more for at, byte in enumerate(data) if byte == 10 for more in (0, 1)]

    @settings(max_examples=15)
    @given(st.integers(0, len(data)) | st.sampled_from(ends))
    def holds(cut: int) -> None:
        file.write_bytes(data[:cut])
        assert (whole(2), data[:cut].count(b"\n")) == report_of(talks(2), folder=tmp_path)
        assert 4 == file.read_bytes().count(b"\n")

    holds()
    file.write_bytes(data + b'{"torn": ' * 5_000)
    report_of([talk(chat("sua"))], folder=tmp_path)
    assert [True] * 6 == [line.endswith(b"}}\n") for line in file.read_bytes().splitlines(keepends=True)]


@pytest.mark.slow
def test_a_line_of_another_format_is_run_again(tmp_path: Path) -> None:
    """Of six lines one is as it should be."""
    report_of(talks(3), folder=tmp_path)
    file = tmp_path / "results.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines[0] = lines[0].replace(b'{"format": %d' % FORMAT, b'{"format": 0')
    lines[1] = lines[1].replace(b'"conversation"', b'"konversation"')
    lines[2] = b"\xff" + lines[2]
    lines[3] = b"[]\n"
    lines[4] = b'{"format": %d, "key": "k", "result": 5}\n' % FORMAT
    file.write_bytes(b"".join(lines))
    assert (whole(3), 1) == report_of(talks(3), folder=tmp_path)


def test_a_log_that_is_named_twice_is_run_once() -> None:
    """Also when it comes again before the first time is done."""

    def hasty(tasks: Iterable[Task]) -> Iterator[TaskResults]:
        return map(run_task, list(tasks))

    (_, compared), known = report_of([*talks(1), *talks(1)], engine=hasty)
    assert (2, 2) == (known, compared["policies"][0]["conversations"])


def test_whatever_decides_a_result_is_part_of_its_key(tmp_path: Path) -> None:
    """Another model, another file, another moment: none of them is known from the run before."""
    (one,) = talks(1)
    report_of([one], folder=tmp_path)
    for change in ({"model": "gpt-4.1"}, {"source": "c.jsonl"}, {"times": tuple(range(len(one.messages)))}):
        assert 0 == report_of([replace(one, **change)], folder=tmp_path)[1], change  # type: ignore[arg-type]
    assert 2 == report_of([one], folder=tmp_path)[1]


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path) -> None:
    first, refused = (
        replay([], TRIALS, folder=tmp_path),
        pytest.raises(LogError, match="another run writes its results"),
    )
    with first, refused:
        replay([], TRIALS, folder=tmp_path)
    replay([], TRIALS, folder=tmp_path).close()


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match=r"results cannot be stored there .*; name another folder"):
        replay([], TRIALS, folder=tmp_path / "file")


@pytest.mark.slow
@pytest.mark.untraced
def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """Nothing that was done is done again, the report is that of a run in one go, and no worker is left behind."""
    folder = tmp_path / "run"
    # Not this file as the program: every worker would import it as well.
    code = "import sys, test_replay; test_replay.endless(sys.argv[1])"
    run = subprocess.Popen([sys.executable, "-c", code, str(folder)], env=finding_tests())
    file = folder / "results.jsonl"
    wait_for(lambda: file.exists() and file.read_bytes().count(b"\n") > 2)
    workers = [int(pid) for pid in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()]
    run.kill()
    assert -signal.SIGKILL == run.wait()
    wait_for(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in workers))
    done = file.read_bytes().count(b"\n")
    assert 2 < done < 20
    assert (whole(10), done) == report_of(talks(10), folder=folder)


def finding_tests() -> dict[str, str]:
    """The environment of a process that can import this module."""
    return environment(Path(__file__).parent)


def endless(folder: str) -> None:
    """The run that is killed: its logs have no end."""

    def logs() -> Iterator[Conversation]:
        yield from talks(9)
        signal.pause()

    report_of(logs(), engine=processes(2), folder=Path(folder))


def wait_for(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GUARD
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Deadly(Conversation):
    """A conversation that kills every process that it is sent to."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        return os._exit, (9,)


@pytest.mark.slow
@pytest.mark.untraced
def test_a_worker_that_dies_loses_nothing() -> None:
    """One is killed from outside; and one conversation kills its worker whenever it is tried, which is its result."""
    good = talks(10)
    deadly = Deadly("deadly", good[0].messages, "d.jsonl", "plain")
    killed: list[int] = []

    def kill_one(done: int, known: int) -> None:
        if not killed:
            pid = multiprocessing.active_children()[0].pid
            assert pid is not None
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    with replay([*good[:3], deadly, *good[3:]], TRIALS, SMALL, engine=processes(2), progress=kill_one) as lab:
        results = list(lab)
    assert whole(10)[0] == decided([row for row in results if row[0].conversation != "deadly"])
    assert 1 == len(killed)
    assert {"its process died 3 times; it may need more memory than is free"} == {one.error for one in results[3]}


def test_a_log_that_cannot_be_read_ends_the_run_with_its_sentence(tmp_path: Path) -> None:
    """What was done until then is kept."""

    def torn() -> Iterator[Conversation]:
        yield from talks(1)
        raise LogError("line 2 is damaged")

    with pytest.raises(LogError, match="line 2 is damaged"):
        replay(torn(), TRIALS, SMALL, folder=tmp_path)
    assert 2 == report_of(talks(1), folder=tmp_path)[1]
