"""Literals before patterns.

Owns: one pattern for many literals.
Must never: know what the literals mean.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

__all__ = ["any_of"]


def any_of(literals: Iterable[str]) -> str:
    """A pattern of all literals, the longest first, grouped by their first letter: so few are tried at a place."""
    groups: dict[str, list[str]] = defaultdict(list)
    for literal in sorted(literals, key=lambda literal: (-len(literal), literal)):
        groups[literal[0]].append(re.escape(literal[1:]))
    return "|".join(f"{re.escape(first)}(?:{'|'.join(rests)})" for first, rests in groups.items())
