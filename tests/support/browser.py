"""A real browser for tests of the viewer's page: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import base64
import json
import os
import shutil
import struct
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LIMIT = 60_000
"""Milliseconds after which a page hangs; on a machine with much else to do, five million characters take seconds."""


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser. Without one: skipped, but not in CI.

    While it is open this thread has a running event loop, so tests that start their own belong elsewhere.
    """
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("No Chromium was found. Install Debian's: apt install chromium.")
        pytest.skip("no Chromium is installed here")
    if os.environ.get("CI"):
        from playwright.sync_api import sync_playwright
    else:
        sync_playwright = pytest.importorskip("playwright.sync_api").sync_playwright
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-lcd-text"]
        )
        yield browser
        browser.close()


class Visit:
    """A page, and everything it did that nobody may do: complaints, dialogs, and requests to others."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.address = address
        self.context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
        self.page = self.context.new_page()
        self.page.set_default_timeout(LIMIT)
        self.requests: list[str] = []
        self.wrong: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.wrong.append(f"exception: {error}"))
        self.page.on("console", lambda said: said.type in ("error", "warning") and self.wrong.append(said.text))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def open(self, place: str = "#/") -> Any:
        """Go to an address behind the `#`."""
        self.page.goto(f"{self.address}/{place}")
        return self.page

    @property
    def strangers(self) -> list[str]:
        """Requests to anybody but the viewer."""
        return [url for url in self.requests if urlsplit(url).netloc != urlsplit(self.address).netloc]


def post(address: str, *events: dict[str, Any]) -> None:
    """Send events as an agent would; one that is too large for `/ingest` is the caller's mistake."""
    body = json.dumps({"batch": events}).encode()
    request = urllib.request.Request(f"{address}/ingest", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert 200 == answer.status, answer.read()


def small_picture(page: Any) -> bytes:
    """A screenshot as a PNG of at most 256 colours, a third of the size of what a browser writes."""
    with page.context.new_page() as other:
        taken = base64.b64encode(page.screenshot()).decode()
        width, height, colours, pixels = other.evaluate(PALETTE, taken)
    lines = base64.b64decode(pixels)
    rows = b"".join(b"\x00" + lines[at : at + width] for at in range(0, width * height, width))
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(colours)),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    made = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


PALETTE = """async png => {
  const picture = new Image();
  picture.src = `data:image/png;base64,${png}`;
  await picture.decode();
  const [width, height] = [picture.width, picture.height];
  const pen = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
  pen.drawImage(picture, 0, 0);
  const { data } = pen.getImageData(0, 0, width, height);
  const counts = new Map();
  const colourAt = (at) => (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
  for (let at = 0; at < data.length; at += 4) counts.set(colourAt(at), (counts.get(colourAt(at)) ?? 0) + 1);
  // Of colours that look alike only the most common one has a place, so that rare ones find theirs.
  const alike = new Set();
  for (const [colour] of [...counts].sort((one, other) => other[1] - one[1])) {
    if (alike.has(colour & 0xf0f0f0)) counts.delete(colour);
    alike.add(colour & 0xf0f0f0);
  }
  const common = [...counts].sort((one, other) => other[1] - one[1]).slice(0, 256).map(([colour]) => colour);
  const parts = (colour) => [colour >> 16, (colour >> 8) & 255, colour & 255];
  const known = new Map(common.map((colour, index) => [colour, index]));
  const nearest = (colour) => {
    const [r, g, b] = parts(colour);
    let [best, least] = [0, Infinity];
    common.forEach((other, index) => {
      const [x, y, z] = parts(other);
      const far = (r - x) ** 2 + (g - y) ** 2 + (b - z) ** 2;
      if (far < least) [best, least] = [index, far];
    });
    known.set(colour, best);
    return best;
  };
  let pixels = "";
  for (let at = 0; at < data.length; at += 4) {
    pixels += String.fromCharCode(known.get(colourAt(at)) ?? nearest(colourAt(at)));
  }
  return [width, height, common.flatMap(parts), btoa(pixels)];
}"""
