"""Which pieces a summary is made of: the most value in the room there is, each thing once.

Owns: what a piece is worth, and the choice. Must never: look into a message, or let the order of a set decide.

A greedy choice by gain per character, where a gain is what the pieces chosen before do not hold yet (coverage, not
frequency: a fact that is there already is worth nothing more):

- **Facts.** What somebody used is worth more than what a tool printed, and what two kinds of speakers name is worth
  more than what one of them names often. A fact counts in full beside the words that give it meaning, in one of the
  places where it was named last.
- **Sentences.** Rules and wishes of the user, decisions and outcomes of the assistant; a sentence of few or common
  words says little.
- **Words** that nothing chosen holds yet, so that a plain conversation is covered as well.

The figures are rounded from a search over real transcripts; none of them is sharp.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from .pieces import Unit

__all__ = ["choose"]

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
"""A line of the earlier summary was chosen once: it leaves only for something much better."""
_STANDING = 2.0
"""And what the user wants, and what is open, stays longest."""
_LONG_MESSAGE = 5500
"""Characters from which the sentences of one message count for less and less: nobody states that many rules."""
_FULL = 9.5
"""What a sentence must hold to count in full: words, the rare ones for more, and facts."""
_SMALL_TALK = 4
"""Fewer words than this, with no fact among them, say nothing."""
_ROWS = 3
"""Lines that differ in their numbers only are rows of a table: from more than so many, the numbers are only numbers."""
_NEW_LINE, _GAP, _SHORT = 9, 6, 2
"""Characters that a citation costs, the mark of an omission, and each word that a piece has less than six."""


def choose(units: Sequence[Unit], room: int) -> list[int]:
    """The pieces to keep within so many characters, the best first."""
    return _Choice(units).fill(room)


class _Choice:
    """The choice under way: what is chosen, and what that covers."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._units = units
        self._worth = _worths(units)
        self._says = [not _small_talk(unit) for unit in units]
        self._weight, self._latest = _weights(units)
        self._held: dict[str, float] = {}
        self._words: set[str] = set()
        self._lines: set[tuple[str, int]] = set()
        self._in = bytearray(len(units))
        self._at = {(unit.group, unit.place): i for i, unit in enumerate(units)}

    def fill(self, room: int) -> list[int]:
        """Take the piece of highest gain per character, again and again; gains only fall, so old ones are bounds."""
        units = self._units
        heap = [(-gain / self._cost(i), i) for i in range(len(units)) if self._says[i] and (gain := self._gain(i)) > 0]
        heapify(heap)
        chosen: list[int] = []
        texts: set[str] = set()
        while heap and room > 8:
            _, i = heappop(heap)
            cost = self._cost(i)
            if self._in[i] or cost > room or units[i].text in texts:
                continue
            rate = -self._gain(i) / cost
            if rate >= 0:
                continue
            if heap and rate > heap[0][0]:
                heappush(heap, (rate, i))
                continue
            chosen.append(i)
            texts.add(units[i].text)
            room -= cost
            self._take(i)
            for n in self._beside(i):  # they got cheaper: no citation of their own, no mark of an omission
                if self._says[n] and not self._in[n]:
                    heappush(heap, (-self._gain(n) / self._cost(n), n))
        return chosen

    def _gain(self, i: int) -> float:
        unit = self._units[i]
        gain = sum(
            self._weight[fact] * more
            for fact, _ in unit.facts
            if (more := self._share(i, fact) - self._held.get(fact, 0.0)) > 0
        )
        new = sum(word not in self._words for word in unit.words)
        gain += _WORD[unit.speaker] * new
        if worth := self._worth[i]:
            gain += worth * (_AGAIN + (1 - _AGAIN) * new / max(1, len(unit.words)))
        return gain * _CARRIED if unit.carried else gain

    def _share(self, i: int, fact: str) -> float:
        meaning = min(1.0, len(self._units[i].words) / _MEANING)
        return _BARE + (1 - _BARE) * meaning * (1.0 if i in self._latest[fact] else _EARLY)

    def _cost(self, i: int) -> int:
        unit = self._units[i]
        size = len(unit.text) + _SHORT * max(0, 5 - unit.text.count(" "))
        if (unit.section, unit.group) not in self._lines:
            return size + _NEW_LINE
        return size + (1 if any(self._in[n] for n in self._beside(i)) else _GAP)

    def _beside(self, i: int) -> list[int]:
        unit = self._units[i]
        places = ((unit.group, unit.place - 1), (unit.group, unit.place + 1))
        near = (self._at[place] for place in places if place in self._at)
        return [n for n in near if self._units[n].section == unit.section]

    def _take(self, i: int) -> None:
        unit = self._units[i]
        self._in[i] = 1
        self._lines.add((unit.section, unit.group))
        self._words.update(unit.words)
        for fact, _ in unit.facts:
            self._held[fact] = max(self._held.get(fact, 0.0), self._share(i, fact))


def _weights(units: Sequence[Unit]) -> tuple[dict[str, float], dict[str, frozenset[int]]]:
    """What each fact is worth, and the pieces that name it last."""
    weight: dict[str, float] = {}
    named: defaultdict[str, list[int]] = defaultdict(list)
    shapes = Counter(unit.shape for unit in units)
    for i, unit in enumerate(units):
        row = shapes[unit.shape] > _ROWS
        for fact, kind in unit.facts:
            named[fact].append(i)
            if row and kind == "number":
                weight.setdefault(fact, 0.0)
                continue
            weight[fact] = max(weight.get(fact, 0.0), _FACT[unit.speaker] * _KIND[kind])
    for fact, places in named.items():
        again = 1 + _NAMED_AGAIN * min(3.0, math.log2(len(places)))
        speakers = {(units[i].speaker, units[i].carried) for i in places}
        weight[fact] *= again * (_NAMED_BY_TWO if len(speakers) > 1 or units[places[0]].carried else 1.0)
    return weight, {fact: frozenset(places[-3:]) for fact, places in named.items()}


def _worths(units: Sequence[Unit]) -> list[float]:
    """What each piece is worth as a sentence."""
    common = Counter(word for unit in units for word in unit.words)
    rarity = {word: times**-0.4 for word, times in common.items()}
    worths: list[float] = []
    for unit in units:
        worth = _sentence(unit)
        if worth and unit.speaker != "tool":
            says = sum(rarity[word] for word in unit.words) + 0.75 * len(unit.facts)
            worth *= min(1.0, says / _FULL) ** 0.6
            worth *= 0.1 if len(unit.text.split()) < 5 and not unit.facts else 1.0
        if unit.carried:
            worth *= _STANDING if unit.section in ("Goals", "Rules", "Decisions", "Open") else 1.0
        worths.append(worth)
    return worths


def _small_talk(unit: Unit) -> bool:
    says = unit.sorts - {"intent", "question", "wish"}
    spoken = unit.speaker in ("user", "assistant")
    return spoken and len(unit.words) < _SMALL_TALK and not unit.facts and not says


def _sentence(unit: Unit) -> float:
    sorts = unit.sorts
    if unit.speaker == "tool":
        return _ERROR if "error" in sorts else 0.0
    if unit.speaker == "arguments":
        return _CALL
    if unit.speaker not in ("user", "assistant"):
        return 0.0
    if unit.speaker == "user":
        worth = _RULE if "rule" in sorts else _WISH if "wish" in sorts else _STATEMENT
        worth = min(worth, _QUESTION) if "question" in sorts and worth < _WISH else worth
        return worth * math.sqrt(min(1.0, _LONG_MESSAGE / max(1, unit.size)))
    worth = _DECISION if "decision" in sorts else _OUTCOME if sorts & {"done", "open", "error"} else _REMARK
    if "question" in sorts:
        worth = min(worth, _QUESTION)
    return worth * (_INTENT if "intent" in sorts else 1.0)
