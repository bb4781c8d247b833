"""Write the pages of docs/reference that the code can tell: every setting, and every public name.

python scripts/reference_docs.py             # writes configuration.md and api.md
python scripts/reference_docs.py --check     # exit 1 when one of them is not up to date
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ForwardRef, Literal, get_args, get_origin

from pydantic import BaseModel

import compact
from compact.cli.configuration import field_descriptions, yaml_line
from compact.config import CompactConfig, environment_variables
from compact.config.environment import SECTIONS
from compact.config.fields import describe_field
from compact.config.sections import ClearToolOutputs

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
WRITTEN = "This page is written by `scripts/reference_docs.py` from the code itself.\n"

CONFIGURATION = f"""# Configuration

{WRITTEN}
A value comes from an argument, else from the environment, else from the file, else it is the default: field by field.
The file is `compact.yaml`, `compact.yml` or `compact.json` of the working directory (`CompactConfig.load()`), or the
one you name. `compact config` shows what is in force and who said so; `compact config init` writes a file with
everything on this page in it. A name that is not on this page is refused, and so is a value outside of its range, with
its path.

In the environment a list is comma separated or JSON, and an empty variable is not set. `COMPACT_DISABLED=1` turns every
`preflight` into a pass-through; it is no field.
"""
AGENTS = """
## `agents`

Agents by name. `config.for_agent("coder")` is the configuration with that agent's `compact` block laid over it. A block
takes every field of `policy` and of `summary`, flat, and its `layout` is `in_place` unless it says otherwise. Other
keys of an agent (`id`, `model`, `system_prompt`) are left alone.

```yaml
agents:
  coder:
    compact: {layout: layered, strategy: code_delta, trigger_pct: 0.8}
```
"""
API = f"""# Python

{WRITTEN}
What stands here is public: it follows semantic versioning. Everything else, and every module whose name begins with an
underscore, may change at any time. Settings are on [their own page](configuration.md), errors on [theirs](errors.md).
"""
MODULES = {
    "compact.testing": "Fakes and builders, for tests of your own.",
    "compact.tools": "Recall as a tool for the agent itself.",
    "compact.sinks": "What sinks share; see [seeing what it does](../../OBSERVABILITY.md#sinks).",
    "compact.models": "Summarizers; see [your own parts](../extending.md#a-summarizer).",
    "compact.stores": "What a store must do; see [your own parts](../extending.md#a-store).",
    "compact.importers": "Recorded conversations; see [reading logs](../../IMPORTERS.md).",
    "compact.replay": "The replay lab; see [its page](../../REPLAY.md).",
}
"""Modules that are public besides `compact` itself. The adapters are in FRAMEWORKS.md."""
FRAMEWORK = frozenset({"settings_customise_sources"})
"""Methods that are there for pydantic, and for nobody else."""


def configuration() -> str:
    """The page of every setting."""
    variables = {place: name for name, place in environment_variables().items()}
    top = [name for name in CompactConfig.model_fields if name not in (*SECTIONS, "agents")]
    parts = [CONFIGURATION, "## At the top\n", *_settings(CompactConfig, "", variables, top)]
    said = field_descriptions(CompactConfig)
    for name, section in SECTIONS.items():
        parts += [f"\n## `{name}`\n", f"{said[name]}\n", *_settings(section, name, variables)]
        if section is SECTIONS["policy"]:
            parts += ["\n### `policy.clear_tool_outputs`\n", f"{ClearToolOutputs.__doc__}\n"]
            parts += _settings(ClearToolOutputs, "policy.clear_tool_outputs", {})
    return "\n".join([*parts, AGENTS])


def _settings(
    model: type[BaseModel], section: str, variables: dict[tuple[str, ...], str], only: list[str] | None = None
) -> Iterator[str]:
    said, defaults = field_descriptions(model), model()
    yield "| field | default | takes | what it is for |\n|---|---|---|---|"
    for name in only or model.model_fields:
        field, value = model.model_fields[name], getattr(defaults, name)
        variable = variables.get((section, name) if section else (name,))
        place = f"{section}.{name}".removeprefix(".")
        shown = "none" if value is None else yaml_line(list(value) if isinstance(value, tuple) else value)
        kind, words = _kind(field.annotation), describe_field(field)
        takes = words if kind in words or not kind else f"{kind}, {words}"
        yield (
            f'| <a id="{place}"></a>`{name}`{f"<br>`{variable}`" if variable else ""} | `{shown}` | '
            f"{takes} | {said[name]} |"
        )


def _kind(annotation: Any) -> str:
    """What sort of value a field takes, where its range alone does not say it."""
    kinds = get_args(annotation) if get_origin(annotation) is UnionType else (annotation,)
    kind = next(one for one in kinds if one is not NoneType)
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    if get_origin(kind) is Literal or kind not in words:
        return ""
    return words[kind]


def api() -> str:
    """The page of every public name."""
    parts = [API, "## compact\n"]
    for name in sorted(compact.__all__, key=lambda name: (name != "CompactManager", name.lower())):
        parts += _name("compact", name, getattr(compact, name))
    for module, about in MODULES.items():
        loaded = importlib.import_module(module)
        parts += [f"\n## {module}\n", about, ""]
        for name in loaded.__all__:
            parts += _name(module, name, getattr(loaded, name))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _name(module: str, name: str, thing: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if name == "LAWS":
        yield f"The {len(thing)} laws that every fold is checked against, as a tuple: [the laws](../../LAWS.md).\n"
    elif inspect.isclass(thing):
        yield from _class(module, name, thing)
    elif inspect.isfunction(thing):
        yield from _function(name, thing)
    else:
        yield f"{_words_below(module, name)}\n"


def _class(module: str, name: str, thing: type) -> Iterator[str]:
    settings = issubclass(thing, BaseModel)
    made = any("__init__" in vars(cls) or "_fields" in vars(cls) for cls in _ours(thing))
    if made and not settings and not getattr(thing, "_is_protocol", False):
        yield _signature(name, thing)
    yield f"{inspect.getdoc(thing)}\n"
    if not settings:
        yield "\n".join(f"- `{field}`: {text}" for field, text in field_descriptions(thing).items()) + "\n"
    for method, member in _public(thing):
        plain = member.__func__ if isinstance(member, classmethod) else member
        if isinstance(plain, property | cached_property):
            yield f"#### {name}.{method} {{ #{name.lower()}-{method} }}\n\n{inspect.getdoc(plain)}\n"
        else:
            yield f"#### {name}.{method}() {{ #{name.lower()}-{method} }}\n"
            yield from _function(method, plain, bound=True)


def _public(thing: type) -> Iterator[tuple[str, Any]]:
    """A class's public methods and properties, those of our own classes above it included, each once."""
    seen: set[str] = set()
    for cls in _ours(thing):
        for name, member in vars(cls).items():
            told = inspect.isfunction(member) or isinstance(member, property | cached_property | classmethod)
            if told and not name.startswith("_") and name not in {*seen, *FRAMEWORK}:
                seen.add(name)
                yield name, member


def _ours(thing: type) -> list[type]:
    return [cls for cls in thing.__mro__ if cls.__module__.startswith("compact")]


def _function(name: str, thing: Callable[..., Any], *, bound: bool = False) -> Iterator[str]:
    yield _signature(name, thing, bound=bound)
    yield f"{inspect.getdoc(thing)}\n"


def _signature(name: str, thing: Callable[..., Any], *, bound: bool = False) -> str:
    """A signature as it stands in the source, on one line or, when that is long, one parameter a line."""
    signature = inspect.signature(thing)
    pieces: list[str] = []
    starred = False
    for parameter in list(signature.parameters.values())[1 if bound else 0 :]:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            pieces.append("*")
            starred = True
        starred = starred or parameter.kind is parameter.VAR_POSITIONAL
        text = str(parameter.replace(annotation=parameter.empty, default=parameter.empty))
        text += "" if parameter.annotation is parameter.empty else f": {_annotation(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {_default(parameter.default)}"
        pieces.append(text)
    returned = signature.return_annotation
    arrow = "" if inspect.isclass(thing) or returned is signature.empty else f" -> {_annotation(returned)}"
    begins = f"{'async ' if inspect.iscoroutinefunction(thing) else ''}{'' if inspect.isclass(thing) else 'def '}{name}"
    line = f"{begins}({', '.join(pieces)}){arrow}"
    if len(line) > 88:
        line = f"{begins}(\n" + "".join(f"    {piece},\n" for piece in pieces) + f"){arrow}"
    return f"```py\n{line}\n```\n"


def _annotation(given: Any) -> str:
    if isinstance(given, ForwardRef):
        return given.__forward_arg__
    return given if isinstance(given, str) else getattr(given, "__name__", str(given))


def _default(value: Any) -> str:
    if isinstance(value, frozenset):  # which has another order in each process
        return f"frozenset({{{', '.join(map(repr, sorted(value)))}}})" if value else "frozenset()"
    return "…" if callable(value) or repr(value).startswith(("<", "mappingproxy")) else repr(value)


def _words_below(module: str, name: str) -> str:
    """The text that stands below a name in the module that has it, or that it comes from, and what it is."""
    source = inspect.getsource(importlib.import_module(module))
    if taken := re.search(rf"^from (\.\w+) import [^\n(]*(?:\([^)]*)?\b{name}\b", source, re.M):
        package = module if hasattr(importlib.import_module(module), "__path__") else module.rpartition(".")[0]
        return _words_below(f"{package}{taken[1]}", name)
    found = re.search(rf"^{name}(?:: [^=\n]+)? = (.+?)\n\"\"\"(.+?)\"\"\"", source, re.M | re.S)
    assert found, f"{module}.{name} has no text below it"
    return found[2] if "\n" in found[1] else f"`{found[1]}`\n\n{found[2]}"


PAGES = {FOLDER / "configuration.md": configuration, FOLDER / "api.md": api}

if __name__ == "__main__":
    for path, written in PAGES.items():
        page = written()
        if "--check" not in sys.argv:
            path.write_text(page, "utf-8")
        elif path.read_text("utf-8") != page:
            sys.exit(f"{path.name} is not up to date: run scripts/reference_docs.py")
