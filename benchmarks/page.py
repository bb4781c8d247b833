"""How long somebody waits for the viewer's page, as figures of one run on one machine, each next to its bar.

Owns: the measurements of the page in a real browser. Must never: use a network beyond loopback, or write outside a
temporary directory.

Rules:
- A page is interactive when what was asked for is drawn and a frame and a task after it are done: from then on a key
  has an answer at once. The page's own clock counts from the start of the navigation.
- An event is visible one frame after its row is there. Both clocks are of one machine.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from measuring import Figure, Speaker, report
from playwright.sync_api import Browser, sync_playwright
from viewer import EVENTS, FOLDS, MESSAGES, POSTS, Asked, bodies, events, folded

from compact._events.trace import stamp
from compact.viewer import running

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WATCH = """
globalThis.seen = {};
const look = () => {
  const ready = globalThis.ready_when;
  if (ready && globalThis.interactive === undefined && ready()) {
    globalThis.interactive = null;
    requestAnimationFrame(() => setTimeout(() => { globalThis.interactive = performance.now(); }));
  }
  for (const row of document.querySelectorAll(".span[data-span^=probe]")) {
    const id = row.dataset.span;
    if (!(id in seen)) { seen[id] = null; requestAnimationFrame(() => { seen[id] = Date.now() / 1000; }); }
  }
  requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""


@contextmanager
def long_session(speaker: Speaker) -> Iterator[str]:
    """A viewer with one session of many messages, folds and events."""
    with TemporaryDirectory() as folder:
        config = folded(speaker, folder)
        with running(config) as address:
            asked = Asked(address)
            for body in bodies(list(events(EVENTS, "long"))):
                assert asked.post(body)["success"]
            deadline = time.monotonic() + 60
            while len(asked.get("/api/timeline?session=long")["folds"]) < FOLDS:
                assert time.monotonic() < deadline, "the archive was not read within a minute"
                time.sleep(0.1)
            yield address


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser."""
    if CHROMIUM is None:
        raise SystemExit("No Chromium was found. Install one: apt install chromium.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Browser, address: str, ready: str) -> tuple[Any, float]:
    """A page in a browser that knows nothing yet, and the seconds until it was interactive."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.add_init_script(WATCH + f"globalThis.ready_when = () => {ready};")
    page.goto(address)
    page.wait_for_function("() => globalThis.interactive > 0", timeout=60_000)
    return page, page.evaluate("globalThis.interactive") / 1e3


def waits(browser: Browser, address: str, ready: str, times: int = 9) -> list[float]:
    """Seconds until the page was interactive, each time from nothing; the first warms the server and is left out."""
    taken = []
    for _ in range(times + 1):
        page, seconds = opened(browser, address, ready)
        taken.append(seconds)
        page.context.close()
    return taken[1:]


def page(speaker: Speaker) -> Iterator[Figure]:
    """Opening a long session and a fold of it, and following it live."""
    session = f"document.querySelectorAll('.mark').length >= {FOLDS} && document.querySelectorAll('.span').length > 10"
    message = "document.querySelectorAll('.message').length > 20"
    with long_session(speaker) as address, chromium() as browser:
        for number, name, place, ready in (
            (1, f"session, {EVENTS:,} events, {FOLDS} folds", "#/s/long", session),
            (2, f"fold of {MESSAGES:,} messages", f"#/s/long/fold/{FOLDS}", message),
        ):
            taken = waits(browser, f"{address}/{place}", ready)
            what = f"longest {1e3 * max(taken):.0f} ms of {len(taken)}"
            yield Figure(f"{number} interactive: {name}", 1e3 * median(taken), "ms", 1_000, what)
        yield from live(browser, address, session)


def live(browser: Browser, address: str, ready: str) -> Iterator[Figure]:
    """From the POST of an event to its row on the screen of somebody who follows the long session."""
    open_page, _ = opened(browser, f"{address}/#/s/long", ready)
    open_page.wait_for_selector(".live[data-state=live]")
    asked, sent = Asked(address), {}
    for number in range(POSTS):
        now = time.time()
        probe = {"type": "span", "trace_id": "long", "span_id": f"probe-{number}", "name": "probe", "kind": "compact"}
        times = {"started_at": stamp(now), "ended_at": stamp(now), "status": "ok", "data": {}}
        sent[probe["span_id"]] = time.time()
        asked.post(json.dumps({"batch": [probe | times]}).encode())
        open_page.wait_for_function(f"() => globalThis.seen['probe-{number}'] > 0", timeout=10_000)
    seen = open_page.evaluate("globalThis.seen")
    taken = [seen[probe] - at for probe, at in sent.items()]
    p95 = quantiles(taken, n=20)[-1]
    what = f"p50 {1e3 * median(taken):.0f} ms, longest {1e3 * max(taken):.0f} ms of {len(taken)}"
    yield Figure("3 event to visible, p95", 1e3 * p95, "ms", 200, what)
    open_page.context.close()


PARTS: Sequence[Callable[[Speaker], Iterator[Figure]]] = (page,)


if __name__ == "__main__":
    sys.exit(report(PARTS))
