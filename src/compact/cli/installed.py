"""Checks of the environment: the packages of each extra, and unknown variables.

Owns: `CheckResult`, and these two checks. Must never: import a package that it looks for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import metadata
from typing import Literal

from ..config import environment_variables
from ..config.environment import DISABLED_NOTICE, is_disabled

_DISTRIBUTION = "agent-compact"
_GATHERED = ("all", "dev", "docs", "release")
"""Extras that only name others, or that are for developers of the library."""
_OWN_VARIABLES = ("COMPACT_DISABLED", "COMPACT_VIEW_TOKEN", "COMPACT_PROXY_TOKEN")
_REQUIRED = re.compile(r"([\w.-]+)[^;]*?(?:>=\s*([\w.]+))?[^;]*;.*extra\s*==\s*['\"]([\w-]+)['\"]")

CheckState = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check: fine, worth knowing, or something that will not work."""

    state: CheckState
    what: str
    says: str


def check_extras(needed: frozenset[str]) -> Iterator[CheckResult]:
    """Check the packages of each extra. A missing one is a problem only when the configuration needs it."""
    try:
        required = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield CheckResult("note", "extras", "compact is not installed as a package, so its extras are not known")
        return
    packages_of: dict[str, list[tuple[str, str]]] = {}
    for line in required:
        if (match := _REQUIRED.match(line)) and match[3] not in _GATHERED and match[1] != _DISTRIBUTION:
            packages_of.setdefault(match[3], []).append((match[1], match[2] or ""))
    there: list[str] = []
    for extra, packages in packages_of.items():
        missing = [problem for problem in (_package_problem(*package) for package in packages) if problem]
        if not missing:
            there.append(f"{extra} ({', '.join(f'{name} {metadata.version(name)}' for name, _ in packages)})")
        else:
            install = f"pip install '{_DISTRIBUTION}[{extra}]'"
            state: CheckState = "problem" if extra in needed else "note"
            asked = ", which the configuration needs" if extra in needed else ""
            yield CheckResult(state, f"extra {extra}", f"{', '.join(missing)}{asked}: {install}")
    yield CheckResult("ok", "extras", "; ".join(there) or "none")


def _package_problem(package: str, least: str) -> str | None:
    """What is wrong with a package; None when it is installed and new enough."""
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        return f"{package} is not installed"
    return (
        f"{package} {version} is older than {least}"
        if least and _version_parts(version) < _version_parts(least)
        else None
    )


def _version_parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", version)[:4]]


def check_variables() -> Iterator[CheckResult]:
    """Check for unknown variables, which are probably misspelt."""
    known = [*environment_variables(), *_OWN_VARIABLES]
    for name in sorted(name for name in os.environ if name.startswith("COMPACT_") and name not in known):
        close = get_close_matches(name, known, n=1)
        yield CheckResult(
            "note", "environment", f"{name} is set and not known" + (f"; did you mean {close[0]}?" if close else "")
        )
    if is_disabled():
        yield CheckResult("note", "environment", DISABLED_NOTICE)
