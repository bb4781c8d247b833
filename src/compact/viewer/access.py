"""Access to the viewer, and the security headers of its responses.

Owns: `ViewerGuard`, an ASGI middleware in front of the application. Must never: read a body, or log a token.

- A foreign request (`_http.access`) gets status 403.
- The token is given once as `?token=`, which sets a cookie for as long as the server runs; or as a bearer token.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from .._http.access import allowed_hosts, bearer_token, foreign_request_reason, secrets_equal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class ViewerGuard:
    """Lets permitted requests through, and adds the security headers to every response."""

    def __init__(self, app: ASGIApp, *, host: str, port: int, token: str | None = None) -> None:
        self._app = app
        self._names = allowed_hosts(host)
        self._token = token
        self._cookie = f"compact_view_{port}"
        self._cookie_value = secrets.token_urlsafe(32)
        """The value of the cookie: not the token, because servers on other ports of this host get the cookie too."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # only HTTP is served

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _add_headers(message.get("headers", ()))
            await send(message)

        headers = dict(scope["headers"])
        if (wrong := foreign_request_reason(headers, self._names)) is not None:
            await _send_json(with_headers, 403, {"error": wrong})
        elif self._token is None or self._is_authorized(headers):
            await self._app(scope, receive, with_headers)
        elif (given := _query_token(scope)) is not None and secrets_equal(given, self._token):
            place = _without_token(scope)
            cookie = f"{self._cookie}={self._cookie_value}; Path=/; HttpOnly; SameSite=Strict"
            await _send_json(with_headers, 303, {}, (b"location", place.encode()), (b"set-cookie", cookie.encode()))
        else:
            error = "A token is needed: open the address with ?token=… once, or send it as Authorization: Bearer."
            await _send_json(with_headers, 401, {"error": error}, (b"www-authenticate", b"Bearer"))

    def _is_authorized(self, headers: Mapping[bytes, bytes]) -> bool:
        assert self._token is not None
        if secrets_equal(bearer_token(headers).decode("latin-1"), self._token):
            return True
        try:
            cookie = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and secrets_equal(cookie.value, self._cookie_value)


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _query_token(scope: Scope) -> str | None:
    return next((value for name, value in _query(scope) if name == "token"), None) if scope["method"] == "GET" else None


def _without_token(scope: Scope) -> str:
    left = urlencode([(name, value) for name, value in _query(scope) if name != "token"])
    path = "/" + scope.get("raw_path", b"/").decode("latin-1").split("?")[0].lstrip("/")  # never another host
    return f"{path}?{left}" if left else path


def _add_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    given = list(headers)
    names = {name.lower() for name, _ in given}
    if b"cache-control" not in names:
        given.append((b"cache-control", b"no-store"))
    return [*given, *((name, value) for name, value in _HEADERS if name not in names)]


async def _send_json(send: Send, status: int, value: dict[str, Any], *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps(value).encode() if value else b""
    kind = (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*kind, *headers]})
    await send({"type": "http.response.body", "body": body})
