"""Adapter for the client of OpenAI: `chat.completions` and `responses`, sync and async, responses and streams.

Owns: `compacting`. Must never: change the client it is given, or compact a conversation that the server keeps.

    client = compacting(OpenAI(), CompactManager(config), session_id="…")
    client.chat.completions.create(model=…, messages=messages)       # messages: the whole history

- `compacting` returns a copy of the same class that shares the connections; the client itself is not changed.
  Wrap first and instrument afterwards: patches of a client are not on its copy.
- `meta={"protected": True}` on a message pins it; `meta` is not sent.
- Requests with `previous_response_id`, `conversation` or text as `input` are sent unchanged.
- A chat stream has its usage only with `stream_options={"include_usage": True}`.
"""

from __future__ import annotations

from typing import TypeVar, cast

from .._engine.manager import CompactManager
from .._http.endpoints import CHAT, RESPONSES
from ._extras import requires
from ._provider_client import SESSION_HEADER, SessionId, wrap
from .session_gate import Gate, OnError

with requires("openai>=2.15", "openai"):
    import openai

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
    return cast(Client, wrap(client, gate, session_id, (CHAT, RESPONSES), "openai", openai.APIStatusError, recover))
