"""What the viewer costs and how fast it shows, as figures of one run on one machine, each next to its bar.

Owns: the measurements of `compact view` without a browser. Must never: use a network beyond loopback, or write outside
a temporary directory.

Wall time, because that is what somebody who looks on waits for: run it on a quiet machine.
"""

from __future__ import annotations

import http.client
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from measuring import Figure, Speaker, report

from compact import CompactConfig, CompactManager
from compact._events.event import Event
from compact._events.trace import CallTracer, spans_of
from compact.testing import ScriptedModel
from compact.viewer import running

EVENTS = 10_000
MESSAGES = 5_000
FOLDS = 20
POSTS = 200
BODY = 262_144


class Asked:
    """One kept connection to the viewer."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)

    def get(self, path: str) -> Any:
        """What a path answers."""
        self._connection.request("GET", path)
        return json.loads(self._connection.getresponse().read())

    def post(self, body: bytes) -> Any:
        """What `/ingest` answers."""
        self._connection.request("POST", "/ingest", body, {"content-type": "application/json"})
        return json.loads(self._connection.getresponse().read())

    def timed(self, path: str, times: int = 9) -> list[float]:
        """Seconds of each of so many answers."""
        taken = []
        for _ in range(times):
            started = time.perf_counter()
            self.get(path)
            taken.append(time.perf_counter() - started)
        return taken


@contextmanager
def viewer(config: CompactConfig | None = None) -> Iterator[str]:
    """A viewer over an archive, or over nothing yet."""
    with TemporaryDirectory() as folder:
        yielded = config or CompactConfig(storage={"path": f"{folder}/archive"})
        with running(yielded) as address:
            yield address


def events(count: int, session: str = "bench") -> Iterator[Event]:
    """Preflights without a fold, as an agent emits them: two events each."""
    began = time.time() - count
    for number in range(count // 2):
        moment = began + number
        tokens = 1_000 + number * 120_000 // count
        weighed = {"model": "gpt-4o", "t_est": tokens, "max_tokens": 128_000, "usage_pct": tokens / 128_000}
        parts = {"system": 400, "developer": 0, "tools_schema": 900, "messages": tokens - 1_300}
        yield Event("compact.token_estimate", session, 0, moment, data={**weighed, "breakdown": parts})
        rules = {"trigger_pct": 0.85, "hard_cap_buffer": 1_500, "strategy": "task_state"}
        why = {"triggered": False, "reason": "below every threshold", "policy": rules, "trigger": 108_800}
        yield Event("compact.trigger_decision", session, 0, moment + 0.001, data={**why, "budget": 126_500})


def bodies(stream: Sequence[Event]) -> list[bytes]:
    """The events as an exporter sends them: spans, each once in a batch, in bodies of at most 256 KiB."""
    calls = CallTracer()
    made: list[bytes] = []
    latest: dict[str, str] = {}
    size = 0
    for event in stream:
        for span in spans_of(event, calls.add(event)):
            text = json.dumps(span.as_dict())
            size += len(text) + 2 - len(latest.get(span.span_id, ""))
            latest[span.span_id] = text
        if size > BODY - 8_000:
            made.append(('{"batch":[' + ",".join(latest.values()) + "]}").encode())
            latest, size = {}, 0
    return [*made, ('{"batch":[' + ",".join(latest.values()) + "]}").encode()]


def ingest(speaker: Speaker) -> Iterator[Figure]:
    """How many events a second are taken, stored and to be seen; then the answers over so many."""
    batches = bodies(list(events(EVENTS)))
    assert all(len(body) <= BODY for body in batches)
    with viewer() as address:
        asked = Asked(address)
        started = time.perf_counter()
        for body in batches:
            assert asked.post(body)["success"]
        seconds = time.perf_counter() - started
        spans = asked.get("/healthz")["events"]
        assert spans == EVENTS + EVENTS // 2
        rate = f"{EVENTS / seconds:,.0f} events a second, {len(batches)} bodies, {spans:,} spans"
        yield Figure("1 ingest of 1,000 events", 1_000 * seconds / (EVENTS / 1_000), "ms", 200, rate)
        line = asked.timed("/api/timeline?session=bench")
        rows = asked.timed("/api/spans?session=bench&after=0")
        yield Figure(f"2 /api/timeline of {EVENTS:,} events", 1e3 * median(line), "ms", 200, _longest(line))
        yield Figure("3 /api/spans, 5,000 rows", 1e3 * median(rows), "ms", 200, _longest(rows))
        yield Figure("4 /api/sessions", 1e3 * median(asked.timed("/api/sessions")), "ms", 200)


def live(speaker: Speaker) -> Iterator[Figure]:
    """From the POST of an event to its row in an open stream."""
    with viewer() as address:
        arrived: Queue[float] = Queue()
        stream = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
        stream.request("GET", "/events")
        answer = stream.getresponse()
        answer.readline()

        def read() -> None:
            while line := answer.readline():
                if line.startswith(b"data:"):
                    arrived.put(time.perf_counter())

        threading.Thread(target=read, daemon=True).start()
        asked, taken = Asked(address), []
        calls = CallTracer()
        for event in events(2 * POSTS, "live"):
            batch = [span.as_dict() for span in spans_of(event, calls.add(event))]
            if event.name == "compact.token_estimate":
                started = time.perf_counter()
                asked.post(json.dumps({"batch": batch}).encode())
                taken.append(arrived.get(timeout=10) - started)
        p95 = quantiles(taken, n=20)[-1]
        detail = f"p50 {1e3 * median(taken):.1f} ms, longest {1e3 * max(taken):.1f} ms of {len(taken)}"
        yield Figure("5 POST to the row in an open stream, p95", 1e3 * p95, "ms", 50, detail)


def folded(speaker: Speaker, folder: str) -> CompactConfig:
    """An archive with one session of many messages and folds."""
    config = CompactConfig(
        model="gpt-4o", max_context_tokens=100_000_000, storage={"path": f"{folder}/archive"}, counter="chars"
    )
    model = ScriptedModel("Goal: ship the parser. Decided: peek() takes no offset. [#3]")
    with CompactManager(config, summarizer=model) as manager:
        for _ in range(FOLDS):
            manager.manual_compact("long", speaker.history(messages=MESSAGES))
    return config


def folds(speaker: Speaker) -> Iterator[Figure]:
    """A session of many messages and folds, as the page asks for it."""
    with TemporaryDirectory() as folder:
        config = folded(speaker, folder)
        shutil.rmtree(Path(folder) / "archive" / ".index", ignore_errors=True)
        with viewer(config) as address:
            asked = Asked(address)
            first = _once(lambda: asked.get(f"/api/fold?session=long&step={FOLDS}"))
            again = asked.timed(f"/api/fold?session=long&step={FOLDS}", 5)
            others = [_once(lambda step=step: asked.get(f"/api/fold?session=long&step={step}")) for step in (3, 9, 15)]  # type: ignore[misc]
            what = f"{MESSAGES:,} messages"
            detail = f"others {', '.join(f'{1e3 * t:.0f}' for t in others)}, again {1e3 * median(again):.0f} ms"
            yield Figure(f"6 /api/fold of {what}, the first time", 1e3 * first, "ms", 200, detail)
            taken = asked.timed("/api/timeline?session=long")
            yield Figure(f"7 /api/timeline, {FOLDS} folds", 1e3 * median(taken), "ms", 200, _longest(taken))
            one = asked.timed(f"/api/message?session=long&step={FOLDS}&line=4000")
            yield Figure("8 /api/message", 1e3 * median(one), "ms", 50, _longest(one))
            first = _once(lambda: asked.get(f"/api/where?session=long&position=3&step={FOLDS}"))
            lies = asked.timed(f"/api/where?session=long&position=3&step={FOLDS}")
            yield Figure("9 /api/where", 1e3 * median(lies), "ms", 50, f"the first {1e3 * first:.0f} ms")


def _once(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _longest(taken: Sequence[float]) -> str:
    return f"longest {1e3 * max(taken):.0f} ms of {len(taken)}"


PARTS: Sequence[Callable[[Speaker], Iterator[Figure]]] = (ingest, live, folds)


if __name__ == "__main__":
    sys.exit(report(PARTS))
