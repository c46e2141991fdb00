"""A program that is an engine to its supervisor: it announces, answers, fails and dies as told.

``python engine_stub.py [--mode MODE] [--pid-file FILE] [--stubborn]``, with the modes

- ``serve``: announces where it listens, then that it is ready; answers chats with the token that it was given
- ``fail``: announces that the model cannot be loaded, and stays
- ``load``: announces that it listens and never becomes ready
- ``crash``: exits with status 3 and a last word on standard error
- ``llama``: announces nothing; listens on ``--port`` and answers ``/health``, first with 503

It ends with its standard input unless ``--stubborn``, which also ignores SIGTERM. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Handler(BaseHTTPRequestHandler):
    health_answers = 0
    loading_answers = 0

    def do_GET(self) -> None:
        type(self).health_answers += 1
        loading = self.health_answers <= self.loading_answers
        self._send(503 if loading else 200, b"{}", "application/json")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        token = os.environ["ROUNDHOUSE_ENGINE_TOKEN"]
        if self.headers.get("authorization") != f"Bearer {token}":
            self._send(401, b'{"error": {"message": "wrong token"}}', "application/json")
            return
        if body["messages"][-1]["content"] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        chunk: dict[str, Any] = {
            "id": "x",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": body["model"],
        }
        delta = {"index": 0, "delta": {"role": "assistant", "content": "hello"}, "finish_reason": None}
        finish = {"index": 0, "delta": {}, "finish_reason": "stop"}
        frames = [{**chunk, "choices": [delta]}, {**chunk, "choices": [finish]}]
        text = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames) + "data: [DONE]\n\n"
        self._send(200, text.encode(), "text/event-stream")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


def announce(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="serve")
    parser.add_argument("--pid-file", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--stubborn", action="store_true")
    parser.add_argument("--with-child", action="store_true")
    arguments = parser.parse_args()
    pids = [os.getpid()]
    if arguments.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if arguments.with_child:
        # It holds the pipes too, as a real helper process would.
        pids.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
    if arguments.pid_file:
        arguments.pid_file.write_text(" ".join(map(str, pids)))
    if arguments.mode == "crash":
        sys.stderr.write("the stub crashes\n")
        sys.exit(3)
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler)
    if arguments.mode == "llama":
        Handler.loading_answers = 2
        server.serve_forever()
    if not arguments.stubborn:
        threading.Thread(target=end_with_stdin, daemon=True).start()
    sys.stderr.write("stub log line\n")
    announce("listening", host="127.0.0.1", port=server.server_address[1])
    if arguments.mode == "fail":
        announce("failed", error="m.gguf: header: wrong magic")
    elif arguments.mode == "serve":
        announce("ready")
    server.serve_forever()


if __name__ == "__main__":
    main()
