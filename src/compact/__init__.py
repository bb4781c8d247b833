"""Keep an agent's conversation inside its model's window, and everything that matters in it.

from compact import CompactConfig, CompactManager

manager = CompactManager(CompactConfig(model="gpt-4o"))
messages = manager.preflight(session_id, messages)      # before each model call
"""

from __future__ import annotations

from ._compaction.laws import LAWS
from ._compaction.plan import Clip, Fold, Plan
from ._compaction.trigger import Decision
from ._conversation.message import History, Message
from ._engine.manager import CompactManager, SessionView
from ._engine.one_shot import compact_messages
from ._events.event import Event
from ._redaction import redact
from ._summary.request import Ask
from .config import AgentConfig, CompactConfig
from .config.sections import Policy
from .errors import CompactError, InsufficientBudget

__version__ = "0.1.0"

__all__ = [
    "LAWS",
    "AgentConfig",
    "Ask",
    "Clip",
    "CompactConfig",
    "CompactError",
    "CompactManager",
    "Decision",
    "Event",
    "Fold",
    "History",
    "InsufficientBudget",
    "Message",
    "Plan",
    "Policy",
    "SessionView",
    "compact_messages",
    "redact",
]
