"""Reading the fields and content parts of a message, in every format.

Owns: reading a field of any object, how content parts become text, and the tokens of media.
Must never: know which fields a provider puts where on a message, change an object of the application, or put content
in an error.

Rules:
- Media never count as text: each part adds a marker (`[image]`) to the text and a fixed number of tokens.
- A part of an unknown kind is described in one line rather than refused: providers add kinds every month.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InvalidMessage
from ..message import as_mapping, fields_or_text

MEDIA_TOKENS: Mapping[str, int] = {
    "image_low": 85,
    "image": 765,
    "anthropic_image": 1_568,
    "audio": 500,
    "file": 1_500,
}
"""Tokens of one media part. Providers charge by size and detail, which a part does not have: these are typical."""

_TEXT_FIELD = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
}
_FILES = frozenset({"file", "input_file", "document", "container_upload"})
_UNREAD = frozenset({"type", "id", "status", "meta", "cache_control", "encrypted_content", "encrypted_index"})
_ENCRYPTED = r',?"encrypted_\w+":"([^"]*)"'
_BASE64 = r"data:[\w/+.-]{1,100};base64,[A-Za-z0-9+/=_-]*"


def fields_of(raw: Any, what: str = "A message") -> Mapping[str, Any]:
    """The fields of a message or of one of its parts, whatever kind of object it is."""
    if type(raw) is dict:
        return raw
    try:
        return as_mapping(raw)
    except RecursionError:
        raise
    except Exception as error:  # code of the application runs here, and it may raise anything
        raise InvalidMessage(
            f"{what} must be a mapping or an object with fields, and a {type(raw).__name__} could not be read as one."
        ) from error


def list_of(value: Any, what: str) -> Sequence[Any]:
    """A list field: absent and null count as an empty list."""
    if value is None:
        return ()
    if isinstance(value, (list, tuple)):
        return value
    raise InvalidMessage(f"{what} must be a list, not {type(value).__name__}.")


def text_of(fields: Mapping[str, Any], key: str) -> str:
    """A text field: absent and null count as empty."""
    value = fields.get(key)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise InvalidMessage(f"The field {key!r} must be text, not {type(value).__name__}.")


def json_text(value: Any) -> str:
    """Arguments as text: text as it is, anything else as compact JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=fields_or_text)
    except RecursionError:
        raise
    except Exception as error:  # code of the application runs here, and it may raise anything
        raise InvalidMessage(f"A {type(value).__name__} cannot be written as JSON; send it as text.") from error


def describe_item(kind: str, fields: Mapping[str, Any]) -> tuple[str, int]:
    """An item as one line without ids and file contents, and the tokens of its encrypted fields."""
    shown = (f"{key}={json_text(value)}" for key, value in fields.items() if value is not None and key not in _UNREAD)
    line = " ".join(re.sub(_BASE64, "[file]", ", ".join(shown)).split())
    weight = encrypted_tokens(text_of(fields, "encrypted_content"))
    weight += sum(map(encrypted_tokens, re.findall(_ENCRYPTED, line)))
    line = re.sub(_ENCRYPTED, "", line)
    return f"[{kind}: {line}]" if line else f"[{kind}]", weight


def encrypted_tokens(text: str) -> int:
    """Tokens behind an encrypted text: it is about six characters for each."""
    return len(text) // 6


def content_text(content: Any) -> tuple[str, int]:
    """The text of a content field, and the tokens of its media. Content is text, a list of parts, or nothing."""
    if isinstance(content, str):
        return content, 0
    texts = []
    weight = 0
    for part in list_of(content, "Content that is not text"):
        text, tokens = part_text(part)
        weight += tokens
        if text:
            texts.append(text)
    return "\n".join(texts), weight


def part_text(part: Any) -> tuple[str, int]:
    """The text of one content part, and the tokens of its media."""
    if isinstance(part, str):
        return part, 0
    fields = fields_of(part, "A content part")
    kind = fields.get("type")
    if not isinstance(kind, str):
        raise InvalidMessage("A content part must have a `type` that is text.")
    if kind in _TEXT_FIELD:
        return text_of(fields, _TEXT_FIELD[kind]), 0
    if kind == "image":
        return "[image]", MEDIA_TOKENS["anthropic_image"]
    if kind in ("image_url", "input_image", "computer_screenshot"):
        image = fields.get("image_url")
        holder = fields if image is None or isinstance(image, str) else fields_of(image, "An image")
        return "[image]", MEDIA_TOKENS["image_low" if holder.get("detail") == "low" else "image"]
    if kind in ("input_audio", "audio", "output_audio"):
        return "[audio]", MEDIA_TOKENS["audio"]
    if kind in _FILES:
        return _file_text(kind, fields)
    if kind == "search_result":
        text, weight = content_text(fields.get("content"))
        return f"[search result: {text_of(fields, 'title')} {text_of(fields, 'source')}]\n{text}", weight
    return describe_item(kind, fields)


def _file_text(kind: str, fields: Mapping[str, Any]) -> tuple[str, int]:
    inner = fields.get("source") if kind == "document" else fields.get("file") if kind == "file" else None
    source = fields_of(inner, "A file") if inner is not None else {}
    names = (
        fields.get("title"),
        fields.get("filename"),
        source.get("filename"),
        fields.get("file_id"),
        source.get("file_id"),
    )
    name = next((name for name in names if isinstance(name, str) and name), "")
    marker = f"[file: {name}]" if name else "[file]"
    if source.get("type") == "text":
        return f"{marker}\n{text_of(source, 'data')}", 0
    if source.get("type") == "content":
        text, weight = content_text(source.get("content"))
        return f"{marker}\n{text}", weight
    return marker, MEDIA_TOKENS["file"]
