"""One fold as one HTML file, to attach to a bug report: it opens from disk and asks no network for anything.

Owns: `exported`, and `static_text`, the page's own files. Must never: let a text of the session be anything but data.

The page's modules cannot be loaded from a disk, so those that draw a fold are written into the file as one script.
Script and style are named by their hashes in the file's own content security policy, which allows nothing else.
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

__all__ = ["STATIC", "exported", "file_name", "static_text"]

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


def exported(fold: Mapping[str, Any], messages: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    """The file: a fold document with the messages by line and those that the fold made by number."""
    style, script = static_text("app.css"), _script()
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=escape(policy),
        title=escape(f"Fold {fold['step']} of session {fold['session']}".encode("utf-8", "replace").decode()),
        style=style,
        script=script,
        data=_data({"fold": fold, "messages": messages, "made": made}),
    )


def file_name(session: str, step: int) -> str:
    """What the file is called: nothing in it that means something to a disk or to a header."""
    return f"compact-{re.sub('[^A-Za-z0-9_-]+', '-', session)[:60].strip('-') or 'session'}-fold-{step}.html"


@cache
def static_text(name: str) -> str:
    """One of the page's own files."""
    try:
        return (STATIC / name).read_text("utf-8")
    except OSError as error:
        raise CompactError(
            f"{name} of the viewer's page is missing ({error.strerror}). Install agent-compact again."
        ) from error


@cache
def _script() -> str:
    """The modules that draw a fold, as one script."""
    text = "\n".join(_EXPORT.sub("", _IMPORT.sub("", static_text(name))) for name in _MODULES)
    if "</script" in text.lower() or "<!--" in text:
        raise CompactError("The page's script cannot stand inside a file: it holds </script or <!--. Escape it there.")
    return text


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(value: Any) -> str:
    """JSON that ends no script, whatever it holds; it is ASCII, so there are no odd line ends either."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e")
