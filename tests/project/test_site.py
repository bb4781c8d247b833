"""The documentation site: built from scratch, every link followed, and nothing fetched from anywhere else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import Visit, chromium
from project_paths import ROOT

pytestmark = pytest.mark.slow
LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}
"""What a browser fetches by itself."""


class Page(HTMLParser):
    """The ids of a page, where its links lead, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given and given.get("rel") != "canonical":
            self.loads.append(given[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it: a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / "mkdocs.yml"), "-d", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert 0 == done.returncode, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Every page of the site."""
    return {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}


def test_every_page_is_in_the_site(site: Path, pages: dict[Path, Page]) -> None:
    """Each page of docs/ and each page at the top of the repository, but for the README, which is the index's."""
    wanted = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    wanted |= {path.relative_to(ROOT) for path in ROOT.glob("*.md")} - {Path("README.md")}
    assert {path.with_suffix(".html") for path in wanted} | {Path("404.html")} == {p.relative_to(site) for p in pages}


def test_every_link_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    """A link inside of the site names a file that is there, and a place that is on it."""
    broken, followed = [], 0
    for path, page in pages.items():
        for link in (*page.links, *page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            base = site if parts.path.startswith("/") else path.parent
            target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            followed += 1
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in pages[target].ids):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert followed > 1_000
    assert [] == broken


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    """Scripts, styles, pictures and fonts are the site's own."""
    foreign = [f"{path.name}: {url}" for path, page in pages.items() for url in page.loads if urlsplit(url).netloc]
    for sheet in site.rglob("*.css"):
        named = [url.strip("'\"") for url in re.findall(r"url\(([^)]+)\)", sheet.read_text("utf-8"))]
        foreign += [url for url in named if "//" in url and not url.startswith("data:")]
    assert [] == foreign


@pytest.mark.slow
def test_a_browser_is_content(site: Path) -> None:
    """On wide and on narrow screens a page asks nobody else, complains of nothing, and is as wide as its screen."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with chromium() as browser:
            for width in (1440, 390):
                visit = Visit(
                    browser, f"http://127.0.0.1:{server.server_port}", viewport={"width": width, "height": 800}
                )
                for place in ("index.html", "reference/configuration.html", "PROXY.html", "LAWS.html"):
                    page = visit.open(place)
                    assert page.evaluate("document.documentElement.scrollWidth") <= width
                assert ([], []) == (visit.strangers, visit.wrong)
                visit.context.close()
    finally:
        server.shutdown()
        server.server_close()
