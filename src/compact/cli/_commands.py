"""All commands, in the order in which the help lists them.

Owns: the list of the modules that hold them. Must never: hold a command itself.
"""
# ruff: noqa: I001 - the order is the help's

from __future__ import annotations

from . import _count, _plan, _fold, _past, _lab, _serve, _doctor, _setup  # noqa: F401 - each adds its commands to the app
from ._app import app

__all__ = ["app"]
