"""Adapter for the client of Anthropic: `messages` and `beta.messages`, sync and async, responses and streams.

Owns: `compacting`. Must never: change the client it is given, or compact a conversation that the server keeps.

    client = compacting(Anthropic(), CompactManager(config), session_id="…")
    client.messages.create(model=…, max_tokens=…, system=…, messages=messages)       # messages: the whole history

- `compacting` returns a copy of the same class that shares the connections; the client itself is not changed.
  Wrap first and instrument afterwards: patches of a client are not on its copy.
- `meta={"protected": True}` on a message pins it; `meta` is not sent. `cache_control` stays on what is kept.
- `system` is counted and never changed; requests in a `thread` that the server keeps are sent unchanged.
  So are those of `beta.messages.tool_runner`, unless it gets `thread=False`.
"""

from __future__ import annotations

from typing import TypeVar, cast

from .._engine.manager import CompactManager
from .._http.endpoints import MESSAGES
from ._extras import requires
from ._provider_client import SESSION_HEADER, SessionId, wrap
from .session_gate import Gate, OnError

with requires("anthropic>=0.77", "anthropic"):
    import anthropic

__all__ = ["SESSION_HEADER", "SessionId", "compacting"]

Client = TypeVar("Client")


def compacting(
    client: Client,
    manager: CompactManager,
    session_id: SessionId = None,
    on_error: OnError = "unchanged",
    *,
    recover: bool = True,
) -> Client:
    """A copy of a client that keeps every conversation inside its model's window.

    `session_id` is a name, or a function of a request's body; `extra_headers={SESSION_HEADER: "…"}` names the session
    of one call. A server with many users must name each conversation: under one name, lists that begin alike are one.
    With `recover`, a request that the provider refuses as too long is sent once more, smaller.
    """
    gate = Gate(manager, on_error)
    return cast(Client, wrap(client, gate, session_id, (MESSAGES,), "anthropic", anthropic.APIStatusError, recover))
