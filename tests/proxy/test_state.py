"""The proxy's state: what every place for it does, and what becomes of requests when it is away."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from model_servers import part
from redis_server import RedisServer, redis_server

from compact.errors import CompactError, ConfigError
from compact.proxy.state import FallbackState, SharedState, open_backend, open_state
from compact.proxy.state.memory_state import MemoryState

PLACES = ("memory", "sqlite", "redis")
PASSWORD = "pa55-canary"
PATIENCE = 5.0
"""Seconds in which a state that is away must have answered, on a machine that is busy; it means to take 0.25."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    part("redis")
    with redis_server(password=PASSWORD) as running:
        yield running


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a place, by its kind; a new one, but for the Redis."""
    if request.param == "redis":
        return str(request.getfixturevalue("server").url)
    return f"sqlite:{tmp_path}/folder/state.db" if request.param == "sqlite" else "memory"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Callable[[object], str]:
    """Keys that no other test uses."""
    return lambda key: f"{request.node.name}/{key}"


@asynccontextmanager
async def opened(url: str, ttl: float = 60) -> AsyncIterator[SharedState]:
    place = open_backend(url, ttl=ttl)
    try:
        yield place
    finally:
        await place.close()


class Log(list[tuple[str, str]]):
    """What a state said, in short and whole."""

    whole = ""

    def __call__(self, level: str, event: str, **fields: object) -> None:
        self.append((level, event))
        self.whole += json.dumps(fields)


GONE, BACK = ("warning", "state_away"), ("info", "state_back")


@asynccontextmanager
async def careful(place: SharedState | str, log: Log | None = None, **settings: Any) -> AsyncIterator[FallbackState]:
    place = open_backend(place, ttl=60) if isinstance(place, str) else place
    state = FallbackState(place, log=log if log is not None else Log(), **{"ttl": 60, "pause": 0.05, **settings})
    try:
        yield state
    finally:
        await state.close()


async def until(true: Callable[[], Awaitable[object]]) -> None:
    """Wait for something that will be so."""
    deadline = time.monotonic() + 30
    while not await true():
        assert time.monotonic() < deadline, "it never came to that"
        await asyncio.sleep(0.02)


# -- what every place does -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", PLACES, indirect=True)
def test_the_first_claim_wins_and_the_first_key_counts(url: str, name: Callable[[object], str]) -> None:
    async def main() -> None:
        async with opened(url) as state:
            a, b, c = map(name, "abc")
            assert (await state.first([a, b, c]), await state.first([])) == (None, None)
            assert b"1" == await state.claim(b, b"1")
            assert b"1" == await state.claim(b, b"2")
            assert b"\0\xff" == await state.claim(c, b"\0\xff")
            assert (1, b"1") == await state.first([a, b, c])
            assert (0, b"\0\xff") == await state.first([c, b, a])
            await state.put(b, b"3")
            assert (0, b"3") == await state.first([b])
            assert b"3" == await state.claim(b, b"4")
            winners = await asyncio.gather(*(state.claim(a, b"%d" % number) for number in range(50)))
            assert 1 == len(set(winners))

    asyncio.run(main())


@pytest.mark.parametrize("url", PLACES, indirect=True)
def test_long_conversations(url: str, name: Callable[[object], str]) -> None:
    """The first known key of 2,000 is found wherever it stands, also with others behind it."""

    async def main() -> None:
        async with opened(url) as state:
            keys = [name(number) for number in range(2_000)]
            assert await state.first(keys) is None
            for at in (1_999, 700, 640, 128, 127, 0):
                await state.put(keys[at], b"%d" % at)
                assert (at, b"%d" % at) == await state.first(keys)

    asyncio.run(main())


@pytest.mark.slow  # lets time pass
def test_values_end_unless_they_are_used(tmp_path: Path, server: RedisServer, name: Callable[[object], str]) -> None:
    async def main(url: str) -> None:
        async with opened(url, ttl=1.5) as state:
            used, unused, claimed = map(name, ("used", "unused", "claimed"))
            for key in (used, unused, claimed):
                await state.claim(key, b"1")
            await asyncio.sleep(1)
            assert (0, b"1") == await state.first([used])
            assert b"1" == await state.claim(claimed, b"2")
            await asyncio.sleep(1)
            assert (1, b"1") == await state.first([unused, used])
            assert (0, b"1") == await state.first([claimed])
            await asyncio.sleep(2)
            assert await state.first([used, unused, claimed]) is None
            assert b"2" == await state.claim(used, b"2")

    async def everywhere() -> None:
        await asyncio.gather(*map(main, ("memory", f"sqlite:{tmp_path}/state.db", server.socket_url)))

    asyncio.run(everywhere())


CLAIMS = """
import asyncio, json, sys
from compact.proxy.state import open_backend

async def main(url, prefix, me, count):
    state = open_backend(url, ttl=60)
    await state.first(["warm"])
    print("ready", flush=True)
    sys.stdin.readline()
    won = await asyncio.gather(*(state.claim(f"{prefix}{n}", f"{me}{n}".encode()) for n in range(int(count))))
    print(json.dumps([value.decode() for value in won]))
    await state.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow  # processes
@pytest.mark.parametrize("url", ["sqlite", "redis"], indirect=True)
def test_processes_agree(url: str, name: Callable[[object], str]) -> None:
    """Two that open the same place and claim the same keys at once get the same value for each."""
    count = 2_000 if url.startswith("sqlite") else 200

    def start(who: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", CLAIMS, url, name(""), who, str(count)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    running = [start("a"), start("b")]
    try:
        assert ["ready\n"] * 2 == [process.stdout.readline() for process in running if process.stdout]
        for process in running:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        one, other = (json.loads(process.communicate(timeout=60)[0]) for process in running)
    finally:
        for process in running:
            process.kill()
            process.communicate()
    assert one == other
    assert [str(number) for number in range(count)] == [value[1:] for value in one]


# -- each place for itself -------------------------------------------------------------------------------------------


def test_memory_holds_so_many_and_so_much() -> None:
    """Whatever was unused for longest gives way, by number and by size; what is too large for all of it is not kept."""

    async def main() -> None:
        few = MemoryState(ttl=60, entries=3)
        for key in "abc":
            await few.put(key, b"")
        few.find("a")
        await few.put("d", b"")
        assert ["a", "c", "d"] == [key for key in "abcd" if few.find(key)]
        small = MemoryState(ttl=60, size=10_000)
        for number in range(1_000):
            assert b"x" * 3_000 == await small.claim(str(number), b"x" * 3_000)
            await small.put("0", b"x" * (number % 2_000))
        assert ["0", "998", "999"] == [str(number) for number in range(1_000) if small.find([str(number)])]
        assert b"x" * 20_000 == await small.claim("large", b"x" * 20_000)
        assert (None, (0, b"x" * 3_000)) == (await small.first(["large"]), await small.first(["999"]))

    asyncio.run(main())


def test_sqlite_keeps_across_restarts_and_sweeps(tmp_path: Path) -> None:
    """What is alive is there again; what is not leaves the file, which nobody else may read."""
    path = tmp_path / "state.db"

    async def run(ttl: float, key: str) -> tuple[int, bytes] | None:
        async with opened(f"sqlite:{path}", ttl) as state:
            await state.claim(key, b"1")
            return await state.first(["old", "new"])

    asyncio.run(run(60, "new"))
    assert (1, b"1") == asyncio.run(run(60, "newer"))
    asyncio.run(run(0.001, "old"))
    time.sleep(0.01)
    assert (1, b"1") == asyncio.run(run(60, "newest"))
    with closing(sqlite3.connect(path)) as db:
        assert [("new",), ("newer",), ("newest",)] == db.execute(
            "SELECT key FROM compact_state ORDER BY key"
        ).fetchall()
    assert 0o600 == path.stat().st_mode & 0o777


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE accounts (id)")


def _ours(path: Path, change: str = "") -> None:
    async def main() -> None:
        async with opened(f"sqlite:{path}") as state:
            for number in range(200):
                await state.put(f"{number}", b"x" * 3_000)

    asyncio.run(main())
    with closing(sqlite3.connect(path)) as db:
        db.execute(change or "PRAGMA wal_checkpoint")


def _newer(path: Path) -> None:
    _ours(path, "PRAGMA user_version = 2")


def _damaged(path: Path) -> None:
    _ours(path)
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 20] = os.urandom(4096 * 17)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.write_bytes(b"{}" * 5_000), "not a database"),
        (_foreign, "another program made it"),
        (_newer, "version 2"),
        (_damaged, "damaged|malformed"),
        (Path.mkdir, "directory"),
    ],
)
def test_a_file_that_sqlite_cannot_use(make: Callable[[Path], Any], why: str, tmp_path: Path) -> None:
    """That is said at the start, with the file and what to do, and the file stays as it is."""
    path = tmp_path / "state.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(ConfigError, match=f"(?i){why}") as caught:
        open_state(f"sqlite:{path}", ttl=60, log=Log())
    assert f"the file {path} cannot be used" in str(caught.value)
    assert "name another file" in str(caught.value)
    assert before == (path.read_bytes() if path.is_file() else None)


@pytest.mark.parametrize(
    "url",
    [
        *("", "disk", "memory:", "sqlite:", "redis:6379", f"postgres://u:{PASSWORD}@h/", f"http://u:{PASSWORD}@h/"),
        *(f"redis://:{PASSWORD}@h:port/", f"redis://u:a#{PASSWORD}@h/", f"redis://[{PASSWORD}/"),
        *(f"redis://h?{PASSWORD}=1", f"redis://h?socket_timeout={PASSWORD}"),
    ],
)
def test_addresses_that_name_no_place(url: str) -> None:
    """That is said at the start, with what is allowed, and without the address."""
    part("redis")
    with pytest.raises(ConfigError, match=r"proxy\.state: .*redis://") as caught:
        open_state(url, ttl=60, log=Log())
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None


def test_without_the_client_of_redis() -> None:
    """The extra is named, and nothing else needs it."""
    code = (
        "import sys; sys.modules['redis'] = None\n"
        "from compact.proxy.state import open_backend\n"
        "open_backend('memory', ttl=1)\n"
        "try: open_backend('redis://h', ttl=1)\n"
        "except ImportError as error: print(type(error).__name__, error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert said.startswith("MissingExtra")
    assert "pip install 'agent-compact[redis]'" in said


# -- a place that is away --------------------------------------------------------------------------------------------


def test_memory_needs_no_care() -> None:
    assert isinstance(open_state("memory", ttl=60, log=Log()), MemoryState)


@pytest.mark.parametrize("url", ["sqlite", "redis"], indirect=True)
def test_a_copy_spares_the_place_and_a_longer_beginning_is_found(url: str, name: Callable[[object], str]) -> None:
    """What is known here is not asked for again for a while, but what would count more is."""

    async def main() -> None:
        log = Log()
        longest, longer, short = map(name, ("longest", "longer", "short"))
        async with opened(url) as other, careful(url, log) as state:
            assert b"1" == await state.claim(short, b"1")
            await other.put(short, b"changed behind its back")
            assert (2, b"1") == await state.first([longest, longer, short])
            assert b"2" == await other.claim(longer, b"2")
            assert (1, b"2") == await state.first([longest, longer, short])
            await other.put(longer, b"changed behind its back")
            assert (1, b"2") == await state.first([longest, longer, short])
        async with opened(url) as other, careful(url, log, trust=0) as state:
            await state.put(short, b"ours")
            await other.put(short, b"theirs")
            assert (0, b"theirs") == await state.first([short])
            assert ([], 0, False) == (log, state.failures, state.away)

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "held"])
def test_a_redis_that_goes_and_comes_back(how: str, name: Callable[[object], str]) -> None:
    """Nothing raises or waits, two lines are said, and in the end all agree, also on what was claimed meanwhile."""
    part("redis")

    async def main(server: RedisServer) -> None:
        log = Log()
        before, during, new = map(name, ("before", "during", "new"))
        async with careful(server.url, log) as one, careful(server.url) as other:
            assert b"1" == await one.claim(before, b"1")
            server.kill() if how == "killed" else server.hold()
            began = time.monotonic()
            assert (1, b"1") == await one.first([new, before])
            assert began + PATIENCE > time.monotonic()
            assert (True, 1, [GONE]) == (one.away, one.failures, log)
            assert b"a" == await one.claim(during, b"a")
            assert b"a" == await one.claim(during, b"b")
            assert (0, b"a") == await one.first([during, before])
            await one.put(new, b"n")
            assert b"z" == await other.claim(during, b"z")
            assert await other.first([before]) is None
            started = time.monotonic()
            for _ in range(200):  # most of them do not even ask
                assert (0, b"n") == await one.first([new])
            assert started + PATIENCE > time.monotonic()
            server.start() if how == "killed" else server.go_on()
            await until(lambda: back(one))
            await until(lambda: back(other))
            assert [GONE, BACK] == log
            # A Redis that was killed has lost everything; one that was held may even have taken late commands.
            known = [await state.first([during]) for state in (one, other, one)]
            assert known[0] == known[1] == known[2]
            assert known[0] in ((0, b"a"), (0, b"z"))
            assert (0, b"1") == await one.first([before])
            assert (0, b"1") == await other.first([before])
            assert (0, b"n") == await one.first([new])
            assert (0, b"n") == await other.first([new])
            assert PASSWORD not in log.whole + repr(vars(one)) + str(one._backend)
            assert "127.0.0.1:" in log.whole

    async def back(state: FallbackState) -> bool:
        await state.first([name("nothing")])
        return not state.away

    with redis_server(password=PASSWORD) as server:
        asyncio.run(main(server))


def test_a_redis_that_was_never_there_or_lets_nobody_in(server: RedisServer) -> None:
    """The proxy starts and works all the same."""

    async def main(url: str, error: str) -> None:
        log = Log()
        async with careful(url, log) as state:
            assert b"1" == await state.claim("a", b"1")
            assert (0, b"1") == await state.first(["a"])
            assert ([GONE], 1) == (log, state.failures)
            assert error in log.whole
            assert PASSWORD not in log.whole

    asyncio.run(main(f"redis://:{PASSWORD}@127.0.0.1:1/0", "ConnectionError"))
    asyncio.run(main(f"unix://:{PASSWORD}@/nowhere", "ConnectionError"))
    asyncio.run(main(server.url.replace(PASSWORD, f"{PASSWORD}2"), "AuthenticationError"))


def test_a_sqlite_file_that_somebody_locks(tmp_path: Path) -> None:
    """The loop goes on meanwhile, and so do requests."""

    async def main() -> None:
        log, path = Log(), tmp_path / "state.db"
        async with careful(f"sqlite:{path}", log) as state:
            await state.claim("a", b"1")
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN EXCLUSIVE")
                turns = 0

                async def turn() -> None:
                    nonlocal turns
                    while True:
                        turns += 1
                        await asyncio.sleep(0.005)

                turning = asyncio.ensure_future(turn())
                assert b"2" == await state.claim("b", b"2")
                turning.cancel()
                assert turns > 3
                assert [GONE] == log
                assert (0, b"2") == await state.first(["b", "a"])
            await until(lambda: back(state))
            assert [GONE, BACK] == log
            assert (0, b"2") == await state.first(["b", "a"])
        async with opened(f"sqlite:{path}") as place:
            assert (0, b"2") == await place.first(["b"])

    async def back(state: FallbackState) -> bool:
        await state.first(["nothing"])
        return not state.away

    asyncio.run(main())


class Broken:
    """A place in which everything goes wrong, in one way or another."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.calls = 0

    def __str__(self) -> str:
        return "a broken place"

    async def _fail(self) -> Any:
        self.calls += 1
        await asyncio.sleep(0)
        raise self._errors[self.calls % len(self._errors)]

    async def first(self, keys: Sequence[str]) -> tuple[int, bytes] | None:
        return await self._fail()

    async def claim(self, key: str, value: bytes) -> bytes:
        return await self._fail()

    async def put(self, key: str, value: bytes) -> None:
        await self._fail()

    async def close(self) -> None:
        await self._fail()


@pytest.mark.slow
def test_nothing_is_raised_and_pauses_grow() -> None:
    """Whatever a place raises: it is asked less and less often, and by one call at a time."""

    async def main() -> None:
        log, place = Log(), Broken(OSError(PASSWORD), CompactError(), RuntimeError(), KeyError(PASSWORD))
        async with careful(place, log, pause=0.02, longest_pause=0.16) as state:
            ends = time.monotonic() + 1
            while time.monotonic() < ends:
                await asyncio.gather(*(state.first(["a"]) for _ in range(20)), state.put("b", b"1"))
                await asyncio.sleep(0.002)
            assert b"1" == await state.claim("a", b"1")
        # 21 at first, which all left before one came back; one after 0.02, 0.04, 0.08, 0.16, 0.16 … seconds; `close`.
        assert 23 <= place.calls <= 33
        assert (place.calls - 1, [GONE]) == (state.failures, log)
        assert PASSWORD not in log.whole

    asyncio.run(main())


def test_a_caller_that_leaves_is_no_failure() -> None:
    class Slow(Broken):
        async def _fail(self) -> Any:
            await asyncio.sleep(60)

    async def main() -> None:
        log = Log()
        state = FallbackState(Slow(), ttl=60, log=log, patience=30)
        call = asyncio.ensure_future(state.first(["a"]))
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert ([], 0, False) == (log, state.failures, state.away)

    asyncio.run(main())
