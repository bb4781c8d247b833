"""The archive from outside: written before anything is dropped, shown to be unaltered, taken back, forgotten."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from project_paths import GOLDEN, ROOT
from provider_rules import problems as provider_problems

from compact import CompactConfig, CompactManager
from compact.errors import ArchiveError, CompactError, ConfigError, ModelUnavailable
from compact.sinks.jsonl import JsonlSink
from compact.stores import KeyMissing, KeyTaken
from compact.testing import Recorder, ScriptedModel, chat, transcripts

ARCHIVE = Path(".compact/archive")
Messages = list[Any]


# -- helpers -----------------------------------------------------------------------------------------------------------


def manager_for(
    *sinks: Any, model: Any = None, window: int = 20_000, store: Any = "configured", **settings: Any
) -> CompactManager:
    """A manager that folds when it is asked to, keeps one turn and one tool pair, and archives in `.compact`."""
    policy = {"hard_cap_buffer": 100, "keep_recent_turns": 1, "keep_tool_io_pairs": 1, **settings.pop("policy", {})}
    config = CompactConfig(
        max_context_tokens=window, counter="chars", policy=policy, **{"summary": {"min_score": 0}, **settings}
    )
    return CompactManager(config, summarizer=model or ScriptedModel("the lamps"), sinks=sinks, store=store)


def numbered() -> ScriptedModel:
    """A model whose summaries differ."""
    model = ScriptedModel(lambda ask: f"notes, number {len(model.asks)}")
    return model


def grow(messages: Iterable[Any], first: int, dialect: str = "openai-chat") -> Messages:
    """The list with four more turns, all different."""
    return [*messages, *chat("utra" * 4, first=first, words=20, dialect=dialect)]


def fold(manager: CompactManager, times: int, session_id: str = "s", mine: Iterable[Any] = ()) -> Messages:
    """The list after so many folds, each of a list that has grown."""
    mine = list(mine) or chat("s")
    for _ in range(times):
        mine = list(manager.manual_compact(session_id, grow(mine, 100 * len(manager.session(session_id).folds))))
    return mine


def path_of(name: str, session_id: str = "s") -> Path:
    return ARCHIVE / session_id / name


def read(name: str, session_id: str = "s") -> Any:
    return json.loads(path_of(name, session_id).read_bytes())


def events_of(session_id: str = "s") -> list[dict[str, Any]]:
    return [json.loads(line) for line in path_of("events.jsonl", session_id).read_bytes().splitlines()]


def everything() -> dict[str, bytes]:
    """All files below the working directory, by their path."""
    return {str(path): path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file()}


class Shelf:
    """A store in memory that notes what it is asked, and refuses what it is told to."""

    def __init__(self, refuse: Callable[[str, str], BaseException | None] = lambda verb, key: None) -> None:
        self.kept: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self._refuse = refuse

    def _note(self, verb: str, key: str) -> None:
        self.asked.append((verb, key))
        if (error := self._refuse(verb, key)) is not None:
            raise error

    def put(self, key: str, data: bytes, *, if_absent: bool = True) -> None:
        self._note("put", key)
        if if_absent and key in self.kept:
            raise KeyTaken(f"{key!r} is there")
        self.kept[key] = data

    def append(self, key: str, lines: Iterable[bytes]) -> None:
        self._note("append", key)
        self.kept[key] = self.kept.get(key, b"") + b"".join(line + b"\n" for line in lines)

    def get(self, key: str) -> bytes:
        self._note("get", key)
        if key not in self.kept:
            raise KeyMissing(f"{key!r} is not there")
        return self.kept[key]

    def list(self, prefix: str) -> Any:
        self._note("list", prefix)
        return sorted(key for key in self.kept if key.startswith(prefix))

    def delete(self, key: str) -> None:
        self._note("delete", key)
        self.kept.pop(key, None)


class Unreadable(str):
    """A text that nobody can look into."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __contains__(self, part: object) -> bool:
        raise RuntimeError("no")

    def __len__(self) -> int:
        raise RuntimeError("no")


# -- what is written, and what is said about it ------------------------------------------------------------------------


@pytest.mark.spec("S23", "S36")
def test_every_write_is_an_event_that_names_the_file_and_its_hash() -> None:
    """Transcripts, summaries and undo records, under the specified names; the events lie in the archive as well."""
    seen = Recorder()
    with manager_for(seen) as manager:
        fold(manager, 2)
        manager.undo("s")
        manager.redo("s")
    names = [f"{kind}-{n:03d}.{end}" for kind, end in KINDS for n in (1, 2)]
    assert sorted([*names, "events.jsonl"]) == sorted(path.name for path in (ARCHIVE / "s").iterdir())
    archival = [event for event in events_of() if event["name"] == "compact.archival"]
    assert [dict(event.data) for event in seen["archival"]] == [event["data"] for event in archival]
    assert sorted(f"s/{name}" for name in names) == sorted(event["data"]["key"] for event in archival)
    for event in archival:
        data = event["data"]
        content = (ARCHIVE / data["key"]).read_bytes()
        assert (len(content), sha256(content).hexdigest()) == (data["bytes"], data["sha256"])
        assert ("s", "fs", event["step"]) == (data["session_id"], data["storage_adapter"], data["step"])
    assert [1, 1, 2, 2, 2, 2] == [event["data"]["step"] for event in archival]


KINDS = [("transcript-pre-compact", "jsonl"), ("summary", "json"), ("undo", "json")]


def test_redact_write_acknowledge_prune() -> None:
    """The transcript is put first, the summarizer asked then, the record put next; only then the list goes out."""
    shelf = Shelf()
    order: list[str] = []
    model = ScriptedModel(lambda ask: order.append(f"asked after {len(shelf.kept)} objects") or "the lamps")
    with manager_for(lambda event: order.append(event.name), model=model, store=shelf) as manager:
        manager.manual_compact("s", [*chat("ua" * 4), {"role": "user", "content": "password=hunter22"}])
    assert ["s/transcript-pre-compact-001.jsonl", "s/summary-001.json"] == [
        key for verb, key in shelf.asked if verb == "put"
    ]
    assert "asked after 1 objects" in order
    archived = [i for i, name in enumerate(order) if name == "compact.archival"]
    assert archived[0] < order.index("asked after 1 objects") < archived[1] < order.index("compact.pruned_messages")
    assert not [key for key, data in shelf.kept.items() if b"hunter22" in data]


@pytest.mark.parametrize("kind", ["transcript", "summary"])
@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), ArchiveError("no"), KeyTaken("taken"), RuntimeError("lost the line")],
    ids=lambda error: type(error).__name__,
)
def test_what_is_not_acknowledged_is_not_dropped(kind: str, error: Exception) -> None:
    """A store that refuses a transcript or a record, in whatever way: the list goes out as it came, and it is said."""
    shelf = Shelf(lambda verb, key: error if verb == "put" and kind in key else None)
    seen, messages = Recorder(), chat("s" + "utra" * 6)
    with manager_for(seen, store=shelf) as manager:
        out = manager.manual_compact("s", messages)
        assert [id(message) for message in messages] == [id(message) for message in out]
        assert () == manager.session("s").folds
    assert [
        ("ArchiveError" if not isinstance(error, KeyTaken) or kind == "transcript" else "KeyTaken", "unchanged")
    ] == [(event.data["error_type"], event.data["fallback"]) for event in seen["error"]]
    assert not [key for key in shelf.kept if "summary" in key]


def test_over_budget_and_not_acknowledged_is_an_error() -> None:
    """Where the list could not be sent as it is, the caller is told instead."""
    shelf = Shelf(lambda verb, key: OSError(5, "Input/output error") if verb == "put" else None)
    with manager_for(store=shelf, window=1_000) as manager, pytest.raises(ArchiveError, match="Input/output error"):
        manager.preflight("s", chat("s" + "ua" * 20))


def test_a_text_that_answers_for_itself_is_redacted_by_what_it_holds() -> None:
    """A subclass of text that denies everything does not get its secret past the redactor."""
    shelf = Shelf()
    messages = chat("s" + "ua" * 6)
    messages[3]["meta"] = {"trace": Unreadable("password=hunter22")}
    with manager_for(store=shelf) as manager:
        assert len(manager.manual_compact("s", messages)) < len(messages)
        assert {"trace": "password=<REDACTED>"} == manager.restore("s")[3]["meta"]
    assert b"hunter22" not in b"".join(shelf.kept.values())


def test_what_is_nested_deeply_is_kept() -> None:
    """Beyond a hundred levels the rest is kept as JSON in a text, without its secrets: a fold loses nothing."""
    value: dict[str, Any] = {"leaf": "the oil is in room 9", "password": "hunter22"}
    for _ in range(150):
        value = {"in": value}
    asked, answered = chat("tr", dialect="anthropic")
    asked["content"][1]["input"] = value
    with manager_for() as manager:
        messages = [*chat("u", dialect="anthropic"), asked, answered, *chat("auaua", first=9, dialect="anthropic")]
        assert len(manager.manual_compact("s", messages)) < len(messages)
        kept = json.dumps(manager.restore("s"))
    assert "the oil is in room 9" in kept
    assert "hunter22" not in kept


def test_steps_beyond_999() -> None:
    """Step 1000 is the newest: restored, verified, undone, and followed by 1001."""
    (ARCHIVE / "s").mkdir(parents=True)
    for step in range(1, 999):
        path_of(f"transcript-pre-compact-{step:03d}.jsonl").write_bytes(b"{}\n")
    with manager_for(model=numbered()) as manager:
        second = grow(fold(manager, 1), 50)
        third = grow(manager.manual_compact("s", second), 150)
        manager.manual_compact("s", third)
    names = ["summary-999.json", "summary-1000.json", "summary-1001.json"]
    assert [999, 1000, 1001] == [read(name)["step"] for name in names]
    with manager_for() as manager:
        assert (1001, [999, 1000, 1001]) == (manager.session("s").step, [f.step for f in manager.session("s").folds])
        assert (second, third) == (manager.restore("s", 1000), manager.restore("s"))
        audit = manager.verify("s")
        assert ([], 998) == (list(audit.problems), len(audit.unfinished))
        assert sha256(path_of("summary-1001.json").read_bytes()).hexdigest() == audit.head
        assert (third, second) == (manager.undo("s"), manager.undo("s"))
        path_of("transcript-pre-compact-500.jsonl").unlink()
        assert ("1 of 1,001 transcripts are missing, the first is number 500",) == manager.verify("s").problems


def test_a_store_whose_keys_are_always_taken_ends() -> None:
    """A store that neither takes nor lists anything is an error with the number of tries, not a loop."""
    shelf = Shelf(lambda verb, key: KeyTaken("taken") if verb == "put" else None)
    seen = Recorder()
    with manager_for(seen, store=shelf) as manager:
        manager.manual_compact("s", chat("ua" * 6))
    (error,) = seen["error"]
    assert "1,000 were taken" in error.data["message"]


# -- secrets -----------------------------------------------------------------------------------------------------------


def secret() -> str:
    """A key in a vendor's form that nobody owns."""
    return "sk-ant-api03-" + secrets.token_hex(24)


@pytest.mark.spec("T13", "S25", "S35")
def test_no_secret_reaches_a_sink_a_store_or_the_log(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ids, notes, arguments, results, keys, changed parameters, errors, sinks that fail: nothing of it gets out."""
    hidden: list[str] = []

    def planted() -> str:
        hidden.append(secret())
        return hidden[-1]

    def failing(event: Any) -> None:
        raise RuntimeError(f"no route, password={hidden[0]}")

    seen = Recorder()
    caplog.set_level(logging.DEBUG)
    model = ScriptedModel(
        ModelUnavailable(f"401 for key {planted()}", retryable=False), lambda ask: f"the lamps, with {hidden[1]}"
    )
    session_id = f"run of {planted()}"
    arguments = json.dumps({"command": f"curl -H 'Authorization: Bearer {planted()}'", "password": planted()})
    call = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": arguments}}
    messages = [
        {"role": "system", "content": f"Use api_key={planted()}."},
        {"role": "user", "content": f"Deploy with {planted()}", "meta": {planted(): f"token={planted()}"}},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": f"export PASSWORD={planted()}\nok"},
        *chat("uaua", first=10),
    ]
    before = json.dumps(messages)
    sinks = [seen, JsonlSink("events.jsonl"), failing]
    with manager_for(*sinks, model=model, tracing={"console": True}) as manager:
        manager.update(prompt=f"Summarize. The key is {planted()}. {{messages}}")
        mine = manager.manual_compact(session_id, messages, note=f"before rotating {planted()}")
        manager.manual_compact(session_id, grow(mine, 100), note=f"password={planted()}")
        manager.undo(session_id)
        assert before == json.dumps(messages)  # what is in memory is untouched
        for kept in manager.restore(session_id, 1), manager.recall(session_id, "deploy"), manager.diff(session_id, 1):
            assert not leaks(str(kept), hidden)
        assert not leaks(str(manager.sessions()), hidden)
    for record in ARCHIVE.glob("*/summary-002.json"):
        record.write_bytes(b"{")
    with manager_for(window=2_000, policy={"trigger_pct": 0.3}) as manager:
        manager.preflight(session_id, [*chat("s", words=900), *chat("ua" * 6)])
    assert "session 'run of <REDACTED>' could not be read back whole" in caplog.text
    assert "cannot_fit: " in caplog.text
    assert 12 == len(hidden)
    assert seen["error"]
    assert seen["config_changed"]
    assert not leaks(repr(seen.events), hidden)
    for path, data in everything().items():
        assert not leaks(path, hidden)
        assert not leaks(data.decode("latin-1"), hidden)
    assert not leaks(caplog.text, hidden)
    assert not leaks("".join(capfd.readouterr()), hidden)
    (named,) = ARCHIVE.glob("=h-*/session.json")
    assert "run of <REDACTED>" == json.loads(named.read_bytes())["session_id"]


def leaks(text: str, hidden: Iterable[str]) -> list[str]:
    """The secrets of which a text tells so much that they are no secrets any more."""
    return [one for one in hidden if one[-24:] in text]


@pytest.mark.spec("S25")
def test_switching_redaction_off_is_said_first(caplog: pytest.LogCaptureFixture) -> None:
    """The very first event is a warning of high severity, in the log as well, and in the archive; then it is stored."""
    seen = Recorder()
    messages = [{"role": "user", "content": "password=hunter22"}, *chat("aua")]
    with manager_for(seen, redaction={"enabled": False}) as manager:
        manager.manual_compact("s", messages)
        assert ("compact.warning", "high", "redaction_disabled") == (
            seen.events[0].name,
            seen.events[0].data["severity"],
            seen.events[0].data["code"],
        )
        manager.manual_compact("other", messages)
    assert 1 == len(seen["warning"])
    assert "compact.warning" == events_of()[0]["name"]
    assert ["WARNING"] == [log.levelname for log in caplog.records if "redaction is off" in log.getMessage()]
    assert b"hunter22" in path_of("transcript-pre-compact-001.jsonl").read_bytes()


def test_a_pattern_that_matches_hashes_breaks_no_link() -> None:
    """Numbers and hashes that the archive made up are no text of the host's: chain, replay and undo go on working."""
    settings: dict[str, Any] = {"redaction": {"patterns": ["[0-9a-f]{16,}", "[0-9]{3}", "lamp"]}}
    full = grow(chat("s"), 10)
    with manager_for(**settings) as manager:
        manager.manual_compact("s", full)
        assert "the lamps" not in path_of("summary-001.json").read_text()
    model = ScriptedModel("asked again")
    with manager_for(model=model, **settings) as manager:
        assert [] == list(manager.verify("s").problems)
        assert () == manager.verify("s").unwitnessed
        assert len(manager.preflight("s", full)) < len(full)
        assert len(full) == len(manager.undo("s"))
        assert [] == list(manager.verify("s").problems)
    assert [] == model.asks


# -- the hash chain ----------------------------------------------------------------------------------------------------


@pytest.fixture
def chained() -> Path:
    """An archive of four folds, one undone and one redone."""
    with manager_for(model=numbered()) as manager:
        mine = fold(manager, 2)
        manager.undo("s")
        mine = manager.redo("s")
        fold(manager, 2, mine=mine)
        assert manager.verify("s")
    return ARCHIVE / "s"


def audited() -> Any:
    with manager_for() as manager:
        return manager.verify("s")


def test_an_untouched_archive_is_clean(chained: Path) -> None:
    """No problem, every file looked at, and the hash of the newest record to keep elsewhere."""
    audit = audited()
    assert bool(audit)
    assert (11, (), (), ()) == (audit.files, audit.unfinished, audit.unwitnessed, audit.problems)
    assert sha256((chained / "summary-004.json").read_bytes()).hexdigest() == audit.head


def test_every_altered_byte_is_found(chained: Path) -> None:
    """One byte of one file, wherever: the audit names the file. (Some bytes of each; they are all hashed alike.)"""
    chance = random.Random(4)
    files = [path for path in chained.iterdir() if path.name != "events.jsonl"]
    assert 10 == len(files)
    for path in files:
        whole = path.read_bytes()
        for at in [0, len(whole) - 1, *chance.sample(range(len(whole)), 6)]:
            other = chance.choice([byte for byte in range(256) if byte != whole[at]])
            path.write_bytes(whole[:at] + bytes([other]) + whole[at + 1 :])
            problems = audited().problems
            assert any(path.name in problem for problem in problems), (path.name, at, other, problems)
        path.write_bytes(whole)
    assert audited()


@pytest.mark.parametrize("name", ["transcript-pre-compact-002.jsonl", "summary-001.json", "undo-001.json"])
def test_what_is_removed_or_cut_is_found(chained: Path, name: str) -> None:
    """Without the events too: the next record knows the name and the hash."""
    (chained / "events.jsonl").unlink()
    whole = (chained / name).read_bytes()
    (chained / name).write_bytes(whole[: len(whole) // 2])
    assert any(name in problem for problem in audited().problems)
    (chained / name).write_bytes(b"")
    assert any(name in problem for problem in audited().problems)
    (chained / name).unlink()
    assert any(f"{name}' is missing" in problem for problem in audited().problems)


@pytest.mark.parametrize("kind", ["transcript-pre-compact-{}.jsonl", "summary-{}.json", "undo-{}.json"])
def test_what_is_swapped_is_found(chained: Path, kind: str) -> None:
    """Two files that change places are two that were altered."""
    one, other = chained / kind.format("001"), chained / kind.format("002")
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    said = "\n".join(audited().problems)
    assert one.name in said
    assert other.name in said


def test_what_is_put_in_is_found(chained: Path) -> None:
    """A foreign name, a second spelling, a copy under another number, a record without a transcript."""
    for name in ("notes.txt", "summary-0002.json", "summary-006.json", "undo-004.json"):
        (chained / name).write_bytes(
            (chained / ("undo-001.json" if "undo" in name else "summary-001.json")).read_bytes()
        )
        assert any(name in problem or "step 6" in problem for problem in audited().problems), name
        (chained / name).unlink()
    for kind in ("transcript-pre-compact-{}.jsonl", "summary-{}.json"):
        shutil.copy(chained / kind.format("004"), chained / kind.format("005"))
    assert any("summary-005.json' says that it is step 4" in problem for problem in audited().problems)
    for kind in ("transcript-pre-compact-{}.jsonl", "summary-{}.json"):
        (chained / kind.format("005")).unlink()
    assert audited()


def test_a_forged_fold_at_the_end_has_no_witness(chained: Path) -> None:
    """Somebody who adds a fold with right hashes leaves a record that no event and no later record names."""
    record = json.loads((chained / "summary-004.json").read_bytes())
    forged = b'{"role":"user","content":"pay twice"}\n'
    record |= {"step": 5, "positions": [0], "gone": [], "left": [0], "made": []}
    record["links"] = {
        "transcript": sha256(forged).hexdigest(),
        "previous_transcript": sha256((chained / "transcript-pre-compact-004.jsonl").read_bytes()).hexdigest(),
        "previous_record": {"name": "summary-004.json", "sha256": audited().head},
    }
    (chained / "transcript-pre-compact-005.jsonl").write_bytes(forged)
    (chained / "summary-005.json").write_text(json.dumps(record))
    assert ("s/summary-005.json",) == audited().unwitnessed


def test_the_newest_record_is_proved_by_the_events(chained: Path) -> None:
    """No later record names it, but its event does; without the events its hash, kept elsewhere, still tells."""
    path, head = chained / "summary-004.json", audited().head
    path.write_bytes(path.read_bytes().replace(b'"note":null', b'"note":"no!"'))
    assert any("summary-004.json" in p and "events.jsonl" in p for p in audited().problems)
    (chained / "events.jsonl").unlink()
    assert audited()
    assert head != audited().head


@pytest.mark.parametrize(
    "record",
    [
        {"step": "two"}, {"links": []}, {"links": {"previous_record": "x"}}, {"time": "noon"}, {"positions": None},
        {"links": None}, {"step": -1},
    ],
    ids=str,
)  # fmt: skip
def test_a_record_of_another_shape_is_a_problem_and_no_crash(chained: Path, record: dict[str, Any]) -> None:
    """Whatever stands in a record or an event, the audit ends and names the file."""
    path = chained / "summary-002.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | record))
    assert any(path.name in problem for problem in audited().problems)


@pytest.mark.parametrize("line", ["[]", "7", '{"name":"compact.archival"}', '{"name":"compact.archival","data":[1]}'])
def test_an_odd_event_is_a_problem_and_no_crash(chained: Path, line: str) -> None:
    """A line that is no event of ours is said."""
    with (chained / "events.jsonl").open("a") as file:
        file.write(line + "\n")
    assert any("events.jsonl" in problem for problem in audited().problems)


def test_an_unfinished_fold_is_no_damage() -> None:
    """A transcript whose fold failed is listed; the chain goes on over it."""
    model = ScriptedModel("the lamps", ModelUnavailable("down", retryable=False), "the wicks")
    with manager_for(model=model, policy={"on_failure": "raise"}) as manager:
        mine = fold(manager, 1)
        with pytest.raises(ModelUnavailable):
            manager.manual_compact("s", grow(mine, 100))
        fold(manager, 1, mine=mine)
    audit = audited()
    assert (True, (2,), ()) == (bool(audit), audit.unfinished, audit.problems)
    assert ["summary-001.json", "summary-003.json"] == sorted(path.name for path in (ARCHIVE / "s").glob("summary*"))
    path_of("events.jsonl").unlink()
    path_of("transcript-pre-compact-002.jsonl").write_text("{}\n")
    assert any("transcript-pre-compact-002" in p and "summary-003" in p for p in audited().problems)


def test_two_managers_fold_in_turns_and_the_chain_holds() -> None:
    """Each finds the other's steps, and links to them; undoing by one is known to the other's next process."""
    one, other = manager_for(model=numbered()), manager_for(model=numbered())
    mine: dict[CompactManager, Messages] = {one: chat("s"), other: chat("s")}
    for round_ in range(4):
        for number, manager in enumerate((one, other)):
            more = grow(mine[manager], 1000 * number + 100 * round_)
            mine[manager] = list(manager.manual_compact("s", more))
    written = [read(f"summary-{step:03d}.json") for step in range(1, 9)]
    assert list(range(1, 9)) == [record["step"] for record in written]
    assert [f"summary-{step:03d}.json" for step in range(1, 8)] == [
        record["links"]["previous_record"]["name"] for record in written[1:]
    ]
    one.undo("s")
    other.manual_compact("s", grow(mine[other], 5_000))
    one.close()
    other.close()
    audit = audited()
    assert ([], (), ()) == (list(audit.problems), audit.unfinished, audit.unwitnessed)


def test_a_session_that_others_folded_finds_its_step_at_once() -> None:
    """Whoever comes back after twenty folds by another process looks first, and takes the next free step."""
    shelf = Shelf()
    one, other = manager_for(store=shelf), manager_for(store=shelf)
    mine = fold(one, 1)
    fold(other, 20, mine=chat("s"))
    shelf.asked.clear()
    one.manual_compact("s", grow(mine, 9_000))
    tried = [key for verb, key in shelf.asked if verb == "put" and "transcript" in key]
    assert ["s/transcript-pre-compact-022.jsonl"] == tried
    assert one.verify("s")


def test_a_format_of_the_future_is_refused_clearly(chained: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A newer record is not guessed at: every verb says so, and the agent goes on."""
    for path in chained.glob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"format": 2}))
    with manager_for() as manager:
        for verb in (manager.diff, manager.undo, manager.redo):
            with pytest.raises(ArchiveError, match=r"of format 2, .* reads up to 1. Upgrade agent-compact"):
                verb("s")
        assert any("format 2" in problem for problem in manager.verify("s").problems)
        manager.preflight("s", chat("sua"))
    assert "format 2" in caplog.text


# -- restore -----------------------------------------------------------------------------------------------------------


def test_restore_by_step() -> None:
    """Each fold's list as it was, from a process that folded nothing; what is not there is said."""
    lists = []
    with manager_for() as manager:
        mine: Messages = chat("s")
        for n in range(3):
            lists.append(grow(mine, 100 * n))
            mine = list(manager.manual_compact("s", lists[-1]))
    with manager_for() as manager:
        assert lists == [manager.restore("s", step) for step in (1, 2, 3)]
        assert lists[-1] == manager.restore("s")
        with pytest.raises(KeyMissing, match=r"'s' has no step 7: it has 3, from 1 to 3"):
            manager.restore("s", 7)
        with pytest.raises(KeyMissing, match=r"nothing is archived for session 'nobody'; sessions\(\)"):
            manager.restore("nobody")
        assert ["s"] == manager.sessions()


def test_restore_past_a_damaged_tail(caplog: pytest.LogCaptureFixture) -> None:
    """A transcript cut short gives all that is whole, and one warning with the place."""
    with manager_for() as manager:
        full = grow(chat("s"), 0)
        manager.manual_compact("s", full)
        path = path_of("transcript-pre-compact-001.jsonl")
        path.write_bytes(path.read_bytes()[:-9])
        assert full[:-1] == manager.restore("s")
    (log,) = [log for log in caplog.records if log.name == "compact"]
    assert f"line {len(full)} at byte" in log.getMessage()
    assert "damaged at its end" in log.getMessage()


def test_damage_inside_a_transcript_is_an_error() -> None:
    """A bad line before good ones is named with its number and byte, and nothing of what it says."""
    with manager_for() as manager:
        fold(manager, 1)
        path = path_of("transcript-pre-compact-001.jsonl")
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([lines[0], lines[1][:-5] + b"\n", *lines[2:]]))
        with pytest.raises(ArchiveError, match=rf"line 2 at byte {len(lines[0]):,}") as caught:
            manager.restore("s")
    assert json.loads(lines[1])["content"][:20] not in str(caught.value)


# -- undo and redo -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("given", [False, True], ids=["without", "with"])
def test_back_and_forth_over_several_folds(restart: bool, given: bool) -> None:
    """Three folds taken back and put in force again, in one process or in a new one each time."""
    manager = manager_for(model=numbered())
    lists: list[Messages] = []
    mine: Messages = chat("s")
    for n in range(3):
        lists += [grow(mine, 100 * n)]
        mine = list(manager.manual_compact("s", lists[-1]))
        lists += [mine]

    def step(verb: str, mine: Messages) -> Messages:
        nonlocal manager
        if restart:
            manager.close()
            manager = manager_for(model=numbered())
        return list(getattr(manager, verb)("s", *([mine] if given else [])))

    for number in (2, 1, 0):
        mine = step("undo", mine)
        assert lists[2 * number] == mine
        mine = mine if not number else lists[2 * number - 1]
    with pytest.raises(ArchiveError, match="'s' has no compaction to undo: all 3 are undone"):
        step("undo", mine)
    for number in (0, 1, 2):
        mine = lists[2 * number]
        assert lists[2 * number + 1] == step("redo", mine)
    with pytest.raises(ArchiveError, match="'s' has no compaction to redo: none was undone"):
        step("redo", mine)
    assert manager.verify("s")
    manager.close()


def test_what_came_since_stays_and_kept_messages_are_the_very_objects() -> None:
    """Undo exchanges the summary for what it stood for and touches nothing else; redo the other way round."""
    with manager_for() as manager:
        full = grow(chat("s"), 0)
        out = manager.manual_compact("s", full)
        since = chat("ua", first=900)
        back = manager.undo("s", [*out, *since])
        assert [*full, *since] == back
        objects = {id(message) for message in (*out, *since)}
        kept = [message for message in back if id(message) in objects]
        assert [message for message in (*out, *since) if "<COMPACT" not in str(message)] == kept
        again = manager.redo("s", back)
        assert [*out, *since] == again
        assert [id(message) for message in (*kept,)] == [id(m) for m in again if "<COMPACT" not in str(m)]


@pytest.mark.parametrize("way", ["undo", "redo"])
def test_a_list_that_does_not_fit_is_refused(way: str) -> None:
    """Another list, a shorter one, an edited one: refused with the place of the first difference; nothing recorded."""
    with manager_for() as manager:
        out: Messages = fold(manager, 1)
        if way == "redo":
            out = manager.undo("s", out)
        files, verb = everything(), manager.undo if way == "undo" else manager.redo
        for other, place in ((chat("sua", first=50), 0), (out[:-1], len(out) - 1), ([*out[:-1], out[0]], len(out) - 1)):
            with pytest.raises(CompactError, match=rf"they differ from message {place} on.*call {way}\(\) without one"):
                verb("s", other)
        assert files == everything()
        verb("s", out)


def test_nothing_to_undo_or_redo() -> None:
    """A session that never folded says so."""
    with manager_for() as manager:
        with pytest.raises(ArchiveError, match="no compaction to undo: it was never compacted"):
            manager.undo("s")
        with pytest.raises(ArchiveError, match="no compaction to redo: none was undone"):
            manager.redo("s")
    with (
        manager_for(storage={"adapter": "none"}) as manager,
        pytest.raises(ArchiveError, match=r"nothing is archived: storage\.adapter is 'none'"),
    ):
        manager.undo("s")
    assert {} == everything()


def test_a_new_fold_ends_redo_and_undo_goes_around_what_was_undone() -> None:
    """Two folds, the second undone, another made: redo has nothing; undo leads past it to the first one."""
    with manager_for(model=numbered()) as manager:
        first = fold(manager, 1)
        second = grow(first, 100)
        manager.manual_compact("s", second)
        assert second == manager.undo("s")
        third = grow(second, 200)
        manager.manual_compact("s", third)
        with pytest.raises(ArchiveError, match="no compaction to redo: a newer compaction took its place"):
            manager.redo("s")
        assert third == manager.undo("s")
        assert grow(chat("s"), 0) == manager.undo("s")
        manager.redo("s")
        assert read("undo-004.json")["in_force"] == 1
        assert manager.verify("s")


@pytest.mark.parametrize("restart", [False, True])
def test_a_host_that_passes_everything_sees_no_undone_fold(restart: bool) -> None:
    """After undo its full history goes out whole, after redo folded, and nobody asks the summarizer again."""
    model = numbered()
    manager = manager_for(model=model)

    def again() -> CompactManager:
        nonlocal manager
        if restart:
            manager.close()
            manager = manager_for(model=model)
        return manager

    history = grow(chat("s"), 0)
    one = manager.manual_compact("s", history)
    history = grow(history, 100)
    two = manager.manual_compact("s", json.loads(json.dumps(history)))
    assert 2 == len(model.asks)
    more = chat("ua", first=800)

    def sent() -> Messages:
        return list(again().preflight("s", json.loads(json.dumps([*history, *more]))))

    assert [*two, *more] == sent()
    again().undo("s")
    assert [*one, *grow([], 100), *more] == sent()
    again().undo("s")
    assert [*history, *more] == sent()
    again().redo("s")
    assert [*one, *grow([], 100), *more] == sent()
    again().redo("s")
    assert [*two, *more] == sent()
    assert 2 == len(model.asks)
    manager.close()


def test_a_host_that_keeps_its_list_goes_on_after_undo() -> None:
    """The list that undo gave is folded again when it is due, as a step of its own, with a later version."""
    with manager_for(model=numbered()) as manager:
        out = fold(manager, 1)
        back = manager.undo("s", out)
        assert back == manager.preflight("s", back)
        again = manager.manual_compact("s", grow(back, 100))
        assert [2] == [fold_.step for fold_ in manager.session("s").folds]
        assert "<COMPACT-SUMMARY v2>" in str(again)
        assert "<COMPACT-SUMMARY v1>" not in str(again)


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])
def test_restored_lists_are_valid_in_every_dialect(dialect: str) -> None:
    """Undo and redo give lists that the provider takes, with calls and results in parallel, and the older summary."""
    with manager_for(model=numbered(), window=40_000) as manager:
        start = chat("u" if dialect == "anthropic" else "su", dialect=dialect)
        mine: Messages = [*start, *chat("TrratrautraTrr", first=10, dialect=dialect)]
        if dialect == "anthropic":
            mine = [*start, *chat("atrautratrautra", first=10, dialect=dialect)]
        mine = list(manager.manual_compact("s", mine))
        mine = list(manager.manual_compact("s", [*mine, *chat("utratrautra", first=60, dialect=dialect)]))
        for verb in ("undo", "undo", "redo", "redo"):
            mine = list(getattr(manager, verb)("s"))
            assert [] == provider_problems(dialect, mine)
            assert [] == provider_problems(dialect, manager.preflight("s", mine))


def test_secrets_come_back_redacted_and_only_those_that_were_folded() -> None:
    """A folded secret is gone for good; a kept message is the host's own object, secret and all."""
    with manager_for() as manager:
        messages = [
            {"role": "system", "content": "password=hunter22"},
            {"role": "user", "content": "token: ghp_" + "a1" * 18},
            *chat("auaua"),
        ]
        out = manager.manual_compact("s", messages)
        back = manager.undo("s", out)
        assert messages[0] is back[0]
        assert "token: <REDACTED>" == back[1]["content"]
        assert out == manager.redo("s", back)
        assert "password=<REDACTED>" == manager.undo("s")[0]["content"]


@pytest.mark.untraced  # its property is inside
@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])
def test_any_fold_can_be_undone_shown_and_redone(dialect: str, broken: bool) -> None:
    """Whatever a host passes: undo gives it back, redo the list that went out, and a diff has every line once."""

    @given(transcripts(dialect, broken=broken))
    def check(messages: Messages) -> None:
        shelf = Shelf()
        with manager_for(store=shelf) as manager:
            try:
                out = manager.manual_compact("s", messages)
            except CompactError:
                return
            if not manager.session("s").folds:
                return
            shown = manager.diff("s")
            assert len(messages) == shown.count(" ") + shown.count("-") + shown.count("~")
            assert len(out) - shown.count(" ") - shown.count("~") == shown.count("+")
            back = manager.undo("s", out)
            assert messages == back
            assert out == manager.redo("s", back)
            assert [] == list(manager.verify("s").problems)

    check()


@settings(max_examples=min(settings().max_examples, 120))
@given(st.lists(st.sampled_from(["fold", "fold", "undo", "redo", "restart"]), max_size=14))
def test_a_walk_of_folds_undos_and_redos(walk: list[str]) -> None:
    """Against two plain stacks: where the session stands, what can be taken back, what can be put in force again."""
    shelf, model = Shelf(), numbered()
    manager = manager_for(model=model, store=shelf)
    done: list[tuple[Messages, Messages]] = []
    undone: list[tuple[Messages, Messages]] = []
    mine: Messages = chat("s")
    for number, move in enumerate(walk):
        if move == "fold":
            before = grow(mine, 100 * number)
            mine = list(manager.manual_compact("s", before))
            done, undone = [*done, (before, mine)], []
        elif move == "restart":
            manager.close()
            manager = manager_for(model=model, store=shelf)
        else:
            source, target = (done, undone) if move == "undo" else (undone, done)
            if not source:
                with pytest.raises(ArchiveError, match=f"no compaction to {move}"):
                    getattr(manager, move)("s", mine)
                continue
            # A host that appended to the list before going back once more has no list that fits: it asks without one.
            pair = source.pop()
            target.append(pair)
            mine = list(getattr(manager, move)("s"))
            assert pair[move == "redo"] == mine
        if manager.session("s").step:
            assert [] == list(manager.verify("s").problems)
    asked = len(model.asks)
    if mine != chat("s"):
        assert mine == manager.preflight("s", json.loads(json.dumps(mine)))
    assert asked == len(model.asks) == walk.count("fold")
    manager.close()


# -- diff --------------------------------------------------------------------------------------------------------------


def test_a_diff_reads_like_one() -> None:
    """The whole text of one fold: what stayed, what went, what came instead; a long run is shown by its ends."""
    big = {"role": "tool", "tool_call_id": "call_31_0", "content": "\n".join(f"row {n} of the log" for n in range(900))}
    messages = [*chat("s" + "utra" * 5, words=9), *chat("ut", first=30, words=9), big]
    with manager_for(window=3_000) as manager:
        manager.manual_compact("s", messages, note="before the release")
        shown = str(manager.diff("s"))
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "YYYY-MM-DD hh:mm:ss", shown)
    assert re.search(r"^~ ", text, re.MULTILINE)
    golden = GOLDEN / "diff.txt"
    assert golden.read_text("utf-8") == text + "\n"


def test_a_diff_of_an_older_step_and_of_none() -> None:
    """By step, the newest by default; what did not fold has no diff."""
    with manager_for(model=numbered()) as manager:
        fold(manager, 2)
        assert [1, 2, 2] == [manager.diff("s", 1).step, manager.diff("s", 2).step, manager.diff("s").step]
        assert manager.diff("s").score is not None
        assert ("notes, number 1" in str(manager.diff("s", 1)), "notes, number 2" in str(manager.diff("s"))) == (
            True,
            True,
        )
        with pytest.raises(KeyMissing, match=r"'s' has no completed compaction 9; it has \[1, 2\]"):
            manager.diff("s", 9)
        with pytest.raises(KeyMissing, match="'nobody' has no completed compaction"):
            manager.diff("nobody")


# -- forget and prune --------------------------------------------------------------------------------------------------


def test_forget_deletes_one_session_for_good() -> None:
    """Files, index and memory are gone and named; the other session is as it was; it starts again at step 1."""
    with manager_for(model=numbered()) as manager:
        fold(manager, 2, "gone")
        fold(manager, 1, "stays")
        for session_id in ("gone", "stays"):
            assert manager.recall(session_id, "token buffer")
        manager.preflight("gone", chat("s", words=7))  # what is said of it is still held in memory
        names = {path.name for path in (ARCHIVE / "gone").iterdir()}
        stays = {path: data for path, data in everything().items() if "gone" not in path}
        forgotten = manager.forget("gone")
        assert ("gone", names) == (forgotten.session_id, {key.removeprefix("gone/") for key in forgotten.keys})
        assert str(forgotten).startswith("session 'gone': 5 objects deleted: ")
        assert [] == [path for path in everything() if "gone" in path]
        assert stays == {path: data for path, data in everything().items() if path in stays}
        assert (0, ()) == (manager.session("gone").step, manager.session("gone").folds)
        assert ["stays"] == manager.sessions()
        with pytest.raises(KeyMissing):
            manager.restore("gone")
        assert [] == manager.recall("gone", "token buffer")
        manager.preflight("gone", chat("sua"))
        assert (ARCHIVE / "gone").exists() is False
        fold(manager, 1, "gone")
        assert 1 == manager.session("gone").step
        assert manager.verify("gone")
    said = [event["name"] for event in events_of("gone")]
    assert 2 == said.count("compact.token_estimate")  # of the two calls since


def test_forgetting_what_was_never_kept() -> None:
    """Nothing is deleted, and that is what is said."""
    with manager_for() as manager:
        assert () == manager.forget("nobody").keys
    assert {} == everything()


def test_a_forget_that_could_not_delete_says_so() -> None:
    """A store that keeps what it was told to delete is an error that counts what is left."""
    shelf = Shelf()
    with manager_for(store=shelf) as manager:
        fold(manager, 1)
        shelf.delete = lambda key: None  # type: ignore[method-assign]
        with pytest.raises(ArchiveError, match="3 objects were deleted and 3 are there still or again"):
            manager.forget("s")


IDS = ["plain", "With Blanks", "x" * 300, "token sk-ant-api03-0123456789abcdef0123456789abcdef"]


def test_prune_goes_by_the_age_of_what_was_written() -> None:
    """Every kind of id, hashed and secret ones too; a dry run deletes nothing; younger sessions stay."""
    with manager_for() as manager:
        for session_id in IDS:
            fold(manager, 1, session_id)
        fold(manager, 1, "young")
        aged(40, [path for path in ARCHIVE.iterdir() if path.is_dir() and path.name not in ("young", ".tmp", ".index")])
        files = everything()
        assert [] == manager.prune(timedelta(days=41))
        would = manager.prune(timedelta(days=39), dry_run=True)
        assert files == everything()
        pruned = manager.prune(timedelta(days=39))
        assert would == pruned
        assert sorted([*IDS[:3], "token <REDACTED>"]) == sorted(str(one.session_id) for one in pruned)
        assert ["young"] == manager.sessions()
        assert {"young"} == {path.split("/")[2] for path in everything() if path.startswith(f"{ARCHIVE}/")} - {
            ".gitignore"
        }
        assert ["young"] == [one.session_id for one in manager.prune(timedelta(microseconds=1))]
        assert 0 == manager.session("plain").step


def test_the_newest_word_counts() -> None:
    """A session with an old fold is young when something was said or undone since."""
    with manager_for() as manager:
        fold(manager, 1)
        path_of("events.jsonl").unlink()
        aged(40, [ARCHIVE / "s"])
        manager.undo("s")
        path_of("events.jsonl").unlink()
        assert [] == manager.prune(timedelta(days=1))
        path_of("undo-001.json").unlink()
        assert ["s"] == [one.session_id for one in manager.prune(timedelta(days=39))]


def aged(days: int, folders: Iterable[Path]) -> None:
    """Rewrite the times in all records and events, as if they had been written so long ago."""
    for folder in folders:
        for path in folder.glob("*.json*"):
            if not path.name.startswith(("transcript", "session")):
                lines = [json.loads(line) for line in path.read_text().splitlines()]
                lines = [line | {"time": line["time"] - 86_400 * days} for line in lines]
                path.write_text("\n".join(json.dumps(line) for line in lines))


def test_prune_keeps_what_has_no_time(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can say how old it is: it stays, and that is said; so does a folder that is not ours."""
    (ARCHIVE / "Notes").mkdir(parents=True)
    (ARCHIVE / "Notes" / "todo.txt").write_text("buy oil")
    with manager_for() as manager:
        fold(manager, 1)
        for name in ("summary-001.json", "events.jsonl"):
            path_of(name).write_text("{}")
        assert [] == manager.prune(timedelta(microseconds=1))
    assert path_of("transcript-pre-compact-001.jsonl").exists()
    assert 2 == len([log for log in caplog.records if "stays: nothing in the archive says when" in log.getMessage()])


@pytest.mark.parametrize("age", [timedelta(0), timedelta(days=-1)])
def test_prune_needs_an_age(age: timedelta) -> None:
    """No age, or one in the future, would delete everything."""
    with manager_for() as manager, pytest.raises(ConfigError, match="give a time above zero"):
        manager.prune(age)


# -- house rules -------------------------------------------------------------------------------------------------------


def test_git_does_not_see_the_archive() -> None:
    """`.compact` brings its own .gitignore with the first fold, and leaves one that is there alone."""
    with manager_for() as manager:
        fold(manager, 1)
        assert "*\n" == Path(".compact/.gitignore").read_text()
        if shutil.which("git"):
            subprocess.run(["git", "init", "-q", "."], check=True)
            subprocess.run(["git", "check-ignore", "-q", path_of("events.jsonl")], check=True)
            status = subprocess.run(["git", "status", "--porcelain"], check=True, capture_output=True)
            assert b"" == status.stdout
        Path(".compact/.gitignore").write_text("# mine\n")
    with manager_for() as manager:
        fold(manager, 1)
    assert "# mine\n" == Path(".compact/.gitignore").read_text()


@pytest.mark.parametrize("value", ["1", "true", "ON", " yes "])
def test_switched_off_by_the_environment(
    value: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """COMPACT_DISABLED: every preflight gives the very list back, nothing is stored, and it is said once."""
    monkeypatch.setenv("COMPACT_DISABLED", value)
    seen, messages = Recorder(), chat("s" + "ua" * 40)
    with manager_for(seen, window=1_000) as manager:
        assert messages is manager.preflight("s", messages)
        assert messages is asyncio.run(manager.apreflight("s", messages))
    assert ({}, []) == (everything(), seen.events)
    assert 1 == caplog.text.count("COMPACT_DISABLED")


@pytest.mark.parametrize("value", [None, "", "0", "false", "off"])
def test_not_switched_off(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset, empty or a no: it folds."""
    if value is not None:
        monkeypatch.setenv("COMPACT_DISABLED", value)
    messages = chat("s" + "ua" * 40)
    with manager_for(window=1_000) as manager:
        assert len(manager.preflight("s", messages)) < len(messages)


class Sending:
    """A sink that says where it sends."""

    def __init__(self, endpoint: Any) -> None:
        self.endpoint = endpoint

    def __call__(self, event: Any) -> None:
        """Take an event."""


NEAR = [
    "http://127.0.0.1:4318",
    "http://localhost:8000/ingest",
    "http://[::1]:4318",
    "http://127.8.9.1",
    "HTTP://LocalHost",
]
FAR = ["http://ariadne.example:8000", "https://10.0.0.5", "http://localhost.example", "http://127.0.0.1@example.com",
       "http://0.0.0.0:4318", "http://[2001:db8::1]"]  # fmt: skip


@pytest.mark.spec("S25")
@pytest.mark.parametrize("address", FAR)
@pytest.mark.parametrize("way", ["ariadne_url", "otlp_endpoint", "sink"])
def test_unredacted_events_do_not_leave_this_machine(way: str, address: str) -> None:
    """With redaction off an exporter to another machine is refused, unless a second setting allows it."""
    sinks = [Sending(address)] if way == "sink" else []
    tracing = {} if way == "sink" else {way: address}
    with pytest.raises(
        ConfigError, match=r"redaction.enabled is false, and .* another machine.*allow_unredacted_export"
    ):
        manager_for(*sinks, redaction={"enabled": False}, tracing=tracing)
    manager_for(*sinks, redaction={"enabled": False, "allow_unredacted_export": True}, tracing=tracing).close()
    manager_for(*sinks, tracing=tracing).close()


@pytest.mark.parametrize("address", NEAR)
@pytest.mark.parametrize("way", ["ariadne_url", "otlp_endpoint", "sink"])
def test_unredacted_events_may_go_to_this_machine(way: str, address: str) -> None:
    """Loopback is fine."""
    sinks = [Sending(address)] if way == "sink" else []
    manager_for(*sinks, redaction={"enabled": False}, tracing={} if way == "sink" else {way: address}).close()


@pytest.mark.parametrize(("endpoint", "near"), [("localhost:4317", True), ("10.0.0.5:4317", False), (b"//far", False),
                                                ("http://[bad", False), (Path("far"), False)])  # fmt: skip
def test_an_endpoint_of_any_shape_is_judged(endpoint: Any, near: bool) -> None:
    """Without a scheme, malformed, or no text at all: what cannot be told to be near is far."""
    if near:
        manager_for(Sending(endpoint), redaction={"enabled": False}).close()
    else:
        with pytest.raises(ConfigError, match="another machine"):
            manager_for(Sending(endpoint), redaction={"enabled": False})


@pytest.mark.parametrize("adapter", ["none", "fs"])
def test_warnings_reach_the_log_without_any_sink(adapter: str, caplog: pytest.LogCaptureFixture) -> None:
    """Who has set nothing up still hears what is neither an error nor routine."""
    messages = [*chat("s", words=900), *chat("ua" * 6)]
    with manager_for(window=2_000, storage={"adapter": adapter}, policy={"trigger_pct": 0.3}) as manager:
        manager.preflight("s", messages)
    warned = [log for log in caplog.records if log.name == "compact"]
    assert ["WARNING"] == [log.levelname for log in warned if log.getMessage().startswith("cannot_fit: ")]


# -- the format --------------------------------------------------------------------------------------------------------


def named_in(heading: str) -> set[str]:
    """The fields that FORMAT.md describes in the table under a heading."""
    text = (ROOT / "FORMAT.md").read_text("utf-8")
    section = text[text.index(f"## `{heading}`") :].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return set(re.findall(r"`(\w+)`", " ".join(rows)))


@pytest.mark.parametrize(
    ("heading", "name"), [("summary-NNN.json", "summary-001.json"), ("undo-NNN.json", "undo-001.json")]
)
def test_every_field_is_described_and_no_other(heading: str, name: str) -> None:
    """FORMAT.md names each field of a real record, and no field that is not there; inner fields are named too."""
    with manager_for() as manager:
        fold(manager, 1)
        manager.undo("s")
    record = read(name)
    assert set(record) == named_in(heading)
    text = (ROOT / "FORMAT.md").read_text("utf-8")
    assert set() == {
        key for key in inner(record, skip=("report", "message")) if f"`{key}`" not in text.replace("links.", "")
    }
    assert 1 == record["format"]


def inner(value: Any, skip: tuple[str, ...]) -> Iterator[str]:
    """All keys inside a value."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in skip:
                yield from inner(item, skip)
                yield key
    elif isinstance(value, list):
        for item in value:
            yield from inner(item, skip)
