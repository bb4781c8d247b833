"""What every adapter, and the proxy, does with a list before it is sent to a model.

Owns: `Gate`: calling the manager, handling its failures, and separating the conversations of sub-agents;
`resolve_session_id`.
Must never: know a framework, or decide what is compacted.

Agents that call other agents send several conversations through one hook. The first one under a name has that name; a
list that begins with another message is another conversation and gets a longer name.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

from .._conversation.message import as_mapping
from .._engine.manager import CompactManager, internals_of
from .._session.entries import content_digest
from ..config import window_of
from ..errors import CompactError, ConfigError, InvalidMessage, ManagerClosed
from ._bridge import Bridge

__all__ = ["Gate", "OnError", "resolve_session_id"]

OnError = Literal["raise", "unchanged"]
"""What to do when a list cannot be compacted: raise the error, or send the list unchanged and emit a warning."""

Name = TypeVar("Name", bound=str | None)

_MAX_NAMES = 1_000
"""Names per manager whose beginnings are remembered."""

_BEGINNINGS: WeakKeyDictionary[CompactManager, OrderedDict[str, set[str]]] = WeakKeyDictionary()
"""How the conversations of each manager begin; a session may use more than one gate."""
_MUTEX = threading.Lock()


class Gate:
    """Sends the lists of one application through a manager. Safe to share between threads and tasks."""

    def __init__(self, manager: CompactManager, on_error: OnError = "unchanged", bridge: Bridge | None = None) -> None:
        if on_error not in ("raise", "unchanged"):
            raise ConfigError(f"on_error is {on_error!r}; use 'raise' or 'unchanged'")
        self.manager = manager
        self._on_error = on_error
        self._bridge = bridge
        with _MUTEX:
            self._beginnings = _BEGINNINGS.setdefault(manager, OrderedDict())

    def send(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        model: str | None = None,
        reserve_output: int | None = None,
    ) -> Any:
        """The messages to send: the same list when nothing is due."""
        try:
            wires = self._bridge.to_wires(messages) if self._bridge else messages
            limits = self._limits(model, reserve_output)
            return self._restore(messages, wires, self.manager.preflight(session_id, wires, tools=tools, **limits))
        except Exception as error:
            return self.handle_failure(session_id, messages, error)

    async def asend(
        self,
        session_id: str,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        model: str | None = None,
        reserve_output: int | None = None,
        window: int | None = None,
    ) -> Any:
        """`send` for async applications. `window` overrides the configured context window."""
        try:
            wires = self._bridge.to_wires(messages) if self._bridge else messages
            limits = self._limits(model, reserve_output, window)
            outgoing = await self.manager.apreflight(session_id, wires, tools=tools, **limits)
            return self._restore(messages, wires, outgoing)
        except Exception as error:
            return self.handle_failure(session_id, messages, error)

    def recover(
        self,
        session_id: str,
        messages: Sequence[Any],
        limit: int | None = None,
        *,
        tools: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> Any:
        """A smaller list, after the provider refused this one as too long; None when there is none."""
        wires = self._bridge.to_wires(messages) if self._bridge else messages
        try:
            outgoing = self.manager.recover(session_id, wires, limit, tools=tools, model=model)
        except CompactError:
            return None
        return None if outgoing is wires else self._restore(messages, wires, outgoing)

    def observe(self, session_id: str, usage: Any) -> None:
        """Report the provider's usage to the manager, if there is any."""
        if usage is not None:
            with suppress(InvalidMessage):
                self.manager.observe(session_id, usage)

    def session_for(self, name: str, messages: Sequence[Any], agent: str = "") -> str:
        """The session of this conversation: `name`, or a longer name when the list begins with another message.

        For applications that pass the whole history each time.
        """
        beginning = self._beginning(messages)
        with _MUTEX:
            known = self._beginnings.setdefault(name, {beginning})
            self._beginnings.move_to_end(name)
            while len(self._beginnings) > _MAX_NAMES:
                self._beginnings.popitem(last=False)
        return name if beginning in known else ".".join(filter(None, (name, agent, beginning)))

    def add_beginning(self, name: str, messages: Sequence[Any]) -> None:
        """Register another beginning of a conversation, because its store was compacted."""
        beginning = self._beginning(messages)
        with _MUTEX:
            self._beginnings.setdefault(name, set()).add(beginning)

    def mark_span(self, session_id: str) -> None:
        """Mark the current OpenTelemetry span as one of a compacted conversation; call it inside a model's span."""
        trace = sys.modules.get("opentelemetry.trace")  # loaded if the application traces
        if trace is not None and self.manager.session(session_id).folds:
            trace.get_current_span().set_attribute("gen_ai.conversation.compacted", True)

    def _limits(self, model: str | None, reserve_output: int | None, known_window: int | None = None) -> dict[str, Any]:
        """Model, window and reserve for the manager. A configured window applies to every model of the application.

        Some applications request as much output as the window holds. At most half of it is reserved for that.
        """
        config = self.manager.config
        configured = known_window or config.max_context_tokens
        window = configured or window_of(model or config.model)
        reserve = min(reserve_output, window // 2) if isinstance(reserve_output, int) else None
        return {"model": model or None, "max_context_tokens": configured, "reserve_output": reserve}

    def _restore(self, messages: Sequence[Any], wires: Sequence[Any], outgoing: Any) -> Any:
        if self._bridge is not None:
            return messages if outgoing is wires else self._bridge.from_wires(outgoing, wires)
        return _without_meta(outgoing)

    def handle_failure(self, session_id: str, messages: Sequence[Any], error: Exception) -> Any:
        """Raise the error, or return the messages to send uncompacted, by `on_error`."""
        if self._on_error == "raise" or isinstance(error, (ConfigError, ManagerClosed)):
            raise error
        # Only errors of this package are known to contain no content of messages.
        said = f"{type(error).__name__}: {error}" if isinstance(error, CompactError) else type(error).__name__
        internals_of(self.manager).report_unchanged(session_id, f"because of {said}")
        return messages if self._bridge else _without_meta(messages)

    def _beginning(self, messages: Sequence[Any]) -> str:
        """A short hash of the first message that is not an instruction."""
        each = self._bridge.to_wires if self._bridge else lambda one: map(as_mapping, one)
        wires = (wire for message in messages for wire in each([message]))
        try:
            first = next((wire for wire in wires if wire.get("role") not in ("system", "developer")), {})
        except Exception:  # a framework's object may raise anything; `send` handles it
            return "unread"
        return content_digest(first).hex()[:8]


def resolve_session_id(session_id: Name | Callable[[Any], Name], request: Any) -> Name:
    """The session id of a request: the configured text, or the result of the configured function."""
    return session_id(request) if callable(session_id) else session_id


def _without_meta(messages: Sequence[Any]) -> Sequence[Any]:
    """The messages without `meta`, because providers refuse unknown fields."""
    marked = [isinstance(raw, Mapping) and "meta" in raw for raw in messages]
    if not any(marked):
        return messages
    return [
        {key: value for key, value in raw.items() if key != "meta"} if mark else raw
        for raw, mark in zip(messages, marked, strict=True)
    ]
