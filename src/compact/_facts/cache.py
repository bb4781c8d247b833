"""Results computed from a sentence, cached while one summary is measured.

Owns: `cached_by_text` and `clear_caches`.
Must never: keep a sentence after that: a process outlives its conversations.

A summary is searched for facts as it came, before a repair and after it, and its sentences are the same each time.
Threads that measure at the same time only clear each other's caches too early.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

_T = TypeVar("_T")
_CACHE_SIZE = 512
_caches: list[Any] = []


def cached_by_text(function: Callable[[str], _T]) -> Callable[[str], _T]:
    """The same function, with its newest few hundred results cached until `clear_caches`."""
    cached = lru_cache(maxsize=_CACHE_SIZE)(function)
    _caches.append(cached)
    return cached


def clear_caches() -> None:
    """Drop all cached results."""
    for cached in _caches:
        cached.cache_clear()
