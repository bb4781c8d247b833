"""Giving back what a summary lost.

Owns: `faithful`: a summary that may be used, repaired where it must be, and its report.
Must never: cut or reword what a summarizer wrote (false citations apart), or pass a tool's words off as anybody else's.

A repair appends, within the room that is left, the lines that give most back for their length, as they were said, what
one message said together, each with its citation.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from .._summary.escaping import escape_untrusted
from .._summary.request import Ask
from .citations import cited, citing
from .collection import marks_of, stems_of
from .facts import Facts
from .invented import is_false
from .measure import find_kept, is_negated, measure
from .ranking import Fact, FactLine
from .report import Report

__all__ = ["HEADING", "faithful", "repair", "without_false_citations"]

HEADING = "Facts"
"""The heading of what a repair appends."""
_LINE = 3
"""Tokens of a line besides its words, about."""


def faithful(facts: Facts, body: str, ask: Ask, limit: int, min_score: float) -> tuple[str, Report]:
    """A summary that may be used, without false citations, repaired when it scores too low; and its report."""
    report = measure(facts, body)
    cleaned = without_false_citations(body, facts)
    if report.score >= min_score:
        return cleaned, report
    repaired = repair(facts, cleaned, ask, limit)
    return repaired, replace(measure(facts, repaired, cleaned), invented=report.invented)


def without_false_citations(body: str, facts: Facts) -> str:
    """The text without citations of messages that were not folded."""
    for citation in dict.fromkeys(text for text, spans in cited(body) if is_false(spans, facts)):
        body = body.replace(f" {citation}", "").replace(citation, "")
    return body


def repair(facts: Facts, body: str, ask: Ask, limit: int) -> str:
    """The text with the best of what it lost appended, within a limit of tokens."""
    room = limit - ask.count(f"{body}\n{HEADING}\n")
    chosen: list[FactLine] = []
    for some in (facts.best, facts.more):
        lost = [fact for fact, is_kept in zip(some, find_kept(some, body), strict=True) if not is_kept]
        room = _choose(chosen, lost, room, ask.count)
    while chosen:
        lines = (escape_untrusted(line, ask.tag) for line in _written(chosen))
        text = "\n".join([body, HEADING, *lines])
        over = ask.count(text) - limit
        if over <= 0:
            return text
        del chosen[-max(1, over // 40) :]
    return body


def _choose(chosen: list[FactLine], lost: Sequence[Fact], room: int, count: Callable[[str], int]) -> int:
    """Add the lines that give most back for their length, each fact counted once, best first; the room that is left."""
    facts_in: dict[FactLine, list[int]] = {}
    for number, fact in enumerate(lost):
        for line in fact.lines:
            facts_in.setdefault(line, []).append(number)
    given = [False] * len(lost)
    costs = {line: count(line.text) + 1 for line in facts_in}
    begun = {_group(line) for line in chosen}
    told = _Told(chosen)
    for line in chosen:
        for number in facts_in.pop(line, ()):
            given[number] = True

    def worth(line: FactLine) -> tuple[float, int]:
        cost = costs[line] + (0 if _group(line) in begun else _LINE)
        return -sum(lost[n].weight for n in facts_in[line] if not given[n]) / cost, cost

    heap = [(worth(line)[0], order, line) for order, line in enumerate(facts_in)]
    heapq.heapify(heap)
    while heap:
        value, order, line = heapq.heappop(heap)
        now, cost = worth(line)
        if now == 0 or cost > room:
            continue
        if now > value:  # a line chosen since gave back some of it
            heapq.heappush(heap, (now, order, line))
            continue
        for number in facts_in[line]:
            given[number] = True
        if told.again(line.text):
            continue
        chosen.append(line)
        room -= cost
        begun.add(_group(line))
    return room


class _Told:
    """What was told already: nobody says the same thing twice in other words."""

    def __init__(self, lines: Iterable[FactLine]) -> None:
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        self._lines = 0
        for line in lines:
            self.again(line.text)

    def again(self, text: str) -> bool:
        """Whether nearly all words of a text stand in one told before; it is told from now on."""
        words = {*stems_of(text), *marks_of(text), *(["not"] if is_negated(text) else ())}
        shared = Counter(place for word in words for place in self._places.get(word, ()))
        for word in words:
            self._places[word].append(self._lines)
        self._lines += 1
        return len(words) > 3 and max(shared.values(), default=0) >= 0.95 * len(words)


def _group(line: FactLine) -> tuple[str, int]:
    """What one message said is written as one line; what nobody can place stands alone."""
    return line.speaker, line.first if line.first >= 0 else -line.number


def _written(lines: Iterable[FactLine]) -> Iterator[str]:
    """The lines in the order of the session, what one message said together, each with its citation."""
    groups: dict[tuple[str, int], list[FactLine]] = {}
    for line in sorted(lines, key=lambda line: (line.first, line.number, line.text)):
        groups.setdefault(_group(line), []).append(line)
    for group in groups.values():
        first, last = min(line.first for line in group), max(line.last for line in group)
        text = ("tool said: " if group[0].speaker == "tool" else "") + group[0].text
        for before, line in pairwise(group):
            text += f" {line.text}" if line.number == before.number + 1 else f" … {line.text}"
        yield citing(f"- {text}", first, last)
