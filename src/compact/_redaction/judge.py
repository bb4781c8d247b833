"""Whether a value that belongs to a name is a secret.

Owns: the judgement where name and value are known for sure: keys of mappings, quoted values, columns of a table.
Must never: look at what stands around them.
"""

from __future__ import annotations

import re
from base64 import b64decode

from .assigned_values import cookie_is_secret, harmless, is_count, looks_random, prose
from .links import SCHEME
from .names import Telling, is_cookie

__all__ = ["is_secret", "scheme_end"]

_BASE64 = re.compile(r"[A-Za-z0-9+/]{8,256}={0,2}")
_FINGERPRINT = re.compile(r"[0-9A-F]{40}")
"""Of a public key, as PGP writes it."""
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_secret(name: str, value: str, strength: Telling) -> bool:
    """Whether a text that belongs to a name, for sure and as a whole, is a secret."""
    if is_cookie(name):
        return cookie_is_secret(value)
    rest = value[scheme_end(value) :]
    if strength is Telling.LONE and rest.strip().isalpha() and not looks_random(rest.strip()):
        return False
    if strength <= Telling.WEAK and not _is_basic(rest) and not _is_drawn(name, rest):
        return False
    # Last what takes longest.
    return not (is_count(name, rest) or (prose(rest) and not (name[:1] == "-" and " " not in rest)) or harmless(rest))


def _is_drawn(name: str, value: str) -> bool:
    """Whether a value looks drawn by lot, and is no id or fingerprint."""
    if name.lower().endswith(("gpg_key", "pgp_key")) and _FINGERPRINT.fullmatch(value):
        return False
    return looks_random(value, 16) and any(map(str.isdigit, value)) and not _UUID.fullmatch(value)


def _is_basic(value: str) -> bool:
    """Whether a value is `user:password` in base64, as in `"auth": "…"` of a container registry."""
    if len(value) < 8 or not _BASE64.fullmatch(value):
        return False
    try:
        plain = b64decode(value + "=" * (-len(value) % 4), validate=True).decode("ascii")
    except ValueError:
        return False
    return ":" in plain and plain.isprintable()


def scheme_end(value: str) -> int:
    """Where the credentials start behind a scheme such as `Bearer`."""
    scheme = SCHEME.match(value) if " " in value or "\t" in value else None
    return scheme.end() if scheme else 0
