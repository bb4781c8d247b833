"""The configuration: its sections and fields, where their values come from, and what follows from them.

Owns: `CompactConfig`, its sections, the catalogue of models, the token limits of a call.
Must never: decide about a conversation, or look for files outside the working folder that were not named.
"""

from __future__ import annotations

from .agents import AgentCompact, AgentConfig
from .config import CompactConfig
from .environment import FILE_NAMES, environment_variables, origins
from .model_catalog import window_of

__all__ = [
    "FILE_NAMES",
    "AgentCompact",
    "AgentConfig",
    "CompactConfig",
    "environment_variables",
    "origins",
    "window_of",
]
