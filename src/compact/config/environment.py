"""The sources of a configuration: environment variables and a file, and which of them set what.

Owns: the names of the sections, of the environment variables and of the files; reading the variables; finding where a
value comes from.
Must never: build a configuration (`config` does), parse a file (`config_file` does), or look for files elsewhere.

Rules: a policy field is `COMPACT_TRIGGER_PCT`, a field of another section `COMPACT_STORAGE_ADAPTER`; an empty variable
is not set; lists are comma separated or JSON; a `COMPACT_` name that is not listed is left alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from .proxy_section import ProxyPolicy
from .sections import ClearToolOutputs, Policy, RedactionPolicy, Section, StoragePolicy, SummaryPolicy, TracingPolicy

__all__ = [
    "DISABLED_NOTICE",
    "FILE_NAMES",
    "SECTIONS",
    "SET_BY",
    "drop_names",
    "environment_variables",
    "find_file",
    "is_disabled",
    "name_variables",
    "origins",
    "read_environment",
]

FILE_NAMES = ("compact.yaml", "compact.yml", "compact.json")
"""The files looked for in the working directory; the first one found is read."""

SECTIONS: Mapping[str, type[Section]] = {
    "policy": Policy,
    "summary": SummaryPolicy,
    "storage": StoragePolicy,
    "redaction": RedactionPolicy,
    "tracing": TracingPolicy,
    "proxy": ProxyPolicy,
}

DISABLED_NOTICE = "COMPACT_DISABLED is set: every preflight returns its list unchanged"
"""Shown wherever the effect of `COMPACT_DISABLED` may surprise."""

SET_BY = " (set by "
"""The beginning of the note that names the variable behind a problem."""


def is_disabled() -> bool:
    """Whether the environment switches compaction off."""
    return os.environ.get("COMPACT_DISABLED", "").strip().lower() in ("1", "true", "yes", "on")


@cache
def environment_variables() -> Mapping[str, tuple[str, ...]]:
    """Every variable that is read, and the field it sets: `COMPACT_TRIGGER_PCT` → `("policy", "trigger_pct")`."""
    variables: dict[str, tuple[str, ...]] = {
        f"COMPACT_{name.upper()}": (name,) for name in ("model", "max_context_tokens", "counter")
    }
    for section, model in SECTIONS.items():
        for field in model.model_fields:
            name = field if section == "policy" else f"{section}_{field.removeprefix(f'{section}_')}"
            variables[f"COMPACT_{name.upper()}"] = (section, field)
    return variables


def read_environment() -> dict[str, Any]:
    """The values set in the environment, nested as a file would have them."""
    values: dict[str, Any] = {}
    for variable, place in environment_variables().items():
        text = os.environ.get(variable, "").strip()
        if text and len(place) == 1:
            values[place[0]] = text
        elif text:
            values.setdefault(place[0], {})[place[1]] = _parse_variable(text, SECTIONS[place[0]].model_fields[place[1]])
    return values


def _parse_variable(text: str, field: FieldInfo) -> Any:
    """A variable's text as its field takes it; numbers and switches are left to validation."""
    is_list, is_section = get_origin(field.annotation) is tuple, ClearToolOutputs in get_args(field.annotation)
    if is_list or is_section:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, list if is_list else dict):
            return value
    return [part.strip() for part in text.split(",") if part.strip()] if is_list else text


def drop_names(values: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a file less those that the environment sets."""
    left = {name: value for name, value in values.items() if name in SECTIONS or name not in taken}
    for name in SECTIONS:
        if isinstance(left.get(name), Mapping):
            left[name] = {field: value for field, value in left[name].items() if field not in taken.get(name, {})}
    return left


def name_variables(text: str, arguments: Mapping[str, Any]) -> str:
    """The lines of an error, each with the variable that its value comes from, if any; `arguments` were explicit."""

    def is_explicit(place: tuple[str, ...]) -> bool:
        part = arguments.get(place[0], {}) if len(place) == 2 else arguments
        return not isinstance(part, Mapping) or place[-1] in part

    used = {
        ".".join(place): f"{SET_BY}{variable})"
        for variable, place in environment_variables().items()
        if os.environ.get(variable, "").strip() and not is_explicit(place)
    }
    paths = {line: line.partition(":")[0].partition("[")[0].split(".") for line in text.splitlines()}
    return "\n".join(line + used.get(".".join(path[:2]), "") for line, path in paths.items())


def origins(path: str | os.PathLike[str] | None = None) -> dict[str, str]:
    """Where `load` takes each value that is not a default from, by its dotted name: a file and line, or a variable."""
    from .config_file import read_config_file

    file = find_file(path)
    sources: dict[str, str] = {}
    for name, value in (read_config_file(file) if file is not None else {}).items():
        fields = value if name in SECTIONS and isinstance(value, Mapping) else {}
        sources.update(dict.fromkeys([f"{name}.{field}" for field in fields] or [name], file.name if file else ""))
    for name, line in (_find_lines(file) if file is not None else {}).items():
        if name in sources:
            sources[name] += f" line {line}"
    for variable, place in environment_variables().items():
        if os.environ.get(variable, "").strip():
            sources[".".join(place)] = variable
    return sources


def find_file(path: str | os.PathLike[str] | None) -> Path | None:
    """The file named, else the first of `FILE_NAMES` found."""
    return Path(path) if path is not None else next((file for file in map(Path, FILE_NAMES) if file.is_file()), None)


def _find_lines(file: Path) -> dict[str, int]:
    """The line of each name in a file that was read before, down to the fields of sections."""
    import yaml  # JSON is YAML, but for tabs

    try:
        root = yaml.compose(file.read_text("utf-8-sig"), yaml.SafeLoader)
    except (yaml.YAMLError, OSError):
        return {}
    lines: dict[str, int] = {}
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        lines[key.value] = key.start_mark.line + 1
        for inner, _ in value.value if isinstance(value, yaml.MappingNode) else ():
            lines[f"{key.value}.{inner.value}"] = inner.start_mark.line + 1
    return lines
