"""Performing what the pipeline asks for: events, states, the archive.

Owns: `EffectPerformer`. Must never: decide, wait, or call a summarizer (`drive` and `drive_async` do).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._pipeline.call import Call
from .._pipeline.effects import Effect, Emit, Move, Refresh, SaveRecord, SaveTranscript
from ..config import CompactConfig
from ..errors import ArchiveError
from .live_sessions import LiveSession
from .open_call import CallOpener
from .recorder import EventRecorder


@dataclass(frozen=True, slots=True)
class EffectPerformer:
    """Performs the effects of one call."""

    opener: CallOpener
    recorder: EventRecorder
    config: CompactConfig
    live: LiveSession
    call: Call

    def __call__(self, effect: Effect) -> Any:
        """Perform an effect, and return its result."""
        live, session = self.live, self.call.session
        if isinstance(effect, Emit):
            return self.recorder.emit(live, effect)
        if isinstance(effect, Move):
            return session.machine.move(effect.state, effect.phase, effect.summary_state)
        if isinstance(effect, Refresh):
            return self.opener.refresh(self.config, live)
        try:
            if isinstance(effect, SaveTranscript):
                return self.recorder.save_transcript(live, effect.raws)
            assert isinstance(effect, SaveRecord)
            if self.call.prepared is not None:
                session.claim_transcript(self.call.prepared.shadow)
            return self.recorder.save_record(live, effect.compacted)
        except ArchiveError as error:
            return error
