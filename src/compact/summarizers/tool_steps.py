"""Tool calls with their results: what they did to which files, and which decisions led to them.

Owns: the rows of `decision_log` and the changes of `code_delta`.
Must never: state a reason that was not given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .._conversation.message import Message, Slot, pair_answers, parse_arguments
from .._facts.file_changes import FileUse, describe_change, find_file_uses
from .._facts.speech_acts import speech_acts_of
from .._facts.text import clean, cut, lines_of, sentences_of
from .pieces import Speaker, TextPiece

_FAILED = re.compile(r"\W*(?:\w{0,30}error|failed|fatal|traceback|no such file|permission denied)\b", re.I)
_REASON = re.compile(r"[,;:]?\s+(?:because|since|so that|in order to|as otherwise)\s+", re.I)
_WIDTHS = (110, 80, 60, 80)
"""Characters of decision, rationale, inputs and outputs."""


@dataclass(frozen=True, slots=True)
class ToolStep:
    """A call with its answer: where both stand, and what it was about.

    `answer` is None where there is none yet; `title` is empty where the call is not among the messages.
    """

    index: int
    first: int
    last: int
    title: str
    answer: str | None
    uses: tuple[FileUse, ...]

    @property
    def has_failed(self) -> bool:
        """Whether the answer begins with an error."""
        return _FAILED.match((self.answer or "")[:200]) is not None

    @property
    def is_action(self) -> bool:
        """Whether it did more than read files, and gets a row."""
        only_reads = bool(self.uses) and all(use.verb == "read" for use in self.uses)
        return self.title != "" and (self.has_failed or not only_reads)

    @property
    def outcome(self) -> str:
        """The first line of the answer, as the tool's words."""
        first = next(lines_of(self.answer or ""), None)
        if first is None:
            return "no output" if self.answer is not None else "no answer"
        return "tool said: " + first


def tool_steps_of(source: Sequence[Message], positions: Sequence[int]) -> list[ToolStep]:
    """Every call with its answer, and every answer without a call, in order."""
    pairs = pair_answers(source)
    step_of: dict[Slot, int] = {}
    steps: list[ToolStep] = []
    for index, (message, position) in enumerate(zip(source, positions, strict=True)):
        for k, answer in enumerate(message.answers):
            if (index, k) in pairs:
                at = step_of[pairs[index, k]]
                steps[at] = replace(steps[at], last=position, answer=answer.text)
            else:
                steps.append(ToolStep(index, position, position, "", answer.text, ()))
        if message.role == "tool" and message.text:
            steps.append(ToolStep(index, position, position, "", message.text, ()))
        for k, call in enumerate(message.calls):
            arguments = parse_arguments(call)
            words = (str(value) for value in arguments.values() if len(str(value)) <= 300)
            uses = tuple(find_file_uses(call.name, arguments))
            edits = "; ".join(f"{t.path}: {describe_change(t)}" for t in uses[:4] if t.old or t.new)
            title = cut(clean(f"{call.name[:80]} {edits or ', '.join(words)}"), 180)
            step_of[index, k] = len(steps)
            steps.append(ToolStep(index, position, position, title, None, uses))
    return steps


def change_rows(source: Sequence[Message], positions: Sequence[int]) -> list[TextPiece]:
    """One line for every change of a file: its path, what changed, and whether that failed."""
    pieces: list[TextPiece] = []
    for step in tool_steps_of(source, positions):
        for use in step.uses:
            if use.verb not in ("read", "used"):
                what = describe_change(use) + (" (failed)" if step.has_failed else "")
                text = f"{use.path}: {what}"
                pieces.append(
                    TextPiece(text, "Changes", "assistant", len(pieces), 0, step.first, step.last, _DONE, len(text))
                )
    return pieces


_DONE = frozenset({"done"})


def decision_rows(source: Sequence[Message], positions: Sequence[int]) -> list[TextPiece]:
    """A row per decision: the call before it in its turn as input, the next one as output; then the remaining calls."""
    steps = tool_steps_of(source, positions)
    starts = [i for i, message in enumerate(source) if message.starts_exchange]
    rows: list[TextPiece] = []
    used: set[int] = set()
    turn = ahead = 0

    def row(index: int, decision: str, why: str, inputs: str, outputs: str, acts: frozenset[str]) -> None:
        fields = (decision, why, inputs, outputs)
        shown = (cut(f.replace(" :: ", " : "), width) or "-" for f, width in zip(fields, _WIDTHS, strict=True))
        position = positions[index]
        text = f"[{position}] " + " :: ".join(shown)
        speaker: Speaker = "user" if source[index].is_user else "assistant"
        rows.append(TextPiece(text, "Decision log", speaker, index, 0, position, position, acts))

    for index, sentence, acts in _find_decisions(source):
        while turn < len(starts) and starts[turn] <= index:
            turn += 1
        while ahead < len(steps) and steps[ahead].index < index:
            ahead += 1
        start, end = (starts[turn - 1] if turn else 0), (starts[turn] if turn < len(starts) else len(source))
        inputs = steps[ahead - 1].title if ahead and steps[ahead - 1].index >= start else ""
        after = steps[ahead] if ahead < len(steps) and steps[ahead].index < end else None
        if after:
            used.add(ahead)
        decision, *why = _REASON.split(sentence, maxsplit=1)
        row(index, decision, "".join(why), inputs, f"{after.title} → {after.outcome}" if after else "", acts)
    for at, step in enumerate(steps):
        if at not in used and step.is_action:
            row(step.index, f"called {step.title}", "", "", step.outcome, _DONE)
    return [replace(piece, group=number) for number, piece in enumerate(sorted(rows, key=lambda piece: piece.first))]


def _find_decisions(source: Sequence[Message]) -> Iterator[tuple[int, str, frozenset[str]]]:
    """The sentences in which something is decided: the assistant's decisions, the user's rules."""
    for index, message in enumerate(source):
        if message.role == "tool":
            continue
        for sentence in sentences_of(message.text):
            acts = speech_acts_of(sentence)
            if "decision" in acts or ("rule" in acts and message.is_user):
                yield index, sentence, frozenset(acts)
