"""The Anthropic messages format: messages of content blocks, tool results inside user messages.

Owns: how these messages are read, clipped, checked and repaired.
Must never: change an object of the application, decide what is compacted, or count tokens.

Rules of the provider:
- The first message is a user message, and no message is empty.
- An assistant message with `tool_use` blocks is followed at once by their `tool_result` blocks, before any other
  word of the user; consecutive user messages count as one, because the API joins them.
- A `tool_result` answers a `tool_use` of the assistant message right before it.
A server tool's use and result stand in one assistant message, so they need no pair. A list may hold system
messages too; they do not count in the order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import InvalidMessage
from ..message import Message, Role, Slot, ToolCall, ToolResult, pair_answers, unanswered_calls
from .base import (
    CONTINUES,
    NO_RESULT,
    Problem,
    clip_content,
    is_protected,
    orphan_text,
    plain_role,
    read_role,
    reading,
    spoken_messages,
    with_fields,
)
from .parts import content_text, encrypted_tokens, fields_of, json_text, part_text, text_of

_ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}


class AnthropicFormat:
    """Messages of the Anthropic API."""

    name = "anthropic"

    def read(self, raw: Any) -> Message:
        """A message as a `Message`; a user message with nothing but tool results gets the role `tool`."""
        if (role := plain_role(raw, _ROLES)) is not None:
            return Message(role, raw["content"], raw)
        with reading:
            return _read(raw, fields_of(raw))

    def summary(self, text: str, *, first: bool) -> dict[str, Any]:
        """An assistant message, or a user message where the list starts with it."""
        return {"role": "user" if first else "assistant", "content": text}

    def clip(self, raw: Any, shorten: Callable[[str], str]) -> Any:
        """Every tool result shortened; a list of parts becomes a list of one text part."""
        content = fields_of(raw).get("content")
        if not isinstance(content, (list, tuple)) or not any(_is_result(block) for block in content):
            return raw
        return with_fields(
            raw, content=[clip_content(block, shorten) if _is_result(block) else block for block in content]
        )

    def problems(self, messages: Sequence[Message]) -> list[Problem]:
        """What the Anthropic API would reject."""
        turns = list(spoken_messages(messages))
        if not turns:
            return [Problem(0, "empty_list", "The list has no user or assistant message; send at least one.")]
        found: list[Problem] = []
        first = turns[0][0]
        if messages[first].role == "assistant":
            found.append(Problem(first, "first_not_user", f"Message {first} comes first and is not a user message."))
        step, waiting, words = -1, Counter[str](), False
        for i, message in turns:
            if _is_empty(message):
                found.append(Problem(i, "empty_message", f"Message {i} has no content."))
            if message.role == "assistant":
                found += _unanswered_problem(step, waiting)
                step, waiting, words = i, Counter(call.id for call in message.calls), False
                continue
            late = words or not _results_first(message)
            for answer in message.answers:
                if not waiting[answer.id]:
                    text = f"Message {i} has a tool_result for no open tool_use of the assistant message before it."
                    found.append(Problem(i, "orphan_answer", text))
                    continue
                waiting[answer.id] -= 1
                if late:
                    text = f"Message {i} has a tool_result behind other words of the user."
                    found.append(Problem(i, "misplaced_answer", text))
            words = words or message.role == "user"
        if words:
            found += _unanswered_problem(step, waiting)
        return sorted(found, key=lambda problem: problem.index)

    def repair(self, messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
        """The list made valid: every step gets its results in the user message right behind it, words after them."""
        if not messages or not self.problems(messages):
            return list(messages), []
        changes = [f"Message {i} was empty and was dropped." for i, m in spoken_messages(messages) if _is_empty(m)]
        origin = [i for i, m in enumerate(messages) if not _is_empty(m)]
        kept = [messages[i] for i in origin]
        order = _find_order(kept)
        for i, k in order.orphans:
            changes.append(f"Message {origin[i]} had a result (number {k + 1}) for no open call; it became a note.")
        for step, slots in order.moved.items():
            changes += [
                f"A result in message {origin[i]} was moved behind its call in message {origin[step]}."
                for i, _ in slots
            ]
        for step, calls in order.missing.items():
            if step != order.pending:
                changes.append(
                    f"Message {origin[step]} had {len(calls)} calls that were never answered; a note was added."
                )

        out: list[Message] = []
        notes: list[Message] = []
        for i, message in enumerate(kept):
            if message.role == "assistant":
                if i == order.pending and order.early:
                    # A note behind a pending call would end the wait for its result, so it goes before the call.
                    out.append(self._note(kept, order.early))
                out.append(message)
                if i not in order.home and (results := self._collect_results(kept, order, i)) is not None:
                    out.append(results)
            elif not message.answers:
                out.append(message)
            elif (repaired := self._repair_message(kept, order, i)) is not None:
                if repaired.role == "assistant":
                    notes.append(repaired)
                elif repaired is not message and not _results_first(message):
                    changes.append(f"Message {origin[i]} had words before its results; the results now come first.")
                out.append(repaired)

        turns = [i for i, _ in spoken_messages(out)]
        if turns and any(out[turns[-1]] is note for note in notes):
            # An assistant message at the end would be taken as the start of the model's answer.
            note = out[turns[-1]]
            out[turns[-1]] = self.read({**note.raw, "role": "user"})
        if not turns or out[turns[0]].role == "assistant":
            out.insert(turns[0] if turns else len(out), self.read({"role": "user", "content": CONTINUES}))
            changes.append("The list did not start with a user message, so one was added.")
        return out, changes

    def _repair_message(self, kept: Sequence[Message], order: _ResultOrder, i: int) -> Message | None:
        """A message with results as it must be: its own results, those that join them, notes, then other words."""
        message = kept[i]
        added = _missing_blocks(kept, order, order.houses[i]) if i in order.houses else []
        notes = order.notes.get(i, [])
        strays = any((i, k) in order.strays for k in range(len(message.answers)))
        if not added and not notes and not strays and _results_first(message):
            return message
        results = [block for k, block in enumerate(_results(message)) if (i, k) not in order.strays] + added
        words = [block for block in _blocks(message) if not _is_result(block)]
        if notes and not results and not words:
            return self._note(kept, notes)
        texts = [{"type": "text", "text": orphan_text(kept[j].answers[k].text)} for j, k in notes]
        content = [*results, *texts, *words]
        if not content:
            return None
        joined = [*notes, *order.moved.get(order.houses.get(i, -1), ())]
        changes = {"content": content, **_protected_meta(kept, joined)}
        return self.read(with_fields(message.raw, **changes))

    def _collect_results(self, kept: Sequence[Message], order: _ResultOrder, step: int) -> Message | None:
        """The results of a step that has none in place; a message with just these is moved as it is."""
        slots = order.moved.get(step, [])
        sources = {i for i, _ in slots}
        if len(sources) == 1 and not order.missing.get(step):
            source = kept[slots[0][0]]
            if source.role == "tool" and len(source.answers) == len(slots):
                return source
        blocks = _missing_blocks(kept, order, step)
        if not blocks:
            return None
        return self.read({"role": "user", "content": blocks, **_protected_meta(kept, slots)})

    def _note(self, kept: Sequence[Message], slots: Sequence[Slot]) -> Message:
        text = "\n".join(orphan_text(kept[i].answers[k].text) for i, k in slots)
        return self.read({"role": "assistant", "content": text, **_protected_meta(kept, slots)})


class _ResultOrder:
    """Where the results of a list belong. A step is the index of an assistant message; a slot is one result."""

    def __init__(self) -> None:
        self.home: dict[int, int] = {}
        """Step → the first message that holds results of it in place."""
        self.houses: dict[int, int] = {}
        """The reverse of `home`."""
        self.moved: dict[int, list[Slot]] = {}
        """Step → its results that stand elsewhere."""
        self.missing: dict[int, list[ToolCall]] = {}
        """Step → its calls that have no result at all."""
        self.orphans: list[Slot] = []
        """Results without a call."""
        self.notes: dict[int, list[Slot]] = {}
        """Message → the orphans noted in it; those among the results of a step stand behind the last of these."""
        self.strays: set[Slot] = set()
        """Results that are moved, and orphans."""
        self.pending = -1
        """The step that still waits for results, or -1."""
        self.early: list[Slot] = []
        """Orphans behind the pending step."""


def _find_order(messages: Sequence[Message]) -> _ResultOrder:
    order = _ResultOrder()
    pairs = pair_answers(messages)
    order.missing = unanswered_calls(messages, pairs)
    step = end = -1
    pending_notes: list[Slot] = []

    def place_notes() -> None:
        for slot in pending_notes:
            order.notes.setdefault(max(slot[0], end), []).append(slot)
        pending_notes.clear()

    for i, message in spoken_messages(messages):
        if message.role == "assistant":
            place_notes()
            step = i
            continue
        for k in range(len(message.answers)):
            call = pairs.get((i, k))
            if call is None:
                order.orphans.append((i, k))
                pending_notes.append((i, k))
            elif call[0] == step:
                end = i
                order.houses.setdefault(order.home.setdefault(step, i), step)
                continue
            else:
                order.moved.setdefault(call[0], []).append((i, k))
            order.strays.add((i, k))
        if message.role == "user":
            place_notes()
            step = -1
    if step in order.missing:
        order.pending = step
        order.early = pending_notes
    else:
        place_notes()
    return order


def _protected_meta(messages: Sequence[Message], slots: Sequence[Slot]) -> dict[str, Any]:
    """The `meta` of a message that holds protected results."""
    return {"meta": {"protected": True}} if any(messages[i].pinned for i, _ in slots) else {}


def _missing_blocks(messages: Sequence[Message], order: _ResultOrder, step: int) -> list[Any]:
    """The result blocks a step still needs: those that stand elsewhere, and one for each call never answered."""
    blocks = [_results(messages[i])[k] for i, k in order.moved.get(step, ())]
    if step != order.pending:
        for call in order.missing.get(step, ()):
            blocks.append({"type": "tool_result", "tool_use_id": call.id, "content": NO_RESULT})
    return blocks


def _read(raw: Any, fields: Mapping[str, Any]) -> Message:
    role = read_role(fields, _ROLES, "An Anthropic message")
    pinned = is_protected(fields)
    content = fields.get("content")
    if not isinstance(content, (list, tuple)):
        return Message(role, content_text(content)[0], raw, pinned=pinned)

    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    answers: list[ToolResult] = []
    weight = result_weight = 0
    for part in content:
        block = {"type": "text", "text": part} if isinstance(part, str) else fields_of(part, "A content block")
        kind = block.get("type")
        if kind == "tool_use":
            _require(role == "assistant", "A tool_use block belongs in an assistant message.")
            calls.append(ToolCall(text_of(block, "id"), text_of(block, "name"), json_text(block.get("input") or {})))
        elif kind == "tool_result":
            _require(role == "user", "A tool_result block belongs in a user message.")
            text, tokens = content_text(block.get("content"))
            answers.append(ToolResult(text_of(block, "tool_use_id"), text))
            result_weight += tokens
        elif kind == "thinking":
            thoughts.append(text_of(block, "thinking"))
        elif kind == "redacted_thinking":
            weight += encrypted_tokens(text_of(block, "data"))
        else:
            text, tokens = part_text(block)
            texts.append(text)
            weight += tokens
    text = "\n".join(filter(None, texts))
    return Message(
        "tool" if answers and not text and not weight else role,
        text,
        raw,
        calls=tuple(calls),
        answers=tuple(answers),
        pinned=pinned,
        hidden="\n".join(filter(None, thoughts)),
        weight=weight + result_weight,
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidMessage(message)


def _blocks(message: Message) -> list[Any]:
    content = fields_of(message.raw).get("content")
    return list(content) if isinstance(content, (list, tuple)) else []


def _results(message: Message) -> list[Any]:
    return [block for block in _blocks(message) if _is_result(block)]


def _is_result(block: Any) -> bool:
    return not isinstance(block, str) and fields_of(block, "A content block").get("type") == "tool_result"


def _results_first(message: Message) -> bool:
    """Whether the results of a message stand before its other content."""
    if not message.answers or message.role == "tool":
        return True
    return all(_is_result(block) for block in _blocks(message)[: len(message.answers)])


def _unanswered_problem(step: int, waiting: Counter[str]) -> list[Problem]:
    missing = waiting.total()
    text = f"Message {step} has {missing} tool_use blocks without a tool_result right behind it."
    return [Problem(step, "unanswered_call", text)] if missing else []


def _is_empty(message: Message) -> bool:
    if message.role in ("system", "developer"):
        return False
    return not (message.text.strip() or message.calls or message.answers or message.weight or message.hidden)
