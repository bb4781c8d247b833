"""What a conversation weighs in tokens.

Owns: choosing a counter for a model, the wire cost of a message and of a list of tools, `Usage`, and reading what a
provider reported. Pure but for the token table, which `counter_for` loads at first use.
Must never: know a provider's message format (a dialect has read it), decide whether anything is due, or use a network.

Rules (OpenAI's published counting rules, which reproduce its API's own numbers for its examples):
- A message costs 3, plus its role and its text, plus its name and 1 when it has one. A tool call in it costs 3, plus
  name and arguments. A tool's answer costs its text; ids cost nothing. `Message.weight` (images, files) comes on top.
- The reply is primed with 3 tokens, once per list: `REPLY_PRIMER`, in `Usage.messages`.
- A tool costs an opening (by model family), its name and description, and its parameters; the list ends with 12.
- Text is only ever text: `<|endoftext|>` in a message counts as the characters it consists of.
- A model whose table is not public is counted with the nearest one, and the tally states a `margin`: the share by
  which the true number may be higher. Counts leave here without it; whoever compares them with a limit adds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

from ._messages import Message, as_mapping
from ._tables import encoder
from .errors import ConfigError, InvalidMessage

__all__ = [
    "REPLY_PRIMER",
    "Counter",
    "Tally",
    "Usage",
    "counter_for",
    "message_tokens",
    "reported_input",
    "tools_tokens",
]

Counter = Callable[[str], int]
"""Anything that says how many tokens a text has."""

PER_MESSAGE = 3
PER_NAME = 1
PER_CALL = 3
REPLY_PRIMER = 3

TOOL_OPENING = 7
TOOL_OPENING_CL100K = 10
PROPERTIES = 3
PROPERTY = 3
ENUM = -3
ENUM_ITEM = 3
TOOLS_END = 12

MARGIN_CLAUDE = 0.20
MARGIN_OTHER = 0.10
CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Tally:
    """A counter with what is known of it. `exact` when it is the model's own table; else see `margin`."""

    count: Counter
    encoding: str
    margin: float = 0.0
    exact: bool = False
    encoder: str = ""
    """Who counts with a table: "tiktoken", or "toktok" where the extra `fast` is installed."""
    roles: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What the role words cost, filled as they are met: every message has one, and there are five."""


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


def counter_for(name: str, model: str) -> Tally:
    """The tally that the counter `name` ("tiktoken" or "chars") gives for a model; loads the table it needs."""
    if name == "chars":
        return Tally(lambda text: len(text) // CHARS_PER_TOKEN, "chars")
    if name != "tiktoken":
        raise ConfigError(f"counter is {name!r}. Choose 'tiktoken', or 'chars' for characters divided by 4.")
    table, margin = _table_for(model)
    chosen = encoder(table)
    return Tally(_in_slices(chosen.count), table, margin, exact=margin == 0, encoder=chosen.name)


def message_tokens(message: Message, tally: Tally) -> int:
    """What one message costs on the wire."""
    count = tally.count
    role = tally.roles.get(message.role)
    if role is None:
        role = tally.roles[message.role] = count(message.role)
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


def tools_tokens(tools: Sequence[Any] | None, tally: Tally, model: str) -> int:
    """What a list of tools costs, in any provider's shape; a tool that has no schema costs its JSON."""
    opening = TOOL_OPENING_CL100K if _table_for(model)[0] == "cl100k_base" else TOOL_OPENING
    functions = 0
    total = 0
    for tool in tools or ():
        # Reading a host's object may run any code of the host, and a tool that cannot be read must not stop a request.
        try:
            function = _function(tool)
        except Exception:
            function = None
        if function is None:
            total += tally.count(_text(tool))
        else:
            functions += 1
            total += opening + _function_tokens(function, tally.count)
    return total + (TOOLS_END if functions else 0)


def reported_input(usage: Any) -> int:
    """The input tokens a provider reported: a number, a usage object or dict, or a response that has one.

    OpenAI counts cached tokens in, Anthropic reports them beside; here they are always in.
    """
    if isinstance(usage, int):
        return _tokens(usage, "usage")
    for holder in (usage, _get(usage, "usage")):
        prompt = _get(holder, "prompt_tokens")
        if prompt is not None:
            return _tokens(prompt, "prompt_tokens")
        fresh = _get(holder, "input_tokens")
        if fresh is None:
            continue
        total = _tokens(fresh, "input_tokens")
        if _get(holder, "input_tokens_details") is None:
            for cached in ("cache_read_input_tokens", "cache_creation_input_tokens"):
                total += _tokens(_get(holder, cached) or 0, cached)
        return total
    raise InvalidMessage(
        f"No input tokens can be read from a {type(usage).__name__}: it has neither prompt_tokens nor input_tokens, "
        f"nor a usage that has. Pass the provider's usage, its whole response, or the number of input tokens."
    )


# The model's table


@lru_cache(maxsize=64)
def _table_for(model: str) -> tuple[str, float]:
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
_CUT = re.compile(r"(?<=[A-Za-z])(?= [A-Za-z])|(?<=\n)(?=[A-Za-z])")


def _in_slices(count_slice: Counter) -> Counter:
    """A counter that takes long text in parts: tiktoken panics on a million blanks and slows down on long runs.

    The parts are the same whoever counts them, and so is their sum. Text without a single natural place to cut is cut
    anyway, which can cost a few tokens in 100,000 characters.
    """

    def count(text: str) -> int:
        if len(text) <= _SLICE:
            return count_slice(text)
        total = start = 0
        while start < len(text):
            end = start + _SLICE
            if end < len(text) and (cut := _CUT.search(text, end - _CUT_SEARCH, end)):
                end = cut.start()
            total += count_slice(text[start:end])
            start = end
        return total

    return count


# Tools

_SCHEMA_NAMES = ("parameters", "input_schema", "inputSchema", "params_json_schema")
_MAX_DEPTH = 24
_UNNAMED = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_FREE = frozenset(
    {*_UNNAMED, *_LISTS, *_NAMED, "type", "description", "enum", "required", "title", "$schema", "strict"},
)
"""Keywords that are counted by a rule of their own, or that a provider does not show to the model."""


def _function(tool: Any) -> dict[str, Any] | None:
    """A function tool as name, description and parameters, in plain JSON values; None when it is another kind."""
    outer = as_mapping(tool)
    inner = outer.get("function")
    body = as_mapping(inner) if inner else outer
    schema = next((body[key] for key in _SCHEMA_NAMES if body.get(key) is not None), None)
    if not body.get("name") or (schema is None and outer.get("type") != "function"):
        return None
    function = {"name": body["name"], "description": body.get("description") or "", "parameters": schema}
    # Through JSON and back, so that what follows walks a finite tree of plain values, whatever the host passed.
    plain: dict[str, Any] = json.loads(_json(function))
    return plain


def _function_tokens(function: dict[str, Any], count: Counter) -> int:
    line = _line(function["name"], function["description"])
    return count(line) + _schema_tokens(function["parameters"], count, _MAX_DEPTH)


def _schema_tokens(schema: Any, count: Counter, depth: int) -> int:
    """What stands inside a JSON schema; its own type and description belong to the line that names it."""
    if not isinstance(schema, dict):
        return 0
    if depth == 0:
        return count(_text(schema))
    total = 0
    for keyword in _NAMED:
        named = schema.get(keyword)
        if isinstance(named, dict) and named:
            total += PROPERTIES
            for name, inner in named.items():
                total += PROPERTY + _line_tokens(name, inner, count, depth)
    for keyword in _LISTS:
        alternatives = schema.get(keyword)
        if isinstance(alternatives, list):
            total += sum([_line_tokens("", inner, count, depth) for inner in alternatives])
    total += sum([_line_tokens("", schema[keyword], count, depth) for keyword in _UNNAMED if keyword in schema])
    items = schema.get("enum")
    if isinstance(items, list) and items:
        total += ENUM + sum([ENUM_ITEM + count(item if isinstance(item, str) else _text(item)) for item in items])
    rest = {keyword: value for keyword, value in schema.items() if keyword not in _FREE}
    return total + (count(_text(rest)) if rest else 0)


def _line_tokens(name: str, schema: Any, count: Counter, depth: int) -> int:
    """One property or nested schema: the line that shows it, `name:type:description`, and what it holds."""
    if not isinstance(schema, dict):
        return count(name)
    kind = schema.get("type", "")
    shown = "|".join(map(str, kind)) if isinstance(kind, list) else str(kind)
    line = _line(name, shown, schema.get("description"))
    return count(line) + _schema_tokens(schema, count, depth - 1)


def _line(*parts: Any) -> str:
    """What there is of a name, a type and a description, as the model sees it: without the last full stop."""
    return ":".join([str(part) for part in parts if part]).removesuffix(".")


def _json(value: Any) -> str:
    return json.dumps(value, default=_fields)


def _fields(value: Any) -> Any:
    """A value that JSON does not know: its fields, or its text when it has none."""
    try:
        return dict(as_mapping(value))
    except TypeError:
        return str(value)


def _text(value: Any) -> str:
    """Any value as JSON, else as text, else as the name of its type: what cannot be written cannot be sent either."""
    writers: tuple[Callable[[Any], str], ...] = (_json, str)
    for write in writers:
        try:
            return write(value)
        except Exception:  # noqa: S112 - the next writer is tried
            continue
    return type(value).__name__


# Reported usage


def _get(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _tokens(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidMessage(f"{name} is a {type(value).__name__}. Pass a whole number of tokens, 0 or more.")
    if value < 0:
        raise InvalidMessage(f"{name} is {value}. Pass a whole number of tokens, 0 or more.")
    return value
