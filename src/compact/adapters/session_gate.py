"""What every adapter does with a list on its way to a model.

Owns: `Gate`: calling the manager, what happens when that fails, and telling the conversations of sub-agents apart;
`resolve_session_id`, the name that a host chose.
Must never: know a framework, or decide what folds.

Conversations: agents that call other agents send several conversations through one hook. The first one seen under a
name has the name; a list that begins with something else is another conversation and gets a name of its own.
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
from .._engine.manager import CompactManager
from .._session.entries import content_digest
from ..config import window_of
from ..errors import CompactError, ConfigError, InvalidMessage, ManagerClosed
from ._bridge import Bridge

__all__ = ["Gate", "OnError", "resolve_session_id"]

OnError = Literal["raise", "unchanged"]
"""What to do when a list cannot be compacted: end the run with the error, or send the list as it is and say so."""

Name = TypeVar("Name", bound=str | None)

_NAMES = 1_000
"""Sessions of a manager whose beginnings are remembered."""

_BEGINNINGS: WeakKeyDictionary[CompactManager, OrderedDict[str, set[str]]] = WeakKeyDictionary()
"""How the conversations of each manager begin: a session may pass more than one gate."""
_MUTEX = threading.Lock()


class Gate:
    """Where the lists of one host pass. Safe to share between threads and tasks."""

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
            wires = self._bridge.outward(messages) if self._bridge else messages
            asked = self._asked(model, reserve_output)
            return self._home(messages, wires, self.manager.preflight(session_id, wires, tools=tools, **asked))
        except Exception as error:
            return self.failed(session_id, messages, error)

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
        """`send` for async hosts. `window` is for a host that knows it better than the configuration."""
        try:
            wires = self._bridge.outward(messages) if self._bridge else messages
            asked = self._asked(model, reserve_output, window)
            return self._home(messages, wires, await self.manager.apreflight(session_id, wires, tools=tools, **asked))
        except Exception as error:
            return self.failed(session_id, messages, error)

    def smaller(
        self,
        session_id: str,
        messages: Sequence[Any],
        limit: int | None = None,
        *,
        tools: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> Any:
        """What to send once more when a provider said that the list is too long; None when there is no way out."""
        wires = self._bridge.outward(messages) if self._bridge else messages
        try:
            left = self.manager.recover(session_id, wires, limit, tools=tools, model=model)
        except CompactError:
            return None
        return None if left is wires else self._home(messages, wires, left)

    def observe(self, session_id: str, usage: Any) -> None:
        """Tell the manager what the provider counted, when it said anything."""
        if usage is not None:
            with suppress(InvalidMessage):
                self.manager.observe(session_id, usage)

    def apart(self, name: str, messages: Sequence[Any], agent: str = "") -> str:
        """The session of this conversation: `name`, or one beside it when the list begins with something else.

        For hosts that pass the whole history each time.
        """
        beginning = self._beginning(messages)
        with _MUTEX:
            known = self._beginnings.setdefault(name, {beginning})
            self._beginnings.move_to_end(name)
            while len(self._beginnings) > _NAMES:
                self._beginnings.popitem(last=False)
        return name if beginning in known else ".".join(filter(None, (name, agent, beginning)))

    def also(self, name: str, messages: Sequence[Any]) -> None:
        """The conversation of this name begins like this from now on, because its store was compacted."""
        beginning = self._beginning(messages)
        with _MUTEX:
            self._beginnings.setdefault(name, set()).add(beginning)

    def mark_span(self, session_id: str) -> None:
        """Say on the OpenTelemetry span that is open that its conversation was compacted; call it in a model's span."""
        trace = sys.modules.get("opentelemetry.trace")  # whoever traces has loaded it
        if trace is not None and self.manager.session(session_id).folds:
            trace.get_current_span().set_attribute("gen_ai.conversation.compacted", True)

    def _asked(self, model: str | None, reserve_output: int | None, known_window: int | None = None) -> dict[str, Any]:
        """A window that was configured holds for every model of the host; otherwise each has its own.

        Some hosts ask for as much output as a window holds. No more than half of it is kept free for that.
        """
        config = self.manager.config
        given = known_window or config.max_context_tokens
        window = given or window_of(model or config.model)
        reserve = min(reserve_output, window // 2) if isinstance(reserve_output, int) else None
        return {"model": model or None, "max_context_tokens": given, "reserve_output": reserve}

    def _home(self, messages: Sequence[Any], wires: Sequence[Any], outgoing: Any) -> Any:
        if self._bridge is not None:
            return messages if outgoing is wires else self._bridge.homeward(outgoing, wires)
        return _without_meta(outgoing)

    def failed(self, session_id: str, messages: Sequence[Any], error: Exception) -> Any:
        """What to send although it could not be compacted, by policy."""
        if self._on_error == "raise" or isinstance(error, (ConfigError, ManagerClosed)):
            raise error
        # Only our own errors are known to carry no content.
        said = f"{type(error).__name__}: {error}" if isinstance(error, CompactError) else type(error).__name__
        self.manager._sent_unchanged(session_id, f"because of {said}")
        return messages if self._bridge else _without_meta(messages)

    def _beginning(self, messages: Sequence[Any]) -> str:
        """A short name of what a conversation begins with, instructions aside."""
        each = self._bridge.outward if self._bridge else lambda one: map(as_mapping, one)
        wires = (wire for message in messages for wire in each([message]))
        try:
            first = next((wire for wire in wires if wire.get("role") not in ("system", "developer")), {})
        except Exception:  # a host's object may raise anything; sending it will say so, by policy
            return "unread"
        return content_digest(first).hex()[:8]


def resolve_session_id(session_id: Name | Callable[[Any], Name], request: Any) -> Name:
    """The session's name that a host chose: the text it gave, or what its function makes of a request."""
    return session_id(request) if callable(session_id) else session_id


def _without_meta(messages: Sequence[Any]) -> Sequence[Any]:
    """Without `meta`: it is ours, and providers refuse a field they do not know."""
    marked = [isinstance(raw, Mapping) and "meta" in raw for raw in messages]
    if not any(marked):
        return messages
    return [
        {key: value for key, value in raw.items() if key != "meta"} if mark else raw
        for raw, mark in zip(messages, marked, strict=True)
    ]
