"""One compaction as one HTML file, for example for a bug report: it opens from disk and needs no network.

Owns: `export_html`, and `read_static`, which reads the page's files.
Must never: put text of the session into the file as anything but data.

Browsers do not load modules from disk, so those that draw a compaction are written into the file as one script. The
file's content security policy allows this script and style by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from ..errors import CompactError

STATIC = Path(__file__).with_name("static")
_MODULES = ("dom.js", "fold.js", "export.js")
_IMPORT = re.compile(r"^import\s[^;]*;[ \t]*$", re.M)
_EXPORT = re.compile(r"^export\s+(?=(?:async\s+)?function|const|let|class)", re.M)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<script type="application/json" id="fold-data">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def export_html(fold: Mapping[str, Any], messages: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    """The file: the document of a compaction, its messages by line, and the messages it made by number."""
    style, script = read_static("app.css"), _script()
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=escape(policy),
        title=escape(f"Compaction {fold['step']} of session {fold['session']}".encode("utf-8", "replace").decode()),
        style=style,
        script=script,
        data=_data({"fold": fold, "messages": messages, "made": made}),
    )


def export_file_name(session: str, step: int) -> str:
    """The name of the file, without characters that have a meaning in paths or headers."""
    return f"compact-{re.sub('[^A-Za-z0-9_-]+', '-', session)[:60].strip('-') or 'session'}-fold-{step}.html"


@cache
def read_static(name: str) -> str:
    """A file of the page."""
    try:
        return (STATIC / name).read_text("utf-8")
    except OSError as error:
        raise CompactError(
            f"{name} of the viewer's page is missing ({error.strerror}). Install agent-compact again."
        ) from error


@cache
def _script() -> str:
    """The modules that draw a compaction, as one script."""
    text = "\n".join(_EXPORT.sub("", _IMPORT.sub("", read_static(name))) for name in _MODULES)
    if "</script" in text.lower() or "<!--" in text:
        raise CompactError(
            "The page's script cannot be embedded: it contains </script or <!--. Escape it in the source."
        )
    return text


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(value: Any) -> str:
    """JSON that cannot end a script element; it is ASCII, so it has no unusual line ends either."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e")
