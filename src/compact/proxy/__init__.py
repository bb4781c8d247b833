"""The proxy behind `compact proxy`: agents use it through their base URL, without a change in their code.

Owns: `serve`, `running`, `PORT`. Must never: be imported by the library.

    client → access → relay → conversations → manager         which messages are sent
                        │           ↕ state                   compactions made by other proxies
                        ↓
                    upstream → provider                       everything else passes unchanged
"""

from __future__ import annotations

from ..config.proxy_section import ProxyPolicy
from .server import running, serve

__all__ = ["PORT", "running", "serve"]

PORT: int = ProxyPolicy().port
"""The default port."""
