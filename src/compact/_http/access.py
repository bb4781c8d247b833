"""Who may ask a server of ours: what the viewer and the proxy judge alike.

Owns: which addresses are this machine's alone, what makes a request foreign, and how secrets are compared.
Must never: look at what is asked for, or put a token into a sentence.

- A request must name a host that is ours: a foreign name that leads to loopback is somebody's page (DNS rebinding).
- A page of somebody else's may link here, and nothing more: no request with a foreign `Origin`, no image, no script.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping

from ..errors import CompactError

__all__ = ["check_address", "foreign", "is_loopback", "names_of", "same"]

_SHORTEST = 12
"""Characters of a token that nobody guesses."""
_LOOPBACK = frozenset({b"127.0.0.1", b"localhost", b"::1"})
_ELSEWHERE = (b"cross-site", b"same-site")
_HOST = "The request names a host that is not served here. Use the address that was printed at the start."
_PAGE = "The request comes from a page of another address, and such get nothing here."


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_address(host: str, token: str | None, *, variable: str, danger: str) -> None:
    """Refuse a token that can be guessed, and to be reached by other machines without one; `danger` says why."""
    if token is not None and len(token) < _SHORTEST:
        raise CompactError(
            f"The token has {len(token)} characters and can be guessed; give at least {_SHORTEST}, such as the output "
            'of python -c "import secrets; print(secrets.token_urlsafe())".'
        )
    if token is None and not is_loopback(host):
        raise CompactError(
            f"{host} can be reached from other machines, and {danger}: set a token with {variable}, or stay on "
            "127.0.0.1."
        )


def names_of(host: str) -> frozenset[bytes] | None:
    """Names by which a request may call a server that listens here; None for any: then its token decides."""
    return _LOOPBACK | {host.lower().encode()} if is_loopback(host) else None


def foreign(headers: Mapping[bytes, bytes], names: frozenset[bytes] | None) -> str | None:
    """Why a request comes from somewhere else, in a sentence; None when it does not. Header names are lower case."""
    host = headers.get(b"host", b"").lower()
    name = host if host.endswith(b"]") else host.rpartition(b":")[0] or host
    if not host or (names is not None and name.strip(b"[]") not in names):
        return _HOST
    origin = headers.get(b"origin")
    if origin is not None and origin.lower() not in (b"http://" + host, b"https://" + host):
        return _PAGE
    if headers.get(b"sec-fetch-site") in _ELSEWHERE and headers.get(b"sec-fetch-mode") != b"navigate":
        return _PAGE
    return None


def same(given: str, expected: str) -> bool:
    """Whether two secrets are equal, in a time that does not tell how much of them is."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode("utf-8", "replace"))
