"""Tool calls with their answers: what they did to which files, and what decisions led to them.

Owns: the rows of `decision_log` and the changes of `code_delta`. Must never: state a reason that nobody gave.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .._conversation.message import Message, Slot, pair_answers, parse_arguments
from .._facts.file_changes import Touch, difference, touches_of
from .._facts.speech_acts import sorts_of
from .._facts.text import clean, cut, lines_of, sentences_of
from .pieces import Speaker, Unit

__all__ = ["Step", "changes", "decisions", "steps_of"]

_FAILED = re.compile(r"\W*(?:\w{0,30}error|failed|fatal|traceback|no such file|permission denied)\b", re.I)
_REASON = re.compile(r"[,;:]?\s+(?:because|since|so that|in order to|as otherwise)\s+", re.I)
_WIDTHS = (110, 80, 60, 80)
"""Characters of decision, rationale, inputs and outputs."""


@dataclass(frozen=True, slots=True)
class Step:
    """A call with its answer: where both stand, and what it was about.

    `answer` is None where there is none yet; `title` is empty where the call is not among the folded messages.
    """

    index: int
    first: int
    last: int
    title: str
    answer: str | None
    touches: tuple[Touch, ...]

    @property
    def failed(self) -> bool:
        """Whether the answer begins with an error."""
        return _FAILED.match((self.answer or "")[:200]) is not None

    @property
    def acts(self) -> bool:
        """Whether it did more than look into a file, which is worth a line of its own."""
        only_reads = bool(self.touches) and all(touch.verb == "read" for touch in self.touches)
        return self.title != "" and (self.failed or not only_reads)

    @property
    def outcome(self) -> str:
        """The first line of the answer, as the tool's words."""
        first = next(lines_of(self.answer or ""), None)
        if first is None:
            return "no output" if self.answer is not None else "no answer"
        return "tool said: " + first


def steps_of(source: Sequence[Message], positions: Sequence[int]) -> list[Step]:
    """Every call with the answer that belongs to it: an answer takes the nearest earlier open call of its id."""
    pairs = pair_answers(source)
    step_of: dict[Slot, int] = {}
    steps: list[Step] = []
    for index, (message, position) in enumerate(zip(source, positions, strict=True)):
        for k, answer in enumerate(message.answers):
            if (index, k) in pairs:
                at = step_of[pairs[index, k]]
                steps[at] = replace(steps[at], last=position, answer=answer.text)
            else:
                steps.append(Step(index, position, position, "", answer.text, ()))
        if message.role == "tool" and message.text:
            steps.append(Step(index, position, position, "", message.text, ()))
        for k, call in enumerate(message.calls):
            arguments = parse_arguments(call)
            words = (str(value) for value in arguments.values() if len(str(value)) <= 300)
            touches = tuple(touches_of(call.name, arguments))
            edits = "; ".join(f"{t.path}: {difference(t)}" for t in touches[:4] if t.old or t.new)
            title = cut(clean(f"{call.name[:80]} {edits or ', '.join(words)}"), 180)
            step_of[index, k] = len(steps)
            steps.append(Step(index, position, position, title, None, touches))
    return steps


def changes(source: Sequence[Message], positions: Sequence[int]) -> list[Unit]:
    """One line for every change of a file: its path, what changed, and whether that failed."""
    units: list[Unit] = []
    for step in steps_of(source, positions):
        for touch in step.touches:
            if touch.verb not in ("read", "used"):
                what = difference(touch) + (" (failed)" if step.failed else "")
                text = f"{touch.path}: {what}"
                units.append(Unit(text, "Changes", "assistant", len(units), 0, step.first, step.last, _DONE, len(text)))
    return units


_DONE = frozenset({"done"})


def decisions(source: Sequence[Message], positions: Sequence[int]) -> list[Unit]:
    """A row per decision: the call before it in its turn as input, the next one as output; and the calls left over."""
    steps = steps_of(source, positions)
    starts = [i for i, message in enumerate(source) if message.starts_exchange]
    rows: list[Unit] = []
    told: set[int] = set()
    turn = ahead = 0

    def row(index: int, decision: str, why: str, given: str, got: str, sorts: frozenset[str]) -> None:
        fields = (decision, why, given, got)
        shown = (cut(f.replace(" :: ", " : "), width) or "-" for f, width in zip(fields, _WIDTHS, strict=True))
        position = positions[index]
        text = f"[{position}] " + " :: ".join(shown)
        speaker: Speaker = "user" if source[index].is_user else "assistant"
        rows.append(Unit(text, "Decision log", speaker, index, 0, position, position, sorts))

    for index, sentence, sorts in _decided(source):
        while turn < len(starts) and starts[turn] <= index:
            turn += 1
        while ahead < len(steps) and steps[ahead].index < index:
            ahead += 1
        start, end = (starts[turn - 1] if turn else 0), (starts[turn] if turn < len(starts) else len(source))
        given = steps[ahead - 1].title if ahead and steps[ahead - 1].index >= start else ""
        after = steps[ahead] if ahead < len(steps) and steps[ahead].index < end else None
        if after:
            told.add(ahead)
        decision, *why = _REASON.split(sentence, maxsplit=1)
        row(index, decision, "".join(why), given, f"{after.title} → {after.outcome}" if after else "", sorts)
    for at, step in enumerate(steps):
        if at not in told and step.acts:
            row(step.index, f"called {step.title}", "", "", step.outcome, _DONE)
    return [replace(unit, group=number) for number, unit in enumerate(sorted(rows, key=lambda unit: unit.first))]


def _decided(source: Sequence[Message]) -> Iterator[tuple[int, str, frozenset[str]]]:
    """The sentences in which something is decided: the assistant's decisions, the user's rules."""
    for index, message in enumerate(source):
        if message.role == "tool":
            continue
        for sentence in sentences_of(message.text):
            sorts = sorts_of(sentence)
            if "decision" in sorts or ("rule" in sorts and message.is_user):
                yield index, sentence, frozenset(sorts)
