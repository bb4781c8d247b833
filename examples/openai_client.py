"""A plain OpenAI client whose conversation stays inside its window; the answers come from a server on this machine."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from openai import OpenAI

from compact import CompactConfig, CompactManager
from compact.adapters.openai import compacting

received = []


class Provider(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        received.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"])
        text = f"Chapter {len(received)}: the ship passes lighthouse {len(received) * 37} and turns north. " * 12
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")
        self.wfile.write(json.dumps({"id": "1", "object": "chat.completion", "choices": [choice]}).encode())


server = HTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
plain = OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none")

config = CompactConfig(model="gpt-4o", max_context_tokens=4_000, storage={"adapter": "none"})
manager = CompactManager(config)
client = compacting(plain, manager, session_id="book")

messages = []
for chapter in range(1, 31):
    messages.append({"role": "user", "content": f"Tell me about chapter {chapter}."})
    answer = client.chat.completions.create(model="gpt-4o", messages=messages)
    messages.append(answer.choices[0].message)
print(f"{len(received)} model calls, {len(manager.session('book').folds)} folds in a window of 4,000 tokens.")
print(f"The list has {len(messages)} messages; the largest request had {max(map(len, received))}.")
