"""Stores: keys that cannot collide or escape, and a folder that keeps what it acknowledged."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compact._policy import StoragePolicy
from compact.errors import ArchiveError, MissingExtra
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
    store.put(transcript_key("s-1", 1), b'{"role":"user"}\n')
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
    """Prefixes may end inside a name; temporary files and neighbours with a longer name are not among the keys."""
    store = FileStore(tmp_path)
    for key in ["s/t-1000.jsonl", "s/t-999.jsonl", "s/u-001.json", "s2/t-001.jsonl"]:
        store.put(key, b"")
    (tmp_path / "s" / ".tmp-1-ab").write_bytes(b"stray")
    assert ["s/t-999.jsonl", "s/t-1000.jsonl"] == store.list("s/t-")
    assert ["s/t-999.jsonl", "s/t-1000.jsonl", "s/u-001.json"] == store.list("s/")
    assert ["s/t-999.jsonl", "s/t-1000.jsonl", "s/u-001.json", "s2/t-001.jsonl"] == store.list("")
    assert [] == store.list("t/")


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
    expected = {"deep": 0o700, "deep/root": 0o700, "deep/root/s": 0o700, "deep/root/s/a": 0o600, "deep/root/s/e": 0o600}
    assert expected == modes


@pytest.mark.spec("T05")
@pytest.mark.parametrize("planted", ["root", "root/s", "root/s/a"])
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


def test_a_file_in_the_place_of_a_folder_is_explained(tmp_path: Path) -> None:
    """What stands in the way is said, for writing and for reading."""
    (tmp_path / "s").write_bytes(b"")
    with pytest.raises(ArchiveError, match="Something else stands where"):
        FileStore(tmp_path).put("s/a", b"x")
    with pytest.raises(ArchiveError, match="Something else stands where"):
        FileStore(tmp_path).get("s/a")


def test_open_store_follows_the_policy(tmp_path: Path) -> None:
    """`fs` gives a folder, `none` nothing, and `s3` names the extra that it needs."""
    store = open_store(StoragePolicy(adapter="fs", path=str(tmp_path)))
    assert store is not None
    store.put("s/a", b"x")
    assert b"x" == (tmp_path / "s" / "a").read_bytes()
    assert None is open_store(StoragePolicy(adapter="none"))
    with pytest.raises(MissingExtra, match=r"agent-compact\[s3\]"):
        open_store(StoragePolicy(adapter="s3", bucket="b"))
