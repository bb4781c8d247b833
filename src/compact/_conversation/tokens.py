"""Counting the tokens of messages.

Owns: choosing a counter for a model, the tokens of a message, `Usage`, and reading what a provider reported; the tokens
of tools are counted in `tool_schemas`. Pure but for the token table, which `counter_for` loads at first use.
Must never: know a provider's message format (`formats` has read it), decide whether anything is due, or use a network.

Rules (OpenAI's published counting rules, which reproduce its API's own numbers for its examples):
- A message costs 3, plus its role and its text, plus its name and 1 when it has one. A tool call in it costs 3, plus
  name and arguments. A tool's answer costs its text; ids cost nothing. `Message.weight` (images, files) is added.
- The reply is primed with 3 tokens, once per list: `REPLY_PRIMER`, in `Usage.messages`.
- Special tokens in a text count as text: `<|endoftext|>` counts as the characters it consists of.
- A model whose table is not public is counted with the nearest one, and the counter has a `margin`: the share by which
  the true number may be higher. Counts do not include it; add it before you compare them with a limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

from ..errors import ConfigError, InvalidMessage
from .message import Message
from .tables import encoder

Counter = Callable[[str], int]
"""A function that counts the tokens of a text."""

PER_MESSAGE = 3
PER_NAME = 1
PER_CALL = 3
REPLY_PRIMER = 3

MARGIN_CLAUDE = 0.20
MARGIN_OTHER = 0.10
CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """A counter with what is known of it. `exact` when it is the model's own table; else see `margin`."""

    count: Counter
    encoding: str
    margin: float = 0.0
    exact: bool = False
    encoder: str = ""
    """The library that counts: "tiktoken", or "toktok" where the extra `fast` is installed."""
    roles: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Tokens of the role names, cached: every message has one, and there are five."""


class Usage(NamedTuple):
    """Tokens of a request by where they come from. `messages` includes the primer of the reply, once."""

    system: int = 0
    developer: int = 0
    tools_schema: int = 0
    messages: int = 0

    @property
    def total(self) -> int:
        """Tokens of the whole request."""
        return self.system + self.developer + self.tools_schema + self.messages

    def scaled(self, factor: float) -> Usage:
        """The same usage where each token counts `factor`, rounded up."""
        if factor == 1:
            return self
        return Usage(*(ceil(part * factor) for part in self))

    def breakdown(self) -> dict[str, int]:
        """The parts by name."""
        return {
            "system": self.system,
            "developer": self.developer,
            "tools_schema": self.tools_schema,
            "messages": self.messages,
        }


def counter_for(name: str, model: str) -> TokenCounter:
    """The counter `name` ("tiktoken" or "chars") for a model; loads the table it needs."""
    if name == "chars":
        return TokenCounter(lambda text: len(text) // CHARS_PER_TOKEN, "chars")
    if name != "tiktoken":
        raise ConfigError(f"counter is {name!r}. Choose 'tiktoken', or 'chars' for characters divided by 4.")
    table, margin = table_for(model)
    chosen = encoder(table)
    return TokenCounter(_in_slices(chosen.count), table, margin, exact=margin == 0, encoder=chosen.name)


def message_tokens(message: Message, counter: TokenCounter) -> int:
    """Tokens of one message in a request."""
    count = counter.count
    role = counter.roles.get(message.role)
    if role is None:
        role = counter.roles[message.role] = count(message.role)
    total = PER_MESSAGE + role + message.weight
    if message.text:
        total += count(message.text)
    if message.name or message.calls or message.answers or message.hidden:
        total += count(message.name) + PER_NAME if message.name else 0
        for call in message.calls:
            total += PER_CALL + count(call.name) + count(call.arguments)
        for answer in message.answers:
            total += count(answer.text)
        total += count(message.hidden)
    return total


def reported_input(usage: Any) -> int:
    """The input tokens a provider reported: a number, a usage object or dict, or a response that has one.

    OpenAI includes cached tokens, Anthropic reports them separately; here they are always included.
    """
    if isinstance(usage, int):
        return _check_tokens(usage, "usage")
    for holder in (usage, _read_field(usage, "usage")):
        prompt = _read_field(holder, "prompt_tokens")
        if prompt is not None:
            return _check_tokens(prompt, "prompt_tokens")
        fresh = _read_field(holder, "input_tokens")
        if fresh is None:
            continue
        total = _check_tokens(fresh, "input_tokens")
        if _read_field(holder, "input_tokens_details") is None:
            for cached in ("cache_read_input_tokens", "cache_creation_input_tokens"):
                total += _check_tokens(_read_field(holder, cached) or 0, cached)
        return total
    raise InvalidMessage(
        f"No input tokens can be read from a {type(usage).__name__}: it has neither prompt_tokens nor input_tokens, "
        f"nor a usage that has. Pass the provider's usage, its whole response, or the number of input tokens."
    )


# The model's table


@lru_cache(maxsize=64)
def table_for(model: str) -> tuple[str, float]:
    """The table to count a model with, and its margin: 0 when it is the model's own."""
    from tiktoken.model import encoding_name_for_model

    name = model.lower()
    # A name may carry a provider, a fine-tune's owner or a variant: openai/gpt-4o, ft:gpt-4.1:org, gpt-oss:20b.
    for part in re.split("[/:@]", name):
        # tiktoken knows some families only by a prefix that ends in a hyphen.
        for candidate in (part, f"{part}-"):
            try:
                found = encoding_name_for_model(candidate)
            except KeyError:
                continue
            if found == "cl100k_base":
                return "cl100k_base", 0.0
            if found in ("o200k_base", "o200k_harmony"):
                return "o200k_base", 0.0
            return "cl100k_base", MARGIN_OTHER
    return "o200k_base", MARGIN_CLAUDE if "claude" in name else MARGIN_OTHER


_SLICE = 100_000
_CUT_SEARCH = 4_000
# Places where both encodings split anyway, so that the parts add up to the whole.
_CUT = r"(?<=[A-Za-z])(?= [A-Za-z])|(?<=\n)(?=[A-Za-z])"


def _in_slices(count_slice: Counter) -> Counter:
    """A counter that takes long text in parts: tiktoken panics on a million blanks and slows down on long runs.

    The parts do not depend on the counter. Text without a natural place to cut is cut anyway, which can add a few
    tokens per 100,000 characters.
    """

    def count(text: str) -> int:
        if len(text) <= _SLICE:
            return count_slice(text)
        total = start = 0
        while start < len(text):
            end = start + _SLICE
            if end < len(text) and (cut := re.compile(_CUT).search(text, end - _CUT_SEARCH, end)):
                end = cut.start()
            total += count_slice(text[start:end])
            start = end
        return total

    return count


# Reported usage


def _read_field(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _check_tokens(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidMessage(f"{name} is a {type(value).__name__}. Pass a whole number of tokens, 0 or more.")
    if value < 0:
        raise InvalidMessage(f"{name} is {value}. Pass a whole number of tokens, 0 or more.")
    return value
