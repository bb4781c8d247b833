"""Build what is released: the sdist and the wheel, twice, in two clean folders, kept only when both came out alike.

python scripts/build.py                          # into dist/
python scripts/build.py --tag v0.1.0             # refuses unless the version is the tag's
python scripts/build.py --resolve                # also asks the package index whether every extra can be installed

A build sees only files that git knows, and takes its clock from the newest commit (SOURCE_DATE_EPOCH). So whoever has
the same commit gets the same bytes, and can hold the hashes printed here against what an index serves.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST_WHEEL = 3_000_000
MOST_DEPENDENCIES = 3


def main() -> int:
    """Build, compare, check, and say what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="where to put both files")
    parser.add_argument("--tag", help="the tag that is released, such as v0.1.0")
    parser.add_argument("--resolve", action="store_true", help="ask the package index for the extra `all`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        built = [built_in(Path(folder) / name) for name in ("first", "a-second-one-elsewhere")]
        hashes = [{path.name: digest(path) for path in files} for files in built]
        wrong = ["the two builds differ"] if hashes[0] != hashes[1] else []
        wheel = next(path for path in built[0] if path.suffix == ".whl")
        wrong += problems(wheel, options.tag)
        if options.resolve:
            wrong += unresolved(wheel)
        for path in built[0]:
            print(f"{hashes[0][path.name]}  {path.name}  {path.stat().st_size:,} bytes")
        if not wrong:
            options.output.mkdir(parents=True, exist_ok=True)
            for path in built[0]:
                shutil.copyfile(path, options.output / path.name)
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return int(bool(wrong))


def built_in(folder: Path) -> list[Path]:
    """The sdist and the wheel of what git knows, built in a folder of their own."""
    listed = _output("git", "ls-files", "-z").split("\0")
    for name in filter(None, listed):
        copy = folder / "tree" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy)  # without its times and rights, which nobody else has
    environment = os.environ | {"SOURCE_DATE_EPOCH": _output("git", "log", "-1", "--format=%ct").strip()}
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(folder / "tree")],
        check=True,
        stdout=subprocess.DEVNULL,
        env=environment,
    )
    return sorted((folder / "dist").iterdir())


def problems(wheel: Path, tag: str | None = None) -> Iterator[str]:
    """What a wheel of ours must not be: large, demanding, or able to run anything when it is installed."""
    if (size := wheel.stat().st_size) > LARGEST_WHEEL:
        yield f"the wheel has {size:,} bytes; {LARGEST_WHEEL:,} are allowed"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = next(name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        scripts = archive.read(f"{info}/entry_points.txt").decode().split("\n")
    needed = [line for line in metadata.get_all("Requires-Dist") or [] if "extra ==" not in line]
    if len(needed) > MOST_DEPENDENCIES:
        yield f"the core needs {len(needed)} packages; {MOST_DEPENDENCIES} are allowed: {', '.join(needed)}"
    # pip runs nothing of a wheel; what is left are files that an interpreter runs when it starts, or foreign places.
    foreign = [name for name in names if not name.startswith(("compact/", f"{info}/")) or name.endswith(".pth")]
    if foreign:
        yield f"the wheel puts files elsewhere: {', '.join(foreign)}"
    if [line for line in scripts if line] != ["[console_scripts]", "compact = compact.cli:main"]:
        yield f"the wheel has other entry points than `compact`: {scripts}"
    if tag is not None and tag.removeprefix("v") != metadata["Version"]:
        yield f"the tag is {tag}, and the version {metadata['Version']}"


def unresolved(wheel: Path) -> Iterator[str]:
    """Whether the package index has something for everything that the extra `all` asks for."""
    asked = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", f"{wheel}[all]"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode:
        yield f"the extra `all` cannot be installed: {done.stderr.strip()}"


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


if __name__ == "__main__":
    sys.exit(main())
