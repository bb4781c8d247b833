"""Every error `compact` raises, in one tree.

Owns: the exception classes, and nothing else. A message says what happened, the numbers behind it, and what to do.
Must never: carry message content (errors are logged), or import another module of `compact`.

    CompactError
    ├── ConfigError            the configuration is wrong: correct the field it names       (also a ValueError)
    ├── InvalidMessage         a message cannot be read: correct the message it names       (also a ValueError)
    ├── InsufficientBudget     what must stay is larger than the budget: pin less, or raise the window
    ├── LawViolation           a compaction would have broken a law: a bug here, in a layout or in `before_fold`
    ├── ArchiveError           the store did not acknowledge: nothing was dropped; repair the store
    ├── LogError               a recorded conversation cannot be read: the message names the file and the line
    ├── ManagerClosed          the manager was used after `close()`
    ├── MissingExtra           an optional part is not installed: the message names the extra (also an ImportError)
    └── SummaryError           a summarizer failed; `policy.on_failure` decides what happens next
        ├── SummaryTimeout     it took too long                                             (retryable)
        ├── ModelUnavailable   it could not be reached, or failed          (retryable, unless `retryable=False`)
        ├── ContentFilter      it refused
        ├── TokenLimitExceeded its own window was too small for the request
        └── BadSummary         it answered, and the answer cannot be used
"""

from __future__ import annotations

__all__ = [
    "ArchiveError",
    "BadSummary",
    "CompactError",
    "ConfigError",
    "ContentFilter",
    "InsufficientBudget",
    "InvalidMessage",
    "LawViolation",
    "LogError",
    "ManagerClosed",
    "MissingExtra",
    "ModelUnavailable",
    "SummaryError",
    "SummaryTimeout",
    "TokenLimitExceeded",
]


class CompactError(Exception):
    """Base of every error of this library."""


class ConfigError(CompactError, ValueError):
    """The configuration is wrong. The message names each field by its path, the value, and what is allowed."""


class InvalidMessage(CompactError, ValueError):
    """A message of your application cannot be read. The error names its index and the reason."""


class InsufficientBudget(CompactError):
    """What must stay does not fit. `needed` and `budget` are in tokens."""

    def __init__(self, message: str, *, needed: int, budget: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.budget = budget


class LawViolation(CompactError):
    """A compaction would have broken a law and was not returned. `law` is its id, as in `compact.LAWS`."""

    def __init__(self, law: str, message: str) -> None:
        super().__init__(f"{law}: {message}")
        self.law = law


class ArchiveError(CompactError):
    """The store did not acknowledge a write or could not read. Nothing was dropped."""


class LogError(CompactError):
    """A recorded conversation cannot be read. The message names the file, the place, and what can be read."""


class ManagerClosed(CompactError):
    """The manager was closed; make a new one."""


class MissingExtra(CompactError, ImportError):
    """An optional part is not installed."""


class SummaryError(CompactError):
    """A summarizer failed. Raise one of the subclasses from your own; anything else counts as ModelUnavailable."""

    retryable: bool = False
    """Whether the same request may succeed a little later."""
    retry_after: float | None = None
    """Seconds the server asks to wait before the next try, when it does."""
    tokens: tuple[int, int] | None = None
    """Input and output tokens the provider charged for the failed call, where that is known."""


class SummaryTimeout(SummaryError):
    """The summarizer took too long."""

    retryable = True


class ModelUnavailable(SummaryError):
    """The summarizer could not be reached, or failed; `retryable=False` when trying again cannot help."""

    def __init__(self, message: str = "", *, retryable: bool = True, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after


class ContentFilter(SummaryError):
    """The model refused to summarize."""


class TokenLimitExceeded(SummaryError):
    """The request did not fit the summarizer's own window."""


class BadSummary(SummaryError):
    """The summarizer answered, and the answer cannot replace messages."""
