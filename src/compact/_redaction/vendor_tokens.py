"""Tokens that show by themselves what they are.

Owns: finding vendors' tokens in a text, by the table of formats.
Must never: try a pattern where its literal does not stand.

Rules:
- A start counts only where a word starts: behind a letter it is the tail of another word (`task-…`), unless that letter
  ends a colour code of a terminal or an escape (`\\n`, `%3D`, `\\u0022`).
- What follows must look drawn by lot: `sk-your-key-here` and `ghp_xxxxxxxx` are placeholders.
"""

from __future__ import annotations

import re
from functools import cache

from .assigned_values import drawn_by_lot, stands_in
from .formats import PLAIN, SHAPED, SPOTTED
from .mark import REDACTED
from .prefilter import Literals, any_of

__all__ = ["without_vendor_tokens"]

# What may stand right before a word though it ends in a letter: an escape, a code of an address, a terminal's colour.
_ESCAPE = r"(?:\\[nrtbf]|u00[0-9a-f]{2}|%[0-9A-Fa-f]{2}|\[[0-9;]{0,12}m)"
# A word starts, and it is long enough for a token: that is quicker to see than whether it is one.
_WORD_START = r"(?<![A-Za-z0-9_])(?=[A-Za-z0-9_./~:$+-]{12})"
# A vendor that is not in the table: `acme_live_8fK2…`. A publishable key says so by its `pk`.
_UNLISTED = re.compile(
    r"_(?:live|test|prod|sandbox|pat|sk|secret|token|key|api|auth)_(?=[A-Za-z]{0,32}[0-9])(?=[0-9]{0,32}[A-Za-z])[A-Za-z0-9]{16,}"
)
# A bot at Discord: its number, a time and a signature.
_BOT = re.compile(
    r"[MNO](?<![A-Za-z0-9_.-].)[A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}(?![A-Za-z0-9_-])"
)
_COLOUR = re.compile(r"\[[0-9;]{0,12}\Z")
_ITS_NAME = re.compile(r"(?:[a-z][a-z0-9]{1,15})\Z")


def without_vendor_tokens(text: str) -> str:
    """The text with every known token replaced."""
    if "\\" in text or "%" in text or "[" in text or "u00" in text:
        text = _without(text, _starts(_ESCAPE))
    text = _without(text, _starts(_WORD_START))
    text = _BOT.sub(REDACTED, text)
    for literal in _middles().of(text):
        text = _spotted(literal).sub(_unless_shown, text)
    return _without_unlisted(text)


def _unless_shown(match: re.Match[str]) -> str:
    return match[0] if stands_in(match[0]) else REDACTED


def _without_unlisted(text: str) -> str:
    parts: list[str] = []
    done = 0
    for match in _UNLISTED.finditer(text):
        name = _ITS_NAME.search(text, max(done, match.start() - 16), match.start())
        if not name:
            continue
        start, word = name.start(), name[0]
        if word[0] == "m" and _COLOUR.search(text, max(0, start - 14), start):
            start, word = start + 1, word[1:]
        if len(word) > 1 and word != "pk":
            parts += text[done:start], REDACTED
            done = match.end()
    return "".join([*parts, text[done:]]) if parts else text


def _without(text: str, starts: re.Pattern[str]) -> str:
    parts: list[str] = []
    done = passed = 0
    for match in starts.finditer(text):
        if match.start(1) < passed:
            continue
        start = match[1]
        rest = _rest(start).match(text, match.end())
        if rest and not stands_in(rest[0]) and (start in SHAPED or drawn_by_lot(rest[0])):
            parts += text[done : match.start(1)], REDACTED
            done = passed = rest.end()
        elif rest:
            # No part of it was drawn by lot, so no other token stands in it either.
            passed = rest.end()
    return "".join([*parts, text[done:]]) if parts else text


@cache
def _rests() -> dict[str, str]:
    rests = {start: f"[{letters}]{{{least},}}" for letters, least, starts in PLAIN for start in starts.split()}
    return rests | dict(SHAPED)


@cache
def _starts(before: str) -> re.Pattern[str]:
    return re.compile(f"{before}({any_of(_rests())})")


@cache
def _rest(start: str) -> re.Pattern[str]:
    """What may follow a start, made when it is first met: all of them would slow the first call down."""
    return re.compile(_rests()[start])


@cache
def _middles() -> Literals:
    return Literals(SPOTTED)


@cache
def _spotted(literal: str) -> re.Pattern[str]:
    return re.compile(SPOTTED[literal])
