"""Secrets of the environment, and other secrets whose value is known.

Owns: which values of an environment are secrets, and finding known values in a text in each of their encodings.
Must never: read the environment itself, or put a value into an error.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus

from ..errors import ConfigError
from .assigned_values import is_harmless, is_secret, looks_random
from .key_names import name_strength
from .spans import REDACTED, Slices

_SHORTEST_IN_ENVIRONMENT = 8
_SHORTEST_GIVEN = 4
_URL_PASSWORD = re.compile(r"://[^\s/?#@:]{0,256}:([^\s/]{1,1024})@")


def find_environment_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of an environment that are secrets: those under names such as `API_KEY`, and passwords in URLs."""
    found: dict[str, None] = {}
    for name, value in environ.items():
        strength = name_strength(name)
        if strength and _is_specific(value) and is_secret(name, value, strength):
            found[value] = None
        if "://" in value:
            passwords = _URL_PASSWORD.findall(value)
            found.update((word, None) for word in passwords if _is_specific(word) and not is_harmless(word))
    return tuple(found)


def _is_specific(value: str) -> bool:
    """Whether a value can be replaced everywhere: a short text, a word or a plain number occurs in too many texts."""
    if len(value) < _SHORTEST_IN_ENVIRONMENT or value.isdigit():
        return False
    return looks_random(value) or not value.isalpha()


class KnownSecrets:
    """Secrets whose value is known: replaced plain, escaped for JSON, quoted for a URL, or in base64."""

    __slots__ = ("_pattern",)

    def __init__(self, secrets: Iterable[str]) -> None:
        forms: set[str] = set()
        for i, secret in enumerate(secrets):
            if len(secret) < _SHORTEST_GIVEN:
                raise ConfigError(
                    f"redaction.secrets[{i}]: {len(secret)} characters given; at least {_SHORTEST_GIVEN} are needed, "
                    "because a shorter text is part of too many others. Leave it out, or use a pattern."
                )
            forms |= _encodings(secret)
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def redact(self, text: str) -> str:
        """The text without the secrets."""
        slices = Slices(text)
        for part in slices:
            # A secret that is part of the mark must not replace it.
            slices.add(REDACTED.join([self._pattern.sub(REDACTED, piece) for piece in part.split(REDACTED)]))
        return slices.join()


def _encodings(secret: str) -> set[str]:
    raw = secret.encode("utf-8", "surrogatepass")
    coded = {base64.b64encode(raw).decode().rstrip("="), base64.urlsafe_b64encode(raw).decode().rstrip("=")}
    escaped = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    escaped |= {json.dumps(form)[1:-1] for form in escaped}
    return {secret, *escaped, quote(raw, safe=""), quote(raw), quote_plus(raw), *coded}
