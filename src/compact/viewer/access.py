"""Who may ask the viewer, and what a browser may do with what it gets.

Owns: `Guard`, an ASGI middleware in front of everything. Must never: look at what is asked for, or log a token.

- A request that comes from somewhere else (`_http.access`) gets nothing.
- With a token: as `?token=`, once, which becomes a cookie that lasts as long as the server; or as a bearer.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from .._http.access import foreign, names_of, same

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard"]

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


class Guard:
    """Lets through what may pass, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, *, host: str, port: int, token: str | None = None) -> None:
        self._app = app
        self._names = names_of(host)
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

        headers = dict(scope["headers"])
        if (wrong := foreign(headers, self._names)) is not None:
            await _answer(with_headers, 403, {"error": wrong})
        elif self._token is None or self._knows(headers):
            await self._app(scope, receive, with_headers)
        elif (given := _token_of(scope)) is not None and same(given, self._token):
            place = _without_token(scope)
            cookie = f"{self._cookie}={self._pass}; Path=/; HttpOnly; SameSite=Strict"
            await _answer(with_headers, 303, {}, (b"location", place.encode()), (b"set-cookie", cookie.encode()))
        else:
            error = "A token is needed: open the address with ?token=… once, or send it as Authorization: Bearer."
            await _answer(with_headers, 401, {"error": error}, (b"www-authenticate", b"Bearer"))

    def _knows(self, headers: Mapping[bytes, bytes]) -> bool:
        assert self._token is not None
        scheme, _, given = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() == "bearer" and same(given.strip(), self._token):
            return True
        try:
            cookie = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and same(cookie.value, self._pass)


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
