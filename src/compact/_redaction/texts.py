"""Redaction of one text.

Owns: the order in which the finders run, and the memory of texts that hold no secret.
Must never: give a finder more than one slice (private keys excepted), or remember a text that holds a secret.

Names in events, and messages that are archived again with every compaction, are redacted once. Short texts are
remembered themselves, but few, so that ids and hashes, which do not come again, soon give way. Of a long text only a
digest is remembered, so that its memory can be freed; the digest is keyed, so that two texts cannot be made to collide.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from .assignments import redact_assigned
from .framed import redact_framed
from .private_keys import redact_private_keys
from .spans import LARGEST_SLICE, Slices
from .vendor_tokens import redact_values_of_vendors, redact_vendor_tokens

if TYPE_CHECKING:
    from .environment_secrets import KnownSecrets
    from .user_patterns import UserPatterns

_SHORTEST_SECRET = 6
_SHORT = 256
_MOST_SHORT, _MOST_LONG = 500, 2_000


class TextRedactor:
    """Redacts texts by known secrets, by the built-in rules, and by the user's patterns, in this order."""

    __slots__ = ("_clean", "_known_secrets", "_patterns")

    def __init__(self, known_secrets: KnownSecrets | None, patterns: UserPatterns | None) -> None:
        self._known_secrets = known_secrets
        self._patterns = patterns
        self._clean = CleanTexts()

    def redact(self, text: str) -> str:
        """The text without its secrets; the same object when it holds none."""
        if text in self._clean:
            return text
        redacted = self._known_secrets.redact(text) if self._known_secrets else text
        redacted = _redact_by_rules(redacted)
        redacted = self._patterns.redact(redacted) if self._patterns else redacted
        if redacted == text:
            self._clean.add(text)
            return text
        return redacted


def _redact_by_rules(text: str) -> str:
    if len(text) < _SHORTEST_SECRET:
        return text
    # Private keys stretch over many lines, so they are replaced before the text is cut.
    text = redact_private_keys(text)
    if len(text) <= LARGEST_SLICE:
        return _redact_slice(text)
    slices = Slices(text)
    for part in slices:
        slices.add(_redact_slice(part))
    return slices.join()


def _redact_slice(text: str) -> str:
    return redact_assigned(redact_values_of_vendors(redact_framed(redact_vendor_tokens(text))))


class CleanTexts:
    """The newest texts without a secret, short and long ones apart. Safe to share between threads."""

    __slots__ = ("_key", "_long", "_short")

    def __init__(self) -> None:
        self._key = os.urandom(16)
        self._short: dict[str, None] = {}
        self._long: dict[int, None] = {}

    def __contains__(self, text: str) -> bool:
        if len(text) < _SHORT:
            return text in self._short
        return len(text) <= LARGEST_SLICE and self._digest(text) in self._long

    def add(self, text: str) -> None:
        """Remember a text."""
        if len(text) < _SHORT:
            _add_newest(self._short, text, _MOST_SHORT)
        elif len(text) <= LARGEST_SLICE:
            _add_newest(self._long, self._digest(text), _MOST_LONG)

    def _digest(self, text: str) -> int:
        whole = text.encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(whole, digest_size=8, key=self._key).digest())


def _add_newest(newest: dict[Any, None], key: object, most: int) -> None:
    newest[key] = None
    with suppress(KeyError, RuntimeError, StopIteration):  # another thread may remove the oldest at the same time
        while len(newest) > most:
            del newest[next(iter(newest))]
