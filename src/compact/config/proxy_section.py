"""The section `proxy` of the configuration: where it listens, where requests go, and its limits.

Owns: its fields, their ranges, and the form of an upstream's address.
Must never: connect anywhere, or show an address that may hold a password.

The token is not a field: it comes from `COMPACT_PROXY_TOKEN` or `--token`, never from a file.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from .fields import Amount, Count, Seconds, Text, TextOrNone
from .sections import Section

__all__ = ["ProxyPolicy"]

_UPSTREAM = (
    "must be the address of one API, http:// or https://, a host and perhaps a path, such as https://api.openai.com"
)
_STATE = "must be memory, sqlite:PATH, redis://HOST:PORT/DB, rediss://… or unix://PATH"


def _validate_upstream(value: str | None) -> str | None:
    """The address without what requests add themselves: a slash at the end, and `/v1`."""
    if value is None:
        return None
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"an address that cannot be read given; {_UPSTREAM}") from None
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise ValueError(f"an address of another kind given; {_UPSTREAM}")
    if "@" in parts.netloc or "?" in value or "#" in value:
        raise ValueError(f"an address with a user, a query or a fragment given; {_UPSTREAM}")
    if not value.isascii() or not value.isprintable() or any(sign in value for sign in ' \\"<>^`{|}'):
        raise ValueError(f"an address with characters that an address cannot have given; {_UPSTREAM}")
    return value.rstrip("/").removesuffix("/v1").rstrip("/")


def _validate_state(value: str) -> str:
    kind, _, place = value.partition(":")
    known = place if kind == "sqlite" else kind in ("redis", "rediss", "unix") and place.startswith("//")
    if value != "memory" and (not known or place == "//"):
        raise ValueError(f"an unknown place given; {_STATE}")  # never the place itself: it may hold a password
    return value


class ProxyPolicy(Section):
    """Where the proxy listens, where it sends requests, and its limits."""

    upstream: Annotated[TextOrNone, AfterValidator(_validate_upstream)] = None
    """The one API that requests are sent to; clients cannot choose another. A `/v1` at its end is left out."""
    host: Text = "127.0.0.1"
    """Where to listen; every address but loopback needs a token."""
    port: Annotated[Amount, Field(le=65_535)] = 8788
    """The port to listen at; 0 takes any that is free."""
    state: Annotated[Text, AfterValidator(_validate_state)] = Field(default="memory", repr=False)
    """Where compactions are stored: `memory`, `sqlite:PATH`, or `redis://…`, which any number of proxies share."""
    state_ttl: Seconds = 604_800.0
    """Seconds that a compaction is stored after it was last used."""
    summary_model: TextOrNone = None
    """A model of the same upstream that writes summaries, `same` for the request's model; none uses `summary`."""
    max_body: Count = 67_108_864
    """Bytes a request's body may have, also when decompressed; a larger one gets 413."""
    max_requests: Count = 256
    """Concurrent requests; one more gets 503 with a time to retry."""
    timeout: Seconds = 600.0
    """Seconds the upstream may be silent."""
    connect_timeout: Seconds = 10.0
    """Seconds it may take to reach the upstream."""
    drain: Amount = 30
    """Seconds that running requests get to finish when the proxy stops."""
    ca_file: TextOrNone = None
    """Certificates (PEM) that the upstream's certificate may be signed by, instead of the usual authorities."""
