"""What a summarizer is.

Owns: the `Summarizer` type, and `Written`, a summary with its bill. Must never: know one, or import a client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from .._summary.request import Ask

__all__ = ["Summarizer", "Written"]

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
