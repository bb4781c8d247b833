"""The OpenAI chat completions format: one message per step, tool results as separate messages.

Owns: how these messages are read, clipped, checked and repaired.
Must never: change an object of the application, decide what is compacted, or count tokens.

Rules of the provider:
- An assistant message with tool calls is followed at once by one tool message for each of its calls.
- A tool message answers a call of the assistant message that its run follows.
- An assistant message says something or calls something.
The older `function_call` is a call whose id is the function's name, answered by a message of role `function`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..message import Message, Role, ToolCall, ToolResult, pair_answers, unanswered_calls
from .base import CONTINUES, NO_RESULT, Problem, clip_content, is_protected, orphan_text, plain_role, read_role, reading
from .parts import MEDIA_TOKENS, content_text, fields_of, json_text, list_of, text_of

_PLAIN: Mapping[str, Role] = {"system": "system", "developer": "developer", "user": "user", "assistant": "assistant"}
_ROLES: Mapping[str, Role] = {**_PLAIN, "tool": "tool", "function": "tool"}


class ChatFormat:
    """Messages of OpenAI chat completions, and of everything that speaks that format."""

    name = "openai-chat"

    def read(self, raw: Any) -> Message:
        """A message as a `Message`."""
        if (role := plain_role(raw, _PLAIN)) is not None:
            return Message(role, raw["content"], raw)
        with reading:
            return _read(raw, fields_of(raw))

    def summary(self, text: str, *, first: bool) -> dict[str, Any]:
        """An assistant message, wherever it stands."""
        return {"role": "assistant", "content": text}

    def clip(self, raw: Any, shorten: Callable[[str], str]) -> Any:
        """The content of a tool message shortened; a list of parts becomes a list of one text part."""
        is_result = fields_of(raw).get("role") in ("tool", "function")
        return clip_content(raw, shorten) if is_result else raw

    def problems(self, messages: Sequence[Message]) -> list[Problem]:
        """What chat completions would reject."""
        if not messages:
            return [Problem(0, "empty_list", "The list has no messages; send at least one.")]
        found: list[Problem] = []
        no_calls = Counter[str]()
        step, waiting, interrupted = -1, no_calls, False
        for i, message in enumerate(messages):
            if message.role in ("system", "developer"):
                interrupted = bool(waiting.total())
                continue
            if message.answers:
                if interrupted and any(waiting[answer.id] for answer in message.answers):
                    text = f"Message {i} answers a call of message {step}, and another message stands in between."
                    found.append(Problem(i, "misplaced_answer", text))
                for answer in message.answers:
                    if waiting[answer.id]:
                        waiting[answer.id] -= 1
                    else:
                        text = f"Message {i} answers no open call of the assistant message before it."
                        found.append(Problem(i, "orphan_answer", text))
                continue
            if missing := waiting.total():
                text = f"Message {step} has {missing} tool calls without a tool message right behind it."
                found.append(Problem(step, "unanswered_call", text))
            if _is_empty(message):
                found.append(Problem(i, "empty_message", f"Message {i} is an assistant message with nothing in it."))
            step, interrupted = i, False
            waiting = Counter(call.id for call in message.calls) if message.calls else no_calls
        return sorted(found, key=lambda problem: problem.index)

    def repair(self, messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
        """The list made valid: every step gets its answers right behind it, and nothing else is there."""
        if not messages or not self.problems(messages):
            return list(messages), []
        changes = [f"Message {i} was empty and was dropped." for i, m in enumerate(messages) if _is_empty(m)]
        origin = [i for i, m in enumerate(messages) if not _is_empty(m)]
        kept = [messages[i] for i in origin]
        pairs = pair_answers(kept)
        step_of = {answer: step for (answer, _), (step, _) in pairs.items()}
        unanswered = unanswered_calls(kept, pairs)
        answers: dict[int, list[int]] = {}
        orphans: set[int] = set()
        behind, last = -1, -1
        for i, message in enumerate(kept):
            if not message.answers:
                behind = i
                last = last if message.role in ("system", "developer") else i
            elif i not in step_of:
                orphans.add(i)
                changes.append(f"Message {origin[i]} answered no open call and became an assistant note.")
            else:
                answers.setdefault(step_of[i], []).append(i)
                if step_of[i] != behind:
                    changes.append(f"Message {origin[i]} was moved behind its call in message {origin[step_of[i]]}.")

        out: list[Message] = []
        early = set[int]()
        for i, message in enumerate(kept):
            if message.answers:
                if i in orphans and i not in early:
                    out.append(self._orphan_note(message))
                continue
            mine = [kept[k] for k in answers.get(i, ())]
            missing = unanswered.get(i, [])
            if missing and i == last:
                # A note behind a pending call would end the wait for its result, so it goes before the call.
                early = {k for k in orphans if k > i}
                out += [self._orphan_note(kept[k]) for k in sorted(early)]
            elif missing:
                mine += [self._no_result_message(message, call) for call in missing]
                changes.append(
                    f"Message {origin[i]} had {len(missing)} calls that were never answered; a note was added."
                )
            out += [message, *mine]
        if not out:
            out = [self.read({"role": "user", "content": CONTINUES})]
            changes.append("Nothing was left to send, so a user message was added.")
        return out, changes

    def _orphan_note(self, message: Message) -> Message:
        note: dict[str, Any] = {"role": "assistant", "content": orphan_text(message.answers[0].text)}
        return self.read({**note, "meta": {"protected": True}} if message.pinned else note)

    def _no_result_message(self, step: Message, call: ToolCall) -> Message:
        if fields_of(step.raw).get("tool_calls"):
            return self.read({"role": "tool", "tool_call_id": call.id, "content": NO_RESULT})
        return self.read({"role": "function", "name": call.name, "content": NO_RESULT})


def _read(raw: Any, fields: Mapping[str, Any]) -> Message:
    role = read_role(fields, _ROLES, "A chat message")
    text, weight = content_text(fields.get("content"))
    name, pinned = text_of(fields, "name"), is_protected(fields)
    if role == "tool":
        answer = ToolResult(name if fields["role"] == "function" else text_of(fields, "tool_call_id"), text)
        return Message("tool", "", raw, answers=(answer,), name=name, pinned=pinned, weight=weight)
    if role != "assistant":
        return Message(role, text, raw, name=name, pinned=pinned, weight=weight)
    if refusal := text_of(fields, "refusal"):
        text = f"{text}\n{refusal}" if text else refusal
    if (audio := fields.get("audio")) is not None:
        text = text or text_of(fields_of(audio, "The audio"), "transcript") or "[audio]"
        weight += MEDIA_TOKENS["audio"]
    return Message(
        "assistant",
        text,
        raw,
        calls=_calls(fields),
        name=name,
        pinned=pinned,
        hidden=text_of(fields, "reasoning_content"),
        weight=weight,
    )


def _calls(fields: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    calls = []
    for item in list_of(fields.get("tool_calls"), "The field `tool_calls`"):
        call = fields_of(item, "A tool call")
        custom = call.get("custom")
        body = fields_of(call.get("function") if custom is None else custom, "The function of a tool call")
        arguments = body.get("arguments" if custom is None else "input")
        calls.append(
            ToolCall(text_of(call, "id"), text_of(body, "name"), "" if arguments is None else json_text(arguments))
        )
    if not calls and (legacy := fields.get("function_call")) is not None:
        body = fields_of(legacy, "The function_call")
        name = text_of(body, "name")
        calls.append(ToolCall(name, name, json_text(body.get("arguments") or "")))
    return tuple(calls)


def _is_empty(message: Message) -> bool:
    return message.role == "assistant" and not (message.text or message.calls or message.weight or message.hidden)
