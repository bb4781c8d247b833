"""The explicit states of a session: what it needs, what a fold is doing, what the summarizer is doing.

Owns: `StateMachine` and every legal move. Must never: decide when to move; the flow does.

    state          not_needed → needed → in_progress → completed → not_needed     (L02)
                   needed → not_needed            a threshold was raised, or the host shortened the list
                   completed → needed             the thresholds are still, or again, reached
                   in_progress → needed           the fold was given up; nothing changed
    phase          idle → selecting → compacting → replacing → idle               (L04)
                   selecting | compacting → idle  the fold was given up, or needs no summary
    summary_state  idle → in_progress → completed | failed → idle                 (L33)
                   failed | completed → in_progress   asked again, or the next run of the same fold
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["StateMachine"]

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
        """Judge a threshold: needed exactly when one is reached."""
        self.to("needed" if reached else "not_needed")

    def to(self, state: str) -> None:
        """Move the state of L02."""
        self.state = _move(STATES, self.state, state)

    def enter(self, phase: str) -> None:
        """Move the phase of L04."""
        self.phase = _move(PHASES, self.phase, phase)

    def summarizer(self, state: str) -> None:
        """Move the summarizer's state of L33."""
        self.summary_state = _move(SUMMARY_STATES, self.summary_state, state)

    def rest(self) -> None:
        """Come to rest, however the fold ended; one that was interrupted changed nothing and is still needed."""
        if self.summary_state == "in_progress":
            self.summarizer("failed")
        self.summarizer("idle")
        self.enter("idle")
        if self.state == "in_progress":
            self.to("needed")


def _move(rules: Mapping[str, frozenset[str]], now: str, then: str) -> str:
    if then != now and then not in rules[now]:
        raise AssertionError(f"illegal move from {now!r} to {then!r}")
    return then
