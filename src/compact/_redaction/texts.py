"""One text without its secrets.

Owns: the order in which the finders run, and that valid JSON stays valid.
Must never: hand a finder more than one slice, or return a text that a finder failed on.
"""

from __future__ import annotations

import json
from typing import Any

from .assignments import without_assigned
from .beside import without_vendor_values
from .coded import without_coded
from .private_keys import without_private_keys
from .shapes import without_framed
from .slices import in_slices
from .tables import without_columns
from .vendor_tokens import without_vendor_tokens

__all__ = ["json_value", "keeps_json", "without_secrets"]


def without_secrets(text: str) -> str:
    """The text with what the built-in rules know replaced; the same object when it holds none."""
    if len(text) < 6:
        return text
    redacted = in_slices(without_private_keys(text), _slice)
    return text if redacted == text else redacted


def _slice(text: str) -> str:
    known = without_columns(without_framed(without_vendor_tokens(text)))
    return without_assigned(without_coded(without_vendor_values(known)))


def keeps_json(before: Any, after: Any) -> bool:
    """Whether all that was JSON before is JSON still, at any depth of JSON inside JSON."""
    if isinstance(before, str) and isinstance(after, str):
        if before == after or (meant := json_value(before)) is None:
            return True
        return (now := json_value(after)) is not None and keeps_json(meant, now)
    if isinstance(before, dict) and isinstance(after, dict):
        before, after = list(before.values()), list(after.values())
    if isinstance(before, list) and isinstance(after, list):
        return all(map(keeps_json, before, after))
    return True


def json_value(text: str) -> Any:
    """What a text means if it is JSON of a container or a string; None otherwise."""
    ends = text[:64].lstrip()[:1] + text[-64:].rstrip()[-1:]
    if ends not in ("{}", "[]", '""'):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
