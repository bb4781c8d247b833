"""Secrets that a frame gives away: addresses, headers, cookies, commands, SQL and files of passwords.

Owns: going through the frames, passwords in addresses, and the manifests of Kubernetes.
Must never: try a frame whose literals do not stand in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from .assigned_values import harmless, looks_random
from .framed import FRAMES
from .mark import REDACTED
from .prefilter import Literals
from .slices import whole_value

__all__ = ["without_framed"]

_ADDRESS = re.compile(
    r"://(?:(?P<user>[^\s/?#@:\"'<>\\]{0,256}):(?P<value>[^\s/\"'<>\\]{1,8192})|(?P<lone>[A-Za-z0-9_.~-]{20,8192}))@"
)
# A password may hold a slash; then only the scheme of a database tells it from a port and a path.
_DATABASE = re.compile(
    r"(?:postgres(?:ql)?|mysql|mariadb|mongodb|redis|rediss|amqps?|mssql|oracle|clickhouse)(?:\+[a-z0-9]{1,16})?"
    r"://(?P<user>[^\s/?#@:\"'<>\\]{0,64}):(?P<value>[^\s\"'<>\\@]{1,256})@(?=[\w.-]{1,128}[:/?\s]|[\w.-]{1,128}\Z)"
)
# Every value under `data` of a Secret is one, whatever its name.
_MANIFEST = re.compile(
    r"(?P<before>kind:[ \t]{0,4}Secret\b(?:(?!\n---)[^\n]{0,400}\n){1,40}?"
    r"(?P<indent>[ \t]{0,16})(?:data|stringData):[ \t]{0,4}\n)"
    r"(?P<block>(?:(?P=indent)[ \t]{1,16}[^\n]{0,8192}(?:\n|\Z)){1,200})"
)
_ENTRY = re.compile(
    r"(?m:^(?P<before>[ \t]{1,32}[\w.-]{1,128}:[ \t]{1,8}[\"']?)(?P<value>[^\s\"'|>{$][^\s\"']{0,8192}))"
)


def without_framed(text: str) -> str:
    """The text with what frames give away replaced."""
    twin = text.lower()
    if "://" in text and "@" in text:
        text = _DATABASE.sub(_in_address, _ADDRESS.sub(_in_address, text))
    present = frozenset(_literals().of(twin))
    for number, frame in enumerate(FRAMES if present else ()):
        if not present.isdisjoint(frame.literals):
            text = _framed(text, _compiled(number), frame.is_secret)
    if "kind:" in twin and "secret" in twin:
        text = _MANIFEST.sub(_in_manifest, text)
    return text


@cache
def _literals() -> Literals:
    return Literals(literal for frame in FRAMES for literal in frame.literals)


@cache
def _compiled(number: int) -> re.Pattern[str]:
    return re.compile(FRAMES[number].pattern)


def _framed(text: str, pattern: re.Pattern[str], is_secret: Callable[[str], bool]) -> str:
    parts: list[str] = []
    done = 0
    for match in pattern.finditer(text):
        start, end = match.span("value" if match["value"] is not None else "bare")
        if start >= done and is_secret(text[start:end]):
            parts += text[done:start], REDACTED
            done = whole_value(text, start, end)
    return "".join([*parts, text[done:]]) if parts else text


def _in_address(match: re.Match[str]) -> str:
    """`scheme://user:password@host`, or a long random name that serves as a password."""
    before, value = match[0].partition("://")[0], match["value"]
    if value is None:
        return f"{before}://{REDACTED}@" if looks_random(match["lone"], 20) else match[0]
    return match[0] if harmless(value) or value == match["user"] else f"{before}://{REDACTED}@"


def _in_manifest(match: re.Match[str]) -> str:
    def entry(line: re.Match[str]) -> str:
        return line[0] if harmless(line["value"]) else line["before"] + REDACTED

    return match["before"] + _ENTRY.sub(entry, match["block"])
