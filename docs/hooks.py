"""What the site needs besides mkdocs: the pages at the top of the repository, and links that lead somewhere.

Owns: which pages come from outside of docs/, and what a relative link becomes. Must never: change what a page says.

Every page is written for the repository, where its links are relative to its own file. Here a link is read that way and
becomes: a link to the page of the site that the file is; or, for any other file of the repository, a link to
`repo_url`, and its bare words while that is not set. A link to nothing is a warning, which `--strict` makes an error.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
TOP = {path.name for path in ROOT.glob("*.md")} - {"README.md"}
"""Pages that keep their place at the top of the repository, where people and package indexes look for them."""

LOGO = "src/compact/viewer/static/icon.svg"

_LINK = re.compile(
    r"(?P<fence>^```.*?^```$)|(?P<code>`[^`\n]+`)|\[(?P<words>[^][]*)\]\((?P<to>[^)\s]+)\)", re.MULTILINE | re.DOTALL
)
_log = get_plugin_logger("pages")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave pages out of the navigation that are not there: benchmarks.md is written by a run, not by hand."""
    config.nav = _there(config.nav or [])
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the top of the repository, and the picture that the viewer goes by."""
    files.append(File.generated(config, "assets/logo.svg", abs_src_path=str(ROOT / LOGO)))
    for name in sorted(TOP):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead every link to where it can lead from the site."""
    source = page.file.src_uri
    here = source if source in TOP else f"docs/{source}"

    def led(match: re.Match[str]) -> str:
        target = match["to"]
        if target is None or re.match(r"[a-z]+:|#", target):
            return match[0]
        path, mark, anchor = target.partition("#")
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        on_site = "index.md" if wanted == "README.md" else wanted.removeprefix("docs/")
        if on_site in files.src_uris:
            way = posixpath.relpath(on_site, posixpath.dirname(source) or ".")
            return f"[{match['words']}]({way}{mark}{anchor})"
        if not (ROOT / wanted).exists():
            _log.warning(f"{here}: the link to {target} leads nowhere")
        return f"[{match['words']}]({config.repo_url}/blob/main/{wanted})" if config.repo_url else match["words"]

    return _LINK.sub(led, markdown)


def _there(entries: list[Any]) -> list[Any]:
    """The entries of a navigation whose pages exist."""
    kept: list[Any] = []
    for entry in entries:
        ((title, page),) = entry.items()
        if isinstance(page, list):
            kept.append({title: _there(page)})
        elif (ROOT / (page if page in TOP else f"docs/{page}")).is_file():
            kept.append(entry)
    return kept
