"""S3 servers for the tests: two real ones, and a proxy that makes a bad service of either.

Owns: starting and stopping them, the faults, and the series of writes through random faults. Must never: patch the
client, so that what is tested is what runs.

No server covers everything. moto knows conditional writes, versions and KMS, and accepts any signature; rclone checks
signatures, and ignores conditions.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import secrets
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import parse_headers
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from compact.errors import ArchiveError
from compact.stores import KeyTaken
from compact.stores.s3 import Patience, S3Store

__all__ = ["ENVIRONMENT", "FAULTS", "HASTE", "KMS_KEY", "FaultyProxy", "Series"]
__all__ += ["client", "faulty_series", "moto", "new_bucket", "rclone"]

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIDCOMPACTTESTS",
    "AWS_SECRET_ACCESS_KEY": "only-for-these-tests",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Credentials by the environment, and by nothing else that the machine may hold."""

HASTE = Patience(tries=6, total=30.0, connect=2.0, read=1.0, pause=0.005)
"""The patience of a test. A busy machine may need longer than `read`: that is one more fault, and no failure."""

KMS_KEY = "1234abcd-12ab-34cd-56ef-1234567890ab"
_BIN = Path(sys.executable).parent


@contextmanager
def _running(command: list[str], port: int, **environment: str) -> Iterator[str]:
    """A server, from the moment it accepts connections until the end of the block."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=quiet, stderr=quiet)
    try:
        deadline = time.monotonic() + 60
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
            assert time.monotonic() < deadline, f"{command[0]} does not answer"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def moto() -> Iterator[str]:
    """A server that knows conditional writes, versions and KMS."""
    port = _free_port()
    with _running([str(_BIN / "moto_server"), "-H", "127.0.0.1", "-p", str(port)], port) as url:
        yield url


@contextmanager
def rclone(root: Path) -> Iterator[str]:
    """A server that checks signatures. Each folder in `root` is a bucket."""
    port, key = _free_port(), f"{ENVIRONMENT['AWS_ACCESS_KEY_ID']},{ENVIRONMENT['AWS_SECRET_ACCESS_KEY']}"
    command = [str(_BIN / "rclone"), "serve", "s3", "--auth-key", key, "--addr", f"127.0.0.1:{port}", str(root)]
    with _running(command, port, RCLONE_CONFIG=os.devnull) as url:
        yield url


def client(url: str) -> Any:
    """A client beside the store, to see what is really there."""
    return boto3.session.Session(
        aws_access_key_id=ENVIRONMENT["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
        region_name=ENVIRONMENT["AWS_DEFAULT_REGION"],
    ).client("s3", endpoint_url=url, config=Config(s3={"addressing_style": "path"}))


def new_bucket(service: Any, *, versions: bool = False) -> str:
    """A bucket nobody has used."""
    name = f"bucket-{secrets.token_hex(6)}"
    service.create_bucket(Bucket=name)
    if versions:
        service.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    return name


# -- the proxy -------------------------------------------------------------------------------------------------------

FAULTS = {
    "500 InternalError": "an error, nothing stored",
    "503 SlowDown": "an error, nothing stored",
    "412 PreconditionFailed": "says that the key is taken, nothing stored",
    "reset": "the connection is reset before anything is stored",
    "lost": "what was asked is done, and the connection is reset before the answer",
    "cut": "what was asked is done, and the answer breaks off in the middle",
    "stall": "what was asked is done, and no answer comes",
    "lie": "says that it is done, and does nothing",
    "page": "an error in the body of a 200, nothing stored",
    "empty": "a 200 with nothing in it, nothing stored",
    "flip": "one bit is turned over: in what is stored, or in what is read",
    "sums": "what was asked is done, and the sums in the answer are wrong",
}
"""What may happen to a request. Besides: any status and name; "plain" and "bare" take the encryption and the metadata
out of what is asked."""

_DROPPED = {"plain": "x-amz-server-side-encryption", "bare": "x-amz-meta-"}


@dataclass(frozen=True)
class Request:
    """One request that came to the proxy."""

    method: str
    path: str
    headers: Mapping[str, str]
    fault: str
    forwarded: bool


class FaultyProxy(socketserver.ThreadingTCPServer):
    """A proxy in front of a server; `choose` names the fault of each request by its method and path, or none."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, upstream: str, choose: Callable[[str, str], str | None] = lambda method, path: None) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.upstream = "127.0.0.1", int(upstream.rpartition(":")[2])
        self.choose = choose
        self.requests: list[Request] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __exit__(self, *_: Any) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gives up in the middle is part of the game."""


class _Connection(socketserver.StreamRequestHandler):
    server: FaultyProxy

    def handle(self) -> None:
        while line := self.rfile.readline():
            method, path, _ = line.decode("latin-1").split(" ")
            headers = parse_headers(self.rfile)
            if headers.get("Expect"):
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = self.rfile.read(int(headers.get("Content-Length", 0)))
            fault = self.server.choose(method, path) or ""
            unasked = fault in ("reset", "page", "empty") or fault[:1].isdigit() or _is_lie(fault, method)
            names = {name.lower(): value for name, value in headers.items()}
            self.server.requests.append(Request(method, path, names, fault, not unasked))
            reply = b""
            if not unasked:
                sent = _flipped(body, 1) if fault == "flip" and method == "PUT" else body
                head = line + b"".join(
                    f"{name}: {value}\r\n".encode("latin-1")
                    for name, value in headers.items()
                    if not name.lower().startswith(("connection", "expect", _DROPPED.get(fault, "connection")))
                )
                reply = self._ask(head + b"Connection: close\r\n\r\n" + sent)
            if not self._answer(method, fault, body, reply):
                return

    def _ask(self, request: bytes) -> bytes:
        with socket.create_connection(self.server.upstream) as upstream:
            upstream.sendall(request)
            return b"".join(iter(lambda: upstream.recv(65536), b""))

    def _answer(self, method: str, fault: str, body: bytes, reply: bytes) -> bool:
        """Answer by the fault; whether the connection stays open."""
        head, _, content = reply.partition(b"\r\n\r\n")
        if fault[:1].isdigit():
            reply = _error(*fault.split(" "), method)
        elif fault == "page":
            reply = _error("200", "InternalError", method)
        elif fault == "empty":
            reply = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        elif _is_lie(fault, method):
            tag = hashlib.md5(body).hexdigest()
            reply = f'HTTP/1.1 200 OK\r\nETag: "{tag}"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'.encode()
        elif fault in ("reset", "lost"):
            # With nothing to linger for, closing sends a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return False
        elif fault == "stall":
            self.connection.settimeout(20)
            with suppress(OSError):
                self.connection.recv(1)  # until the client has had enough
            return False
        elif fault == "cut":
            reply = reply[: len(reply) - (len(content) + 1) // 2] if content else reply[: len(reply) // 2]
        elif fault == "flip" and method == "GET" and b" 200 " in head.partition(b"\r\n")[0]:
            reply = head + b"\r\n\r\n" + _flipped(content, 2)
        elif fault == "sums":
            head = re.sub(rb'(?i)(\r\netag: )"\w+"', rb'\1"00000000000000000000000000000000"', head)
            reply = head + b"\r\n\r\n" + content
        self.wfile.write(reply)
        return False


def _is_lie(fault: str, method: str) -> bool:
    return fault == "lie" and method in ("PUT", "DELETE")


def _flipped(data: bytes, bit: int) -> bytes:
    """Damaged data; the bit differs by direction, since damage that is undone on the way back cannot be seen."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ bit]) + data[middle + 1 :] if data else data


def _error(status: str, name: str, method: str) -> bytes:
    text = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{name}</Code><Message>CANARY</Message></Error>'
    head = f"HTTP/1.1 {status} {name}\r\nContent-Length: {len(text)}\r\nConnection: close"
    return f"{head}\r\n\r\n{'' if method == 'HEAD' else text}".encode()


# -- the series ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """What became of a series of writes through random faults. The last five must be empty."""

    acknowledged: int
    taken: int
    refused: int
    faults: Counter[str]
    missing: list[str]
    """Keys that were acknowledged and do not hold their bytes."""
    misread: list[str]
    """Keys that were read through the faults and came back with other bytes."""
    imagined: list[str]
    """Keys that were said to be taken, and are not."""
    overwritten: list[str]
    """Keys that were acknowledged twice, or that have more than one version."""
    unencrypted: list[str]
    """Writes that reached the server without the header that asks for encryption."""


def faulty_series(count: int, seed: int, upstream: str | None = None, share: float = 0.3) -> Series:
    """Write `count` times under random keys of a few, through a service that fails at a share of all requests."""
    if upstream is None:
        with moto() as url:
            return faulty_series(count, seed, url, share)
    chance = random.Random(seed)
    faults: Counter[str] = Counter()

    def choose(method: str, path: str) -> str | None:
        fault = chance.choice(list(FAULTS)) if chance.random() < share else None
        if fault == "stall" and chance.random() < 0.7:
            return None  # it costs the most time
        faults.update([fault] if fault else [])
        return fault

    service = client(upstream)
    bucket = new_bucket(service, versions=True)
    expected: dict[str, bytes] = {}
    outcomes: Counter[str] = Counter()
    overwritten: list[str] = []
    misread: list[str] = []
    imagined: list[str] = []
    with FaultyProxy(upstream, choose) as proxy, _environment():
        store = S3Store(bucket, "p", kms_key_id=KMS_KEY, endpoint_url=proxy.url, patience=HASTE)
        for _ in range(count):
            key, data = f"s/{chance.randrange(count * 2 // 3 + 1)}", chance.randbytes(chance.randrange(3000))
            try:
                store.put(key, data)
            except KeyTaken:
                outcomes["taken"] += 1
                listing = service.list_objects_v2(Bucket=bucket, Prefix=f"p/{key}").get("Contents", ())
                imagined += [] if f"p/{key}" in [one["Key"] for one in listing] else [key]
            except ArchiveError:
                outcomes["refused"] += 1
            else:
                outcomes["acknowledged"] += 1
                overwritten += [key] if key in expected else []
                expected[key] = data
            if expected and chance.random() < 0.2:
                key = chance.choice(sorted(expected))
                with suppress(ArchiveError):
                    misread += [key] if store.get(key) != expected[key] else []
        unencrypted = [
            request.path
            for request in proxy.requests
            if request.method == "PUT"
            and (request.headers.get("x-amz-server-side-encryption") != "aws:kms")
            | (request.headers.get("x-amz-server-side-encryption-aws-kms-key-id") != KMS_KEY)
        ]
    there: dict[str, bytes] = {}
    for page in service.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for version in page.get("Versions", ()):
            key = version["Key"].removeprefix("p/")
            overwritten += [key] if key in there else []
            there[key] = service.get_object(Bucket=bucket, Key=version["Key"])["Body"].read()
    service.close()
    missing = [key for key, data in expected.items() if there.get(key) != data]
    return Series(
        outcomes["acknowledged"],
        outcomes["taken"],
        outcomes["refused"],
        faults,
        missing,
        misread,
        imagined,
        overwritten,
        unencrypted,
    )


@contextmanager
def _environment() -> Iterator[None]:
    """Credentials for a series that runs outside a test."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({name: value} if value is not None else {})
