"""A plain Anthropic client, streaming, whose conversation stays inside its window; a server on this machine answers."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from anthropic import Anthropic

from compact import CompactConfig, CompactManager
from compact.adapters.anthropic import compacting

received = []


class Provider(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        received.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"])
        text = f"Chapter {len(received)}: the ship passes lighthouse {len(received) * 37} and turns north. " * 12
        message = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": text}]}
        event = json.dumps({"type": "message_start", "message": message})
        self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        self.wfile.write(f"event: message_start\ndata: {event}\n\n".encode())


server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
plain = Anthropic(base_url=f"http://127.0.0.1:{server.server_port}", api_key="none")

config = CompactConfig(model="claude-sonnet-5-5", max_context_tokens=6_000, storage={"adapter": "none"})
manager = CompactManager(config)
client = compacting(plain, manager, session_id="book")

messages = []
for chapter in range(1, 31):
    messages.append({"role": "user", "content": f"Tell me about chapter {chapter}."})
    with client.messages.stream(model=config.model, max_tokens=500, messages=messages) as stream:
        messages.append({"role": "assistant", "content": stream.get_final_message().content})
print(f"{len(received)} model calls, {len(manager.session('book').folds)} folds in a window of 6,000 tokens.")
print(f"The list has {len(messages)} messages; the largest request had {max(map(len, received))}.")
