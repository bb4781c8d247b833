"""Counting the tokens of a list of tools.

Owns: `tools_tokens`, and the walk through a tool's JSON schema behind it.
Must never: count a message, or stop a request because a tool cannot be read.

Rules (OpenAI's published counting rules, which reproduce its API's own numbers for its examples):
- A tool costs an opening (by model family), its name and description, and its parameters; the list ends with 12.
- A tool that has no schema costs its JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from .message import as_mapping, fields_or_text
from .tokens import Counter, TokenCounter, table_for

TOOL_OPENING = 7
TOOL_OPENING_CL100K = 10
PROPERTIES = 3
PROPERTY = 3
ENUM = -3
ENUM_ITEM = 3
TOOLS_END = 12

_SCHEMA_NAMES = ("parameters", "input_schema", "inputSchema", "params_json_schema")
_MAX_DEPTH = 24
_UNNAMED = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_FREE = frozenset(
    {*_UNNAMED, *_LISTS, *_NAMED, "type", "description", "enum", "required", "title", "$schema", "strict"},
)
"""Keywords that another rule counts, or that a provider does not show to the model."""


def tools_tokens(tools: Sequence[Any] | None, counter: TokenCounter, model: str) -> int:
    """What a list of tools costs, in any provider's shape; a tool that has no schema costs its JSON."""
    opening = TOOL_OPENING_CL100K if table_for(model)[0] == "cl100k_base" else TOOL_OPENING
    functions = 0
    total = 0
    for tool in tools or ():
        # Reading an object may run any code of the application; a tool that cannot be read must not stop a request.
        try:
            function = _read_function(tool)
        except Exception:
            function = None
        if function is None:
            total += counter.count(_text(tool))
        else:
            functions += 1
            total += opening + _function_tokens(function, counter.count)
    return total + (TOOLS_END if functions else 0)


def _read_function(tool: Any) -> dict[str, Any] | None:
    """A function tool as name, description and parameters, in plain JSON values; None when it is another kind."""
    outer = as_mapping(tool)
    inner = outer.get("function")
    body = as_mapping(inner) if inner else outer
    schema = next((body[key] for key in _SCHEMA_NAMES if body.get(key) is not None), None)
    if not body.get("name") or (schema is None and outer.get("type") != "function"):
        return None
    function = {"name": body["name"], "description": body.get("description") or "", "parameters": schema}
    # Through JSON and back, so that what follows is a finite tree of plain values, whatever the application passed.
    plain: dict[str, Any] = json.loads(_json(function))
    return plain


def _function_tokens(function: dict[str, Any], count: Counter) -> int:
    line = _line(function["name"], function["description"])
    return count(line) + _schema_tokens(function["parameters"], count, _MAX_DEPTH)


def _schema_tokens(schema: Any, count: Counter, depth: int) -> int:
    """Tokens inside a JSON schema; its type and description belong to the line that names it."""
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
    return json.dumps(value, default=fields_or_text)


def _text(value: Any) -> str:
    """Any value as JSON, else as text, else as the name of its type: what cannot be written cannot be sent either."""
    writers: tuple[Callable[[Any], str], ...] = (_json, str)
    for write in writers:
        try:
            return write(value)
        except Exception:  # noqa: S112 - the next writer is tried
            continue
    return type(value).__name__
