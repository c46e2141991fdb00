"""How long the first request takes to find out that there is no network: ``python bench/offline.py``.

The shipped catalog with every key set, and a local candidate that answers at once, so that nothing but the
finding out is measured. Three kinds of having no network: nothing listens (refused), names are not resolved,
and the resolver does not answer at all.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import structlog

from tests.fakes.offline import shipped_house

Resolver = Callable[..., list[object]]
ENTRYPOINTS = ("auto", "chat", "code", "build", "long")


async def measure(model: str, base_url: str | None, resolver: Resolver | None) -> str:
    with tempfile.TemporaryDirectory() as folder:
        async with shipped_house(Path(folder), base_url) as (_, client):
            real, socket.getaddrinfo = socket.getaddrinfo, resolver or socket.getaddrinfo
            try:
                taken = []
                for _ in range(2):
                    body = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
                    started = time.perf_counter()
                    answer = await client.post("/v1/chat/completions", json=body)
                    milliseconds = 1000 * (time.perf_counter() - started)
                    attempts = answer.headers["x-roundhouse-attempts"]
                    taken.append(f"{answer.status_code} {milliseconds:7.1f} ms {attempts} attempts")
            finally:
                socket.getaddrinfo = real
    return "   then ".join(taken)


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    over = threading.Event()

    def unresolved(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    def mute(*_: object, **__: object) -> list[object]:
        over.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        refused = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        cases = {"refused": (refused, None), "unresolved": (None, unresolved), "mute resolver": (None, mute)}
        for name, (base_url, resolver) in cases.items():
            for model in ENTRYPOINTS:

                async def one(
                    model: str = model, base_url: str | None = base_url, resolver: Resolver | None = resolver
                ) -> str:
                    over.clear()
                    try:
                        return await measure(model, base_url, resolver)
                    finally:
                        over.set()

                print(f"{name:14} {model:6} {asyncio.run(one())}")


if __name__ == "__main__":
    main()
