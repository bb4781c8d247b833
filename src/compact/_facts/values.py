"""What in a text must not be reworded: the smallest facts, found by their shape.

Owns: telling an identifier, a path, an address, a number, a date or a name from plain words.
Must never: judge what a fact is worth, or take time that grows faster than the text.

A text is cut into tokens at blanks, quotes and brackets; a token that is a plain word is passed over, and what any
other token is gets decided once per spelling. Only what takes several tokens (a name, a date in words, a number with
its unit, something quoted) is looked for in the text itself, with expressions that have no unbounded choice in them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from .cache import once

__all__ = ["Found", "facts_in", "phrases_in", "scan", "tokens_in"]

Found = tuple[str, str, int]
"""Kind, text, and where it begins."""

LONGEST = 200
"""A token longer than this is no name for anything: it is data."""
_SENTENCE = 400
"""Characters up to which a text is read once."""

_TOKEN = re.compile(r"(?:[^\s\"'`<>()\[\]{},;|=\\]|(?<=\d),(?=\d{3}))+")
_PLAIN = re.compile(r"[^\W\d_]?[^\W\d_A-Z]*(?:['’-][^\W\d_A-Z]+)*[.:!?…*-]*")
_EDGE = ".:!?*-~&…–—→•"
_BEFORE = _EDGE.replace(".", "").replace("~", "") + "+"

_KINDS = re.compile(
    r"(?P<url>[a-z][a-z0-9+]{1,10}://\S+|www\.\S+\.\S+)"
    r"|(?P<email>[\w.+-]+@[\w-]+\.[\w.-]+)"
    r"|(?P<date>(?:19|20)\d\d[-/]\d\d?[-/]\d\d?(?:[T_]\d\d?:?\d\d.*)?|\d\d?[/.]\d\d?[/.](?:19|20)?\d\d"
    r"|\d\d?:\d\d(?::\d\d(?:\.\d+)?)?(?:[ap]m)?)"
    r"|(?P<code>\d{6,}[A-Z]?)"
    r"|(?P<number>[$€£~<>≤≥+-]?\d[\d,]*(?:\.\d+)?(?:%|[a-zµ]{1,3}|[KMGT]i?B|[kKMGBx])?)"
    r"|(?P<version>[vV]?\d+(?:\.\d+){1,4}(?:[-+.]?[a-z]+[\w.+-]*)?|[\w.-]+@[\^~]?\d[\w.-]*|[\w.-]+[=~><]=\d[\w.*-]*)"
    r"|(?P<path>(?:[A-Za-z]:|~|\.{1,2})?(?:[\\/][\w.@+*%$-]+){2,}/?|(?:\.{1,2}/|~/)[\w.@+*-]+"
    r"|(?:[\w.@+*-]+/)+[\w.@+*-]*)"
    r"|(?P<file>[\w@+-][\w@+.-]*\.[A-Za-z][A-Za-z0-9]{0,5}|\.[a-z][\w.-]+)"
    r"|(?P<id>#\d+|[0-9a-f]{7,64}|(?=\S*\d)[A-Za-z]{1,8}[-_#:]?[A-Z0-9-]*\d[\w-]*"
    r"|(?=\S*\d)(?=\S*[A-Za-z])[\w:.#/-]{4,}|[gs]-[\w-]{2,})"
    r"|(?P<name>(?=\w*[a-z])(?=\w*_)\w+|_\w+|[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+|\w*[a-z][A-Z]\w*|[A-Z]+[a-z]+[A-Z]\w*"
    r"|\w+(?:(?:\.|::|->)\w+)+|--?[a-z][\w-]+|@[\w/-]+)"
)
_TWO_WORDS = re.compile(r"[A-Za-z]+/[A-Za-z]+")
_AT_LINE = re.compile(r"(.+?\.\w{1,6})(?:[:#-]L?\d+)+(?:[-:].*)?")
_INNER = re.compile(r"(?<![A-Za-z0-9_])(?:[A-Za-z]\w{0,60}_\w{1,60}|[A-Za-z]{0,40}[a-z][A-Z]\w{1,60})")

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_UNIT = (
    r"%|percent|[mµn]?s|sec(?:ond)?s?|min(?:ute)?s?|h|hours?|days?|weeks?|months?|years?|[KMGT]i?B|bytes?|tokens?|lines?"
    r"|files?|tests?|px|dollars?|euros?|USD|EUR|GBP"
)
_PHRASE = re.compile(
    rf"(?P<date>\b(?:{_MONTH} {_DAY}(?:,? \d{{4}})?|{_DAY} {_MONTH},?(?: \d{{4}})?|{_MONTH},? \d{{4}})\b)"
    rf"|(?P<number>[$€£]?\b\d[\d.,]{{0,12}} (?:{_UNIT})\b)"
    r"|(?P<person>\b[A-Z][a-z]{2,15} [A-Z][a-z]{2,15}\b)"
)
# What every phrase has in it. An expression that begins with a set of characters finds them ten times as fast.
_PHRASE_HINTS = tuple(map(re.compile, (rf"\d (?:{_UNIT})", r"[A-Z][a-z]{2,15} [A-Z]", _MONTH)))
_QUOTE = re.compile(r"[`\"“«]")
_QUOTED = re.compile(r"`([^`\n]{3,60})`|(?<![\w\\])\"([^\"\n\\]{4,60})\"(?!\w)|“([^”\n]{4,60})”|«([^»\n]{4,60})»")


@lru_cache(maxsize=1 << 11)
def facts_in(token: str) -> tuple[tuple[str, str], ...]:
    """What a token is and how it reads without its punctuation; nothing for plain words and single digits."""
    word = token.rstrip(_EDGE).lstrip(_BEFORE)
    if not 2 <= len(word) <= LONGEST or _PLAIN.fullmatch(word):
        return ()
    if at := _AT_LINE.fullmatch(word):
        word = at[1]
    found = _KINDS.fullmatch(word)
    if found is None:  # code without blanks: the names in it
        return tuple(("name", name) for name in dict.fromkeys(_INNER.findall(word)))
    kind = "id" if found.lastgroup == "code" else str(found.lastgroup)
    if kind == "path" and (_TWO_WORDS.fullmatch(word) or not any(c.isalpha() for c in word)):
        return ()  # and/or, 1/2
    if kind == "number" and len(word) < 3 and word.isdigit():
        return ()
    return ((kind, word.rstrip("/") if kind == "path" and len(word) > 3 else word),)


def scan(text: str) -> Sequence[Found]:
    """The facts in a text, by where they begin."""
    return _scan_again(text) if len(text) <= _SENTENCE else _scan(text)


@once
def _scan_again(text: str) -> Sequence[Found]:
    """The same for a sentence: a summary that is carried on has it in every fold."""
    return _scan(text)


def _scan(text: str) -> Sequence[Found]:
    return (*tokens_in(text), *phrases_in(text))


def tokens_in(text: str) -> list[Found]:
    """The facts that are one token each. No token has a blank in it, so a text may be read word by word."""
    found: list[Found] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        for kind, value in facts_in(token):
            found.append((kind, value, match.start() + token.find(value)))
    return found


def phrases_in(text: str) -> list[Found]:
    """The facts that take several tokens: dates in words, numbers with a unit, names of people, what is quoted."""
    found: list[Found] = []
    if any(hint.search(text) for hint in _PHRASE_HINTS):
        found += [(str(match.lastgroup), match.group(), match.start()) for match in _PHRASE.finditer(text)]
    for match in _QUOTED.finditer(text) if _QUOTE.search(text) else ():
        value = str(match.group(match.lastindex or 0)).strip()
        if value and (" " in value or not value.isalpha()):
            found.append(("quoted", value, match.start() + 1))
    return found
