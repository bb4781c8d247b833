"""Regular expressions that could run for ever.

Owns: the judgement, read off the parse tree that Python's own `re` makes of a pattern.
Must never: run the pattern.

Three things are looked for, all of them ways to match the same text in many ways: a repeat inside a repeat, repeats
side by side, and alternatives inside a repeat that start alike. Sets of characters are compared by a sample.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["MANY", "danger"]

MANY = 8
"""A repeat of more than this may be the cause of endless matching inside or beside another."""

_SAMPLE = frozenset(range(256)) | {0x3B1, 0x4E2D, 0x1F600}
_NEST = "a repeat stands inside another, and both can match the same text"
_BESIDE = "two repeats stand side by side and can match the same text"
_EMPTY = "what is repeated can be empty"
_ALIKE = "alternatives inside a repeat can start with the same character"


def danger(pattern: str) -> str:
    """Why a pattern could run for ever, or an empty text."""
    parser = getattr(re, "_parser", None)
    if parser is None:  # an interpreter that hides its parser: the budget is the only guard
        return ""
    return _sequence(parser.parse(pattern), inside=False)


def _sequence(items: Any, *, inside: bool) -> str:
    """Look through a sequence of parts; `inside` says that it is repeated."""
    parts = list(items)
    for i, (op, argument) in enumerate(parts):
        name = str(op)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            reason = _repeat(parts, i, inside=inside)
        elif name == "BRANCH":
            reason = _branch(argument[1], inside=inside)
        else:
            bodies = [part for part in _bodies(name, argument) if part is not None]
            reason = next((found for body in bodies if (found := _sequence(body, inside=inside))), "")
        if reason:
            return reason
    return ""


def _repeat(parts: list[Any], i: int, *, inside: bool) -> str:
    low, high, body = parts[i][1]
    many = high > MANY
    reason = _sequence(body, inside=inside or many)
    if reason:
        return reason
    letters = _letters(body)
    if many and all(_optional(*part) for part in body):
        return _EMPTY
    if many and _nests(body, []):
        return _NEST
    if not many or low == high:
        return ""
    # Everything behind this repeat that can still match its own letters, up to something that cannot.
    for j, (op, argument) in enumerate(parts[i + 1 :], i + 1):
        other = _letters([(op, argument)])
        if _varies(op, argument) and other & letters:
            return _BESIDE if inside or _must_follow(parts[j + 1 :]) or (low == 0 and argument[0] == 0) else ""
        if not _optional(op, argument) and not other & letters:
            return ""
    return ""


def _branch(branches: Any, *, inside: bool) -> str:
    for branch in branches:
        reason = _sequence(branch, inside=inside)
        if reason:
            return reason
    if inside:
        firsts = [_first(branch) for branch in branches]
        empty = sum(all(_optional(*part) for part in branch) for branch in branches)
        if empty > 1 or any(a & b for i, a in enumerate(firsts) for b in firsts[i + 1 :]):
            return _ALIKE
    return ""


def _nests(items: Any, guards: list[frozenset[int]]) -> bool:
    """Whether a repeat inside a repeated body has nothing around it that must come and that it cannot match itself."""
    parts = list(items)
    for i, (op, argument) in enumerate(parts):
        around = guards + [_letters([part]) for j, part in enumerate(parts) if j != i and not _optional(*part)]
        if _varies(op, argument) and all(_letters(argument[2]) & guard for guard in around):
            return True
        if any(_nests(body, around) for body in _bodies(str(op), argument) if body is not None):
            return True
    return False


def _varies(op: Any, argument: Any) -> bool:
    return str(op) in ("MAX_REPEAT", "MIN_REPEAT") and argument[1] > MANY and argument[0] != argument[1]


def _must_follow(parts: list[Any]) -> bool:
    return any(not _optional(op, argument) for op, argument in parts)


def _optional(op: Any, argument: Any) -> bool:
    name = str(op)
    if name in ("AT", "ASSERT", "ASSERT_NOT", "GROUPREF"):
        return True
    if "REPEAT" in name:
        return bool(argument[0] == 0)
    if name == "BRANCH":
        return any(all(_optional(*part) for part in branch) for branch in argument[1])
    bodies = [body for body in _bodies(name, argument) if body is not None]
    return bool(bodies) and all(all(_optional(*part) for part in body) for body in bodies)


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
    return []  # atomic groups and possessive repeats never go back


def _first(items: Any) -> frozenset[int]:
    """The characters a sequence can start with."""
    found: frozenset[int] = frozenset()
    for op, argument in items:
        found |= _letters([(op, argument)], only_first=True)
        if not _optional(op, argument):
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
            found |= _set(argument)
        elif name in ("AT", "ASSERT", "ASSERT_NOT"):
            continue
        elif name in ("POSSESSIVE_REPEAT", "ATOMIC_GROUP"):
            body = argument[2] if name == "POSSESSIVE_REPEAT" else argument
            found |= _first(body) if only_first else _letters(body)
        else:
            for body in _bodies(name, argument):
                if body is not None:
                    found |= _first(body) if only_first else _letters(body)
    return found


def _set(items: Any) -> frozenset[int]:
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
