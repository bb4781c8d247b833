"""Appending to a summary the facts that it lost.

Owns: `restore_lost_facts`: a summary repaired where its score is too low, and its report.
Must never: cut or reword what a summarizer wrote (false citations apart), or present a tool's words as a person's.

A repair appends, within the tokens that are left, the lines that restore most weight for their length, as they were
said, the lines of one message together, each with its citation.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from .._summary.escaping import escape_untrusted
from .._summary.request import Ask
from .citations import add_citation, parse_citations
from .collection import names_in, word_stems
from .facts import Facts
from .invented import is_false_citation
from .measure import find_kept, is_negated, measure
from .ranking import Fact, FactLine
from .report import Report

HEADING = "Facts"
"""The heading of what a repair appends."""
_LINE = 3
"""Tokens of a line besides its words, about."""


def restore_lost_facts(facts: Facts, body: str, ask: Ask, limit: int, min_score: float) -> tuple[str, Report]:
    """The summary without false citations, repaired when it scores below `min_score`; and its report."""
    report = measure(facts, body)
    cleaned = drop_false_citations(body, facts)
    if report.score >= min_score:
        return cleaned, report
    repaired = append_lost_facts(facts, cleaned, ask, limit)
    return repaired, replace(measure(facts, repaired, cleaned), invented=report.invented)


def drop_false_citations(body: str, facts: Facts) -> str:
    """The text without citations of messages that were not compacted."""
    for citation in dict.fromkeys(text for text, spans in parse_citations(body) if is_false_citation(spans, facts)):
        body = body.replace(f" {citation}", "").replace(citation, "")
    return body


def append_lost_facts(facts: Facts, body: str, ask: Ask, limit: int) -> str:
    """The text with the best of what it lost appended, within a limit of tokens."""
    room = limit - ask.count(f"{body}\n{HEADING}\n")
    chosen: list[FactLine] = []
    for some in (facts.best, facts.more):
        lost = [fact for fact, is_kept in zip(some, find_kept(some, body), strict=True) if not is_kept]
        room = _choose_lines(chosen, lost, room, ask.count)
    while chosen:
        lines = (escape_untrusted(line, ask.tag) for line in _format_lines(chosen))
        text = "\n".join([body, HEADING, *lines])
        over = ask.count(text) - limit
        if over <= 0:
            return text
        del chosen[-max(1, over // 40) :]
    return body


def _choose_lines(chosen: list[FactLine], lost: Sequence[Fact], room: int, count: Callable[[str], int]) -> int:
    """Add the lines that restore most weight for their length, each fact counted once; returns the tokens left."""
    facts_in: dict[FactLine, list[int]] = {}
    for number, fact in enumerate(lost):
        for line in fact.lines:
            facts_in.setdefault(line, []).append(number)
    restored = [False] * len(lost)
    costs = {line: count(line.text) + 1 for line in facts_in}
    begun = {_group_key(line) for line in chosen}
    texts = _ChosenLines(chosen)
    for line in chosen:
        for number in facts_in.pop(line, ()):
            restored[number] = True

    def worth(line: FactLine) -> tuple[float, int]:
        cost = costs[line] + (0 if _group_key(line) in begun else _LINE)
        return -sum(lost[n].weight for n in facts_in[line] if not restored[n]) / cost, cost

    heap = [(worth(line)[0], order, line) for order, line in enumerate(facts_in)]
    heapq.heapify(heap)
    while heap:
        value, order, line = heapq.heappop(heap)
        now, cost = worth(line)
        if now == 0 or cost > room:
            continue
        if now > value:  # a line chosen since restored some of it
            heapq.heappush(heap, (now, order, line))
            continue
        for number in facts_in[line]:
            restored[number] = True
        if texts.add_and_compare(line.text):
            continue
        chosen.append(line)
        room -= cost
        begun.add(_group_key(line))
    return room


class _ChosenLines:
    """The lines chosen so far, by their words: a line that repeats one of them is left out."""

    def __init__(self, lines: Iterable[FactLine]) -> None:
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        self._lines = 0
        for line in lines:
            self.add_and_compare(line.text)

    def add_and_compare(self, text: str) -> bool:
        """Add a text; returns whether nearly all of its words stand in one added before."""
        words = {*word_stems(text), *names_in(text), *(["not"] if is_negated(text) else ())}
        shared = Counter(place for word in words for place in self._places.get(word, ()))
        for word in words:
            self._places[word].append(self._lines)
        self._lines += 1
        return len(words) > 3 and max(shared.values(), default=0) >= 0.95 * len(words)


def _group_key(line: FactLine) -> tuple[str, int]:
    """Lines of one message are written as one; a line without a position stands alone."""
    return line.speaker, line.first if line.first >= 0 else -line.number


def _format_lines(lines: Iterable[FactLine]) -> Iterator[str]:
    """The lines in the order of the session, those of one message together, each with its citation."""
    groups: dict[tuple[str, int], list[FactLine]] = {}
    for line in sorted(lines, key=lambda line: (line.first, line.number, line.text)):
        groups.setdefault(_group_key(line), []).append(line)
    for group in groups.values():
        first, last = min(line.first for line in group), max(line.last for line in group)
        text = ("tool said: " if group[0].speaker == "tool" else "") + group[0].text
        for before, line in pairwise(group):
            text += f" {line.text}" if line.number == before.number + 1 else f" … {line.text}"
        yield add_citation(f"- {text}", first, last)
