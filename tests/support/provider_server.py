"""The providers of the tests: a strict server on a port of this machine, and the real clients that talk to it.

Owns: `Server` (says what a play says, and refuses what the providers refuse), the three APIs as clients see them, and
an agent as people write it on a plain client. Must never: know what is under test.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from agent_story import SYSTEM, TOOLS, Play, Step
from provider_rules import problems

from compact._conversation.formats import FORMATS
from compact._conversation.tokens import counter_for, message_tokens
from compact._conversation.tool_schemas import tools_tokens

TALLY = counter_for("tiktoken", "gpt-4o")
SCHEMAS = {
    name: {
        "type": "object",
        "properties": {key: {"type": "string", "description": text} for key, text in fields.items()},
        "required": list(fields),
    }
    for name, fields in TOOLS.items()
}
SESSION = "x-compact-session"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


# -- the provider ------------------------------------------------------------------------------------------------------


@dataclass
class Server:
    """Both providers at once: says what the play says, and refuses what they refuse."""

    play: Play | None = None
    window: int = 1_000_000
    inflation: float = 1.0
    """By how much it counts more than everybody else."""
    busy: int = 0
    """How many requests it turns away before it answers one."""
    broken: str = ""
    """A model that it cannot reach."""
    says: str | Callable[[dict[str, Any]], str] = "Understood."
    """What every model says without a play, whatever it is asked or to this body."""
    names_window: bool = True
    """Whether a refusal tells how much would have been accepted."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    """The same, as they came."""
    keys: list[str] = field(default_factory=list)
    """With which credential each came."""
    sizes: list[int] = field(default_factory=list)
    """The tokens of each that was for a model."""
    refused: list[str] = field(default_factory=list)
    url: str = ""

    def size(self, dialect: str, body: Mapping[str, Any], messages: list[Any]) -> int:
        """The tokens of a request."""
        system = body.get("system") or body.get("instructions") or ""
        system = system if isinstance(system, str) else "".join(block["text"] for block in system)
        total = sum(_weight(dialect, json.dumps(raw)) for raw in messages) + TALLY.count(system)
        return round(self.inflation * (total + tools_tokens(body.get("tools"), TALLY, "gpt-4o")))

    def complaint(self, dialect: str, messages: list[Any], size: int, headers: Any) -> tuple[str, str] | None:
        """The code and the sentence of a refusal."""
        if SESSION in headers or any("meta" in message for message in messages):
            return "unknown_parameter", "Unknown parameter."
        if found := problems(dialect, messages):
            return "invalid_value", "; ".join(found)
        if size > self.window and not self.names_window:
            return "context_length_exceeded", "The prompt is too long for the context length of this model."
        if size > self.window and dialect == "anthropic":
            return "invalid_request_error", f"prompt is too long: {size} tokens > {self.window} maximum"
        if size > self.window:
            said = f"This model's maximum context length is {self.window} tokens. However, your messages resulted in "
            return "context_length_exceeded", f"{said}{size} tokens. Please reduce the length of the messages."
        return None

    def answer(self, path: str, body: dict[str, Any], headers: Any) -> tuple[int, Any]:
        """Status, and the answer or the events of its stream."""
        if self.busy > 0:
            self.busy -= 1
            return 503, {"type": "error", "error": {"type": "overloaded_error", "message": "Later."}}
        api = next((api for api in APIS.values() if path.endswith(api.ends)), None)
        if body.get("model") == self.broken:
            return 500, {"type": "error", "error": {"type": "api_error", "message": "Something is broken."}}
        if api is None:
            return 200, {"object": "list", "data": [{"embedding": [0.5]}], "input_tokens": 7}
        messages = body[api.field]
        messages = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        size = self.size(api.dialect, body, messages)
        self.sizes.append(size)
        if complaint := self.complaint(api.dialect, messages, size, headers):
            self.refused.append(complaint[1])
            error = {"type": "invalid_request_error", "code": complaint[0], "message": complaint[1], "param": None}
            return 400, {"type": "error", "error": error}
        if self.play:
            step = self.play.answer(api.dialect, messages, body.get("tools", ()))
        else:
            step = Step(self.says if isinstance(self.says, str) else self.says(body))
        whole = api.answer(step, size, len(self.bodies))
        return 200, list(api.events(whole, body)) if body.get("stream") else whole


@lru_cache(20_000)
def _weight(dialect: str, message: str) -> int:
    """The tokens of a message, which comes again and again."""
    return message_tokens(FORMATS[dialect].read(json.loads(message)), TALLY)


@contextmanager
def serving(**settings: Any) -> Iterator[Server]:
    """The provider on a port of this machine."""
    server, lock = Server(**settings), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            body = json.loads(raw)
            with lock:
                server.raw.append(raw)
                server.bodies.append(body)
                server.keys.append(self.headers["x-api-key"] or self.headers["authorization"] or "")
            status, said = server.answer(self.path.partition("?")[0], body, self.headers)
            events = isinstance(said, list)
            named = (f"event: {each['type']}\n" if "type" in each else "" for each in said) if events else ()
            lines = [f"{name}data: {json.dumps(each)}\n\n" for name, each in zip(named, said, strict=False)]
            self.send_response(status)
            self.send_header("content-type", "text/event-stream" if events else "application/json")
            self.send_header("retry-after-ms", "1")
            if not events:
                data = json.dumps(said).encode()
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                return
            # As the providers send it: one event, one chunk; only OpenAI's chat says that it is done.
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for line in (*lines, *(["data: [DONE]\n\n"] if "choices" in said[0] else [])):
                self.wfile.write(f"{len(line.encode()):x}\r\n{line}\r\n".encode())
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that left before the end is no news."""

    http = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.05,))
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


# -- the three APIs ----------------------------------------------------------------------------------------------------


class Chat:
    """`chat.completions` of OpenAI."""

    ends, field, dialect = ("/chat/completions",), "messages", "openai-chat"
    package, root, system, room = "openai", "/v1", "", ("max_completion_tokens", "max_tokens")
    streaming: ClassVar[dict[str, Any]] = {"stream_options": {"include_usage": True}}
    tools: ClassVar[list[Any]] = [
        {"type": "function", "function": {"name": n, "parameters": s, "strict": True}} for n, s in SCHEMAS.items()
    ]
    asks: ClassVar[dict[str, Any]] = {"model": "gpt-4o", "max_completion_tokens": 100, "tools": tools}

    def answer(self, step: Step, size: int, number: int) -> dict[str, Any]:
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in step.calls
        ]
        message = {"role": "assistant", "content": step.text or None, **({"tool_calls": calls} if calls else {})}
        if step.reasoning:
            message["reasoning_content"] = step.reasoning
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        usage = {"prompt_tokens": size, "completion_tokens": 9, "total_tokens": size + 9}
        made = {"id": f"c{number}", "object": "chat.completion", "created": 1, "model": "gpt-4o"}
        return {**made, "choices": [choice], "usage": usage}

    def events(self, whole: dict[str, Any], body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        (choice,) = whole["choices"]
        message = choice["message"]
        calls = [{"index": at, **call} for at, call in enumerate(message.get("tool_calls", ()))]
        delta = {**message, **({"tool_calls": calls} if calls else {})}
        chunk = {**whole, "object": "chat.completion.chunk", "usage": None}
        yield {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
        if (body.get("stream_options") or {}).get("include_usage"):
            yield {**chunk, "choices": [], "usage": whole["usage"]}

    def resource(self, client: Any) -> Any:
        return client.chat.completions

    def final(self, stream: Any) -> Any:
        return stream.get_final_completion()

    def opening(self) -> list[Any]:
        return [{"role": "system", "content": SYSTEM}]

    def said(self, answer: Any) -> tuple[list[Any], list[tuple[str, str, dict[str, Any]]]]:
        message = answer.choices[0].message
        calls = message.tool_calls or ()
        return [message], [(call.id, call.function.name, json.loads(call.function.arguments)) for call in calls]

    def results(self, results: list[tuple[str, str]]) -> list[Any]:
        return [{"role": "tool", "tool_call_id": call, "content": text} for call, text in results]

    def picture(self) -> dict[str, Any]:
        return {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}],
        }

    def marked(self, message: dict[str, Any]) -> dict[str, Any]:
        return message


class Responses(Chat):
    """`responses` of OpenAI."""

    ends, field, dialect = ("/v1/responses",), "input", "openai-responses"
    system, room, streaming = "instructions", ("max_output_tokens",), {}
    tools: ClassVar[list[Any]] = [
        {"type": "function", "name": n, "parameters": s, "strict": True} for n, s in SCHEMAS.items()
    ]
    asks: ClassVar[dict[str, Any]] = {
        "model": "gpt-4o",
        "max_output_tokens": 100,
        "tools": tools,
        "instructions": SYSTEM,
    }

    def answer(self, step: Step, size: int, number: int) -> dict[str, Any]:
        output: list[dict[str, Any]] = []
        if step.reasoning:
            thought = [{"type": "summary_text", "text": step.reasoning}]
            output.append({"type": "reasoning", "id": f"rs_{number}", "summary": thought})
        if step.text:
            part = {"type": "output_text", "text": step.text, "annotations": []}
            made = {"type": "message", "id": f"m_{number}", "role": "assistant", "status": "completed"}
            output.append({**made, "content": [part]})
        output += [
            {"type": "function_call", "id": f"fc_{c.id}", "call_id": c.id, "name": c.name, "status": "completed"}
            | {"arguments": json.dumps(c.arguments)}
            for c in step.calls
        ]
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        usage = {"input_tokens": size, "output_tokens": 9, "total_tokens": size + 9, **details}
        made = {"id": f"r{number}", "object": "response", "created_at": 1, "model": "gpt-4o", "status": "completed"}
        rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        return {**made, **rest, "output": output, "usage": usage}

    def events(self, whole: dict[str, Any], body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        started = {**whole, "output": [], "usage": None, "status": "in_progress"}
        yield {"type": "response.created", "sequence_number": 0, "response": started}
        yield {"type": "response.completed", "sequence_number": 1, "response": whole}

    def resource(self, client: Any) -> Any:
        return client.responses

    def final(self, stream: Any) -> Any:
        return stream.get_final_response()

    def opening(self) -> list[Any]:
        return []

    def said(self, answer: Any) -> tuple[list[Any], list[tuple[str, str, dict[str, Any]]]]:
        calls = [item for item in answer.output if item.type == "function_call"]
        return list(answer.output), [(call.call_id, call.name, json.loads(call.arguments)) for call in calls]

    def results(self, results: list[tuple[str, str]]) -> list[Any]:
        return [{"type": "function_call_output", "call_id": call, "output": text} for call, text in results]

    def picture(self) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}]}


class Anthropic(Responses):
    """`messages` of Anthropic."""

    ends, field, dialect = ("/v1/messages", ":rawPredict"), "messages", "anthropic"
    package, root, system, room = "anthropic", "", "system", ("max_tokens",)
    tools: ClassVar[list[Any]] = [{"name": name, "input_schema": schema} for name, schema in SCHEMAS.items()]
    asks: ClassVar[dict[str, Any]] = {
        "model": "claude-sonnet-5-5",
        "max_tokens": 100,
        "tools": tools,
        "system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
    }

    def answer(self, step: Step, size: int, number: int) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if step.reasoning:
            content.append({"type": "thinking", "thinking": step.reasoning, "signature": f"sig{number}"})
        if step.text:
            content.append({"type": "text", "text": step.text})
        content += [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in step.calls]
        made = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5"}
        ended = {"stop_reason": "tool_use" if step.calls else "end_turn", "stop_sequence": None}
        # Cached tokens are reported beside the others.
        usage = {"input_tokens": size - 20, "cache_read_input_tokens": 20, "output_tokens": 9}
        return {**made, **ended, "content": content, "usage": usage}

    def events(self, whole: dict[str, Any], body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
        for at, block in enumerate(whole["content"]):
            empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}
            yield {"type": "content_block_start", "index": at, "content_block": {**block, **empty[block["type"]]}}
            for key, kind, name in (
                ("text", "text_delta", "text"),
                ("thinking", "thinking_delta", "thinking"),
                ("signature", "signature_delta", "signature"),
                ("input", "input_json_delta", "partial_json"),
            ):
                if key in block:
                    value = json.dumps(block[key]) if key == "input" else block[key]
                    yield {"type": "content_block_delta", "index": at, "delta": {"type": kind, name: value}}
            yield {"type": "content_block_stop", "index": at}
        ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 9, "input_tokens": 99_999}}
        yield {"type": "message_stop"}

    def resource(self, client: Any) -> Any:
        return client.messages

    def final(self, stream: Any) -> Any:
        return stream.get_final_message()

    def said(self, answer: Any) -> tuple[list[Any], list[tuple[str, str, dict[str, Any]]]]:
        calls = [block for block in answer.content if block.type == "tool_use"]
        message = {"role": "assistant", "content": answer.content}
        return [message], [(call.id, call.name, call.input) for call in calls]

    def results(self, results: list[tuple[str, str]]) -> list[Any]:
        blocks = [{"type": "tool_result", "tool_use_id": call, "content": text} for call, text in results]
        return [{"role": "user", "content": blocks}]

    def picture(self) -> dict[str, Any]:
        source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
        return self.marked({"role": "user", "content": [{"type": "image", "source": source}]})

    def marked(self, message: dict[str, Any]) -> dict[str, Any]:
        """With a cache breakpoint behind it."""
        *rest, last = message["content"]
        return {**message, "content": [*rest, {**last, "cache_control": {"type": "ephemeral"}}]}


APIS: dict[str, Any] = {"chat": Chat(), "responses": Responses(), "messages": Anthropic()}
each_api = pytest.mark.parametrize("api", APIS.values(), ids=APIS)


def client_of(api: Any, server: Any, *, key: str = "none", told: list[Any] | None = None) -> Any:
    """The provider's own client, talking to the server; to be entered. `told` gets the headers of every answer."""
    hooks = {} if told is None else {"event_hooks": {"response": [lambda answer: told.append(answer.headers)]}}
    return _made(api, server, "", key, **hooks)


def async_client_of(api: Any, server: Server) -> Any:
    """Its async client, to be entered."""
    return _made(api, server, "Async")


def _made(api: Any, server: Any, prefix: str, key: str = "none", **transport: Any) -> Any:
    import anthropic
    import openai

    package, name = (openai, "OpenAI") if api.package == "openai" else (anthropic, "Anthropic")
    # There is nothing to verify on a loopback, and reading the certificates is most of what a client costs.
    http = getattr(package, f"Default{prefix}HttpxClient")(verify=False, **transport)
    made = getattr(package, f"{prefix}{name}")
    return made(base_url=f"{server.url}{api.root}", api_key=key, max_retries=0, http_client=http)


async def ask(api: Any, client: Any, way: str, messages: list[Any], **more: Any) -> Any:
    """One answer of the model, as an SDK object, by one of the ways to get it."""
    resource, asks = api.resource(client), {**api.asks, api.field: messages, **more}
    if way == "create":
        return resource.create(**asks)
    if way == "async create":
        return await resource.create(**asks)
    if way == "stream":
        with resource.stream(**asks, **api.streaming) as stream:
            return api.final(stream)
    async with resource.stream(**asks, **api.streaming) as stream:
        return await api.final(stream)


async def converse(api: Any, client: Any, way: str, play: Play, *, untyped: bool = False) -> list[Any]:
    """An agent as people write it on a plain client: the history is a list that grows.

    With `untyped` the list is JSON beside what the clients know: the rest they walk anew at every call, all of it,
    which for a long list takes most of the time.
    """
    messages = api.opening()
    for turn in play.rounds:
        messages.append({"role": "user", "content": turn.user})
        calls: Any = True
        while calls:
            listed, beside = ([], {"extra_body": {api.field: messages}}) if untyped else (messages, {})
            said, calls = api.said(await ask(api, client, way, listed, **beside))
            results = [(call, play.result(name, given)) for call, name, given in calls]
            messages += [*(as_json(said) if untyped else said), *(api.results(results) if results else ())]
    return messages


def as_json(said: Any) -> Any:
    """A client's objects as a provider takes them back."""
    own = ("parsed", "parsed_arguments")
    text = json.dumps(said, default=lambda model: model.to_dict(mode="json"))
    return json.loads(text, object_hook=lambda one: {k: v for k, v in one.items() if k not in own and v is not None})
