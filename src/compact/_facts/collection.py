"""Facts as they are collected, and the choice among them.

Owns: `FactCollection`: what is known of each value and sentence, what was settled since, and which facts could have
fitted.
Must never: know what a message is, let the order of a set decide anything, or hold more sentences than could ever fit.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections import Counter

from .._summary.request import Ask
from .cache import once
from .ranking import SENTENCES, Fact, FactLine, Speaker, ending, sentence_worth, touch_worth, value_worth
from .text import lines_of, words_of
from .values import phrases_in, tokens_in

__all__ = ["WORD", "FactCollection", "line_at", "marks_of", "stems_of"]

WORD = 64
"""Characters of the longest thing that is looked up rather than looked at."""
_CITATION = 4
"""Tokens that a sentence needs besides its own."""
_AROUND = 8
"""Tokens that a value needs besides its own: the words around it, its citation."""
_QUOTES = 3
"""How many lines a fact may be quoted from."""
_HELD = 32
"""Characters of sentences that are held for each token of the limit; half of them stay when some are let go. Sentences
of twice the limit are chosen, about eight characters for each of its tokens, so that as many may turn out settled."""
_EVERYWHERE = 200
"""A word in more reports than this tells nothing about what was settled."""

_EDGES = ".,;:!?()\"'*…“”"
_NAME = re.compile(r"[\w./-]*(?:[\d_/]|[a-z][A-Z]|\w\.\w)[\w./-]*")
_KEYED = re.compile(r"[\w\"'`][=:] ?[\"'`]?$")
_PLACES = ("branch", "checkout", "worktree", "env", "staging", "production", "preprod", "canary", "sandbox")
_PLACE = re.compile(
    r"\b(?:branch|checkout(?: -b)?|worktree)\b[ :=]{1,2}['\"`]?"
    r"(?P<branch>[\w.]+[/_-][\w./-]*\w|main|master|develop|trunk)\b"
    r"|\benv(?:ironment)?[:=] ?['\"`]?(?P<environment>[\w-]{2,40})"
    r"|\b(?P<known>staging|production|preprod|canary|sandbox)\b"
)


@once
def stems_of(text: str) -> tuple[str, ...]:
    """The words that carry meaning, each once, by their first letters: a word and its inflections are one."""
    return _each_once([word[:6] for word in words_of(text)])


@once
def marks_of(text: str) -> tuple[str, ...]:
    """The names in a text, each once, by their last part: what tells one of many like sentences from the others."""
    return _each_once([name.strip(".-").rpartition("/")[2] for name in _NAME.findall(text)])


def _each_once(words: list[str]) -> tuple[str, ...]:
    """As a tuple of words that all who have them share: hundreds of sets of words would take more than the texts."""
    return tuple(dict.fromkeys(map(sys.intern, words)))


class _Value:
    """A value as it is collected: the best that is known of it, and where it stands."""

    __slots__ = ("_said", "_told", "kind", "numbers", "positions", "source", "speaker", "weight")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.speaker: Speaker = "tool"
        self.weight = 0.0
        self.positions: list[int] = []
        self.numbers = array("I")
        """Of the lines it stands in."""
        self.source = ""
        self._said: list[FactLine] = []
        self._told: list[FactLine] = []

    def stands_in(self, line: FactLine) -> None:
        """Note a line, and keep it among the newest to quote from; a tool's own are apart."""
        newest = self._told if line.speaker == "tool" else self._said
        if not line.text or (newest and newest[-1] is line):
            return
        self.numbers.append(line.number)
        newest.append(line)
        del newest[:-_QUOTES]

    @property
    def quotes(self) -> list[FactLine]:
        """The newest lines, the newest first; what a tool said only where nobody else said anything."""
        return (self._said or self._told)[::-1]


class _Known(dict[str, tuple[tuple[str, str], ...]]):
    """The values in a piece of text without blanks, found once."""

    def __missing__(self, word: str) -> tuple[tuple[str, str], ...]:
        core = word.strip(_EDGES).replace("'", "").replace("’", "")
        plain = core.isalpha() and (len(core) == 1 or core[1:].islower())
        found = () if plain else tuple((kind, value) for kind, value, _ in tokens_in(word))
        if len(word) <= WORD:
            self[word] = found
        return found


class FactCollection:
    """Facts as they are collected."""

    def __init__(self, max_tokens: int) -> None:
        self.late = 1.0
        """What is said now is worth this much more than what was said before: 0.9 early, 1.1 late."""
        self._values: dict[str, _Value] = {}
        self._sentences: dict[str, Fact] = {}
        self._held, self._most_held = 0, _HELD * max_tokens
        self._paths: dict[str, str] = {}
        self._files: dict[str, tuple[dict[str, None], int, int]] = {}
        self._outputs: list[tuple[str, int]] = []
        self._lines = 0
        self._reports: list[tuple[int, bool]] = []
        self._reports_with: dict[str, list[int]] = {}
        self._known = _Known()

    # -- collecting ----------------------------------------------------------------------------------------------------

    def sentence(
        self, text: str, speaker: Speaker, kind: str, span: tuple[int, int], share: float = 1.0, values: str = ""
    ) -> None:
        """A sentence or a line, and the values in it, or in the part of it that is given."""
        self._lines += 1
        found = self._found_in(values or text)
        worth = sentence_worth(kind, text, speaker) * share * self.late if kind else 0.0
        if not worth and not found:
            return
        line = FactLine(text, speaker, *span, self._lines)
        beside = kind == "error" or (kind == "rule" and speaker in ("user", "notes"))
        for name, value in found:
            measured = name == "number" and _measured(value, text)
            self.value(name, value, line, 1.5 * share if beside else share, measured=measured)
        earlier = self._sentences.get(text)
        if worth > (earlier.weight if earlier else 0.0):
            self._sentences[text] = Fact(kind, text, speaker, tuple(dict.fromkeys(span)), worth, (line,))
            self._held += 0 if earlier else len(text)
            if self._held > self._most_held:
                self._let_go()

    def value(self, kind: str, text: str, line: FactLine, share: float = 1.0, *, measured: bool = False) -> str:
        """One mention of a value; the spelling under which it is known, for a path may be given whole or in part."""
        if kind == "path":
            text = self._paths.setdefault(ending(text), text)
        known = self._values.get(text)
        if known is None:
            known = self._values[text] = _Value(kind)
        if not known.positions or known.positions[-1] != line.last:
            known.positions.append(line.last)
        known.stands_in(line)
        weight = value_worth(kind, text, line.speaker, measured=measured) * share * self.late
        if weight > known.weight:
            known.weight, known.speaker = weight, line.speaker
        return text

    def touch(self, path: str, verb: str, position: int) -> None:
        """A file that a tool call named, and what the call did to it."""
        path = self.value("path", path, FactLine("", "arguments", position, position))
        verbs, first, _ = self._files.get(path, ({}, position, position))
        self._files[path] = {**verbs, verb: None}, first, position

    def report(self, sentence: str, position: int, *, taken_back: bool) -> None:
        """A sentence that may settle what was open, or by which the user takes something back."""
        for stem in stems_of(sentence):
            self._reports_with.setdefault(stem, []).append(len(self._reports))
        self._reports.append((position, taken_back))

    def output(self, text: str, position: int) -> None:
        """What a tool said, for when there is room for it."""
        self._outputs.append((text, position))

    def look_at_outputs(self) -> None:
        """Collect every value that a tool said."""
        for text, position in self._outputs:
            for word in dict.fromkeys(text.split()):
                for kind, found in self._known[word]:
                    value = self._paths.get(ending(found), found) if kind == "path" else found
                    known = self._values.get(value)
                    if known is None:
                        known = self._values[value] = _Value(kind)
                        known.weight, known.source = value_worth(kind, value, "tool", measured=False), text
                    if not known.positions or known.positions[-1] != position:
                        known.positions.append(position)

    def _found_in(self, text: str) -> list[tuple[str, str]]:
        """The values in a text, branches and environments included."""
        found = [pair for some in filter(None, map(self._known.__getitem__, text.split())) for pair in some]
        found += [(kind, value) for kind, value, _ in phrases_in(text)]
        if any(map(text.__contains__, _PLACES)):
            places = _PLACE.finditer(text)
            found += [("branch" if at["branch"] else "environment", at[at.lastgroup or 0]) for at in places]
        return found

    def _let_go(self) -> None:
        """Forget the sentences that are worth least for their length; what is left keeps its order."""
        left = self._most_held // 2
        for fact in sorted(self._sentences.values(), key=_rank):
            left -= len(fact.text)
            if left < 0:
                del self._sentences[fact.text]
        self._held = sum(map(len, self._sentences))

    # -- choosing ------------------------------------------------------------------------------------------------------

    def best(self, ask: Ask) -> tuple[list[Fact], list[Fact], int]:
        """The best for their length until they fill the limit, without what was settled; as many more; the tokens left.

        A value in a sentence that is among them costs nothing more.
        """
        facts = [*self._sentences.values(), *(self._fact(text, value) for text, value in self._values.items())]
        facts.sort(key=_rank)
        best: list[Fact] = []
        more: list[Fact] = []
        lines: set[int] = set()
        room = ask.max_tokens
        for fact in facts:
            if self._settled(fact):
                continue
            if fact.kind in SENTENCES:
                room -= ask.count(fact.text) + _CITATION
                lines.add(fact.lines[0].number)
            elif lines.isdisjoint(self._values[fact.text].numbers):
                room -= ask.count(fact.text) + _AROUND
            if room < -ask.max_tokens:
                break
            (best if room >= 0 else more).append(fact if fact.lines else self._quoted(fact))
        return best, more, room

    def _fact(self, text: str, value: _Value) -> Fact:
        quotes = value.quotes
        weight = value.weight
        if text in self._files:
            verbs, first, last = self._files[text]
            weight = max(weight, *map(touch_worth, verbs))
            if known := [verb for verb in verbs if verb != "used"]:
                quotes = [FactLine(f"{', '.join(known)} {ending(text)}", "arguments", first, last), *quotes]
        weight *= 1 + 0.5 * min(2, len(value.positions) - 1)
        return Fact(value.kind, text, value.speaker, tuple(sorted(value.positions)), weight, tuple(quotes))

    def _quoted(self, fact: Fact) -> Fact:
        """A value of which nothing is known but the output it stands in."""
        text = self._values[fact.text].source
        line = FactLine(line_at(text, text.find(fact.text)), "tool", fact.positions[0], fact.positions[0])
        return fact._replace(lines=(line,))

    def _settled(self, fact: Fact) -> bool:
        """Whether something open was reported done later, or the user took a rule or a wish back."""
        if fact.kind not in ("open", "question", "rule", "wish") or not self._reports:
            return False
        stems = stems_of(fact.text)
        found = (self._reports_with.get(stem, ()) for stem in stems)
        shared = Counter(number for some in found if len(some) <= _EVERYWHERE for number in some)
        for number, count in shared.items():
            position, taken_back = self._reports[number]
            finishes = taken_back or fact.kind in ("open", "question")
            if finishes and position > fact.positions[-1] and count >= 0.6 * len(stems):
                return True
        return False


def _rank(fact: Fact) -> float:
    """Best first: what a fact is worth for its length."""
    return -fact.weight / (len(fact.text) + 4 * _AROUND)


def _measured(number: str, text: str) -> bool:
    """Whether a number has a unit, or stands under a key."""
    start = text.find(number)
    bare = number[0].isdigit() and number[-1].isdigit()
    return not bare or _KEYED.search(text[max(0, start - 4) : start]) is not None


def line_at(text: str, start: int) -> str:
    """The line of a text around a place; of a long one the words nearby."""
    left, right = max(0, start - 100), start + 220
    begin = text.rfind("\n", left, start)
    if begin < 0 and left:
        begin = max(text.find(" ", left, start), left - 1)
    end = text.find("\n", start, right)
    if end < 0:
        end = max(text.rfind(" ", start, right), start) if right < len(text) else len(text)
    return next(lines_of(text[begin + 1 : end if end > start else right]), "")
