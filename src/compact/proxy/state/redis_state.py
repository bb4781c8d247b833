"""Shared state in Redis, for any number of proxies.

Owns: `RedisState`, and the commands it sends.
Must never: be imported unless a Redis is configured, or show a password.

Keys are looked up by a script, which every Redis since 2.6 runs: a hit takes one round trip and returns one value.
Parsing 2,000 empty answers would block the event loop for 5 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ...errors import ConfigError

_PREFIX = "compact:"
_CONNECTIONS = 64
"""Concurrent commands; more wait for a connection."""
_WAITED = 5.0
"""Seconds to wait for a free connection, for connecting, or for an answer."""
_FIRST = """
for at, key in ipairs(KEYS) do
    local value = redis.call('GET', key)
    if value then
        redis.call('PEXPIRE', key, ARGV[1])
        return {at - 1, value}
    end
end
return false
"""
_FIRST_SLICE = 128
"""Keys looked up at once. A compaction is seldom further back; each further slice is four times as large."""


class RedisState:
    """Values in Redis, under keys that begin with `compact:`. Belongs to one event loop."""

    def __init__(self, url: str, *, ttl: float) -> None:
        self._milliseconds = max(1, round(ttl * 1000))
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=_CONNECTIONS,
                timeout=_WAITED,
                socket_timeout=_WAITED,
                socket_connect_timeout=_WAITED,
                protocol=2,  # saves each new connection a few round trips
                retry=Retry(NoBackoff(), 1),  # for a connection that was closed while idle
            )
            pool.connection_class(**pool.connection_kwargs)  # does not connect, and checks every option
        except (ValueError, TypeError, AttributeError, OSError):
            raise ConfigError(  # without the cause: it may quote a piece of the password
                "proxy.state: the address of the Redis cannot be read; must be redis://USER:PASSWORD@HOST:PORT/DB, "
                "rediss://… (with TLS) or unix://PATH, with options that the client redis knows; in a password, "
                "signs such as @ : / # % are written as %40 %3A %2F %23 %25"
            ) from None
        place = pool.connection_kwargs
        self._backend = place.get("path") or f"{place.get('host', 'localhost')}:{place.get('port', 6379)}"
        self._redis = Redis(connection_pool=pool)
        self._look = self._redis.register_script(_FIRST)

    def __str__(self) -> str:
        return f"the Redis at {self._backend}"

    async def first(self, keys: Sequence[str]) -> tuple[int, bytes] | None:
        """See `State`."""
        start, size = 0, _FIRST_SLICE
        while start < len(keys):
            asked = [_PREFIX + key for key in keys[start : start + size]]
            found: Any = await self._look(keys=asked, args=[self._milliseconds])
            if found is not None:
                return start + found[0], found[1]
            start, size = start + size, size * 4
        return None

    async def claim(self, key: str, value: bytes) -> bytes:
        """See `State`."""
        name = _PREFIX + key
        async with self._redis.pipeline(transaction=True) as commands:  # one round trip, and atomic
            commands.set(name, value, nx=True, px=self._milliseconds)
            commands.get(name)
            commands.pexpire(name, self._milliseconds)
            _, winner, _ = await commands.execute()
        return value if winner is None else winner

    async def put(self, key: str, value: bytes) -> None:
        """See `State`."""
        await self._redis.set(_PREFIX + key, value, px=self._milliseconds)

    async def close(self) -> None:
        """See `State`."""
        await self._redis.aclose()
        await self._redis.connection_pool.aclose()
