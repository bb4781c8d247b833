"""The policies that a search may try.

Owns: the fields that are searched and their values, drawing a candidate, and its neighbours.
Must never: run anything, or leave the ranges that the configuration allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from ..config import CompactConfig

Changes = dict[str, Any]
"""Fields and their values, by the flat names that `CompactConfig.changed` takes."""

_SIZES = (256, 512, 1024, 2048, 4096, 8192)
_COUNTS = (1, 2, 3, 4, 6, 8, 12)

_ALWAYS: Mapping[str, tuple[Any, ...]] = {
    "trigger_pct": (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.96, 1.0),
    "max_tokens": _SIZES,
    "strategy": ("task_state", "brief", "code_delta", "decision_log"),
}
_BY_LAYOUT: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "layered": {"keep_recent_turns": _COUNTS, "keep_tool_io_pairs": _COUNTS, "clear_tool_outputs": (False, True)},
    "rolling": {"window_rounds": _COUNTS, "context_max_tokens": _SIZES},
    "in_place": {"target_pct": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8), "retention_window": (2, 3, 4, 6, 8, 12, 16)},
}
_OFTEN = {"layout": ("layered", "layered", "rolling", "rolling", "in_place"), "strategy": ("task_state",) * 3}
"""Values that are drawn more often, because they were better more often on real logs."""


def draw(random: Random) -> Changes:
    """Draw a candidate."""
    layout = random.choice(_OFTEN["layout"])
    fields = {**_ALWAYS, **_BY_LAYOUT[layout]}
    chosen = {name: random.choice((*values, *_OFTEN.get(name, ()))) for name, values in fields.items()}
    return {"layout": layout, **chosen}


def neighbours(changes: Changes) -> Iterator[Changes]:
    """The candidates one step away in one field."""
    layout = changes.get("layout", "layered")
    for name, values in {**_ALWAYS, **_BY_LAYOUT[layout]}.items():
        at = values.index(changes[name]) if changes.get(name) in values else None
        if at is None:
            continue
        near = range(len(values)) if name == "strategy" else (at - 1, at + 1)
        yield from ({**changes, name: values[i]} for i in near if 0 <= i < len(values) and i != at)


def changed_fields(start: CompactConfig, changes: Changes) -> Changes:
    """The fields of a candidate that differ from the start of the search."""
    return {name: value for name, value in changes.items() if value != value_of(start, name)}


def value_of(config: CompactConfig, name: str) -> Any:
    """The value of a searched field in a configuration."""
    value = getattr(config.policy if hasattr(config.policy, name) else config.summary, name)
    return value is not None if name == "clear_tool_outputs" else value
