"""The types of configuration fields with their ranges, and the error text when a value does not fit.

Owns: the types that sections are made of, and the wording of every problem with a value.
Must never: depend on a section or its defaults (`sections` has them), or show the value of an unknown field.

Rules:
- 0 or none switches a threshold off. A boolean is never a number: YAML reads `no` as false, and false is not 0.
- A problem is one line: field path, value given, what is allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from ..errors import ConfigError

__all__ = [
    "NUMBER",
    "OFF",
    "AllowedText",
    "Amount",
    "Count",
    "CountOrNone",
    "CountOrOff",
    "Expression",
    "Prices",
    "Rate",
    "Score",
    "Seconds",
    "Share",
    "ShareOrOff",
    "SummarySize",
    "Text",
    "TextOrNone",
    "describe_field",
    "explain_problems",
    "parse_switch",
    "plain_mapping",
    "unknown_name",
]

MAX_PROBLEMS = 50
"""Problems of one section that an error lists."""


class AllowedText(NamedTuple):
    """What a field allows, in words, where its type and bounds do not show it."""

    text: str


def _reject_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("bool_as_number", "a boolean is not a number")
    return value


def _zero_as_none(value: Any) -> Any:
    try:
        return None if float(_reject_boolean(value)) == 0 else value
    except (TypeError, ValueError, OverflowError):
        return value


def plain_mapping(value: Any) -> Any:
    """Any mapping as a dict whose keys are text; anything else is left to validation."""
    if not isinstance(value, Mapping):
        return value
    for name in value:
        if not isinstance(name, str):
            raise ConfigError(f"{_format_value(name)}: unknown field; the name of a field is text")
    return dict(value)


def parse_switch(value: Any) -> Any:
    """A section that may be switched on with its defaults, or off."""
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.strip().lower(), value)
    if isinstance(value, bool):
        return {} if value else None
    return plain_mapping(value)


def _validate_expression(value: str) -> str:
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(
            f"{_format_value(value)} is not a regular expression ({error}); correct it or leave it out"
        ) from None
    return value


def _parse_prices(value: Any) -> Any:
    if isinstance(value, str):  # from the environment
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    return plain_mapping(value)


NUMBER = BeforeValidator(_reject_boolean)
OFF = BeforeValidator(_zero_as_none)

Amount = Annotated[int, Field(ge=0), NUMBER]
Count = Annotated[int, Field(ge=1), NUMBER]
CountOrNone = Annotated[int | None, Field(ge=1), NUMBER]
CountOrOff = Annotated[int | None, Field(ge=1), OFF]
Rate = Annotated[float, Field(ge=0), NUMBER]
Seconds = Annotated[float, Field(gt=0), NUMBER]
SummarySize = Annotated[int, Field(ge=16), NUMBER]
Share = Annotated[float, Field(gt=0, le=1), NUMBER]
ShareOrOff = Annotated[float | None, Field(gt=0, le=1), OFF]
Score = Annotated[float, Field(ge=0, le=100), NUMBER]
Text = Annotated[str, Field(min_length=1)]
TextOrNone = Annotated[str | None, Field(min_length=1)]
Expression = Annotated[str, AfterValidator(_validate_expression)]
Prices = Annotated[
    dict[Text, tuple[Rate, Rate]],
    BeforeValidator(_parse_prices),
    AllowedText("a mapping of models to two numbers of at least 0: dollars per million tokens, input and output"),
]


def explain_problems(model: type[BaseModel], error: ValidationError, names: Mapping[str, str] | None = None) -> str:
    """The problems of one model, one line each; `names` maps what a misspelt name may have meant to how it is shown."""
    names = names or {name: name for name in model.model_fields}
    problems = error.errors(include_url=False)
    lines = [line for problem in problems[:MAX_PROBLEMS] for line in _describe_problem(model, problem, names)]
    if len(problems) > MAX_PROBLEMS:
        lines.append(f"and {len(problems) - MAX_PROBLEMS} problems more; correct these first")
    return "\n".join(lines)


def _describe_problem(model: type[BaseModel], problem: ErrorDetails, names: Mapping[str, str]) -> Iterator[str]:
    place = problem["loc"]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        yield from (f"{path}.{line}" if path else line for line in str(cause).splitlines())
    elif problem["type"] == "extra_forbidden":
        yield unknown_name(path, str(place[-1]), names)
    elif cause is not None:
        yield f"{path}: {cause}"
    elif problem["type"] != "default_factory_not_called":  # only the echo of another field's problem
        allowed = describe_field(model.model_fields[str(place[0])])
        yield f"{path}: {_format_value(problem['input'])} given; must be {allowed}"


def unknown_name(path: str, name: str, names: Mapping[str, str]) -> str:
    """The line for an unknown name. It shows no value: an unknown field may hold a key."""
    from difflib import get_close_matches

    close = get_close_matches(name, names, n=1)
    here = ", ".join(known for known, said in names.items() if known == said)
    return f"{path}: unknown field; " + (f"did you mean {names[close[0]]}?" if close else f"known are {here}")


def describe_field(field: FieldInfo) -> str:
    """What a field takes, in words: "greater than 0 and at most 1", "one of clip, raise"."""
    for note in field.metadata:
        if isinstance(note, AllowedText):
            return note.text
    kinds = get_args(field.annotation) if get_origin(field.annotation) is UnionType else (field.annotation,)
    words = " ".join(_describe_type(kind, field.metadata) for kind in kinds if kind is not NoneType)
    if OFF in field.metadata:
        return f"{words}, or 0 or none for off"
    return f"{words}, or none" if NoneType in kinds else words


def _describe_type(kind: Any, notes: list[Any]) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return f"a section with the fields {', '.join(kind.model_fields)}"
    if kind in (int, float):
        bounds = " and ".join(filter(None, map(_describe_bound, notes)))
        return ", ".join(filter(None, ("a whole number" if kind is int else "" if bounds else "a number", bounds)))
    if kind is str:
        return "text that is not empty" if any(hasattr(note, "min_length") for note in notes) else "text"
    if kind is bool:
        return "true or false"
    return "a list of text" if get_origin(kind) is tuple else "a mapping of names to sections"


def _describe_bound(note: Any) -> str:
    words = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
    return " ".join(f"{word} {getattr(note, sign)}" for sign, word in words.items() if hasattr(note, sign))


def _format_value(value: Any) -> str:
    """A value as the user may have written it; what is long or holds other values is only named."""
    if isinstance(value, int) and value.bit_length() > 64:
        return "a huge number"
    if value is None or isinstance(value, int | float):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(value if len(value) <= 40 else f"{value[:37]}...")
    return "a mapping" if isinstance(value, Mapping) else f"a value of type {type(value).__name__}"
