"""The proxy: `compact proxy`, for agents that are given nothing but another base URL.

Owns: `serve`, `running`, `PORT`. Must never: be needed by the library.

    client → _guard → _relay → _conversations → manager       what of the list is sent
                         │           ↕ _state                 folds that other proxies made
                         ↓
                     _upstream → provider                     everything else passes as it came
"""

from __future__ import annotations

from ..config.proxy_section import ProxyPolicy
from .serve import running, serve

__all__ = ["PORT", "running", "serve"]

PORT: int = ProxyPolicy().port
"""Where it listens unless told otherwise."""
