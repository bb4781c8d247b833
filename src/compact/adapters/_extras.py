"""The error of an adapter whose framework is not installed.

Owns: `requires`. Must never: import a framework.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import MissingExtra


@contextmanager
def requires(package: str, extra: str) -> Iterator[None]:
    """Import a framework in this block: an import error then names the extra to install."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(
            f"this adapter needs {package}, and importing it failed ({error}): pip install 'agent-compact[{extra}]'"
        ) from error
