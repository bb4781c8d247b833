"""Which files a tool call names, and what it did to them.

Owns: finding files in a call's fields, in patches and in shell commands, and the verb for each.
Must never: look at a tool's result, or rate what is worth keeping.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .text import clean, cut, lines_of

_LONGEST = 200
"""A path longer than this is data."""

_VERBS = {
    "deleted": ("delete", "remove", "rm", "unlink", "rmdir"),
    "created": ("create", "write", "new", "touch", "mkdir", "save", "add"),
    "changed": ("edit", "update", "replace", "patch", "insert", "modify", "append", "rename", "move", "mv", "sed"),
    "read": ("read", "view", "open", "cat", "get", "show", "list", "ls", "grep", "rg", "search", "glob", "find",
             "head", "tail", "wc", "less", "fetch", "cd"),
}  # fmt: skip
_VERB_OF = {word: verb for verb, words in _VERBS.items() for word in words}
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SHELL_BREAK = re.compile(r"&&|\|\||[;|\n]")
_FILE_LIKE = re.compile(r"(?![-\d.]+$)(?!https?:)[\w.@~+*/-]*(?:\w/[\w.@+*-]+|/|\.[A-Za-z]\w{0,5})")
_PATCHED = re.compile(r"^(?:\*\*\* (Update|Add|Delete) File: |\+\+\+ b/)(\S.{0,300})$", re.M)
_DEFINES = re.compile(
    r"^[ \t]{0,40}(?:(?:export|default|public|private|static|async|pub|abstract) ){0,3}"
    r"(?:def|class|func|function|fn|interface|type|struct|const)[ \t]{1,4}(?:\([^)\n]{0,60}\) )?(\w+)",
    re.M,
)


@dataclass(frozen=True, slots=True)
class FileUse:
    """A file that a tool call named, what the call did to it, and the text before and after where the call holds it."""

    path: str
    verb: str
    """read, changed, created, deleted; used where it is unknown."""
    old: str = ""
    new: str = ""


def find_file_uses(name: str, arguments: Mapping[str, Any]) -> Iterator[FileUse]:
    """The files a tool call names: in fields called path or file, in patches, and in shell commands."""
    texts = {key.lower(): value for key, value in arguments.items() if isinstance(value, str)}
    command = texts.get("command", texts.get("cmd", ""))
    words = [command] if " " not in command and command else []
    verb = _find_verb([w for text in (*words, name) for w in _NAME_WORD.findall(text)])
    old = next((v for k, v in texts.items() if k.startswith("old")), "")
    new = next((v for k, v in texts.items() if k.startswith("new") or "content" in k or k == "file_text"), "")
    for key, value in texts.items():
        if ("path" in key or "file" in key) and 0 < len(value) <= _LONGEST and "\n" not in value:
            yield FileUse(cut(clean(value), _LONGEST), verb, old, new)
        elif patches := list(_PATCHED.finditer(value)):
            for patch, following in zip(patches, [*patches[1:], None], strict=True):
                body = value[patch.end() : following.start() if following else None].split("\n")
                added, gone = ("\n".join(b[1:] for b in body if b[:1] == sign) for sign in "+-")
                done = {"Add": "created", "Delete": "deleted"}.get(patch[1], "changed")
                yield FileUse(cut(clean(patch[2]), _LONGEST), done, gone, added)
    if words:
        return
    for segment in _SHELL_BREAK.split(command[:2000]):
        parts = segment.split()
        for before, part in pairwise(parts):
            token = part.strip("\"'`()")
            if len(token) <= _LONGEST and _FILE_LIKE.fullmatch(token) and not token.startswith(("/dev/", "-")):
                yield FileUse(clean(token), "changed" if before in (">", ">>") else _find_verb(parts[:1]))


def list_changed_names(use: FileUse) -> str:
    """The names that an edit adds, drops and edits; empty where it defines none."""
    old, new = (dict.fromkeys(_DEFINES.findall(text)) for text in (use.old, use.new))
    changes = {"adds": [n for n in new if n not in old], "drops": [n for n in old if n not in new]}
    changes["edits"] = [n for n in new if n in old]
    return "; ".join(f"{verb} {', '.join(names[:8])}" for verb, names in changes.items() if names)


def describe_change(use: FileUse) -> str:
    """What an edit did, in the names it defines; in its first line where it defines none."""
    names = list_changed_names(use)
    parts = [names] if names else []
    if not parts and (shown := next(lines_of(use.new), "")):
        parts = [f"now has: {cut(shown, 100)}"]
    size = f" (+{len(use.new.splitlines())} −{len(use.old.splitlines())} lines)" if use.new or use.old else ""
    return use.verb + (", " if parts else "") + "; ".join(parts) + size


def _find_verb(words: Iterable[str]) -> str:
    return next((_VERB_OF[w.lower()] for w in words if w.lower() in _VERB_OF), "used")
