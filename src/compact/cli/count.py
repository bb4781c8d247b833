"""What conversations weigh.

Owns: `count`, and how a conversation is weighed. Must never: change or store anything, or hold many conversations.
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

__all__ = ["CountedConversation", "count_conversation"]

_LARGEST = 20
"""Messages that `count` shows unless it is asked for all."""


@dataclass(frozen=True, slots=True)
class CountedConversation:
    """What a conversation weighs, as counted; `margin` is the share by which the provider's number may be higher."""

    messages: list[Message]
    tokens: list[int]
    usage: Usage
    window: int
    model: str
    dialect: str
    margin: float

    @property
    def total(self) -> int:
        """Tokens of the whole request, the margin included: what is compared with the window."""
        return self.usage.scaled(1 + self.margin).total


def count_conversation(conversation: Conversation, config: CompactConfig) -> CountedConversation:
    """Count a conversation."""
    from .._conversation.tokens import REPLY_PRIMER, Usage, counter_for
    from .._conversation.tool_schemas import tools_tokens
    from .._session.entries import Reader

    tally = counter_for(config.counter, config.model)
    reader = Reader("auto", tally, None)
    reader.settle(conversation.messages, conversation.tools)
    messages = [reader.message(raw, index) for index, raw in enumerate(conversation.messages)]
    tokens = [reader.cost(message) for message in messages]
    by_role = {"system": 0, "developer": 0}
    rest = REPLY_PRIMER
    for message, cost in zip(messages, tokens, strict=True):
        if message.role in by_role:
            by_role[message.role] += cost
        else:
            rest += cost
    tools = tools_tokens(conversation.tools, tally, config.model) if conversation.tools else 0
    usage = Usage(by_role["system"], by_role["developer"], tools, rest)
    return CountedConversation(messages, tokens, usage, config.window, config.model, reader.dialect.name, tally.margin)


@app.command()
def count(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…", help="Conversations and logs: files, folders, patterns, s3://…, or - for a pipe."
        ),
    ],
    model: ModelName = None,
    window: Window = None,
    id: ConversationId = None,
    log_format: LogFormat = None,
    all_rows: AllRows = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 3 when one does not fit its window.")] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
    settings: Settings = None,
) -> None:
    """Count tokens: by layer and by message; of several conversations a line each.

    Example:  compact count chat.json
    """
    options = option_values(settings, model, window)
    rows: list[tuple[str, int, CountedConversation]] = []
    only: tuple[Conversation, CountedConversation] | None = None
    ids: list[str] = []
    for conversation in with_progress(read_conversations(files, log_format), "counting"):
        ids.append(conversation.id)
        if id is None or conversation.id == id:
            weighed = count_conversation(conversation, config_for(config, options, conversation))
            only = None if rows else (conversation, weighed)
            rows.append((conversation.id, len(weighed.messages), _without_messages(weighed)))
    if not rows and id is not None:
        raise no_such_conversation(", ".join(files), id, ids)
    if only is not None:
        report_notes(only[0])
    if as_json:
        described = [_count_value(name, weighed) for name, _, weighed in rows]
        if only is not None:
            described[0]["by_message"] = [_row(only[1], index) for index in range(len(only[1].messages))]
        show_json(described)
    elif only is not None:
        _show_one(*only, all_rows)
    else:
        _show_many(rows)
    if check and any(weighed.total > weighed.window for *_, weighed in rows):
        raise typer.Exit(PROBLEM)


def _without_messages(weighed: CountedConversation) -> CountedConversation:
    """Without the messages: a folder may hold many conversations."""
    return replace(weighed, messages=[], tokens=[])


def _count_value(name: str, weighed: CountedConversation) -> dict[str, Any]:
    return {
        "id": name,
        "model": weighed.model,
        "dialect": weighed.dialect,
        **weighed.usage.breakdown(),
        "total": weighed.usage.total,
        "margin": weighed.margin,
        "window": weighed.window,
        "fits": weighed.total <= weighed.window,
    }


def _row(weighed: CountedConversation, index: int) -> dict[str, Any]:
    return {"index": index, "role": weighed.messages[index].role, "tokens": weighed.tokens[index]}


def _show_one(conversation: Conversation, weighed: CountedConversation, all_rows: bool) -> None:
    from .._conversation.message import readable

    total = weighed.usage.total
    layers = table("layer", ">tokens", ">share", "")
    for name, tokens in weighed.usage.breakdown().items():
        layers.add_row(name, f"{tokens:,}", f"{tokens / total:.1%}", bar(tokens / total, 24))
    layers.add_row(
        "in all", f"{total:,}", f"{total / weighed.window:.1%}", f"of {weighed.window:,}, {_room_text(weighed)}"
    )
    size = len(weighed.messages)
    chosen = sorted(range(size), key=lambda index: -weighed.tokens[index])[: size if all_rows else _LARGEST]
    most = max(weighed.tokens, default=1)
    rows = table(">#", "role", ">tokens", ">share", "", "begins with", wide="begins with")
    for index in sorted(chosen):
        message, tokens = weighed.messages[index], weighed.tokens[index]
        text = one_line(readable(message))
        rows.add_row(f"{index:,}", message.role, f"{tokens:,}", f"{tokens / total:.1%}", bar(tokens / most), text)
    few = f"the {_LARGEST} largest of {size:,} messages (--all shows each)"
    show(
        f"{one_line(conversation.source)}, {weighed.dialect}, {weighed.model}{_margin_text(weighed)}",
        "",
        layers,
        "",
        few if len(chosen) < size else f"{size:,} messages",
        rows,
    )


def _room_text(weighed: CountedConversation) -> str:
    over = weighed.total - weighed.window
    return f"{over:,} over" if over > 0 else f"{-over:,} free"


def _margin_text(weighed: CountedConversation) -> str:
    return f" (its tokenizer is not public: up to {weighed.margin:.0%} more)" if weighed.margin else ""


def _show_many(rows: list[tuple[str, int, CountedConversation]]) -> None:
    layers = [name for name in ("system", "developer", "tools_schema") if any(getattr(w.usage, name) for *_, w in rows)]
    shown = table(
        "conversation", ">messages", *(f">{name}" for name in layers), ">tokens", ">of window", "", wide="conversation"
    )
    for name, size, weighed in rows:
        share = weighed.total / weighed.window
        parts = (f"{getattr(weighed.usage, layer):,}" for layer in layers)
        shown.add_row(one_line(name), f"{size:,}", *parts, f"{weighed.usage.total:,}", f"{share:.0%}", bar(share, 8))
    over = sum(weighed.total > weighed.window for *_, weighed in rows)
    total = sum(weighed.usage.total for *_, weighed in rows)
    show(shown, "", f"{plural(len(rows), 'conversation')}, {total:,} tokens; {over:,} over their window")
