"""The sections of the configuration as values: what may be set, its default, its range, and how a problem is told.

Owns: the models of the sections, and the wording of their errors.
Must never: read a file, the environment or the clock, or know where values come from (that is `config`).

Rules:
- A value is immutable, and an unknown name is refused: a misspelt field must not pass as a default.
- 0 or none switches a threshold off. A boolean is never a number: YAML reads `no` as false, and false is not 0.
- A section that cannot be built raises `ConfigError`, one line per problem: field path, value given, what is allowed.
- What a field was *given* (`model_fields_set`) is kept apart from what it *is*, so that a default which follows
  from another field moves along when that field changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from .errors import ConfigError

__all__ = [
    "IN_PLACE_TOKEN_THRESHOLD",
    "LAYOUTS",
    "ClearToolOutputs",
    "CountOrNone",
    "Layout",
    "Policy",
    "RedactionPolicy",
    "Section",
    "StoragePolicy",
    "SummaryPolicy",
    "TracingPolicy",
    "allowed",
    "explain",
    "plain_mapping",
    "unknown_name",
]

LAYOUTS = ("layered", "in_place", "rolling")
"""The layouts that come with the library."""

IN_PLACE_TOKEN_THRESHOLD = 60_000
"""`token_threshold` of the `in_place` layout when the user does not set it."""

MAX_PROBLEMS = 50
"""Problems of one section that an error spells out."""


@dataclass(frozen=True, slots=True)
class _Says:
    """What a field allows, in words, where its type and bounds cannot tell."""

    text: str


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("bool_as_number", "a boolean is not a number")
    return value


def _number_or_off(value: Any) -> Any:
    try:
        return None if float(_number(value)) == 0 else value
    except (TypeError, ValueError, OverflowError):
        return value


def _layout(value: Any) -> Any:
    if value in LAYOUTS if isinstance(value, str) else callable(value):
        return value
    raise PydanticCustomError("layout", "not a layout")


def plain_mapping(value: Any) -> Any:
    """Any mapping as a dict whose keys are text; what is no mapping is left to validation."""
    if not isinstance(value, Mapping):
        return value
    for name in value:
        if not isinstance(name, str):
            raise ConfigError(f"{_shown(name)}: unknown field; the name of a field is text")
    return dict(value)


def _switch(value: Any) -> Any:
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.strip().lower(), value)
    if isinstance(value, bool):
        return {} if value else None
    return plain_mapping(value)


def _expression(value: str) -> str:
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{_shown(value)} is not a regular expression ({error}); mend it or leave it out") from None
    return value


def _priced(value: Any) -> Any:
    if isinstance(value, str):  # from the environment
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    return plain_mapping(value)


_NUMBER = BeforeValidator(_number)
_OFF = BeforeValidator(_number_or_off)

Amount = Annotated[int, Field(ge=0), _NUMBER]
Count = Annotated[int, Field(ge=1), _NUMBER]
CountOrNone = Annotated[int | None, Field(ge=1), _NUMBER]
CountOrOff = Annotated[int | None, Field(ge=1), _OFF]
Rate = Annotated[float, Field(ge=0), _NUMBER]
Seconds = Annotated[float, Field(gt=0), _NUMBER]
SummarySize = Annotated[int, Field(ge=16), _NUMBER]
Share = Annotated[float, Field(gt=0, le=1), _NUMBER]
ShareOrOff = Annotated[float | None, Field(gt=0, le=1), _OFF]
Score = Annotated[float, Field(ge=0, le=100), _NUMBER]
Text = Annotated[str, Field(min_length=1)]
TextOrNone = Annotated[str | None, Field(min_length=1)]
Layout = Annotated[
    Literal["layered", "in_place", "rolling"] | Callable[..., Any],
    PlainValidator(_layout),
    _Says(f"one of {', '.join(LAYOUTS)}, or a callable (messages, policy) -> plan"),
]


class Section(BaseModel):
    """What all sections share: frozen, no unknown names, and errors in the words of this library."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(explain(type(self), error)) from None


class ClearToolOutputs(Section):
    """Old tool outputs become stubs before anything is summarized."""

    keep: Count = 3
    """Newest tool blocks whose outputs stay whole."""
    exclude_tools: tuple[str, ...] = ()
    """Tools whose outputs are never cleared."""
    at_least: Amount = 0
    """Tokens that clearing must gain; below it nothing is cleared, so the prompt cache is not broken for little."""


class Policy(Section):
    """When to fold, what stays, and what happens when it fails."""

    layout: Layout = "layered"
    """How folds are chosen: one of the built-in layouts, or your own callable."""
    trigger_pct: ShareOrOff = 0.85
    """Share of the window at which a fold is due."""
    target_pct: Share = 0.7
    """Share of the line that fired, at which `in_place` stops folding."""
    hard_cap_buffer: Amount = 1500
    """Tokens of the window kept free for the next input and tool results."""
    reserve_output: Amount = 0
    """Tokens of the window kept free for the model's answer."""
    prepare_pct: Annotated[float | None, Field(gt=0, lt=1), _OFF] = None
    """Share of the window at which a summary is written ahead of need."""
    token_threshold: CountOrOff = Field(
        default_factory=lambda given: IN_PLACE_TOKEN_THRESHOLD if given.get("layout") == "in_place" else None
    )
    """Tokens at which a fold is due; 60,000 for `in_place` unless set."""
    message_threshold: CountOrOff = None
    """Messages since the last fold at which a fold is due."""
    turn_threshold: CountOrOff = None
    """Turns since the last fold at which a fold is due."""
    keep_recent_turns: Count = 6
    """Turns whose user and plain assistant messages stay (`layered`)."""
    keep_tool_io_pairs: Count = 4
    """Newest tool blocks that stay (`layered`)."""
    retention_window: Count = 6
    """Newest messages that are never folded (`in_place`)."""
    window_rounds: Count = 6
    """Newest rounds that stay verbatim (`rolling`)."""
    roles_never_prune: tuple[str, ...] = ("system", "developer")
    """Roles whose messages are pinned."""
    strategy: Literal["task_state", "decision_log", "code_delta", "brief"] = "task_state"
    """How a summary is written."""
    on_failure: Literal["prune", "extract", "raise"] = "prune"
    """What happens when no usable summary can be had."""
    oversized: Literal["clip", "raise"] = "clip"
    """What happens to a tool result that does not fit even alone."""
    clear_tool_outputs: Annotated[
        ClearToolOutputs | None,
        BeforeValidator(_switch),
        _Says("true, false, or a section with the fields keep, exclude_tools, at_least"),
    ] = None
    """Clear old tool outputs first; true takes the defaults, false or none is off."""

    @model_validator(mode="after")
    def _lines_agree(self) -> Self:
        if not any((self.trigger_pct, self.token_threshold, self.message_threshold, self.turn_threshold)):
            raise ConfigError(
                "trigger_pct: off, and token_threshold, message_threshold and turn_threshold are off too; "
                "must leave at least one of the four on, or nothing would ever be compacted"
            )
        if self.prepare_pct and self.trigger_pct and self.prepare_pct >= self.trigger_pct:
            raise ConfigError(
                f"prepare_pct: {self.prepare_pct} given; must be greater than 0 and less than "
                f"trigger_pct ({self.trigger_pct}), or 0 or none for off"
            )
        return self

    @property
    def layout_name(self) -> str:
        """What the layout is called; a callable of the user's has a name too."""
        layout = self.layout
        return layout if isinstance(layout, str) else getattr(layout, "__name__", type(layout).__name__)


class SummaryPolicy(Section):
    """Who writes summaries, how long they may be, and what is accepted."""

    provider: Literal["extract", "openai", "anthropic"] = "extract"
    """Who writes: `extract` works offline and needs no model."""
    model: TextOrNone = None
    """The summarizer's model; none takes the provider's default."""
    base_url: TextOrNone = None
    """Address of an API that speaks the provider's format."""
    max_tokens: SummarySize = 2048
    """Tokens a summary may have."""
    context_max_tokens: SummarySize = 1500
    """Tokens above which `rolling` shrinks its compressed context."""
    temperature: Annotated[float, Field(ge=0, le=2), _NUMBER] = 0.0
    """Sampling temperature of the summarizer."""
    seed: Annotated[int, _NUMBER] = 42
    """Seed sent to the summarizer."""
    prompt: TextOrNone = None
    """Instructions that take the place of the strategy's own."""
    summary_tag: Annotated[
        str,
        Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$"),
        _Says("a tag name: a letter, then letters, digits, hyphens or underscores"),
    ] = "COMPACT-SUMMARY"
    """Tag that encloses the model's answer and marks a summary."""
    max_retries: Amount = 2
    """Times a retryable failure is tried again."""
    timeout: Annotated[float, Field(gt=0), _NUMBER] = 60.0
    """Seconds one call may take."""
    min_compression_ratio: Annotated[float, Field(ge=0, lt=1), _NUMBER] = 0.0
    """Share of the folded tokens that a summary must save."""
    measure: bool = True
    """Whether each summary is measured against the facts of what folds, and repaired; off makes long folds quicker."""
    min_score: Score = 70.0
    """Fidelity score below which a summary is repaired."""
    refuse_below: Score = 0.0
    """Fidelity score below which a summary has failed even after repair."""
    max_input_tokens: Annotated[int | None, Field(ge=16), _NUMBER] = None
    """The summarizer's own window; larger folds go in chunks."""
    prices: Annotated[
        dict[Text, tuple[Rate, Rate]],
        BeforeValidator(_priced),
        _Says("a mapping of models to two numbers of at least 0: dollars per million tokens, input and output"),
    ] = Field(default_factory=dict)
    """Prices of models in US dollars per million tokens, input and output, besides those the library knows."""


class StoragePolicy(Section):
    """Where transcripts and summaries are archived."""

    adapter: Literal["fs", "s3", "none"] = "fs"
    """The store: files, S3, or none at all."""
    path: Text = ".compact/archive"
    """Folder of the `fs` store."""
    bucket: TextOrNone = None
    """Bucket of the `s3` store."""
    prefix: str = ""
    """What the keys of the `s3` store begin with."""
    kms_key_id: TextOrNone = None
    """Key that encrypts objects of the `s3` store."""
    endpoint_url: TextOrNone = None
    """Address of a service that speaks S3."""


class RedactionPolicy(Section):
    """What is taken out of everything that is stored or exported."""

    enabled: bool = True
    """Whether secrets are replaced by `<REDACTED>`."""
    patterns: tuple[Annotated[str, AfterValidator(_expression)], ...] = ()
    """Regular expressions redacted besides the built-in ones."""
    allow_unredacted_export: bool = False
    """Let events leave this machine although redaction is off."""


class TracingPolicy(Section):
    """Where events go."""

    console: bool = False
    """Print events to the terminal."""
    jsonl: TextOrNone = None
    """File that events are appended to."""
    ariadne_url: TextOrNone = None
    """Base address of an Ariadne server; `/ingest` is added."""
    otlp_endpoint: TextOrNone = None
    """Address of an OpenTelemetry collector."""
    capture_content: bool = False
    """Put message text into OpenTelemetry and SDK spans."""


def explain(model: type[BaseModel], error: ValidationError, names: Mapping[str, str] | None = None) -> str:
    """The problems of one model, one line each; `names` are what a misspelt name may have meant, and how to say it."""
    names = names or {name: name for name in model.model_fields}
    problems = error.errors(include_url=False)
    lines = [line for problem in problems[:MAX_PROBLEMS] for line in _lines(model, problem, names)]
    if len(problems) > MAX_PROBLEMS:
        lines.append(f"and {len(problems) - MAX_PROBLEMS} problems more; mend these first")
    return "\n".join(lines)


def _lines(model: type[BaseModel], problem: ErrorDetails, names: Mapping[str, str]) -> Iterator[str]:
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
        yield f"{path}: {_shown(problem['input'])} given; must be {allowed(model.model_fields[str(place[0])])}"


def unknown_name(path: str, name: str, names: Mapping[str, str]) -> str:
    """The line for a name nobody knows. It shows no value: an unknown field may well hold a key."""
    close = get_close_matches(name, names, n=1)
    here = ", ".join(known for known, said in names.items() if known == said)
    return f"{path}: unknown field; " + (f"did you mean {names[close[0]]}?" if close else f"known are {here}")


def allowed(field: FieldInfo) -> str:
    """What a field takes, in words: "greater than 0 and at most 1", "one of clip, raise"."""
    for note in field.metadata:
        if isinstance(note, _Says):
            return note.text
    kinds = get_args(field.annotation) if get_origin(field.annotation) is UnionType else (field.annotation,)
    words = " ".join(_kind(kind, field.metadata) for kind in kinds if kind is not NoneType)
    if _OFF in field.metadata:
        return f"{words}, or 0 or none for off"
    return f"{words}, or none" if NoneType in kinds else words


def _kind(kind: Any, notes: list[Any]) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return f"a section with the fields {', '.join(kind.model_fields)}"
    if kind in (int, float):
        bounds = " and ".join(filter(None, map(_bound, notes)))
        return ", ".join(filter(None, ("a whole number" if kind is int else "" if bounds else "a number", bounds)))
    if kind is str:
        return "text that is not empty" if any(hasattr(note, "min_length") for note in notes) else "text"
    if kind is bool:
        return "true or false"
    return "a list of text" if get_origin(kind) is tuple else "a mapping of names to sections"


def _bound(note: Any) -> str:
    words = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
    return " ".join(f"{word} {getattr(note, sign)}" for sign, word in words.items() if hasattr(note, sign))


def _shown(value: Any) -> str:
    """A value as the user may have written it; what is long or holds other values is only named."""
    if isinstance(value, int) and value.bit_length() > 64:
        return "a huge number"
    if value is None or isinstance(value, int | float):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(value if len(value) <= 40 else f"{value[:37]}...")
    return "a mapping" if isinstance(value, Mapping) else f"a value of type {type(value).__name__}"
