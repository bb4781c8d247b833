"""Secrets that the process itself holds.

Owns: which values of an environment are secrets, and finding given values in a text in the forms they travel in.
Must never: read the environment by itself, or put a value into an error.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus

from ..errors import ConfigError
from .assigned_values import harmless, looks_random
from .judge import is_secret
from .mark import REDACTED
from .names import telling

__all__ = ["Held", "held_secrets"]

_SHORTEST_HELD = 8
_SHORTEST_GIVEN = 4
_PASSWORD = re.compile(r"://[^\s/?#@:]{0,256}:([^\s/]{1,1024})@")


def held_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of an environment that are secrets: those under telling names, and passwords in addresses."""
    found: dict[str, None] = {}
    for name, value in environ.items():
        strength = telling(name)
        if strength and len(value) >= _SHORTEST_HELD and is_secret(name, value, strength) and _no_common_word(value):
            found[value] = None
        if "://" in value:
            words = (word for word in _PASSWORD.findall(value) if len(word) >= _SHORTEST_HELD and not harmless(word))
            found.update((word, None) for word in words if _no_common_word(word))
    return tuple(found)


def _no_common_word(value: str) -> bool:
    """A single word or a plain number stands in too many texts to be hidden everywhere."""
    return not value.isdigit() and (looks_random(value) or not value.isalpha())


class Held:
    """Given secrets, found wherever they stand: plain, escaped for JSON, quoted for an address, or in base64."""

    __slots__ = ("_pattern",)

    def __init__(self, secrets: Iterable[str]) -> None:
        forms: set[str] = set()
        for i, secret in enumerate(secrets):
            if len(secret) < _SHORTEST_GIVEN:
                raise ConfigError(
                    f"redaction.secrets[{i}]: {len(secret)} characters given; at least {_SHORTEST_GIVEN} are needed, "
                    "because a shorter text stands in too many others. Leave it out, or hide it by a pattern."
                )
            forms |= _forms(secret)
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def __bool__(self) -> bool:
        return self._pattern is not None

    def clean(self, text: str) -> str:
        """The text without the secrets."""
        if self._pattern is None:
            return text
        # A secret that is part of the mark must not eat it.
        return REDACTED.join([self._pattern.sub(REDACTED, part) for part in text.split(REDACTED)])


def _forms(secret: str) -> set[str]:
    raw = secret.encode("utf-8", "surrogatepass")
    coded = {base64.b64encode(raw).decode().rstrip("="), base64.urlsafe_b64encode(raw).decode().rstrip("=")}
    escaped = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    escaped |= {json.dumps(form)[1:-1] for form in escaped}
    return {secret, *escaped, quote(raw, safe=""), quote(raw), quote_plus(raw), *coded}
