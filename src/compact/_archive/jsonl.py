"""JSON lines read back from an archive that may have been damaged.

Owns: `read_lines`: which lines of a file are whole, and whether a bad one is a warning or an error.
Must never: read a file, or put the content of a line into a warning or an error.

A crash damages a file at its end: a line cut short, or a run of NUL bytes. What stands before is good, and a warning is
enough. A bad line before a good one was altered later, and is an error. Event files are appended to after a crash, so
they are read with `tolerant`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..errors import ArchiveError


def read_lines(data: bytes, what: str, *, tolerant: bool = False) -> tuple[list[Any], str | None]:
    """The values of all whole lines, and one sentence about what could not be read, if anything.

    `what` names the file in warnings and errors. Bad lines at the end are left out with a warning; before a whole line
    they are an `ArchiveError`. With `tolerant` they are left out wherever they stand. Blank lines do not count.
    """
    values: list[Any] = []
    bad: list[tuple[int, int, str]] = []
    for number, start, end in _lines(data):
        value, problem = _read(data, start, end)
        if problem is None:
            if bad and not tolerant:
                raise _damaged_inside(what, *bad[0], number)
            values.append(value)
        elif problem == _TOO_DEEP and not tolerant:
            raise ArchiveError(
                f"{what} cannot be read: line {number:,} at byte {start:,} {problem}. "
                "Read it from a shallower call, or raise sys.setrecursionlimit()."
            )
        elif problem:
            bad.append((number, start, problem))
    if not bad:
        return values, None
    number, start, problem = bad[0]
    if tolerant:
        return values, (
            f"{what}: {len(bad):,} of {len(values) + len(bad):,} lines cannot be read and were left out; "
            f"the first is line {number:,} at byte {start:,}, which {problem}."
        )
    return values, (
        f"{what} is damaged at its end: line {number:,} at byte {start:,} {problem}. "
        f"Everything before it was read, the last {len(data) - start:,} bytes were not."
    )


_BLANK = ""
_TOO_DEEP = "is nested deeper than this process can read"


def _lines(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each line. (Offsets, because a line may be as large as memory allows one copy of.)"""
    number, start = 1, 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield number, start, end
        number, start = number + 1, end + 1


def _read(data: bytes, start: int, end: int) -> tuple[Any, str | None]:
    """The value of a line and None, or no value and what is wrong with it; a blank line has neither."""
    try:
        text = str(memoryview(data)[start:end], "utf-8")
        if not text or text.isspace():
            return None, _BLANK
        return json.loads(text), None
    except RecursionError:
        return None, _TOO_DEEP
    except ValueError as error:
        nuls = data.count(b"\0", start, end)
        if nuls:
            return None, f"holds {nuls:,} NUL bytes, as a crash leaves them"
        if isinstance(error, UnicodeDecodeError):
            return None, f"is not UTF-8 from its byte {error.start:,} on"
        return None, "is not a whole JSON value"


def _damaged_inside(what: str, number: int, start: int, problem: str, good: int) -> ArchiveError:
    return ArchiveError(
        f"{what} is damaged inside: line {number:,} at byte {start:,} {problem}, and line {good:,} after it is whole. "
        "Nothing of it was used. Restore it from a backup, or remove that line to read the rest."
    )
