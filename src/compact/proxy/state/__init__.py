"""What proxies that serve the same conversations share: folds and learned limits, as small values by key.

Owns: `State`, which every place for such values is, and the choice of one by its address.
Must never: know what a value means, or show an address: it may hold a password.

A value is known until nobody has set, claimed or found it for its time to live. Keys are the caller's, who hashes
whatever must not be seen in them. A place that may be away is used through `fallback_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from ...errors import ConfigError, MissingExtra
from .fallback_state import Careful
from .memory_state import MemoryState

__all__ = ["Careful", "State", "open_state", "place_of"]


class State(Protocol):
    """A place for small values, each with a time to live."""

    async def first(self, keys: Sequence[str]) -> tuple[int, bytes] | None:
        """Where in this list the first key stands that is known, and its value."""
        ...

    async def claim(self, key: str, value: bytes) -> bytes:
        """Set a value unless the key has one; the value in force afterwards."""
        ...

    async def put(self, key: str, value: bytes) -> None:
        """Set a value, whatever was there."""
        ...

    async def close(self) -> None:
        """Let go of it; what others may use stays."""
        ...


def open_state(url: str, *, ttl: float, say: Callable[..., None]) -> MemoryState | Careful:
    """The state that `proxy.state` names; what nobody used for `ttl` seconds is gone. `say` writes a line of the log.

    Raises `ConfigError` for an address or a file that cannot be used, and `MissingExtra` without Redis's client. A
    server is not asked yet: it may come later.
    """
    place = place_of(url, ttl=ttl)
    return place if isinstance(place, MemoryState) else Careful(place, ttl=ttl, say=say)


def place_of(url: str, *, ttl: float) -> State:
    """The place alone: it raises whatever happens, and waits for as long as it takes."""
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
        "proxy.state: an unknown place given; must be memory, sqlite:PATH, redis://HOST:PORT/DB, rediss://… (with "
        "TLS) or unix://PATH"
    )
