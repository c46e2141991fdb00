"""A program that is an engine to its supervisor: it announces, answers, fails and dies as told.

``python engine_stub.py [--mode MODE] [--pid-file FILE] [--stubborn]``, with the modes

- ``serve``: announces where it listens, then that it is ready; answers chats with the token that it was given
- ``fail``: announces that the model cannot be loaded, and stays
- ``load``: announces that it listens and never becomes ready
- ``crash``: exits with status 3 and a last word on standard error
- ``llama``: announces nothing; listens on ``--port`` and answers ``/health``, first with 503

With ``--tokens N`` it answers so many words, ``--prefill SECONDS`` after it was asked and ``--pace SECONDS``
apart, and says in ``/health`` how many it was asked, how many it answers now and at most did at a time.

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
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar


class Handler(BaseHTTPRequestHandler):
    health_answers = 0
    loading_answers = 0
    tokens = 0
    prefill_s = 0.0
    pace_s = 0.0
    counts: ClassVar = {"asked": 0, "open": 0, "most_open": 0}
    lock = threading.Lock()

    def do_GET(self) -> None:
        type(self).health_answers += 1
        loading = self.health_answers <= self.loading_answers
        self._send(503 if loading else 200, json.dumps(self.counts).encode(), "application/json")

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
        if self.tokens:
            self._answer_slowly(chunk)
            return
        delta = {"index": 0, "delta": {"role": "assistant", "content": "hello"}, "finish_reason": None}
        finish = {"index": 0, "delta": {}, "finish_reason": "stop"}
        frames = [{**chunk, "choices": [delta]}, {**chunk, "choices": [finish]}]
        text = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames) + "data: [DONE]\n\n"
        self._send(200, text.encode(), "text/event-stream")

    def _answer_slowly(self, chunk: dict[str, Any]) -> None:
        counts = self.counts
        with self.lock:
            counts["asked"] += 1
            counts["open"] += 1
            counts["most_open"] = max(counts["most_open"], counts["open"])
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            end = time.monotonic() + self.prefill_s
            while time.monotonic() < end:
                # A comment now and then: a socket tells of a client that has left only when it is written to.
                self._write(": reading\n\n")
                time.sleep(0.02)
            for number in range(self.tokens):
                delta = {"index": 0, "delta": {"content": f"{number} "}, "finish_reason": None}
                self._write(f"data: {json.dumps({**chunk, 'choices': [delta]})}\n\n")
                time.sleep(self.pace_s)
            finish = {"index": 0, "delta": {}, "finish_reason": "stop"}
            self._write(f"data: {json.dumps({**chunk, 'choices': [finish]})}\n\ndata: [DONE]\n\n")
        except OSError:
            pass
        finally:
            with self.lock:
                counts["open"] -= 1

    def _write(self, text: str) -> None:
        self.wfile.write(text.encode())
        self.wfile.flush()

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
    parser.add_argument("--tokens", type=int, default=0)
    parser.add_argument("--prefill", type=float, default=0.0)
    parser.add_argument("--pace", type=float, default=0.0)
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
    Handler.tokens, Handler.prefill_s, Handler.pace_s = arguments.tokens, arguments.prefill, arguments.pace
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
