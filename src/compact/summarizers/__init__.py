"""Summarizers: anything that answers an `Ask` with a text.

Owns: the choice of one by `summary.provider`; what it takes and gives is `kind`.
Must never: call a model while choosing, or import a summarizer or a client before it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .kind import Summarizer, Written

if TYPE_CHECKING:
    from ..config.sections import SummaryPolicy

__all__ = ["Summarizer", "Written", "offline_summarizer", "summarizer_for"]


def offline_summarizer() -> Summarizer:
    """The built-in summarizer: deterministic, no model, no network."""
    from .extract import extract

    return extract


def summarizer_for(policy: SummaryPolicy) -> Summarizer | None:
    """The summarizer that the `summary` section names; None when the built-in one is to write.

    Raises `MissingExtra` when the provider's client is not installed, `ConfigError` when there is no key for it.
    """
    if policy.provider == "openai":
        from .openai import openai_summarizer

        return openai_summarizer(policy)
    if policy.provider == "anthropic":
        from .anthropic import anthropic_summarizer

        return anthropic_summarizer(policy)
    return None
