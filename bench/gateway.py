"""What the gateway adds to a request, measured against its upstream and, where wanted, LiteLLM proxy.

    python bench/gateway.py [--rounds 3] [--litellm PATH_TO_ITS_PROGRAM]

Starts the mock upstream, the gateway (47 candidates, recording on) and the peer on 127.0.0.1, each gateway on
one core, the load and the mock on another; measures them in interleaved rounds; stops everything. Needs Linux
(``/proc``, ``taskset``). "Added" is a target's percentile less direct's of the same round; what is printed is
the median of the rounds, faults are sums. On a busy machine compare ratios and CPU a request, not rates.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import re
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httptools
import uvloop

ROOT = Path(__file__).resolve().parent.parent
PACED, FRAMES, PACE_S = "mock-c100-d50", 100, 0.05
CANDIDATES = 47
TOKEN = re.compile(rb"t(\d+)@(\d+) ")
MESSAGES = [
    {"role": "system", "content": "You answer briefly. " * 10},
    {"role": "user", "content": "Why? " * 80},
]
Row = dict[str, float]


@dataclass
class Target:
    name: str
    port: int
    key: str = "none"
    model: str = "mock"
    paced: str = PACED
    pid: int = 0

    def request(self, model: str, *, stream: bool = False) -> bytes:
        value: dict[str, Any] = {"model": model, "messages": MESSAGES, "temperature": 0.7, "max_tokens": 100}
        if stream:
            value |= {"stream": True, "stream_options": {"include_usage": True}}
        body = json.dumps(value).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\nauthorization: Bearer "
            f"{self.key}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def cpu_s(self) -> float:
        """CPU seconds of the process so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Client(asyncio.Protocol):
    """One kept-alive connection. :meth:`post` returns the body; ``watch`` sees its pieces as they come."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.waiter: asyncio.Future[None] | None = None
        self.watch: Callable[[bytes], None] | None = None
        self.body = bytearray()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(error or ConnectionError("closed within the answer"))

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self.body += data
        if self.watch is not None:
            self.watch(data)

    def on_message_complete(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def post(self, port: int, request: bytes, watch: Callable[[bytes], None] | None = None) -> bytes:
        loop = asyncio.get_running_loop()
        if self.transport is None or self.transport.is_closing():
            await loop.create_connection(lambda: self, "127.0.0.1", port)
        self.parser, self.waiter, self.watch = httptools.HttpResponseParser(self), loop.create_future(), watch
        self.body.clear()
        self.transport.write(request)
        async with asyncio.timeout(60):
            await self.waiter
        if self.parser.get_status_code() != 200:  # noqa: PLR2004 - HTTP's
            raise ConnectionError(f"status {self.parser.get_status_code()}: {bytes(self.body[:200])!r}")
        return bytes(self.body)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


async def one(client: Client, target: Target, request: bytes) -> float:
    """Return the milliseconds of one whole answer, which is checked."""
    start = time.perf_counter()
    answer = json.loads(await client.post(target.port, request))
    took = (time.perf_counter() - start) * 1e3
    assert len(answer["choices"][0]["message"]["content"]) > 600, "a part of the answer is missing"  # noqa: PLR2004
    assert answer["usage"]["total_tokens"] == 250, "the usage is wrong"  # noqa: PLR2004
    return took


async def alone(target: Target, options: argparse.Namespace) -> Row:
    """One connection, one request after the other."""
    client, request = Client(), target.request(target.model)
    times = [await one(client, target, request) for _ in range(options.requests + 50)][50:]
    client.close()
    return {"c=1 p50, ms": statistics.median(times), "c=1 p99, ms": percentile(times, 0.99)}


async def loaded(target: Target, options: argparse.Namespace) -> Row:
    """Many connections, each asking again at once."""
    request, times = target.request(target.model), []
    until = time.perf_counter() + 1

    async def ask(into: list[float]) -> None:
        client = Client()
        while time.perf_counter() < until:
            into.append(await one(client, target, request))
        client.close()

    await asyncio.gather(*(ask([]) for _ in range(options.concurrency)))
    until = time.perf_counter() + options.seconds
    before, start = target.cpu_s(), time.perf_counter()
    await asyncio.gather(*(ask(times) for _ in range(options.concurrency)))
    seconds, cpu = time.perf_counter() - start, target.cpu_s() - before
    return {
        "req/s": len(times) / seconds,
        "load p99, ms": percentile(times, 0.99),
        "CPU a request, ms": 1e3 * cpu / len(times),
        "CPU of the target, %": 100 * cpu / seconds,
        "req/s a core of its own": len(times) / cpu,
    }


async def streamed(target: Target, options: argparse.Namespace) -> Row:
    """Streams one after the other: to the first piece of content."""
    client, request, times = Client(), target.request(target.model, stream=True), []
    for _ in range(options.first_tokens + 10):
        first: list[float] = []

        def note(data: bytes, first: list[float] = first) -> None:
            if not first and b'"content":"T' in data.replace(b'": "', b'":"'):
                first.append(time.perf_counter())

        start = time.perf_counter()
        await client.post(target.port, request, note)
        times.append((first[0] - start) * 1e3)
    client.close()
    return {"first token p50, ms": statistics.median(times[10:])}


async def paced(target: Target, options: argparse.Namespace) -> Row:
    """Many paced streams at once: every frame there, once, in order, and not late."""
    delays: list[float] = []
    lost = 0

    async def follow(number: int) -> None:
        nonlocal lost
        await asyncio.sleep(number * PACE_S / options.streams)
        client, seen = Client(), []

        def note(data: bytes) -> None:
            now = time.monotonic_ns()
            for index, stamp in TOKEN.findall(data):
                seen.append(int(index))
                delays.append((now - int(stamp)) / 1e6)

        body = await client.post(target.port, target.request(target.paced, stream=True), note)
        client.close()
        whole = [int(index) for index, _ in TOKEN.findall(body)]
        lost += (
            whole != list(range(FRAMES))
            or b"[DONE]" not in body
            or b'"total_tokens":250' not in body.replace(b'": ', b'":')
        )

    await asyncio.gather(*(follow(number) for number in range(options.streams)))
    return {"paced streams not whole": lost, "frame delay p99, ms": percentile(delays, 0.99)}


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


@contextmanager
def process(
    command: list[str], core: int | None, log: Path, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    pinned = command if core is None else ["taskset", "-c", str(core), *command]
    with log.open("w") as errors:
        running = subprocess.Popen(
            pinned, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env=os.environ | environment
        )
        try:
            yield running
        finally:
            running.send_signal(signal.SIGTERM)
            try:
                running.wait(15)
            except subprocess.TimeoutExpired:
                running.kill()


def catalog(upstream: str) -> str:
    names = ["mock", PACED, *(f"spare-{number}" for number in range(CANDIDATES - 2))]
    listed = ", ".join(f"mock/{name}" for name in names if name != PACED)
    lines = ["providers:", f"  mock: {{kind: openai, base_url: '{upstream}'}}", "entrypoints:"]
    lines += ["  auto: {description: judged}"]
    lines += [
        f"  {name}: {{description: d, candidates: [{listed}]}}" for name in ("chat", "code", "build", "long")
    ]
    lines += ["candidates:"]
    for name in names:
        fit = 0.9 if name == "mock" else 0.1
        lines.append(
            f"  - {{id: mock/{name}, provider: mock, model: {name}, context_tokens: 100000, "
            f"max_output_tokens: 4096, price: {{free: true}}, "
            f"task_fit: {{chat: {fit}, code: {fit}, build: {fit}, long: {fit}}}}}"
        )
    return "\n".join(lines) + "\n"


async def until_it_answers(target: Target) -> None:
    for _ in range(600):
        try:
            await one(Client(), target, target.request(target.model))
        except (OSError, httptools.HttpParserError):
            await asyncio.sleep(0.1)
        else:
            return
    raise SystemExit(f"{target.name} did not answer within a minute")


def start(options: argparse.Namespace, folder: Path, stack: ExitStack) -> list[Target]:
    def begin(name: str, command: list[str], core: int | None, **environment: str) -> subprocess.Popen[str]:
        return stack.enter_context(process(command, core, folder / f"{name}.log", **environment))

    mock = begin("mock", [sys.executable, str(ROOT / "bench/mock_upstream.py")], options.load_core)
    assert mock.stdout is not None
    upstream = mock.stdout.readline().strip()
    port = int(upstream.rsplit(":", 1)[1].removesuffix("/v1"))
    targets = [Target("direct", port, pid=mock.pid)]
    (folder / "providers.yaml").write_text(catalog(upstream))
    serve = [sys.executable, "-m", "router", "serve", "--no-engine", "--port", str(options.port)]
    serve += ["--config", str(folder / "providers.yaml"), "--data-dir", str(folder / "data")]
    own = begin("roundhouse", serve, options.gateway_core)
    targets.append(Target("roundhouse", options.port, model="chat", paced=f"mock/{PACED}", pid=own.pid))
    if options.litellm:
        models = [
            {
                "model_name": name,
                "litellm_params": {"model": f"openai/{name}", "api_base": upstream, "api_key": "none"},
            }
            for name in ("mock", PACED)
        ]
        (folder / "litellm.json").write_text(json.dumps({"model_list": models}))
        key = f"sk-{secrets.token_hex(32)}"
        command = [options.litellm, "--config", str(folder / "litellm.json"), "--host", "127.0.0.1"]
        command += ["--port", str(options.port + 1), "--num_workers", "1"]
        environment = {"LITELLM_MASTER_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        environment |= {"LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}
        peer = begin("litellm", command, options.gateway_core, **environment)
        targets.append(Target("litellm", options.port + 1, key=key, pid=peer.pid))
    return targets


async def measure(targets: list[Target], options: argparse.Namespace) -> dict[str, list[Row]]:
    phases: tuple[Callable[[Target, argparse.Namespace], Awaitable[Row]], ...] = (
        alone,
        loaded,
        streamed,
        paced,
    )
    results: dict[str, list[Row]] = collections.defaultdict(list)
    for target in targets:
        await until_it_answers(target)
    for number in range(options.rounds):
        shift = number % len(targets)
        for target in targets[shift:] + targets[:shift]:
            row: Row = {}
            for phase in phases:
                row |= await phase(target, options)
            results[target.name].append(row)
            print(f"round {number + 1} {target.name}: {row['req/s']:.0f} req/s", file=sys.stderr, flush=True)
    return results


def show(results: dict[str, list[Row]]) -> None:
    names = list(results)
    print(f"{'':34}" + "".join(f"{name:>14}" for name in names))
    for key in next(iter(results.values()))[0]:
        add = sum if key.startswith("paced") else statistics.median
        print(f"{key:34}" + "".join(f"{add(row[key] for row in results[name]):14.2f}" for name in names))
    for key in ("c=1 p50, ms", "first token p50, ms"):
        added = (
            statistics.median(
                row[key] - direct[key] for row, direct in zip(results[name], results["direct"], strict=True)
            )
            for name in names
        )
        print(f"{'added ' + key:34}" + "".join(f"{value:14.2f}" for value in added))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of load a round")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--requests", type=int, default=300, help="one after the other, a round")
    parser.add_argument("--first-tokens", type=int, default=50)
    parser.add_argument("--streams", type=int, default=100, help="paced streams at once")
    parser.add_argument("--port", type=int, default=4601, help="the gateway's; a peer gets the next one")
    parser.add_argument("--gateway-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument(
        "--litellm", metavar="PROGRAM", help="LiteLLM's program, from an environment of its own"
    )
    parser.add_argument("--json", type=Path, help="write every round there")
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.load_core})
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        targets = start(options, Path(folder), stack)
        try:
            results = uvloop.run(measure(targets, options))
        except BaseException:
            for log in Path(folder).glob("*.log"):
                print(log.name, log.read_text()[-2000:], sep="\n", file=sys.stderr)
            raise
    show(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
