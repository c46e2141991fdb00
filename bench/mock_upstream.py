"""An upstream that costs next to nothing: OpenAI's chat completions over asyncio and httptools.

    python bench/mock_upstream.py --port 9100

The model's name says how it answers: ``mock`` at once, in 20 frames where a stream is asked for;
``mock-c100-d50`` in 100 frames, one each 50 ms. Every frame of a paced stream carries its number and the time
at which it was written, so that lost, doubled and late frames can be told apart. Listens on 127.0.0.1 only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from typing import Any

import httptools
import uvloop

PROFILE = re.compile(r"mock(?:-c(\d+)-d(\d+))?")
SENTENCE = "The turntable turns one engine at a time, and the house waits its turn. "
ANSWER = SENTENCE * 9
FRAMES = 20
USAGE = {"prompt_tokens": 150, "completion_tokens": 100, "total_tokens": 250}
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def frame(delta: dict[str, str], finish: str | None = None, usage: dict[str, int] | None = None) -> bytes:
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": finish}]
    value = {
        "id": "chatcmpl-mock",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "mock",
        "choices": [] if usage else choices,
    }
    if usage:
        value["usage"] = usage
    return chunk(b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def whole_answer() -> bytes:
    message = {"role": "assistant", "content": ANSWER}
    body = json.dumps(
        {
            "id": "chatcmpl-mock",
            "object": "chat.completion",
            "created": 1700000000,
            "model": "mock",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": USAGE,
        }
    ).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


ENDING = frame({}, "stop") + frame({}, usage=USAGE) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
WHOLE = whole_answer()
PIECES = [ANSWER[i * len(ANSWER) // FRAMES : (i + 1) * len(ANSWER) // FRAMES] for i in range(FRAMES)]
AT_ONCE = STREAM_HEAD + b"".join(frame({"content": piece}) for piece in PIECES) + ENDING


class Connection(asyncio.Protocol):
    """One client's connection; ``streams`` holds the paced streams, so that they can be ended."""

    def __init__(self, streams: asyncio.TaskGroup) -> None:
        self.streams = streams
        self.task: asyncio.Task[None] | None = None
        self.body = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)

    def connection_lost(self, _error: Exception | None) -> None:
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.close()

    def on_message_begin(self) -> None:
        self.body = b""

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        request = json.loads(self.body) if self.body else {}
        found = PROFILE.fullmatch(str(request.get("model", "")))
        if found is None:
            self.transport.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        elif not request.get("stream"):
            self.transport.write(WHOLE)
        elif found[1] is None:
            self.transport.write(AT_ONCE)
        else:
            self.task = self.streams.create_task(self.paced(int(found[1]), int(found[2]) / 1000))

    async def paced(self, count: int, every_s: float) -> None:
        self.transport.write(STREAM_HEAD)
        start = time.monotonic()
        for number in range(count):
            # Absolute times: the pace never drifts.
            await asyncio.sleep(max(0.0, start + number * every_s - time.monotonic()))
            self.transport.write(frame({"content": f"t{number}@{time.monotonic_ns()} "}))
        self.transport.write(ENDING)


async def main(port: int) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as streams:
        server = await loop.create_server(lambda: Connection(streams), "127.0.0.1", port, backlog=1024)
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes any free one, which is printed")
    uvloop.run(main(parser.parse_args().port))
