"""The explicit states of a session: what it needs, what a compaction is doing, what the summarizer is doing.

Owns: `StateMachine` and every legal move. Must never: decide when to move; the pipeline does.

    state          not_needed → needed → in_progress → completed → not_needed     (L02)
                   needed → not_needed            a threshold was raised, or the application shortened the list
                   completed → needed             the thresholds are still, or again, reached
                   in_progress → needed           the compaction was given up; nothing changed
    phase          idle → selecting → compacting → replacing → idle               (L04)
                   selecting | compacting → idle  the compaction was given up, or needs no summary
    summary_state  idle → in_progress → completed | failed → idle                 (L33)
                   failed | completed → in_progress   asked again, or the next run of the same compaction
"""

from __future__ import annotations

from collections.abc import Mapping

STATES: Mapping[str, frozenset[str]] = {
    "not_needed": frozenset({"needed"}),
    "needed": frozenset({"in_progress", "not_needed"}),
    "in_progress": frozenset({"completed", "needed"}),
    "completed": frozenset({"not_needed", "needed"}),
}
PHASES: Mapping[str, frozenset[str]] = {
    "idle": frozenset({"selecting"}),
    "selecting": frozenset({"compacting", "replacing", "idle"}),
    "compacting": frozenset({"replacing", "idle"}),
    "replacing": frozenset({"idle"}),
}
SUMMARY_STATES: Mapping[str, frozenset[str]] = {
    "idle": frozenset({"in_progress"}),
    "in_progress": frozenset({"completed", "failed"}),
    "completed": frozenset({"idle", "in_progress"}),
    "failed": frozenset({"idle", "in_progress"}),
}


class StateMachine:
    """Where a session stands. Every move is checked against the rules above; staying put is always legal."""

    __slots__ = ("phase", "state", "summary_state")

    def __init__(self) -> None:
        self.state = "not_needed"
        self.phase = "idle"
        self.summary_state = "idle"

    def need(self, reached: bool) -> None:
        """A compaction is needed exactly when a threshold is reached."""
        state = "needed" if reached else "not_needed"
        if state != self.state:
            self.move(state)

    def move(self, state: str | None = None, phase: str | None = None, summary_state: str | None = None) -> None:
        """Move any of the three; None leaves one where it is."""
        if state is not None:
            self.state = _checked_move(STATES, self.state, state)
        if phase is not None:
            self.phase = _checked_move(PHASES, self.phase, phase)
        if summary_state is not None:
            self.summary_state = _checked_move(SUMMARY_STATES, self.summary_state, summary_state)

    def rest(self, *, needed: bool) -> None:
        """Come to rest, however the compaction ended; an interrupted one changed nothing.

        `needed` is whether a threshold is still reached.
        """
        if self.summary_state == "in_progress":
            self.move(summary_state="failed")
        self.move(phase="idle", summary_state="idle")
        if self.state == "in_progress":
            self.move("needed")
        if self.state == "needed":
            self.need(needed)


def _checked_move(moves: Mapping[str, frozenset[str]], now: str, then: str) -> str:
    if then != now and then not in moves[now]:
        raise AssertionError(f"illegal move from {now!r} to {then!r}")
    return then
