"""Values that stand beside nothing but a vendor's name.

Owns: `algolia: 0f3c…`, where the value must look as if a machine had made it.
Must never: take an id, a digest or a word.
"""

from __future__ import annotations

import re

from .assigned_values import harmless, looks_random
from .mark import REDACTED
from .names import names_a_vendor

__all__ = ["without_vendor_values"]

_VALUE = re.compile(r"[=:](?:=|>)?[ \t]{0,4}\\{0,3}[\"'`]?(?P<value>[A-Za-z0-9_-]{24,128})(?![A-Za-z0-9_/+.@:-])")
_NAME = re.compile(r"(?<![\w.-])[A-Za-z][\w.-]{1,40}(?=\\{0,3}[\"']?\]?[ \t]{0,8}\Z)")


def without_vendor_values(text: str) -> str:
    """The text with such values replaced."""
    return _VALUE.sub(_unless_named_otherwise, text)


def _unless_named_otherwise(match: re.Match[str]) -> str:
    at, value = match.start(), match["value"]
    name = _NAME.search(match.string[max(0, at - 48) : at])
    if not name or not names_a_vendor(name[0]) or not looks_random(value, 24) or harmless(value):
        return match[0]
    return match[0][: match.start("value") - at] + REDACTED
