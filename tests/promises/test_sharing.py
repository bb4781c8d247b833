"""Several managers, tasks and restarts on one archive: nobody works from an old picture of a session."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from compact import Ask, CompactConfig, CompactManager
from compact.errors import ArchiveError, ConfigError, ModelUnavailable
from compact.stores.fs import FileStore
from compact.testing import Recorder, ScriptedModel, chat

GUARD = 30
Messages = list[dict[str, Any]]


def manager_for(root: Path, model: Any = None, window: int = 1_500, **settings: Any) -> CompactManager:
    """A manager on an archive that others use too."""
    policy = {"hard_cap_buffer": 100, **settings.pop("policy", {})}
    settings = {"summary": {"min_score": 0, "max_retries": 0}, "counter": "chars", **settings}
    config = CompactConfig(max_context_tokens=window, storage={"path": str(root)}, policy=policy, **settings)
    return CompactManager(config, summarizer=model or ScriptedModel(lambda ask: f"notes at {time.time_ns()}"))


def turns(first: int, count: int) -> Messages:
    """So many turns, all different."""
    return chat("ua" * count, first=first, words=20)


def records(root: Path, session: str = "s") -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in sorted((root / session).glob("summary-*.json"))]


# -- two workers, one conversation -------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps", [True, False], ids=["keeps what it got", "passes everything"])
def test_two_workers_in_turns_fold_as_one_would(tmp_path: Path, keeps: bool) -> None:
    """Each knows the other's summaries, positions and folds: as many folds as one worker makes, none confused."""

    def converse(root: Path, workers: int) -> list[dict[str, Any]]:
        managers = [manager_for(root, ScriptedModel("notes: all is well")) for _ in range(workers)]
        full, mine = chat("s"), chat("s")
        for number in range(60):
            more = turns(10 * number + 1, 1)
            full, mine = [*full, *more], [*mine, *more]
            sent = managers[number % workers].preflight("s", mine if keeps else full)
            mine = list(sent)
        assert managers[0].verify("s")
        return records(root)

    alone, shared = converse(tmp_path / "one", 1), converse(tmp_path / "two", 2)
    assert len(alone) >= 4
    assert [r["range"] for r in alone] == [r["range"] for r in shared]
    assert [r["positions"] for r in alone] == [r["positions"] for r in shared]
    assert [r["base"] for r in shared] == list(range(len(shared)))
    assert [r["version"] for r in alone] == [r["version"] for r in shared]
    assert all(r["earlier_summaries"] for r in shared[1:])


def test_a_session_forgotten_elsewhere_begins_again(tmp_path: Path) -> None:
    """The agent that still holds it goes on at step 1, verifiable, and under its name."""
    name = "an id that is far too long for a folder: " + "x" * 200
    agent, keeper = manager_for(tmp_path), manager_for(tmp_path)
    mine = agent.manual_compact(name, chat("s" + "ua" * 8))
    assert 3 < len(keeper.forget(name).keys)
    assert [] == keeper.sessions()
    agent.manual_compact(name, [*mine, *turns(100, 8)])
    assert 1 == agent.session(name).step
    assert [name] == keeper.sessions()
    assert keeper.verify(name)


# -- restarts ----------------------------------------------------------------------------------------------------------


def test_positions_survive_a_restart(tmp_path: Path) -> None:
    """Also of a list whose folds left no summary: what comes later has the position it would have had."""
    mine = chat("s")
    for number in range(5):
        away = manager_for(tmp_path, ScriptedModel(ModelUnavailable("nobody there", retryable=False)))
        mine = list(away.manual_compact("s", [*mine, *turns(100 * number + 1, 8)]))
        assert not any("COMPACT-SUMMARY" in message["content"] for message in mine)
    told = records(tmp_path)
    assert [list(range(17)), 1 + 5 * 16] == [told[0]["positions"], told[-1]["positions"][-1] + 1]
    gone = [position for record in told for position in record["folds"][0]["positions"]]
    assert sorted(set(gone)) == gone, "no position was used twice"


def test_every_summary_is_known_after_a_restart(tmp_path: Path) -> None:
    """In place each fold leaves summaries where they stand; more folds than are kept for replay change nothing."""
    settings: dict[str, Any] = {"policy": {"layout": "in_place", "retention_window": 1}, "window": 60_000}
    manager, mine = manager_for(tmp_path, **settings), chat("s")
    for number in range(12):
        mine = list(manager.manual_compact("s", [*mine, *chat("utra", first=10 * number, words=20)]))
    written = [i for i, message in enumerate(mine) if str(message["content"]).startswith("<COMPACT-SUMMARY")]
    assert 11 <= len(written)
    manager_for(tmp_path, **settings).manual_compact("s", [*mine, *chat("utra", first=900, words=20)])
    assert written == records(tmp_path)[-1]["earlier_summaries"]


def test_a_damaged_undo_record_does_not_stop_folding(tmp_path: Path) -> None:
    """It costs the knowledge of what was undone; the next folds are made and stored."""
    manager = manager_for(tmp_path)
    manager.undo("s", manager.manual_compact("s", chat("s" + "ua" * 8)))
    (tmp_path / "s" / "undo-001.json").write_bytes(b'{"format": 1, "cut')
    again = manager_for(tmp_path)
    assert len(again.manual_compact("s", chat("s" + "ua" * 12))) < 20
    assert 2 == len(records(tmp_path))


def test_a_damaged_transcript_is_an_error_that_says_so(tmp_path: Path) -> None:
    """What cannot be given back whole is not given back as if it were; reading what is left works."""
    manager = manager_for(tmp_path)
    mine = manager.manual_compact("s", chat("s" + "ua" * 8))
    path = tmp_path / "s" / "transcript-pre-compact-001.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    for verb in (lambda: manager.diff("s"), lambda: manager.undo("s"), lambda: manager.undo("s", mine)):
        with pytest.raises(ArchiveError, match="has 16 of 17 messages left"):
            verb()
    assert 16 == len(manager.restore("s"))
    assert not list((tmp_path / "s").glob("undo-*"))


# -- tasks -------------------------------------------------------------------------------------------------------------


def test_a_sync_verb_never_hangs_the_loop(tmp_path: Path) -> None:
    """While a task folds, a sync verb on the same loop is refused in words; observing does not wait."""

    async def slow(ask: Ask) -> str:
        await asyncio.sleep(0.5)
        return "notes"

    async def host() -> None:
        manager = manager_for(tmp_path, slow)
        folding = asyncio.create_task(manager.amanual_compact("s", chat("s" + "ua" * 8)))
        while manager.session("s").state != "in_progress":
            await asyncio.sleep(0.01)
        manager.observe("s", 100)
        for verb in (manager.undo, manager.forget, lambda name: manager.preflight(name, chat("su"))):
            with pytest.raises(ConfigError, match="to_thread"):
                verb("s")
        assert len(await folding) < 17
        assert 17 == len(manager.undo("s"))

    asyncio.run(asyncio.wait_for(host(), GUARD))


class SlowToRead(FileStore):
    """A store that takes its time."""

    def get(self, key: str) -> bytes:
        time.sleep(0.02)
        return super().get(key)


def test_a_cancelled_call_wakes_a_session_once(tmp_path: Path) -> None:
    """The next call finds the session as it was left, not twice."""
    mine = chat("s")
    for number in range(6):
        mine = list(manager_for(tmp_path).manual_compact("s", [*mine, *turns(100 * number, 8)]))

    async def host() -> list[int]:
        manager = CompactManager(manager_for(tmp_path).config, store=SlowToRead(tmp_path))
        await manager.apreflight("other", chat("su"))
        for _ in range(3):
            call = asyncio.create_task(manager.apreflight("s", mine))
            await asyncio.sleep(0.03)
            call.cancel()
            await asyncio.wait([call])
        await manager.apreflight("s", mine)
        return [fold.step for fold in manager.session("s").folds]

    assert [1, 2, 3, 4, 5, 6] == asyncio.run(asyncio.wait_for(host(), GUARD))


# -- watching ----------------------------------------------------------------------------------------------------------


def test_verify_raises_no_false_alarm_while_somebody_folds(tmp_path: Path) -> None:
    """A record that is written between two looks is not missing."""
    manager, done = manager_for(tmp_path), threading.Event()
    mine: Messages = list(manager.manual_compact("s", chat("s" + "ua" * 8)))

    def work() -> None:
        nonlocal mine
        for number in range(40):
            mine = list(manager.manual_compact("s", [*mine, *turns(100 * number, 3)]))
        done.set()

    folding = threading.Thread(target=work)
    folding.start()
    looks = 0
    while not done.is_set():
        assert () == manager.verify("s").problems
        looks += 1
    folding.join(GUARD)
    assert looks


class Flaky(FileStore):
    """A store whose first append fails."""

    broken = True

    def append(self, key: str, lines: Iterable[bytes]) -> None:
        if self.broken:
            self.broken = False
            raise OSError("not now")
        super().append(key, lines)


def test_events_that_were_not_taken_are_written_next_time(tmp_path: Path) -> None:
    """One failed append loses no event."""
    seen = Recorder()
    with CompactManager(manager_for(tmp_path).config, sinks=[seen], store=Flaky(tmp_path)) as manager:
        mine = manager.manual_compact("s", chat("s" + "ua" * 8))
        manager.manual_compact("s", [*mine, *turns(100, 8)])
    lines = (tmp_path / "s" / "events.jsonl").read_bytes().splitlines()
    assert [event.name for event in seen] == [json.loads(line)["name"] for line in lines]


def test_a_sink_that_cannot_be_closed_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The others are closed, and it is said."""

    class Stuck:
        def __call__(self, event: Any) -> None: ...

        def close(self) -> None:
            raise OSError("disk full")

    class Fine(Stuck):
        closed = False

        def close(self) -> None:
            self.closed = True

    fine = Fine()
    CompactManager(manager_for(tmp_path).config, sinks=[Stuck(), fine]).close()
    assert fine.closed
    assert "could not be closed" in caplog.text
