"""Regular expressions of the user: which are refused, and how the others run under a time limit.

Owns: `UserPatterns`; the check for patterns that can run for ever, made on the parse tree of Python's `re`.
Must never: run a pattern that was not checked, or let a text through that a pattern had no time to read.

A pattern can run for ever when two parts of it can match the same text in many ways: a repeat inside a repeat
(`(a+)+`), repeats side by side (`.*.*x`), alternatives inside a repeat that start alike (`(a|ab)*`). Such patterns are
refused; sets of characters are compared by a sample. The others take at most quadratic time, so they run over small
slices, and the clock is read between two slices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from time import perf_counter
from typing import Any

from ..errors import ConfigError
from .spans import REDACTED, Slices

_SLICE = 2048
_SECONDS, _SECONDS_PER_CHARACTER = 0.25, 1e-6
"""How long all patterns together may take for a text."""
_MAX_REPEAT = 8
"""A repeat of more than this, inside or beside another, may make matching endless."""
_SAMPLE = frozenset(range(256)) | {0x3B1, 0x4E2D, 0x1F600}
_NEST = "a repeat stands inside another, and both can match the same text"
_BESIDE = "two repeats stand side by side and can match the same text"
_EMPTY = "what is repeated can be empty"
_ALIKE = "alternatives inside a repeat can start with the same character"


class UserPatterns:
    """The patterns of the user, compiled; at least one."""

    __slots__ = ("_patterns",)

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(_compile(i, pattern) for i, pattern in enumerate(patterns))

    def redact(self, text: str) -> str:
        """The text without what the patterns match; a slice that they had no time for is withheld."""
        deadline = perf_counter() + _SECONDS + len(text) * _SECONDS_PER_CHARACTER
        slices = Slices(text, _SLICE)
        for part in slices:
            slices.add(self._redact_slice(part, deadline))
        return slices.join()

    def _redact_slice(self, part: str, deadline: float) -> str:
        for pattern in self._patterns:
            if perf_counter() > deadline:
                return REDACTED
            # The mark is not part of the text: `[A-Z]+` must not match it again.
            part = REDACTED.join([pattern.sub(REDACTED, piece) for piece in part.split(REDACTED)])
        return part


def _compile(index: int, pattern: str) -> re.Pattern[str]:
    given = f"redaction.patterns[{index}]: {pattern!r} given; it "
    try:
        compiled = re.compile(pattern)
        reason = _find_danger(pattern)
    except (re.error, TypeError, RecursionError, OverflowError) as error:
        raise ConfigError(f"{given}is not a valid regular expression: {error}") from error
    if compiled.search(""):
        raise ConfigError(
            f"{given}matches the empty text, so it would match everywhere. Make it match at least one character."
        )
    if reason:
        raise ConfigError(
            f"{given}could run for ever on some texts: {reason}. Give the repeats an upper limit of {_MAX_REPEAT} or "
            "less, put a character between them that neither can match, or make them possessive (`a++`)."
        )
    return compiled


def _find_danger(pattern: str) -> str:
    """Why a pattern could run for ever; empty when it cannot."""
    parser = getattr(re, "_parser", None)
    if parser is None:  # an interpreter without this parser: the time limit is the only guard
        return ""
    return _danger_in_sequence(parser.parse(pattern), inside=False)


def _danger_in_sequence(items: Any, *, inside: bool) -> str:
    """The danger in a sequence of parts; `inside` means that it is repeated."""
    parts = list(items)
    for i, (op, argument) in enumerate(parts):
        name = str(op)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            reason = _danger_in_repeat(parts, i, inside=inside)
        elif name == "BRANCH":
            reason = _danger_in_branch(argument[1], inside=inside)
        else:
            bodies = [part for part in _bodies(name, argument) if part is not None]
            reason = next((found for body in bodies if (found := _danger_in_sequence(body, inside=inside))), "")
        if reason:
            return reason
    return ""


def _danger_in_repeat(parts: list[Any], i: int, *, inside: bool) -> str:
    low, high, body = parts[i][1]
    many = high > _MAX_REPEAT
    reason = _danger_in_sequence(body, inside=inside or many)
    if reason:
        return reason
    letters = _letters(body)
    if many and all(_is_optional(*part) for part in body):
        return _EMPTY
    if many and _has_nested_repeat(body, []):
        return _NEST
    if not many or low == high:
        return ""
    # The parts behind this repeat that can match the same letters, up to one that cannot.
    for j, (op, argument) in enumerate(parts[i + 1 :], i + 1):
        other = _letters([(op, argument)])
        if _is_open_repeat(op, argument) and other & letters:
            return _BESIDE if inside or _has_required(parts[j + 1 :]) or (low == 0 and argument[0] == 0) else ""
        if not _is_optional(op, argument) and not other & letters:
            return ""
    return ""


def _danger_in_branch(branches: Any, *, inside: bool) -> str:
    for branch in branches:
        reason = _danger_in_sequence(branch, inside=inside)
        if reason:
            return reason
    if inside:
        firsts = [_first_letters(branch) for branch in branches]
        empty = sum(all(_is_optional(*part) for part in branch) for branch in branches)
        if empty > 1 or any(a & b for i, a in enumerate(firsts) for b in firsts[i + 1 :]):
            return _ALIKE
    return ""


def _has_nested_repeat(items: Any, guards: list[frozenset[int]]) -> bool:
    """Whether a repeat inside a repeated body has no required part around it that it cannot match itself."""
    parts = list(items)
    for i, (op, argument) in enumerate(parts):
        around = guards + [_letters([part]) for j, part in enumerate(parts) if j != i and not _is_optional(*part)]
        if _is_open_repeat(op, argument) and all(_letters(argument[2]) & guard for guard in around):
            return True
        if any(_has_nested_repeat(body, around) for body in _bodies(str(op), argument) if body is not None):
            return True
    return False


def _is_open_repeat(op: Any, argument: Any) -> bool:
    return str(op) in ("MAX_REPEAT", "MIN_REPEAT") and argument[1] > _MAX_REPEAT and argument[0] != argument[1]


def _has_required(parts: list[Any]) -> bool:
    return any(not _is_optional(op, argument) for op, argument in parts)


def _is_optional(op: Any, argument: Any) -> bool:
    name = str(op)
    if name in ("AT", "ASSERT", "ASSERT_NOT", "GROUPREF"):
        return True
    if "REPEAT" in name:
        return bool(argument[0] == 0)
    if name == "BRANCH":
        return any(all(_is_optional(*part) for part in branch) for branch in argument[1])
    bodies = [body for body in _bodies(name, argument) if body is not None]
    return bool(bodies) and all(all(_is_optional(*part) for part in body) for body in bodies)


def _bodies(name: str, argument: Any) -> list[Any]:
    if name == "SUBPATTERN":
        return [argument[3]]
    if name in ("ASSERT", "ASSERT_NOT"):
        return [argument[1]]
    if name == "GROUPREF_EXISTS":
        return [argument[1], argument[2]]
    if name == "BRANCH":
        return list(argument[1])
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        return [argument[2]]
    return []  # atomic groups and possessive repeats never backtrack


def _first_letters(items: Any) -> frozenset[int]:
    """The characters a sequence can start with."""
    found: frozenset[int] = frozenset()
    for op, argument in items:
        found |= _letters([(op, argument)], only_first=True)
        if not _is_optional(op, argument):
            break
    return found


def _letters(items: Any, *, only_first: bool = False) -> frozenset[int]:
    """The characters a sequence can hold."""
    found: frozenset[int] = frozenset()
    for op, argument in items:
        name = str(op)
        if name == "LITERAL":
            found |= {argument, *map(ord, chr(argument).swapcase()[:1])} & _SAMPLE | (
                {argument} if argument not in _SAMPLE else set()
            )
        elif name == "NOT_LITERAL":
            found |= _SAMPLE - {argument}
        elif name in ("ANY", "GROUPREF", "ANY_ALL"):
            found |= _SAMPLE
        elif name == "IN":
            found |= _letters_of_set(argument)
        elif name in ("AT", "ASSERT", "ASSERT_NOT"):
            continue
        elif name in ("POSSESSIVE_REPEAT", "ATOMIC_GROUP"):
            body = argument[2] if name == "POSSESSIVE_REPEAT" else argument
            found |= _first_letters(body) if only_first else _letters(body)
        else:
            for body in _bodies(name, argument):
                if body is not None:
                    found |= _first_letters(body) if only_first else _letters(body)
    return found


def _letters_of_set(items: Any) -> frozenset[int]:
    found: set[int] = set()
    negated = False
    for op, argument in items:
        name = str(op)
        if name == "NEGATE":
            negated = True
        elif name == "LITERAL":
            found.add(argument)
        elif name == "RANGE":
            found |= {code for code in _SAMPLE if argument[0] <= code <= argument[1]}
        elif name == "CATEGORY":
            found |= {code for code in _SAMPLE if _in_category(str(argument), chr(code))}
    return _SAMPLE - found if negated else frozenset(found)


def _in_category(name: str, letter: str) -> bool:
    kinds = {"DIGIT": letter.isdigit(), "SPACE": letter.isspace(), "WORD": letter.isalnum() or letter == "_"}
    kind = kinds.get(name.rpartition("_")[2], True)
    return not kind if "NOT" in name else kind
