"""The proxy as one ASGI application.

Owns: `Proxy`: its parts, and the order in which they start and stop. Must never: handle a request (`relay` does),
answer `/metrics` or `/healthz` (`operations` does), or listen on a port (`server` does).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .._conversation.tokens import counter_for
from .._engine.manager import CompactManager
from ..config import CompactConfig
from .conversations import Conversations
from .operations import PATHS, Operations
from .relay import Relay
from .state import open_state
from .state.fallback_state import FallbackState
from .summarizer import upstream_summarizer
from .upstream import Upstream

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


class Proxy:
    """All parts between a client and its provider. Belongs to the event loop that serves it."""

    def __init__(self, config: CompactConfig, operations: Operations, manager: CompactManager | None = None) -> None:
        self._config = config
        self._operations = operations
        self._manager = manager

    async def startup(self) -> None:
        """Open every part; raises when one cannot be opened."""
        settings, operations = self._config.proxy, self._operations
        assert settings.upstream is not None  # `serve` has refused to start without one
        self._upstream = Upstream(
            settings.upstream,
            timeout=settings.timeout,
            connect_timeout=settings.connect_timeout,
            ca_file=settings.ca_file,
        )
        model = settings.summary_model
        official = self._upstream.host == "api.openai.com"
        patience = self._config.summary.timeout
        write = upstream_summarizer(self._upstream.ask, model, timeout=patience, official=official) if model else None
        self._state = open_state(settings.state, ttl=settings.state_ttl, log=operations.log)
        operations.state = self._state if isinstance(self._state, FallbackState) else None
        self._manager = self._manager or CompactManager(self._config, summarizer=write)
        # The token table takes a moment to load: at the start, so that the first request does not wait for it.
        await asyncio.to_thread(counter_for, self._config.counter, self._config.model)
        self._relay = Relay(
            self._upstream,
            Conversations(self._manager, self._state, self._upstream.base),
            operations,
            max_body=settings.max_body,
            max_requests=settings.max_requests,
        )

    async def shutdown(self) -> None:
        """Close every part, after the last request."""
        await self._relay.finish_compactions()
        await self._upstream.close()
        if self._manager is not None:
            await asyncio.to_thread(self._manager.close)
        await self._state.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        await (self._operations if scope["path"] in PATHS else self._relay)(scope, receive, send)
