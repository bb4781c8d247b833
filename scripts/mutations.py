"""Which small ways there are to break the pure core: mutmut's operators, over every module of it.

Owns: what counts as the core (the import contract says), the mutants of a file, and the seeded sample of them all.
Must never: run a test, or write a file.

Not mutated, as no test could tell: docstrings, annotations, `__all__`, `if TYPE_CHECKING`, imports, type aliases.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider
from mutmut.mutation.mutators import mutation_operators

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "compact"
CORE = (
    "_redaction",
    "_conversation",
    "config",
    "_summary",
    "_facts",
    "_compaction",
    "_session",
    "_pipeline",
    "_events",
)
"""The packages that do no I/O."""


@dataclass(frozen=True)
class Mutant:
    """One change: where, what stood there and what stands there now, and the names and lines by which tests meet it."""

    file: str
    line: int
    was: str
    now: str
    code: str
    lines: tuple[int, ...]
    names: tuple[str, ...] = ()
    """What a statement that runs at import gives a name to: its tests are those that run a line with that name."""

    @property
    def module(self) -> str:
        """The package that it belongs to."""
        return self.file.split("/")[0]


def core() -> dict[str, str]:
    """The source of every file of the pure core."""
    files = [path for name in CORE for path in sorted((PACKAGE / name).rglob("*.py"))]
    return {str(path.relative_to(PACKAGE)): path.read_text() for path in files}


def sites(source: str) -> tuple[Any, list[tuple[Any, Any]]]:
    """A module, read, and every change mutmut knows for it: a node and what takes its place."""
    wrapper = MetadataWrapper(cst.parse_module(source))
    found: list[tuple[Any, Any]] = []

    def told(node: Any) -> bool:
        match node:
            case cst.Annotation() | cst.Import() | cst.ImportFrom() | cst.If(test=cst.Name("TYPE_CHECKING")):
                return False
            case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()):
                return False
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name("__all__"))]):
                return False
            case cst.Subscript(value=cst.Name("Literal" | "Callable")) | cst.Call(func=cst.Name("cast" | "TypeVar")):
                return False
            case cst.Assign(value=cst.Subscript(value=cst.Name("Literal" | "Callable" | "tuple" | "dict"))):
                return False
        return True

    class Visitor(cst.CSTVisitor):
        def on_visit(self, node: Any) -> bool:
            if not told(node):
                return False
            for kind, operator in mutation_operators:
                if isinstance(node, kind):
                    found.extend((node, new) for new in operator(node))
            return True

    wrapper.module.visit(Visitor())
    maps = wrapper.resolve_many([PositionProvider, ParentNodeProvider])
    return (wrapper.module, maps[PositionProvider], maps[ParentNodeProvider]), found


def mutant(file: str, source: str, read: Any, node: Any, new: Any) -> Mutant | None:
    """The change made, or nothing when the result is no Python or the same program."""
    module, places, parents = read
    code: str = module.deep_replace(node, new).code
    try:
        if ast.dump(ast.parse(code)) == _program(source):
            return None
        compile(code, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    was, now = _changed(source.splitlines(), code.splitlines())

    names: list[str] = []
    statement, child, running = None, node, False
    while child is not module:
        parent = parents[child]
        if isinstance(child, cst.Assign | cst.AnnAssign):
            targets = [child.target] if isinstance(child, cst.AnnAssign) else [t.target for t in child.targets]
            names += [target.value for target in targets if isinstance(target, cst.Name)]
        if statement is None and isinstance(child, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            statement = child
        if isinstance(parent, cst.FunctionDef):
            if child is parent.body:
                running = True
                break
            names.append(parent.name.value)
        elif isinstance(parent, cst.ClassDef):
            names.append(parent.name.value)
        child = parent
    here = places[statement]
    # Of a compound statement only what stands before its body.
    compound = isinstance(statement, cst.BaseCompoundStatement) and not isinstance(statement, cst.Match)
    end = places[statement.body].start.line if compound else here.end.line
    lines = tuple(range(here.start.line, max(end, here.start.line) + 1))
    line = places[node].start.line if node in places else here.start.line
    return Mutant(file, line, was, now, code, lines, () if running else tuple(dict.fromkeys(names)))


def sample(sources: dict[str, str], seed: int, count: int) -> tuple[list[Mutant], int]:
    """So many of all mutants, each as likely as any other, and how many there are in all.

    A place in the draw follows from what is changed, so an edit elsewhere leaves the rest of a sample as it is.
    """
    drawn: list[tuple[bytes, str, Any, Any, Any]] = []
    for file, source in sources.items():
        read, found = sites(source)
        alike: Counter[str] = Counter()
        for node, new in found:
            change = f"{seed}\0{file}\0{read[0].code_for_node(node)}\0{read[0].code_for_node(new)}"
            alike[change] += 1
            drawn.append((blake2b(f"{change}\0{alike[change]}".encode()).digest(), file, read, node, new))
    drawn.sort(key=lambda one: one[0])
    chosen: dict[tuple[str, str], Mutant] = {}
    for _, file, *change in drawn:
        if len(chosen) == count:
            break
        made = mutant(file, sources[file], *change)
        if made is not None:
            chosen.setdefault((file, made.code), made)
    return sorted(chosen.values(), key=lambda one: (one.file, one.line)), len(drawn)


@cache
def _program(source: str) -> str:
    return ast.dump(ast.parse(source))


def _changed(before: list[str], after: list[str]) -> tuple[str, str]:
    """The lines in which two texts differ, each side in one line."""
    while before and after and before[-1] == after[-1]:
        before, after = before[:-1], after[:-1]
    while before and after and before[0] == after[0]:
        before, after = before[1:], after[1:]
    was, now = (" ⏎ ".join(line.strip() for line in side) for side in (before, after))
    return was, now
