"""Write CLI.md from the commands themselves: what each does, its arguments and options, an example, and exit codes.

python scripts/cli_docs.py             # writes CLI.md
python scripts/cli_docs.py --check     # exit 1 when it is not up to date
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from compact.cli.app import EXIT_CODES
from compact.cli.commands import app

TARGET = Path(__file__).resolve().parents[1] / "CLI.md"
HEAD = """# The command line

`pip install 'agent-compact[cli]'`, then `compact …` or `python -m compact …`. This page is written by
`scripts/cli_docs.py` from the commands themselves.

- A conversation is a file, or `-` for standard input: JSON, JSON lines, gzipped or not, or the log of an agent. Lists
  are written in the form of the input, unless `--format` names another one.
  Among several logs, those that cannot be read are reported and skipped; exit code 1 means that nothing was left.
- Results go to stdout, reports and errors to stderr, in one sentence. `--json` prints JSON instead of tables. Colours
  and progress bars appear on a terminal only; `NO_COLOR` is respected.
- `--config` names the configuration; without it `compact.yaml`, `.yml` or `.json` of the working directory is read.
  `--set policy.trigger_pct=0.5` changes a setting for one run.
- `compact --install-completion` adds completion of commands, options and session ids to your shell.
"""


def commands(command: Any = None, path: str = "compact") -> Iterator[tuple[str, Any]]:
    """Every command with its full name, those inside of groups behind their group."""
    command = command or typer.main.get_command(app)
    for name, one in command.commands.items():
        yield f"{path} {name}", one
        if hasattr(one, "commands"):
            yield from commands(one, f"{path} {name}")


def example_of(command: Any) -> str:
    """The example in a command's help."""
    match = re.search(r"^Example:\s+(compact .+)$", command.help or "", re.MULTILINE)
    return match[1] if match else ""


def document() -> str:
    """The whole page."""
    found = list(commands())
    lines = [HEAD, "| command | what it does |", "|---|---|"]
    lines += [f"| [`{name}`](#{name.replace(' ', '-')}) | {_about(one)} |" for name, one in found]
    lines += ["", "| exit code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    for name, one in found:
        lines += ["", f"## {name}", "", _about(one), "", "```console", f"$ {example_of(one)}", "```", ""]
        rows = [row for parameter in one.params if (row := _row(parameter))]
        lines += ["| argument or option | meaning |", "|---|---|", *rows] if rows else []
    return "\n".join(lines) + "\n"


def _about(command: Any) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


def _row(parameter: Any) -> str:
    if "--help" in parameter.opts:
        return ""
    about = (parameter.help or "").replace("|", "\\|")
    if parameter.param_type_name == "argument":
        name = parameter.metavar or parameter.name.upper()
        return f"| `{name}`{'' if parameter.required else ' (optional)'} | {about} |"
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    default = parameter.default
    told = default not in (None, False, [], ()) and not callable(default) and parameter.show_default is not False
    return (
        f"| {names} | {about}{f' Default: `{default}`.' if told else ''}{' Required.' if parameter.required else ''} |"
    )


if __name__ == "__main__":
    page = document()
    if "--check" in sys.argv:
        sys.exit("CLI.md is not up to date: run scripts/cli_docs.py" if TARGET.read_text("utf-8") != page else 0)
    TARGET.write_text(page, "utf-8")
