"""Secrets out of anything that leaves the process.

Owns: the redactor, which joins what is known by value, by vendor, by frame and by name with the patterns of the user.
Must never: change its input, do I/O, let a pattern run over more than a slice, or hand back what it failed on.

Rules:
- Text is redacted by what it holds: values the process itself holds, known token formats, private keys, passwords in
  addresses, credentials in headers and commands, and what is assigned to a telling name. The name stays, the value
  goes: `api_key=<REDACTED>`.
- A value in a mapping is also redacted by its key. Counts such as `max_tokens` are no secrets, nor are references,
  placeholders and type names, nor the ids of calls and messages that providers hand out.
- Redacting twice is redacting once. What holds no secret is returned as the very object that came in.
- A text that is valid JSON stays so.
- Literals decide first: a pattern runs only on text that holds a literal without which it cannot match.
- Whatever fails inside, the value is withheld whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from .mark import REDACTED
from .remembered import Remembered

if TYPE_CHECKING:
    from .environment_secrets import Held
    from .guard import Patterns
    from .walk import Walk

__all__ = ["REDACTED", "Redactor", "held_secrets", "redact"]


class _Machinery(NamedTuple):
    walk: type[Walk]
    in_slices: Callable[[str, Callable[[str], str]], str]
    without_secrets: Callable[[str], str]


@cache
def _machinery() -> _Machinery:
    """The rules are many, and compiling them takes a while: they are imported when something is redacted, so that
    `import compact` stays quick."""
    from .slices import in_slices
    from .texts import without_secrets
    from .walk import Walk

    return _Machinery(Walk, in_slices, without_secrets)


class Redactor:
    """Replaces secrets by `<REDACTED>`.

    `patterns` are regular expressions of yours; all that one matches goes. `secrets` are values that you hold: they go
    wherever they stand, whatever is around them (see `held_secrets`).
    """

    __slots__ = ("_clean", "_held", "_patterns", "enabled")

    def __init__(self, enabled: bool = True, patterns: Iterable[str] = (), secrets: Iterable[str] = ()) -> None:
        self.enabled = enabled
        self._patterns = _checked(tuple(patterns))
        self._held = _sought(tuple(secrets))
        self._clean = Remembered()

    def redact(self, value: Any) -> Any:
        """The value without its secrets; the same object when it holds none. The input is never changed."""
        if not self.enabled:
            return value
        try:
            return _machinery().walk(self._text).clean(value)
        except RecursionError:
            return REDACTED

    def _text(self, text: str) -> str:
        if text in self._clean:
            return text
        parts = _machinery()
        redacted = parts.in_slices(text, self._held.clean) if self._held else text
        redacted = parts.without_secrets(redacted)
        redacted = self._patterns.clean(redacted) if self._patterns else redacted
        if redacted == text:
            self._clean.add(text)
        return redacted


def redact(value: Any) -> Any:
    """Any string or JSON-like value without its secrets, by the built-in rules and by the process's own environment."""
    global _own
    # `os.environ` decodes all it holds whenever it is read, which takes longer than a short text: whether it has
    # changed is seen in what it keeps.
    kept = getattr(os.environ, "_data", os.environ)
    seen, redactor = _own
    if kept != seen:
        seen = dict(kept)
        redactor = Redactor(secrets=held_secrets(os.environ))
        _own = (seen, redactor)
    return redactor.redact(value)


def held_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of an environment that are secrets: those under telling names, and passwords in addresses."""
    from .environment_secrets import held_secrets as find

    return find(environ)


def _checked(patterns: tuple[str, ...]) -> Patterns | None:
    if not patterns:
        return None
    from .guard import Patterns

    return Patterns(patterns)


def _sought(secrets: tuple[str, ...]) -> Held | None:
    if not secrets:
        return None
    from .environment_secrets import Held

    return Held(secrets)


_own: tuple[Any, Redactor] = ({}, Redactor())
"""The environment as it was last seen, and the redactor for it: replaced as one, so that threads need no lock."""
