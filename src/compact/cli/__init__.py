"""The command line: `compact …`, and `python -m compact …`.

Owns: the way in, and how an error looks on a terminal. Must never: do what the library cannot: every command is a few
lines around a public verb.

Exit codes: 0 done, 1 it could not be done (one sentence on stderr says why), 2 the command was given wrongly.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run a command."""
    try:
        from ._commands import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit('compact: the command line needs the extra "cli". Install "agent-compact[cli]".')
    from ..errors import CompactError

    try:
        app()
    except CompactError as error:
        sys.exit(f"compact: {error}")
