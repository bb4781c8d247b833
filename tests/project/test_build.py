"""What is released: built twice with one hash, small, and able to run nothing when it is installed."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from project_paths import ROOT

import compact

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
BUILD = runpy.run_path(str(ROOT / "scripts" / "build.py"))


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both files, as `make dist` makes them, but for asking an index."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, str(ROOT / "scripts" / "build.py"), "--output", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    assert 2 == len(re.findall(r"^[0-9a-f]{64}  agent_compact-", done.stdout, re.MULTILINE))
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    """The wheel."""
    (path,) = dist.glob("*.whl")
    return path


@pytest.mark.spec("T38")
def test_nothing_runs_when_it_is_built_or_installed() -> None:
    """The backend is declarative: no hook, no code of ours that a build runs, and at most three packages are needed."""
    assert "hatchling.build" == PROJECT["build-system"]["build-backend"]
    assert ["hatchling"] == [line.partition(">")[0] for line in PROJECT["build-system"]["requires"]]
    assert [] == [name for name in ("setup.py", "setup.cfg", "hatch_build.py") if (ROOT / name).exists()]
    hatch = PROJECT["tool"]["hatch"]
    assert {"version": {"path": "src/compact/__init__.py"}} == {name: hatch[name] for name in hatch if name != "build"}
    assert ["targets"] == list(hatch["build"])
    assert {} == {name: one["hooks"] for name, one in hatch["build"]["targets"].items() if "hooks" in one}
    assert len(PROJECT["project"]["dependencies"]) <= 3


@pytest.mark.slow
@pytest.mark.spec("T38")
def test_the_wheel_is_small_and_harmless(wheel: Path) -> None:
    """Two builds came out alike; the wheel is small, needs three packages, and holds the library and nothing else."""
    assert wheel.stat().st_size <= 3_000_000
    assert [] == list(BUILD["problems"](wheel, f"v{compact.__version__}"))
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tracked = subprocess.run(["git", "ls-files", "src/compact"], capture_output=True, text=True, check=True, cwd=ROOT)
    assert {name.removeprefix("src/") for name in tracked.stdout.split()} == {
        name for name in names if name.startswith("compact/")
    }


@pytest.mark.slow
@pytest.mark.spec("T38")
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("evil.pth", "import os", "puts files elsewhere"),
        ("compact/evil.pth", "import os", "puts files elsewhere"),
        ("agent_compact-0.1.0.data/scripts/run", "#!python", "puts files elsewhere"),
        ("compact/large.bin", "x" * 4_000_000, "bytes; 3,000,000 are allowed"),
        ("{info}/METADATA", "Version: 0.1.0\n" + "Requires-Dist: one\n" * 4, "the core needs 4 packages"),
        ("{info}/entry_points.txt", "[console_scripts]\nsudo = os:system", "other entry points"),
        ("{info}/METADATA", "Version: 0.2.0\n", "the tag is v0.1.0, and the version 0.2.0"),
    ],
)
def test_a_wheel_that_does_more_is_refused(wheel: Path, tmp_path: Path, name: str, content: str, said: str) -> None:
    """Each check sees what it is there for."""
    other = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(other, "w") as changed:
        info = next(one.partition("/")[0] for one in archive.namelist() if ".dist-info/" in one)
        name = name.format(info=info)
        for one in archive.namelist():
            if one != name:
                changed.writestr(one, archive.read(one))
        changed.writestr(name, content)
    assert [said] == [said for sentence in BUILD["problems"](other, "v0.1.0") if said in sentence]


@pytest.mark.slow
@pytest.mark.spec("T38")
def test_a_base_install_works_and_names_the_extra_for_more(wheel: Path, tmp_path: Path) -> None:
    """Three packages and what they need: a fold can be made, and the command says in a sentence what it lacks."""
    place = tmp_path / "venv"
    venv.create(place)
    python = place / "bin" / "python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
    ]
    subprocess.run([*install, str(wheel)], check=True)
    fold = (
        "import compact; print(len(compact.compact_messages([{'role': 'user', 'content': 'word ' * 9}] * 9, 60)) < 9)"
    )
    done = subprocess.run([python, "-c", fold], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "True\n" == done.stdout
    for command in ([place / "bin" / "compact"], [python, "-m", "compact"]):
        done = subprocess.run([*command, "doctor"], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert (1, "") == (done.returncode, done.stdout)
        assert 'compact: the command line needs the extra "cli". Install "agent-compact[cli]".\n' == done.stderr


def test_all_brings_every_extra_but_frameworks() -> None:
    """The extra `all` is what its comment says: all but frameworks, Ray, `fast`, and what only developers need."""
    extras = PROJECT["project"]["optional-dependencies"]
    frameworks = {"adk", "agents", "langchain", "litellm", "llama-index", "pydantic-ai", "smolagents"}
    (line,) = extras["all"]
    assert set(extras) - frameworks - {"all", "dev", "docs", "fast", "ray", "release"} == set(
        line[:-1].partition("[")[2].split(",")
    )
