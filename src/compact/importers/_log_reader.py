"""A log as a sequence of JSON values: JSON lines, a JSON list, or one JSON object.

Owns: `LogReader`: detecting which of these a source is, reading it in pieces of bounded size, and the errors for files
that are damaged, empty or not JSON.
Must never: know a product, or put the content of a line into an error.

A crash cuts a file off at its end: what cannot be read there is left out with a note. An unreadable line before a
readable one is damage, and a `LogError` names the line.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO

from ..errors import LogError
from .log_sources import LogSource

MAX_BYTES = 512 << 20
"""The longest line, and the largest document that is not written in lines."""

_HEAD, _HEAD_BYTES = 64, 4 << 20
"""Rows that are read to detect the format, and the bytes after which no more are."""

_DECODER = json.JSONDecoder()

Row = tuple[int, Any]
"""The number of a line, or of an element of a list, from 1, and its value."""


class NotALog(LogError):
    """The file is not a log; in a folder of logs such files are skipped."""


class LogReader:
    """The rows of a source: the lines of JSON lines, the elements of a JSON list, or one JSON object.

    `head` holds the first rows until `rows()` gives all of them, once. `notes` says what was left out at the end; it
    is complete before the last row is given.
    """

    def __init__(self, source: LogSource, limit: int = MAX_BYTES) -> None:
        self.name = source.name
        self.notes: list[str] = []
        self.session = source.session
        """The store and the folder of an archived session, which has no rows."""
        self.unit = "line"
        """What a row is called in notes and errors."""
        self._source = source
        self._limit = limit
        self._stream: BinaryIO | None = None
        self._taken = 0
        self._rows = iter(self._read() if source.session is None else ())
        self.head: list[Row] = []
        try:
            while len(self.head) < _HEAD and self._taken < _HEAD_BYTES and (row := next(self._rows, None)) is not None:
                self.head.append(row)
        except BaseException:
            self.close()
            raise

    def rows(self) -> Iterator[Row]:
        """All rows, once."""
        head, self.head = self.head, []
        return chain(head, self._rows)

    def close(self) -> None:
        """Close the stream; standard input stays open."""
        if self._stream is not None and self.name != "-":
            self._stream.close()

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- internals ---------------------------------------------------------------------------------------------------

    def _read(self) -> Iterator[Row]:
        self._stream = self._source.open()
        lines = self._lines()
        first = next(lines, None)
        if first is None:
            raise NotALog(f"{self.name} is empty; there is no conversation in it")
        number, line = first
        values, problem = _values(line)
        if problem is None:
            second = next(lines, None)
            if second is None and len(values) == 1:
                yield from self._elements(values[0])
            elif second is None:
                yield from ((number, value) for value in values)
            else:
                yield from self._read_lines(chain([first, second], lines))
        elif line.lstrip()[:1] in (b"{", b"["):
            yield from self._read_document(number, line, problem, lines)
        else:
            raise self._not_a_log_error(problem)

    def _elements(self, value: Any) -> Iterator[Row]:
        if isinstance(value, list):
            self.unit = "element"
            yield from enumerate(value, 1)
        else:
            yield 1, value

    def _read_document(self, number: int, line: bytes, problem: str, lines: Iterator[Row]) -> Iterator[Row]:
        """A document over several lines; it must be complete."""
        parts, size, next_is_whole = [line], len(line), False
        for _, part in lines:
            next_is_whole = next_is_whole or (len(parts) == 1 and part[:1] in b"{[" and _values(part)[1] is None)
            parts.append(part)
            size += len(part)
            if next_is_whole:
                raise self._damage_error(number, problem, number + 1)
            if size > self._limit:
                raise LogError(
                    f"{self.name} is one JSON value of more than {self._limit:,} bytes, which would have to be in "
                    "memory at once; write it as JSON lines, one record a line"
                )
        values, problem_of_all = _values(b"".join(parts))
        if problem_of_all is not None:
            raise LogError(
                f"{self.name} begins as JSON and {problem_of_all}, with {size:,} bytes in all; only JSON lines can be "
                "read in part, so fetch it again if it is cut off"
            )
        for value in values:
            yield from self._elements(value)

    def _read_lines(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[Row]:
        """The values of all lines; each is given after the next readable line was found."""
        held: list[Row] = []
        bad: list[tuple[int, str]] = []
        for number, line in lines:
            values, problem = _values(line)
            if problem is not None:
                bad.append((number, problem))
                continue
            if bad:
                raise self._damage_error(*bad[0], number)
            yield from held
            held = [(number, value) for value in values]
        if bad:
            number, problem = bad[0]
            rest = f" and {len(bad) - 1:,} after it" if len(bad) > 1 else ""
            self.notes.append(f"The log is cut off at its end: line {number:,} {problem}; it{rest} was left out.")
        yield from held

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Number and bytes of each line that is not blank."""
        assert self._stream is not None
        number = 0
        while True:
            try:
                line = self._stream.readline(self._limit + 1)
            except EOFError:
                self.notes.append("The compressed file is cut off; the part that is there was read.")
                return
            except (OSError, zlib.error) as error:
                reason = getattr(error, "strerror", None) or "its compression is damaged"
                raise LogError(f"{self.name} cannot be read after line {number:,} ({reason}); fetch it again") from None
            if not line:
                return
            number += 1
            self._taken += len(line)
            if len(line) > self._limit:
                raise LogError(f"{self.name}: line {number:,} is longer than {self._limit:,} bytes; shorten it")
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
                if b"\0" in line[:4096]:
                    raise self._not_a_log_error("contains NUL bytes, so it is not text")
            if not line.isspace() and line:
                yield number, line

    def _damage_error(self, number: int, problem: str, good: int) -> LogError:
        return LogError(
            f"{self.name} is damaged: line {number:,} {problem}, and line {good:,} after it is valid. "
            "Remove that line to read the rest, or fetch the file again."
        )

    def _not_a_log_error(self, problem: str) -> NotALog:
        return NotALog(
            f"{self.name} is neither JSON nor JSON lines: line 1 {problem}. Logs are read as one of these, with or "
            "without gzip; IMPORTERS.md lists them."
        )


def _values(line: bytes) -> tuple[list[Any], str | None]:
    """The values of a line and None, or the problem with it. Some writers omit the line break between two values."""
    values: list[Any] = []
    try:
        text = line.decode("utf-8").strip()
        while text:
            value, end = _DECODER.raw_decode(text)
            values.append(value)
            text = text[end:].lstrip()
        return values, None
    except RecursionError:
        return [], "is nested deeper than this process can read"
    except UnicodeDecodeError as error:
        return [], f"is not UTF-8 from its byte {error.start:,} on"
    except ValueError:
        return [], f"is not a complete JSON value ({len(line):,} bytes)"
