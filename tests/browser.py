"""A real browser for tests of the viewer's page: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LIMIT = 15_000
"""Milliseconds after which a page hangs."""


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
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
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
