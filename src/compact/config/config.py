"""The configuration: put together from arguments, environment, file and defaults, and changed at run time.

Owns: `CompactConfig`, and which value wins.
Must never: define what a field of a section means or allows (that is `config.sections`, `config.proxy_section`,
`config.fields`), read
the
environment (that is `config.environment`) or parse a file (that is `config.config_file`), or look anywhere it is not
told to.

Rules:
- Explicit arguments beat the environment, the environment beats the file, the file beats the defaults, field by field.
- Configs are frozen. A change makes a new one from what was set before, and never looks at the environment again.
- Every failure is a `ConfigError` with one line per problem.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from ..errors import ConfigError
from .agents import AgentConfig, modern_agent
from .config_file import read_config_file
from .environment import SECTIONS, SET_BY, blame_variables, find_file, from_environment, without
from .fields import CountOrNone, explain, plain_mapping, unknown_name
from .limits import limits_for
from .model_catalog import window_of
from .proxy_section import ProxyPolicy
from .sections import Policy, RedactionPolicy, Section, StoragePolicy, SummaryPolicy, TracingPolicy

__all__ = ["CompactConfig"]


class CompactConfig(BaseSettings):
    """The whole configuration. Sections may be given as models or as dicts; each documents its own fields."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", defer_build=True)

    model: str = Field("gpt-4o", min_length=1)
    """The model whose context is kept; it decides the tokenizer and the window."""
    max_context_tokens: CountOrNone = None
    """The window in tokens; none takes the known window of the model."""
    counter: Literal["tiktoken", "chars"] = "tiktoken"
    """How tokens are counted: exactly, or as characters divided by four."""
    policy: Policy = Field(default_factory=Policy)
    """When to fold, what stays, and what happens when it fails."""
    summary: SummaryPolicy = Field(default_factory=SummaryPolicy)
    """Who writes summaries, how long they may be, and what is accepted."""
    storage: StoragePolicy = Field(default_factory=StoragePolicy)
    """Where transcripts and summaries are archived."""
    redaction: RedactionPolicy = Field(default_factory=RedactionPolicy)
    """What is taken out of everything that is stored or exported."""
    tracing: TracingPolicy = Field(default_factory=TracingPolicy)
    """Where events go."""
    proxy: ProxyPolicy = Field(default_factory=ProxyPolicy)
    """Where the proxy listens, where it sends what it gets, and what it holds at most."""
    agents: dict[str, AgentConfig] = Field(default_factory=dict)
    """Agents by name, each with settings of its own when it has a `compact` block."""

    def __init__(self, /, **values: Any) -> None:
        orders = [unknown_name(name, name, _known_names()) for name in values if name.startswith("_")]
        if orders:  # to BaseSettings these are not fields but orders, such as reading secrets from a folder
            raise ConfigError("\n".join(orders))
        given: dict[str, Any] = {
            name: _given(value) if isinstance(value, SECTIONS.get(name, ())) else value
            for name, value in values.items()
        }
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise ConfigError(blame_variables(explain(CompactConfig, error, _known_names()), given)) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then our own reading of the environment; the stock sources do not know our flat names."""
        return init_settings, InitSettingsSource(settings_cls, init_kwargs=from_environment())

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> Self:
        """The configuration from the file named, else from the first of `FILE_NAMES` found, else without a file."""
        file = find_file(path)
        if file is None:
            return cls()
        values = without(read_config_file(file), from_environment())
        try:
            return cls(**values)
        except ConfigError as error:
            lines = [line if SET_BY in line else f"{line} (in {file.name})" for line in str(error).splitlines()]
            raise ConfigError("\n".join(lines)) from None

    def changed(self, /, **flat: Any) -> Self:
        """A new configuration with some values changed: names of `policy` and `summary` fields, `max_context_tokens`,
        `counter`, or sections with dicts that are merged into them. `model` is the summarizer's (L30)."""
        return self._rebuilt(_placed(flat), self.model_fields_set)

    def for_agent(self, name: str) -> Self:
        """The configuration of one agent: its `compact` block over this one, or this one when it has no block."""
        if name not in self.agents:
            known = ", ".join(self.agents) or "none"
            raise ConfigError(f"agents.{name}: no such agent; known are {known}; name one of them or add it to agents")
        block = self.agents[name].compact
        if block is None:
            return self
        return self._rebuilt(_placed({**_given(block), "layout": block.layout}), self.model_fields_set - {"agents"})

    @property
    def window(self) -> int:
        """Tokens the model takes: `max_context_tokens`, or what is known of the model."""
        return self.max_context_tokens or window_of(self.model)

    @property
    def budget(self) -> int:
        """Tokens that may be sent: the window less the buffer and less the room for the answer."""
        return self.window - self.policy.hard_cap_buffer - self.policy.reserve_output

    @property
    def trigger_line(self) -> int:
        """Tokens at which a fold is due: `trigger_pct` of the window, never above the budget; off, the budget."""
        lines = limits_for(self.policy, self.window)
        return self.budget if lines.share is None else lines.share

    def _rebuilt(self, changes: Mapping[str, Any], kept: Iterable[str]) -> Self:
        values = {name: getattr(self, name) for name in kept}
        for name, change in changes.items():
            is_section = name in SECTIONS or name == "agents"
            values[name] = {**_given(getattr(self, name)), **change} if is_section else change
        new = type(self).__new__(type(self))
        try:
            BaseModel.__init__(new, **values)  # not BaseSettings: a change must not read the environment again
        except ValidationError as error:
            raise ConfigError(explain(CompactConfig, error, _known_names())) from None
        return new

    @field_validator(*SECTIONS, mode="before")
    @classmethod
    def _accept_mappings(cls, section: Any) -> Any:
        return plain_mapping(section)

    @field_validator("agents", mode="before")
    @classmethod
    def _accept_transforms(cls, agents: Any) -> Any:
        return (
            {name: modern_agent(agent, name) for name, agent in agents.items()}
            if isinstance(agents, Mapping)
            else agents
        )

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
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


def _given(value: Any) -> dict[str, Any]:
    """What was set in a section, or the entries of a mapping; defaults stay out, so that they stay defaults."""
    if isinstance(value, Section):
        return {name: getattr(value, name) for name in value.model_fields_set}
    return dict(value)


def _placed(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Flat names sorted into their sections."""
    placed: dict[str, Any] = {}
    for name, value in flat.items():
        section = next((s for s in ("policy", "summary") if name in SECTIONS[s].model_fields), None)
        if section is not None:
            placed.setdefault(section, {})[name] = value
        elif name in ("max_context_tokens", "counter"):
            placed[name] = value
        elif name not in (*SECTIONS, "agents"):
            names = [*Policy.model_fields, *SummaryPolicy.model_fields, "max_context_tokens", "counter", *SECTIONS]
            raise ConfigError(unknown_name(name, name, {known: known for known in names}))
        elif isinstance(value, Section | Mapping):
            placed.setdefault(name, {}).update(_given(value))
        else:
            raise ConfigError(
                f"{name}: a value of type {type(value).__name__} given; must be a mapping of field names to values"
            )
    return placed


@cache
def _known_names() -> Mapping[str, str]:
    """What a misspelt name at the top may have meant, and where it belongs."""
    names = {name: name for name in CompactConfig.model_fields}
    for section, model in SECTIONS.items():
        names = {**{field: f"{section}.{field}" for field in model.model_fields}, **names}
    return names
