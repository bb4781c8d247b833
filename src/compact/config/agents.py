"""The agents of a configuration, and the settings of an agent with a `compact` block.

Owns: `AgentConfig`, the block's model, and the old spelling of a block.
Must never: check a block without its base, which may hold what the block leaves out (`config` merges them).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Self

from pydantic import ConfigDict, model_validator

from .sections import Layout, Policy, Section, SummaryPolicy

__all__ = ["AgentCompact", "AgentConfig", "rewrite_transforms"]


class AgentCompact(Policy, SummaryPolicy):
    """The settings of one agent: every field of `policy` and `summary`, flat; the layout is `in_place` unless set."""

    layout: Layout = "in_place"
    """How the messages to compact are chosen for this agent."""

    @model_validator(mode="after")
    def _check_thresholds(self) -> Self:
        """A block is checked together with its base, which may hold what the block leaves out."""
        return self


class AgentConfig(Section):
    """One agent of the file. Only `compact` is read; `id`, `model`, `system_prompt` and the rest are left alone."""

    model_config = ConfigDict(extra="allow")

    compact: AgentCompact | None = None
    """The agent's settings; none takes the base configuration as it is."""

    @model_validator(mode="before")
    @classmethod
    def _accept_transforms(cls, values: Any) -> Any:
        return rewrite_transforms(values, values.get("id", "?")) if isinstance(values, Mapping) else values

    def merge(self, other: AgentConfig) -> AgentConfig:
        """Both in one: each key that `other` has set wins, its `compact` block whole; the rest stays."""
        return AgentConfig(**{**dict(self), **{name: value for name, value in other if value is not None}})


def rewrite_transforms(agent: Any, name: str) -> Any:
    """An agent's values with an old `transforms: [{type: assistant}]` entry turned into a `compact` block."""
    transforms = agent.get("transforms") if isinstance(agent, Mapping) else None
    entries = transforms if isinstance(transforms, list | tuple) else ()
    old = [entry for entry in entries if isinstance(entry, Mapping) and entry.get("type") == "assistant"]
    if not old:
        return agent
    warnings.warn(
        f"agents.{name}.transforms: the assistant transform is deprecated; write a compact block instead, "
        "with token_threshold for token_limit",
        DeprecationWarning,
        stacklevel=2,
    )
    names = {"token_limit": "token_threshold", "max_tokens": "max_tokens"}
    block = {names[key]: value for key, value in old[0].items() if key in names}
    rest = [entry for entry in entries if entry not in old]
    modern = {key: value for key, value in agent.items() if key != "transforms"}
    if modern.get("compact") is None:
        modern["compact"] = block
    return {**modern, "transforms": rest} if rest else modern
