"""The archive in a bucket, against two real servers, and through a proxy that makes a bad service of them."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from s3_servers import (
    ENVIRONMENT,
    FAULTS,
    HASTE,
    KMS_KEY,
    FaultyProxy,
    client,
    faulty_series,
    moto,
    new_bucket,
    rclone,
)

from compact import CompactConfig, CompactManager
from compact.config.sections import StoragePolicy
from compact.errors import ArchiveError, ConfigError, MissingExtra
from compact.stores import KeyMissing, KeyTaken, open_store
from compact.stores.s3 import Patience, S3Store
from compact.testing import Recorder, chat

pytestmark = pytest.mark.slow  # real servers


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard chain finds what the environment holds, and nothing else."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """A moto server."""
    with moto() as address:
        yield address


@pytest.fixture(scope="session")
def raw(url: str) -> Iterator[Any]:
    """A client beside the store, on the moto server."""
    service = client(url)
    yield service
    service.close()


@pytest.fixture(scope="session")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server that checks signatures, and the folder of its bucket "signed"."""
    root = tmp_path_factory.mktemp("rclone")
    (root / "signed").mkdir()
    with rclone(root) as address:
        yield address, root / "signed"


@pytest.fixture(scope="session")
def shared(url: str, raw: Any) -> S3Store:
    """A store on the moto server that many tests use; making a client takes longer than most of them."""
    return S3Store(new_bucket(raw), "p", endpoint_url=url)


@pytest.fixture
def place() -> str:
    """A folder that no other test uses."""
    return f"s-{secrets.token_hex(6)}"


class Service:
    """A service that can be made to fail, and a store on it."""

    def __init__(self, url: str, raw: Any) -> None:
        self.proxy = FaultyProxy(url)
        self.raw = raw
        self.bucket = new_bucket(raw, versions=True)
        self.store = S3Store(self.bucket, endpoint_url=self.proxy.url, patience=HASTE)
        self.encrypted = S3Store(self.bucket, kms_key_id=KMS_KEY, endpoint_url=self.proxy.url, patience=HASTE)

    def fails(self, *, always: bool = False, **by_method: str) -> None:
        """Give the next request of a method a fault, or every one of them."""
        self.proxy.requests.clear()
        self.proxy.choose = lambda method, path: by_method.get(method) if always else by_method.pop(method, None)

    def puts(self) -> list[Mapping[str, str]]:
        """The heads of the writes that were asked for since."""
        return [request.headers for request in self.proxy.requests if request.method == "PUT"]

    def versions(self, place: str) -> list[str]:
        """Every version of every key in a folder."""
        return versions(self.raw, self.bucket, place)


@pytest.fixture(scope="session")
def _service(url: str, raw: Any) -> Iterator[Service]:
    service = Service(url, raw)
    with service.proxy:
        yield service


@pytest.fixture
def service(_service: Service) -> Service:
    """A service that does not fail yet."""
    _service.fails()
    return _service


def versions(raw: Any, bucket: str, prefix: str = "") -> list[str]:
    """Every version of every key, and every delete marker."""
    page = raw.list_object_versions(Bucket=bucket, Prefix=prefix)
    return [one["Key"] for one in [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]]


# -- what a store does -----------------------------------------------------------------------------------------------


@pytest.mark.spec("S24")
@pytest.mark.parametrize(("prefix", "root"), [("team/agents", "team/agents/"), ("/team/", "team/"), ("", "")])
def test_what_is_put_is_in_the_bucket_under_its_prefix(url: str, raw: Any, prefix: str, root: str) -> None:
    """The key stands below the prefix, however its slashes are written, and the bytes come back."""
    bucket = new_bucket(raw)
    store = S3Store(bucket, prefix, endpoint_url=url)
    store.put("s/transcript-pre-compact-001.jsonl", b'{"role":"user"}\n')
    there = raw.get_object(Bucket=bucket, Key=f"{root}s/transcript-pre-compact-001.jsonl")["Body"].read()
    assert b'{"role":"user"}\n' == there == store.get("s/transcript-pre-compact-001.jsonl")
    with pytest.raises(KeyMissing, match="Nothing is stored under 's/a'"):
        store.get("s/a")


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 12_000])
def test_any_bytes_come_back(shared: S3Store, place: str, data: bytes) -> None:
    """Nothing, a byte, and three megabytes."""
    shared.put(f"{place}/a", data)
    assert data == shared.get(f"{place}/a")


def test_a_taken_key_is_left_as_it_is(url: str, raw: Any) -> None:
    """A second put raises KeyTaken and changes nothing, unless replacing was asked for; a stranger's object too."""
    bucket = new_bucket(raw, versions=True)
    store = S3Store(bucket, endpoint_url=url)
    store.put("s/a", b"first")
    with pytest.raises(KeyTaken, match="'s/a' is stored already"):
        store.put("s/a", b"second")
    assert (b"first", ["s/a"]) == (store.get("s/a"), versions(raw, bucket))
    store.put("s/a", b"third", if_absent=False)
    assert b"third" == store.get("s/a")
    raw.put_object(Bucket=bucket, Key="s/b", Body=b"not ours")
    with pytest.raises(KeyTaken):
        store.put("s/b", b"ours")
    assert b"not ours" == store.get("s/b")


@pytest.mark.parametrize("key", ["", "a//b", "../a", "a/.", "/a", "a\0", "a\\b", "C:/a", "\ud800"])
def test_a_key_cannot_leave_the_prefix(key: str) -> None:
    """What a disk refuses, a bucket refuses, before anything is sent."""
    store = S3Store("bucket", "p", endpoint_url="http://127.0.0.1:1")
    for call in (store.get, store.delete, lambda key: store.put(key, b"")):
        with pytest.raises(ArchiveError, match="cannot be stored"):
            call(key)


def test_lines_go_to_an_object_of_their_own(url: str, raw: Any) -> None:
    """Each append makes a new object beside the last; nothing is added to one, and no lines make none."""
    store = S3Store(new_bucket(raw), "p", endpoint_url=url)
    assert not store.appends
    for line in (b"one", b"two\n", b"three"):
        store.append("s/events-003.jsonl", [line, b"end"])
    store.append("s/events-003.jsonl", [])
    store.append("s.1/plain", [b"x"])
    store.append("s.1/plain", [b"x"])
    names = ["s/events-003.jsonl", "s/events-003_2.jsonl", "s/events-003_3.jsonl"]
    assert (names, ["s.1/plain", "s.1/plain_2"]) == (store.list("s/"), store.list("s.1/"))
    assert [b"one\nend\n", b"two\nend\n", b"three\nend\n"] == [store.get(name) for name in names]


def test_listing_is_in_natural_order_and_shows_keys_only(url: str, raw: Any) -> None:
    """A prefix is a text, step 1000 comes after 999, and what cannot be a key is not shown."""
    bucket = new_bucket(raw)
    for key in ("p/s/t-1000", "p/s/t-999", "p/s/t-2 ü", "p/s2/t-1", "p/", "p/s/", "p/s/.hidden", "q/s/t-1", "ps/t-1"):
        raw.put_object(Bucket=bucket, Key=key, Body=b"")
    store = S3Store(bucket, "p", endpoint_url=url)
    assert ["s/t-2 ü", "s/t-999", "s/t-1000"] == store.list("s/")
    assert ["s/t-2 ü", "s/t-999", "s/t-1000", "s2/t-1"] == store.list("s") == store.list("")
    assert ["s/t-999"] == store.list("s/t-9")
    assert [] == store.list("none/")
    with pytest.raises(ArchiveError, match="cannot be stored"):
        store.list("../")


def test_more_keys_than_a_page_holds(signed: tuple[str, Path]) -> None:
    """A listing of 2,345 keys comes in pages, and is whole."""
    url, folder = signed
    (folder / "many" / "s").mkdir(parents=True)
    for n in range(2345):
        (folder / "many" / "s" / f"t-{n}").touch()
    assert [f"s/t-{n}" for n in range(2345)] == S3Store("signed", "many", endpoint_url=url).list("s/")


def test_deleting_is_for_good(url: str, raw: Any) -> None:
    """Every version and every marker of the key goes, and nothing else; a missing key is fine."""
    bucket = new_bucket(raw, versions=True)
    store = S3Store(bucket, "p", endpoint_url=url)
    for data in (b"1", b"2", b"3"):
        store.put("s/a", data, if_absent=False)
    raw.delete_object(Bucket=bucket, Key="p/s/a")
    store.put("s/a.b", b"stays")
    store.put("s/b", b"goes")
    assert 6 == len(versions(raw, bucket))
    for key in ("s/a", "s/b", "s/none"):
        store.delete(key)
    assert ["p/s/a.b"] == versions(raw, bucket)
    store.put("s/a", b"new")
    assert b"new" == store.get("s/a")


def test_deleting_where_no_versions_are_known(signed: tuple[str, Path]) -> None:
    """The object itself goes."""
    store = S3Store("signed", "gone", endpoint_url=signed[0])
    store.put("s/a", b"x")
    store.delete("s/a")
    store.delete("s/a")
    assert ([], False) == (store.list(""), (signed[1] / "gone/s/a").exists())


# -- encryption ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("S24", "T07")
def test_every_put_asks_for_encryption(service: Service, place: str) -> None:
    """With a KMS key configured every kind of write names it, also a second try, and the object has it."""
    service.fails(PUT="500 InternalError")
    store = service.encrypted
    store.put(f"{place}/a", b"1")
    store.put(f"{place}/a", b"2", if_absent=False)
    store.append(f"{place}/e.jsonl", [b"3"])
    asked = service.puts()
    assert 4 == len(asked)
    assert {("aws:kms", KMS_KEY)} == {
        (head["x-amz-server-side-encryption"], head["x-amz-server-side-encryption-aws-kms-key-id"]) for head in asked
    }
    found = service.raw.head_object(Bucket=service.bucket, Key=f"{place}/e.jsonl")
    assert "aws:kms" == found["ServerSideEncryption"]


@pytest.mark.spec("T07")
def test_a_service_that_does_not_encrypt_is_refused(service: Service, place: str) -> None:
    """A write that is kept without the encryption it asked for is no success."""
    service.fails(PUT="plain", always=True)
    with pytest.raises(ArchiveError, match=r"\(3 bytes\).* does not report it as encrypted.*storage.kms_key_id"):
        service.encrypted.put(f"{place}/a", b"abc")


@pytest.mark.parametrize("named", [f"arn:aws:kms:us-east-1:1:key/{KMS_KEY}", "alias/archive"])
def test_a_kms_key_by_its_other_names(url: str, raw: Any, named: str) -> None:
    """In full, or by an alias."""
    store = S3Store(new_bucket(raw), kms_key_id=named, endpoint_url=url)
    store.put("s/a", b"abc")
    assert b"abc" == store.get("s/a")


# -- losses and lies -------------------------------------------------------------------------------------------------


@pytest.mark.spec("T07")
@pytest.mark.parametrize("method", ["HEAD", "PUT"])
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_does_not_stop_a_write(service: Service, place: str, method: str, fault: str) -> None:
    """It is made up for by looking again, and the object is written once. Only damage on the way in is refused."""
    service.fails(**{method: fault})
    if (method, fault) == ("PUT", "flip"):
        with pytest.raises(ArchiveError, match="are not what was stored, at the end of 6 tries"):
            service.store.put(f"{place}/a", b"some bytes")
        return
    service.store.put(f"{place}/a", b"some bytes")
    assert fault in [request.fault for request in service.proxy.requests]
    assert (b"some bytes", [f"{place}/a"]) == (service.store.get(f"{place}/a"), service.versions(place))


@pytest.mark.spec("T07")
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_does_not_stop_a_read(service: Service, place: str, fault: str) -> None:
    """Nor does it change what is read or listed."""
    service.store.put(f"{place}/a", b"some bytes " * 100)
    service.fails(GET=fault)
    assert b"some bytes " * 100 == service.store.get(f"{place}/a")
    assert fault in [request.fault for request in service.proxy.requests]
    if fault != "flip":  # nobody can tell one letter of a listing from another
        service.fails(GET=fault)
        assert [f"{place}/a"] == service.store.list(place)


@pytest.mark.spec("T07")
@pytest.mark.parametrize("fault", ["page", "empty"])
def test_two_answers_that_agree_in_a_lie(service: Service, place: str, fault: str) -> None:
    """Neither is taken for the object: the listing knows its size."""
    service.store.put(f"{place}/a", b"some bytes")
    service.fails(HEAD=fault, GET=fault)
    assert b"some bytes" == service.store.get(f"{place}/a")


@pytest.mark.spec("T07")
@pytest.mark.parametrize("fault", ["500 InternalError", "503 SlowDown", "reset", "lie", "page", "empty", "flip"])
def test_a_lasting_fault_is_never_a_success(service: Service, place: str, fault: str) -> None:
    """The store gives up, with the number of tries, and no write counts."""
    service.fails(PUT=fault, always=True)
    with pytest.raises(ArchiveError, match=r"could not write .* \(10 bytes\): .*6 tries in [0-9.]+ s\. [A-Z]"):
        service.store.put(f"{place}/a", b"some bytes")
    assert ([f"{place}/a"] if fault == "flip" else []) == service.versions(place)


@pytest.mark.spec("T07")
@pytest.mark.parametrize("fault", ["lost", "cut", "stall"])
def test_answers_that_are_always_lost(service: Service, place: str, fault: str) -> None:
    """What was stored is found by its mark, also when the answer to the write never came."""
    service.fails(PUT=fault, always=True)
    service.store.put(f"{place}/a", b"some bytes")
    assert [f"{place}/a"] == service.versions(place)


@pytest.mark.spec("T07")
def test_a_damaged_object_is_not_read(service: Service, place: str) -> None:
    """Bytes that are not those that were stored are an error, with their number."""
    service.store.put(f"{place}/a", b"some bytes")
    service.fails(GET="flip", always=True)
    with pytest.raises(ArchiveError, match="the 10 bytes that came are not what was stored, at the end of 6 tries"):
        service.store.get(f"{place}/a")


@pytest.mark.spec("T07")
def test_a_lie_about_deleting_is_found(service: Service, place: str) -> None:
    """Once, it is made up for; always, it is an error. Nobody is told that something is gone which is there."""
    service.store.put(f"{place}/a", b"x")
    service.fails(DELETE="lie", always=True)
    with pytest.raises(ArchiveError, match=r"could not delete .*1 versions are still there, at the end of 6 tries"):
        service.store.delete(f"{place}/a")
    service.fails(DELETE="lie")
    service.store.delete(f"{place}/a")
    assert [] == service.versions(place)


@pytest.mark.spec("T07")
def test_two_that_replace_one_key(service: Service, place: str) -> None:
    """Whoever is replaced before the write is acknowledged writes again."""
    key = f"{place}/a"
    service.store.put(key, b"old")
    looks = iter(range(10))

    def other(method: str, _: str) -> None:
        if method == "HEAD" and next(looks) == 1:
            service.raw.put_object(Bucket=service.bucket, Key=key, Body=b"other", Metadata={"compact-write": "other"})

    service.proxy.choose = other
    service.store.put(key, b"new", if_absent=False)
    assert (b"new", 4) == (service.store.get(key), len(service.versions(place)))


@pytest.mark.spec("T07")
def test_time_is_bounded(service: Service, place: str) -> None:
    """No try begins after the time is over, however many are left."""
    service.fails(HEAD="stall", always=True)
    patience = Patience(tries=1000, total=0.5, read=0.2)
    store = S3Store(service.bucket, endpoint_url=service.proxy.url, patience=patience)
    with pytest.raises(ArchiveError, match=r"ReadTimeoutError\), at the end of \d tr"):
        store.put(f"{place}/a", b"x")


@pytest.mark.spec("T07")
def test_a_service_that_knows_no_conditions(service: Service, place: str) -> None:
    """It is written to without one, and a taken key is still found by looking."""
    service.fails(PUT="501 NotImplemented")
    service.store.put(f"{place}/a", b"first")
    assert [True, False] == ["if-none-match" in head for head in service.puts()]
    with pytest.raises(KeyTaken):
        service.store.put(f"{place}/a", b"second")


@pytest.mark.spec("T07")
def test_a_key_taken_between_looking_and_writing(service: Service, place: str) -> None:
    """The condition on the write finds it, and one more look tells whose it is."""
    service.store.put(f"{place}/a", b"first")
    service.fails(HEAD="404 NoSuchKey")
    with pytest.raises(KeyTaken):
        service.store.put(f"{place}/a", b"second")
    assert ["HEAD", "PUT", "HEAD"] == [request.method for request in service.proxy.requests]
    assert (b"first", [f"{place}/a"]) == (service.store.get(f"{place}/a"), service.versions(place))


@pytest.mark.spec("T07")
def test_a_service_that_drops_marks_is_an_error(service: Service, place: str) -> None:
    """Not a taken key: whoever takes the next one then would go on for ever."""
    service.fails(PUT="bare", always=True)
    with pytest.raises(ArchiveError, match="does not keep the metadata") as caught:
        service.store.put(f"{place}/a", b"x")
    assert not isinstance(caught.value, KeyTaken)


@pytest.mark.spec("T07")
@pytest.mark.parametrize("page", ["page", "empty"])
def test_a_page_for_every_address_is_no_store(service: Service, place: str, page: str) -> None:
    """A web server that answers everything with 200 has no taken keys, no keys, and deletes nothing."""
    service.fails(HEAD=page, GET=page, PUT=page, DELETE=page, always=True)
    store, key = service.store, f"{place}/a"
    calls: list[Callable[[], Any]] = [
        lambda: store.put(key, b"x"),
        lambda: store.put(key, b"x", if_absent=False),
        lambda: store.append(key, [b"x"]),
        lambda: store.get(key),
        lambda: store.list(f"{place}/"),
        lambda: store.delete(key),
    ]
    for call in calls:
        with pytest.raises(ArchiveError, match="6 tries") as caught:
            call()
        assert not isinstance(caught.value, KeyTaken | KeyMissing)


@pytest.mark.spec("T07")
def test_a_service_that_ignores_conditions(signed: tuple[str, Path]) -> None:
    """A taken key is found by looking first."""
    store = S3Store("signed", "ignores", endpoint_url=signed[0])
    store.put("s/a", b"first")
    with pytest.raises(KeyTaken):
        store.put("s/a", b"second")
    assert b"first" == store.get("s/a")


@pytest.mark.spec("T07")
def test_of_many_writers_of_one_key_one_wins(url: str, raw: Any) -> None:
    """Eight threads on each of five keys: each key has one version, and the writer that was acknowledged wrote it."""
    bucket = new_bucket(raw, versions=True)
    store = S3Store(bucket, endpoint_url=url)

    def write(n: int) -> tuple[str, bytes] | None:
        key, data = f"s/{n % 5}", b"%d" % n
        try:
            store.put(key, data)
        except KeyTaken:
            return None
        return key, data

    with ThreadPoolExecutor(8) as pool:
        won = [one for one in pool.map(write, range(40)) if one]
    assert sorted(versions(raw, bucket)) == sorted(key for key, _ in won) == [f"s/{n}" for n in range(5)]
    assert [data for _, data in won] == [store.get(key) for key, _ in won]


@pytest.mark.slow
@pytest.mark.spec("T07")
def test_a_series_of_writes_through_random_faults(url: str) -> None:
    """Of 100 writes none that was acknowledged is missing or overwritten, and each asked for encryption."""
    series = faulty_series(100, 20261116, url)
    assert ([], [], [], [], []) == (
        series.missing,
        series.misread,
        series.imagined,
        series.overwritten,
        series.unencrypted,
    )
    assert series.acknowledged >= 30
    assert series.taken >= 10
    assert len(series.faults) >= 8


# -- what can be wrong with a set-up ---------------------------------------------------------------------------------


@pytest.mark.spec("S24")
def test_signatures_come_from_the_environment(signed: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The right secret is accepted by a server that checks; a wrong one is refused at once, and no error tells it."""
    S3Store("signed", "right", endpoint_url=signed[0]).put("s/a", b"x")
    assert b"x" == (signed[1] / "right/s/a").read_bytes()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret")
    store = S3Store("signed", "right", endpoint_url=signed[0])
    calls: list[Callable[[], Any]] = [
        lambda: store.put("s/b", b"canary"),
        lambda: store.get("s/a"),
        lambda: store.list("s/"),
        lambda: store.delete("s/a"),
    ]
    for call in calls:
        with pytest.raises(ArchiveError, match=r"403, SignatureDoesNotMatch.*1 try.*Check the access key") as caught:
            call()
        for secret in ("a-wrong-secret", ENVIRONMENT["AWS_ACCESS_KEY_ID"], "canary"):
            assert secret not in str(caught.value)
        assert caught.value.__suppress_context__
    assert ["a"] == [path.name for path in (signed[1] / "right/s").iterdir()]


@pytest.mark.spec("S24")
def test_no_credentials(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is said at once, with what to do."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ArchiveError, match=r"NoCredentialsError\), at the end of 1 try .* Check the access key"):
        S3Store("bucket", endpoint_url=url).put("s/a", b"x")


def test_no_bucket(url: str) -> None:
    """Every verb says so."""
    store = S3Store("no-such-bucket", endpoint_url=url)
    calls: list[Callable[[], Any]] = [
        lambda: store.put("s/a", b"x"),
        lambda: store.append("s/a", [b"x"]),
        lambda: store.get("s/a"),
        lambda: store.list(""),
        lambda: store.delete("s/a"),
    ]
    for call in calls:
        with pytest.raises(ArchiveError, match=r"404, NoSuchBucket.*1 try.*Create the bucket") as caught:
            call()
        assert not isinstance(caught.value, KeyMissing)


_REFUSALS = {
    "403 AccessDenied": "Allow s3:GetObject",
    "403 RequestTimeTooSkewed": "Set the clock",
    "400 ExpiredToken": "Renew the credentials",
    "400 AuthorizationHeaderMalformed": "Set AWS_REGION",
    "301 PermanentRedirect": "Set AWS_REGION",
    "400 KMS.DisabledException": "Check that storage.kms_key_id",
    "400 SomethingNew": "The service refuses this",
}


@pytest.mark.parametrize(
    ("method", "fault"),
    # A redirected HEAD is the client's own affair: it follows.
    [*(("PUT", fault) for fault in _REFUSALS), *(("HEAD", fault) for fault in _REFUSALS if fault[0] == "4")],
)
def test_what_a_service_refuses(service: Service, place: str, method: str, fault: str) -> None:
    """It is named and explained at once, also where the answer has no body; what the server says is not repeated."""
    service.fails(always=True, **{method: fault, "GET": fault})
    reason = rf"status {fault.replace(' ', ', ')}, at the end of 1 try .* {_REFUSALS[fault]}"
    with pytest.raises(ArchiveError, match=reason) as error:
        service.store.put(f"{place}/a", b"x")
    assert "CANARY" not in str(error.value)


@pytest.mark.parametrize(
    ("bucket", "address", "reason"),
    [
        ("bucket", "http://127.0.0.1:1", r"EndpointConnectionError\), at the end of 6 tries .* Check the network"),
        ("no bucket!", "http://127.0.0.1:1", r"ParamValidationError\), at the end of 1 try .* Correct storage.bucket"),
        ("bucket", "127.0.0.1:1", r"ValueError\), at the end of 1 try .* Correct storage.bucket"),
    ],
)
def test_an_address_that_leads_nowhere(bucket: str, address: str, reason: str) -> None:
    """What is wrong is said, and what to mend."""
    with pytest.raises(ArchiveError, match=reason):
        S3Store(bucket, endpoint_url=address, patience=HASTE).put("s/a", b"x")


@pytest.mark.parametrize("prefix", ["a//b", "../a", "a/./b", "a:b", "\0"])
def test_a_prefix_that_cannot_begin_a_key(prefix: str) -> None:
    """It is refused when the store is made, by the name of its field."""
    with pytest.raises(ConfigError, match=r"storage\.prefix"):
        S3Store("bucket", prefix)


def test_open_store_follows_the_policy(url: str, raw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fields of the section arrive; without a bucket the field is named; without the package, the extra."""
    bucket = new_bucket(raw)
    store = open_store(StoragePolicy(adapter="s3", bucket=bucket, prefix="p", endpoint_url=url))
    assert store is not None
    store.put("s/a", b"x")
    assert b"x" == S3Store(bucket, endpoint_url=url).get("p/s/a")
    with pytest.raises(ConfigError, match=r"storage\.bucket"):
        open_store(StoragePolicy(adapter="s3"))
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingExtra, match=r"agent-compact\[s3\]"):
        open_store(StoragePolicy(adapter="s3", bucket=bucket))


def test_nothing_is_loaded_or_connected_before_the_first_use() -> None:
    """A store that nobody uses costs no import, no thread and no socket."""
    code = (
        "import sys, threading; from compact.stores.s3 import S3Store; S3Store('b'); "
        "loaded = [m for m in sys.modules if m.split('.')[0] in ('boto3', 'botocore', 'urllib3')]; "
        "print(loaded, threading.active_count())"
    )
    assert "[] 1" == subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()


# -- through a manager -----------------------------------------------------------------------------------------------


def settings(url: str, bucket: str) -> CompactConfig:
    """A small window over a bucket."""
    storage = {"adapter": "s3", "bucket": bucket, "prefix": "team", "kms_key_id": KMS_KEY, "endpoint_url": url}
    return CompactConfig(max_context_tokens=4000, policy={"hard_cap_buffer": 200}, storage=storage)


@pytest.mark.spec("S24")
def test_a_manager_archives_in_the_bucket(url: str, raw: Any) -> None:
    """Transcript, summary and events lie under the prefix and the session; a new manager restores from them."""
    bucket, messages, recorder = new_bucket(raw), chat("s" + "ua" * 60), Recorder()
    with CompactManager(settings(url, bucket), sinks=[recorder]) as manager:
        folded = manager.preflight("s-1", messages)
        assert len(folded) < len(messages)
    keys = [one["Key"] for one in raw.list_objects_v2(Bucket=bucket)["Contents"]]
    assert {"team/s-1"} == {key.rpartition("/")[0] for key in keys}
    assert {"team/s-1/transcript-pre-compact-001.jsonl", "team/s-1/summary-001.json"} < set(keys)
    assert [key for key in keys if key.startswith("team/s-1/events")]
    assert {"aws:kms"} == {raw.head_object(Bucket=bucket, Key=key)["ServerSideEncryption"] for key in keys}
    assert "s3" in {event.data["storage_adapter"] for event in recorder.events if event.name == "compact.archival"}
    with CompactManager(settings(url, bucket)) as manager:
        assert messages == manager.restore("s-1")
        assert 1 == manager.session("s-1").step


@pytest.mark.spec("S24")
def test_an_event_loop_does_not_wait_for_the_bucket(url: str, raw: Any) -> None:
    """Everything a fold does with the store is done by other threads, all on one client."""
    seen: set[int] = set()
    bucket = new_bucket(raw)

    class Watched(S3Store):
        def _client(self) -> Any:
            seen.add(threading.get_ident())
            return super()._client()

    with CompactManager(settings(url, bucket), store=Watched(bucket, endpoint_url=url)) as manager:
        messages = chat("s" + "ua" * 60)
        assert len(asyncio.run(manager.apreflight("s-1", messages))) < len(messages)
        assert seen
        assert threading.get_ident() not in seen
