"""Untrusted text made safe to stand in a prompt.

Owns: what is removed or replaced in a message before a summarizer reads it.
Must never: make a text unreadable, or add a token to it.

- Characters that a reader does not see are removed; every way to end a line becomes one.
- The tag of a summary, and the tokens that separate roles in chat templates, lose their first bracket.
- Every line but the first starts with a space, so that no line of it begins with a label, a mark or a role.
"""

from __future__ import annotations

import re

from .marker import disarm_marker

_INVISIBLE = {
    **dict.fromkeys([*range(32), *range(127, 160), 0x200B, 0x2060, 0xFEFF, *range(0x202A, 0x202F)]),
    **dict.fromkeys([*range(0x2066, 0x206A), *range(0xE0000, 0xE0080)]),
    **dict.fromkeys([10, 11, 12, 13, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029], "\n"),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
    9: "\t",
}
_TEMPLATE_MARK = (
    r"<(?=[|｜][^<>\n]{1,60}[|｜]>)"
    r"|<(?=/?(?:s|bos|eos|pad|unk|mask|sop|eop|(?:start|end)_of_turn|think|tool_(?:call|response))>)"
    r"|<(?=</?SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_(?:CALLS|RESULTS|CONTENT)|[gs]MASK)\])"
)


def drop_invisible(text: str) -> str:
    """The text without characters that a reader does not see, and with one kind of line end."""
    return text.translate(_INVISIBLE)


def escape_untrusted(text: str, tag: str) -> str:
    """The text for the inside of a fence: as readable as before, and nothing in it reads as a mark."""
    seen = drop_invisible(text.replace("\r\n", "\n"))
    seen = disarm_marker(re.sub(_TEMPLATE_MARK, "‹", seen), tag)
    return re.sub(r"\n(?!\n)", "\n ", seen)
