"""Documentation that runs, and documentation that is counted."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import compact
from compact import errors
from compact._events import EVENT_NAMES
from compact.config import SECTIONS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.parametrize(("code", "output"), BLOCK.findall(README))
def test_readme_examples_run(code: str, output: str) -> None:
    """Every Python block of the README runs as it stands and prints what it says."""
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


def test_public_names_are_documented() -> None:
    """Everything in `__all__` exists and has a docstring or a comment of its own."""
    for name in compact.__all__:
        assert getattr(compact, name) is not None
        if name != "LAWS":
            assert (getattr(compact, name).__doc__ or "").strip(), name
