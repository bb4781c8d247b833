"""What was worked out of a sentence, for as long as one summary is judged.

Owns: `once` and `forget`. Must never: keep a sentence when that is over: a process outlives its conversations.

Facts are looked for in a summary as it came, before a repair and after it, and each time they are taken apart the same
way. Threads that judge at the same time only make each other forget too early.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

__all__ = ["forget", "once"]

_T = TypeVar("_T")
_MOST = 512
_remembering: list[Any] = []


def once(function: Callable[[str], _T]) -> Callable[[str], _T]:
    """The same function, which takes a text apart once until all is forgotten; the newest few hundred of them."""
    remembering = lru_cache(maxsize=_MOST)(function)
    _remembering.append(remembering)
    return remembering


def forget() -> None:
    """Let all texts go."""
    for one in _remembering:
        one.cache_clear()
