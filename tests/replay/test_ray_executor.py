"""The replay lab on Ray, over logs in a bucket: the same results, whoever dies. One cluster serves for all of it.

Ray is started in a process of its own: its threads and warnings are none of pytest's business.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from s3_servers import ENVIRONMENT, client, moto, new_bucket
from test_replay import GUARD, SMALL, TRIALS, Deadly, decided, finding_tests, talks

from compact.importers import read_logs
from compact.replay import replay

pytestmark = [pytest.mark.slow, pytest.mark.untraced]  # a cluster, and a server


def run(code: str, *arguments: str) -> Any:
    """What a process says that has Ray, or its absence, to itself."""
    command = [sys.executable, "-c", f"import sys, test_ray_executor; {code}", *arguments]
    done = subprocess.run(command, env=finding_tests(), capture_output=True, timeout=4 * GUARD)
    assert (b"", 0) == (done.stderr, done.returncode)
    return json.loads(done.stdout)


def test_on_ray_all_is_as_it_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker is killed while it works, one conversation kills every worker, and all else is the same.

    No process is left behind, and nothing in the user's home: Ray would keep a token there.
    """
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with moto() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        service = client(url)
        bucket = new_bucket(service)
        for number, talk in enumerate(talks(12)):
            line = json.dumps({"id": talk.id, "messages": talk.messages}) + "\n"
            service.put_object(Bucket=bucket, Key=f"logs/{number:02}.jsonl", Body=line.encode())
        service.close()
        logs = f"s3://{bucket}/logs/"
        there = run("test_ray_executor.on_a_cluster(sys.argv[1])", logs)
        with replay(read_logs([logs]), TRIALS, SMALL) as lab:
            expected = json.loads(json.dumps(decided(lab)))
    *rest, deadly = there["results"]
    assert 12 == len(rest)
    assert expected == rest
    assert {"its process died 3 times; it may need more memory than is free"} == {one["error"] for one in deadly}
    assert (1, False, []) == (there["killed"], there["connected"], there["left"])
    assert [] == list(home.iterdir())


def on_a_cluster(logs: str) -> None:
    """Replay on a cluster of our own, and tell what came of it."""
    import ray

    from compact.replay.ray_executor import on_ray

    killed: list[int] = []
    deadly = Deadly("deadly", talks(1)[0].messages, "d.jsonl", "plain")
    before = os.environ["PYTHONPATH"]

    def kill_one(done: int, known: int) -> None:
        working = [pid for pid, title in descendants().items() if title.startswith("ray::_run_remote")]
        if working and not killed:
            os.kill(working[0], signal.SIGKILL)
            killed.append(working[0])

    with replay(chain(read_logs([logs]), [deadly]), TRIALS, SMALL, engine=on_ray(workers=2), progress=kill_one) as lab:
        results = decided(lab)
    left = [title for title in descendants().values() if title]
    assert before == os.environ["PYTHONPATH"]
    json.dump({"results": results, "killed": len(killed), "connected": ray.is_initialized(), "left": left}, sys.stdout)


def descendants() -> dict[int, str]:
    """The processes below this one, with their command lines."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it ended meanwhile
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below and pid not in below}:
        below |= more
    found = {}
    for pid in below - {os.getpid()}:
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
        except OSError:
            continue
    return found


def test_ray_is_asked_for_by_nobody_else_and_missed_in_a_sentence() -> None:
    said = run("test_ray_executor.without_a_cluster()")
    assert not said["imported"]
    assert 'pip install "agent-compact[ray]"' in said["missing"]
    assert "The Ray cluster at 127.0.0.1:1 cannot be reached (ConnectionRefusedError); check" in said["unreachable"]


def without_a_cluster() -> None:
    """Tell what happens when Ray is not installed, and when no cluster is where it should be."""
    from compact.errors import ConfigError, MissingExtra
    from compact.replay.ray_executor import on_ray

    said: dict[str, Any] = {"imported": "ray" in sys.modules}
    sys.modules["ray"] = None  # type: ignore[assignment]
    for name, address in (("missing", None), ("unreachable", "127.0.0.1:1")):
        try:
            replay(talks(1), TRIALS, SMALL, engine=on_ray(address))
        except (ConfigError, MissingExtra) as error:
            said[name] = str(error)
        if name == "missing":
            del sys.modules["ray"]
    json.dump(said, sys.stdout)
