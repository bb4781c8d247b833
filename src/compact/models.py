"""Summarizers under their public import path.

Owns: the name `compact.models`.
Must never: define anything; `compact.summarizers` does.
"""

from __future__ import annotations

from .summarizers import Summarizer, Written, offline_summarizer, summarizer_for

__all__ = ["Summarizer", "Written", "offline_summarizer", "summarizer_for"]
