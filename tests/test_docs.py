"""Documentation that runs, and documentation that is counted."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import compact
from compact import CompactConfig, CompactManager, errors
from compact._events import EVENT_NAMES, Event
from compact.config import SECTIONS
from compact.errors import ModelUnavailable
from compact.testing import Recorder, ScriptedModel, chat

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


OBSERVABILITY = (ROOT / "OBSERVABILITY.md").read_text("utf-8")


BLOCKS = [
    # A framework takes seconds to import.
    pytest.param(*block, marks=[pytest.mark.slow] if "compact.adapters" in block[0] else [])
    for block in BLOCK.findall(README + OBSERVABILITY)
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("code", "output"), BLOCKS)
def test_examples_run(code: str, output: str) -> None:
    """Every Python block of the README and of OBSERVABILITY.md runs as it stands and prints what it says."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert output == printed.getvalue()


@pytest.mark.spec("S30")
def test_the_first_example_is_short() -> None:
    """The quick start has fewer than ten lines."""
    code, output = BLOCK.findall(README)[0]
    assert output
    assert len([line for line in code.splitlines() if line.strip()]) < 10


def test_every_field_is_in_the_readme() -> None:
    """Each field of each section is named in the configuration table."""
    table = README[README.index("## Configuration") : README.index("## Seeing")]
    missing = [f"{s}.{f}" for s, model in SECTIONS.items() for f in model.model_fields if f"`{f}`" not in table]
    assert [] == missing


def test_every_event_is_in_the_readme() -> None:
    """Each event is named where events are explained."""
    assert [] == [name for name in EVENT_NAMES if f".{name.removeprefix('compact.')}`" not in README]


def test_every_adapter_is_in_the_table() -> None:
    """FRAMEWORKS.md shows for each adapter its extra, its lower bound, three lines of code, and every public name."""
    text = (ROOT / "FRAMEWORKS.md").read_text("utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for path in sorted((ROOT / "src" / "compact" / "adapters").glob("[!_]*.py")):
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


def test_every_module_is_on_the_map() -> None:
    """ARCHITECTURE.md names every module and folder of the library."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    modules = [path for path in (ROOT / "src" / "compact").iterdir() if path.suffix == ".py" or path.is_dir()]
    names = [p.stem + ("/" if p.is_dir() else "") for p in modules if p.stem not in ("__init__", "__pycache__")]
    assert [] == sorted(name for name in names if f"`{name}`" not in text)


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
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src" / "compact").rglob("*.py"))
    given = set(re.findall(r'warning\(\s*"(\w+)",\s*"(low|high)"', source))
    assert given
    assert given == set(re.findall(r"^\| `(\w+)` \| (low|high) \|", OBSERVABILITY, re.MULTILINE))


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
