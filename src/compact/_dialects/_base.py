"""What the dialects share: their contract, how content parts become text, and how answers find their calls.

Owns: `Dialect`, `Problem`, the weights of media, and the words that repairs write into a conversation.
Must never: know which fields a provider puts where on a message, change a host object, or put content in an error.

Rules:
- Media never count as text: each part adds a marker (`[image]`) to the text and a fixed number of tokens to the weight.
- A part of a kind nobody here knows is described in one line rather than refused: providers add kinds every month.
- An answer pairs with the nearest earlier call of its id that is still open, as in `History`.
- A call is **pending** while nothing but answers follows its step: its result may still come, so nobody mends it.
- What a tool said never gets a person's role, except inside a message that is a person's on the wire anyway.

The codes of a `Problem`:
    empty_list         there is no message to send
    empty_message      a message with nothing in it
    unanswered_call    a call without its result, though the conversation went on
    orphan_answer      a result without an open call of its id
    misplaced_answer   a result that does not stand where its call needs it
    dangling_reasoning a reasoning item without the item it belongs to
    first_not_user     a list that must start with a user message and does not
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from .._messages import Message, Role, as_mapping
from ..errors import InvalidMessage

__all__ = [
    "CONTINUES",
    "NO_RESULT",
    "ORPHAN",
    "WEIGHTS",
    "Dialect",
    "Problem",
    "Slot",
    "calls_of_answers",
    "content_text",
    "encrypted_weight",
    "fields_of",
    "guarded",
    "is_protected",
    "json_text",
    "list_of",
    "one_line",
    "orphan_text",
    "part_text",
    "role_of_plain",
    "spoken",
    "text_of",
    "with_fields",
]

WEIGHTS: Mapping[str, int] = {
    "image_low": 85,
    "image": 765,
    "anthropic_image": 1_568,
    "audio": 500,
    "file": 1_500,
}
"""Tokens of one media part. Providers charge by size and detail, which a part does not tell: these are typical."""

NO_RESULT = "[no result was recorded for this call]"
ORPHAN = "[result of a call that is no longer in the conversation]"
CONTINUES = "(conversation continues)"

Slot = tuple[int, int]
"""A call or an answer: the index of its message, and its place among that message's calls or answers."""

_TEXT_FIELD = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
}
_FILES = frozenset({"file", "input_file", "document", "container_upload"})
_UNREAD = frozenset({"type", "id", "status", "meta", "cache_control", "encrypted_content", "encrypted_index"})
_ENCRYPTED = re.compile(r',?"encrypted_\w+":"([^"]*)"')
_BASE64 = re.compile(r"data:[\w/+.-]{1,100};base64,[A-Za-z0-9+/=_-]*")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing the provider would reject: the index of the message, a code (see above), and a sentence."""

    index: int
    code: str
    message: str


class Dialect(Protocol):
    """One message format. Stateless; every method returns new values and leaves its arguments alone."""

    name: str

    def read(self, raw: Any) -> Message:
        """The host message as a `Message` (pinned when its own `meta["protected"]` is true).

        Raises `InvalidMessage` when it is not a message of this format.
        """
        ...

    def summary(self, text: str, *, first: bool) -> Any:
        """A new host message that carries a summary: assistant, or the nearest legal role when it stands `first`."""
        ...

    def clip(self, raw: Any, shorten: Callable[[str], str]) -> Any:
        """A copy of a host message in which every tool output text is replaced by `shorten(text)`.

        A message without tool output comes back as it is.
        """
        ...

    def problems(self, messages: Sequence[Message]) -> list[Problem]:
        """What the provider would reject in this list, in order; empty when it is valid."""
        ...

    def repair(self, messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
        """The list made valid, with one sentence per change. Untouched messages are the same objects.

        A valid list comes back as it is, and an empty one stays empty: there is nothing in it to mend.
        """
        ...


def role_of_plain(raw: Any, roles: Mapping[str, Role]) -> Role | None:
    """The role of a dict that is nothing but a role and a text, as most messages are; None for any other."""
    if type(raw) is not dict or len(raw) != 2 or type(raw.get("content")) is not str:
        return None
    said = raw.get("role")
    return roles.get(said) if type(said) is str else None


def guarded(read: Callable[[Mapping[str, Any]], Message], raw: Any) -> Message:
    """Read the fields of a host message. Its objects may run any code of the host's; what that raises gets a type."""
    try:
        return read(fields_of(raw))
    except InvalidMessage:
        raise
    except RecursionError:
        raise InvalidMessage(
            "The message is nested too deeply to read; flatten it, or send that part as text."
        ) from None
    except Exception as error:
        raise InvalidMessage(f"The message could not be read: its content raised {type(error).__name__}.") from error


def fields_of(raw: Any, what: str = "A message") -> Mapping[str, Any]:
    """The fields of a host message or of one of its parts, whatever kind of object it is."""
    if type(raw) is dict:
        return raw
    try:
        return as_mapping(raw)
    except RecursionError:
        raise
    except Exception as error:  # a host object's own code runs here, and it may raise anything
        raise InvalidMessage(
            f"{what} must be a mapping or an object with fields, and a {type(raw).__name__} could not be read as one."
        ) from error


def list_of(value: Any, what: str) -> Sequence[Any]:
    """A list field: nothing counts as an empty list."""
    if value is None:
        return ()
    if isinstance(value, (list, tuple)):
        return value
    raise InvalidMessage(f"{what} must be a list, not {type(value).__name__}.")


def text_of(fields: Mapping[str, Any], key: str) -> str:
    """A text field: absent and null count as empty."""
    value = fields.get(key)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise InvalidMessage(f"The field {key!r} must be text, not {type(value).__name__}.")


def is_protected(fields: Mapping[str, Any]) -> bool:
    """Whether the message's own `meta` says `protected`. Anything else that `meta` may hold is the host's affair."""
    meta = fields.get("meta")
    if meta is None:
        return False
    with suppress(Exception):  # a host object's own code runs here, and it may raise anything
        value = meta.get("protected") if isinstance(meta, Mapping) else getattr(meta, "protected", None)
        return value is True
    return False


def json_text(value: Any) -> str:
    """Arguments as text: text as it is, anything else as compact JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
    except RecursionError:
        raise
    except Exception as error:  # a host object's own code runs here, and it may raise anything
        raise InvalidMessage(f"A {type(value).__name__} cannot be written as JSON; send it as text.") from error


def _plain(value: Any) -> Any:
    """What JSON does not know: an object by its fields, anything else by its text."""
    try:
        return dict(as_mapping(value))
    except TypeError:
        return str(value)


def one_line(kind: str, fields: Mapping[str, Any]) -> tuple[str, int]:
    """An item that explains itself, as one line without ids and file contents, and the weight of what is encrypted."""
    shown = (f"{key}={json_text(value)}" for key, value in fields.items() if value is not None and key not in _UNREAD)
    line = " ".join(_BASE64.sub("[file]", ", ".join(shown)).split())
    weight = encrypted_weight(text_of(fields, "encrypted_content"))
    weight += sum(map(encrypted_weight, _ENCRYPTED.findall(line)))
    line = _ENCRYPTED.sub("", line)
    return f"[{kind}: {line}]" if line else f"[{kind}]", weight


def encrypted_weight(text: str) -> int:
    """Tokens behind an encrypted text: it is about six characters for each."""
    return len(text) // 6


def content_text(content: Any) -> tuple[str, int]:
    """What a content field says, and the weight of its media. Content is text, a list of parts, or nothing."""
    if isinstance(content, str):
        return content, 0
    texts = []
    weight = 0
    for part in list_of(content, "Content that is not text"):
        text, tokens = part_text(part)
        weight += tokens
        if text:
            texts.append(text)
    return "\n".join(texts), weight


def part_text(part: Any) -> tuple[str, int]:
    """What one content part says, and its weight."""
    if isinstance(part, str):
        return part, 0
    fields = fields_of(part, "A content part")
    kind = fields.get("type")
    if not isinstance(kind, str):
        raise InvalidMessage("A content part must have a `type` that is text.")
    if kind in _TEXT_FIELD:
        return text_of(fields, _TEXT_FIELD[kind]), 0
    if kind == "image":
        return "[image]", WEIGHTS["anthropic_image"]
    if kind in ("image_url", "input_image", "computer_screenshot"):
        image = fields.get("image_url")
        holder = fields if image is None or isinstance(image, str) else fields_of(image, "An image")
        return "[image]", WEIGHTS["image_low" if holder.get("detail") == "low" else "image"]
    if kind in ("input_audio", "audio", "output_audio"):
        return "[audio]", WEIGHTS["audio"]
    if kind in _FILES:
        return _file_text(kind, fields)
    if kind == "search_result":
        text, weight = content_text(fields.get("content"))
        return f"[search result: {text_of(fields, 'title')} {text_of(fields, 'source')}]\n{text}", weight
    return one_line(kind, fields)


def _file_text(kind: str, fields: Mapping[str, Any]) -> tuple[str, int]:
    inner = fields.get("source") if kind == "document" else fields.get("file") if kind == "file" else None
    source = fields_of(inner, "A file") if inner is not None else {}
    names = (
        fields.get("title"),
        fields.get("filename"),
        source.get("filename"),
        fields.get("file_id"),
        source.get("file_id"),
    )
    name = next((name for name in names if isinstance(name, str) and name), "")
    marker = f"[file: {name}]" if name else "[file]"
    if source.get("type") == "text":
        return f"{marker}\n{text_of(source, 'data')}", 0
    if source.get("type") == "content":
        text, weight = content_text(source.get("content"))
        return f"{marker}\n{text}", weight
    return marker, WEIGHTS["file"]


def with_fields(raw: Any, **changes: Any) -> Any:
    """A copy of a host message with some fields replaced.

    A Pydantic model stays one while the new values are plain text, which its fields accept for certain; with
    anything else it becomes a dict rather than a model that breaks its own types. A host's own kind of dict stays one.
    """
    if isinstance(raw, dict) and type(raw) is not dict:
        made = copy.copy(raw)
        made.update(changes)
        return made
    model_copy = getattr(raw, "model_copy", None)
    if callable(model_copy) and all(isinstance(value, str) for value in changes.values()):
        return model_copy(update=changes)
    return {**fields_of(raw), **changes}


def calls_of_answers(messages: Sequence[Message]) -> dict[Slot, Slot]:
    """For each answer that has one, the call it answers."""
    waiting: dict[str, list[Slot]] = {}
    pairs: dict[Slot, Slot] = {}
    for i, message in enumerate(messages):
        for k, answer in enumerate(message.answers):
            if stack := waiting.get(answer.id):
                pairs[i, k] = stack.pop()
        for k, call in enumerate(message.calls):
            waiting.setdefault(call.id, []).append((i, k))
    return pairs


def spoken(messages: Iterable[Message]) -> Iterator[tuple[int, Message]]:
    """The messages that take part in the order, with their indices: all but system and developer messages."""
    return ((i, m) for i, m in enumerate(messages) if m.role not in ("system", "developer"))


def orphan_text(text: str) -> str:
    """How a result without its call is told."""
    return f"{ORPHAN} {text}"
