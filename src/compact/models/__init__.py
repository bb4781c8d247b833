"""Summarizers: anything that answers an `Ask` with a text.

Owns: the `Summarizer` type, and the choice of one by `summary.provider`.
Must never: call a model while choosing, or import a provider's client before it is asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .extract import extract

if TYPE_CHECKING:
    from .._asks import Ask
    from .._policy import SummaryPolicy

__all__ = ["Summarizer", "extract", "summarizer_for"]

Summarizer = Callable[["Ask"], "str | Awaitable[str]"]
"""Takes an `Ask`, gives the summary's body, at once or awaited. It fails by raising a `SummaryError`."""

_BUILT_IN: dict[str, Summarizer] = {"extract": extract}


def summarizer_for(policy: SummaryPolicy) -> Summarizer:
    """The summarizer that the `summary` section names."""
    found = _BUILT_IN.get(policy.provider)
    if found is None:
        known = ", ".join(f"'{name}'" for name in _BUILT_IN)
        raise ConfigError(
            f"summary.provider '{policy.provider}' is not available in this version; pass summarizer=… or use {known}"
        )
    return found
