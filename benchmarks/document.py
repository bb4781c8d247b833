"""docs/benchmarks.md, written by the benchmarks themselves: a section each, and the machine they ran on.

Owns: the order of the sections, and replacing one of them. Must never: measure, or change a section of another run.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from textwrap import wrap

from measuring import ROOT, Figure, fast_extra

__all__ = ["PAGE", "figures_table", "machine", "prose", "table", "write_section"]

PAGE = ROOT / "docs" / "benchmarks.md"
SECTIONS = ("peers", "preflight", "folding", "soak")
HEAD = """\
# Benchmarks

What `compact` costs its host, beside its peers. `make bench` and `make soak` measure and write this page; what each
line compares, and the rules, are in [benchmarks/README.md](../benchmarks/README.md). Ratios and exponents carry over to
other machines, milliseconds do not.
"""


def write_section(name: str, lines: Iterable[str]) -> None:
    """Put a section in its place; the others stay as they are."""
    there = PAGE.read_text("utf-8") if PAGE.exists() else ""
    kept = {
        other: found[1]
        for other in SECTIONS
        if (found := re.search(rf"<!-- {other} -->\n(.*?)<!-- end of {other} -->\n", there, re.DOTALL))
    }
    kept[name] = "\n".join(lines).strip() + "\n"
    parts = [f"<!-- {one} -->\n{kept[one]}<!-- end of {one} -->\n" for one in SECTIONS if one in kept]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join([HEAD, *parts]), "utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """A table; the columns in `right` are set to the right."""
    rule = ["---:" if at in right else "---" for at in range(len(head))]
    return ["| " + " | ".join(row) + " |" for row in (head, rule, *rows)]


def figures_table(figures: Sequence[Figure]) -> list[str]:
    """Figures with their bars."""
    rows = [(figure.name.strip(), *figure.shown, figure.detail) for figure in figures]
    return table(("what", "measured", "bar", "", "behind it"), rows, right=(1,))


def prose(text: str) -> list[str]:
    """A paragraph in lines of 120."""
    return wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def machine(packages: Sequence[str] = ()) -> list[str]:
    """When and where this ran: the date, the processor, its cores, Python, and versions of packages."""
    found = [
        f"{name} {at}"
        for name in ("tiktoken", *(("toktok-rs",) if fast_extra else ()), *packages)
        if (at := _version(name))
    ]
    system = f"{platform.system()} {platform.machine()}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    today = datetime.now(UTC).date()
    return prose(f"{today}; {_processor()}, {os.cpu_count()} cores, {system}; {python}; {', '.join(found)}.")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    told = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", told.read_text(), re.MULTILINE) if told.exists() else None
    return found[1] if found else platform.processor() or "unknown processor"
