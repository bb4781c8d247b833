"""Private keys in PEM, OpenSSH, PGP or PuTTY format.

Owns: where such a key starts and ends, also when it is cut off, indented, numbered or escaped.
Must never: match a certificate or a public key.

Works on whole texts, however long: keys stretch over many lines, so they are replaced before a text is cut into slices.
Positions are found by `str.find`, and each pattern is anchored and runs over one key only.
"""

from __future__ import annotations

import re

from .spans import REDACTED, SecretSpan, replace_spans

_LABEL = "PRIVATE KEY"
_BEGIN = re.compile(r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_END = r"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_WHOLE = re.compile(rf"(?:[^-\"<]++|-(?!---))*+{_END}")
# In a key that is cut off or quoted line by line: the text between two runs of base64, and the shorter last run.
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
"""The length of a header before `PRIVATE KEY`."""


def redact_private_keys(text: str) -> str:
    """The text with every private key replaced, header and footer included."""
    if "Private-Lines: " in text:
        text = _PUTTY.sub(REDACTED, text)
    spans: list[SecretSpan] = []
    done = 0
    at = text.find(_LABEL)
    while at >= 0:
        start, end = _key_around(text, at, done)
        if end > start:
            spans.append(SecretSpan(start, end))
            done = end
        at = text.find(_LABEL, max(end, at + 1))
    return replace_spans(text, spans)


def _key_around(text: str, at: int, done: int) -> tuple[int, int]:
    """The start and end of the key whose header or footer has `PRIVATE KEY` at a position, or an empty range."""
    first = max(done, at - _LONGEST_BEFORE)
    start = text.rfind("---", first, at)
    while start > first and text[start - 1] == "-":
        start -= 1
    begin = _BEGIN.match(text, start) if start >= done else None
    if begin:
        last = begin.end() + _LONGEST
        whole = _WHOLE.match(text, begin.end(), last)
        if whole and not _ANY_BODY.search(whole[0]):
            return at, at  # a header and a footer around `...`
        body = whole or _CUT_OFF.match(text, begin.end(), last)
        return (start, body.end()) if body else (at, at)
    ending = _END_ONLY.match(text, start) if start >= done else None
    if not ending:
        return at, at
    # The start is cut off: the key is the lines of base64 before the footer.
    top = start
    while top > done:
        line = text.rfind("\n", done, top - 1) + 1 or done
        if top - line > 160 or not _BODY_LINE.fullmatch(text, line, top):
            break
        top = line
    return (top, ending.end()) if top < start else (at, at)
