"""Reading a configuration file as plain data.

Owns: what a file may hold: its size, its depth, its keys, its aliases.
Must never: depend on a field of the configuration, or build anything but mappings, lists and plain values.

Rules:
- A file is data: no tags, no expanding aliases, no repeated keys. YAML is checked as a stream, before it is built.
- Every failure is a `ConfigError` that names the file, and the line where there is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError

__all__ = ["read_config_file"]

MAX_FILE_BYTES = 1 << 20
MAX_ALIASES = 32
MAX_DEPTH = 32
MAX_VALUES = 10_000


def read_config_file(file: Path) -> dict[str, Any]:
    """The mapping in a file; a name without a value counts as absent (a section whose lines are all comments)."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(f"larger than {MAX_FILE_BYTES} bytes; shorten it")
        values = (_read_json if file.suffix.lower() == ".json" else _read_yaml)(data.decode("utf-8-sig"))
        if not isinstance(values, dict | None):
            raise ConfigError(f"a value of type {type(values).__name__} given; must be a mapping of names to values")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror}); name an existing file, or none at all") from None
    except ConfigError as error:
        raise ConfigError(f"{file.name}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file.name}: cannot be read as data ({error}); correct the file") from None
    return {name: value for name, value in (values or {}).items() if value is not None}


def _read_json(text: str) -> Any:
    def reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise ConfigError(f"the key {name} is given more than once; keep one")
            names.add(name)
        return dict(pairs)

    return json.loads(text, object_pairs_hook=reject_duplicates)


def _read_yaml(text: str) -> Any:
    import yaml  # here, because most programs configure in code

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_events(yaml.parse(text, loader), yaml)
        return yaml.load(text, loader)  # noqa: S506 - it is a safe loader, in C where there is one
    except yaml.MarkedYAMLError as error:
        place = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"{place}not YAML ({error.problem}); correct the file") from None
    except yaml.YAMLError:
        raise ConfigError("not YAML (it holds characters that text does not have); correct the file") from None


@dataclass(slots=True)
class _Collection:
    """A list or mapping that is being read."""

    anchor: str | None
    values_before: int
    keys: set[str] | None
    at_key: bool = True


def _check_events(events: Iterable[Any], yaml: Any) -> None:
    """Refuse a hostile document by its events, before anything is built from it."""
    inside: list[_Collection] = []
    sizes: dict[str, int] = {}
    values = aliases = 0
    resolve = yaml.SafeLoader("").resolve
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            done = inside.pop()
            sizes[done.anchor or ""] = values - done.values_before
        if not isinstance(event, yaml.NodeEvent):
            continue
        line = f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            aliases += 1
            if event.anchor not in sizes:
                raise ConfigError(f"{line}: the alias {event.anchor} names nothing that is complete; write it out")
            values += sizes[event.anchor]
        elif event.tag is not None:
            raise ConfigError(f"{line}: the tag {event.tag} given; only plain data is read, leave the tag out")
        values += 1
        if aliases > MAX_ALIASES or values > MAX_VALUES or len(inside) > MAX_DEPTH:
            raise ConfigError(
                f"{line}: {aliases} aliases, {values} values and {len(inside)} levels so far; at most "
                f"{MAX_ALIASES} aliases, {MAX_VALUES} values (aliases unfolded) and {MAX_DEPTH} levels are read"
            )
        parent = inside[-1] if inside else None
        if parent is not None and parent.keys is not None:
            if parent.at_key:
                key = str(getattr(event, "value", ""))
                is_scalar = isinstance(event, yaml.ScalarEvent)
                if not is_scalar or not resolve(yaml.ScalarNode, key, event.implicit).endswith((":str", ":merge")):
                    raise ConfigError(f'{line}: the key "{key}" is not text; put text in quotes')
                if key in parent.keys:
                    raise ConfigError(f"{line}: the key {key} is given more than once; keep one")
                parent.keys.add(key)
            parent.at_key = not parent.at_key
        if isinstance(event, yaml.CollectionStartEvent):
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            inside.append(_Collection(event.anchor, values, set() if is_mapping else None))
        elif isinstance(event, yaml.ScalarEvent) and event.anchor:
            sizes[event.anchor] = 1
