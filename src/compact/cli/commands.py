"""Imports the modules of all commands, in the order in which the help lists them.

Owns: that order. Must never: define a command.
"""
# ruff: noqa: I001 - the order is the help's

from __future__ import annotations

from . import count, plan, compact_list, archive, replay, servers, doctor, configuration  # noqa: F401 - each adds its commands
from .app import app

__all__ = ["app"]
