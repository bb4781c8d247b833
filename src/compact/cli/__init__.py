"""The command line: `compact …`, and `python -m compact …`.

Owns: the way in. Must never: do what the library cannot: every command is a few lines around a public verb.

    _app      the program: options that mean the same everywhere, errors, exit codes
    _screen   how things are shown
    _input    conversations read from a file or a pipe, and written to one
    _count    count
    _plan     plan
    _fold     run, undo, redo, redact          what changes a list
    _past     sessions, restore, diff, recall, verify, prune     over the archive (_kept: its folds and the laws)
    _lab      replay, tune                     the replay lab (_runs: what both share)
    _setup    config
    _doctor   doctor                           (_installed: packages and variables)
    _serve    view, proxy, mcp
    _commands puts them together
"""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run a command."""
    # Whoever starts a program may have closed its streams; then nothing is read, and what is written goes nowhere.
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 - open until the end
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    try:
        from .commands import app
        from .output import report_warnings
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit('compact: the command line needs the extra "cli". Install "agent-compact[cli]".')
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that knows no "…" shows "?"
    report_warnings()
    app()
