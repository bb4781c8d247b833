"""Summarizers: anything that answers an `Ask` with a text.

Owns: the `Summarizer` type, `Written`, and the choice of one by `summary.provider`.
Must never: call a model while choosing, or import a summarizer or a client before it is asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from .._asks import Ask
    from .._policy import SummaryPolicy

__all__ = ["Summarizer", "Written", "offline_summarizer", "summarizer_for"]

Summarizer = Callable[["Ask"], "str | Awaitable[str]"]
"""Takes an `Ask`, gives the summary's body, at once or awaited; a `Written` also tells what the call used.

It fails by raising a `SummaryError`. A sync one runs in a thread of its own, with the caller's context variables."""


class Written(str):
    """A summary with what the provider says of the call: tokens in and out, and the model. None where it is silent."""

    input_tokens: int | None
    output_tokens: int | None
    model: str | None

    def __new__(
        cls,
        text: str,
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        model: str | None = None,
    ) -> Self:
        """A text like any other, with the bill attached."""
        written = super().__new__(cls, text)
        written.input_tokens, written.output_tokens, written.model = input_tokens, output_tokens, model
        return written

    @property
    def tokens(self) -> tuple[int, int] | None:
        """Input and output tokens, when the provider told both."""
        known = self.input_tokens is not None and self.output_tokens is not None
        return (self.input_tokens or 0, self.output_tokens or 0) if known else None


def offline_summarizer() -> Summarizer:
    """The built-in summarizer: deterministic, no model, no network."""
    from .extract import extract

    return extract


def summarizer_for(policy: SummaryPolicy) -> Summarizer | None:
    """The summarizer that the `summary` section names; None when the built-in one is to write.

    Raises `MissingExtra` when the provider's client is not installed, `ConfigError` when there is no key for it.
    """
    if policy.provider == "openai":
        from ._openai import openai_summarizer

        return openai_summarizer(policy)
    if policy.provider == "anthropic":
        from ._anthropic import anthropic_summarizer

        return anthropic_summarizer(policy)
    return None
