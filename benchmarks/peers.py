"""`compact` beside its peers on the same work: one turn more at growing sizes, and a session of three windows.

Owns: the table, the plot and the growth exponents of docs/benchmarks.md.
Must never: use a network, or stop because a peer cannot be installed: it is named with the reason.

One process, CPU time. Everybody gets the same words and is called in turn, in alternating order; what the host does
between two calls is not timed. A peer drops out of a size when it has had its seconds.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import tiktoken.registry
from document import PAGE, figures_table, machine, prose, table, write_section
from measuring import LONG, Figure, Speaker, count, exponent, fast_extra, quiet, verdict
from peers_play import PEERS, Floor, Ours, OursCopied, OursWithoutFacts, Peer
from plot import Line, log_log

from compact._conversation.tables import encoding

SIZES = (8_000, 32_000, 123_000, 500_000, 1_000_000)
"""Tokens of history. Nothing is due at any of them."""
SHOWN = 123_000
"""The size at which everybody is compared."""
CALLS, SECONDS, LEAST = 150, 1.5, 5
"""Calls of each at each size: so many, or as many as these seconds of CPU time allow, and so many at least."""
TURNS, WINDOW = 1_000, 128_000
PATIENCE = 30.0
"""CPU seconds after which a session is broken off."""


@dataclass
class Row:
    """What was measured of one contender."""

    make: Callable[[int], Peer]
    name: str = ""
    counts: str = ""
    package: str = ""
    costs: dict[int, float] = field(default_factory=dict)
    session: float = 0.0
    session_floor: float = 0.0
    turns: int = 0
    reason: str = ""
    """Why it is not here."""

    @property
    def growth(self) -> float:
        """The exponent of cost over tokens."""
        return exponent(list(self.costs), list(self.costs.values()))


def told(what: str) -> None:
    """Progress, on one line of the terminal."""
    print(f"\r{what}", end="\x1b[K", file=sys.stderr, flush=True)


async def compare() -> list[Row]:
    """All sizes, then all sessions."""
    rows = [Row(make) for make in PEERS]
    for tokens in SIZES:
        told(f"peers: {tokens:,} tokens …")
        await _steady(rows, tokens)
    for row in rows:
        if not row.reason and row.make is not Floor and row.make is not OursCopied:
            told(f"peers: a session with {row.name} …")
            await _session(row)
    # With nothing due there are no facts to be read, so it has no place of its own among the sizes.
    bare = Row(OursWithoutFacts, OursWithoutFacts.name)
    await _session(bare)
    told("")
    return [*rows, bare]


async def _steady(rows: list[Row], tokens: int) -> None:
    contenders = [(row, peer, []) for row in rows if not row.reason and (peer := await _filled(row, tokens))]
    gc.collect()
    speaker, turn = Speaker(1), 0
    waiting: list[tuple[Row, Peer, list[float]]] = list(contenders)
    while waiting:
        words, turn = (speaker.text(), speaker.text()), turn + 1
        for _, peer, costs in waiting if turn % 2 else reversed(waiting):
            _turn(peer, *words)
            started = time.process_time_ns()
            await peer.call()
            costs.append((time.process_time_ns() - started) / 1e9)
        waiting = [one for one in waiting if len(one[2]) < LEAST or (len(one[2]) < CALLS and sum(one[2]) < SECONDS)]
    for row, _, costs in contenders:
        row.costs[tokens] = quiet(costs)


async def _filled(row: Row, tokens: int) -> Peer | None:
    """A contender with a history of so many tokens that has seen it once, or None with the reason noted."""
    try:
        peer = row.make(10 * tokens)
        row.name, row.counts, row.package = peer.name, peer.counts, peer.package
        history = Speaker(0).history_of(tokens)
        for message in history if len(history) % 2 == 0 else history[:-1]:
            peer.say(message["role"], message["content"])
        peer.ready()
        await peer.call()
    except Exception as error:  # whatever a peer raises here, it is not there to be measured
        row.reason = f"{type(error).__name__}: {error}".splitlines()[0][:160]
        row.name = row.name or getattr(row.make, "name", str(row.make))
        return None
    return peer


def _turn(peer: Peer, answer: str, question: str) -> None:
    peer.say("assistant", answer)
    peer.say("user", question)
    peer.ready()


async def _session(row: Row) -> None:
    """A thousand turns of three windows together, and counting as many words alone beside it."""
    peer, speaker, others = row.make(WINDOW), Speaker(2, LONG), Speaker(3, LONG)
    peer.say("system", speaker.text())
    peer.say("user", speaker.text())
    peer.ready()
    await peer.call()
    gc.collect()
    for _ in range(TURNS):
        _turn(peer, speaker.text(), speaker.text())
        texts = [others.text(), others.text()]
        started = time.process_time_ns()
        await peer.call()
        called = time.process_time_ns()
        count(texts)
        row.session += (called - started) / 1e9
        row.session_floor += (time.process_time_ns() - called) / 1e9
        row.turns += 1
        if row.session > PATIENCE:
            return


def figures_of(rows: list[Row]) -> list[Figure]:
    """Where we stand beside those that know how many tokens there are."""
    at = {row.name: row.costs[SHOWN] for row in rows if row.costs}
    ours = next(row for row in rows if row.make is Ours)
    own = {row.name for row in rows if row.make in (Floor, Ours, OursCopied)}
    peers = {row.name: at[row.name] for row in rows if row.name in at and row.name not in own}
    counting = {name: cost for name, cost in peers.items() if _row(rows, name).counts != "messages"}
    nearest = min(counting, key=counting.__getitem__)
    detail = f"{at[ours.name] * 1e3:.3f} ms ÷ {counting[nearest] * 1e3:.3f} ms of {nearest}"
    if not fast_extra:
        detail += "; the bar is for the fast extra, which is not installed"
    bar = 1.0 if fast_extra else None
    return [
        Figure("preflight ÷ the fastest peer that counts tokens", at[ours.name] / counting[nearest], "×", bar, detail),
        Figure("preflight ÷ counting the new text alone", at[ours.name] / at[Floor.name], "×"),
        Figure("growth of ours with the tokens, exponent", ours.growth, "", 0.1),
    ]


def _row(rows: list[Row], name: str) -> Row:
    return next(row for row in rows if row.name == name)


HOW = {
    "exact": "exactly",
    "approximate": "approximately",
    "reported": "trusts reported usage",
    "messages": "messages only",
}


def page(rows: list[Row], figures: list[Figure]) -> list[str]:
    """The section of docs/benchmarks.md."""
    here = [row for row in rows if row.costs]
    floor = _row(rows, Floor.name)
    head = ("", "counts", *(f"{_short(size)}" for size in SIZES), f"÷ floor at {_short(SHOWN)}", "exponent")
    cells = []
    for row in here:
        name = f"**{row.name}**" if row.make in (Ours, OursCopied) else row.name
        times = (f"{row.costs[size] * 1e3:.3g}" for size in SIZES)
        ratio = f"{row.costs[SHOWN] / floor.costs[SHOWN]:,.1f} ×"
        cells.append((name, HOW[row.counts], *times, ratio, f"{row.growth:.2f}"))
    sessions = []
    for row in sorted((row for row in rows if row.turns), key=lambda row: row.session / row.turns):
        said = f"{row.session:.2f}" if row.turns == TURNS else f"over {PATIENCE:g}, broken off at turn {row.turns}"
        name = f"**{row.name}**" if row.make in (Ours, OursWithoutFacts) else row.name
        sessions.append((name, said, f"{row.session / row.session_floor:,.1f} ×"))
    absent = [f"- {row.name}: {row.reason}" for row in rows if row.reason]
    packages = sorted({row.package for row in here} - {"tiktoken", "agent-compact"})
    return [
        "## Beside its peers",
        "",
        *prose(
            "Milliseconds of CPU time before a model call, with one turn (two messages of about 120 tokens) appended, "
            "at growing tokens of history. Nothing is due; the summarizer would answer at once; one process, all in "
            "turn."
        ),
        "",
        "![Milliseconds per call against tokens of history, log-log](benchmarks.svg)",
        "",
        *table(head, cells, right=range(2, len(head))),
        "",
        *figures_table(figures),
        "",
        *prose(
            f"A session of {TURNS:,} turns, {3 * WINDOW:,} tokens at a window of {WINDOW:,}, every contender folding "
            "at 85 % and keeping what it keeps by default: CPU seconds before the model calls, all together, and "
            "against counting the new text alone. Facts and report are what no peer does: what a fold must not lose, "
            "and whether it did."
        ),
        "",
        *table(("", "seconds", "÷ floor"), sessions, right=(1, 2)),
        "",
        *(["Not here:", "", *absent, ""] if absent else []),
        *machine(packages),
    ]


def _short(tokens: float) -> str:
    return f"{tokens / 1_000_000:g}M" if tokens >= 1_000_000 else f"{tokens / 1_000:g}k"


def _label(row: Row) -> str:
    return f"{row.name} (messages only)" if row.counts == "messages" else row.name


def main() -> int:
    """Measure, print, and write the section and the plot."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    # Some peers ask tiktoken for its table by name, which would download it: this is the same table.
    tiktoken.registry.ENCODINGS["o200k_base"] = encoding("o200k_base")
    started = time.perf_counter()
    rows = asyncio.run(compare())
    figures = figures_of(rows)
    lines = page(rows, figures)
    kinds = {Floor: "floor", Ours: "ours", OursCopied: "ours"}
    drawn = [
        Line(_label(row), [(size, row.costs[size] * 1e3) for size in SIZES], kinds.get(row.make, ""))  # type: ignore[call-overload]
        for row in rows
        if row.costs
    ]
    title = "What happens before a model call: CPU time against tokens of history"
    picture = log_log(drawn, title, ("tokens of history", "milliseconds"), (_short, lambda value: f"{value:,g}"))
    PAGE.with_suffix(".svg").write_text(picture, "utf-8")
    write_section("peers", lines)
    print("\n".join(line for line in lines if line.startswith(("|", "- "))))
    return verdict(figures, time.perf_counter() - started)


if __name__ == "__main__":
    sys.exit(main())
