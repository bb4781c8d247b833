"""The type of a summarizer, and of what it returns.

Owns: the `Summarizer` type, and `Written`, a summary with the tokens it used.
Must never: import a summarizer or a client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from .._summary.request import Ask

Summarizer = Callable[["Ask"], "str | Awaitable[str]"]
"""Takes an `Ask` and returns the summary's body, or an awaitable of it; a `Written` also says what the call used.

It fails by raising a `SummaryError`. A sync one runs in its own thread, with the caller's context variables."""


class Written(str):
    """A summary with what the provider reports of the call: tokens in and out, and the model; None where unknown."""

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
        """The text, with the tokens of the call attached."""
        written = super().__new__(cls, text)
        written.input_tokens, written.output_tokens, written.model = input_tokens, output_tokens, model
        return written

    @property
    def tokens(self) -> tuple[int, int] | None:
        """Input and output tokens, when the provider reports both."""
        known = self.input_tokens is not None and self.output_tokens is not None
        return (self.input_tokens or 0, self.output_tokens or 0) if known else None
