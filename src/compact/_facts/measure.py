"""Measuring how much of what mattered a summary keeps.

Owns: `measure`, and what counts as kept.
Must never: change a summary, or let the order of a set decide anything.

- A value is kept when it stands in the summary as it was, whole; of a long path its last two parts are enough.
- A sentence is kept when most of its words, half of the names in it, and its negation stand together in one sentence of
  the summary or two neighbouring ones.
- What reads like an identifier and stands nowhere in the input is invented, and so is a citation of a message that was
  not compacted. Inventions lower the score.
- The score is the weight kept of all that mattered and could have fitted, 0 to 100.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from .cache import cached_by_text
from .citations import strip_citations
from .collection import names_in, word_stems
from .facts import Facts
from .invented import find_invented
from .ranking import SENTENCES, Fact, short_path
from .report import CRITICAL, MAX_NAMED, KindCounts, Report
from .text import sentences_of

_MOST = 0.7
_INVENTED = 0.25
"""What an invention takes from the score: as much as losing an identifier."""

_NEGATION = re.compile(
    r"\b(?:no[tr]?|never|none|cannot|\w+n['’]t|without|only|except|unless|avoid|instead|skip"
    r"|nicht|kein\w*|nie|nur|pas|jamais|sans|nunca|sin|solo|jam[aá]s)\b|不|别|勿|禁",
    re.I,
)


def measure(facts: Facts, body: str, before: str | None = None) -> Report:
    """The report of a summary; with the text `before` a repair, also what the repair restored."""
    now = find_kept(facts.best, body)
    own = now if before is None else find_kept(facts.best, before)
    kinds: dict[str, list[int]] = {}
    weight = total = 0.0
    missing: list[str] = []
    for fact, is_kept, was_kept in zip(facts.best, now, own, strict=True):
        counts = kinds.setdefault(fact.kind, [0, 0, 0])
        counts[0 if was_kept else 1 if is_kept else 2] += 1
        total += fact.weight
        if is_kept:
            weight += fact.weight
        else:
            missing.append(fact.text)
    unsaid = find_invented(facts, body)
    if not total:
        weight = total = 1.0
    return Report(
        score=round(100 * weight / (total + _INVENTED * len(unsaid)), 1),
        kept=sum(counts[0] for counts in kinds.values()),
        repaired=sum(counts[1] for counts in kinds.values()),
        lost=sum(counts[2] for counts in kinds.values()),
        invented=tuple(unsaid[:MAX_NAMED]),
        missing=tuple(missing[:MAX_NAMED]),
        kinds={kind: KindCounts(*kinds[kind]) for kind in sorted(kinds)},
        unkept_kinds=tuple(kind for kind in CRITICAL if kind in kinds and not sum(kinds[kind][:2])),
    )


# -- what is kept ------------------------------------------------------------------------------------------------------


def find_kept(facts: Sequence[Fact], body: str) -> list[bool]:
    """For each fact, whether a text keeps it."""
    windows = _SentenceWindows(body)
    return [windows.contain(f.text) if f.kind in SENTENCES else _contains_value(body, f) for f in facts]


def _contains_value(body: str, fact: Fact) -> bool:
    """Whether a value stands in a text as a whole."""
    return contains_whole(body, short_path(fact.text) if fact.kind == "path" else fact.text)


def contains_whole(body: str, value: str) -> bool:
    """Whether a value stands in a text, and not as a part of a longer word."""
    start = body.find(value)
    while start >= 0:
        end = start + len(value)
        if not (_continues_word(body, start - 1, value[0]) or _continues_word(body, end, value[-1])):
            return True
        start = body.find(value, start + 1)
    return False


def _continues_word(body: str, index: int, edge: str) -> bool:
    """Whether the character outside continues the word at the edge of a value."""
    return 0 <= index < len(body) and _is_word_character(edge) and _is_word_character(body[index])


def _is_word_character(character: str) -> bool:
    return character.isalnum() or character == "_"


@cached_by_text
def is_negated(sentence: str) -> bool:
    """Whether a sentence says that something is not, or only under a condition."""
    return _NEGATION.search(sentence) is not None


class _SentenceWindows:
    """The sentences of a text, alone and with the next one, indexed by their words."""

    def __init__(self, body: str) -> None:
        self._body = " ".join(body.split())
        self._negated: list[bool] = []
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for number, sentence in enumerate(sentences_of(strip_citations(body))):
            self._negated.append(is_negated(sentence))
            for word in (*word_stems(sentence), *names_in(sentence)):
                self._places[word].append(number)

    def contain(self, sentence: str) -> bool:
        """Whether most of a sentence, half of the names in it, and its negation stand together."""
        whole = " ".join(sentence.split())
        if whole and contains_whole(self._body, whole):
            return True
        stems = word_stems(sentence)
        if len(stems) < 2:
            return whole in self._body
        marks = names_in(sentence)
        with_marks = self._windows_with(marks, 0.5) if marks else None
        negated = is_negated(sentence)
        for window in self._windows_with(stems, _MOST):
            first, last = window
            if (with_marks is None or window in with_marks) and (not negated or any(self._negated[first : last + 1])):
                return True
        return False

    def _windows_with(self, words: Collection[str], share: float) -> set[tuple[int, int]]:
        """The first and last sentence of each window that holds this share of some words."""
        alone: Counter[int] = Counter()
        joined: Counter[int] = Counter()  # by the first of two sentences
        for word in words:
            places = self._places.get(word, ())
            alone.update(places)
            joined.update({n for place in places for n in (place - 1, place)})
        enough = share * len(words)
        single = {(n, n) for n, count in alone.items() if count >= enough}
        return single | {(max(n, 0), n + 1) for n, count in joined.items() if count >= enough}
