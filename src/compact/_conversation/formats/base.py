"""What the message formats share: their protocol, and how a message is read, copied and checked.

Owns: `MessageFormat`, `Problem`, and the texts that repairs write into a conversation.
Must never: know which fields a provider puts where on a message, change an object of the application, or put content
in an error.

Rules:
- A call is **pending** while nothing but answers follows its step: its result may still come, so it is not repaired.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from ...errors import InvalidMessage
from ..message import Message, Role
from .parts import content_text, fields_of

NO_RESULT = "[no result was recorded for this call]"
ORPHAN = "[result of a call that is no longer in the conversation]"
CONTINUES = "(conversation continues)"


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why the provider would reject a list: the index of the message, a code (see above), and a sentence."""

    index: int
    code: str
    message: str


class MessageFormat(Protocol):
    """One message format. Stateless; every method returns new values and leaves its arguments alone."""

    name: str

    def read(self, raw: Any) -> Message:
        """A message of the application as a `Message` (pinned when its `meta["protected"]` is true).

        Raises `InvalidMessage` when it is not a message of this format.
        """
        ...

    def summary(self, text: str, *, first: bool) -> Any:
        """A new message with a summary: assistant, or the nearest legal role when it stands `first`."""
        ...

    def clip(self, raw: Any, shorten: Callable[[str], str]) -> Any:
        """A copy of a message in which every tool output text is replaced by `shorten(text)`.

        A message without tool output is returned as it is.
        """
        ...

    def problems(self, messages: Sequence[Message]) -> list[Problem]:
        """What the provider would reject in this list, in order; empty when it is valid."""
        ...

    def repair(self, messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
        """The list made valid, with one sentence per change. Untouched messages are the same objects.

        A valid list is returned as it is, and an empty one stays empty.
        """
        ...


def plain_role(raw: Any, roles: Mapping[str, Role]) -> Role | None:
    """The role of a dict that is nothing but a role and a text, as most messages are; None for any other."""
    if type(raw) is not dict or len(raw) != 2 or type(raw.get("content")) is not str:
        return None
    role = raw.get("role")
    return roles.get(role) if type(role) is str else None


def read_role(fields: Mapping[str, Any], roles: Mapping[str, Role], what: str) -> Role:
    """The role of a message, of those that its format has."""
    name = fields.get("role")
    role = roles.get(name) if isinstance(name, str) else None
    if role is None:
        raise InvalidMessage(f"{what} must have one of the roles {', '.join(roles)}.")
    return role


class _ReadGuard:
    """Raises `InvalidMessage` for whatever the code of an application's object raises while it is read."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, RecursionError):
            raise InvalidMessage(
                "The message is nested too deeply to read; flatten it, or send that part as text."
            ) from None
        if isinstance(error, Exception) and not isinstance(error, InvalidMessage):
            raise InvalidMessage(
                f"The message could not be read: its content raised {type(error).__name__}."
            ) from error


reading = _ReadGuard()


def is_protected(fields: Mapping[str, Any]) -> bool:
    """Whether the message's `meta` says `protected`. Anything else in `meta` is ignored."""
    meta = fields.get("meta")
    if meta is None:
        return False
    with suppress(Exception):  # code of the application runs here, and it may raise anything
        value = meta.get("protected") if isinstance(meta, Mapping) else getattr(meta, "protected", None)
        return value is True
    return False


def with_fields(raw: Any, **changes: Any) -> Any:
    """A copy of a message with some fields replaced.

    A Pydantic model stays one while the new values are plain text, which its fields accept for certain; with anything
    else it becomes a dict rather than an invalid model. A subclass of dict stays one.
    """
    if isinstance(raw, dict) and type(raw) is not dict:
        copied = copy.copy(raw)
        copied.update(changes)
        return copied
    model_copy = getattr(raw, "model_copy", None)
    if callable(model_copy) and all(isinstance(value, str) for value in changes.values()):
        return model_copy(update=changes)
    return {**fields_of(raw), **changes}


def clip_content(raw: Any, shorten: Callable[[str], str]) -> Any:
    """A copy of a message or block with its content shortened; a list of parts becomes a list of one text part."""
    content = fields_of(raw).get("content")
    text = shorten(content_text(content)[0])
    return with_fields(raw, content=[{"type": "text", "text": text}] if isinstance(content, (list, tuple)) else text)


def spoken_messages(messages: Iterable[Message]) -> Iterator[tuple[int, Message]]:
    """The messages whose order matters, with their indices: all but system and developer messages."""
    return ((i, m) for i, m in enumerate(messages) if m.role not in ("system", "developer"))


def orphan_text(text: str) -> str:
    """The text of a note for a result without its call."""
    return f"{ORPHAN} {text}"
