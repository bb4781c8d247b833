"""Access control: which requests the proxy accepts.

Owns: `ProxyGuard`, an ASGI middleware in front of the application. Must never: read a body, log a path, or pass a token
in the path on to the upstream.

- A request from another site (`_http.access`) is refused; with a token it may name any host.
- A request names a path. A whole address, `host:port` or `*` is meant for a web proxy and refused, as is a WebSocket.
- A request whose end is ambiguous is refused, because of request smuggling: what one reader takes for a body is a
  second request to another. The server refuses most of these; the others are refused here, and the connection closes.
- The token is sent as the header `x-compact-token`, or in the base URL (`http://proxy:8788/~TOKEN/v1`), which needs no
  change in code; `/metrics` also takes it as a bearer token, and `/healthz` needs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from starlette.responses import JSONResponse

from .._http.access import allowed_hosts, bearer_token, foreign_request_reason, secrets_equal
from .operations import Operations
from .responses import error_body

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_NEEDED = (
    "This proxy needs its token: put it into the base URL, http://HOST:PORT/~TOKEN/v1, or send it as the header "
    "x-compact-token. It is set as COMPACT_PROXY_TOKEN where the proxy is started."
)
_NONE_SET = "The base URL holds a token (/~…/), and this proxy has none: remove that part of the base URL."
_TARGET = "A request must name a path of this server, not another address: use it as a base URL, not as a web proxy."
_TWO_HOSTS = "The request names its host twice; send one Host header."
_VERSION = "The request is not in HTTP/1.1."
_CODING = "The body has a transfer-encoding other than chunked."
_OFFER = (
    "The request has a body and offers to switch to another protocol, which would lose the body: use HTTP/1.1 only; "
    "in Java, HttpClient.newBuilder().version(HTTP_1_1)."
)
LONGEST_HEAD = 65_536
"""Bytes of a request before its body."""
_HEAD = f"The headers have more than {LONGEST_HEAD:,} bytes."
_UPGRADE = "This proxy speaks HTTP, with streams as server-sent events, and no WebSocket: use the HTTP transport."


class ProxyGuard:
    """Passes accepted requests on, and answers the others with an error."""

    def __init__(self, app: ASGIApp, operations: Operations, *, host: str, token: str | None = None) -> None:
        self._app = app
        self._operations = operations
        self._names = allowed_hosts(host)
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":  # the server passes nothing else
            return
        headers = dict(scope["headers"])
        refused, scope = self._check(scope, headers)
        if refused is not None:
            status, why = refused
            record = self._operations.begin("other")
            closing = {"connection": "close"}
            besides = {400: closing, 401: {"www-authenticate": "Bearer"}, 431: closing}.get(status)
            await JSONResponse(error_body(why), status, besides)(scope, receive, send)
            record.finish(status=status)
        else:
            await self._app(scope, receive, send)

    def _check(self, scope: Scope, headers: Mapping[bytes, bytes]) -> tuple[tuple[int, str] | None, Scope]:
        """The status and reason of a refusal, or None; and the request without a token in its path."""
        path = scope.get("raw_path") or scope["path"].encode()
        if not path.startswith(b"/"):
            return (400, _TARGET), scope
        if len(headers) != len(scope["headers"]) and sum(name == b"host" for name, _ in scope["headers"]) > 1:
            return (400, _TWO_HOSTS), scope
        if (unsafe := _check_head(scope, headers)) is not None:
            return unsafe, scope
        if (wrong := foreign_request_reason(headers, self._names)) is not None:
            return (403, wrong), scope
        if headers.get(b"upgrade", b"").lower() == b"websocket":
            return (426, _UPGRADE), scope  # at this status Codex switches to HTTP at once
        given = headers.get(b"x-compact-token", b"")
        if path[1:2] in (b"~", b"%"):  # a client may write a tilde as %7E
            first, _, rest = path[1:].partition(b"/")
            first = unquote_to_bytes(first)
            if first.startswith(b"~"):
                if self._token is None:
                    return (400, _NONE_SET), scope
                given, path = first[1:], b"/" + rest
                scope = {**scope, "raw_path": path, "path": unquote_to_bytes(path).decode("utf-8", "replace")}
        if scope["path"] == "/metrics" and not given:
            given = bearer_token(headers)
        if (
            self._token is None
            or scope["path"] == "/healthz"
            or secrets_equal(given.decode("utf-8", "replace"), self._token)
        ):
            return None, scope
        return (401, _NEEDED), scope


def _check_head(scope: Scope, headers: Mapping[bytes, bytes]) -> tuple[int, str] | None:
    """The status and reason of a refusal for a request's head that the server let through; None for a safe head."""
    if scope["http_version"] not in ("1.1", "1.0"):
        return 400, _VERSION
    if b"transfer-encoding" in headers:
        codings = [value.lower() for name, value in scope["headers"] if name == b"transfer-encoding"]
        if codings != [b"chunked"] or scope["http_version"] == "1.0":
            return 400, _CODING
    if b"upgrade" in headers and (b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"):
        return 400, _OFFER
    if sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > LONGEST_HEAD:
        return 431, _HEAD
    return None
