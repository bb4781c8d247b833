"""The command `count`: tokens of conversations.

Owns: `count`, and `count_conversation`, which other commands use. Must never: change or store anything, or keep the
messages of many conversations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import PROBLEM, AllRows, AsJson, ConfigFile, ModelName, Settings, Window, app, option_values
from .input import ConversationId, LogFormat, config_for, no_such_conversation, read_conversations, report_notes
from .output import bar, one_line, plural, show, show_json, table, with_progress

if TYPE_CHECKING:
    from .._conversation.message import Message
    from .._conversation.tokens import Usage
    from ..config import CompactConfig
    from ..importers import Conversation

_LARGEST = 20
"""Messages that `count` shows without `--all`."""


@dataclass(frozen=True, slots=True)
class CountedConversation:
    """Tokens of a conversation, as counted; `margin` is the share by which the provider's number may be higher."""

    messages: list[Message]
    tokens: tuple[int, ...]
    usage: Usage
    window: int
    model: str
    dialect: str
    margin: float

    @property
    def total(self) -> int:
        """Tokens of the whole request with the margin: the number that is compared with the window."""
        return self.usage.scaled(1 + self.margin).total


def count_conversation(conversation: Conversation, config: CompactConfig) -> CountedConversation:
    """Count a conversation."""
    from .._conversation.tokens import Usage
    from ..replay.recording import Recording

    recording = Recording(conversation)
    counted = recording.count(config.model, config.counter)
    by_role = {"system": 0, "developer": 0}
    for message, tokens in zip(recording.messages, counted.tokens, strict=True):
        if message.role in by_role:
            by_role[message.role] += tokens
    rest = counted.fixed - counted.tools + sum(counted.tokens) - sum(by_role.values())
    return CountedConversation(
        recording.messages,
        counted.tokens,
        Usage(by_role["system"], by_role["developer"], counted.tools, rest),
        config.window,
        config.model,
        recording.format.name,
        counted.counter.margin,
    )


@app.command()
def count(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…", help="Conversations and logs: files, folders, patterns, s3://…, or - for standard input."
        ),
    ],
    model: ModelName = None,
    window: Window = None,
    id: ConversationId = None,
    log_format: LogFormat = None,
    all_rows: AllRows = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 3 when a conversation does not fit its window.")
    ] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
    settings: Settings = None,
) -> None:
    """Count the tokens of a conversation by layer and by message, or of several with a line for each.

    Example:  compact count chat.json
    """
    options = option_values(settings, model, window)
    rows: list[tuple[str, int, CountedConversation]] = []
    only: tuple[Conversation, CountedConversation] | None = None
    ids: list[str] = []
    for conversation in with_progress(read_conversations(files, log_format), "counting"):
        ids.append(conversation.id)
        if id is None or conversation.id == id:
            counted = count_conversation(conversation, config_for(config, options, conversation))
            only = None if rows else (conversation, counted)
            rows.append((conversation.id, len(counted.messages), _without_messages(counted)))
    if not rows and id is not None:
        raise no_such_conversation(", ".join(files), id, ids)
    if only is not None:
        report_notes(only[0])
    if as_json:
        described = [_count_value(name, counted) for name, _, counted in rows]
        if only is not None:
            described[0]["by_message"] = [_row(only[1], index) for index in range(len(only[1].messages))]
        show_json(described)
    elif only is not None:
        _show_one(*only, all_rows)
    else:
        _show_many(rows)
    if check and any(counted.total > counted.window for *_, counted in rows):
        raise typer.Exit(PROBLEM)


def _without_messages(counted: CountedConversation) -> CountedConversation:
    """The same without its messages: a folder may hold many conversations."""
    return replace(counted, messages=[], tokens=())


def _count_value(name: str, counted: CountedConversation) -> dict[str, Any]:
    return {
        "id": name,
        "model": counted.model,
        "dialect": counted.dialect,
        **counted.usage.breakdown(),
        "total": counted.usage.total,
        "margin": counted.margin,
        "window": counted.window,
        "fits": counted.total <= counted.window,
    }


def _row(counted: CountedConversation, index: int) -> dict[str, Any]:
    return {"index": index, "role": counted.messages[index].role, "tokens": counted.tokens[index]}


def _show_one(conversation: Conversation, counted: CountedConversation, all_rows: bool) -> None:
    from .._conversation.message import readable_text

    total = counted.usage.total
    layers = table("layer", ">tokens", ">share", "")
    for name, tokens in counted.usage.breakdown().items():
        layers.add_row(name, f"{tokens:,}", f"{tokens / total:.1%}", bar(tokens / total, 24))
    layers.add_row(
        "total", f"{total:,}", f"{total / counted.window:.1%}", f"of {counted.window:,}, {_room_text(counted)}"
    )
    size = len(counted.messages)
    chosen = sorted(range(size), key=lambda index: -counted.tokens[index])[: size if all_rows else _LARGEST]
    most = max(counted.tokens, default=1)
    rows = table(">#", "role", ">tokens", ">share", "", "begins with", wide="begins with")
    for index in sorted(chosen):
        message, tokens = counted.messages[index], counted.tokens[index]
        text = one_line(readable_text(message))
        rows.add_row(f"{index:,}", message.role, f"{tokens:,}", f"{tokens / total:.1%}", bar(tokens / most), text)
    few = f"the {_LARGEST} largest of {size:,} messages (--all shows each)"
    show(
        f"{one_line(conversation.source)}, {counted.dialect}, {counted.model}{_margin_text(counted)}",
        "",
        layers,
        "",
        few if len(chosen) < size else f"{size:,} messages",
        rows,
    )


def _room_text(counted: CountedConversation) -> str:
    over = counted.total - counted.window
    return f"{over:,} over" if over > 0 else f"{-over:,} free"


def _margin_text(counted: CountedConversation) -> str:
    return f" (its tokenizer is not public: up to {counted.margin:.0%} more)" if counted.margin else ""


def _show_many(rows: list[tuple[str, int, CountedConversation]]) -> None:
    layers = [name for name in ("system", "developer", "tools_schema") if any(getattr(w.usage, name) for *_, w in rows)]
    shown = table(
        "conversation", ">messages", *(f">{name}" for name in layers), ">tokens", ">of window", "", wide="conversation"
    )
    for name, size, counted in rows:
        share = counted.total / counted.window
        parts = (f"{getattr(counted.usage, layer):,}" for layer in layers)
        shown.add_row(one_line(name), f"{size:,}", *parts, f"{counted.usage.total:,}", f"{share:.0%}", bar(share, 8))
    over = sum(counted.total > counted.window for *_, counted in rows)
    total = sum(counted.usage.total for *_, counted in rows)
    show(shown, "", f"{plural(len(rows), 'conversation')}, {total:,} tokens; {over:,} over their window")
