"""The command line: `compact …`, and `python -m compact …`.

Owns: `main`. Must never: import a command's dependencies before `main` is called.

    app             the program: shared options, errors, exit codes
    output          tables, text, JSON and progress on the terminal
    input           reading conversations from files and pipes, and writing lists
    count           count
    plan            plan
    compact_list    run, undo, redo, redact
    archive         sessions, restore, diff, recall, verify, forget, prune     (archive_overview: sessions, invariants)
    replay          replay, tune                                               (replay_options: their options)
    servers         view, proxy, mcp                                           (mcp_server: the server behind mcp)
    doctor          doctor                                                     (installed: packages and variables)
    configuration   config, config init
    commands        imports all of them
"""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    # A program may be started with closed streams: then reading gives nothing, and output is discarded.
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
            stream.reconfigure(errors="replace")  # a terminal without "…" shows "?"
    report_warnings()
    app()
