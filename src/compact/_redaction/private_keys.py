"""Private keys in their armour.

Owns: where a PEM, OpenSSH, PGP or PuTTY private key starts and ends, also cut off, indented, numbered or escaped.
Must never: take a certificate or a public key.

Works on whole texts, however long: keys stretch over many lines, so they are taken out before a text is cut in slices.
Places are found by `str.find`, and each pattern is anchored and runs over one key only.
"""

from __future__ import annotations

import re

from .mark import REDACTED

__all__ = ["without_private_keys"]

_TELLING = "PRIVATE KEY"
_BEGIN = re.compile(r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_END = r"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_WHOLE = re.compile(rf"(?:[^-\"<]++|-(?!---))*+{_END}")
# Cut off, or told line by line: what may stand between two runs of base64, and the shorter run that ends them.
_BETWEEN = (
    r"(?:\s|\\{1,8}[nrt]|[\"'`+,>|#*→\\]|[0-9]{1,5}[\t→:|]"
    r"|(?:Proc-Type|DEK-Info|Version|Comment|Hash): [^\n\"\\]{0,80})"
)
_RUN = r"(?:[A-Za-z0-9+/=]|\\/)"
_CUT_OFF = re.compile(
    rf"(?:{_BETWEEN}{{0,64}}+{_RUN}{{16,}}+)++"
    rf"(?:(?:\s|\\{{1,8}}[nrt]){{1,8}}+{_RUN}{{1,63}}+(?![A-Za-z]))?(?:{_BETWEEN}{{0,64}}{_END})?"
)
_END_ONLY = re.compile(_END)
_BODY_LINE = re.compile(r"\s*[A-Za-z0-9+/=]{16,}\s*")
_ANY_BODY = re.compile(r"[A-Za-z0-9+/]{16}")
_PUTTY = re.compile(r"(?<=Private-Lines: )[0-9]{1,3}\s+(?:[A-Za-z0-9+/=]{16,}\s+)+[A-Za-z0-9+/=]+")
_LONGEST = 262_144
_LONGEST_BEFORE = 64
"""What an armour says before it says `PRIVATE KEY`."""


def without_private_keys(text: str) -> str:
    """The text with every private key replaced, and the public parts of its armour with it."""
    if "Private-Lines: " in text:
        text = _PUTTY.sub(REDACTED, text)
    parts: list[str] = []
    done = 0
    at = text.find(_TELLING)
    while at >= 0:
        start, end = _around(text, at, done)
        if end > start:
            parts += text[done:start], REDACTED
            done = end
        at = text.find(_TELLING, max(end, at + 1))
    return "".join([*parts, text[done:]]) if parts else text


def _around(text: str, at: int, done: int) -> tuple[int, int]:
    """The stretch of the key whose armour says `PRIVATE KEY` at a place, or an empty one."""
    first = max(done, at - _LONGEST_BEFORE)
    start = text.rfind("---", first, at)
    while start > first and text[start - 1] == "-":
        start -= 1
    begin = _BEGIN.match(text, start) if start >= done else None
    if begin:
        last = begin.end() + _LONGEST
        whole = _WHOLE.match(text, begin.end(), last)
        if whole and not _ANY_BODY.search(whole[0]):
            return at, at  # an armour around `...`
        body = whole or _CUT_OFF.match(text, begin.end(), last)
        return (start, body.end()) if body else (at, at)
    ending = _END_ONLY.match(text, start) if start >= done else None
    if not ending:
        return at, at
    # The start is cut off: the lines before the end that hold nothing but base64.
    top = start
    while top > done:
        line = text.rfind("\n", done, top - 1) + 1 or done
        if top - line > 160 or not _BODY_LINE.fullmatch(text, line, top):
            break
        top = line
    return (top, ending.end()) if top < start else (at, at)
