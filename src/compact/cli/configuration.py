"""The commands `config` and `config init`: the active configuration with the source of each value, and a template.

Owns: these commands. Must never: show a secret, overwrite a file without `--force`, or describe a field itself: the
descriptions are read from the configuration classes.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from ..config import CompactConfig, origins
from ..config.environment import SECTIONS
from ..config.fields import describe_field
from ..errors import ConfigError
from .app import AsJson, ConfigFile, ModelName, Overwrite, Settings, Window, app, load_config, option_values
from .input import write_text
from .output import one_line, report, show, show_json, table

group = typer.Typer(invoke_without_command=True)
app.add_typer(group, name="config")


@group.callback()
def config(
    context: typer.Context,
    changed: Annotated[bool, typer.Option("--changed", help="Show only values that differ from the default.")] = False,
    as_json: AsJson = False,
    file: ConfigFile = None,
    model: ModelName = None,
    window: Window = None,
    settings: Settings = None,
) -> None:
    """Show the active configuration and the source of each value; `config init` writes a template.

    Example:  compact config --changed
    """
    if context.invoked_subcommand is not None:
        return
    options = option_values(settings, model, window)
    loaded = load_config(file, options)
    sources = origins(file) | dict.fromkeys(options, "option")
    values = dict(_dotted_values(loaded))
    shown = {name: (value, sources.get(name, "default")) for name, value in values.items()}
    if changed:
        shown = {name: (value, source) for name, (value, source) in shown.items() if source != "default"}
    if as_json:
        show_json({name: {"value": value, "source": source} for name, (value, source) in shown.items()})
        return
    rows = table("setting", "value", "from", wide="value")
    for name, (value, source) in shown.items():
        rows.add_row(name, one_line(yaml_line(value)), source, style="dim" if source == "default" else None)
    trigger = f"compaction at {loaded.trigger_line:,}"
    show(rows, "", f"{loaded.model}: window {loaded.window:,}, budget {loaded.budget:,}, {trigger} tokens")


def _dotted_values(loaded: CompactConfig) -> Iterator[tuple[str, Any]]:
    """Every value by its dotted name, as plain data without secrets."""
    from .._redaction import redact
    from ..sinks import plain

    for name in CompactConfig.model_fields:
        value = getattr(loaded, name)
        if name in SECTIONS:
            fields = {field: _plain(getattr(value, field)) for field in SECTIONS[name].model_fields}
            # With its name: the value of a field such as a password is a secret whatever it looks like.
            yield from ((f"{name}.{field}", one) for field, one in redact(plain(fields)).items())
        else:
            yield name, redact(plain(_plain(value)))


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True) or True
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return getattr(value, "__name__", repr(value)) if callable(value) else value


def yaml_line(value: Any) -> str:
    """A value as a line of YAML."""
    import yaml

    if value is None:
        return "none"
    return (
        yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True).removesuffix("...\n").strip()
    )


@group.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path("compact.yaml"),
    force: Overwrite = False,
) -> None:
    """Write a template with every setting, its default, its range and its purpose.

    Example:  compact config init
    """
    if file.suffix.lower() not in (".yaml", ".yml"):
        raise typer.BadParameter(f"{file} would not be read as YAML, which has comments; end its name with .yaml")
    if file.exists() and not force:
        raise ConfigError(f"{file} exists; overwrite it with --force, or name another file")
    write_text(commented_config(), file)
    report(f"{file} holds every setting as a comment; `compact config` shows the active values")


def commented_config() -> str:
    """Every setting of the configuration as a commented YAML file."""
    lines = [
        "# Every setting of compact with its default. To change one, remove the # before it.",
        "# Arguments override the environment, which overrides this file. `compact config` shows the active values.",
        "",
    ]
    descriptions = field_descriptions(CompactConfig)
    for name, field in CompactConfig.model_fields.items():
        if name == "agents":
            lines += [*_wrap(descriptions[name], ""), "#agents:", "#  coder:", "#    compact: {layout: in_place}"]
        elif name not in SECTIONS:
            lines += _setting(name, descriptions[name], field, field.get_default(call_default_factory=True), "")
        else:
            section = SECTIONS[name]
            lines += [*_wrap(descriptions[name], ""), f"{name}:"]
            defaults, about = section(), field_descriptions(section)
            for inner, one in section.model_fields.items():
                lines += _setting(inner, about[inner], one, getattr(defaults, inner), "  ")
        lines.append("")
    return "\n".join(lines)


def _setting(name: str, description: str, field: Any, default: Any, indent: str) -> list[str]:
    value = default if not isinstance(default, tuple) else list(default)
    shown = "null" if value is None else yaml_line(value)
    return [*_wrap(f"{description} Allowed: {describe_field(field)}.", indent), f"{indent}#{name}: {shown}"]


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, 116, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def field_descriptions(model: type) -> dict[str, str]:
    """The description of each field of a class, from the docstrings under the fields in its source."""
    descriptions: dict[str, str] = {}
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(body, ast.ClassDef)
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            descriptions[field.target.id] = " ".join(str(getattr(text.value, "value", "")).split())
    return descriptions
