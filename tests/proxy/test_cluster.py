"""Many proxies as processes, one Redis, one archive: who folds, who is told, and what happens when one is killed."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from provider_server import APIS, Server, serving
from redis_server import RedisServer, redis_server

from compact.testing import chat

pytestmark = [pytest.mark.slow, pytest.mark.untraced]

CHAT = APIS["chat"]
WRITER = "writer"
"""The model that writes summaries."""
WORD = re.compile(r"word-\d\d")
NUMBER = re.compile(r"summary-number-\d+")


# -- the parts ---------------------------------------------------------------------------------------------------------


@dataclass
class Provider:
    """What the upstream says: each summary has a number, and every answer the words of what it answers."""

    server: Server = field(default_factory=Server)
    numbers: Any = field(default_factory=itertools.count)
    meeting: threading.Barrier | None = None
    """Where summaries wait for each other, when they are to be written at once."""

    def says(self, body: dict[str, Any]) -> str:
        """The answer to a request."""
        words = " ".join(sorted(set(WORD.findall(json.dumps(body)))))
        if body["model"] != WRITER:
            return f"Understood. {words}"
        if self.meeting is not None:
            self.meeting.wait(20)
        return f"## Progress\nParts were read, and nothing is broken. summary-number-{next(self.numbers)} {words}"

    @property
    def written(self) -> int:
        """Summaries so far."""
        return sum(body["model"] == WRITER for body in self.server.bodies)

    @property
    def requests(self) -> list[str]:
        """What was sent to the model itself."""
        pairs = zip(list(self.server.bodies), list(self.server.raw), strict=True)
        return [raw.decode() for body, raw in pairs if body["model"] != WRITER]


PATIENT = """
from compact.proxy.state.fallback_state import FallbackState

FallbackState.__init__.__kwdefaults__["patience"] = 20.0
from compact.cli import main

main()
"""
"""A proxy goes on alone when Redis does not answer in a quarter of a second, which a busy machine makes it do; here it
waits, so that what is proved is what it does with the answer."""


class Proxy:
    """A proxy in a process of its own, always on the same port."""

    def __init__(self, folder: Path, state: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port = int(listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}"
        options = ("--config", str(folder / "compact.json"), "--state", state, "--log-level", "error")
        self._command = [sys.executable, "-c", PATIENT, "proxy", "--port", str(self._port), *options]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run it."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("COMPACT_", "COV_"))}
        with (self._folder / f"{self._port}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=clean, stdout=subprocess.DEVNULL, stderr=log
            )

    def wait(self) -> None:
        """Until it answers."""
        until(lambda: self.health() is not None)

    def health(self) -> dict[str, Any] | None:
        """What it says of itself; None when it does not answer."""
        try:
            return dict(httpx.get(f"{self.url}/healthz", timeout=5).json())
        except httpx.TransportError:
            return None

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@dataclass
class Cluster:
    """Proxies that share everything they can."""

    provider: Provider
    redis: RedisServer
    proxies: list[Proxy]


@contextmanager
def cluster_of(number: int, folder: Path) -> Iterator[Cluster]:
    provider = Provider()
    with serving(says=provider.says) as provider.server, redis_server() as redis:
        config = {
            "model": "gpt-4o",
            "max_context_tokens": 2_000,
            "policy": {"hard_cap_buffer": 100, "keep_recent_turns": 1},
            "summary": {"min_score": 0, "max_retries": 0},
            "storage": {"path": str(folder / "archive")},
            "proxy": {"upstream": provider.server.url, "summary_model": WRITER, "drain": 1},
        }
        (folder / "compact.json").write_text(json.dumps(config))
        proxies = [Proxy(folder, redis.url) for _ in range(number)]
        try:
            for proxy in proxies:
                proxy.start()
            for proxy in proxies:
                proxy.wait()
            yield Cluster(provider, redis, proxies)
        finally:
            for proxy in proxies:
                proxy.kill()


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90  # where many run at once, a process needs seconds to start
    while not reached():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.02)


def conversation(word: str, rounds: int) -> list[dict[str, Any]]:
    """Rounds of some 210 tokens, each with its word in every message; the seventh is one too many."""
    messages = chat("utr" * rounds + "u", words=50)
    return json.loads(json.dumps(messages).replace("the parser", word).replace("(", f"({word} "))


def say(http: httpx.Client, proxy: Proxy, messages: list[Any]) -> httpx.Response:
    body = {"model": "gpt-4o", "max_completion_tokens": 100, "messages": messages}
    return http.post(f"{proxy.url}/v1/chat/completions", json=body, headers={"authorization": "Bearer sk-one"})


def fold(answer: httpx.Response) -> str | None:
    """What became of a request that was answered."""
    assert 200 == answer.status_code, answer.text
    return answer.headers.get("x-compact-fold")


def folds_of(requests: list[str]) -> list[str]:
    """The summaries in the requests of a conversation, each time that another one comes."""
    found = [number for text in requests for number in NUMBER.findall(text)[:1]]
    return [number for number, _ in itertools.groupby(found)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two proxies."""
    with cluster_of(2, tmp_path_factory.mktemp("pair")) as cluster:
        yield cluster


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """A client that connects anew when a server was replaced."""
    with httpx.Client(timeout=30, verify=False) as client:
        yield client


# -- two proxies -------------------------------------------------------------------------------------------------------


def test_two_proxies_fold_at_once_and_agree(pair: Cluster, http: httpx.Client) -> None:
    """One summary too many at most, and both send the same bytes, at once and ever after."""
    provider, (one, two) = pair.provider, pair.proxies
    before, sent = provider.written, len(provider.requests)
    provider.meeting = threading.Barrier(2)
    messages = conversation("word-01", 9)
    with ThreadPoolExecutor(2) as pool:
        kinds = list(pool.map(lambda proxy: fold(say(http, proxy, messages)), (one, two)))
    provider.meeting = None
    assert all(kinds)
    assert 2 == provider.written - before
    longer = [*messages, *chat("a", words=5), *chat("u", words=5)]
    assert ["replayed"] * 4 == [fold(say(http, proxy, each)) for each in (messages, longer) for proxy in (one, two)]
    assert 2 == provider.written - before
    same = [set(NUMBER.findall(text)) for text in provider.requests[sent:]]
    assert all(len(each) == 1 for each in same)
    assert same[2:] == same[2:3] * 4
    assert 2 == len(set(provider.requests[sent + 2 :])), "the same list is not sent as the same bytes"
    assert same[:2] == same[2:4], "one of the two sent a fold that did not count"


def test_one_fold_serves_both(pair: Cluster, http: httpx.Client) -> None:
    """A conversation that goes round by both proxies pays for every fold once."""
    provider = pair.provider
    before, sent = provider.written, len(provider.requests)
    for rounds, proxy in zip(range(2, 26), itertools.cycle(pair.proxies), strict=False):
        fold(say(http, proxy, conversation("word-02", rounds)))
    numbers = folds_of(provider.requests[sent:])
    assert len(numbers) >= 3
    assert len(set(numbers)) == len(numbers), "a fold came back that another had replaced"
    assert len(numbers) == provider.written - before
    assert [] == provider.server.refused


def test_redis_away_costs_a_summary_and_never_a_request(pair: Cluster, http: httpx.Client) -> None:
    """Killed in the middle of a run: every request is answered. Back again: what one folds the other knows."""
    provider, (one, two) = pair.provider, pair.proxies
    for rounds, proxy in zip(range(6, 9), itertools.cycle(pair.proxies), strict=False):
        fold(say(http, proxy, conversation("word-03", rounds)))
    pair.redis.kill()
    before = provider.written
    for rounds, proxy in zip(range(9, 13), itertools.cycle(pair.proxies), strict=False):
        assert fold(say(http, proxy, conversation("word-03", rounds)))
    assert provider.written - before <= 4
    away = [proxy.health() for proxy in pair.proxies]
    assert ["away", "away"] == [each and each["state"] for each in away]
    pair.redis.start()

    def back() -> bool:
        healths = [fold(say(http, proxy, conversation("word-03", 12))) and proxy.health() for proxy in (one, two)]
        return all(each and each["state"] == "ok" for each in healths)

    until(back)
    before = provider.written
    assert "new" == fold(say(http, one, conversation("word-04", 9)))
    assert "replayed" == fold(say(http, two, conversation("word-04", 9)))
    assert 1 == provider.written - before


# -- four proxies, and kill -9 -----------------------------------------------------------------------------------------


CONVERSATIONS, SHAPES, TURNS, PACE = 24, 6, 22, 60


def test_killed_proxies(tmp_path: Path) -> None:
    """Every client finishes with one retry a kill at most, none is mixed with another, and a retry costs one fold."""
    with cluster_of(4, tmp_path) as cluster:
        alive, lock, answered, kills = list(cluster.proxies), threading.Lock(), itertools.count(), 0
        done, wanted = 0, PACE
        over = threading.Event()

        def balanced(turn: int) -> Proxy:
            with lock:
                return alive[turn % len(alive)]

        def in_step() -> bool:
            """Not far ahead of the killer: or all is said before a killed one is back to be killed again."""
            return done < wanted + PACE

        def client(number: int) -> int:
            """One conversation to its end; how often it had to ask again."""
            nonlocal done
            word, retries = word_of(number), 0
            with httpx.Client(timeout=30, verify=False) as http:
                for turn in range(TURNS):
                    messages = conversation(word, 2 + number % SHAPES + turn)
                    until(in_step)
                    while True:
                        try:
                            answer = say(http, balanced(number + turn + retries), messages)
                            break
                        except httpx.TransportError:
                            retries += 1
                            assert retries <= kills, "more than one retry for a kill"
                    fold(answer)
                    assert f"Understood. {word}" == answer.json()["choices"][0]["message"]["content"]
                    done = next(answered)
            return retries

        def killer() -> None:
            nonlocal kills, wanted
            while not over.wait(0.01):
                if done >= wanted and len(alive) > 2:
                    victim = alive[0]
                    kills, wanted = kills + 1, done + PACE
                    with lock:
                        alive.remove(victim)
                    victim.kill()  # in the middle of what it has been sent
                    victim.start()
                    pool.submit(revive, victim)

        def revive(victim: Proxy) -> None:
            victim.wait()
            with lock:
                alive.append(victim)

        with ThreadPoolExecutor(CONVERSATIONS + 5) as pool:
            killing = pool.submit(killer)
            try:
                retries = list(pool.map(client, range(CONVERSATIONS)))
            finally:
                over.set()
            killing.result()
    provider = cluster.provider
    assert [] == provider.server.refused
    assert kills >= 3
    assert any(retries), "nobody noticed"
    sent, paid = defaultdict[str, list[str]](list), Counter[str]()
    for text in provider.requests:
        (word,) = set(WORD.findall(text))  # or two conversations are in one request
        sent[word].append(text)
    for body in provider.server.bodies:
        if body["model"] == WRITER:
            (word,) = set(WORD.findall(json.dumps(body)))
            paid[word] += 1
    for number, again in enumerate(retries):
        folds = folds_of(sent[word_of(number)])
        assert len(set(folds)) == len(folds) >= 2, "a fold came back that another had replaced"
        needed = min(paid[word_of(other)] for other in range(number % SHAPES, CONVERSATIONS, SHAPES))
        # Each fold under way in a proxy is lost with it: how many that are depends on how busy it was. But whoever was
        # not asking it pays nothing twice.
        assert paid[word_of(number)] - needed <= again


def word_of(number: int) -> str:
    """What every message of a conversation says."""
    return f"word-{number + 10}"
