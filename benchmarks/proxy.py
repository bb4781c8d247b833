"""What `compact proxy` costs between a client and its provider, and what it survives: `make bench-proxy`.

Owns: the measurements. Must never: use a network but loopback, leave a process behind, or write outside a temporary
directory. `--quick` takes a minute and is for trying it out; names of parts measure only these.

Rules:
- Everything is compared in one run: the same requests, the same upstream, in turns of a few seconds whose order
  rotates, so that a busy moment hits everybody. Ratios carry over to other machines, milliseconds do not.
- The upstream answers at once, so all that is measured is what stands between. The clients share the cores with it.
- The bare pass-through is Starlette and httpx as one writes it in ten minutes, with the same event loop and parser as
  ours, and no log. Ours runs as `compact proxy` does by default, its log going to a file. LiteLLM's proxy has no
  database, no callbacks and the log level ERROR; its router and its plain pass-through are both measured, and ours is
  compared with the faster one.
- The first request of a conversation is shown apart: only then is all of it counted.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

import uvloop
from measuring import Figure, Speaker, report
from proxy_load import Answer, Client, Conversation, Target, p50, p99, side_by_side, together
from proxy_servers import LITELLM_PARTS, SUMMARY_MODEL, Server, bare, free_port, litellm, ours, upstream

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from redis_server import redis_server

QUICK = "--quick" in sys.argv
SMALL = {"max_context_tokens": 4_000, "policy": {"hard_cap_buffer": 200}}
"""A window in which a dozen turns are too many."""
SUMMARIES = {"summary_model": SUMMARY_MODEL}


class AtLeast(Figure):
    """A figure that has to be as large as its bar."""

    @property
    def met(self) -> bool:
        """Whether it is."""
        return self.bar is None or self.value >= self.bar

    def __str__(self) -> str:
        whole = f"{self.value:,.0f} {self.unit}"
        return super().__str__().replace("≤", "≥").replace(f"{f'{self.value:.3g} {self.unit}':>10}", f"{whole:>10}", 1)


def sized(full: int, quick: int) -> int:
    """How much of something is measured."""
    return quick if QUICK else full


def measured(work: Coroutine[Any, Any, None]) -> None:
    """Run clients, without collections of theirs in between."""
    gc.collect()
    gc.disable()
    try:
        uvloop.run(work)
    finally:
        gc.enable()


# -- 1 to 3: nothing is due --------------------------------------------------------------------------------------------


class Field:
    """Everybody who can stand between client and upstream, each in a process of its own."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.direct = Target("no proxy", stack.enter_context(upstream(folder)))
        base = self.direct.server.address
        self.bare = Target("bare", stack.enter_context(bare(folder, base)))
        self.ours = {
            window: Target(
                f"ours, window {window // 1000}k",
                stack.enter_context(ours(folder / f"{window}", base, max_context_tokens=window)),
            )
            for window in (8_000, 128_000, 200_000)
        }
        self.theirs: list[Target] = []
        if LITELLM_PARTS.is_dir():
            server = stack.enter_context(litellm(folder, base))
            server.wait()
            router = Target("LiteLLM", server)
            self.theirs = [router, replace(router, name="LiteLLM pass-through", path="/plain/chat/completions")]
        else:
            print(f"LiteLLM's proxy is left out: what it needs is not in {LITELLM_PARTS}; see make bench-proxy")


Requests = Sequence[Iterable[bytes]]


@dataclass
class Race:
    """The same requests for everybody, in rounds; who is first changes. Connections are kept."""

    targets: Sequence[Target]
    width: int
    longest_pause: float = 0.0
    took: dict[Target, list[Answer]] = field(default_factory=lambda: defaultdict(list))
    cpu: dict[Target, float] = field(default_factory=lambda: defaultdict(float))

    def __post_init__(self) -> None:
        self._clients = {target: [Client(target) for _ in range(self.width)] for target in self.targets}

    async def run(self, rounds: int, requests: Callable[[], Callable[[], Requests]]) -> None:
        """`requests` makes what everybody is sent in a round."""
        for number in range(rounds):
            made = requests()
            for at in range(len(self.targets)):
                target = self.targets[(number + at) % len(self.targets)]
                before = target.server.cpu()
                await side_by_side(self._clients[target], made(), self.took[target].append, self.longest_pause)
                self.cpu[target] += target.server.cpu() - before

    def forget(self) -> dict[Target, list[Answer]]:
        """What came so far, which does not count."""
        before, self.took, self.cpu = self.took, defaultdict(list), defaultdict(float)
        return before

    def whole(self, target: Target) -> list[float]:
        """Seconds of each request."""
        return [answer.whole for answer in self.took[target]]

    def each(self, target: Target) -> str:
        """How many there were, and what one cost the server."""
        count = len(self.took[target])
        return f"{1e3 * self.cpu[target] / count:.1f} ms CPU each of {count:,}"


def growing(talks: Sequence[Conversation], requests: int) -> Callable[[], Requests]:
    """The next requests of some conversations, as often as one likes."""
    made = [talk.growing(requests) for talk in talks]
    return lambda: made


def passing(speaker: Speaker) -> Iterator[Figure]:
    """Latency, throughput and streams of requests that pass."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        everybody = Field(stack, Path(folder))
        yield from latency(speaker, everybody)
        yield from throughput(speaker, everybody)
        yield from streams(speaker, everybody)


def latency(speaker: Speaker, everybody: Field) -> Iterator[Figure]:
    """Requests of 100,000 tokens in conversations that grow, four at once."""
    talks = [Conversation(speaker, 96_000) for _ in range(4)]
    our = [everybody.ours[window] for window in (200_000, 128_000)]
    race = Race([everybody.bare, *our, *everybody.theirs], len(talks))

    async def run() -> None:
        small = [Conversation(speaker, 600) for _ in talks]
        await race.run(1, lambda: growing(small, 3))  # loads what is loaded when it is first needed
        race.forget()
        await race.run(1, lambda: growing(talks, 1))
        first.update({target: p50([answer.whole for answer in took]) for target, took in race.forget().items()})
        await race.run(sized(10, 2), lambda: growing([talk.branch() for talk in talks], sized(10, 5)))

    first: dict[Target, float] = {}
    measured(run())
    for target in race.targets:
        detail = f"p99 {p99(race.whole(target)):.1f} ms; {race.each(target)}; first requests {first[target]:.0f} ms"
        yield Figure(f"1 100k tokens, p50: {target.name}", p50(race.whole(target)), "ms", detail=detail)
    for target in our:
        for name, of in (("p50", p50), ("p99", p99)):
            mine = of(race.whole(target))
            yield Figure(f"  {target.name} ÷ bare, {name}", mine / of(race.whole(everybody.bare)), "×", 1.8)
            if everybody.theirs:
                best = min(of(race.whole(other)) for other in everybody.theirs)
                yield Figure(f"  {target.name} ÷ LiteLLM's best, {name}", mine / best, "×", 1.0)


def throughput(speaker: Speaker, everybody: Field) -> Iterator[Figure]:
    """Requests of 4,000 tokens, 32 at once, for a few seconds. With a window of 8k every message is weighed."""
    rounds, seconds = sized(2, 1), sized(5, 2) / 2
    talks = [Conversation(speaker, 3_600).growing(5) for _ in range(32)]
    our = [everybody.ours[window] for window in (128_000, 8_000)]
    race = Race([everybody.direct, everybody.bare, *our, *everybody.theirs], len(talks))

    def endless(bodies: Sequence[bytes]) -> Iterator[bytes]:
        end = time.perf_counter() + seconds
        for body in cycle(bodies):
            if time.perf_counter() > end:
                return
            yield body

    async def run() -> None:
        await race.run(1, lambda: lambda: talks)
        race.forget()
        await race.run(rounds, lambda: lambda: [endless(talk) for talk in talks])

    measured(run())
    for target in race.targets:
        rate = len(race.took[target]) / (rounds * seconds)
        bar = 300 if target in our else None
        yield AtLeast(f"2 4k tokens, 32 at once: {target.name}", rate, "/s", bar, race.each(target))


def streams(speaker: Speaker, everybody: Field) -> Iterator[Figure]:
    """From the request to the first byte of its stream, eight clients, each with a short pause between two streams."""
    our = everybody.ours[128_000]
    race = Race([everybody.direct, everybody.bare, our], 8, longest_pause=0.08)

    async def run() -> None:
        await race.run(1, short)
        race.forget()
        await race.run(sized(10, 2), short)

    def short() -> Callable[[], Requests]:
        return growing([Conversation(speaker, 3_000, stream=True) for _ in range(8)], sized(13, 5))

    measured(run())
    first = {target: [answer.first for answer in race.took[target]] for target in race.targets}
    for target in race.targets:
        detail = f"p50 {p50(first[target]):.1f} ms of {len(first[target]):,} streams"
        yield Figure(f"3 first streamed byte, p99: {target.name}", p99(first[target]), "ms", detail=detail)
    added = p99(first[our]) - p99(first[everybody.direct])
    yield Figure(
        "  ours − no proxy", added, "ms", 5, f"bare {p99(first[everybody.bare]) - p99(first[everybody.direct]):.1f} ms"
    )


# -- 4 memory ----------------------------------------------------------------------------------------------------------


def memory(speaker: Speaker) -> Iterator[Figure]:
    """Conversations that come and never come back; one in eight folds, and the others have many small messages."""
    steps, width = (100, 250, 500) if QUICK else (2_000, 5_000, 10_000), 8
    held, folds = dict[int, float](), 0
    with TemporaryDirectory() as name, ExitStack() as stack:
        base = stack.enter_context(upstream(Path(name))).address
        proxy: Server = stack.enter_context(ours(Path(name) / "ours", base, proxy=SUMMARIES, **SMALL))
        clients = [Client(Target("ours", proxy)) for _ in range(width)]

        def bodies(numbers: range) -> Iterator[bytes]:
            for number in numbers:
                if number // width % 8:
                    yield Conversation(speaker, 1_500, words=14).body()
                else:
                    yield from Conversation(speaker, 3_200).growing(3)

        def seen(answer: Answer) -> None:
            nonlocal folds
            folds += answer.fold == "new"

        async def run() -> None:
            done = 0
            for step in steps:
                await side_by_side(clients, [bodies(range(done + one, step, width)) for one in range(width)], seen)
                held[step] = proxy.memory()
                done = step

        measured(run())
    detail = ", ".join(f"{mb:.0f} MB after {step:,}" for step, mb in held.items())
    early, late = (held[step] for step in steps[1:])
    yield Figure("4 memory, grown in the second half", 100 * (late / early - 1), "%", 5, f"{detail}; {folds:,} folds")


# -- 5 four proxies that are killed ------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What 200 conversations came to."""

    summaries: int = 0
    kills: int = 0
    lost: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """Requests that had to be sent once more, by what went wrong."""
    mixed: int = 0
    seconds: float = 0.0


def killed(speaker: Speaker) -> Iterator[Figure]:
    """Four proxies on one Redis and one archive; first in peace, then with one killed every two seconds."""
    peace = _conversed(speaker, kill_for=0.0)
    war = _conversed(speaker, kill_for=sized(60, 6))
    again = ", ".join(f"{count} {why}" for why, count in war.failures.items()) or "none"
    detail = f"{war.kills} kills in {war.seconds:.0f} s; sent again: {again}"
    yield Figure("5 four proxies, killed: conversations lost", war.lost, "", 0, detail)
    yield Figure("  conversations mixed", war.mixed + peace.mixed, "", 0)
    detail = f"{war.summaries:,} summaries, {peace.summaries:,} in peace"
    yield Figure("  extra folds a kill", (war.summaries - peace.summaries) / max(war.kills, 1), "", 1, detail)


def _conversed(speaker: Speaker, kill_for: float) -> Outcome:
    talks, requests, outcome = sized(200, 16), 12, Outcome()
    random = Random(5)
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder, redis = Path(name), stack.enter_context(redis_server())
        base = stack.enter_context(upstream(folder)).address
        settings = {"max_context_tokens": 6_000, "policy": {"hard_cap_buffer": 200}}
        settings |= {"proxy": {"state": redis.url, **SUMMARIES}, "storage": {"path": str(folder / "archive")}}
        proxies = [stack.enter_context(ours(folder / f"{n}", base, port=free_port(), **settings)) for n in range(4)]
        for proxy in proxies:
            proxy.wait()
        own = [f"mark-{number:04}" for number in range(talks)]
        # Of different lengths, so that they do not all fold at once.
        bodies = [
            Conversation(Speaker(number), 600 + number * 37 % 40 * 110, mark=mark).growing(requests, turns=2)
            for number, mark in enumerate(own)
        ]
        over = asyncio.Event()

        async def converse(number: int) -> None:
            clients = [Client(Target("ours", proxy)) for proxy in proxies]
            pause = kill_for / requests
            await asyncio.sleep(random.random() * pause)
            for body in bodies[number]:
                answer = await _balanced(clients, random.randrange(4), body, outcome)
                if answer is None:
                    outcome.lost += 1
                    return
                said = json.loads(answer.body)["choices"][0]["message"]["content"]
                outcome.mixed += said != own[number]
                await asyncio.sleep(pause)

        async def kill() -> None:
            deadline = time.monotonic() + kill_for
            while time.monotonic() < deadline and not over.is_set():
                await asyncio.sleep(2)
                victim = random.choice(proxies)
                victim.kill()
                victim.start()
                outcome.kills += 1

        async def run() -> None:
            began = time.perf_counter()
            killing = asyncio.ensure_future(kill())
            at_once = asyncio.Semaphore(talks if kill_for else 16)

            async def one(number: int) -> None:
                async with at_once:
                    await converse(number)

            await together(one(number) for number in range(talks))
            outcome.seconds = time.perf_counter() - began
            over.set()
            await killing

        measured(run())
        with urlopen(base) as answer:
            counts = json.load(answer)
        outcome.summaries, outcome.mixed = counts["summaries"], outcome.mixed + counts["mixed"]
    return outcome


async def _balanced(clients: Sequence[Client], start: int, body: bytes, outcome: Outcome) -> Answer | None:
    """As behind a load balancer: who takes no connection is passed over. What breaks off is tried once more."""
    at, deadline = start, time.monotonic() + 20
    for _ in range(2):
        while time.monotonic() < deadline:
            at += 1
            try:
                answer = await clients[at % len(clients)].ask(body)
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
                continue
            except (OSError, EOFError) as error:
                outcome.failures[type(error).__name__] += 1
                break
            if answer.status == 200:
                return answer
            outcome.failures[f"status {answer.status}"] += 1
            break
    return None


# -- 6 folds ahead of need ---------------------------------------------------------------------------------------------


def prepared(speaker: Speaker) -> Iterator[Figure]:
    """Requests that cross the trigger while a summary takes five seconds, against all that do not."""
    for prepare, talks in ((0.6, sized(120, 10)), (None, sized(30, 5))):
        crossing, others, kinds, between = _crossed(prepare, talks)
        name = f"6 crossing the trigger, prepare_pct {prepare or 'off'}"
        made = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        detail = f"p99 {p99(crossing):.1f} ÷ {p99(others):.1f} ms; p50 {p50(crossing):.1f}, {p50(others):.1f}; {made}"
        detail += f"; at least {between:.1f} s between the lines" if prepare else ""
        yield Figure(name, p99(crossing) / p99(others), "×", 1.5 if prepare else None, detail)


def _crossed(prepare: float | None, talks: int) -> tuple[list[float], list[float], dict[str, int], float]:
    """Seconds of the requests that crossed and of the others, what was folded how, and seconds between the lines.

    A conversation starts just below the prepare line (9,600 tokens), crosses it with its second request and the
    trigger (13,600) with its tenth. They begin at different times, as conversations do: two a second.
    """
    requests, pause = 11, 1.15
    crossing, others, kinds, between = list[float](), list[float](), defaultdict[str, int](int), list[float]()
    policy = {"trigger_pct": 0.85, **({"prepare_pct": prepare} if prepare else {})}
    with TemporaryDirectory() as name, ExitStack() as stack:
        base = stack.enter_context(upstream(Path(name), summary_seconds=5.0)).address
        settings = {"max_context_tokens": 16_000, "policy": policy, "proxy": SUMMARIES}
        proxy = stack.enter_context(ours(Path(name) / "ours", base, **settings))
        bodies = [Conversation(Speaker(number), 8_900).growing(requests, turns=2) for number in range(talks)]

        async def converse(number: int) -> None:
            client = Client(Target("ours", proxy))
            await asyncio.sleep(number / 2)
            began, crossed = time.perf_counter(), False
            for at, body in enumerate(bodies[number]):
                await asyncio.sleep(max(began + at * pause - time.perf_counter(), 0))
                answer = await client.ask(body)
                if answer.status != 200:
                    raise RuntimeError(f"status {answer.status}: {answer.body[:300]!r}")
                if answer.fold in ("new", "prepared") and not crossed:
                    crossed = True
                    crossing.append(answer.whole)
                    kinds[answer.fold] += 1
                    between.append((at - 1) * pause)
                elif at:  # all of a conversation is counted with its first request
                    others.append(answer.whole)

        async def run() -> None:
            await together(converse(number) for number in range(talks))

        measured(run())
    return crossing, others, kinds, min(between)


PARTS: Sequence[Callable[[Speaker], Iterator[Figure]]] = (passing, memory, killed, prepared)


if __name__ == "__main__":
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")]
    sys.exit(report([part for part in PARTS if not wanted or part.__name__ in wanted]))
