"""Who may ask the viewer, and what a browser may do with what it gets.

Owns: `Guard`, an ASGI middleware in front of everything. Must never: look at what is asked for, or log a token.

- A request must name a host that is ours: a foreign name that leads to loopback is somebody's page (DNS rebinding).
- A page of somebody else's may link here, and nothing more: no request with a foreign `Origin`, no image, no script.
- With a token: as `?token=`, once, which becomes a cookie that lasts as long as the server; or as a bearer.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
from collections.abc import Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from ..errors import CompactError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard", "check_address", "is_loopback"]

_SHORTEST = 12
"""Characters of a token that nobody guesses."""
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_address(host: str, token: str | None) -> None:
    """Refuse what would show a session's messages to whoever finds the port."""
    if token is not None and len(token) < _SHORTEST:
        raise CompactError(
            f"The token has {len(token)} characters and can be guessed; give at least {_SHORTEST}, such as the output "
            'of python -c "import secrets; print(secrets.token_urlsafe())".'
        )
    if token is None and not is_loopback(host):
        raise CompactError(
            f"{host} can be reached from other machines, and the viewer shows whole conversations: set a token with "
            "COMPACT_VIEW_TOKEN, or stay on 127.0.0.1."
        )


class Guard:
    """Lets through what may pass, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, *, host: str, port: int, token: str | None = None) -> None:
        self._app = app
        self._names = _LOOPBACK | {host} if is_loopback(host) else None
        """Names that a request may call us by; None for any: then the token decides."""
        self._token = token
        self._cookie = f"compact_view_{port}"
        self._pass = secrets.token_urlsafe(32)
        """What the cookie holds: not the token, because other ports of this host see it too."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # nothing here speaks anything else

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _added(message.get("headers", ()))
            await send(message)

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if (wrong := self._foreign(headers)) is not None:
            await _answer(with_headers, 403, {"error": wrong})
        elif self._token is None or self._knows(headers):
            await self._app(scope, receive, with_headers)
        elif (given := _token_of(scope)) is not None and _same(given, self._token):
            place = _without_token(scope)
            cookie = f"{self._cookie}={self._pass}; Path=/; HttpOnly; SameSite=Strict"
            await _answer(with_headers, 303, {}, (b"location", place.encode()), (b"set-cookie", cookie.encode()))
        else:
            error = "A token is needed: open the address with ?token=… once, or send it as Authorization: Bearer."
            await _answer(with_headers, 401, {"error": error}, (b"www-authenticate", b"Bearer"))

    def _foreign(self, headers: MutableMapping[str, str]) -> str | None:
        """Why a request comes from somewhere else, in a sentence; None when it does not."""
        host = headers.get("host", "").lower()
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if not host or (self._names is not None and name.strip("[]") not in self._names):
            return "The request names a host that is not served here. Open the address that compact view printed."
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            return "The request comes from a page of another address, and such get nothing here."
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
            return "The request comes from a page of another address, and such get nothing here."
        return None

    def _knows(self, headers: MutableMapping[str, str]) -> bool:
        assert self._token is not None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(given.strip(), self._token):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and _same(cookie.value, self._pass)


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode("utf-8", "replace"))


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _token_of(scope: Scope) -> str | None:
    return next((value for name, value in _query(scope) if name == "token"), None) if scope["method"] == "GET" else None


def _without_token(scope: Scope) -> str:
    left = urlencode([(name, value) for name, value in _query(scope) if name != "token"])
    path = "/" + scope.get("raw_path", b"/").decode("latin-1").split("?")[0].lstrip("/")  # never another host's
    return f"{path}?{left}" if left else path


def _added(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    given = list(headers)
    names = {name.lower() for name, _ in given}
    if b"cache-control" not in names:
        given.append((b"cache-control", b"no-store"))
    return [*given, *((name, value) for name, value in _HEADERS if name not in names)]


async def _answer(send: Send, status: int, value: dict[str, Any], *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps(value).encode() if value else b""
    kind = (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*kind, *headers]})
    await send({"type": "http.response.body", "body": body})
