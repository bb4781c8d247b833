"""The archive under torture: kills, faults of the disk, damage, races, interruptions, hostile names.

Short forms run here; `scripts/torture.py` calls the same functions with the full counts of the promises. Each of them
returns what it did in a few words, and fails by an assertion. Run as a program this file is the process that suffers.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import fields
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from compact import CompactConfig, CompactManager
from compact._archive.jsonl import read_lines
from compact.errors import ArchiveError
from compact.stores import KeyTaken, place_of, session_of, transcript_key
from compact.stores.fs import Disk, FileStore
from compact.testing import Recorder, chat

pytestmark = pytest.mark.slow  # kills and faults

LONG_ENOUGH = 60.0
"""Seconds after which something hangs."""

Tap = Callable[[str, Callable[..., Any], tuple[Any, ...]], Any]


def config() -> CompactConfig:
    """Small windows, so that small lists fold; counted by characters, because that needs no tables."""
    return CompactConfig(model="gpt-4", max_context_tokens=4000, counter="chars")


def messages_of(session: str, fold: int, *, words: int = 60) -> list[dict[str, Any]]:
    """The list that is folded, known from two values: every process can say what must be in the archive."""
    mark = {"role": "user", "content": json.dumps([session, fold, words])}
    return [mark, *chat("uatrtrtrtruauauauauauatrtrua", words=words, first=fold * 40)]


def said_by(messages: list[Any]) -> list[Any]:
    """The list that its first message says it is."""
    session, fold, words = json.loads(messages[0]["content"])
    return messages_of(session, fold, words=words)


def tapped(tap: Tap) -> Disk:
    """A disk whose every call goes through `tap(name, the real call, its arguments)`."""

    def through(name: str) -> Callable[..., Any]:
        real = getattr(Disk(), name)
        return lambda *arguments: tap(name, real, arguments)

    return Disk(**{field.name: through(field.name) for field in fields(Disk)})


def check_files(root: Path) -> dict[str, list[Any]]:
    """Every file under a final name is whole: transcripts are what was passed in, records are JSON.

    Returns the transcripts by key.
    """
    store = FileStore(root)
    transcripts: dict[str, list[Any]] = {}
    for key in store.list(""):
        data = store.get(key)
        if "/transcript-" in key:
            messages, warning = read_lines(data, key)
            assert warning is None, warning
            assert messages, f"{key} is empty"
            assert said_by(messages) == messages, f"{key} is not what was passed in"
            transcripts[key] = messages
        elif key.endswith(".json"):
            json.loads(data)
        elif "/events" in key:
            events, _ = read_lines(data, key, tolerant=True)
            assert all(event["name"].startswith("compact.") for event in events)
    return transcripts


def check_chain(root: Path, *known: str) -> None:
    """The hash chain of every session is whole, apart from what is known."""
    with CompactManager(config(), store=FileStore(root)) as manager:
        for session in manager.sessions():
            problems = manager.verify(session).problems
            assert [] == [problem for problem in problems if not any(words in problem for words in known)]


def descriptors() -> int:
    """How many files this process has open."""
    return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0


def say(value: Any) -> None:
    """Tell the test; in one write, so that no kill cuts it."""
    os.write(1, json.dumps(value).encode() + b"\n")


@contextmanager
def victim(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """This file as a program of its own."""
    command = [sys.executable, __file__, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


# -- T01: kill -9 ------------------------------------------------------------------------------------------------------


def killed(folder: Path, kills: int, seed: int = 1) -> str:
    """Kill a process that archives, half of the time by the clock and half at a chosen system call."""
    chance = random.Random(seed)
    root = folder / "archive"
    acknowledged: dict[str, list[Any]] = {}
    strays = folds = 0
    with victim("nursery", str(root)) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for kill in range(kills):
            by_clock = kill % 2 == 0
            session = f"s-{kill // 16}"
            call = 0 if by_clock else chance.randint(1, 120)
            print(json.dumps([session, kill * 1000, call, chance.random()]), file=nursery.stdin, flush=True)
            if by_clock:
                time.sleep(chance.uniform(0.0, 0.4))
                print("kill", file=nursery.stdin, flush=True)
            for line in nursery.stdout:
                said = json.loads(line)
                if isinstance(said, int):
                    assert -signal.SIGKILL == said, f"the process ended by itself with {said}"
                    break
                fold, step = said
                acknowledged[transcript_key(session, step)] = messages_of(session, fold)
                folds += 1
            else:
                raise AssertionError("the nursery is gone")
            temporary = root / ".tmp"
            left = len(os.listdir(temporary)) if temporary.exists() else 0
            strays += left
            FileStore(root).put("probe/start", b"", if_absent=False)  # the next start
            assert [] == os.listdir(temporary), f"{left} temporary files were not swept"
            if kill % 16 == 15 or kill == kills - 1:
                there = check_files(root)
                lost = [key for key, messages in acknowledged.items() if there.get(key) != messages]
                assert [] == lost, f"{len(lost)} acknowledged transcripts are lost or changed, the first is {lost[0]}"
    FileStore(root).delete("probe/start")
    check_chain(root)
    assert folds >= kills // 4, f"only {folds} folds in {kills} lives: the test kills too early"
    return f"{kills} kills, {folds:,} acknowledged folds, {strays} strays swept"


def nursery(root: str) -> None:
    """Bring up one process after the other that archives until it is killed: on command, or at a system call."""
    for line in sys.stdin:
        session, first, call, chance = json.loads(line)
        child = os.fork()
        if not child:
            try:
                archive_until_killed(Path(root), session, first, call, random.Random(chance))
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        if not call:
            assert "kill\n" == sys.stdin.readline()
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        say(os.waitstatus_to_exitcode(status))


def archive_until_killed(root: Path, session: str, first: int, call: int, chance: random.Random) -> None:
    """Fold for ever, and say each acknowledged fold. The disk is lethal at the call of that number, if one is given."""
    calls = count(1)
    moment = chance.choice(["before", "after"])

    def lethal(name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if next(calls) != call:
            return real(*arguments)
        if name == "write":
            real(arguments[0], arguments[1][: chance.randint(0, len(arguments[1]))])
        elif moment == "after":
            real(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed")

    manager = CompactManager(config(), store=FileStore(root, disk=tapped(lethal)))
    for fold in count(first):
        messages = messages_of(session, fold)
        assert manager.manual_compact(session, messages) is not messages
        say([fold, manager.session(session).step])


@pytest.mark.spec("T01")
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Whole files under every final name, every acknowledged transcript as it was, strays swept at the next start."""
    killed(tmp_path, 12)


# -- T02: a failing disk -----------------------------------------------------------------------------------------------

FAULTS = ("ENOSPC", "EIO", "short", "cut")
"""Two codes for any call; a write that takes half, and one that takes half and then fails."""


def failing_at(number: int, fault: str) -> tuple[Disk, list[str]]:
    """A disk whose call (or write, for the faults that only writes have) of this number fails; what it met is noted."""
    calls = count(1)
    met: list[str] = []

    def tap(name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        only_writes = fault in ("short", "cut")
        if only_writes and name == "write":  # many small ones, so that the fault comes in the middle of a file
            arguments = arguments[0], arguments[1][:700]
        if (only_writes and name != "write") or name == "lock" or next(calls) != number:
            return real(*arguments)
        met.append(name)
        if only_writes:
            taken = real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            if fault == "short":
                return taken
        elif name == "close":  # the descriptor is gone all the same
            real(*arguments)
        code = errno.EIO if fault == "EIO" else errno.ENOSPC
        raise OSError(code, os.strerror(code))

    return tapped(tap), met


def starved(folder: Path, numbers: range, faults: tuple[str, ...] = FAULTS) -> str:
    """Let the n-th call to the disk fail, under the store alone and under a manager that folds."""
    runs = 0
    met: list[str] = []
    for fault in faults:
        for number in numbers:
            for run in (_store_on, _manager_on):
                disk, faults_met = failing_at(number, fault)
                run(folder / f"{run.__name__}-{fault}-{number}", fault, disk, faults_met)
                met += faults_met
                runs += 1
    assert len(met) >= runs * 2 // 3, f"only {len(met)} of {runs} runs met their fault"
    kinds = ", ".join(f"{met.count(name)} {name}" for name in sorted(set(met)))
    return f"{runs} runs, failed calls: {kinds}"


def _store_on(root: Path, fault: str, disk: Disk, met: list[str]) -> None:
    """Writes of every kind. A fault is told, what was acknowledged is there, the rest is there whole or not at all."""
    root.mkdir()
    (root / ".gitignore").touch()  # the one file that may fail in silence
    before = descriptors()
    store, whole = FileStore(root, disk=disk), FileStore(root)
    old: dict[str, bytes] = {}
    faults = 0
    for turn, key in enumerate(["s/a", "s/a", "t/b", "s/e", "s/e", "t/c", "s/a", "u/e"] * 2):
        data = b"%d," % turn * 2000
        try:
            if key.endswith("e"):
                store.append(key, [data])
            else:
                store.put(key, data, if_absent=False)
        except ArchiveError:
            faults += 1
            if not key.endswith("e"):
                there = whole.get(key) if key in whole.list("") else None
                assert there in (old.get(key), data), f"{key} is neither old nor new"
                old |= {key: there} if there is not None else {}
        else:
            assert data in whole.get(key).splitlines(), f"{key} was acknowledged and is not there"
            old[key] = data
    assert faults == len(met) * (fault != "short"), f"the failed {met} was reported as success"
    assert [] == os.listdir(root / ".tmp")
    assert before == descriptors(), "a descriptor leaked"
    whole.append("s/e", [b"next"])
    assert b"next" == whole.get("s/e").splitlines()[-1], "a line was joined to a fragment"


def _manager_on(root: Path, fault: str, disk: Disk, met: list[str]) -> None:
    """Two folds. The list goes out as it is or an error comes, unless its transcript is in the archive."""
    before = descriptors()
    recorder = Recorder()
    with CompactManager(config(), store=FileStore(root, disk=disk), sinks=[recorder]) as manager:
        for fold in range(2):
            messages = messages_of("s", fold, words=150)
            kept = list(messages)
            try:
                result = manager.preflight("s", messages)
            except ArchiveError:
                result = None
            assert messages == messages_of("s", fold, words=150)
            assert all(now is then for now, then in zip(messages, kept, strict=True))
            if result is None or result is messages:
                assert met, "a fold was refused without a reason"
                assert recorder["error"], "a failed archive was not told"
            else:
                assert len(result) < len(messages)
                assert messages in check_files(root).values(), "the list was pruned and is not in the archive"
    assert before == descriptors(), "a descriptor leaked"
    check_files(root)


@pytest.mark.spec("T02")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_disk_that_fails_once(tmp_path: Path, fault: str) -> None:
    """No success without the data, no pruning without the transcript, no descriptor left open."""
    starved(tmp_path, range(1, 41, 3 if fault in ("ENOSPC", "EIO") else 6), (fault,))


# -- T03: damage -------------------------------------------------------------------------------------------------------

DAMAGE = {
    "cut line": b'{"role":"user","content":"cut of',
    "cut escape": b'{"role":"user","content":"\\u00',
    "NUL run": b"\0" * 4096,
    "cut and NUL run": b'{"role":"us' + b"\0" * 512,
    "NUL run with newlines": b"\0\n\0\0\n",
    "bad UTF-8": b'{"role":"user","content":"\xff\xfe"}',
    "UTF-8 cut inside a character": '{"role":"user","content":"é'.encode()[:-1],
    "rubbish": b"\x80\x04\x95\n",
}


@pytest.mark.spec("T03")
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("newline", [b"", b"\n"], ids=["", "with its newline"])
def test_damage_at_the_end_costs_the_end(damage: bytes, newline: bytes) -> None:
    """All lines before it come back, with one sentence that says where and how much; no content is in it."""
    good = b'{"n":1}\n\n{"n":2}\r\n'
    values, warning = read_lines(good + damage + newline, "s/transcript-pre-compact-001.jsonl")
    assert [{"n": 1}, {"n": 2}] == values
    assert warning is not None
    assert warning.startswith("s/transcript-pre-compact-001.jsonl is damaged at its end: line 4 at byte 18 ")
    assert f"the last {len(damage + newline):,} bytes were not" in warning
    assert "role" not in warning


@pytest.mark.spec("T03")
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_inside_is_an_error(damage: bytes) -> None:
    """A bad line with a good one after it names line and byte; where appends go on, it is left out and counted."""
    data = b'{"n":1}\n' + damage + b'\n{"n":2}\n'
    with pytest.raises(ArchiveError, match=r"^s/t is damaged inside: line 2 at byte 8 .*Restore it from a") as error:
        read_lines(data, "s/t")
    assert "role" not in str(error.value)
    # The error of the decoder has the whole line in it.
    assert (None, None) == (error.value.__cause__, error.value.__context__)
    values, warning = read_lines(data, "s/events.jsonl", tolerant=True)
    assert [{"n": 1}, {"n": 2}] == values
    assert warning is not None
    assert "lines cannot be read and were left out; the first is line 2 at byte 8" in warning


@pytest.mark.spec("T03")
@pytest.mark.parametrize("data", [b"", b"\n", b'{"n":1}\n', b'{"n":1}', b'\n\n{"n":1}\n \n'])
def test_whole_lines_need_no_warning(data: bytes) -> None:
    """Blank lines and a missing last newline are no damage."""
    assert ([{"n": 1}] if b"n" in data else [], None) == read_lines(data, "s/t")


@pytest.mark.spec("T03")
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_too_deep_is_an_error(place: int) -> None:
    """A line that cannot be read here and now is never passed over as damage, wherever it stands."""
    lines = [b'{"n":1}', b'{"n":2}']
    lines.insert(place, b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(ArchiveError, match=rf"line {place + 1} at byte {place * 8} is nested deeper than"):
        read_lines(b"\n".join(lines), "s/t")
    values, warning = read_lines(b"\n".join(lines), "s/e", tolerant=True)
    assert [{"n": 1}, {"n": 2}] == values
    assert "1 of 3 lines" in str(warning)


@pytest.mark.spec("T03")
def test_every_cut_of_a_file_is_its_beginning(tmp_path: Path) -> None:
    """Wherever a file was cut, what is read is a prefix of what was written, and the next append stays whole."""
    store = FileStore(tmp_path)
    lines = [{"n": 1, "text": "é漢\n\0"}, {"n": 2}, {"n": 3}]
    whole = b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)
    for size in range(len(whole) + 1):
        (tmp_path / "s").mkdir(exist_ok=True)
        (tmp_path / "s" / "events.jsonl").write_bytes(whole[:size])
        values, _ = read_lines(store.get("s/events.jsonl"), "s/events.jsonl")
        assert lines[: len(values)] == values
        assert len(values) == whole[:size].count(b"\n") + (whole[size : size + 1] == b"\n")
        store.append("s/events.jsonl", [b'{"n":4}'])
        after, _ = read_lines(store.get("s/events.jsonl"), "s/events.jsonl", tolerant=True)
        assert [*values, {"n": 4}] == after


@pytest.mark.spec("T03")
def test_a_damaged_transcript_is_restored_up_to_the_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Through the front door: a torn end costs the last message and a warning, damage inside is an error."""
    messages = messages_of("s", 0)
    path = tmp_path / transcript_key("s", 1)
    with CompactManager(config(), store=FileStore(tmp_path)) as manager:
        manager.manual_compact("s", messages)
        whole = path.read_bytes()
        assert (messages, "") == (manager.restore("s", 1), caplog.text)
        path.write_bytes(whole[:-9])
        assert messages[:-1] == manager.restore("s", 1)
        assert 1 == caplog.text.count(f"is damaged at its end: line {len(messages)} at byte ")
        path.write_bytes(whole.replace(b'"role"', b'"role', 1))
        with pytest.raises(ArchiveError, match="is damaged inside: line 1 at byte 0 "):
            manager.restore("s", 1)


def damaged(times: int, seed: int = 1) -> str:
    """Damage files in ways chosen by chance: at the end all before it comes back, inside the place is named."""
    chance = random.Random(seed)
    at_end = 0
    for _ in range(times):
        lines = [{"n": n, "text": chance.choice(["", "é漢\n\0", "x" * 300])} for n in range(chance.randint(1, 30))]
        written = [json.dumps(line, ensure_ascii=chance.random() < 0.5).encode() + b"\n" for line in lines]
        bad = chance.randrange(len(lines))
        damage = chance.choice([*DAMAGE.values(), written[bad][: chance.randrange(1, len(written[bad]) - 1)]])
        before, after = written[:bad], written[bad + 1 :] if chance.random() < 0.5 else []
        data = b"".join([*before, damage, *([b"\n", *after] if after else [])])
        place = f"line {bad + 1} at byte {len(b''.join(before)):,} "
        if after:
            with pytest.raises(ArchiveError, match=f"damaged inside: {place}"):
                read_lines(data, "it")
        else:
            values, warning = read_lines(data, "it")
            assert lines[:bad] == values
            assert warning is not None
            assert f"damaged at its end: {place}" in warning
            at_end += 1
        values, _ = read_lines(data, "it", tolerant=True)
        assert lines[:bad] + (lines[bad + 1 :] if after else []) == values
    return f"{times:,} damaged files, {at_end:,} of them at the end"


@pytest.mark.spec("T03")
def test_damage_by_chance() -> None:
    """Any mixture of whole and damaged lines."""
    damaged(300)


def enormous(folder: Path, size: int) -> str:
    """Store and read back one line of this size, and see what time and memory it takes."""
    with victim("enormous", str(folder), str(size)) as process:
        said, _ = process.communicate(timeout=600)
    assert 0 == process.returncode
    peak, seconds = json.loads(said)
    assert peak <= 4 * size + 16_000_000, f"reading {size:,} bytes took {peak:,} bytes of memory"
    return f"a line of {size / 1e6:,.0f} MB read in {seconds:.1f} s and {peak / size:.1f} times its size of memory"


def enormous_line(folder: str, size: str) -> None:
    """Write the line in pieces, read it as the archive does, and say the memory this took beyond that before."""
    path = Path(folder, "s", "transcript-pre-compact-001.jsonl")
    path.parent.mkdir(parents=True)
    piece = b"0123456789 \\u00e9 \\n" * 50_000
    pieces = max(1, int(size) // len(piece))
    with open(path, "wb") as file:
        file.write(b'{"role":"user","content":"')
        for _ in range(pieces):
            file.write(piece)
        file.write(b'"}\n{"role":"assistant","content":"behind it"}\n{"torn')
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    values, warning = read_lines(FileStore(folder).get("s/transcript-pre-compact-001.jsonl"), "it")
    seconds = time.perf_counter() - started
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024)
    assert [pieces * len(json.loads(b'"' + piece + b'"')), 9] == [len(value["content"]) for value in values]
    assert warning is not None
    assert "line 3" in warning
    say([peak, seconds])


@pytest.mark.spec("T03")
def test_a_large_line_takes_a_few_times_its_size(tmp_path: Path) -> None:
    """Neither time nor memory explodes with one long line."""
    enormous(tmp_path, 32_000_000)


# -- T04: two processes, one session -----------------------------------------------------------------------------------


def shared(folder: Path, folds: int, after: int = 0) -> str:
    """Let two processes fold one session at the same time; it may have come far already."""
    root = folder / "archive"
    if after:
        lines = (json.dumps(message).encode() for message in messages_of("s", 0))
        FileStore(root).put(transcript_key("s", after), b"\n".join(lines))
    started: list[subprocess.Popen[str]] = []
    command = [sys.executable, __file__, "share", str(root)]
    for number in range(2):
        arguments = [*command, str(1 + number * 1_000_000), str(folds)]
        started.append(subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True))
    steps: dict[int, list[Any]] = {}
    for process in started:
        said, _ = process.communicate(timeout=900)
        assert 0 == process.returncode
        for line in said.splitlines():
            fold, step = json.loads(line)
            assert step not in steps, f"step {step} was given twice"
            steps[step] = messages_of("s", fold, words=5)
    assert folds * 2 == len(steps)
    there = check_files(root)
    there.pop(transcript_key("s", after), None)
    assert {transcript_key("s", step): messages for step, messages in steps.items()} == there
    assert [transcript_key("s", step) for step in sorted(steps)] == list(there), "not in the order of their numbers"
    check_chain(root, *(["transcripts are missing"] if after else []))
    return f"2 processes, {len(steps):,} folds, steps {min(steps):,} to {max(steps):,}"


def share(root: str, first: str, folds: str) -> None:
    """Fold one session, and say which fold became which step."""
    with CompactManager(config(), store=FileStore(root)) as manager:
        for fold in range(int(first), int(first) + int(folds)):
            messages = messages_of("s", fold, words=5)
            assert manager.manual_compact("s", messages) is not messages
            say([fold, manager.session("s").step])


@pytest.mark.spec("T04")
@pytest.mark.slow
def test_two_processes_share_a_session(tmp_path: Path) -> None:
    """Every fold has a step of its own, none is overwritten, and the order holds beyond 999."""
    shared(tmp_path, 40, after=959)


# -- T06: interruptions ------------------------------------------------------------------------------------------------


class Trap:
    """Points that a call passes: sinks, summarizer, disk. At the one it is set to, something happens."""

    def __init__(self) -> None:
        self.passed = 0
        self.set_at = 0
        self.spring: Callable[[], None] = lambda: None

    def step(self) -> None:
        """Pass a point."""
        self.passed += 1
        if self.passed == self.set_at:
            self.spring()

    def tap(self, _: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Pass a point before and after a system call."""
        self.step()
        result = real(*arguments)
        if _ != "open":  # a descriptor must reach its owner; signals cannot come inside of one call either
            self.step()
        return result

    def manager(self, root: Path) -> CompactManager:
        """A manager that passes the points."""

        def summarizer(ask: Any) -> str:
            self.step()
            return "what mattered so far: the parser reads one token at a time"

        def sink(event: Any) -> None:
            self.step()

        return CompactManager(
            config(), summarizer=summarizer, sinks=[sink], store=FileStore(root, disk=tapped(self.tap))
        )


def interrupted(folder: Path, times: int, seed: int = 1) -> str:
    """Interrupt a fold at points chosen by chance, in three ways, and by a timer at any moment."""
    chance = random.Random(seed)
    trap = Trap()
    with trap.manager(folder / "count") as manager:
        manager.preflight("s", messages_of("s", 0, words=150))
    points = trap.passed
    left = 0
    for number in range(times):
        root = folder / str(number)
        set_at = chance.randint(1, points)
        way = ("KeyboardInterrupt", "SystemExit", "cancel")[number % 3]
        left += _cancelled(root, set_at) if way == "cancel" else _raised(root, set_at, way)
    assert left >= times // 2, f"only {left} of {times} calls were interrupted"
    with victim("timer", str(folder / "timer"), str(times), str(seed)) as process:
        said, _ = process.communicate(timeout=900)
    assert 0 == process.returncode, "a call that a timer interrupted broke its promise"
    return f"{times} at {points} points ({left} left the call), {times} by a timer ({said.strip()} left the call)"


def _judge(root: Path, manager: CompactManager, messages: list[Any], kept: list[Any], result: Any) -> None:
    """The list is as it was, its transcript is there when a compacted one came back, and the next call works."""
    assert len(messages) == len(kept)
    assert all(now is then for now, then in zip(messages, kept, strict=True)), "the caller's list was touched"
    assert said_by(deepcopy(messages)) == messages, "a message was touched"
    if result is not None and result is not messages:
        assert len(result) < len(messages)
        assert messages in check_files(root).values(), "a compacted list without its transcript"
    check_files(root) if root.exists() else None
    again: list[Any] = []
    thread = threading.Thread(target=lambda: again.append(manager.preflight("s", messages)), daemon=True)
    thread.start()
    thread.join(LONG_ENOUGH)
    assert again, "the next call on the session hangs or fails"
    assert len(again[0]) < len(messages)
    assert messages in check_files(root).values(), "a compacted list without its transcript"


def _raised(root: Path, set_at: int, way: str) -> int:
    def spring() -> None:
        raise KeyboardInterrupt if way == "KeyboardInterrupt" else SystemExit(1)

    trap = Trap()
    with trap.manager(root) as manager:
        trap.set_at, trap.spring = set_at, spring
        messages = messages_of("s", 0, words=150)
        kept, result = list(messages), None
        with suppress(KeyboardInterrupt, SystemExit):
            result = manager.preflight("s", messages)
        trap.set_at = 0
        _judge(root, manager, messages, kept, result)
    return int(result is None)


def _cancelled(root: Path, set_at: int) -> int:
    async def main() -> Any:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(manager.apreflight("s", messages))
        trap.spring = lambda: loop.call_soon_threadsafe(task.cancel) and None
        try:
            return await asyncio.wait_for(asyncio.shield(task), LONG_ENOUGH)
        except asyncio.CancelledError:
            return None

    trap = Trap()
    with trap.manager(root) as manager:
        trap.set_at = set_at
        messages = messages_of("s", 0, words=150)
        kept = list(messages)
        result = asyncio.run(main())
        trap.set_at = 0
        _judge(root, manager, messages, kept, result)
    return int(result is None)


def interrupt_by_timer(folder: str, times: str, seed: str) -> None:
    """Be hit by Ctrl-C at any instruction, and judge what is left; prints how many calls did not return."""
    chance = random.Random(int(seed))

    def ctrl_c(*_: object) -> None:
        raise KeyboardInterrupt

    def hung(*_: object) -> None:
        traceback.print_stack()
        os._exit(3)

    with Trap().manager(Path(folder, "warm")) as manager:
        for session in "ab":
            started = time.perf_counter()
            manager.preflight(session, messages_of("s", 0, words=150))
            usual = time.perf_counter() - started
    left = 0
    for number in range(int(times)):
        root = Path(folder, str(number))
        manager = Trap().manager(root)
        messages = messages_of("s", 0, words=150)
        kept, result = list(messages), None
        signal.signal(signal.SIGALRM, ctrl_c)
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0001, usual))
            result = manager.preflight("s", messages)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            left += result is None
        signal.signal(signal.SIGALRM, hung)
        signal.setitimer(signal.ITIMER_REAL, 2 * LONG_ENOUGH)
        _judge(root, manager, messages, kept, result)
        manager.close()
        signal.setitimer(signal.ITIMER_REAL, 0)
    say(left)


@pytest.mark.spec("T06")
@pytest.mark.slow
def test_an_interrupted_fold_is_none_or_whole(tmp_path: Path) -> None:
    """Cancel, Ctrl-C, SystemExit: the list untouched, the transcript there when it is compacted, and life goes on."""
    interrupted(tmp_path, 30)


# -- T08: hostile session ids ------------------------------------------------------------------------------------------


def hostile_ids() -> list[str]:
    """Two hundred ids, each with a reason to break a path, a disk or a listing."""
    paths = """.. . / // /// \\ ~ ~root ~/a -rf -- * ? [a] ../a ../../etc/passwd a/../../b a/.. ./a /etc/passwd a/ /a
    a//b ....// ..\\..\\a C:\\a C:/a C: c:a \\\\host\\share \\\\?\\C:\\a file:///a a:stream a::$DATA %2e%2e %00 ..%2f
    %c0%ae a/b/c $HOME `id` $(id) a;b a|b a&b a>b a<b a'b a"b {a} {} %s %n %d @ # ! ^ + , a,b ... .a a. a.. -""".split()
    ours = """.tmp .gitignore .index .compact .git events.jsonl session.json summary-001.json archive
    transcript-pre-compact-001.jsonl probe = == =a =A =me =ME =h- =h =mfrgg =mfrgg=== =b4 me ME _ __ null None 0 -1
    00""".split()
    twins = """A a aA Aa AA aa Session session SESSION s-1 S-1 s_1 S_1 s.1 s-1. é É e\u0301 E\u0301 ß ẞ ss SS ﬁ fi FI İ
    i\u0307 ı I i K k \u212a å Å \u212b 漢字 \U0001f600 ａ Ａ ª""".split()
    devices = [each for name in "con prn aux nul com1 lpt9".split() for each in (name, name.upper(), f"{name}.txt")]
    devices += ["com0", "com¹", "conin$", "clock$", "con ", " con"]
    invisible = ["", " ", "  ", "\t", "\n", "\r\n", "a b", "a ", " a", "s-1\n", "\0", "a\0b", "a\0/../b", "\x01"]
    invisible += ["\x1b[31m", "\x85", "\u2028", "\ufeff", "\u202e", "\ufffe", "a\u200b", "a\u200d", "a\u00a0", "\x7f"]
    invisible += ["\U0010ffff", "\ud800", "\udfff", "a\udc80b", "\ud83d", "\ude00\ud83d"]
    long = ["x" * n for n in (63, 64, 65, 71, 72, 73, 119, 120, 121, 255, 256, 300, 4096)]
    long += ["X" * 300, "x" * 299 + "y", "../" * 100, "漢" * 100, "a/" * 150, "\0" * 300, "\ud800" * 300, "=" * 300]
    long += ["=h-" + "0" * 64]
    return list(dict.fromkeys([*long, *invisible, *paths, *ours, *twins, *devices]))


def random_ids(number: int, seed: int = 1) -> set[str]:
    """Ids of characters that mean something somewhere."""
    chance = random.Random(seed)
    letters = "aAbBzZ019_-=.:/\\ \0\n~%é\u0301漢\ud800\udc00\U0001f600hH"
    return {"".join(chance.choices(letters, k=chance.choice([1, 2, 3, 4, 8, 20, 70, 130]))) for _ in range(number)}


def besieged(folder: Path, number: int, folds: int | None = None) -> str:
    """Write under hostile ids, look where it went, and ask for the ids back."""
    outside = folder / "outside"
    root = outside / "archive"
    outside.mkdir(parents=True)
    written = hostile_ids()
    store = FileStore(root)
    ids = [*written, *(random_ids(number) - set(written))]
    taken: dict[str, str] = {}
    for session in ids:
        place = place_of(session)
        other = taken.setdefault(place.casefold(), session)
        assert other == session, f"{other!r} and {session!r} share the place {place!r}"
        assert session_of(place) == session or place.startswith("=h-")
    for session in ids:
        try:
            store.put(f"{place_of(session)}/probe", session.encode("utf-8", "surrogatepass"))
        except KeyTaken:
            raise AssertionError(f"{session!r} found its place taken") from None
        assert (root / place_of(session) / "probe").is_file()
    for key in store.list(""):
        place = key.split("/")[0]
        session = store.get(key).decode("utf-8", "surrogatepass")
        assert place_of(session) == place
        assert session_of(place) in (session, None)
    assert ["archive"] == os.listdir(outside), "something was written beside the root"
    told = _told(folder / "told", written[:folds])
    assert [] == [path for path in folder.rglob("*") if path.is_symlink()]
    return f"{len(written)} written and {number:,} random ids, {told} asked back from the archive"


def _told(folder: Path, ids: list[str]) -> int:
    """Fold in sessions with these ids, and ask a new manager which there are."""
    root = folder / "archive"
    with CompactManager(config(), store=FileStore(root)) as manager:
        for session in ids:
            messages = messages_of("m", 0, words=5)
            assert manager.manual_compact(session, messages) is not messages
    with CompactManager(config(), store=FileStore(root)) as manager:
        assert sorted(ids) == sorted(manager.sessions())
    assert ["archive"] == os.listdir(folder), "something was written beside the root"
    return len(ids)


@pytest.mark.spec("T08")
def test_no_id_leaves_the_root_or_shares_a_place(tmp_path: Path) -> None:
    """Two hundred written ids and some by chance: each its own place below the root, and each comes back."""
    assert len(hostile_ids()) >= 200
    besieged(tmp_path, 500, folds=60)


# -- the process that suffers ------------------------------------------------------------------------------------------

if __name__ == "__main__":
    roles: dict[str, Callable[..., None]] = {
        "nursery": nursery,
        "enormous": enormous_line,
        "share": share,
        "timer": interrupt_by_timer,
    }
    roles[sys.argv[1]](*sys.argv[2:])
