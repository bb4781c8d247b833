"""Output: tables, text, JSON, progress.

Owns: how results are printed for people, and as JSON for programs. Must never: write colours or progress to anything
but a terminal, interpret markup in a text, or print control characters of a conversation.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._events.serialize import escape_controls

T = TypeVar("T")


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def show(*parts: Any, cut: bool = False) -> None:
    """Print tables and lines on stdout, without interpreting markup. `cut` ends long lines with an ellipsis."""
    screen = _Screen(highlight=False, markup=False, emoji=False)
    for part in parts:
        # Lines are wrapped or cut on a terminal only; a pipe gets them whole.
        whole = isinstance(part, str | Text) and not screen.is_terminal
        screen.print(part, soft_wrap=whole, no_wrap=cut or None, overflow="ellipsis" if cut and not whole else None)


def screen_width() -> int:
    """The width of stdout in columns."""
    return _Screen().width


def report(text: str) -> None:
    """Print one line on stderr."""
    typer.echo(printable(text), err=True)


class _Notes(logging.Handler):
    """Warnings as notes on stderr, each once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._reported = set[str]()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._reported:
            self._reported.add(text)
            report(f"note: {text}")


def report_warnings() -> None:
    """Print warnings of the library from now on. A server may replace the handler."""
    logging.root.addHandler(_Notes())


def show_json(value: Any) -> None:
    """Print a value as JSON on stdout."""
    typer.echo(json_bytes(json.dumps(value, ensure_ascii=False, indent=2, default=str)))


def json_bytes(text: str) -> bytes:
    """JSON in UTF-8; half a surrogate pair, which UTF-8 cannot encode, as a JSON escape."""
    return re.sub(r"[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text).encode()


def table(*columns: str, wide: str = "") -> Table:
    """A table without borders. A name that begins with ">" is right-aligned; `wide` takes the remaining width."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", expand=bool(wide))
    for name in columns:
        right = name.startswith(">")
        made.add_column(
            name.removeprefix(">"),
            justify="right" if right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if name == wide else None,
        )
    return made


def bar(share: float, width: int = 12) -> Text:
    """A share between 0 and 1 as a bar."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return Text("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip(), style="cyan")


def printable(text: str) -> str:
    """Text with control characters escaped, except line breaks and tabs."""
    return escape_controls(text, keep="\n\t")


def plural(number: int, thing: str) -> str:
    """A number with its noun: "1 session", "2,000 sessions"."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def one_line(text: str, length: int = 300) -> str:
    """The beginning of a text, on one line."""
    return printable(" ".join(text[: 4 * length].split())[:length])


def with_progress(items: Iterable[T], what: str) -> Iterator[T]:
    """The items, with a progress bar on stderr when it is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.progress import track

    yield from track(items, description=what, console=Console(stderr=True), transient=True)


def spinner(what: str) -> AbstractContextManager[Any]:
    """A spinner on stderr when it is a terminal."""
    return Console(stderr=True).status(what) if sys.stderr.isatty() else nullcontext()
