"""The back door: what this library's own adapters, proxy and commands ask of a manager, beside its public verbs.

Owns: `BackDoor`, the part of `CompactManager` that gives away and adopts folds that travel between processes, archives
a list without a fold, says that a list was sent as it is, and shows a fold that nobody carried out.
Must never: fold, or be called by a user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._archive.fold_record import own_fields
from .._archive.travel import travel_value
from .._compaction.fit import Fitted
from .._conversation.message import History
from .._pipeline.effects import warning
from .._pipeline.fold import plan_for
from .._pipeline.job import Job
from .._redaction import Redactor
from ..sinks import plain
from .live_config import LiveConfig
from .live_sessions import LiveSessions
from .open_call import Desk
from .recorder import EventRecorder

__all__ = ["BackDoor"]


class BackDoor:
    """What a manager does for the rest of the library."""

    _rooms: LiveSessions
    _journal: EventRecorder
    _desk: Desk
    _redactor: Redactor
    _parameters: LiveConfig

    def _fold_known(self, session_id: str) -> dict[str, Any] | None:
        """The newest fold in force of a session in memory as plain values, without secrets; None without one.

        `reach` is how many of the host's messages it consumed, `size` how many it knew.
        """
        value = travel_value(self._rooms.look(session_id).session)
        return None if value is None else own_fields(self._redactor.redact(plain(value)), value)

    def _has_fold(self, session_id: str, step: int) -> bool:
        """Whether a session in memory can replay this fold."""
        return any(record.step == step for record in self._rooms.look(session_id).session.memory.records)

    def _adopt_fold(self, session_id: str, value: Mapping[str, Any]) -> None:
        """Know a fold as if this process had made it. Of two folds of the same messages, this one stays."""
        with self._rooms.turn(session_id) as room:
            self._desk.adopt(self._parameters.config, room, value)

    async def _aadopt_fold(self, session_id: str, value: Mapping[str, Any]) -> None:
        """`_adopt_fold` for async hosts."""
        import asyncio  # here, because only async hosts need it

        from .run_async import to_the_end

        async with self._rooms.aturn(session_id) as room:
            await to_the_end(asyncio.to_thread(self._desk.adopt, self._parameters.config, room, value))

    async def _akeep(self, session_id: str, messages: Sequence[Any]) -> None:
        """Archive a list without a fold, for an adapter that is about to rewrite the only other copy of it."""
        import asyncio  # here, because only async hosts need it

        async with self._rooms.aturn(session_id) as room:
            await asyncio.to_thread(self._journal.save_transcript, room, messages)

    def _dry_run(
        self, session_id: str, messages: Sequence[Any], tools: Sequence[Any] | None = None, model: str | None = None
    ) -> tuple[Job, History, Fitted]:
        """What a fold would do now, due or not: the call, the list that would go out, and the plan that fits."""
        with self._rooms.turn(session_id, keep=False) as room:
            job = self._desk.open(self._parameters.config, room, messages, tools, model, peek=True).job
            history = job.history(job.outgoing()[1])
            return job, history, plan_for(job, history)

    def _sent_unchanged(self, session_id: str, why: str) -> None:
        """An adapter sent a list as it is: say so, and do not compare what the provider counts with an older one."""
        room = self._rooms.look(session_id)
        room.session.sent = 0
        self._journal.emit(room, warning("sent_unchanged", "high", f"a list was sent as it is, {why}"))
