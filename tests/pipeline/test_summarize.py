"""The chain from a request to a summary, through the manager: judged, measured, repaired, asked again, given up."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from compact import Ask, CompactConfig, CompactManager
from compact._conversation.tables import encoding
from compact.errors import (
    ArchiveError,
    BadSummary,
    ContentFilter,
    ModelUnavailable,
    SummaryError,
    SummaryTimeout,
    TokenLimitExceeded,
)
from compact.testing import Recorder, ScriptedModel

MARK = "<COMPACT-SUMMARY v"
Messages = list[dict[str, Any]]


def counted(text: str) -> int:
    return len(encoding("o200k_base").encode_ordinary(text))


def talk(turns: int, first: int = 0) -> Messages:
    """A conversation with something to keep in every turn."""
    messages: Messages = []
    for n in range(first, first + turns):
        call = {"name": "edit", "arguments": json.dumps({"path": f"src/shop/lamp_{n}.py", "new_string": f"oil = {n}"})}
        messages += [
            {"role": "user", "content": f"Fill lamp LP-{n:04} with oil. You must never light it before {n % 12} pm."},
            {"role": "assistant", "content": f"We fill LP-{n:04} first, because goal g-{n:03}a waits for it.",
             "tool_calls": [{"id": f"c{n}", "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"ok, warning W-{n:04} ignored\n" + "a wick. " * 20},
            {"role": "assistant", "content": f"LP-{n:04} is filled; the wick of lamp {n} has been trimmed."},
        ]  # fmt: skip
    return messages


class Bench:
    """A manager with a scripted model and a recorder beside it."""

    def __init__(self, *answers: Any, window: int = 3_000, store: Path | None = None, **settings: Any) -> None:
        self.model = answers[0] if answers and isinstance(answers[0], ScriptedModel) else ScriptedModel(*answers)
        self.seen = Recorder()
        storage = {"adapter": "none"} if store is None else {"adapter": "fs", "path": str(store)}
        policy = {"hard_cap_buffer": 100, "keep_recent_turns": 2, "keep_tool_io_pairs": 1, **settings.pop("policy", {})}
        config = CompactConfig(max_context_tokens=window, storage=storage, policy=policy, **settings)
        self.manager = CompactManager(config, summarizer=self.model, sinks=[self.seen])

    def fold(self, messages: Messages | None = None) -> Messages:
        """Compact now; the list that comes back."""
        return list(self.manager.manual_compact("s", messages or talk(12)))

    @property
    def body(self) -> str:
        """The newest summary."""
        return str(self.seen["summary_created"][-1].data["summary"])

    @property
    def steps(self) -> list[tuple[str, str]]:
        """Each failure with what was done about it."""
        return [(event.data["error_type"], event.data["fallback"]) for event in self.seen["error"]]


def summaries(messages: Messages) -> list[str]:
    return [str(m["content"]) for m in messages if str(m.get("content")).startswith(MARK)]


# -- the report --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("L15", "S19")
def test_every_fold_has_a_report(tmp_path: Path) -> None:
    """It is in the event, on the session, in its history and in the archive, and it survives a restart."""
    bench = Bench("lamps", store=tmp_path)
    bench.fold()
    (created,) = bench.seen["summary_created"]
    view = bench.manager.session("s")
    assert view.report is not None
    assert view.report is view.folds[-1].report
    plain = json.loads(json.dumps(view.report.as_dict()))
    assert plain == created.data["report"]
    (path,) = tmp_path.rglob("summary-001.json")
    assert plain == json.loads(path.read_text())["report"]
    bench.manager.close()
    again = Bench("lamps", store=tmp_path).manager.session("s")
    assert view.report == again.report == again.folds[-1].report


def test_a_record_without_a_report_loads(tmp_path: Path) -> None:
    """A fold that nothing was reported of comes back, with no report."""
    bench = Bench("lamps", store=tmp_path)
    bench.fold()
    bench.manager.close()
    (path,) = tmp_path.rglob("summary-001.json")
    record = json.loads(path.read_text())
    record["report"] = None
    path.write_text(json.dumps(record))
    view = Bench("lamps", store=tmp_path).manager.session("s")
    assert (1, None) == (len(view.folds), view.report)


@pytest.mark.spec("L15")
def test_a_weak_summary_is_repaired() -> None:
    """What the model forgot stands below its text, within the limit, and the report says how much that was."""
    bench = Bench("The lamps are being filled.", summary={"max_tokens": 300}, window=20_000)
    out = bench.fold()
    report = bench.manager.session("s").report
    assert bench.body.startswith("The lamps are being filled.\nFacts\n- ")
    assert counted(bench.body) <= 300
    assert bench.body in summaries(out)[0]
    assert report is not None
    assert report.score >= 70
    assert report.repaired > report.kept
    assert () == report.unkept_kinds


@pytest.mark.spec("L15")
def test_a_faithful_summary_is_left_alone() -> None:
    """A summary that keeps what mattered goes out as it was written."""

    def copy(ask: Ask) -> str:
        return "\n".join(message.text for message in ask.source if message.text)[: ask.max_tokens * 3]

    bench = Bench(copy, window=20_000)
    bench.fold(talk(3))
    assert "Facts" not in bench.body
    report = bench.manager.session("s").report
    assert report is not None
    assert (0, True) == (report.repaired, report.score >= 70)


def test_repair_can_be_switched_off() -> None:
    """With `min_score` 0 the model may use the whole limit, and its text, measured all the same, stays as it is."""
    bench = Bench("lamps", summary={"min_score": 0, "max_tokens": 300}, window=20_000)
    bench.fold()
    report = bench.manager.session("s").report
    assert ("lamps", 300) == (bench.body, bench.model.asks[0].max_tokens)
    assert report is not None
    assert report.score < 10


@pytest.mark.parametrize("answer", ["lamps", ModelUnavailable("nobody there")])
def test_measuring_can_be_switched_off(answer: Any) -> None:
    """With `measure` off there is no report, no repair and no refusal, whatever became of the summary."""
    summary = {"measure": False, "refuse_below": 90, "max_tokens": 300, "max_retries": 0}
    bench = Bench(answer, summary=summary, window=20_000)
    bench.fold()
    assert 300 == bench.model.asks[0].max_tokens
    assert bench.manager.session("s").folds[-1].folded
    assert bench.manager.session("s").report is None
    if answer == "lamps":
        assert ("lamps", [None]) == (bench.body, [event.data["report"] for event in bench.seen["summary_created"]])


def test_a_model_leaves_room_for_repair() -> None:
    """It is asked for less than the limit, and an answer between the two is taken."""
    words = " ".join(f"lamp {n} of room {n + 7}," for n in range(200)).split()
    bench = Bench(
        lambda ask: " ".join(words[: ask.max_tokens * 3 // 4]) + ".", summary={"max_tokens": 300}, window=20_000
    )
    bench.fold()
    (ask,) = bench.model.asks
    assert 180 == ask.max_tokens
    assert 180 < counted(" ".join(words[: ask.max_tokens * 3 // 4])) <= 300
    assert bench.body.startswith("lamp 0 of room 7,")
    assert counted(bench.body) <= 300


@pytest.mark.spec("L15")
def test_inventions_are_reported() -> None:
    """What stands nowhere in the input is named, and a false citation is taken out."""
    bench = Bench("Lamp LP-9999 is lit [#4711]; LP-0000 is filled [#0].")
    bench.fold()
    report = bench.manager.session("s").report
    assert report is not None
    assert ("LP-9999", "[#4711]") == report.invented
    assert bench.body.startswith("Lamp LP-9999 is lit; LP-0000 is filled [#0].")


@pytest.mark.spec("L14", "L15")
@pytest.mark.parametrize(("on_failure", "summary"), [("prune", 0), ("extract", 1), ("raise", 0)])
def test_a_summary_below_the_bar_has_failed(on_failure: str, summary: int) -> None:
    """Repaired and still below `refuse_below`: given up after one call, with the figures, and the fallback taken."""
    settings = {"max_tokens": 40, "refuse_below": 99}
    bench = Bench("lamps are lit", summary=settings, policy={"on_failure": on_failure}, window=20_000)
    if on_failure == "raise":
        with pytest.raises(BadSummary, match=r"keeps [\d.]+ of 100 .* summary\.refuse_below 99"):
            bench.fold()
    else:
        out = bench.fold()
        assert summary == len(summaries(out)) or on_failure == "extract"
    assert 1 == len(bench.model.asks)
    assert "BadSummary" == bench.steps[0][0]
    assert [] == [step for step in bench.steps if step[1] == "half the size"]


def test_pruning_alone_is_measured_too() -> None:
    """Without a summary the report says what is gone."""
    bench = Bench(ModelUnavailable("nobody there"), summary={"max_retries": 0})
    bench.fold()
    report = bench.manager.session("s").report
    assert report is not None
    assert (0.0, 0) == (report.score, report.kept)
    assert report.lost > 10


def test_several_summaries_make_one_report() -> None:
    """`in_place` folds run by run; the report is over all of them."""
    policy = {"layout": "in_place", "retention_window": 2, "token_threshold": 500}
    bench = Bench("lamps", policy=policy, window=20_000)
    bench.fold(talk(6))
    reports = [event.data["report"] for event in bench.seen["summary_created"]]
    joined = bench.manager.session("s").report
    assert len(reports) > 1
    assert joined is not None
    assert sum(report["repaired"] for report in reports) == joined.repaired


@pytest.mark.spec("E4")
def test_a_shrunk_context_is_measured_against_what_folded() -> None:
    """`rolling` shrinks what has grown too long; the report is about what is left, not about the step before."""
    grown = "filled lamps: " + ", ".join(f"LP-{n:04} in room {n}" for n in range(12))
    bench = Bench(
        grown,
        "lamps",
        policy={"layout": "rolling", "window_rounds": 2},
        summary={"context_max_tokens": 40},
        window=20_000,
    )
    bench.fold()
    assert ["create", "shrink"] == [ask.kind for ask in bench.model.asks]
    report = bench.manager.session("s").report
    assert report is not None
    assert report.lost > 10


def test_a_repair_does_not_make_rolling_shrink() -> None:
    """The room of a compressed context is not filled beyond its own limit: one call, no second pass."""
    policy = {"layout": "rolling", "window_rounds": 2}
    bench = Bench("lamps", policy=policy, summary={"context_max_tokens": 200}, window=20_000)
    bench.fold()
    assert ["create"] == [ask.kind for ask in bench.model.asks]
    assert 150 < counted(bench.body) <= 200


@pytest.mark.spec("L15")
def test_the_offline_summarizer_is_measured_like_any_other() -> None:
    """Its summary has a report, and needs little repair."""
    config = CompactConfig(max_context_tokens=20_000, storage={"adapter": "none"}, policy={"keep_recent_turns": 1})
    with CompactManager(config) as manager:
        manager.manual_compact("s", talk(12))
        report = manager.session("s").report
    assert report is not None
    assert report.score >= 70
    assert () == report.invented


# -- what is carried on ------------------------------------------------------------------------------------------------


@pytest.mark.spec("S16", "E3")
@pytest.mark.parametrize("forgets", [True, False])
def test_five_folds_keep_what_mattered_at_the_first(forgets: bool) -> None:
    """After five chained folds, with a model that forgets everything or with none, 9 of 10 first facts are there."""
    model = ScriptedModel(lambda ask: f"Notes {len(model.asks)}: the lamps are being filled.") if forgets else None
    config = CompactConfig(max_context_tokens=12_000, storage={"adapter": "none"}, policy={"keep_recent_turns": 1})
    planted = [f"You must never move lamp KEEP-{n:02} out of room {n}{n}." for n in range(1, 11)]
    planted += [f"We go with plan g-{n:02}keep because shelf {n}{n} is full." for n in range(1, 11)]
    with CompactManager(config, summarizer=model) as manager:
        mine: Messages = [{"role": "user", "content": " ".join(planted[:10])}]
        mine += [{"role": "assistant", "content": " ".join(planted[10:])}]
        for fold in range(5):
            mine = list(manager.manual_compact("s", [*mine, *talk(12, first=100 * fold)]))
        (summary,) = summaries(mine)
    ids = [*(f"KEEP-{n:02}" for n in range(1, 11)), *(f"g-{n:02}keep" for n in range(1, 11))]
    there = [name for name in ids if re.search(rf"\b{name}\b", summary)]
    assert len(there) >= 18


@pytest.mark.spec("S06")
@pytest.mark.parametrize("offline", [True, False])
def test_every_citation_resolves_to_what_it_cites(tmp_path: Path, offline: bool) -> None:
    """Three folds on, each cited line leads, through the archive, to the messages that hold its facts."""
    config = CompactConfig(
        max_context_tokens=12_000,
        storage={"path": str(tmp_path)},
        policy={"keep_recent_turns": 1, "keep_tool_io_pairs": 1},
    )
    model = None if offline else ScriptedModel(lambda ask: "The lamps are being filled.")
    with CompactManager(config, summarizer=model) as manager:
        mine: Messages = [{"role": "system", "content": "You fill lamps."}]
        for fold in range(3):
            mine = list(manager.manual_compact("s", [*mine, *talk(8, first=10 * fold)]))
        (summary,) = summaries(mine)
        cited = [line for line in summary.splitlines() if "[#" in line]
        assert len(cited) > 10
        assert {line for line in cited if "LP-0001" in line}  # the first fold is still there
        for line in cited:
            found = manager.recall("s", cite=line)
            assert found
            held = json.dumps([one.message for one in found])
            names = set(re.findall(r"LP-\d{4}|g-\d{3}a|lamp_\d+\.py|W-\d{4}", line))
            assert {name for name in names if name not in held} == set()


@pytest.mark.spec("S06")
def test_a_citation_leads_to_the_message_and_not_to_its_summary(tmp_path: Path) -> None:
    """A summary stands where the last message it replaced stood; who cites that place means the message."""
    with Bench("lamps", store=tmp_path).manager as manager:
        mine = list(manager.manual_compact("s", talk(12)))
        last = manager.session("s").folds[0].range[1]
        manager.manual_compact("s", [*mine, *talk(12, first=50)])
        (found,) = manager.recall("s", cite=f"[#{last}]")
        assert (last, 1, talk(12)[last]) == (found.position, found.step, found.message)


@pytest.mark.spec("S06")
def test_a_citation_of_nothing(tmp_path: Path) -> None:
    """A text without a citation is an error; positions that never were give nothing."""
    with Bench("lamps", store=tmp_path).manager as manager:
        manager.manual_compact("s", talk(12))
        assert ["Fill lamp LP-0001 with oil. You must never light it before 1 pm."] == [
            found.message["content"] for found in manager.recall("s", cite="as said [#4]")
        ]
        assert [] == manager.recall("s", cite="[#4711]")
        with pytest.raises(ArchiveError, match=r"no citation in the 7 characters given"):
            manager.recall("s", cite="nothing")


# -- failures ----------------------------------------------------------------------------------------------------------


PROMPT = "the prompt"
RUBBISH: dict[str, Any] = {
    "empty": "",
    "blanks": " \n\t ",
    "punctuation": "... --- ...",
    "its own error text": "Error: 503 Service Unavailable. Please try again later.",
    "an error object": '{"error": {"message": "overloaded", "type": "server_error", "code": 503}}',
    "a refusal": "I'm sorry, but I can't help with that request.",
    "a refusal in another language": "Es tut mir leid, aber dabei kann ich nicht helfen.",
    "a page": "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>",
    "a tool call": '{"name": "edit", "arguments": {"path": "src/shop/lamp_1.py"}}',
    "a tool call in a list": '[{"type": "tool_use", "name": "edit", "input": {"path": "a"}}]',
    "the prompt back": PROMPT,
    "the transcript back": lambda ask: ask.messages[1]["content"].split("MESSAGES TO FOLD IN:\n")[1][:1500],
    "ten times too long": lambda ask: "a lamp and another wick " * ask.max_tokens * 3,
    "cut off": lambda ask: (
        "<COMPACT-SUMMARY>\n- filled lamp " + ", lamp ".join(map(str, range(ask.max_tokens // 3))) + ","
    ),
    "a loop": "the lamp is lit and " * 60,
    "one line again and again": "- fill the lamp\n" * 20,
    "headings only": "Goals\n\nRules\n\nOpen",
    "noise": "UEsDBBQABgAIAAAAIQDfpNJsWgEAACAFAAATAAgCW0NvbnRlbnRfVHlwZXNdLnhtbCCiBAIooAACAAAA" * 6,
    "binary": "\x00\x01\x02\x7fELF\x02\x01\x01\x00\x00\x00" * 10,
    "an answer to the user": "User: fill it\nAssistant: I will fill the lamp now.\nUser: thanks\nAssistant: Welcome.",
    "no text at all": None,
    "a number": 7,
    "an exception": RuntimeError("segfault in the tokenizer"),
    "a broken connection": ConnectionResetError("reset by peer"),
    "not smaller": lambda ask: "\n".join(message.text for message in ask.source) * 40,
}


def answering(rubbish: Any) -> Callable[[Ask], Any]:
    """A summarizer that always gives this answer."""

    def answer(ask: Ask) -> Any:
        if isinstance(rubbish, Exception):
            raise rubbish
        if rubbish is PROMPT:
            return "\n\n".join(message["content"] for message in ask.messages)[: ask.max_tokens * 3]
        return rubbish(ask) if callable(rubbish) else rubbish

    return answer


@pytest.mark.slow
@pytest.mark.spec("T18", "S31", "S32", "S33", "L14")
@pytest.mark.parametrize("name", RUBBISH)
@pytest.mark.parametrize("on_failure", ["prune", "extract"])
def test_history_is_never_replaced_by_rubbish(name: str, on_failure: str) -> None:
    """Whatever a summarizer returns, the fold completes, the right error is told, and none of it is in the list."""
    asked: list[Ask] = []
    answer = answering(RUBBISH[name])
    recorder = Recorder()
    config = CompactConfig(
        max_context_tokens=3_000,
        storage={"adapter": "none"},
        policy={"hard_cap_buffer": 100, "keep_recent_turns": 2, "keep_tool_io_pairs": 1, "on_failure": on_failure},
        summary={"max_retries": 1},
    )
    with CompactManager(config, summarizer=lambda ask: asked.append(ask) or answer(ask), sinks=[recorder]) as manager:
        history = talk(12)
        out = list(manager.manual_compact("s", history))
        fold = manager.session("s").folds[0]
    assert len(out) < len(history)
    assert (1 if on_failure == "extract" else 0) == len(summaries(out))
    assert ("extract" if on_failure == "extract" else "pruning-only") == fold.fallback
    types = [event.data["error_type"] for event in recorder["error"]]
    refused = "refusal" in name
    broken = name in ("no text at all", "a number", "an exception", "a broken connection")
    assert {"ContentFilter" if refused else "ModelUnavailable" if broken else "BadSummary"} == set(types)
    assert (2 if refused or broken else 3) == len(asked) == len(types)
    if refused:
        assert ["task_state", "brief"] == [ask.strategy for ask in asked]
    if isinstance(RUBBISH[name], str) and len(RUBBISH[name]) > 20:
        assert RUBBISH[name][:40] not in json.dumps(out, ensure_ascii=False)
        assert [] == [e for e in recorder["error"] if RUBBISH[name][:40] in e.data["message"]]


@pytest.mark.spec("T18", "L17")
@pytest.mark.parametrize("name", ["preflight", "apreflight"])
def test_a_hang_is_a_timeout(name: str) -> None:
    """A summarizer that never answers is given up after its time, and the fold completes."""

    async def hangs(ask: Ask) -> str:
        await asyncio.sleep(60)
        return "late"

    recorder = Recorder()
    config = CompactConfig(
        max_context_tokens=3_000,
        storage={"adapter": "none"},
        policy={"hard_cap_buffer": 100, "keep_recent_turns": 2},
        summary={"timeout": 0.2, "max_retries": 0},
    )
    with CompactManager(config, summarizer=hangs, sinks=[recorder]) as manager:
        verb = getattr(manager, name)
        out = asyncio.run(verb("s", talk(20))) if name == "apreflight" else verb("s", talk(20))
    assert ["SummaryTimeout"] == [event.data["error_type"] for event in recorder["error"]]
    assert [] == summaries(out)
    assert len(out) < 80


@pytest.mark.spec("T19")
@pytest.mark.parametrize("on_failure", ["prune", "extract", "raise"])
def test_a_summarizer_that_never_shrinks_is_paid_three_times(on_failure: str) -> None:
    """At most three calls, and none again until something new can fold."""
    bench = Bench("word " * 5_000, policy={"on_failure": on_failure})
    history = talk(20)
    for _ in range(5):
        try:
            bench.manager.preflight("s", history)
        except SummaryError:
            assert "raise" == on_failure
    first, *others = [ask.max_tokens for ask in bench.model.asks]
    assert [first // 2, first // 4] == others


@pytest.mark.parametrize(("end", "steps"), [("</compact-summary>", []), ("", ["half the size"])])
def test_an_answer_that_never_ends_has_no_more_room_than_the_model_was_given(end: str, steps: list[str]) -> None:
    """One that ends may fill what is kept for a repair; one that does not has run into the limit of its call."""

    def model(ask: Ask) -> str:
        words = (f"Lamp LP-{n:04} was filled on day {n} and burns. " for n in range(400))
        return next(text for text in accumulate(words) if counted(text) > ask.max_tokens + 40)

    answers = [lambda ask: f"<compact-summary>{model(ask)}{end}", "The lamps are being filled."]
    bench = Bench(*answers, summary={"max_tokens": 400}, window=60_000)
    bench.fold(talk(60))
    assert [("BadSummary", step) for step in steps] == bench.steps


@pytest.mark.spec("L17")
@pytest.mark.parametrize(
    ("error", "calls", "steps"),
    [
        (SummaryTimeout("slow"), 3, ["retry", "retry", "pruning-only"]),
        (ModelUnavailable("down"), 3, ["retry", "retry", "pruning-only"]),
        (ModelUnavailable("no such model", retryable=False), 1, ["pruning-only"]),
        (ContentFilter("no"), 2, ["brief", "pruning-only"]),
        (BadSummary("cut off"), 3, ["half the size", "half the size", "pruning-only"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_error_has_its_chain(error: SummaryError, calls: int, steps: list[str]) -> None:
    """Errors are typed; a fallback comes only after the retries that the error is allowed, and it completes."""
    bench = Bench(error, summary={"max_retries": 2})
    out = bench.fold()
    assert calls == len(bench.model.asks)
    assert [(type(error).__name__, step) for step in steps] == bench.steps
    assert ("completed", []) == (bench.manager.session("s").state, summaries(out))


@pytest.mark.spec("L17")
@pytest.mark.parametrize(
    "error", [SummaryTimeout("slow"), ModelUnavailable("down"), ContentFilter("no"), "word " * 9_000]
)
def test_the_fallback_may_be_a_summary(error: Any) -> None:
    """With `extract` the fold ends with a summary that is not empty, measured like any other."""
    bench = Bench(error, policy={"on_failure": "extract"}, summary={"max_retries": 0}, window=20_000)
    (summary,) = summaries(bench.fold())
    assert "LP-0003" in summary
    report = bench.manager.session("s").report
    assert report is not None
    assert report.score > 50
    assert "extract" == bench.manager.session("s").folds[0].fallback


@pytest.mark.spec("L17")
def test_an_answer_after_failures_is_taken() -> None:
    """Retries are not the end: the first usable answer is the summary."""
    bench = Bench(ModelUnavailable("down"), SummaryTimeout("slow"), "The lamps are being filled.")
    (summary,) = summaries(bench.fold())
    assert "The lamps are being filled." in summary
    assert [("ModelUnavailable", "retry"), ("SummaryTimeout", "retry")] == bench.steps
    assert bench.manager.session("s").folds[0].fallback is None


@pytest.mark.spec("L14")
@pytest.mark.parametrize("ratio", [0.0, 0.5, 0.9])
def test_an_accepted_summary_keeps_every_promise(ratio: float) -> None:
    """Repaired or not: not empty, within max_tokens, smaller than what it replaces, and saving what is asked for."""
    bench = Bench("lamps", summary={"max_tokens": 400, "min_compression_ratio": ratio}, window=20_000)
    bench.fold(talk(5))
    (created,) = bench.seen["summary_created"]
    assert 0 < created.data["summary_tokens"] <= 400
    assert created.data["compression_ratio"] >= ratio
    assert counted(bench.body) == created.data["summary_tokens"]


# -- larger than the summarizer's window -------------------------------------------------------------------------------


def fits(ask: Ask, window: int) -> bool:
    return sum(counted(message["content"]) for message in ask.messages) + ask.max_tokens <= window


@pytest.mark.spec("T20")
@pytest.mark.parametrize("window", [2_000, 4_000, 9_000])
def test_a_large_fold_goes_in_parts(window: int) -> None:
    """Each call fits the summarizer's window, takes the notes of the one before along, and all of it is told once."""
    bench = Bench(
        lambda ask: f"Notes {len(bench.model.asks)} on lamps up to #{ask.positions[-1]}.",
        summary={"max_input_tokens": window, "max_tokens": 400},
        window=60_000,
    )
    (summary,) = summaries(bench.fold(talk(60)))
    asks = bench.model.asks
    assert len(asks) > 1
    assert [] == [ask for ask in asks if not fits(ask, window)]
    for number, ask in enumerate(asks[1:], 1):
        assert ask.previous == f"Notes {number} on lamps up to #{asks[number - 1].positions[-1]}."
    positions = [position for ask in asks for position in dict.fromkeys(ask.positions)]
    assert sorted(positions) == positions
    assert f"Notes {len(asks)} on lamps" in summary
    (created,) = bench.seen["summary_created"]
    assert len(set(positions)) == created.data["input_messages"]
    report = bench.manager.session("s").report
    assert report is not None
    assert report.repaired > 0  # over the whole, not over the last part


@pytest.mark.spec("T20")
def test_a_window_nobody_told_us_about() -> None:
    """A model that says the request is too large gets it in parts of half the size, and half of that."""
    limit = 3_000

    def model(ask: Ask) -> str:
        if not fits(ask, limit):
            raise TokenLimitExceeded(f"more than {limit} tokens")
        return "The lamps are being filled."

    bench = Bench(ScriptedModel(model), summary={"max_tokens": 400}, window=60_000)
    (summary,) = summaries(bench.fold(talk(60)))
    assert "The lamps are being filled." in summary
    assert {("TokenLimitExceeded", "smaller parts")} == set(bench.steps)
    assert 2 <= len(bench.steps) <= 3


@pytest.mark.spec("T20", "L17")
def test_a_window_that_nothing_fits() -> None:
    """After three times smaller parts it is given up, typed, and the fold completes."""
    bench = Bench(TokenLimitExceeded("no"), summary={"max_tokens": 400}, window=90_000)
    assert [] == summaries(bench.fold(talk(300)))
    assert ["smaller parts"] * 3 + ["pruning-only"] == [step for _, step in bench.steps]
    assert {"TokenLimitExceeded"} == {error for error, _ in bench.steps}
    assert 4 == len(bench.model.asks)
    told = Bench("lamps", summary={"max_input_tokens": 300}, window=60_000)
    assert [] == summaries(told.fold(talk(60)))
    assert [("TokenLimitExceeded", "pruning-only")] == told.steps
    assert [] == told.model.asks
    assert re.search(r"raise summary\.max_input_tokens to at least [\d,]+", told.seen["error"][0].data["message"])


@pytest.mark.spec("T20", "T18")
def test_a_part_that_fails_fails_the_whole() -> None:
    """Each part is under the same rules; when one gives up, nothing half done is used."""
    answers = ["Notes 1 on lamps.", "", "", ""]
    bench = Bench(*answers, summary={"max_input_tokens": 2_500, "max_tokens": 400}, window=60_000)
    assert [] == summaries(bench.fold(talk(60)))
    assert [("BadSummary", step) for step in ("half the size", "half the size", "pruning-only")] == bench.steps
    assert 4 == len(bench.model.asks)


def test_the_offline_summarizer_has_no_window() -> None:
    """It reads everything at once, whatever the limit for a model is."""
    config = CompactConfig(
        max_context_tokens=60_000,
        storage={"adapter": "none"},
        summary={"max_input_tokens": 300},
        policy={"keep_recent_turns": 1},
    )
    recorder = Recorder()
    with CompactManager(config, sinks=[recorder]) as manager:
        assert 1 == len(summaries(list(manager.manual_compact("s", talk(60)))))
    assert 1 == len(recorder["summary_call"])


def test_async_and_sync_give_the_same() -> None:
    """The same summary, repaired in the same way, with the same events but for their times."""

    def run(verb: str) -> tuple[Messages, list[tuple[str, dict[str, Any]]]]:
        bench = Bench(ModelUnavailable("down"), "The lamps are being filled.", summary={"max_input_tokens": 2_000})
        if verb == "manual_compact":
            out = bench.manager.manual_compact("s", talk(30))
        else:
            out = asyncio.run(bench.manager.amanual_compact("s", talk(30)))
        return list(out), [(event.name, dict(event.data)) for event in bench.seen]

    assert run("manual_compact") == run("amanual_compact")
