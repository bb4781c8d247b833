"""Literals, which are searched before patterns.

Owns: one pattern for many literals, and which of many literals a text holds.
Must never: know what the literals mean.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


def any_of(literals: Iterable[str]) -> str:
    """A pattern of all literals as a tree of letters, so that few are tried at a position; the longest wins."""
    branches: dict[str, list[str]] = defaultdict(list)
    may_end = False
    for literal in sorted(literals):
        if literal:
            branches[literal[0]].append(literal[1:])
        may_end = may_end or not literal
    inner = "|".join(f"{re.escape(first)}{any_of(rests)}" for first, rests in branches.items())
    if len(branches) > 1 or (may_end and branches):
        inner = f"(?:{inner})"
    return f"{inner}?" if may_end and branches else inner


_RARE = "$<{=(~|&?@/*%:#7539-_zqxjkvwbyfpgmchludrsnioate "
"""Signs and letters of common text, the rarest first; capitals, which are not listed, are rarer still."""


class Literals:
    """Finds which of many literals a text holds: a pattern searches the rarest letter of each and the one behind it."""

    __slots__ = ("_pattern", "_present")

    def __init__(self, literals: Iterable[str]) -> None:
        anchored: dict[str, dict[str, list[_Literal]]] = defaultdict(lambda: defaultdict(list))
        for literal in sorted(set(literals), key=lambda literal: (-len(literal), literal)):
            at = literal.index(min(literal, key=_rarity))
            anchored[literal[at]][literal[at + 1 : at + 2]].append(_Literal(literal, at))
        # A literal that ends at its anchor comes last: it needs no more to match, so it would hide the others.
        grouped = {anchor: sorted(groups.items(), reverse=True) for anchor, groups in anchored.items()}
        every = [one for groups in grouped.values() for _, group in groups for one in group]
        # One literal hides others at the same letter and at the next: these count as present too.
        self._present = [frozenset(other.text for other in every if one.may_hide(other)) for one in every]
        branches = [
            re.escape(anchor)
            + _either(re.escape(second) + _either(map(_Literal.rest, group)) for second, group in groups)
            for anchor, groups in grouped.items()
        ]
        self._pattern = re.compile("|".join(branches))

    def find_in(self, text: str) -> list[str]:
        """The literals in a text, sorted, and perhaps a few more."""
        found = {match.lastindex for match in self._pattern.finditer(text)}
        return sorted({literal for index in found if index for literal in self._present[index - 1]})


class _Literal(NamedTuple):
    text: str
    at: int
    """The position of its anchor."""

    def rest(self) -> str:
        """The pattern of what must match besides the anchor and the letter behind it."""
        behind, seen = self.text[self.at + 2 :], self.text[: self.at + 2]
        return (f"(?={re.escape(behind)})" if behind else "") + (f"(?<={re.escape(seen)})" if self.at else "") + "()"

    def may_hide(self, other: _Literal) -> bool:
        """Whether the other may occur where this one was found, at the same anchor or at the next letter."""
        anchor, second = self.text[self.at], self.text[self.at + 1 : self.at + 2]
        if other.text[other.at] == second:
            return True
        if other.text[other.at] != anchor:
            return False
        before, after = self.text[: self.at], self.text[self.at :]
        others_before, others_after = other.text[: other.at], other.text[other.at :]
        return (before.endswith(others_before) or others_before.endswith(before)) and (
            after.startswith(others_after) or others_after.startswith(after)
        )


def _either(patterns: Iterable[str]) -> str:
    return f"(?:{'|'.join(patterns)})"


def _rarity(letter: str) -> int:
    return _RARE.find(letter)
