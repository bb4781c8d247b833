"""Keep an agent's conversation inside its model's window, and everything that matters in it.

from compact import CompactConfig, CompactManager

manager = CompactManager(CompactConfig(model="gpt-4o"))
messages = manager.preflight(session_id, messages)      # before each model call
"""

from __future__ import annotations

from ._asks import Ask
from ._events import Event
from ._laws import LAWS
from ._manager import CompactManager, SessionView
from ._messages import History, Message
from ._oneshot import compact_messages
from ._plan import Clip, Fold, Plan
from ._policy import Policy
from ._redact import redact
from ._trigger import Decision
from .config import AgentConfig, CompactConfig
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
