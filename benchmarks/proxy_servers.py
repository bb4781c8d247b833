"""The servers of `proxy.py`, each in a process of its own on a port of this machine.

Owns: a scripted upstream, the pass-through that everybody writes, and starting these, `compact proxy` and LiteLLM's
proxy. Must never: leave a process behind, or listen beyond loopback.

`python proxy_servers.py upstream` and `python proxy_servers.py bare UPSTREAM` serve until they are ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["KEY", "SUMMARY_MODEL", "Server", "bare", "litellm", "ours", "upstream"]

SUMMARY_MODEL = "summaries"
MARK = re.compile(rb"\bmark-[0-9]{4}\b")
"""The word that every message of one conversation holds, and no message of another."""
EVENTS = 4
GAP = 0.015
"""Seconds between two events of a stream."""
KEY = f"sk-{secrets.token_hex(16)}"
"""What every client of this run sends. LiteLLM's proxy wants one, and the others pass it on."""
LITELLM_PARTS = Path(os.environ.get("LITELLM_PARTS") or Path(sys.prefix) / "litellm-proxy")
"""What LiteLLM's proxy imports and nothing else here needs; `make bench-proxy` installs it there."""


# -- the servers themselves --------------------------------------------------------------------------------------------


class Upstream:
    """A provider that answers at once, and that takes its time for summaries when told so.

    Every answer repeats the marks it was shown: whoever mixes two conversations up gets two.
    """

    def __init__(self, summary_seconds: float) -> None:
        self._summary_seconds = summary_seconds
        self._counts = {"requests": 0, "summaries": 0, "mixed": 0}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = await _whole(receive)
        if scope["method"] == "GET":
            await _answer(send, json.dumps(self._counts).encode())
            return
        is_summary = b'"model": "summaries"' in body
        marks = sorted({mark.decode() for mark in MARK.findall(body)}) if b"mark-" in body else []
        self._counts["summaries" if is_summary else "requests"] += 1
        self._counts["mixed"] += len(marks) > 1
        said = " ".join(marks)
        if is_summary:
            await asyncio.sleep(self._summary_seconds)
            said = f"Goal: ship the parser of {said}. Decided: peek() takes no offset. Next: tests/test_reader.py."
        if b'"stream": true' in body[-200:] or b'"stream": true' in body[:200]:
            await _stream(send)
            return
        message = {"role": "assistant", "content": said or "Understood."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        made = {"id": "c1", "object": "chat.completion", "created": 1, "model": "gpt-4o", "choices": [choice]}
        await _answer(send, json.dumps(made).encode())


async def _whole(receive: Any) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def _answer(send: Any, content: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def _stream(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for number in range(EVENTS):
        choice = {"index": 0, "delta": {"role": "assistant", "content": f"word {number} "}, "finish_reason": None}
        chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o", "choices": [choice]}
        line = b"data: %s\n\n" % json.dumps(chunk).encode()
        await send({"type": "http.response.body", "body": line, "more_body": True})
        await asyncio.sleep(GAP)
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


def _bare(base: str) -> Any:
    """What one writes in ten minutes: Starlette in front, httpx behind. Its pool is as large as ours."""
    import httpx
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.requests import Request
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    pool = httpx.Limits(max_connections=None, max_keepalive_connections=200, keepalive_expiry=30)
    client = httpx.AsyncClient(base_url=base, timeout=600, limits=pool, trust_env=False)

    async def relay(request: Request) -> StreamingResponse:
        url = httpx.URL(path=request.url.path, query=request.url.query.encode())
        headers = [(name, value) for name, value in request.headers.raw if name != b"host"]
        sent = client.build_request(request.method, url, headers=headers, content=await request.body())
        answer = await client.send(sent, stream=True)
        return StreamingResponse(
            answer.aiter_raw(),
            status_code=answer.status_code,
            headers=dict(answer.headers),
            background=BackgroundTask(answer.aclose),
        )

    return Starlette(routes=[Route("/{path:path}", relay, methods=["GET", "POST"])])


def _serve(app: Any) -> None:
    import uvicorn

    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        quiet = {"log_level": "error", "access_log": False}
        settings = uvicorn.Config(app, http="httptools", loop="uvloop", timeout_keep_alive=75, **quiet)
        uvicorn.Server(settings).run(sockets=[listening])


# -- starting and ending them ------------------------------------------------------------------------------------------


class Server:
    """A process that serves at `address`."""

    def __init__(self, command: list[str], folder: Path, address: str | None = None, **environment: str) -> None:
        self._command, self._folder, self._environment = command, folder, {**os.environ, **environment}
        self._given = address
        self.start()

    def start(self) -> None:
        """Run it; unless its address is given, wait until it says where it listens."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.address = self._given or self._said()

    def wait(self) -> None:
        """Wait until it takes connections."""
        host, _, port = self.address.removeprefix("http://").partition(":")
        deadline = time.monotonic() + 90
        while True:
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(self._command[:4])} does not listen; {self._tail()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it at once (kill -9)."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def memory(self) -> float:
        """Megabytes that it holds."""
        return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * 4096 / 1e6

    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        spent = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")

    def _said(self) -> str:
        assert self._process.stdout is not None
        found = re.match(r"http://\S+", self._process.stdout.readline())
        if found is None:
            self.kill()
            raise RuntimeError(f"{' '.join(self._command[:4])} did not start; {self._tail()}")
        return found[0]

    def _tail(self) -> str:
        return f"its last words: {(self._folder / 'log').read_text()[-600:]}"


@contextmanager
def _running(server: Server) -> Iterator[Server]:
    try:
        yield server
    finally:
        server.kill()


def upstream(folder: Path, *, summary_seconds: float = 0.0) -> Any:
    """The scripted upstream."""
    command = [sys.executable, __file__, "upstream", str(summary_seconds)]
    return _running(Server(command, _made(folder / "upstream")))


def bare(folder: Path, base: str) -> Any:
    """The bare pass-through."""
    return _running(Server([sys.executable, __file__, "bare", base], _made(folder / "bare")))


def ours(folder: Path, base: str, *, port: int = 0, **config: Any) -> Any:
    """`compact proxy` as a user starts it, logging what it logs by default."""
    folder = _made(folder)
    (folder / "compact.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "compact", "proxy", "--upstream", base, "--port", str(port)]
    address = f"http://127.0.0.1:{port}" if port else None
    return _running(Server([*command, "--config", "compact.json"], folder, address))


def litellm(folder: Path, base: str) -> Any:
    """LiteLLM's proxy for the same upstream: `/v1` by its router, `/plain` by its pass-through."""
    folder, port = _made(folder / "litellm"), free_port()
    settings = {
        "model_list": [
            {"model_name": "*", "litellm_params": {"model": "openai/*", "api_base": f"{base}/v1", "api_key": "none"}}
        ],
        "general_settings": {
            "pass_through_endpoints": [{"path": "/plain/chat/completions", "target": f"{base}/v1/chat/completions"}]
        },
        "litellm_settings": {"telemetry": False},
    }
    (folder / "config.yaml").write_text(json.dumps(settings))
    run = "import sys; from litellm import run_server; sys.argv[0] = 'litellm'; run_server()"
    command = [sys.executable, "-c", run, "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--keepalive_timeout", "75"]
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MASTER_KEY": KEY}
    return _running(Server(command, folder, f"http://127.0.0.1:{port}", PYTHONPATH=str(LITELLM_PARTS), **quiet))


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    _serve(Upstream(float(sys.argv[2])) if sys.argv[1] == "upstream" else _bare(sys.argv[2]))
