"""Redaction: secrets are replaced in everything that leaves the process.

Owns: `Redactor` and `redact`, the interface of this package.
Must never: change its input, do I/O, or return a value that it failed on.

Rules:
- Text is redacted by what it holds: secrets of the environment, known token formats, private keys, passwords in URLs,
  credentials in headers and commands, and values assigned to a name such as `api_key`. The name stays, the value is
  replaced: `api_key=<REDACTED>`.
- A value in a mapping is also redacted by its key. Counts such as `max_tokens`, references, placeholders, type names,
  and the ids that providers give to calls and messages are not secrets.
- Redacting twice gives the same result as redacting once. A value without a secret is returned as the same object.
- A text that is valid JSON stays valid JSON.
- A pattern runs only on text that holds a literal without which it cannot match.
- If redaction fails, the whole value is withheld.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .spans import REDACTED

if TYPE_CHECKING:
    from .environment_secrets import KnownSecrets
    from .user_patterns import UserPatterns
    from .walk import ValueRedactor

__all__ = ["REDACTED", "Redactor", "held_secrets", "redact"]


class Redactor:
    """Replaces secrets by `<REDACTED>`.

    `patterns` are your regular expressions; everything that one matches is replaced. `secrets` are values that you
    know: they are replaced wherever they occur (see `held_secrets`).
    """

    # Compiling the rules takes a while: each module is imported when it is needed, so that `import compact` stays fast.
    __slots__ = ("_known_secrets", "_patterns", "_values", "enabled")

    def __init__(self, enabled: bool = True, patterns: Iterable[str] = (), secrets: Iterable[str] = ()) -> None:
        self.enabled = enabled
        self._patterns: UserPatterns | None = None
        self._known_secrets: KnownSecrets | None = None
        self._values: ValueRedactor | None = None
        if patterns := tuple(patterns):
            from .user_patterns import UserPatterns

            self._patterns = UserPatterns(patterns)
        if secrets := tuple(secrets):
            from .environment_secrets import KnownSecrets

            self._known_secrets = KnownSecrets(secrets)

    def redact(self, value: Any) -> Any:
        """The value without its secrets; the same object when it holds none. The input is never changed."""
        if not self.enabled:
            return value
        if self._values is None:
            from .texts import TextRedactor
            from .walk import ValueRedactor

            self._values = ValueRedactor(TextRedactor(self._known_secrets, self._patterns))
        return self._values.redact(value)


def redact(value: Any) -> Any:
    """Any string or JSON-like value without its secrets, by the built-in rules and by the process's own environment."""
    global _of_environment
    # Reading `os.environ` decodes all of it, which takes longer than redacting a short text. Comparing what it stores
    # shows whether it has changed.
    stored = getattr(os.environ, "_data", os.environ)
    seen, redactor = _of_environment
    if stored != seen:
        seen = dict(stored)
        redactor = Redactor(secrets=held_secrets(os.environ))
        _of_environment = (seen, redactor)
    return redactor.redact(value)


def held_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of an environment that are secrets: those under names such as `API_KEY`, and passwords in URLs."""
    from .environment_secrets import find_environment_secrets

    return find_environment_secrets(environ)


_of_environment: tuple[Any, Redactor] = ({}, Redactor())
"""The environment as last seen, and its redactor: replaced together, so that threads need no lock."""
