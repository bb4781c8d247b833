"""The sections of the configuration: their fields, defaults and ranges.

Owns: the models of the sections except `proxy`, and how fields of one section must agree.
Must never: read a file, the environment or the clock, or know where values come from (`config` does).

Rules:
- A value is immutable, and an unknown name is refused: a misspelt field must not pass as a default.
- A section that cannot be built raises `ConfigError`, one line per problem.
- Which fields were set (`model_fields_set`) is kept apart from their values, so that a default which follows from
  another field changes with that field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from ..errors import ConfigError
from .fields import (
    NUMBER,
    OFF,
    AllowedText,
    Amount,
    Count,
    CountOrOff,
    Expression,
    Prices,
    Score,
    Share,
    ShareOrOff,
    SummarySize,
    Text,
    TextOrNone,
    explain_problems,
    parse_switch,
)

__all__ = [
    "IN_PLACE_TOKEN_THRESHOLD",
    "LAYOUTS",
    "SUMMARY_TAG",
    "ClearToolOutputs",
    "Layout",
    "Policy",
    "RedactionPolicy",
    "Section",
    "StoragePolicy",
    "SummaryPolicy",
    "TracingPolicy",
]

LAYOUTS = ("layered", "in_place", "rolling")
"""The layouts that come with the library."""

SUMMARY_TAG = "COMPACT-SUMMARY"
"""The default of `summary.summary_tag`."""

IN_PLACE_TOKEN_THRESHOLD = 60_000
"""`token_threshold` of the `in_place` layout when the user does not set it."""


def _validate_layout(value: Any) -> Any:
    if value in LAYOUTS if isinstance(value, str) else callable(value):
        return value
    raise PydanticCustomError("layout", "not a layout")


Layout = Annotated[
    Literal["layered", "in_place", "rolling"] | Callable[..., Any],
    PlainValidator(_validate_layout),
    AllowedText(f"one of {', '.join(LAYOUTS)}, or a callable (messages, policy) -> plan"),
]


class Section(BaseModel):
    """What all sections share: frozen, no unknown names, and every error a `ConfigError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(explain_problems(type(self), error)) from None


class ClearToolOutputs(Section):
    """Old tool outputs become stubs before anything is summarized."""

    keep: Count = 3
    """Newest tool blocks whose outputs stay whole."""
    exclude_tools: tuple[str, ...] = ()
    """Tools whose outputs are never cleared."""
    at_least: Amount = 0
    """Tokens that clearing must save; below it nothing is cleared, so that the prompt cache stays valid."""


class Policy(Section):
    """When to compact, what stays, and what happens when it fails."""

    layout: Layout = "layered"
    """How the messages to compact are chosen: one of the built-in layouts, or your own callable."""
    trigger_pct: ShareOrOff = 0.85
    """Share of the window at which a compaction is due."""
    target_pct: Share = 0.7
    """Share of the limit that was reached, at which `in_place` stops compacting."""
    hard_cap_buffer: Amount = 1500
    """Tokens of the window kept free for the next input and tool results."""
    reserve_output: Amount = 0
    """Tokens of the window kept free for the model's answer."""
    prepare_pct: Annotated[float | None, Field(gt=0, lt=1), OFF] = None
    """Share of the window at which a summary is written in advance."""
    token_threshold: CountOrOff = Field(
        default_factory=lambda values: IN_PLACE_TOKEN_THRESHOLD if values.get("layout") == "in_place" else None
    )
    """Tokens at which a compaction is due; 60,000 for `in_place` unless set."""
    message_threshold: CountOrOff = None
    """Messages since the last compaction at which a compaction is due."""
    turn_threshold: CountOrOff = None
    """Turns since the last compaction at which a compaction is due."""
    keep_recent_turns: Count = 6
    """Turns whose user and plain assistant messages stay (`layered`)."""
    keep_tool_io_pairs: Count = 4
    """Newest tool blocks that stay (`layered`)."""
    retention_window: Count = 6
    """Newest messages that are never compacted (`in_place`)."""
    window_rounds: Count = 6
    """Newest rounds that stay verbatim (`rolling`)."""
    roles_never_prune: tuple[str, ...] = ("system", "developer")
    """Roles whose messages are pinned."""
    strategy: Literal["task_state", "decision_log", "code_delta", "brief"] = "task_state"
    """How a summary is written."""
    on_failure: Literal["prune", "extract", "raise"] = "prune"
    """What happens when no usable summary is available."""
    oversized: Literal["clip", "raise"] = "clip"
    """What happens to a tool result that does not fit even alone."""
    clear_tool_outputs: Annotated[
        ClearToolOutputs | None,
        BeforeValidator(parse_switch),
        AllowedText("true, false, or a section with the fields keep, exclude_tools, at_least"),
    ] = None
    """Clear old tool outputs first; true takes the defaults, false or none is off."""

    @model_validator(mode="after")
    def _check_thresholds(self) -> Self:
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
        """The name of the layout; of a callable, its own name."""
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
    temperature: Annotated[float, Field(ge=0, le=2), NUMBER] = 0.0
    """Sampling temperature of the summarizer."""
    seed: Annotated[int, NUMBER] = 42
    """Seed sent to the summarizer."""
    prompt: TextOrNone = None
    """Instructions that replace those of the strategy."""
    summary_tag: Annotated[
        str,
        Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$"),
        AllowedText("a tag name: a letter, then letters, digits, hyphens or underscores"),
    ] = SUMMARY_TAG
    """Tag that encloses the model's answer and marks a summary."""
    max_retries: Amount = 2
    """How often a retryable failure is retried."""
    timeout: Annotated[float, Field(gt=0), NUMBER] = 60.0
    """Seconds one call may take."""
    min_compression_ratio: Annotated[float, Field(ge=0, lt=1), NUMBER] = 0.0
    """Share of the compacted tokens that a summary must save."""
    measure: bool = True
    """Whether each summary is measured against the facts of its messages, and repaired; off is faster."""
    min_score: Score = 70.0
    """Fidelity score below which a summary is repaired."""
    refuse_below: Score = 0.0
    """Fidelity score below which a summary has failed even after repair."""
    max_input_tokens: Annotated[int | None, Field(ge=16), NUMBER] = None
    """The summarizer's window; larger requests are split into parts."""
    prices: Prices = Field(default_factory=dict)
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
    """What is removed from everything that is stored or exported."""

    enabled: bool = True
    """Whether secrets are replaced by `<REDACTED>`."""
    patterns: tuple[Expression, ...] = ()
    """Regular expressions to redact besides the built-in ones."""
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
