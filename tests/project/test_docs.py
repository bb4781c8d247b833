"""Documentation that runs, and documentation that is counted."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import typer
from project_paths import ROOT

import compact
from compact import CompactConfig, CompactManager, errors
from compact._events.event import EVENT_NAMES, Event
from compact.cli.commands import app
from compact.config import environment_variables
from compact.config.environment import SECTIONS
from compact.errors import ModelUnavailable
from compact.testing import Recorder, ScriptedModel, chat

PAGES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
}
"""Every page by its path in the repository."""
README, OBSERVABILITY = PAGES["README.md"], PAGES["OBSERVABILITY.md"]
TROUBLESHOOTING, ERRORS = PAGES["docs/troubleshooting.md"], PAGES["docs/reference/errors.md"]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
SHELL = re.compile(r"^```(?:console|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND: Any = typer.main.get_command(app)
INLINE = re.compile(r"`(compact [a-z][^`]*)`")

BLOCKS = [
    pytest.param(
        page,
        *block,
        id=f"{page}-{number}",
        # A framework takes seconds to import, and one page plays hundreds of calls.
        marks=[pytest.mark.slow] if "compact.adapters" in block[0] or page == "docs/tuning.md" else [],
    )
    for page, text in PAGES.items()
    for number, block in enumerate(BLOCK.findall(text), 1)
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("page", "code", "output"), BLOCKS)
def test_examples_run(page: str, code: str, output: str) -> None:
    """Every Python block of every page runs as it stands, and prints what stands below it."""
    conversation = json.dumps(chat("s" + "utra" * 3))
    Path("chat.json").write_text(conversation)  # what pages call a conversation of yours
    Path("logs").mkdir()
    Path("logs/one.json").write_text(conversation)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, page, "exec", dont_inherit=True), {"__name__": "__main__"})
    assert not output or output == printed.getvalue()


def shown_commands() -> list[Any]:
    """Every `compact …` that a page shows, in a block or in a line."""
    shown: dict[str, set[str]] = {}
    for page, text in PAGES.items():
        blocks = "\n".join(SHELL.findall(text)).replace("$ ", "")
        lines = [part.strip() for line in blocks.splitlines() for part in re.split("[;|]", line.partition("  #")[0])]
        found = {line for line in lines if line.startswith("compact ")} | set(INLINE.findall(" ".join(text.split())))
        shown[page] = {line for line in found if "…" not in line}
    return [pytest.param(line, id=f"{page}: {line}") for page, lines in shown.items() for line in sorted(lines)]


@pytest.mark.parametrize("line", shown_commands())
def test_commands_that_are_shown_exist(line: str) -> None:
    """A command in a page is one of ours, and so is each of its options."""
    words, command = shlex.split(line)[1:], COMMAND
    while words and not words[0].startswith("-") and hasattr(command, "commands") and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    assert command.name != "compact", f"{line}: no such command"
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = [word.partition("=")[0] for word in words if word.startswith("-") and word != "-"]
    assert [] == [option for option in given if option not in {*known, "--help"}]


def warnings_given() -> set[tuple[str, str]]:
    """Every code that a warning may carry, with its severity."""
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src" / "compact").rglob("*.py"))
    return set(re.findall(r'warning\(\s*"(\w+)",\s*"(low|high)"', source))


def test_everything_is_documented() -> None:
    """Each setting, variable, event, warning, error, command, public name and verb stands where one looks it up."""
    settings, api = PAGES["docs/reference/configuration.md"], PAGES["docs/reference/api.md"]
    top = [name for name in CompactConfig.model_fields if name not in (*SECTIONS, "agents")]
    verbs = [name for name, _ in inspect.getmembers(CompactManager) if not name.startswith("_")]
    commands = runpy.run_path(str(ROOT / "scripts" / "cli_docs.py"))["commands"]()
    wanted: dict[str, tuple[list[str], str]] = {
        "settings": (
            [f'<a id="{name}">' for name in top]
            + [f'<a id="{s}.{f}">' for s, model in SECTIONS.items() for f in model.model_fields],
            settings,
        ),
        "variables": ([f"`{name}`" for name in environment_variables()], settings),
        "events": ([f"| `{name}` |" for name in EVENT_NAMES], OBSERVABILITY),
        "warnings": ([f"| `{code}` |" for code, _ in warnings_given()], TROUBLESHOOTING),
        "errors": ([f"| `{name}`" for name in errors.__all__], ERRORS),
        "commands": ([f"## {name}\n" for name, _ in commands], PAGES["CLI.md"]),
        "names": ([f"### {name}\n" for name in compact.__all__], api),
        "verbs": ([f"#### CompactManager.{name}" for name in verbs], api),
    }
    counts = {kind: (sum(mark in page for mark in marks), len(marks)) for kind, (marks, page) in wanted.items()}
    sys.stdout.write(f"{counts}\n")  # pytest -s shows how many there are
    assert all(total for _, total in counts.values())
    assert {} == {
        kind: [m for m in marks if m not in page]
        for kind, (marks, page) in wanted.items()
        if counts[kind][0] < counts[kind][1]
    }


def test_the_reference_is_up_to_date() -> None:
    """The pages that the code can tell are what it tells."""
    pages = runpy.run_path(str(ROOT / "scripts" / "reference_docs.py"))["PAGES"]
    assert [] == [path.name for path, write in pages.items() if path.read_text("utf-8") != write()], (
        "run scripts/reference_docs.py"
    )


@pytest.mark.spec("S30", "S43")
def test_the_first_example_is_short() -> None:
    """The quick start has fewer than ten lines."""
    code, output = BLOCK.findall(README)[0]
    assert output
    assert len([line for line in code.splitlines() if line.strip()]) < 10


@pytest.mark.spec("S43")
def test_the_readme_says_why_and_how_on_one_page() -> None:
    """Quick start, why, configuration and API stand in this order, and links lead to everything else."""
    order = ["$ make demo", "$ make test", "```python", "## Why", "## Configuration", "## API", "## Comparison"]
    places = [README.find(mark) for mark in order]
    assert places == sorted(places)
    assert places[0] > 0
    assert len(README.splitlines()) <= 240
    links = set(re.findall(r"\]\(([^)#]+)", README))
    wanted = {"ARCHITECTURE.md", "SECURITY.md", "OBSERVABILITY.md", "FORMAT.md", "LAWS.md", "CONTRIBUTING.md"}
    wanted |= {"FRAMEWORKS.md", "PROXY.md", "REPLAY.md", "spec/README.md", "docs/benchmarks.md"}
    wanted |= {"docs/reference/configuration.md", "docs/reference/api.md"}
    assert set() == wanted - links


def test_every_failure_that_the_readme_names_has_a_figure_and_its_source() -> None:
    """Each of the three reasons under "Why" has a measured number, and a link to where it was measured."""
    why = README.partition("## Why")[2].partition("\n## ")[0]
    reasons = re.split(r"^\*\*", why, flags=re.MULTILINE)[1:]
    assert len(reasons) == 3
    for reason in reasons:
        measured = reason.partition("*Measured:*")[2]
        assert re.search(r"\d", measured)
        assert re.search(r"\]\([\w/]+\.md", measured)


def test_every_adapter_is_in_the_table() -> None:
    """FRAMEWORKS.md shows for each adapter its extra, its lower bound, three lines of code, and every public name."""
    text = (ROOT / "FRAMEWORKS.md").read_text("utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for path in sorted((ROOT / "src" / "compact" / "adapters").glob("[!_]*.py")):
        if path.stem == "session_gate":  # no adapter: the adapters and the proxy share it
            continue
        source = path.read_text("utf-8")
        row = next(line for line in text.splitlines() if f"from compact.adapters.{path.stem} import" in line)
        [(bound, extra)] = re.findall(r'with requires\("([^"]+)", "([^"]+)"\)', source)
        assert [bound] == extras[extra]
        assert (1, 2) == (row.count(f"extra `{extra}`"), row.rpartition("|")[0].rpartition("|")[2].count("<br>"))
        assert f"≥ {bound.partition('>=')[2]}<br>" in row
        names = ast.literal_eval(re.search(r"^__all__ = (\[.*?\])", source, re.MULTILINE | re.DOTALL).group(1))
        assert [] == [name for name in names if f"{name}" not in text]


def test_every_error_is_in_its_tree() -> None:
    """The drawn tree of errors names every class, and every class is exported."""
    drawn = errors.__doc__ or ""
    classes = {n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, compact.CompactError)}
    assert classes == set(errors.__all__)
    assert [] == [name for name in classes if name not in drawn]


def test_every_module_says_what_it_owns() -> None:
    """Each module of the library opens with what it owns and what it must never do."""
    silent = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "src" / "compact").rglob("*.py"))
        if path.name != "__init__.py" or path.parent.name != "compact"
        if "Owns:" not in path.read_text("utf-8") or "Must never:" not in path.read_text("utf-8")
    ]
    assert [] == silent


@pytest.mark.slow
@pytest.mark.untraced
def test_no_two_modules_need_each_other() -> None:
    """There is no circle of imports, not even of those inside functions; what only types need does not count."""
    home = ROOT / "src"
    names = {".".join(p.relative_to(home).with_suffix("").parts): p for p in (home / "compact").rglob("*.py")}
    needs: dict[str, set[str]] = {}
    for name, path in names.items():
        tree = ast.parse(path.read_text("utf-8"))
        guarded = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
        only_types = {id(inner) for guard in guarded for inner in ast.walk(guard)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not node.level or id(node) in only_types:
                continue
            base = ".".join([*name.split(".")[: -node.level], *filter(None, [node.module])])
            for found in (f"{base}.{alias.name}" for alias in node.names):
                needs.setdefault(name, set()).add(
                    next(one for one in (found, f"{found}.__init__", base, f"{base}.__init__") if one in names)
                )
    TopologicalSorter(needs).prepare()


def test_every_module_is_on_the_map() -> None:
    """ARCHITECTURE.md names every module and folder of the library."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    modules = [path for path in (ROOT / "src" / "compact").iterdir() if path.suffix == ".py" or path.is_dir()]
    names = [p.stem + ("/" if p.is_dir() else "") for p in modules if p.stem not in ("__init__", "__pycache__")]
    assert [] == sorted(name for name in names if f"`{name}`" not in text)


def test_every_file_on_the_map_exists() -> None:
    """What ARCHITECTURE.md names under `src/compact` is there."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    named = set(re.findall(r"`(\w+/[\w/]*(?:\.py)?)`", text)) - {"src/", "spec/"}
    assert len(named) > 50
    assert [] == sorted(name for name in named if not (ROOT / "src" / "compact" / name).exists())


def test_no_two_classes_share_a_name() -> None:
    """A class is found by its name alone."""
    trees = [ast.parse(path.read_text("utf-8")) for path in (ROOT / "src" / "compact").rglob("*.py")]
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [] == [name for name, times in names.items() if times > 1]


def test_no_package_uses_private_names_of_another() -> None:
    """A module or name with an underscore is imported only inside its package."""
    home = ROOT / "src" / "compact"
    wrong: list[str] = []
    for path in home.rglob("*.py"):
        here = path.relative_to(home).parent.parts
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = [*here[: len(here) - node.level + 1], *(node.module or "").split(".")]
                for alias in node.names:
                    there = [part for part in (*base, alias.name) if part]
                    private = any(part.startswith("_") and not part.startswith("__") for part in there[1:])
                    if private and there[0] != (here or ("",))[0]:
                        wrong.append(f"{path.relative_to(home)}: {'.'.join(there)}")
    assert [] == wrong


def test_the_page_of_the_laws_is_up_to_date() -> None:
    """LAWS.md is what the predicates, the model, the planted faults and the tests make it, and leaves out no law."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "laws.py"), "--check"], capture_output=True, text=True
    )
    assert (0, "") == (done.returncode, done.stderr)
    page = (ROOT / "LAWS.md").read_text("utf-8")
    for number in range(1, 34):
        section = page.partition(f"## L{number:02}\n")[2].partition("\n## ")[0]
        assert f"- Property `L{number:02}_" in section or "- Proved of the code alone:" in section
        assert "- Test `" in section


def test_every_link_in_the_repository_leads_somewhere() -> None:
    """A relative link of a page names a file that is there. (The site's own links, with their anchors: test_site.)"""
    texts = PAGES | {
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for path in ROOT.glob("*/README.md")
        if path.parts[-2] != ".venv"
    }
    links = [
        (page, link)
        for page, text in texts.items()
        for link in re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))
    ]
    assert len(links) > 50
    assert [] == [f"{page}: {link}" for page, link in links if not ((ROOT / page).parent / link).exists()]


def test_every_test_that_is_named_exists() -> None:
    """A promise names tests that are there."""
    source = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", PAGES["SECURITY.md"]))
    assert len(named) > 30
    assert [] == sorted(name for name in named if f"def {name}(" not in source)


def test_the_mutation_score_is_the_measured_one() -> None:
    """README, head and table of spec/MUTANTS.md say the same; the bar is reached; every survivor is explained."""
    page = (ROOT / "spec" / "MUTANTS.md").read_text("utf-8")
    [(score, killed, mutants)] = re.findall(r"^\*\*Score: ([\d.]+) %\*\* — (\d+) of (\d+) killed", page, re.MULTILINE)
    assert [(score, mutants)] == re.findall(
        r"^Mutation score of the pure core: ([\d.]+) % of (\d+) mutants", README, re.M
    )
    assert int(mutants) >= 600
    assert int(killed) >= 0.85 * int(mutants)
    assert score == f"{100 * int(killed) / int(mutants):.1f}"
    rows = re.findall(r"^\| (?!\*\*)\w+ \| (\d+) \|.* (\d+) \| \d+ % \|$", page, re.MULTILINE)
    assert (int(mutants), int(mutants) - int(killed)) == tuple(
        sum(map(int, column)) for column in zip(*rows, strict=True)
    )
    survivors = re.findall(r"^- `[\w/.]+:\d+` .*\n  (\S.*)$", page, re.MULTILINE)
    assert int(mutants) - int(killed) == len(survivors)
    assert [] == [why for why in survivors if "not explained" in why]


def test_public_names_are_documented() -> None:
    """Everything in `__all__` exists and has a docstring or a comment of its own."""
    for name in compact.__all__:
        assert getattr(compact, name) is not None
        if name != "LAWS":
            assert (getattr(compact, name).__doc__ or "").strip(), name


def every_event(folder: Path) -> list[Event]:
    """Events of each name, as they come from real folds, failures and changes."""
    recorder, messages = Recorder(), chat("su" + "tr" * 60 + "ua", words=60)
    config = CompactConfig(model="gpt-4o", max_context_tokens=8_000, storage={"path": str(folder)})
    config = config.changed(redaction={"enabled": False}, summary={"max_retries": 0}, policy={"trigger_pct": 0.5})
    model = ScriptedModel(ModelUnavailable("down"), "Goal: read ahead. Next: flush what the reader left.")
    with CompactManager(config, summarizer=model, sinks=[recorder]) as manager:
        manager.preflight("a", messages)
        manager.update(keep_recent_turns=2)
        manager.manual_compact("b", messages, note="please")
        manager.preflight("c", [*messages, {"role": "tool", "tool_call_id": "lost", "content": "an answer alone"}])
        manager.preflight("d", [{"role": "system", "content": "rule " * 5_000}, *messages])
    return recorder.events


@pytest.mark.spec("S17", "S18", "S19", "S20", "S45")
def test_every_field_of_every_event_is_documented(tmp_path: Path) -> None:
    """OBSERVABILITY.md has a row for each event, and the row names each field of its data, and no other."""
    rows = dict(re.findall(r"^\| `(compact\.\w+)` \| (.*) \|$", OBSERVABILITY, re.MULTILINE))
    assert rows.keys() == EVENT_NAMES.keys()
    said: dict[str, set[str]] = {}
    for event in every_event(tmp_path):
        said.setdefault(event.name, set()).update(event.data)
    assert said.keys() == EVENT_NAMES.keys(), "the events of this test show every kind"
    codes = re.findall(r"^\| `(\w+)` \| (?:low|high) \| (.*) \|$", OBSERVABILITY, re.MULTILINE)
    rows["compact.warning"] += " ".join(meaning for _, meaning in codes)
    for name, fields in said.items():
        named = set(re.findall(r"`([a-z_0-9]+)`", rows[name])) - {"duration"}
        assert fields == named, name


@pytest.mark.spec("S45")
def test_every_warning_is_documented() -> None:
    """Each code a warning may carry stands in the table, with its severity."""
    assert warnings_given() == set(re.findall(r"^\| `(\w+)` \| (low|high) \|", OBSERVABILITY, re.MULTILINE))


@pytest.mark.spec("S45")
def test_observability_says_how_to_look() -> None:
    """The viewer, OTLP and what a timeline shows are explained; pictures and links lead somewhere."""
    for wanted in (
        "compact view",
        "otlp_endpoint",
        "ariadne_url",
        "### What a timeline shows",
        "### What a fold shows",
    ):
        assert wanted in OBSERVABILITY
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", OBSERVABILITY)
    assert len(pictures) >= 2
    assert [] == [path for path in pictures if not (ROOT / path).is_file()]
