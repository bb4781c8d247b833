"""State shared by proxies that serve the same conversations: compactions and learned windows, by key.

Owns: `SharedState`, the protocol of every backend, and the choice of a backend by its URL.
Must never: know what a value means, or show a URL: it may hold a password.

A value expires when it was not set, claimed or found for its time to live. Keys hold no secrets: the caller hashes
what goes into them. A backend that may be unavailable is used through `fallback_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from ...errors import ConfigError, MissingExtra
from .fallback_state import FallbackState
from .memory_state import MemoryState

__all__ = ["FallbackState", "SharedState", "open_backend", "open_state"]


class SharedState(Protocol):
    """Small values by key, each with a time to live."""

    async def first(self, keys: Sequence[str]) -> tuple[int, bytes] | None:
        """The index of the first of these keys that has a value, and the value."""
        ...

    async def claim(self, key: str, value: bytes) -> bytes:
        """Set a value unless the key has one; returns the value that is stored afterwards."""
        ...

    async def put(self, key: str, value: bytes) -> None:
        """Set a value, and replace an older one."""
        ...

    async def close(self) -> None:
        """Close it; the values stay for other proxies."""
        ...


def open_state(url: str, *, ttl: float, log: Callable[..., None]) -> MemoryState | FallbackState:
    """Open the state that `proxy.state` names. Values unused for `ttl` seconds expire; `log` writes a log line.

    Raises `ConfigError` for a URL or a file that cannot be used, and `MissingExtra` without Redis's client. A server
    is not contacted yet: it may start later.
    """
    backend = open_backend(url, ttl=ttl)
    return backend if isinstance(backend, MemoryState) else FallbackState(backend, ttl=ttl, log=log)


def open_backend(url: str, *, ttl: float) -> SharedState:
    """Open the backend without a fallback: its errors are raised, and its calls have no time limit."""
    kind, _, place = url.partition(":")
    if url == "memory":
        return MemoryState(ttl=ttl)
    if kind == "sqlite" and place:
        from .sqlite_state import SqliteState

        return SqliteState(Path(place).absolute(), ttl=ttl)
    if kind in ("redis", "rediss", "unix") and place.startswith("//"):
        try:
            from .redis_state import RedisState
        except ImportError:
            raise MissingExtra(
                "proxy.state names a Redis, which needs the package redis: pip install 'agent-compact[redis]'"
            ) from None
        return RedisState(url, ttl=ttl)
    raise ConfigError(
        "proxy.state: an unknown kind given; must be memory, sqlite:PATH, redis://HOST:PORT/DB, rediss://… (with TLS) "
        "or unix://PATH"
    )
