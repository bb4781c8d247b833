"""Summarizers: anything that answers an `Ask` with a text.

Owns: the `Summarizer` type, and the choice of one by `summary.provider`.
Must never: call a model while choosing, or import a summarizer before it is asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    from .._asks import Ask
    from .._policy import SummaryPolicy

__all__ = ["Summarizer", "offline_summarizer", "summarizer_for"]

Summarizer = Callable[["Ask"], "str | Awaitable[str]"]
"""Takes an `Ask`, gives the summary's body, at once or awaited. It fails by raising a `SummaryError`."""


def offline_summarizer() -> Summarizer:
    """The built-in summarizer: deterministic, no model, no network."""
    from .extract import extract

    return extract


def summarizer_for(policy: SummaryPolicy) -> Summarizer | None:
    """The summarizer that the `summary` section names; None when the built-in one is to write."""
    if policy.provider == "extract":
        return None
    raise ConfigError(
        f"summary.provider '{policy.provider}' is not available in this version; pass summarizer=… or use 'extract'"
    )
