"""The configuration: built from arguments, environment, file and defaults, and changed at run time.

Owns: `CompactConfig`, and which value wins.
Must never: define what a field of a section means or allows (`config.sections`, `config.proxy_section` and
`config.fields` do), read the environment (`config.environment` does) or parse a file (`config.config_file` does).

Rules:
- Explicit arguments beat the environment, the environment beats the file, the file beats the defaults, field by field.
- Configs are frozen. A change makes a new one from what was set before, and never reads the environment again.
- Every failure is a `ConfigError` with one line per problem.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ..errors import ConfigError
from .agents import AgentConfig, rewrite_transforms
from .environment import SECTIONS, SET_BY, drop_names, find_file, name_variables, read_environment
from .fields import CountOrNone, explain_problems, plain_mapping, unknown_name
from .limits import limits_for
from .model_catalog import window_of
from .proxy_section import ProxyPolicy
from .sections import Policy, RedactionPolicy, Section, StoragePolicy, SummaryPolicy, TracingPolicy

__all__ = ["CompactConfig", "rebuild_config"]


class CompactConfig(BaseModel):
    """The whole configuration. Sections may be given as models or as dicts; each documents its own fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    model: str = Field("gpt-4o", min_length=1)
    """The model whose context is compacted; it decides the tokenizer and the window."""
    max_context_tokens: CountOrNone = None
    """The window in tokens; none takes the known window of the model."""
    counter: Literal["tiktoken", "chars"] = "tiktoken"
    """How tokens are counted: exactly, or as characters divided by four."""
    policy: Policy = Field(default_factory=Policy)
    """When to compact, what stays, and what happens when it fails."""
    summary: SummaryPolicy = Field(default_factory=SummaryPolicy)
    """Who writes summaries, how long they may be, and what is accepted."""
    storage: StoragePolicy = Field(default_factory=StoragePolicy)
    """Where transcripts and summaries are archived."""
    redaction: RedactionPolicy = Field(default_factory=RedactionPolicy)
    """What is removed from everything that is stored or exported."""
    tracing: TracingPolicy = Field(default_factory=TracingPolicy)
    """Where events go."""
    proxy: ProxyPolicy = Field(default_factory=ProxyPolicy)
    """Where the proxy listens, where it sends requests, and its limits."""
    agents: dict[str, AgentConfig] = Field(default_factory=dict)
    """Agents by name, with different settings for an agent that has a `compact` block."""

    def __init__(self, /, **values: Any) -> None:
        arguments: dict[str, Any] = {
            name: _explicit_values(value) if isinstance(value, SECTIONS.get(name, ())) else value
            for name, value in values.items()
        }
        try:
            super().__init__(**_merge(read_environment(), arguments))
        except ValidationError as error:
            raise ConfigError(
                name_variables(explain_problems(CompactConfig, error, _known_names()), arguments)
            ) from None

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> Self:
        """The configuration from the file named, else from the first of `FILE_NAMES` found, else without a file."""
        from .config_file import read_config_file  # here, because most programs configure in code

        file = find_file(path)
        if file is None:
            return cls()
        values = drop_names(read_config_file(file), read_environment())
        try:
            return cls(**values)
        except ConfigError as error:
            lines = [line if SET_BY in line else f"{line} (in {file.name})" for line in str(error).splitlines()]
            raise ConfigError("\n".join(lines)) from None

    def changed(self, /, **flat: Any) -> Self:
        """A new configuration with some values changed: names of `policy` and `summary` fields, `max_context_tokens`,
        `counter`, or sections with dicts that are merged into them. `model` is the summarizer's (L30)."""
        return rebuild_config(self, _sort_into_sections(flat))

    def for_agent(self, name: str) -> Self:
        """The configuration of one agent: its `compact` block over this one, or this one when it has no block."""
        if name not in self.agents:
            known = ", ".join(self.agents) or "none"
            raise ConfigError(f"agents.{name}: no such agent; known are {known}; name one of them or add it to agents")
        block = self.agents[name].compact
        if block is None:
            return self
        return rebuild_config(
            self, _sort_into_sections({**_explicit_values(block), "layout": block.layout}), dropped=("agents",)
        )

    @property
    def window(self) -> int:
        """Tokens the model takes: `max_context_tokens`, or what is known of the model."""
        return self.max_context_tokens or window_of(self.model)

    @property
    def budget(self) -> int:
        """Tokens that may be sent: the window less the buffer and less the tokens for the answer."""
        return self.window - self.policy.hard_cap_buffer - self.policy.reserve_output

    @property
    def trigger_line(self) -> int:
        """Tokens at which a compaction is due: `trigger_pct` of the window, never above the budget; off, the budget."""
        share = limits_for(self.policy, self.window).share
        return self.budget if share is None else share

    @field_validator(*SECTIONS, mode="before")
    @classmethod
    def _accept_mappings(cls, section: Any) -> Any:
        return plain_mapping(section)

    @field_validator("agents", mode="before")
    @classmethod
    def _accept_transforms(cls, agents: Any) -> Any:
        return (
            {name: rewrite_transforms(agent, name) for name, agent in agents.items()}
            if isinstance(agents, Mapping)
            else agents
        )

    @model_validator(mode="after")
    def _check_budget_and_agents(self) -> Self:
        buffer, output = self.policy.hard_cap_buffer, self.policy.reserve_output
        if self.budget <= 0:
            raise ConfigError(
                f"policy.hard_cap_buffer: {buffer} given, {buffer + output} tokens with reserve_output ({output}); "
                f"must be less than the window of {self.window} together: lower them or raise max_context_tokens"
            )
        problems = []
        for name in self.agents:
            try:
                self.for_agent(name)
            except ConfigError as error:
                problems += [f"agents.{name}.compact.{line.partition('.')[2]}" for line in str(error).splitlines()]
        if problems:
            raise ConfigError("\n".join(problems))
        return self


_Config = TypeVar("_Config", bound=CompactConfig)


def rebuild_config(config: _Config, changes: Mapping[str, Any], *, dropped: Iterable[str] = ()) -> _Config:
    """A new configuration with changes, nested as a file would have them, and without the values `dropped`."""
    values = {name: getattr(config, name) for name in config.model_fields_set.difference(dropped)}
    for name, change in changes.items():
        is_section = name in SECTIONS or name == "agents"
        values[name] = {**_explicit_values(getattr(config, name)), **change} if is_section else change
    new = type(config).__new__(type(config))
    try:
        BaseModel.__init__(new, **values)  # not CompactConfig's own: a change must not read the environment again
    except ValidationError as error:
        raise ConfigError(explain_problems(CompactConfig, error, _known_names())) from None
    return new


def _explicit_values(value: Any) -> dict[str, Any]:
    """What was set in a section, or the entries of a mapping; defaults are left out, so that they stay defaults."""
    if isinstance(value, Section):
        return {name: getattr(value, name) for name in value.model_fields_set}
    return dict(value)


def _merge(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Both in one, `upper` wins; mappings under one name are merged."""
    merged = {**lower, **upper}
    for name in lower.keys() & upper.keys():
        if isinstance(lower[name], dict) and isinstance(upper[name], dict):
            merged[name] = _merge(lower[name], upper[name])
    return merged


def _sort_into_sections(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Flat names and their values, nested by section."""
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        section = next((s for s in ("policy", "summary") if name in SECTIONS[s].model_fields), None)
        if section is not None:
            nested.setdefault(section, {})[name] = value
        elif name in ("max_context_tokens", "counter"):
            nested[name] = value
        elif name not in (*SECTIONS, "agents"):
            names = [*Policy.model_fields, *SummaryPolicy.model_fields, "max_context_tokens", "counter", *SECTIONS]
            raise ConfigError(unknown_name(name, name, {known: known for known in names}))
        elif isinstance(value, Section | Mapping):
            nested.setdefault(name, {}).update(_explicit_values(value))
        else:
            raise ConfigError(
                f"{name}: a value of type {type(value).__name__} given; must be a mapping of field names to values"
            )
    return nested


@cache
def _known_names() -> Mapping[str, str]:
    """What a misspelt top-level name may have meant, and where it belongs."""
    names = {name: name for name in CompactConfig.model_fields}
    for section, model in SECTIONS.items():
        names = {**{field: f"{section}.{field}" for field in model.model_fields}, **names}
    return names
