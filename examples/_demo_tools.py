"""The tools of the demo conversation and the small repository they act on.

Owns: `Dice`, `Workshop`, and the token estimate. Must never: touch a real file, clock, process or network.

Calls are answered from one repository in memory: an edit changes the file that a later read, search or diff shows.
Random choices come from `Random.random` alone, whose sequence Python promises to keep from version to version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count
from random import Random
from typing import Any

import _demo_texts as texts

__all__ = ["TOOLS", "Dice", "Workshop", "estimate"]

TOOLS: Mapping[str, tuple[str, float]] = {
    "ls": ("list_dir", 1.5),
    "read": ("read_file", 5.0),
    "grep": ("grep", 2.0),
    "edit": ("edit_file", 1.0),
    "test": ("run_tests", 3.0),
    "fail": ("run_tests", 5.0),
    "cmd": ("run_command", 3.0),
    "git": ("git", 2.5),
    "web": ("web_fetch", 5.0),
    "todo": ("todo", 0.8),
}
"""For each move of the story: the tool's name on the wire, and how large its result is compared with others."""

_SLOT = re.compile(r"\$(?:\{([A-Za-z]+)(\d*)\}|([A-Za-z]+)(\d*))")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeio][a-z])")
_PIECE = re.compile(r"[^\r\nA-Za-z\d]?(?:[A-Z]*[a-z]+|[A-Z]+)|\d{1,3}| ?[^\sA-Za-z\d]+[\n/]*|\s*\n|\s+(?!\S)|\s+")
_JOINED = re.compile(r"[^\sA-Za-z\d][A-Za-z]{5,}")
_END = re.compile("    (return|assert) ")
_MODULES = [path.removeprefix("src/ledgerd/") for path in texts.PATHS if path.startswith("src/ledgerd/")]


def estimate(text: str) -> int:
    """Tokens of a text without a tokenizer: pieces as o200k cuts them, and what it pays on top for joined words.

    The factors were measured on this story, where the sum is right within 1 %.
    """
    return round(1.03 * len(_PIECE.findall(text)) + 0.55 * len(_JOINED.findall(text)))


class Dice:
    """Everything that is left to chance."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random

    def below(self, limit: int) -> int:
        """A number from 0 up to, not including, the limit."""
        return int(self._random() * limit)

    def pick(self, items: Sequence[str]) -> str:
        """One of the items."""
        return items[self.below(len(items))]

    def some(self, items: Sequence[str], number: int) -> list[str]:
        """That many different items."""
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in range(number)]

    def spell(self, alphabet: str, length: int) -> str:
        """That many letters of the alphabet."""
        return "".join(self.pick(alphabet) for _ in range(length))

    def fill(self, text: str, given: Mapping[str, str] | None = None) -> str:
        """The text with its slots filled; `_demo_texts` says what a slot is."""
        chosen = dict(given or {})

        def slot(match: re.Match[str]) -> str:
            name, size = (match[1], match[2]) if match[1] else (match[3], match[4])
            if name == "int":
                return str(10 ** (int(size) - 1) + self.below(9 * 10 ** (int(size) - 1)))
            if name == "hex":
                return self.spell("0123456789abcdef", int(size))
            plain = name[0].lower() + name[1:]
            if plain == "value" and plain not in chosen:
                chosen[plain] = str(self.below(90_000))
            if plain + size not in chosen:
                taken = [word for key, word in chosen.items() if key.rstrip("23") == plain]
                chosen[plain + size] = self.pick([word for word in texts.POOLS[plain] if word not in taken])
            word = chosen[plain + size]
            return word if name == plain else "".join(part.capitalize() for part in word.split("_"))

        return _ARTICLE.sub(r"\1n ", _SLOT.sub(slot, text))


class Workshop:
    """The repository, its clock, and the tools. `facts` are the details that stay the same all day."""

    def __init__(self, dice: Dice, facts: Mapping[str, str]) -> None:
        self._dice = dice
        self._facts = facts
        self._now = datetime(2025, 3, 4, 8, 31)
        self._files = {path: self._write(path) for path in texts.PATHS}
        self._read_until: dict[str, int] = {}
        self._edits: list[tuple[str, int, int]] = []
        self._branch = "main"
        self._revision = 46
        self._todo: dict[str, bool] = {}

    def fill(self, text: str) -> str:
        """The text with the facts of the day, the time and chance in its slots."""
        given = {**self._facts, "module": self._dice.pick(_MODULES)}
        if "$time" in text:
            self._now += timedelta(milliseconds=self._dice.below(2_000))
            given["time"] = self._now.isoformat(timespec="milliseconds") + "Z"
        return self._dice.fill(text, given)

    def remark(self, call: Mapping[str, Any]) -> str | None:
        """What the agent says beside a call: now and then nothing."""
        if self._dice.below(10) < 3:
            return None
        name = call["function"]["name"]
        target = str(next(iter(json.loads(call["function"]["arguments"]).values())))
        return self.fill(self._dice.pick(texts.SAY[name])).replace("@", "the checkout" if target == "." else target)

    def act(self, chapter: str, move: str, room: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """A tool call and its result of about `room` tokens, as the parts of messages."""
        self._now += timedelta(seconds=20 + self._dice.below(150))
        word, _, argument = self.fill(move).partition(" ")
        if word == "todo":
            arguments, result = self._note(chapter)
        else:
            tool = {
                "ls": self._list, "read": self._show, "grep": self._search, "edit": self._edit, "test": self._pass,
                "fail": self._fail, "cmd": self._run, "git": self._git, "web": self._fetch,
            }[word]  # fmt: skip
            arguments, result = tool(argument, room)
        call_id = "call_" + self._dice.spell("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", 24)
        function = {"name": TOOLS[word][0], "arguments": json.dumps(arguments)}
        return (
            {"id": call_id, "type": "function", "function": function},
            {"role": "tool", "tool_call_id": call_id, "content": result},
        )

    # The repository.

    def _write(self, path: str) -> list[str]:
        """A new file of the kind its path asks for."""
        if path.endswith(".md"):
            return self._page(path, 1_500).splitlines()
        if not path.endswith(".py") or path.startswith("migrations/"):
            return "\n".join(self._lines(_file_lines(path), 20 + self._dice.below(30))).splitlines()
        make = self._test if path.startswith("tests/") else self._definition
        parts = [self._dice.fill('"""How to $verb and $verb2 a $noun; $why."""\n\nimport logging')]
        parts += [make() for _ in range(14 + self._dice.below(16))]
        return "\n\n\n".join(parts).splitlines()

    def _definition(self) -> str:
        if self._dice.below(5) == 0:
            fields = self._dice.some(texts.CLASS_FIELDS, 3 + self._dice.below(4))
            fields.sort(key=lambda field: "=" in field)
            return self._dice.fill(self._dice.pick(texts.CLASSES) + "\n" + _indent("\n".join(fields)))
        head = f'{self._dice.pick(texts.FUNCTION_HEADS)}\n    """{self._dice.pick(texts.DOCSTRINGS)}"""\n'
        body = [*self._dice.some(texts.STATEMENTS, 1 + self._dice.below(5)), self._dice.pick(texts.RETURNS)]
        return self._dice.fill(head + _indent("\n".join(body)))

    def _test(self) -> str:
        head = 'def test_${verb}_${noun}_$state(session, client):\n    """A $state $noun can $verb its $field."""\n'
        return self._dice.fill(head + _indent("\n".join(self._dice.some(texts.TEST_BODIES, 1 + self._dice.below(3)))))

    def _open(self, short: str) -> tuple[str, list[str]]:
        """A file by its path, or by its path inside the package; it is written when it is new."""
        tops = ("src/", "tests/", "docs/", "deploy/", "migrations/", "scripts/")
        path = short if short.startswith(tops) or short in texts.PATHS else f"src/ledgerd/{short}"
        if path not in self._files:
            self._files[path] = self._write(path)
        return path, self._files[path]

    def _lines(self, templates: Sequence[str], number: int) -> Iterator[str]:
        return (self.fill(self._dice.pick(templates)) for _ in range(number))

    # The tools: each takes its argument and the room for its result, and gives the arguments and the result.

    def _list(self, argument: str, room: int) -> tuple[dict[str, Any], str]:
        names = sorted(path for path in self._files if argument == "." or path.startswith(argument + "/"))
        rows = (
            f"-rw-r--r-- {sum(map(len, self._files[name])):>6}  2025-0{1 + len(name) % 2}-{10 + len(name) % 18}  {name}"
            for name in names
        )
        return {"path": argument}, f"{argument}: {len(names)} files\n" + _upto(rows, room)

    def _show(self, argument: str, room: int) -> tuple[dict[str, Any], str]:
        path, lines = self._open(argument)
        start = self._read_until.get(path, 0)
        if start > len(lines) - 12:
            start = 0
        shown = _upto((f"{number + 1:>4}  {lines[number]}" for number in range(start, len(lines))), room)
        self._read_until[path] = end = start + shown.count("\n") + 1
        rest = (
            f"\n({len(lines) - end} more lines, continue with offset {end})" if end < len(lines) else "\n(end of file)"
        )
        return {"path": path, **({"offset": start} if start else {})}, shown + rest

    def _search(self, argument: str, room: int) -> tuple[dict[str, Any], str]:
        pattern, _, where = argument.partition(" ")
        hits = [
            f"{path}:{number}: {line.strip()}"
            for path, lines in self._files.items()
            if f"{where}/" in path
            for number, line in enumerate(lines, start=1)
            if pattern in line
        ]
        return {"pattern": pattern, "path": where}, f"{len(hits)} matches for {pattern}\n" + _upto(hits, room)

    def _edit(self, argument: str, room: int) -> tuple[dict[str, Any], str]:
        path, lines = self._open(argument)
        code = path.endswith(".py")
        places = [i for i, line in enumerate(lines) if (_END.match(line) if code else line.strip())]
        at = places[self._dice.below(len(places))]
        templates = texts.TEST_BODIES if path.startswith("tests/") else texts.CHANGES if code else _file_lines(path)
        change = self.fill(self._dice.pick(templates))
        added = (_indent(change) if code else change).splitlines()
        old = lines[at]
        lines[at:at] = added
        moved = [(p, i + len(added) if p == path and i >= at else i, size) for p, i, size in self._edits]
        self._edits = [*moved, (path, at, len(added))]
        start = max(at - 3, 0)
        shown = "\n".join(f"{i:>4}  {line}" for i, line in enumerate(lines[start : at + len(added) + 4], start + 1))
        result = f"{path}: 1 replacement at line {at + 1}, {len(added)} lines added.\n{shown}"
        return {"path": path, "old": old, "new": "\n".join([*added, old])}, result

    def _pass(self, argument: str, room: int) -> tuple[dict[str, Any], str]:
        return self._tests(argument, room, failed=False)

    def _fail(self, argument: str, room: int) -> tuple[dict[str, Any], str]:
        return self._tests(argument, room, failed=True)

    def _tests(self, target: str, room: int, failed: bool) -> tuple[dict[str, Any], str]:
        paths = [self._open(target)[0]] if target != "tests" else [p for p in self._files if "/test_" in p]
        names = [
            (path, line[4 : line.index("(")])
            for path in paths
            for line in self._files[path]
            if line.startswith("def test_")
        ]
        report = self._failure(*names[self._dice.below(len(names))]) if failed else ""
        ran = _upto(self._progress(names), room - estimate(report) - 90)
        whole = target == "tests"
        total = int(self._facts["ntests"]) if whole else ran.count("\n") + 1
        took = self._facts["suite"] if whole else self.fill("$int1.$int2")
        head = self.fill(f"platform linux, Python 3.12.2, pytest 8.1.1, random seed $int5\ncollected {total} items\n\n")
        tail = f"\n== {f'1 failed, {total - 1}' if failed else total} passed in {took} s =="
        return {"target": target, "flags": "-v"}, head + ran + report + tail

    def _progress(self, names: Sequence[tuple[str, str]]) -> Iterator[str]:
        for lap in count():
            for path, name in names:
                case = self.fill("[$field-$int3]") if lap else ""
                yield f"{path}::{name}{case} PASSED"

    def _failure(self, path: str, name: str) -> str:
        lines = self._files[path]
        start = next(i for i, line in enumerate(lines) if line.startswith(f"def {name}("))
        body = "\n".join(lines[start : start + 6])
        trace = "\n".join(
            self._lines(("src/ledgerd/$module:$int3: in ${verb}_$noun\n    return ${verb2}_$noun2($field)",), 3)
        )
        error = self.fill(self._dice.pick(texts.FAILURES)).replace("\n", "\nE   ")
        log = "\n".join(self._lines(texts.COMMAND_LOGS[""], 3))
        return (
            f"\n{path}::{name} FAILED\n\n== FAILURES ==\n__ {name} __\nTraceback (most recent call last):\n{trace}\n\n{body}\n"
            f"E   {error}\n\n{path}:{start + 4}: failed\n-- captured log --\n{log}\n== short summary ==\nFAILED {path}::{name}"
        )

    def _run(self, argument: str, room: int) -> tuple[dict[str, Any], str]:
        lines = next(lines for part, lines in texts.COMMAND_LOGS.items() if part in argument)
        result = _upto(self._lines(lines, 10_000), room)
        if argument.startswith("make migration"):
            self._revision += 1
            name = argument.partition("name=")[2]
            path, _ = self._open(f"migrations/versions/{self._revision:04}_{name}.py")
            result = f"generated {path} (revises {self._revision - 1:04})\n{result}"
        return {"command": argument}, f"{result}\nexit code 0, {self.fill('$int1.$int2 s')}"

    def _git(self, argument: str, room: int) -> tuple[dict[str, Any], str]:
        what = argument.split()[0]
        if what in ("log", "fetch", "pull"):
            result = _upto(self._lines(texts.COMMITS_SEEN, 5_000), room)
        elif what in ("diff", "show"):
            result = _upto(self._hunks(), room)
        elif what == "blame":
            lines = enumerate(self._open(argument.split()[-1])[1], start=1)
            result = _upto((self.fill(f"$hex7 ($author 2024-1$int1) {i:>4} ") + line for i, line in lines), room)
        else:
            result = self._change(what, argument)
        return {"args": argument}, result

    def _hunks(self) -> Iterator[str]:
        """Lines of a diff: the edits since the last commit, newest first, then what others changed on the branch."""
        for path, at, size in reversed(self._edits):
            yield from self._hunk(path, at, self._files[path][at : at + size], self._files[path][at + size :])
        for _ in count():
            path = self._dice.pick([path for path in self._files if path.endswith(".py")])
            lines = self._files[path]
            at = self._dice.below(len(lines))
            yield from self._hunk(path, at, _indent(self._definition()).splitlines(), lines[at:])

    def _hunk(self, path: str, at: int, added: Sequence[str], after: Sequence[str]) -> Iterator[str]:
        before = self._files[path][max(at - 3, 0) : at]
        size = len(before) + len(after[:3])
        yield f"diff --git a/{path} b/{path}"
        yield f"@@ -{at},{size} +{at},{size + len(added)} @@"
        yield from [f" {line}" for line in before] + [f"+{line}" for line in added] + [f" {line}" for line in after[:3]]

    def _change(self, what: str, argument: str) -> str:
        """The answer of a git command that changes or reports state."""
        if what == "checkout" and argument.split()[-1] != self._branch:
            self._branch = argument.split()[-1]
            self._edits.clear()
        changed = sorted({path for path, _, _ in self._edits})
        files = "".join(f"\n        modified:   {path}" for path in changed)
        if what == "commit":
            subject = argument.partition('"')[2].rstrip('"')
            sha = self.fill(texts.COMMITS_MADE.get(subject.partition(":")[0], "$hex7"))
            added = sum(size for _, _, size in self._edits)
            self._edits.clear()
            hooks = self.fill("hook lint: passed in 0.$int2 s\nhook types: passed in $int1.$int2 s\n")
            return f"{hooks}[{self._branch} {sha}] {subject}\n {len(changed)} files changed, {added} lines added{files}"
        state = self.fill(
            f"On branch {self._branch}, $int1 commits ahead of origin/main{files or ', nothing to commit'}\n"
        )
        if what in ("push", "tag"):
            web = f"https://git.example.com/ledgerd/-/compare/main...{self._branch}"
            return self.fill(f"{state}remote: {argument} accepted at $time\nremote: pipeline $int5 queued, see {web}")
        return state + "\n".join(self._lines(texts.COMMITS_SEEN, 3))

    def _fetch(self, argument: str, room: int) -> tuple[dict[str, Any], str]:
        return {"url": f"https://{argument}"}, self._page(argument, room)

    def _page(self, title: str, room: int) -> str:
        def sections() -> Iterator[str]:
            for number in count(1):
                yield self.fill(f"## {number}. $Verb a $thing")
                yield " ".join(self._lines(texts.DOC_SENTENCES, 3 + self._dice.below(4))) + "\n"

        return f"# {title}\n\n" + _upto(sections(), room)

    def _note(self, chapter: str) -> tuple[dict[str, Any], str]:
        """The todo list: entering a chapter closes the items of the ones before and adds its own."""
        self._todo = dict.fromkeys(self._todo, True)
        self._todo |= {item: False for item in texts.TODO_ITEMS[chapter] if item not in self._todo}
        items = [{"text": item, "done": done} for item, done in self._todo.items() if not done]
        rows = [f"[{'x' if done else ' '}] {n}. {item}" for n, (item, done) in enumerate(self._todo.items(), start=1)]
        return {"action": "set", "items": items}, self.fill("todo list at $time\n") + "\n".join(rows)


def _file_lines(path: str) -> Sequence[str]:
    """What the lines of a file that is not ordinary code look like."""
    return next((lines for kind, lines in texts.FILE_LINES.items() if kind in path), texts.DOC_SENTENCES)


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" if line else line for line in text.splitlines())


def _upto(lines: Iterable[str], room: int) -> str:
    """As many of the lines as the room allows, at least five."""
    taken: list[str] = []
    used = 0
    for line in lines:
        used += estimate(line) + 1
        if used > room and len(taken) >= 5:
            break
        taken.append(line)
    return "\n".join(taken)
