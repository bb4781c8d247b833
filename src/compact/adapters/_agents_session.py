"""A session of the OpenAI Agents SDK whose store is compacted between runs.

Owns: `CompactSession`. Must never: remove from a store what is not archived.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from .._conversation.message import as_mapping
from .._engine.drive_async import run_to_end
from .._engine.fair_lock import FairLock
from .._engine.manager import CompactManager, internals_of
from ..errors import ConfigError
from .session_gate import Gate, OnError


class CompactSession:
    """Wraps any session of the SDK. At the start of a run, compacted items leave its store; the archive has them.

    With a `CompactFilter` of the same manager and session id, each uses the compactions of the other. A session that
    reads only its newest items (`SessionSettings.limit`), or that ends with a tool call without its output, is not
    changed. If the process dies while the store is rewritten, `manager.restore(session_id)` returns its items.
    """

    def __init__(
        self, session: Any, manager: CompactManager, session_id: str | None = None, on_error: OnError = "unchanged"
    ) -> None:
        if not internals_of(manager).has_archive:
            raise ConfigError(
                "CompactSession removes items from a store, and this manager has no archive for them: configure a "
                "storage other than 'none', or use CompactFilter alone, which does not change the store"
            )
        self.session_id: str = session.session_id
        self.session_settings = getattr(session, "session_settings", None)
        self._session, self._manager, self._name = session, manager, session_id or self.session_id
        self._gate = Gate(manager, on_error)
        self._lock = _store_lock(self.session_id)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items, compacted; with a limit the newest items, unchanged."""
        async with self._lock.hold():
            items: list[Any] = await self._session.get_items(limit)
        if limit is not None or getattr(self.session_settings, "limit", None) is not None:
            return items
        failure: Exception | None
        try:
            compacted = items if _has_pending_call(items) else list(await self._manager.apreflight(self._name, items))
            if compacted == items:
                return items
            await internals_of(self._manager).archive_list(self._name, items)
        except Exception as error:
            failure = error
        else:
            failure = await run_to_end(self._rewrite(items, compacted))
        if failure is not None:
            self._gate.handle_failure(self._name, items, failure)
            return items
        self._gate.add_beginning(self._name, compacted)
        return compacted

    async def add_items(self, items: list[Any]) -> None:
        """Add items to the wrapped session."""
        async with self._lock.hold():
            await self._session.add_items(items)

    async def pop_item(self) -> Any:
        """Remove the newest item of the wrapped session."""
        async with self._lock.hold():
            return await self._session.pop_item()

    async def clear_session(self) -> None:
        """Empty the wrapped session; the archive stays."""
        async with self._lock.hold():
            await self._session.clear_session()

    async def _rewrite(self, items: list[Any], compacted: list[Any]) -> Exception | None:
        """Replace the stored items. Returns the error when that failed and the store was restored."""
        async with self._lock.hold():
            if await self._session.get_items() != items:
                return None  # the store changed meanwhile: the next run tries again
            try:
                await self._store(compacted)
            except Exception as error:
                await self._store(items)
                return error
        return None

    async def _store(self, items: list[Any]) -> None:
        await self._session.clear_session()
        await self._session.add_items(items)


def call_ids(items: Sequence[Any], *, outputs: bool = False) -> list[str]:
    """The ids of the tool calls, or those of their outputs."""
    each = (item for item in map(as_mapping, items) if item.get("call_id"))
    return [item["call_id"] for item in each if str(item.get("type")).endswith("_output") is outputs]


def _has_pending_call(items: Sequence[Any]) -> bool:
    """Whether the list ends with tool calls of which one has no output; it may wait for a person's approval."""
    last = call_ids(items[-1:]) or call_ids(items[-1:], outputs=True)
    return bool(last) and not set(call_ids(items)) <= set(call_ids(items, outputs=True))


@lru_cache(maxsize=1_000)
def _store_lock(_session_id: str) -> FairLock:
    """The lock of a store, shared by all objects that wrap it."""
    return FairLock()
