"""Stores: keys that cannot collide or escape, and a folder that keeps what it acknowledged."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compact.config.sections import StoragePolicy
from compact.errors import ArchiveError
from compact.stores import (
    KeyMissing,
    KeyTaken,
    check_key,
    events_key,
    natural_order,
    open_store,
    place_of,
    session_of,
    summary_key,
    transcript_key,
)
from compact.stores.fs import Disk, FileStore

session_ids = st.one_of(
    st.text(alphabet=st.characters(), max_size=100),
    st.text(alphabet="aAbB-_=.h/", max_size=4),
    st.sampled_from(["con", "CON", "com1", "lpt9", "nul", "..", ".", "", "a/b", "a\\b", "\0", "\ud800", "é", "É"]),
)


@pytest.mark.spec("S23")
def test_names_of_the_archive() -> None:
    """A plain session id is its own folder, and the step has at least three digits."""
    assert [
        "s-1/transcript-pre-compact-001.jsonl",
        "s-1/summary-012.json",
        "s-1/transcript-pre-compact-1000.jsonl",
        "s-1/events.jsonl",
    ] == [transcript_key("s-1", 1), summary_key("s-1", 12), transcript_key("s-1", 1000), events_key("s-1")]


@pytest.mark.parametrize("session_id", ["a", "s-1", "run_2024-01", "0" * 64, "com0", "console"])
def test_a_plain_id_stays(session_id: str) -> None:
    """Up to 64 of the safe characters need no encoding."""
    assert session_id == place_of(session_id)


@pytest.mark.parametrize(
    "session_id", ["", "A", "con", "nul", "com1", "lpt9", "..", "a/b", "a.b", "=a", "0" * 65, "\0"]
)
def test_any_other_id_is_encoded(session_id: str) -> None:
    """Whatever a disk could misread gets a place that starts with "=" and holds only safe characters."""
    place = place_of(session_id)
    assert place.startswith("=")
    assert set(place) <= set("=-abcdefghijklmnopqrstuvwxyz0123456789")
    assert (place,) == check_key(place)
    assert session_id == session_of(place)


def test_a_long_id_is_hashed() -> None:
    """An id that no file name could hold has a short place, which does not give it back."""
    place = place_of("X" * 300)
    assert (True, 67) == (place.startswith("=h-"), len(place))
    assert None is session_of(place)
    assert place != place_of("X" * 301)


@pytest.mark.parametrize(
    "name", ["Readme.md", "CON", "con", "=A", "=a", "=mfrgg===", "=me", "=me1", "=b4", "é", "", "=h-"]
)
def test_a_foreign_name_is_no_place(name: str) -> None:
    """A name that `place_of` would never give belongs to nobody, unless it is the code of an id that needs one."""
    session_id = session_of(name)
    assert session_id is None or place_of(session_id) == name


@given(session_ids, session_ids)
def test_no_two_ids_share_a_place(one: str, other: str) -> None:
    """Two ids have two places, also on a disk that ignores case."""
    assert (one == other) == (place_of(one).casefold() == place_of(other).casefold())


@given(session_ids)
def test_a_place_gives_its_id_back(session_id: str) -> None:
    """Every place that is not hashed can be read back, and every place is a valid part of a key."""
    place = place_of(session_id)
    assert (place,) == check_key(place)
    assert (None if place.startswith("=h-") else session_id) == session_of(place)


def test_natural_order_counts() -> None:
    """Step 1000 comes after step 999, whatever the padding."""
    keys = ["s/t-001", "s/t-002", "s/t-10", "s/t-999", "s/t-1000", "s/t-1000000000000000000000"]
    assert keys == sorted(set(keys), key=natural_order)


@pytest.mark.parametrize(
    "key", ["", "/", "a//b", "../a", "a/../../b", "a/.", "/etc/passwd", "a\0", "a\\..\\b", "C:/a", "a/.tmp-1", "\ud800"]
)
def test_a_key_cannot_leave_the_root(tmp_path: Path, key: str) -> None:
    """A key with a part that means something to a disk is refused for reading and for writing."""
    store = FileStore(tmp_path / "root")
    with pytest.raises(ArchiveError, match="cannot be stored"):
        store.put(key, b"x")
    with pytest.raises(ArchiveError, match="cannot be stored"):
        store.append(key, [b"x"])
    with pytest.raises(ArchiveError, match="cannot be stored"):
        store.get(key)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.spec("S23")
def test_what_is_put_is_on_disk_under_its_key(tmp_path: Path) -> None:
    """The key is the path below the root, and the bytes come back."""
    store = FileStore(tmp_path / ".compact" / "archive")
    store.put(transcript_key(place_of("s-1"), 1), b'{"role":"user"}\n')
    path = tmp_path / ".compact/archive/s-1/transcript-pre-compact-001.jsonl"
    assert b'{"role":"user"}\n' == path.read_bytes() == store.get("s-1/transcript-pre-compact-001.jsonl")
    assert [path.name] == [entry.name for entry in path.parent.iterdir()]


def test_nothing_is_created_before_the_first_write(tmp_path: Path) -> None:
    """Opening, listing, missing reads and empty appends leave no trace."""
    store = FileStore(tmp_path / "root")
    store.append("s/events.jsonl", [])
    with pytest.raises(KeyMissing, match="Nothing is stored under 's/a'"):
        store.get("s/a")
    assert ([], []) == (store.list(""), store.list("s/"))
    assert [] == list(tmp_path.iterdir())


def test_a_taken_key_is_left_as_it_is(tmp_path: Path) -> None:
    """A second put raises KeyTaken and changes nothing, unless replacing was asked for."""
    store = FileStore(tmp_path)
    store.put("s/a", b"first")
    with pytest.raises(KeyTaken, match="'s/a' is stored already"):
        store.put("s/a", b"second")
    assert b"first" == store.get("s/a")
    store.put("s/a", b"third", if_absent=False)
    assert b"third" == store.get("s/a")
    assert ["a"] == os.listdir(tmp_path / "s")


def test_list_takes_a_text_prefix_in_natural_order(tmp_path: Path) -> None:
    """Prefixes may end inside a name; what is behind a dot and neighbours with a longer name are not among the keys."""
    store = FileStore(tmp_path)
    for key in ["s/t-1000.jsonl", "s/t-999.jsonl", "s/u-001.json", "s2/t-001.jsonl"]:
        store.put(key, b"")
    for hidden in [".tmp/1-ab", ".index/recall.db", "s/.hidden", "s/.deep/t-001.jsonl"]:
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).write_bytes(b"ours alone")
    assert ["s/t-999.jsonl", "s/t-1000.jsonl"] == store.list("s/t-")
    assert ["s/t-999.jsonl", "s/t-1000.jsonl", "s/u-001.json"] == store.list("s/")
    assert ["s/t-999.jsonl", "s/t-1000.jsonl", "s/u-001.json", "s2/t-001.jsonl"] == store.list("")
    assert [] == store.list("t/")


@given(
    st.lists(
        st.text(alphabet="0019a-.é", min_size=1, max_size=6).filter(lambda name: not name.startswith(".")), max_size=20
    ),
    st.lists(st.sampled_from(["", "a/", "a1/", "a01/", "a-/", "a10/b/"]), min_size=1, max_size=4),
)
@example(["t-" + "9" * 60, "t-1" + "0" * 60, "t-" + "0" * 80 + "5", "t--", "t"], ["", "a/"])
def test_list_sorts_as_natural_order_says(names: list[str], folders: list[str]) -> None:
    """Padding, lengths of numbers, folders whose names begin alike: one order for all stores."""
    with TemporaryDirectory() as root:
        for folder in folders:
            Path(root, folder).mkdir(parents=True, exist_ok=True)
        for folder, name in product(folders, names):
            Path(root, folder, name).touch()
        listed = FileStore(root).list("")
        assert sorted(listed, key=natural_order) == listed
        assert len(set(listed)) == sum(len(files) for _, _, files in os.walk(root))


def test_list_shows_files_and_nothing_else(tmp_path: Path) -> None:
    """Links are not followed, neither to files nor to folders; empty folders and pipes are no keys."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"x")
    store = FileStore(tmp_path / "root")
    store.put("s/deep/a", b"x")
    (tmp_path / "root" / "s" / "link").symlink_to(tmp_path / "outside" / "secret")
    (tmp_path / "root" / "s" / "linked").symlink_to(tmp_path / "outside")
    (tmp_path / "root" / "empty").mkdir()
    os.mkfifo(tmp_path / "root" / "s" / "pipe")
    assert ["s/deep/a"] == store.list("") == store.list("s/") == store.list("s/deep/")
    with pytest.raises(ArchiveError, match=r"could not list 's/deep/a/'.* \(errno "):
        store.list("s/deep/a/")


def test_append_adds_whole_lines(tmp_path: Path) -> None:
    """Lines get the newline they lack, and a line that was cut short is not joined."""
    store = FileStore(tmp_path)
    store.append("s/e", [b"1", b"2\n"])
    store.append("s/e", [b"3"])
    (tmp_path / "s" / "e").write_bytes(store.get("s/e") + b'{"torn')
    store.append("s/e", iter([b"4"]))
    assert b'1\n2\n3\n{"torn\n4\n' == store.get("s/e")


@pytest.mark.spec("T05")
def test_only_the_owner_may_look(tmp_path: Path) -> None:
    """Folders are 0700 and files 0600, whatever the umask allows."""
    before = os.umask(0)
    try:
        store = FileStore(tmp_path / "deep" / "root")
        store.put("s/a", b"x")
        store.append("s/e", [b"x"])
    finally:
        os.umask(before)
    modes = {p.relative_to(tmp_path).as_posix(): p.stat().st_mode & 0o777 for p in tmp_path.rglob("*")}
    folders = ["deep", "deep/root", "deep/root/.tmp", "deep/root/s"]
    files = ["deep/root/.gitignore", "deep/root/s/a", "deep/root/s/e"]
    assert dict.fromkeys(folders, 0o700) | dict.fromkeys(files, 0o600) == modes


@pytest.mark.spec("T05")
def test_only_the_owner_may_look_while_it_is_written(tmp_path: Path) -> None:
    """The temporary file is no more open than the final one."""
    modes: list[int] = []

    def watched(file: int) -> None:
        modes.append(os.fstat(file).st_mode & 0o777)
        os.fsync(file)

    before = os.umask(0)
    try:
        FileStore(tmp_path / "root", disk=Disk(fsync=watched)).put("s/a", b"x")
    finally:
        os.umask(before)
    assert 0o600 in modes
    assert {0o600, 0o700} >= set(modes) - {tmp_path.stat().st_mode & 0o777}


@pytest.mark.spec("T05")
@pytest.mark.parametrize("planted", ["root", "root/s", "root/s/a"])  # `.tmp` has a test of its own
def test_a_planted_link_is_refused(tmp_path: Path, planted: str) -> None:
    """No read and no write goes through a symbolic link, be it the root, a folder or the file."""
    outside = tmp_path / "outside"
    (outside / "s").mkdir(parents=True)
    (outside / "s" / "a").write_bytes(b"not yours")
    link = tmp_path / planted
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside / os.path.relpath(planted, "root"))
    store = FileStore(tmp_path / "root")
    operations: list[Callable[[], object]] = [
        lambda: store.get("s/a"),
        lambda: store.put("s/a", b"x", if_absent=False),
        lambda: store.append("s/a", [b"x"]),
    ]
    for operation in operations:
        with pytest.raises(ArchiveError, match="symbolic link"):
            operation()
    assert (b"not yours", ["s"], ["a"]) == (
        (outside / "s" / "a").read_bytes(),
        os.listdir(outside),
        os.listdir(outside / "s"),
    )


@pytest.mark.spec("T05")
@pytest.mark.parametrize("made", [False, True], ids=["at the first write", "later"])
def test_a_planted_folder_for_temporary_files_is_refused(tmp_path: Path, made: bool) -> None:
    """What is being written does not go through a link either, and nothing behind one is swept."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "1-ab").write_bytes(b"not yours")
    store = FileStore(tmp_path / "root")
    if made:
        store.put("s/first", b"x")
        (tmp_path / "root" / ".tmp").rmdir()
    else:
        (tmp_path / "root").mkdir()
    (tmp_path / "root" / ".tmp").symlink_to(tmp_path / "outside")
    with pytest.raises(ArchiveError, match=r"'\.tmp' in the archive is a symbolic link"):
        store.put("s/a", b"x")
    assert ["1-ab"] == os.listdir(tmp_path / "outside")


@pytest.mark.spec("T05")
def test_a_planted_temporary_file_is_left_alone(tmp_path: Path) -> None:
    """A link among the temporary files is no temporary file: it is not followed, and what it names stays."""
    (tmp_path / "mine").write_bytes(b"not yours")
    (tmp_path / "root" / ".tmp").mkdir(parents=True)
    (tmp_path / "root" / ".tmp" / "1-ab").symlink_to(tmp_path / "mine")
    FileStore(tmp_path / "root").put("s/a", b"x")
    assert b"not yours" == (tmp_path / "mine").read_bytes()


@pytest.mark.spec("T05")
def test_a_link_inside_the_project_is_refused(tmp_path: Path) -> None:
    """Of a relative root every step is checked: a project may bring `.compact` as a link."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".compact").symlink_to(tmp_path / "elsewhere")
    before = Path.cwd()
    os.chdir(tmp_path / "project")
    try:
        store = FileStore(".compact/archive")
    finally:
        os.chdir(before)
    with pytest.raises(ArchiveError, match=r"'\.compact' in the archive is a symbolic link"):
        store.put("s/a", b"x")
    assert [] == os.listdir(tmp_path / "elsewhere")


def test_a_relative_root_survives_a_change_of_directory(tmp_path: Path) -> None:
    """The root is fixed when the store is made."""
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        store = FileStore(".compact/archive")
    finally:
        os.chdir(before)
    store.put("s/a", b"x")
    assert b"x" == (tmp_path / ".compact/archive/s/a").read_bytes()


def failing(code: int) -> Callable[..., Any]:
    """A system call that fails with this errno."""

    def call(*_: object) -> Any:
        raise OSError(code, os.strerror(code), "/private/path")

    return call


@pytest.mark.parametrize(
    "disk",
    [
        Disk(open=failing(errno.ENOSPC)),
        Disk(write=failing(errno.ENOSPC)),
        Disk(fsync=failing(errno.ENOSPC)),
        Disk(link=failing(errno.ENOSPC)),
    ],
    ids=["open", "write", "fsync", "link"],
)
def test_a_failed_write_says_so_and_leaves_nothing(tmp_path: Path, disk: Disk) -> None:
    """The error names the key, the size, the reason and the way out, but no path; no file and no descriptor stays."""
    (tmp_path / "s").mkdir()
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    with pytest.raises(ArchiveError) as caught:
        FileStore(tmp_path, disk=disk).put("s/a", b"x" * 1500)
    assert (
        "The archive could not write 's/a' (1,500 bytes): No space left on device (errno 28). "
        "Free some space, or point storage.path to another disk."
    ) == str(caught.value)
    assert [] == os.listdir(tmp_path / "s")
    assert descriptors == (len(os.listdir("/proc/self/fd")) if descriptors else 0)


def test_a_failed_replace_keeps_the_old_data(tmp_path: Path) -> None:
    """When the new file cannot take the name, the old one still has it."""
    FileStore(tmp_path).put("s/a", b"old")
    with pytest.raises(ArchiveError, match=r"Input/output error \(errno 5\). Check the disk"):
        FileStore(tmp_path, disk=Disk(replace=failing(errno.EIO))).put("s/a", b"new", if_absent=False)
    assert (b"old", ["a"]) == (FileStore(tmp_path).get("s/a"), os.listdir(tmp_path / "s"))


def test_a_disk_without_links_works_the_same(tmp_path: Path) -> None:
    """Where hard links are not supported a key is still taken once, and given back when the write fails."""
    store = FileStore(tmp_path, disk=Disk(link=failing(errno.EOPNOTSUPP)))
    store.put("s/a", b"first")
    with pytest.raises(KeyTaken):
        store.put("s/a", b"second")
    broken = FileStore(tmp_path, disk=Disk(link=failing(errno.EPERM), replace=failing(errno.EIO)))
    with pytest.raises(ArchiveError, match="errno 5"):
        broken.put("s/b", b"x")
    assert (b"first", ["a"]) == (store.get("s/a"), os.listdir(tmp_path / "s"))


def test_short_writes_are_carried_on(tmp_path: Path) -> None:
    """A disk that takes three bytes at a time still gets them all, in order."""
    store = FileStore(tmp_path, disk=Disk(write=lambda file, data: os.write(file, data[:3])))
    store.put("s/a", b"0123456789")
    store.append("s/e", [b"0123456789"])
    assert (b"0123456789", b"0123456789\n") == (store.get("s/a"), store.get("s/e"))


def tapped(tap: Callable[[str, Callable[..., Any], tuple[Any, ...]], Any]) -> Disk:
    """A disk whose every call goes through `tap(name, the real call, its arguments)`."""

    def through(name: str) -> Callable[..., Any]:
        real = getattr(Disk(), name)
        return lambda *arguments: tap(name, real, arguments)

    return Disk(**{field.name: through(field.name) for field in fields(Disk)})


def test_every_step_to_the_disk_in_its_order(tmp_path: Path) -> None:
    """Content before name, name before acknowledgement, and each folder after what was made in it."""
    root = tmp_path.resolve() / "root"
    log: list[str] = []
    paths: dict[int, str] = {}

    def name_of(path: Path) -> str:
        return "TMP" if path.parent.name == ".tmp" else path.relative_to(tmp_path.resolve()).as_posix()

    def note(name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        result = real(*arguments)
        if name == "open":
            paths[result] = name_of(arguments[0])
        elif name in ("link", "replace"):
            log.append(f"{name} {name_of(arguments[0])} {name_of(arguments[1])}")
        elif name != "lock":
            log.append(f"{name} {paths[arguments[0]]}")
        return result

    store = FileStore(root, disk=tapped(note))
    store.put("s/first", b"x")  # makes the folders
    log.clear()
    store.put("s/a", b"x")
    written = ["write TMP", "fsync TMP", "close TMP"]
    assert [*written, "link TMP root/s/a", "fsync root/s", "close root/s"] == log
    log.clear()
    store.put("s/a", b"y", if_absent=False)
    assert [*written, "replace TMP root/s/a", "fsync root/s", "close root/s"] == log
    log.clear()
    store.put("t/a", b"x")
    assert [
        *written,
        *["fsync root", "close root", "link TMP root/t/a", "fsync root/t", "close root/t"],
    ] == log
    log.clear()
    store.append("t/e", [b"x"])
    assert ["write root/t/e", "fsync root/t/e", "fsync root/t", "close root/t", "close root/t/e"] == log
    log.clear()
    store.append("t/e", [b"x"])
    assert ["write root/t/e", "fsync root/t/e", "close root/t/e"] == log


def test_a_folder_that_another_process_made_is_made_durable(tmp_path: Path) -> None:
    """The maker may die before its own sync: whoever writes into a folder for the first time syncs its parent."""
    synced: list[int] = []

    def note(name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name == "fsync":
            synced.append(os.fstat(arguments[0]).st_ino)
        return real(*arguments)

    (tmp_path / "root" / "s").mkdir(parents=True)
    FileStore(tmp_path / "root", disk=tapped(note)).put("s/a", b"x")
    assert {tmp_path.stat().st_ino, (tmp_path / "root").stat().st_ino} <= set(synced)


@pytest.mark.spec("T01")
def test_strays_are_swept_and_living_files_are_not(tmp_path: Path) -> None:
    """The first write of a store removes what a dead writer left, and only that; later writes do not look again."""
    FileStore(tmp_path).put("s/a", b"x")
    stray, held = tmp_path / ".tmp" / "1-stray", tmp_path / ".tmp" / "2-held"
    stray.write_bytes(b"left by a crash")
    with open(held, "wb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        store = FileStore(tmp_path)
        store.append("s/e", [b"x"])
        assert [held.name] == os.listdir(tmp_path / ".tmp")
    store.put("s/b", b"x")
    assert [held.name] == os.listdir(tmp_path / ".tmp")
    FileStore(tmp_path).put("s/c", b"x")
    assert [] == os.listdir(tmp_path / ".tmp")


def test_a_file_is_held_until_it_has_its_name(tmp_path: Path) -> None:
    """A store that starts while another writes takes nothing from under it, at no moment of the write."""
    found: list[list[str]] = []

    def another_starts(name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name != "lock":  # before it is locked it may be swept, which is another test
            FileStore(tmp_path).put(f"other/{len(found)}", b"y")
            found.append(os.listdir(tmp_path / ".tmp"))
        return real(*arguments)

    FileStore(tmp_path, disk=tapped(another_starts)).put("s/a", b"x")
    assert b"x" == FileStore(tmp_path).get("s/a")
    assert 2 <= sum(len(names) == 1 for names in found)


def test_a_file_swept_before_its_lock_is_written_again(tmp_path: Path) -> None:
    """The moment between making a temporary file and locking it belongs to nobody: losing it costs a try."""
    lost: list[Path] = []

    def sweep_at_once(path: Path, flags: int, mode: int) -> int:
        file = os.open(path, flags, mode)
        if path.parent.name == ".tmp" and len(lost) < 3:
            lost.append(path)
            path.unlink()
        return file

    FileStore(tmp_path, disk=Disk(open=sweep_at_once)).put("s/a", b"x")
    assert (3, b"x", []) == (len(lost), FileStore(tmp_path).get("s/a"), os.listdir(tmp_path / ".tmp"))


def test_delete_removes_for_good(tmp_path: Path) -> None:
    """The file goes, also from under a temporary name, and the folder with the last file; missing is fine."""
    store = FileStore(tmp_path / "root")
    store.delete("s/a")
    assert [] == list(tmp_path.iterdir())
    store.put("s/a", b"x")
    store.put("s/b", b"x")
    os.link(tmp_path / "root/s/a", tmp_path / "root/.tmp/1-crashed-before-it-was-unlinked")
    store.delete("s/a")
    assert (["s/b"], []) == (store.list(""), os.listdir(tmp_path / "root" / ".tmp"))
    store.delete("s/b")
    store.delete("s/b")
    assert ([], {".tmp", ".gitignore"}) == (store.list(""), set(os.listdir(tmp_path / "root")))
    store.put("top", b"x")
    store.delete("top")
    assert (tmp_path / "root").is_dir()
    store.put("s/a", b"again")
    assert b"again" == store.get("s/a")
    with pytest.raises(ArchiveError, match="cannot be stored"):
        store.delete("../a")
    with pytest.raises(ArchiveError, match=r"could not delete 's'.* \(errno "):
        store.delete("s")


def test_delete_syncs_one_folder(tmp_path: Path) -> None:
    """That of the file, or the one above when the file was its last; after a failure the same again."""
    synced: list[int] = []
    fails: list[OSError] = []

    def note(name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name == "fsync":
            if fails:
                raise fails.pop()
            synced.append(os.fstat(arguments[0]).st_ino)
        return real(*arguments)

    FileStore(tmp_path / "root").put("s/a", b"x")
    FileStore(tmp_path / "root").put("s/b", b"x")
    root, folder = (tmp_path / "root").stat().st_ino, (tmp_path / "root" / "s").stat().st_ino
    store = FileStore(tmp_path / "root", disk=tapped(note))
    store.delete("s/a")
    assert [folder] == synced
    fails.append(OSError(errno.EIO, os.strerror(errno.EIO)))
    with pytest.raises(ArchiveError, match="could not delete 's/b'"):
        store.delete("s/b")
    store.delete("s/b")
    assert [folder, root] == synced


def test_a_failed_delete_says_so(tmp_path: Path) -> None:
    """A removal that is not on disk yet is not reported as done."""
    FileStore(tmp_path).put("s/a", b"x")
    with pytest.raises(ArchiveError, match=r"could not delete 's/a': Input/output error \(errno 5\)"):
        FileStore(tmp_path, disk=Disk(fsync=failing(errno.EIO))).delete("s/a")


def test_a_folder_may_vanish_under_a_writer(tmp_path: Path) -> None:
    """Whoever deletes the last file of a folder takes it away; a writer on its way makes it again."""
    store = FileStore(tmp_path)
    vanished: list[str] = []

    def take_the_folder(name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        target = Path(arguments[-1]) if name in ("link", "replace") else Path(str(arguments[0]))
        if target.parent.name == "s" and vanished.count(name) < 2:
            vanished.append(name)
            (tmp_path / "s").rmdir()
        return real(*arguments)

    racing = FileStore(tmp_path, disk=tapped(take_the_folder))
    racing.put("s/a", b"put")
    store.delete("s/a")
    racing.put("s/a", b"replaced", if_absent=False)
    assert b"replaced" == store.get("s/a")
    store.delete("s/a")
    racing.append("s/e", [b"appended"])
    assert b"appended\n" == store.get("s/e")
    assert ["link", "link", "replace", "replace", "open", "open"] == vanished


def test_writers_and_deleters_do_not_hurt_each_other(tmp_path: Path) -> None:
    """Threads that write and delete in one folder: no error, and what was written last is there."""
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            store = FileStore(tmp_path)
            for turn in range(60):
                store.put(f"s/{number}", b"%d" % turn)
                store.append(f"s/e{number}", [b"x"])
                assert b"%d" % turn == store.get(f"s/{number}")
                store.delete(f"s/{number}")
                store.delete(f"s/e{number}")
            store.put(f"s/{number}", b"last")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == errors
    assert [f"s/{number}" for number in range(4)] == FileStore(tmp_path).list("")


def test_a_lock_that_is_never_given_back_stops_nobody(tmp_path: Path) -> None:
    """A writer that was interrupted before it could close its file keeps the lock; lines still arrive."""
    store = FileStore(tmp_path)
    store.append("s/e", [b"1"])
    with open(tmp_path / "s" / "e", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        store.append("s/e", [b"2"])
    assert b"1\n2\n" == store.get("s/e")


def test_a_sweep_never_takes_what_is_being_written(tmp_path: Path) -> None:
    """Stores that sweep without a pause (deleting does) beside stores that write: every write succeeds."""
    done = threading.Event()
    errors: list[BaseException] = []

    def late(file: int) -> None:
        """Come when a sweep has the file already, half of the time, and take it the moment it lets go."""
        if random.random() < 0.5:
            time.sleep(0.001)
        for _ in range(1000):
            with suppress(BlockingIOError):
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        raise BlockingIOError

    def write(number: int) -> None:
        try:
            store = FileStore(tmp_path, disk=Disk(lock=late))
            for turn in range(40):
                store.put(f"s/{number}-{turn}", b"x")
        except BaseException as error:
            errors.append(error)

    def sweep() -> None:
        while not done.is_set():
            FileStore(tmp_path).delete("s/none")

    writers = [threading.Thread(target=write, args=[number]) for number in range(2)]
    sweepers = [threading.Thread(target=sweep) for _ in range(3)]
    for thread in (*writers, *sweepers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in sweepers:
        thread.join()
    assert [] == errors


def test_lines_of_several_writers_are_not_joined(tmp_path: Path) -> None:
    """A disk that takes a few bytes at a time still gives each writer's lines one piece."""
    line = b"0123456789" * 20

    def work() -> None:
        store = FileStore(tmp_path, disk=Disk(write=lambda file, data: os.write(file, data[:7])))
        for _ in range(20):
            store.append("s/e", [line])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [line] * 80 == FileStore(tmp_path).get("s/e").splitlines()


@pytest.mark.parametrize("links", [True, False])
def test_one_of_many_gets_the_key(tmp_path: Path, links: bool) -> None:
    """Of eight writers of one key exactly one is acknowledged, and its data is what is there."""
    disk = Disk() if links else Disk(link=failing(errno.EOPNOTSUPP))
    start = threading.Barrier(8)
    for turn in range(10):
        won: list[bytes] = []

        def work(data: bytes, key: str = f"s/{turn}", won: list[bytes] = won) -> None:
            store = FileStore(tmp_path, disk=disk)
            start.wait()
            try:
                store.put(key, data)
            except KeyTaken:
                return
            won.append(data)

        threads = [threading.Thread(target=work, args=[b"%d" % number * 5000]) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [FileStore(tmp_path).get(f"s/{turn}")]


def test_git_does_not_see_the_archive(tmp_path: Path) -> None:
    """`.compact` of a project is ignored whole, an archive elsewhere by itself; what is there already stays."""
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        in_project = FileStore("sub/.compact/archive")
    finally:
        os.chdir(before)
    in_project.put("s/a", b"x")
    assert b"*\n" == (tmp_path / "sub/.compact/.gitignore").read_bytes()
    assert [] == [path for path in (tmp_path / "sub/.compact/archive").iterdir() if path.name == ".gitignore"]

    FileStore(tmp_path / "elsewhere").append("s/e", [b"x"])
    assert b"*\n" == (tmp_path / "elsewhere/.gitignore").read_bytes()

    (tmp_path / "elsewhere/.gitignore").write_bytes(b"!keep\n")
    FileStore(tmp_path / "elsewhere").put("s/a", b"x")
    assert b"!keep\n" == (tmp_path / "elsewhere/.gitignore").read_bytes()


def test_an_archive_that_git_sees_is_still_an_archive(tmp_path: Path) -> None:
    """A `.gitignore` that cannot be written stops nothing; what stands in its place is not followed."""

    def refuse(temporary: Path, target: Path) -> None:
        if target.name == ".gitignore":
            raise OSError(errno.EACCES, "no")
        os.link(temporary, target)

    FileStore(tmp_path / "a", disk=Disk(link=refuse)).put("s/a", b"x")
    assert b"x" == FileStore(tmp_path / "a").get("s/a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / ".gitignore").symlink_to(tmp_path / "nowhere")
    FileStore(tmp_path / "b").put("s/a", b"x")
    assert not (tmp_path / "nowhere").exists()


def test_a_root_that_was_taken_away_is_made_again(tmp_path: Path) -> None:
    """Nothing that a store remembers of its folders is trusted blindly."""
    store = FileStore(tmp_path / "root")
    store.put("s/a", b"x")
    (tmp_path / "root").rename(tmp_path / "old")
    store.put("s/a", b"y")
    store.append("t/e", [b"z"])
    assert (b"y", b"z\n") == (store.get("s/a"), store.get("t/e"))


def test_reading_a_folder_leaks_nothing(tmp_path: Path) -> None:
    """A key that names a folder is an error, and its descriptor is closed."""
    store = FileStore(tmp_path)
    store.put("s/a", b"x")
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    with pytest.raises(ArchiveError, match="A file or folder is in the place"):
        store.get("s")
    assert before == (len(os.listdir("/proc/self/fd")) if before else 0)


def test_where_nobody_can_lock_age_decides(tmp_path: Path) -> None:
    """Where locks work, age means nothing; on a disk without them an hour does. Keys are kept apart either way."""
    no_locks = Disk(lock=failing(errno.ENOTSUP))
    FileStore(tmp_path, disk=no_locks).put("s/a", b"x")
    old, new = tmp_path / ".tmp" / "1-old", tmp_path / ".tmp" / "2-new"
    new.write_bytes(b"")
    with open(old, "wb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        os.utime(old, (time.time() - 3700,) * 2)
        FileStore(tmp_path).put("s/b", b"x")
        assert [old.name] == os.listdir(tmp_path / ".tmp")
    new.write_bytes(b"")
    store = FileStore(tmp_path, disk=no_locks)
    with pytest.raises(KeyTaken):
        store.put("s/b", b"x")
    store.append("s/e", [b"x"])
    assert [new.name] == os.listdir(tmp_path / ".tmp")
    neither = FileStore(tmp_path, disk=Disk(lock=failing(errno.ENOTSUP), link=failing(errno.ENOTSUP)))
    with pytest.raises(ArchiveError, match="could not write 's/c'"):
        neither.put("s/c", b"x")


def test_a_file_in_the_place_of_a_folder_is_explained(tmp_path: Path) -> None:
    """What stands in the way is said, for writing and for reading."""
    (tmp_path / "s").write_bytes(b"")
    with pytest.raises(ArchiveError, match="A file or folder is in the place"):
        FileStore(tmp_path).put("s/a", b"x")
    with pytest.raises(ArchiveError, match="A file or folder is in the place"):
        FileStore(tmp_path).get("s/a")


def test_open_store_follows_the_policy(tmp_path: Path) -> None:
    """`fs` gives a folder, `none` nothing."""
    store = open_store(StoragePolicy(adapter="fs", path=str(tmp_path)))
    assert store is not None
    store.put("s/a", b"x")
    assert b"x" == (tmp_path / "s" / "a").read_bytes()
    assert None is open_store(StoragePolicy(adapter="none"))
