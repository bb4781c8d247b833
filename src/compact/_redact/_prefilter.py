"""Literals before patterns.

Owns: one pattern for many literals, and which of many literals a text holds.
Must never: know what the literals mean.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

__all__ = ["Literals", "any_of"]


def any_of(literals: Iterable[str]) -> str:
    """A pattern of all literals, letter by letter as a tree, so that few are tried at a place; the longest wins."""
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
"""Signs and letters of common text, the rare ones first; capitals, which are not in it, are rarer still."""


class Literals:
    """Which of many literals stand in a text: a pattern looks at the rarest letter of each only."""

    __slots__ = ("_pattern", "_present")

    def __init__(self, literals: Iterable[str]) -> None:
        anchored: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for literal in sorted(set(literals), key=lambda literal: (-len(literal), literal)):
            at = literal.index(min(literal, key=_rarity))
            anchored[literal[at]].append((literal[:at], literal[at + 1 :]))
        groups = [(anchor, pair) for anchor, pairs in anchored.items() for pair in pairs]
        # One literal hides others at the same letter: all that may stand there with it count as present.
        self._present = [
            frozenset(f"{a}{x}{b}" for x, (a, b) in groups if x == anchor and _fit(pair, (a, b)))
            for anchor, pair in groups
        ]
        branches = [
            f"{re.escape(anchor)}(?:{'|'.join(_around(anchor, pair) for pair in pairs)})"
            for anchor, pairs in anchored.items()
        ]
        self._pattern = re.compile("|".join(branches))

    def of(self, text: str) -> list[str]:
        """The literals in a text, in their order, and perhaps a few more."""
        found = {match.lastindex for match in self._pattern.finditer(text)}
        return sorted({literal for index in found if index for literal in self._present[index - 1]})


def _rarity(letter: str) -> int:
    return _RARE.find(letter)


def _around(anchor: str, pair: tuple[str, str]) -> str:
    before, after = map(re.escape, pair)
    return f"(?<={before}{re.escape(anchor)})(?={after})()"


def _fit(one: tuple[str, str], other: tuple[str, str]) -> bool:
    (a, b), (c, d) = one, other
    return (a.endswith(c) or c.endswith(a)) and (b.startswith(d) or d.startswith(b))
