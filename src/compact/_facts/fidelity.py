"""The entry of this package: how much of the facts a summary keeps, and a summary with lost facts restored.

Owns: the two calls of this package. They import the rest of it, and compile its expressions, when first called.
Must never: keep a text beyond the call.
"""

from __future__ import annotations

from .._summary.request import Ask
from .report import Report


def measure_summary(ask: Ask, body: str) -> Report:
    """How much of what a request is about a text keeps."""
    from .cache import clear_caches
    from .facts import facts_of
    from .measure import measure

    try:
        return measure(facts_of(ask), body)
    finally:
        clear_caches()


def restore_summary(ask: Ask, body: str, limit: int, min_score: float) -> tuple[str, Report]:
    """The summary, with lost facts restored when it scores below `min_score`; and its report."""
    from .cache import clear_caches
    from .facts import facts_of
    from .restore_lost import restore_lost_facts

    try:
        return restore_lost_facts(facts_of(ask), body, ask, limit, min_score)
    finally:
        clear_caches()
