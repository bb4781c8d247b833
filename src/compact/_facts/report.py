"""How much of what mattered a summary keeps.

Owns: `Report`, `measure`, and what counts as kept. Must never: change a summary, or let the order of a set decide
anything.

- A value is kept when it stands in the summary as it was, whole; of a long path its last two parts are enough.
- A sentence is kept when most of its words, half of the names in it, and its negation stand together in one sentence of
  the summary or two neighbouring ones.
- What reads like an identifier and stands nowhere in the input is invented, and so is a citation of a message that was
  not folded. Inventions lower the score.
- The score is the weight kept of all that mattered and could have fitted, 0 to 100.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from .._redaction import REDACTED
from .cache import once
from .citations import uncited
from .collection import marks_of, stems_of
from .facts import Facts
from .invented import invented
from .ranking import SENTENCES, Fact, ending
from .text import sentences_of

__all__ = ["Kept", "Report", "is_negated", "kept", "measure", "stands_in", "together"]

CRITICAL = ("wish", "rule", "decision", "open", "question", "error", "task", "id", "path", "branch", "environment")
"""Kinds of which a summary should keep something when it was given any."""

_MOST = 0.7
_INVENTED = 0.25
"""What an invention takes from the score: as much as losing an identifier."""
_NAMED = 20
"""How many lost and invented facts a report names."""

_NEGATION = re.compile(
    r"\b(?:no[tr]?|never|none|cannot|\w+n['’]t|without|only|except|unless|avoid|instead|skip"
    r"|nicht|kein\w*|nie|nur|pas|jamais|sans|nunca|sin|solo|jam[aá]s)\b|不|别|勿|禁",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Kept:
    """Of one kind of facts: how many the summary kept, how many a repair gave back, how many are lost."""

    kept: int = 0
    repaired: int = 0
    lost: int = 0


_NONE: Mapping[str, Kept] = {}


@dataclass(frozen=True, slots=True)
class Report:
    """The fidelity of one fold. Counts are of facts that mattered and could have fitted."""

    score: float
    """0 to 100: the weight kept, inventions taken off."""
    kept: int
    repaired: int
    lost: int
    invented: tuple[str, ...]
    """What the summary names that stands nowhere in its input; the first twenty."""
    missing: tuple[str, ...]
    """The best facts that are lost; at most twenty."""
    kinds: Mapping[str, Kept]
    unkept_kinds: tuple[str, ...]
    """Critical kinds of which something was given and nothing was kept."""

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, for events and the archive."""
        return asdict(self)

    def concealed(self, words: Iterable[str], body: str, conceal: Callable[[str], str]) -> Report:
        """The report without what is a secret where it stood: a value alone does not show what it is.

        `conceal` redacts a text; what is missing stood in the `words` that fold, what is invented in the `body`.
        """
        if not (self.missing or self.invented):
            return self
        around = [word for word in words if any(text in word for text in self.missing)]
        clean_words, clean_body = [conceal(word) for word in around], conceal(body)

        def shown(text: str, raw: Iterable[str], clean: Iterable[str]) -> str:
            if any(text in word for word in clean) or not any(text in word for word in raw):
                return text
            return known if (known := conceal(text)) != text else REDACTED

        return replace(
            self,
            missing=tuple(shown(text, around, clean_words) for text in self.missing),
            invented=tuple(shown(text, (body,), (clean_body,)) for text in self.invented),
        )

    def in_short(self) -> Report:
        """The sums alone, for folds long past; names and kinds are in the archive."""
        return replace(self, invented=(), missing=(), kinds=_NONE, unkept_kinds=())

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Report:
        """A report as it was before `as_dict`."""
        return cls(
            score=float(value["score"]),
            kept=int(value["kept"]),
            repaired=int(value["repaired"]),
            lost=int(value["lost"]),
            invented=tuple(value["invented"]),
            missing=tuple(value["missing"]),
            kinds={str(kind): Kept(**counts) for kind, counts in value["kinds"].items()},
            unkept_kinds=tuple(value["unkept_kinds"]),
        )


def measure(facts: Facts, body: str, before: str | None = None) -> Report:
    """What a summary keeps; with the text as it was `before` a repair, what the repair gave back."""
    now = kept(facts.best, body)
    own = now if before is None else kept(facts.best, before)
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
    unsaid = invented(facts, body)
    if not total:
        weight = total = 1.0
    return Report(
        score=round(100 * weight / (total + _INVENTED * len(unsaid)), 1),
        kept=sum(counts[0] for counts in kinds.values()),
        repaired=sum(counts[1] for counts in kinds.values()),
        lost=sum(counts[2] for counts in kinds.values()),
        invented=tuple(unsaid[:_NAMED]),
        missing=tuple(missing[:_NAMED]),
        kinds={kind: Kept(*kinds[kind]) for kind in sorted(kinds)},
        unkept_kinds=tuple(kind for kind in CRITICAL if kind in kinds and not sum(kinds[kind][:2])),
    )


def together(reports: Iterable[Report | None]) -> Report | None:
    """One report of a fold that made several summaries; the score is the mean over their facts."""
    some = [report for report in reports if report is not None]
    if len(some) < 2:
        return some[0] if some else None
    sizes = [report.kept + report.repaired + report.lost for report in some]
    kinds: dict[str, Kept] = {}
    for report in some:
        for kind, one in report.kinds.items():
            sum_ = kinds.get(kind, Kept())
            kinds[kind] = Kept(sum_.kept + one.kept, sum_.repaired + one.repaired, sum_.lost + one.lost)
    return Report(
        score=round(
            sum(r.score * max(1, n) for r, n in zip(some, sizes, strict=True)) / sum(max(1, n) for n in sizes), 1
        ),
        kept=sum(report.kept for report in some),
        repaired=sum(report.repaired for report in some),
        lost=sum(report.lost for report in some),
        invented=tuple(dict.fromkeys(name for report in some for name in report.invented))[:_NAMED],
        missing=tuple(dict.fromkeys(name for report in some for name in report.missing))[:_NAMED],
        kinds=dict(sorted(kinds.items())),
        unkept_kinds=tuple(kind for kind in CRITICAL if kind in kinds and not kinds[kind].kept + kinds[kind].repaired),
    )


# -- what is kept ------------------------------------------------------------------------------------------------------


def kept(facts: Sequence[Fact], body: str) -> list[bool]:
    """Which facts a text keeps."""
    windows = _Windows(body)
    return [windows.hold(f.text) if f.kind in SENTENCES else _stands(body, f) for f in facts]


def _stands(body: str, fact: Fact) -> bool:
    """Whether a value stands in a text as a whole."""
    return stands_in(body, ending(fact.text) if fact.kind == "path" else fact.text)


def stands_in(body: str, value: str) -> bool:
    """Whether a value stands in a text, and not as a part of a longer word."""
    start = body.find(value)
    while start >= 0:
        end = start + len(value)
        if not (_joined(body, start - 1, value[0]) or _joined(body, end, value[-1])):
            return True
        start = body.find(value, start + 1)
    return False


def _joined(body: str, index: int, edge: str) -> bool:
    """Whether the character outside goes on with the word that the edge of a value belongs to."""
    return 0 <= index < len(body) and _word(edge) and _word(body[index])


def _word(character: str) -> bool:
    return character.isalnum() or character == "_"


@once
def is_negated(sentence: str) -> bool:
    """Whether a sentence says that something is not, or only under a condition."""
    return _NEGATION.search(sentence) is not None


class _Windows:
    """The sentences of a text, alone and with the next one, found by the words they share with another."""

    def __init__(self, body: str) -> None:
        self._body = " ".join(body.split())
        self._negated: list[bool] = []
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for number, sentence in enumerate(sentences_of(uncited(body))):
            self._negated.append(is_negated(sentence))
            for word in (*stems_of(sentence), *marks_of(sentence)):
                self._places[word].append(number)

    def hold(self, sentence: str) -> bool:
        """Whether most of a sentence, half of the names in it, and its negation stand together."""
        whole = " ".join(sentence.split())
        if whole and stands_in(self._body, whole):
            return True
        stems = stems_of(sentence)
        if len(stems) < 2:
            return whole in self._body
        marks = marks_of(sentence)
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
