"""Access checks that the viewer and the proxy share.

Owns: which addresses are loopback, which requests are foreign, the bearer token, and comparing secrets.
Must never: look at a path or a body, or put a token into a message.

- A request must name an allowed host: another name that resolves to loopback is a DNS rebinding attack.
- A page of another origin may link here and nothing more: no request with its `Origin`, no image, no script.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping

from ..errors import CompactError

_MIN_TOKEN_LENGTH = 12
"""Characters; a shorter token can be guessed."""
_LOOPBACK = frozenset({b"127.0.0.1", b"localhost", b"::1"})
_OTHER_SITES = (b"cross-site", b"same-site")
_WRONG_HOST = "The request names a host that is not served here. Use the address that was printed at the start."
_WRONG_ORIGIN = "The request comes from a page of another address, which is not allowed."


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_address(host: str, token: str | None, *, variable: str, danger: str) -> None:
    """Refuse a short token, and an address that other machines can reach without one; `danger` is the reason."""
    if token is not None and len(token) < _MIN_TOKEN_LENGTH:
        raise CompactError(
            f"The token has {len(token)} characters and can be guessed; give at least {_MIN_TOKEN_LENGTH}, such as the "
            'output of python -c "import secrets; print(secrets.token_urlsafe())".'
        )
    if token is None and not is_loopback(host):
        raise CompactError(
            f"{host} can be reached from other machines, and {danger}: set a token with {variable}, or stay on "
            "127.0.0.1."
        )


def allowed_hosts(host: str) -> frozenset[bytes] | None:
    """Host names that a request to a server at this address may use; None allows any, and then the token decides."""
    return _LOOPBACK | {host.lower().encode()} if is_loopback(host) else None


def foreign_request_reason(headers: Mapping[bytes, bytes], names: frozenset[bytes] | None) -> str | None:
    """Why a request is refused as foreign, as a sentence; None when it is not. Header names are lower case."""
    host = headers.get(b"host", b"").lower()
    name = host if host.endswith(b"]") else host.rpartition(b":")[0] or host
    if not host or (names is not None and name.strip(b"[]") not in names):
        return _WRONG_HOST
    origin = headers.get(b"origin")
    if origin is not None and origin.lower() not in (b"http://" + host, b"https://" + host):
        return _WRONG_ORIGIN
    if headers.get(b"sec-fetch-site") in _OTHER_SITES and headers.get(b"sec-fetch-mode") != b"navigate":
        return _WRONG_ORIGIN
    return None


def bearer_token(headers: Mapping[bytes, bytes]) -> bytes:
    """The token of an `Authorization: Bearer` header; empty without one."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def secrets_equal(given: str, expected: str) -> bool:
    """Whether two secrets are equal, compared in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode("utf-8", "replace"))
