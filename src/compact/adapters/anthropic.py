"""The client of Anthropic: `messages` and `beta.messages`, sync and async, whole answers and streams.

Owns: `compacting`. Must never: change the client it is given, or fold what the server holds.

    client = compacting(Anthropic(), CompactManager(config), session_id="…")
    client.messages.create(model=…, max_tokens=…, system=…, messages=messages)       # messages: the whole history

- The client that comes back is a copy of the same class that shares the connections; the caller's own is as it was.
  Wrap first and instrument afterwards: what was patched onto a client is not on its copy.
- `meta={"protected": True}` on a message pins it; `meta` is not sent. `cache_control` stays on what is kept.
- `system` counts and stays; requests in a `thread` that the server holds go out as they are.
  So do those of `beta.messages.tool_runner`, unless it is told `thread=False`.
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
    """A client like this one that keeps every conversation inside its model's window.

    `session_id` is a name, or a function of a request's body; `extra_headers={SESSION_HEADER: "…"}` names the session
    of one call: a server of many people names each conversation, since lists that begin alike are one under one name.
    With `recover`, a request that the provider calls too long is sent once more, smaller.
    """
    gate = Gate(manager, on_error)
    return cast(Client, wrap(client, gate, session_id, (MESSAGES,), "anthropic", anthropic.APIStatusError, recover))
