"""What being watched costs: emitting an event, how soon it is seen, and a viewer that never answers.

Owns: the measurements. Must never: use a network but loopback, or write outside a temporary directory.

Rules: as in `measuring`. The stand-in for the viewer runs in this very process, so its work is in the latencies.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from measuring import Figure, Speaker, manager_for, report

from compact._archive.archive import Archive
from compact._engine.live_sessions import LiveSession
from compact._engine.recorder import EventRecorder
from compact._events.event import Event
from compact._pipeline.effects import Emit
from compact._redaction import Redactor
from compact.sinks._queue import queued
from compact.sinks.ariadne import AriadneSink
from compact.sinks.jsonl import JsonlSink
from compact.sinks.sink_list import SinkList
from compact.stores.fs import FileStore

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from ariadne_server import StandIn

GROUPS = 300
SIZES = {20: "1 emitting an event, three behind it", 100: "  … in bursts so long that they are weighed"}
SENT = 200
DECIDED = {
    "triggered": False,
    "reason": "61% of the window",
    "policy": {"trigger_pct": 0.85, "hard_cap_buffer": 1500, "strategy": "task_state"},
}
ESTIMATED = {
    "model": "gpt-4o",
    "t_est": 78_112,
    "max_tokens": 128_000,
    "usage_pct": 0.6102,
    "breakdown": {"system": 512, "developer": 0, "tools_schema": 4_100, "messages": 73_500},
}


def emitting(_: Speaker) -> Iterator[Figure]:
    """`EventRecorder.emit` with an archive, a JSONL file and Ariadne behind it: what the agent's thread pays."""
    costs: dict[int, list[float]] = {size: [] for size in SIZES}
    with TemporaryDirectory() as folder, StandIn() as stand_in:
        archive = Archive(FileStore(folder), Redactor(), "fs")
        jsonl = queued(JsonlSink(Path(folder) / "events.jsonl"), label="JSONL")
        ariadne = AriadneSink(stand_in.url)
        journal = EventRecorder(archive, SinkList([jsonl, ariadne], Redactor()))
        room = LiveSession("bench")
        emit = journal.emit
        for _group in range(GROUPS):
            for size, taken in costs.items():
                effects = [
                    Emit("compact.trigger_decision", dict(DECIDED))
                    if number % 2
                    else Emit("compact.token_estimate", dict(ESTIMATED))
                    for number in range(size)
                ]
                started = time.thread_time_ns()
                for effect in effects:
                    emit(room, effect)
                taken.append((time.thread_time_ns() - started) / size / 1e3)
                ariadne.flush()
                jsonl.flush()
        counts = ariadne.counts()
        journal.close([])
    for size, name in SIZES.items():
        detail = f"{GROUPS} groups of {size}, 90% under {quantiles(costs[size], n=10)[-1]:.2f} µs"
        yield Figure(name, median(costs[size]), "µs", 4.0, f"{detail}; {counts.delivered:,} delivered")


def events_per_preflight(speaker: Speaker) -> Iterator[Figure]:
    """How many events a preflight emits in which nothing is due."""
    seen: list[Event] = []
    with manager_for(100_000) as quiet:
        from compact import CompactManager

        with CompactManager(quiet.config, sinks=[seen.append]) as manager:
            history = speaker.history(messages=9)
            manager.preflight("bench", history)
            seen.clear()
            for _ in range(10):
                history += speaker.turn()
                manager.preflight("bench", history)
    yield Figure("2 events per preflight without a fold", len(seen) / 10, "", 2.0)


def latency(_: Speaker) -> Iterator[Figure]:
    """From the event to the server that has it, one event at a time."""
    late = []
    with StandIn() as stand_in:
        sink = AriadneSink(stand_in.url)
        sinks = SinkList([sink], Redactor())
        for number in range(SENT):
            sent = time.time()
            sinks(Event("compact.config_changed", "bench", 1, sent, data={"n": number, "message": "the lamps " * 20}))
            stand_in.wait_for(lambda s, number=number: s.spans() and s.accepted[-1]["data"]["n"] == number)  # type: ignore[misc]
            late.append((stand_in.arrived[-1] - sent) * 1e3)
        sink.close()
    detail = f"p50 {median(late):.1f} ms, longest {max(late):.1f} ms, of {SENT}"
    yield Figure("3 event to server, p95", quantiles(late, n=20)[-1], "ms", 200.0, detail)


SILENT = """
import json, sys, time
from compact._events.event import Event
from compact._redaction import Redactor
from compact.sinks.sink_list import SinkList
from compact.sinks.ariadne import AriadneSink

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

sink = AriadneSink(sys.argv[1])
sinks = SinkList([sink], Redactor())
text = "the parser reads one token at a time " * 20
before, delays, clock = resident(), [], time.perf_counter_ns
for number in range(10_000):
    event = Event("compact.config_changed", "bench", 1, time.time(), data={"n": number, "message": f"{number} {text}"})
    started = clock()
    sinks(event)
    delays.append(clock() - started)
    if number % 100 == 99:
        time.sleep(0.002)
delays.sort()
counts = sink.counts()
print(json.dumps({
    "p99": delays[9_900] / 1e6, "longest": delays[-1] / 1e6, "median": delays[5_000] / 1e3,
    "grown": (resident() - before) / 1e6, "counts": counts, "at": time.time(),
}))
"""


def never_answered(_: Speaker) -> Iterator[Figure]:
    """T09: 10,000 events for a server that takes them and never answers; then the program ends without a close."""
    with StandIn("silent") as stand_in:
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SILENT, stand_in.url], capture_output=True, text=True, check=True
        )
        left = time.time()
    told: dict[str, Any] = json.loads(ended.stdout)
    emitted, delivered, dropped, waiting = told["counts"]
    detail = f"median {told['median']:.1f} µs, longest {told['longest']:.1f} ms"
    yield Figure("4 T09: delay of who emits, p99", told["p99"], "ms", 1.0, detail)
    detail = f"{emitted:,} emitted = {delivered:,} delivered + {dropped:,} dropped + {waiting:,} queued"
    yield Figure("  … memory", told["grown"], "MB", 16.0, detail)
    if emitted != delivered + dropped + waiting:
        raise SystemExit(f"T09: {detail} does not add up.")
    yield Figure("  … end of the program", left - told["at"], "s", 2.5, ended.stderr.strip())


if __name__ == "__main__":
    sys.exit(report((emitting, events_per_preflight, latency, never_answered)))
