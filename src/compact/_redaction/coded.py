"""Names and values between quotes that were escaped for HTML, for an address or for a script.

Owns: `&quot;password&quot;: &quot;…&quot;`, `%22password%22%3A%22…%22`, `\\u0022password\\u0022:…`.
Must never: take a part of an escape.
"""

from __future__ import annotations

import re

from .judge import is_secret
from .mark import REDACTED
from .names import telling

__all__ = ["without_coded"]

_SIGNS = ("&quot;", "&#3", "u002", "%22", "%27")
_PAIR = re.compile(
    r"(?P<before>(?P<quote>&(?:quot|\#34|\#39|\#x22|\#x27);|\\{1,8}u002[27]|%2[27])(?P<name>[\w.-]{2,64})(?P=quote)"
    r"(?:\s|%20|\+){0,4}(?:=>|:|=|%3A|%3D)(?:\s|%20|\+){0,4}(?P=quote))"
    r"(?P<value>(?:(?!(?P=quote))[^\s\"<>]){1,512})(?=(?P=quote))"
)


def without_coded(text: str) -> str:
    """The text with such values replaced."""
    return _PAIR.sub(_pair, text) if any(sign in text for sign in _SIGNS) else text


def _pair(match: re.Match[str]) -> str:
    strength = telling(match["name"])
    secret = strength and is_secret(match["name"], match["value"], strength)
    return match["before"] + REDACTED if secret else match[0]
