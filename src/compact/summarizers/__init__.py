"""Summarizers: callables that answer an `Ask` with a text.

Owns: choosing one by `summary.provider`.
Must never: call a model while choosing, or import a summarizer or a client before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .summarizer import Summarizer, Written

if TYPE_CHECKING:
    from ..config.sections import SummaryPolicy

__all__ = ["Summarizer", "Written", "offline_summarizer", "summarizer_for"]


def offline_summarizer() -> Summarizer:
    """The built-in summarizer: deterministic, no model, no network."""
    from .extract import extract

    return extract


def summarizer_for(policy: SummaryPolicy) -> Summarizer | None:
    """The summarizer that the `summary` section names; None for the built-in one.

    Raises `MissingExtra` when the provider's client is not installed, `ConfigError` when there is no key for it.
    """
    if policy.provider == "openai":
        from .openai import openai_summarizer

        return openai_summarizer(policy)
    if policy.provider == "anthropic":
        from .anthropic import anthropic_summarizer

        return anthropic_summarizer(policy)
    return None
