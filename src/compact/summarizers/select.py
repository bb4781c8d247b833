"""Choosing the pieces of a summary: the most value within its limit, without repetition.

Owns: rating pieces, and the choice.
Must never: read a message, or let the order of a set decide.

A greedy choice by gain per character, where the gain is what the pieces chosen before do not hold yet (coverage, not
frequency: a fact that is there already gains nothing):

- **Facts.** What was used is worth more than what a tool printed, and what two kinds of speakers name is worth more
  than what one of them names often. A fact counts in full beside the words that give it meaning, in one of the
  places where it was named last.
- **Sentences.** Rules and wishes of the user, decisions and outcomes of the assistant; a sentence of few or common
  words says little.
- **Words** that nothing chosen holds yet, so that a plain conversation is covered as well.

The figures are rounded from a search over real transcripts; small changes to any of them make no difference.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from .pieces import TextPiece

_FACT: Mapping[str, float] = {
    "user": 0.2, "assistant": 0.3, "arguments": 0.15, "pasted": 0.15, "body": 0.015, "tool": 0.04,
}  # fmt: skip
"""What a fact is worth, by who says it."""
_KIND: Mapping[str, float] = {
    "id": 2.1, "date": 1.1, "url": 1.1, "person": 1.0, "name": 0.85, "file": 0.75, "path": 0.73, "number": 0.62,
    "version": 0.4, "email": 0.2, "quoted": 0.35,
}  # fmt: skip
_NAMED_BY_TWO = 2.5
_NAMED_AGAIN = 0.28
"""Added for each doubling of the mentions, up to three."""
_BARE, _EARLY, _MEANING = 0.5, 0.54, 5.5
"""A fact's share without words around it; of the rest, the share in an early mention; and how many words suffice."""
_WORD: Mapping[str, float] = {
    "user": 0.055, "assistant": 0.08, "arguments": 0.008, "pasted": 0.003, "body": 0.0075, "tool": 0.0032,
}  # fmt: skip
_RULE, _WISH, _STATEMENT, _QUESTION = 2.0, 1.6, 0.7, 0.93
_DECISION, _OUTCOME, _REMARK, _INTENT = 2.8, 1.6, 0.2, 0.9
_CALL, _ERROR = 0.08, 0.35
_AGAIN = 0.5
"""The share of a sentence's worth that is left when all its words are there already."""
_CARRIED = 5.0
"""A line of the earlier summary was chosen before: only something much better replaces it."""
_STANDING = 2.0
"""What the user wants, and what is open, stays longest."""
_LONG_MESSAGE = 5500
"""Characters of a message above which each of its sentences counts for less: a message rarely has that many rules."""
_FULL = 9.5
"""What a sentence must hold to count in full: words, the rare ones for more, and facts."""
_SMALL_TALK = 4
"""A sentence with fewer words than this and no fact is left out."""
_ROWS = 3
"""Lines that differ in their numbers only are rows of a table: from more than so many, the numbers are only numbers."""
_NEW_LINE, _GAP, _SHORT = 9, 6, 2
"""Characters that a citation costs, the mark of an omission, and each word that a piece has less than six."""


def choose_pieces(pieces: Sequence[TextPiece], room: int) -> list[int]:
    """The pieces to keep within so many characters, the best first."""
    return _Selection(pieces).fill(room)


class _Selection:
    """The pieces chosen so far, and what they cover."""

    def __init__(self, pieces: Sequence[TextPiece]) -> None:
        self._pieces = pieces
        self._worth = _rate_sentences(pieces)
        self._eligible = [not _is_small_talk(piece) for piece in pieces]
        self._weight, self._latest = _rate_facts(pieces)
        self._held: dict[str, float] = {}
        self._words: set[str] = set()
        self._lines: set[tuple[str, int]] = set()
        self._in = bytearray(len(pieces))
        self._at = {(piece.group, piece.place): i for i, piece in enumerate(pieces)}

    def fill(self, room: int) -> list[int]:
        """Take the piece of highest gain per character, again and again; gains only fall, so old ones are bounds."""
        pieces = self._pieces
        heap = [
            (-gain / self._cost(i), i) for i in range(len(pieces)) if self._eligible[i] and (gain := self._gain(i)) > 0
        ]
        heapify(heap)
        chosen: list[int] = []
        texts: set[str] = set()
        while heap and room > 8:
            _, i = heappop(heap)
            cost = self._cost(i)
            if self._in[i] or cost > room or pieces[i].text in texts:
                continue
            rate = -self._gain(i) / cost
            if rate >= 0:
                continue
            if heap and rate > heap[0][0]:
                heappush(heap, (rate, i))
                continue
            chosen.append(i)
            texts.add(pieces[i].text)
            room -= cost
            self._take(i)
            for n in self._neighbours(i):  # they got cheaper: they need no separate citation and no mark of an omission
                if self._eligible[n] and not self._in[n]:
                    heappush(heap, (-self._gain(n) / self._cost(n), n))
        return chosen

    def _gain(self, i: int) -> float:
        piece = self._pieces[i]
        gain = sum(
            self._weight[fact] * more
            for fact, _ in piece.facts
            if (more := self._share(i, fact) - self._held.get(fact, 0.0)) > 0
        )
        new = sum(word not in self._words for word in piece.words)
        gain += _WORD[piece.speaker] * new
        if worth := self._worth[i]:
            gain += worth * (_AGAIN + (1 - _AGAIN) * new / max(1, len(piece.words)))
        return gain * _CARRIED if piece.carried else gain

    def _share(self, i: int, fact: str) -> float:
        meaning = min(1.0, len(self._pieces[i].words) / _MEANING)
        return _BARE + (1 - _BARE) * meaning * (1.0 if i in self._latest[fact] else _EARLY)

    def _cost(self, i: int) -> int:
        piece = self._pieces[i]
        size = len(piece.text) + _SHORT * max(0, 5 - piece.text.count(" "))
        if (piece.section, piece.group) not in self._lines:
            return size + _NEW_LINE
        return size + (1 if any(self._in[n] for n in self._neighbours(i)) else _GAP)

    def _neighbours(self, i: int) -> list[int]:
        piece = self._pieces[i]
        places = ((piece.group, piece.place - 1), (piece.group, piece.place + 1))
        near = (self._at[place] for place in places if place in self._at)
        return [n for n in near if self._pieces[n].section == piece.section]

    def _take(self, i: int) -> None:
        piece = self._pieces[i]
        self._in[i] = 1
        self._lines.add((piece.section, piece.group))
        self._words.update(piece.words)
        for fact, _ in piece.facts:
            self._held[fact] = max(self._held.get(fact, 0.0), self._share(i, fact))


def _rate_facts(pieces: Sequence[TextPiece]) -> tuple[dict[str, float], dict[str, frozenset[int]]]:
    """What each fact is worth, and the pieces that name it last."""
    weight: dict[str, float] = {}
    named: defaultdict[str, list[int]] = defaultdict(list)
    shapes = Counter(piece.shape for piece in pieces)
    for i, piece in enumerate(pieces):
        row = shapes[piece.shape] > _ROWS
        for fact, kind in piece.facts:
            named[fact].append(i)
            if row and kind == "number":
                weight.setdefault(fact, 0.0)
                continue
            weight[fact] = max(weight.get(fact, 0.0), _FACT[piece.speaker] * _KIND[kind])
    for fact, places in named.items():
        again = 1 + _NAMED_AGAIN * min(3.0, math.log2(len(places)))
        speakers = {(pieces[i].speaker, pieces[i].carried) for i in places}
        weight[fact] *= again * (_NAMED_BY_TWO if len(speakers) > 1 or pieces[places[0]].carried else 1.0)
    return weight, {fact: frozenset(places[-3:]) for fact, places in named.items()}


def _rate_sentences(pieces: Sequence[TextPiece]) -> list[float]:
    """What each piece is worth as a sentence."""
    common = Counter(word for piece in pieces for word in piece.words)
    rarity = {word: times**-0.4 for word, times in common.items()}
    worths: list[float] = []
    for piece in pieces:
        worth = _rate_speech(piece)
        if worth and piece.speaker != "tool":
            says = sum(rarity[word] for word in piece.words) + 0.75 * len(piece.facts)
            worth *= min(1.0, says / _FULL) ** 0.6
            worth *= 0.1 if len(piece.text.split()) < 5 and not piece.facts else 1.0
        if piece.carried:
            worth *= _STANDING if piece.section in ("Goals", "Rules", "Decisions", "Open") else 1.0
        worths.append(worth)
    return worths


def _is_small_talk(piece: TextPiece) -> bool:
    meaningful = piece.acts - {"intent", "question", "wish"}
    spoken = piece.speaker in ("user", "assistant")
    return spoken and len(piece.words) < _SMALL_TALK and not piece.facts and not meaningful


def _rate_speech(piece: TextPiece) -> float:
    acts = piece.acts
    if piece.speaker == "tool":
        return _ERROR if "error" in acts else 0.0
    if piece.speaker == "arguments":
        return _CALL
    if piece.speaker not in ("user", "assistant"):
        return 0.0
    if piece.speaker == "user":
        worth = _RULE if "rule" in acts else _WISH if "wish" in acts else _STATEMENT
        worth = min(worth, _QUESTION) if "question" in acts and worth < _WISH else worth
        return worth * math.sqrt(min(1.0, _LONG_MESSAGE / max(1, piece.size)))
    worth = _DECISION if "decision" in acts else _OUTCOME if acts & {"done", "open", "error"} else _REMARK
    if "question" in acts:
        worth = min(worth, _QUESTION)
    return worth * (_INTENT if "intent" in acts else 1.0)
