"""Patterns of the user, made safe.

Owns: which regular expressions are refused when they are loaded, and how the others run under a budget.
Must never: let a text through that a pattern had no time to look at.

A pattern can take for ever when two parts of it can match the same text in many ways: a repeat inside a repeat
(`(a+)+`), repeats side by side (`.*.*x`), alternatives inside a repeat that start alike (`(a|ab)*`). Such patterns are
refused. The others take at most the square of what they are given, so they are given small slices, and the clock is
read between two slices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from time import perf_counter

from ..errors import ConfigError
from .mark import REDACTED
from .slices import in_slices
from .user_patterns import MANY, danger

__all__ = ["Patterns"]

_SLICE = 2048
_SECONDS, _SECONDS_PER_CHARACTER = 0.25, 1e-6
"""What all patterns together may take for a text."""


class Patterns:
    """The patterns of the user, compiled."""

    __slots__ = ("_patterns",)

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(_compiled(i, pattern) for i, pattern in enumerate(patterns))

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def clean(self, text: str) -> str:
        """The text without what the patterns match; what they had no time for is withheld."""
        deadline = perf_counter() + _SECONDS + len(text) * _SECONDS_PER_CHARACTER

        def one(part: str) -> str:
            for pattern in self._patterns:
                if perf_counter() > deadline:
                    return REDACTED
                # What is redacted already is no text of the host's: `[A-Z]+` must not match it again.
                part = REDACTED.join([pattern.sub(REDACTED, piece) for piece in part.split(REDACTED)])
            return part

        return in_slices(text, one, _SLICE)


def _compiled(index: int, pattern: str) -> re.Pattern[str]:
    given = f"redaction.patterns[{index}]: {pattern!r} given; it "
    try:
        compiled = re.compile(pattern)
        reason = danger(pattern)
    except (re.error, TypeError, RecursionError, OverflowError) as error:
        raise ConfigError(f"{given}is no valid regular expression: {error}") from error
    if compiled.search(""):
        raise ConfigError(
            f"{given}matches the empty text, so it would match everywhere. Make it match at least one character."
        )
    if reason:
        raise ConfigError(
            f"{given}could run for ever on some texts: {reason}. Give the repeats an upper limit of {MANY} or less, "
            "put a character between them that neither can match, or make them possessive (`a++`)."
        )
    return compiled
