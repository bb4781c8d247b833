"""Ranking: the messages that match a query, best first.

Owns: how text and queries are split into words, the tiers of an answer, and the order within a tier.
Must never: write to the database, read a query as anything but words, or take time that grows with the matches.

It reads the tables of `search_tables`: `message`, and `words`, the full-text index over it.

Rules:
- Answers come in tiers: the words in a row, close together, all somewhere, any of the rarer ones, inside longer words.
  The last two are asked only when nothing better was found.
- Within a tier, what has the words closest together and most often comes first; spelled as typed counts double. Of
  equals the newest comes first, and equal texts count once.
- A tier looks at a bounded number of messages, the newest: a word that is everywhere says nothing about the older ones.
"""

from __future__ import annotations

import math
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate, filterfalse
from typing import NamedTuple

Row = tuple[int, int, int, str, str]
"""Id, position, step, role and text of a message."""

SELECT = "SELECT id, position, step, role, text FROM message"

IN_A_ROW, CLOSE, ALL, ANY, INSIDE = 4, 3, 2, 1, 0
"""The tiers; a score is the tier and a fraction."""

_LONGEST_QUERY = 1_000
_MOST_WORDS = 24
_LOOKED_AT = 200
_READ_AT_MOST = 3_000_000
"""Messages of a tier, and their characters, that are compared."""
_COMMON = 2_000
"""A word in this many messages, or in a third of them, finds nothing by itself."""
_RANKED = 50
_NEAR = 10
_REACH = 160
_PATIENCE = 0.025
"""Seconds of looking inside words, which reads every message."""
_SNIPPET = 300

_WORD = re.compile(r"[^\W_]+")
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9]{3,60}")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ESCAPED = re.compile(r"\\+[nrt]\s*([^\W_]+[\W_]+[^\W_]+)")
_NO_BLANKS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
"""Writing without blanks between words: there every character is a word, and a word is a row of them."""


class Hit(NamedTuple):
    """A message that matches, how well, and where in its text."""

    score: float
    at: int
    row: Row


def bindable(text: str) -> str:
    """The text as a database takes it: half a pair of surrogates is no character."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def add_spaces(text: str) -> str:
    """The text with blanks where its writing has none."""
    return text if text.isascii() else _NO_BLANKS.sub(r" \g<0> ", text)


def parts(text: str) -> str:
    """What a text can also be read as: the words inside its identifiers, and those that an escape stands before."""
    inner = filter(None, map(_split_identifier, filterfalse(str.islower, set(_IDENTIFIER.findall(text)))))
    return "\n".join([*inner, *_ESCAPED.findall(text)] if "\\" in text else inner)


@lru_cache(maxsize=1 << 13)
def _split_identifier(word: str) -> str:
    """An identifier as its words; nothing when it is one word."""
    cut = "" if word[1:].islower() else _HUMP.sub(" ", word)
    return "" if cut == word else cut


def snippet(text: str, at: int) -> str:
    """About 300 characters around a place."""
    if len(text) <= _SNIPPET:
        return text
    start = max(0, min(at - _SNIPPET // 3, len(text) - _SNIPPET))
    end = start + _SNIPPET
    return f"{'…' if start else ''}{text[start:end].strip()}{'…' if end < len(text) else ''}"


def search(db: sqlite3.Connection, query: str, limit: int) -> list[Hit]:
    """The messages that answer a query, best first."""
    typed = query[:_LONGEST_QUERY].replace("\0", " ").strip()
    words = list(dict.fromkeys(_WORD.findall(typed.lower())))[:_MOST_WORDS]
    if not words or limit < 1:
        return []
    best: dict[str, Hit] = {}
    for tier, rows, weights in _tiers(db, typed, words):
        hits = [_hit(tier, row, words, typed, weights) for row in rows if row[4] not in best]
        # Of any words, equals stay in the order they came in: that of the search engine.
        hits.sort(key=lambda hit: (hit.score, *hit.row[1:3]) if not weights else hit.score, reverse=True)
        for hit in hits:
            best.setdefault(hit.row[4], hit)
        if len(best) >= limit or (best and tier <= ALL):
            break
    return list(best.values())[:limit]


_Weights = Mapping[str, float]
"""What each word says about the message it is in: the rarer, the more."""


def _tiers(db: sqlite3.Connection, typed: str, words: Sequence[str]) -> Iterator[tuple[int, Iterable[Row], _Weights]]:
    chunks = [chunk for chunk in dict.fromkeys(typed.split()) if _WORD.search(chunk)][:_MOST_WORDS]
    every = " AND ".join(map(_phrase_or_parts, chunks))
    if len(chunks) == 1 or _count(db, every, 1):  # else no row of them can be there, and looking for one takes longer
        yield IN_A_ROW, _newest(db, _phrase_or_parts(typed)), {}
        if len(chunks) > 1:
            yield CLOSE, _newest(db, f"NEAR({' '.join(map(_quote, chunks))}, {_NEAR})"), {}
            yield ALL, _newest(db, every), {}
    if len(words) > 1:
        rare, common = _by_rarity(db, words)
        if rare:
            yield ALL, _newest(db, " AND ".join(map(_quote, rare))), {}
            yield ANY, _matching_rows(db, "rank, rowid DESC", " OR ".join(map(_quote, rare)), _RANKED), rare
        elif common:
            yield ANY, _newest(db, " OR ".join(map(_quote, common))), {}
    yield INSIDE, _inside(db, words), {}


def _phrase_or_parts(text: str) -> str:
    """A text as a row of words, as it is or with its identifiers cut into theirs."""
    cut = _HUMP.sub(" ", text)
    return _quote(text) if cut == text else f"({_quote(text)} OR {_quote(cut)})"


def _quote(text: str) -> str:
    return '"' + add_spaces(text).replace('"', '""') + '"'


def _by_rarity(db: sqlite3.Connection, words: Sequence[str]) -> tuple[_Weights, list[str]]:
    """The words that are in few messages, as many as are in few together, and those that are in many."""
    (total,) = db.execute("SELECT max(id) FROM message").fetchone()
    many = max(20, min(_COMMON, (total or 0) // 3))
    counts = {word: _count(db, _quote(word), many) for word in words}
    found = sorted((word for word in words if counts[word]), key=counts.__getitem__)
    together = accumulate(counts[word] for word in found)
    rare = [word for word, sum_ in zip(found, together, strict=True) if counts[word] < many and sum_ < 2 * many]
    return {word: math.log(1 + many / counts[word]) for word in rare}, [w for w in found if counts[w] >= many]


def _count(db: sqlite3.Connection, match: str, most: int) -> int:
    """How many messages match; the counting ends at `most`."""
    sql = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
    return int(db.execute(sql, (match, most)).fetchone()[0])


def _newest(db: sqlite3.Connection, match: str) -> Iterator[Row]:
    return _matching_rows(db, "rowid DESC", match, _LOOKED_AT)


def _matching_rows(db: sqlite3.Connection, order: str, match: str, limit: int) -> Iterator[Row]:
    read = 0
    sql = f"SELECT rowid FROM words WHERE words MATCH ? ORDER BY {order} LIMIT ?"  # noqa: S608 - one of two constants
    for number in db.execute(sql, (match, limit)).fetchall():
        row: Row = db.execute(f"{SELECT} WHERE id=?", number).fetchone()
        yield row
        read += len(row[4])
        if read > _READ_AT_MOST:
            return


def _inside(db: sqlite3.Connection, words: Sequence[str]) -> Iterator[Row]:
    """The newest messages with the words inside longer ones, as far as a moment's reading goes."""
    deadline = time.monotonic() + _PATIENCE
    has = " AND ".join(["text LIKE ?"] * len(words))
    db.set_progress_handler(lambda: time.monotonic() > deadline, 1_000)
    try:
        with suppress(sqlite3.OperationalError):  # interrupted: what was found by then is the answer
            sql = f"{SELECT} WHERE {has} ORDER BY id DESC LIMIT ?"
            yield from db.execute(sql, (*(f"%{word}%" for word in words), _LOOKED_AT))
    finally:
        db.set_progress_handler(None, 0)


def _hit(tier: int, row: Row, words: Sequence[str], typed: str, weights: _Weights) -> Hit:
    close, at = _closeness(row[4], words, typed)
    if weights:
        low = row[4].lower()
        close = sum(weight for word, weight in weights.items() if word in low)
    return Hit(tier + close / (1 + close), at, row)


def _closeness(text: str, words: Sequence[str], typed: str) -> tuple[float, int]:
    """How close together the words are, summed over the places where they meet, and the best of these places.

    A place counts 1, divided by one more than the characters between the words; 2 when it is spelled as typed.
    """
    low = text.lower()
    anchor = max(words, key=len)
    others = [word for word in words if word != anchor]
    size = sum(map(len, words)) + len(others)
    total, best, place = 0.0, 0.0, -1
    at = low.find(anchor)
    for _ in range(100):
        if at < 0:
            break
        left, right = at, at + len(anchor)
        for word in others:
            before, after = low.rfind(word, max(0, at - _REACH), at), low.find(word, right, right + _REACH)
            if before < 0 and after < 0:
                break
            if after < 0 or (0 <= before and at - before < after - at):
                left = min(left, before)
            else:
                right = max(right, after + len(word))
        else:
            here = 2.0 if text[left:right] == typed else 1 / (1 + abs(right - left - size))
            total += here
            if here > best:
                best, place = here, left
        at = low.find(anchor, at + len(anchor))
    if place < 0:
        place = max(0, min((found for word in words if (found := low.find(word)) >= 0), default=0))
    return total, place
