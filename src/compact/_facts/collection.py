"""Facts while they are collected, and the choice among them.

Owns: `FactCollection`: what is known of each value and sentence, what was settled since, and which facts could have
fitted.
Must never: read a message, let the order of a set decide anything, or hold more sentences than could ever fit.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections import Counter

from .._summary.request import Ask
from .cache import cached_by_text
from .ranking import SENTENCES, Fact, FactLine, Speaker, rate_file_use, rate_sentence, rate_value, short_path
from .text import lines_of, words_of
from .values import find_phrases, find_tokens

LONGEST_WORD = 64
"""Characters of the longest word whose values are cached."""
_CITATION = 4
"""Tokens that a sentence needs besides its own."""
_AROUND = 8
"""Tokens that a value needs besides its own: the words around it, its citation."""
_QUOTES = 3
"""How many lines a fact may be quoted from."""
_HELD = 32
"""Characters of sentences held for each token of the limit; half of them stay when some are dropped. Sentences of twice
the limit are chosen, about eight characters for each of its tokens, so as many may turn out to be settled."""
_EVERYWHERE = 200
"""A word in more reports than this shows nothing about what was settled."""

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


@cached_by_text
def word_stems(text: str) -> tuple[str, ...]:
    """The words that carry meaning, each once, by their first letters: a word and its inflections are one."""
    return _unique_interned([word[:6] for word in words_of(text)])


@cached_by_text
def names_in(text: str) -> tuple[str, ...]:
    """The names in a text, each once, by their last part: they distinguish sentences that are otherwise alike."""
    return _unique_interned([name.strip(".-").rpartition("/")[2] for name in _NAME.findall(text)])


def _unique_interned(words: list[str]) -> tuple[str, ...]:
    """The words, each once, as a tuple of shared strings: hundreds of sets would take more memory than the texts."""
    return tuple(dict.fromkeys(map(sys.intern, words)))


class _CollectedValue:
    """A value while it is collected: its highest weight, its speaker, and where it stands."""

    __slots__ = ("_spoken_lines", "_tool_lines", "kind", "numbers", "positions", "source", "speaker", "weight")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.speaker: Speaker = "tool"
        self.weight = 0.0
        self.positions: list[int] = []
        self.numbers = array("I")
        """The numbers of the lines it stands in."""
        self.source = ""
        self._spoken_lines: list[FactLine] = []
        self._tool_lines: list[FactLine] = []

    def add_line(self, line: FactLine) -> None:
        """Add a line it stands in, and keep it among the newest to quote from; a tool's lines are kept apart."""
        newest = self._tool_lines if line.speaker == "tool" else self._spoken_lines
        if not line.text or (newest and newest[-1] is line):
            return
        self.numbers.append(line.number)
        newest.append(line)
        del newest[:-_QUOTES]

    @property
    def quotes(self) -> list[FactLine]:
        """The newest lines, the newest first; a tool's lines only when there are no others."""
        return (self._spoken_lines or self._tool_lines)[::-1]


class _ValuesByWord(dict[str, tuple[tuple[str, str], ...]]):
    """The values in each word of a text, found once."""

    def __missing__(self, word: str) -> tuple[tuple[str, str], ...]:
        core = word.strip(_EDGES).replace("'", "").replace("’", "")
        plain = core.isalpha() and (len(core) == 1 or core[1:].islower())
        found = () if plain else tuple((kind, value) for kind, value, _ in find_tokens(word))
        if len(word) <= LONGEST_WORD:
            self[word] = found
        return found


class FactCollection:
    """Facts while they are collected."""

    def __init__(self, max_tokens: int) -> None:
        self.recency = 1.0
        """Factor for the weight of what is added now: 0.9 early in the messages, 1.1 late."""
        self._values: dict[str, _CollectedValue] = {}
        self._sentences: dict[str, Fact] = {}
        self._held, self._most_held = 0, _HELD * max_tokens
        self._paths: dict[str, str] = {}
        self._files: dict[str, tuple[dict[str, None], int, int]] = {}
        self._outputs: list[tuple[str, int]] = []
        self._lines = 0
        self._reports: list[tuple[int, bool]] = []
        self._reports_with: dict[str, list[int]] = {}
        self._known = _ValuesByWord()

    # -- collecting ----------------------------------------------------------------------------------------------------

    def add_sentence(
        self, text: str, speaker: Speaker, kind: str, span: tuple[int, int], share: float = 1.0, values: str = ""
    ) -> None:
        """Add a sentence or a line, and the values in it, or in `values` when that part of it is given."""
        self._lines += 1
        found = self._find_values(values or text)
        worth = rate_sentence(kind, text, speaker) * share * self.recency if kind else 0.0
        if not worth and not found:
            return
        line = FactLine(text, speaker, *span, self._lines)
        beside = kind == "error" or (kind == "rule" and speaker in ("user", "notes"))
        for name, value in found:
            measured = name == "number" and _has_unit_or_key(value, text)
            self.add_value(name, value, line, 1.5 * share if beside else share, measured=measured)
        earlier = self._sentences.get(text)
        if worth > (earlier.weight if earlier else 0.0):
            self._sentences[text] = Fact(kind, text, speaker, tuple(dict.fromkeys(span)), worth, (line,))
            self._held += 0 if earlier else len(text)
            if self._held > self._most_held:
                self._drop_least_valuable()

    def add_value(self, kind: str, text: str, line: FactLine, share: float = 1.0, *, measured: bool = False) -> str:
        """Add a mention of a value; returns the spelling it is collected under: a path may be whole or in part."""
        if kind == "path":
            text = self._paths.setdefault(short_path(text), text)
        known = self._values.get(text)
        if known is None:
            known = self._values[text] = _CollectedValue(kind)
        if not known.positions or known.positions[-1] != line.last:
            known.positions.append(line.last)
        known.add_line(line)
        weight = rate_value(kind, text, line.speaker, measured=measured) * share * self.recency
        if weight > known.weight:
            known.weight, known.speaker = weight, line.speaker
        return text

    def add_file_use(self, path: str, verb: str, position: int) -> None:
        """Add a file that a tool call named, and what the call did to it."""
        path = self.add_value("path", path, FactLine("", "arguments", position, position))
        verbs, first, _ = self._files.get(path, ({}, position, position))
        self._files[path] = {**verbs, verb: None}, first, position

    def add_report(self, sentence: str, position: int, *, taken_back: bool) -> None:
        """Add a sentence that may settle what was open, or by which the user takes something back."""
        for stem in word_stems(sentence):
            self._reports_with.setdefault(stem, []).append(len(self._reports))
        self._reports.append((position, taken_back))

    def add_output(self, text: str, position: int) -> None:
        """Add a tool's output, for when its values may fit."""
        self._outputs.append((text, position))

    def add_output_values(self) -> None:
        """Collect every value in the outputs of tools."""
        for text, position in self._outputs:
            for word in dict.fromkeys(text.split()):
                for kind, found in self._known[word]:
                    value = self._paths.get(short_path(found), found) if kind == "path" else found
                    known = self._values.get(value)
                    if known is None:
                        known = self._values[value] = _CollectedValue(kind)
                        known.weight, known.source = rate_value(kind, value, "tool", measured=False), text
                    if not known.positions or known.positions[-1] != position:
                        known.positions.append(position)

    def _find_values(self, text: str) -> list[tuple[str, str]]:
        """The values in a text, branches and environments included."""
        found = [pair for some in filter(None, map(self._known.__getitem__, text.split())) for pair in some]
        found += [(kind, value) for kind, value, _ in find_phrases(text)]
        if any(map(text.__contains__, _PLACES)):
            places = _PLACE.finditer(text)
            found += [("branch" if at["branch"] else "environment", at[at.lastgroup or 0]) for at in places]
        return found

    def _drop_least_valuable(self) -> None:
        """Drop the sentences with the least weight for their length; the others keep their order."""
        left = self._most_held // 2
        for fact in sorted(self._sentences.values(), key=_rank):
            left -= len(fact.text)
            if left < 0:
                del self._sentences[fact.text]
        self._held = sum(map(len, self._sentences))

    # -- choosing ------------------------------------------------------------------------------------------------------

    def choose(self, ask: Ask) -> tuple[list[Fact], list[Fact], int]:
        """The facts with the most weight for their length that fill the limit, settled ones left out; as many more; the
        tokens left.

        A value in a sentence that is among them costs nothing more.
        """
        facts = [*self._sentences.values(), *(self._make_fact(text, value) for text, value in self._values.items())]
        facts.sort(key=_rank)
        best: list[Fact] = []
        more: list[Fact] = []
        lines: set[int] = set()
        room = ask.max_tokens
        for fact in facts:
            if self._is_settled(fact):
                continue
            if fact.kind in SENTENCES:
                room -= ask.count(fact.text) + _CITATION
                lines.add(fact.lines[0].number)
            elif lines.isdisjoint(self._values[fact.text].numbers):
                room -= ask.count(fact.text) + _AROUND
            if room < -ask.max_tokens:
                break
            (best if room >= 0 else more).append(fact if fact.lines else self._with_quote(fact))
        return best, more, room

    def _make_fact(self, text: str, value: _CollectedValue) -> Fact:
        quotes = value.quotes
        weight = value.weight
        if text in self._files:
            verbs, first, last = self._files[text]
            weight = max(weight, *map(rate_file_use, verbs))
            if known := [verb for verb in verbs if verb != "used"]:
                quotes = [FactLine(f"{', '.join(known)} {short_path(text)}", "arguments", first, last), *quotes]
        weight *= 1 + 0.5 * min(2, len(value.positions) - 1)
        return Fact(value.kind, text, value.speaker, tuple(sorted(value.positions)), weight, tuple(quotes))

    def _with_quote(self, fact: Fact) -> Fact:
        """A fact that was found in an output only, with the line it stands in."""
        text = self._values[fact.text].source
        line = FactLine(line_at(text, text.find(fact.text)), "tool", fact.positions[0], fact.positions[0])
        return fact._replace(lines=(line,))

    def _is_settled(self, fact: Fact) -> bool:
        """Whether something open was reported done later, or the user took a rule or a wish back."""
        if fact.kind not in ("open", "question", "rule", "wish") or not self._reports:
            return False
        stems = word_stems(fact.text)
        found = (self._reports_with.get(stem, ()) for stem in stems)
        shared = Counter(number for some in found if len(some) <= _EVERYWHERE for number in some)
        for number, count in shared.items():
            position, taken_back = self._reports[number]
            finishes = taken_back or fact.kind in ("open", "question")
            if finishes and position > fact.positions[-1] and count >= 0.6 * len(stems):
                return True
        return False


def _rank(fact: Fact) -> float:
    """The sort key: the most weight for its length first."""
    return -fact.weight / (len(fact.text) + 4 * _AROUND)


def _has_unit_or_key(number: str, text: str) -> bool:
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
