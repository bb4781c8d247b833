"""Values whose name stands above them.

Owns: columns with a telling name in SQL's `INSERT`.
Must never: change a row that has not as many fields as there are names.
"""

from __future__ import annotations

import re

from .judge import is_secret
from .mark import REDACTED
from .names import telling

__all__ = ["without_columns"]

_FIELD = r"\s*+(?:'(?:[^'\n\\]|''|\\.)*+'|\"[^\"\n]*+\"|[^'\"(),]++(?:\([^()]{0,64}\))?)\s*+"
_ROW = rf"\({_FIELD}(?:,{_FIELD}){{0,63}}+\)"
_INSERT = re.compile(
    r"(?i:\binsert[ \t]+into[ \t]+[^\s(]{1,128})\s{0,8}\((?P<names>[^()]{1,512})\)\s{0,8}(?i:values)\s{0,8}"
    rf"(?P<rows>{_ROW}(?:\s{{0,8}},\s{{0,8}}{_ROW}){{0,256}}+)"
)
_QUOTED = re.compile(r"'((?:[^'\n\\]|''|\\.)++)'|\"([^\"\n]++)\"")
_ROWS, _FIELDS = re.compile(_ROW), re.compile(_FIELD)


def without_columns(text: str) -> str:
    """The text without the values in columns of secrets."""
    if "nsert" in text or "NSERT" in text:
        text = _INSERT.sub(_inserted, text)
    return text


def _inserted(match: re.Match[str]) -> str:
    names = [name.strip(' \t\n`"[]') for name in match["names"].split(",")]
    if not any(map(telling, names)):
        return match[0]
    start = match.start("rows") - match.start()
    return match[0][:start] + _ROWS.sub(lambda row: _row(row, names), match["rows"])


def _row(row: re.Match[str], names: list[str]) -> str:
    inner = row[0][1:-1]
    fields = list(_FIELDS.finditer(inner))
    if len(fields) != len(names):
        return row[0]
    for name, field in reversed(list(zip(names, fields, strict=True))):
        quoted = _QUOTED.search(inner, field.start(), field.end())
        if quoted and telling(name) and is_secret(name, quoted[1] or quoted[2], telling(name)):
            start, end = quoted.span(1 if quoted[1] is not None else 2)
            inner = inner[:start] + REDACTED + inner[end:]
    return f"({inner})"
