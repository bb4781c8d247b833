"""Values in a text, which must not be reworded: identifiers, paths, addresses, numbers, dates and names.

Owns: distinguishing them from plain words by their shape.
Must never: rate a value, or take time that grows faster than the text.

A text is cut into tokens at blanks, quotes and brackets; plain words are skipped, and the kind of any other token is
found once per spelling. Only what takes several tokens (a name, a date in words, a number with its unit, a quotation)
is searched for in the text itself, with expressions that have no unbounded choice in them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from .cache import cached_by_text

FoundValue = tuple[str, str, int]
"""Kind, text, and where it begins."""

LONGEST_TOKEN = 200
"""A token longer than this is data."""
_SENTENCE = 400
"""Characters up to which the values of a text are cached."""

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
def values_in_token(token: str) -> tuple[tuple[str, str], ...]:
    """The kind of a token and its text without punctuation; nothing for plain words and single digits."""
    word = token.rstrip(_EDGE).lstrip(_BEFORE)
    if not 2 <= len(word) <= LONGEST_TOKEN or _PLAIN.fullmatch(word):
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


def find_values(text: str) -> Sequence[FoundValue]:
    """The facts in a text, by where they begin."""
    return _find_values_cached(text) if len(text) <= _SENTENCE else _find_values(text)


@cached_by_text
def _find_values_cached(text: str) -> Sequence[FoundValue]:
    """The same for a sentence, cached: a summary that is carried on has it in every compaction."""
    return _find_values(text)


def _find_values(text: str) -> Sequence[FoundValue]:
    return (*find_tokens(text), *find_phrases(text))


def find_tokens(text: str) -> list[FoundValue]:
    """The facts that are one token each. No token has a blank in it, so a text may be read word by word."""
    found: list[FoundValue] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        for kind, value in values_in_token(token):
            found.append((kind, value, match.start() + token.find(value)))
    return found


def find_phrases(text: str) -> list[FoundValue]:
    """The facts that take several tokens: dates in words, numbers with a unit, names of people, what is quoted."""
    found: list[FoundValue] = []
    if any(hint.search(text) for hint in _PHRASE_HINTS):
        found += [(str(match.lastgroup), match.group(), match.start()) for match in _PHRASE.finditer(text)]
    for match in _QUOTED.finditer(text) if _QUOTE.search(text) else ():
        value = str(match.group(match.lastindex or 0)).strip()
        if value and (" " in value or not value.isalpha()):
            found.append(("quoted", value, match.start() + 1))
    return found
