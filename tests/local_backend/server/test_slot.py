"""The one slot: queueing, leaving, failing and stopping. The gate holds the model at a layer."""

from __future__ import annotations

import threading
from contextlib import AsyncExitStack

import anyio
import httpx
import pytest

from local_backend.config import ServerConfig
from tests.local_backend.counting_model import LETTERS, CountingKernels
from tests.local_backend.server.served import (
    PATIENCE_S,
    Served,
    chat_body,
    payloads,
    serving,
    streamed_text,
)

pytestmark = pytest.mark.anyio


def held(passes: int = 0) -> CountingKernels:
    """A model that computes so many layers and then waits."""
    kernels = CountingKernels()
    kernels.gate = threading.Semaphore(passes)
    kernels.skip_end = True
    return kernels


async def begin(stack: AsyncExitStack, served: Served, text: str) -> httpx.Response:
    """Open a stream and read its first frame."""
    request = served.client.stream("POST", "/v1/chat/completions", json=chat_body(text, stream=True))
    response = await stack.enter_async_context(request)
    assert response.status_code == 200
    return response


async def test_a_full_queue_answers_429_and_says_when_to_come_back() -> None:
    kernels = held()
    async with (
        serving(kernels, over_socket=True, config=ServerConfig(queue_limit=1)) as served,
        AsyncExitStack() as stack,
    ):
        await begin(stack, served, "a")
        await begin(stack, served, "b")
        response = await served.chat("c")

    assert response.status_code == 429
    assert response.json()["error"]["code"] == "queue_full"
    assert int(response.headers["retry-after"]) >= 1


async def test_a_client_that_leaves_while_decoding_frees_the_slot() -> None:
    kernels = held(passes=20)
    async with serving(kernels, over_socket=True, context=2000) as served:
        async with AsyncExitStack() as stack:
            await begin(stack, served, "abc")
            await served.until_calls(20)
        await served.until_open(0)
        assert kernels.gate is not None
        kernels.gate.release(12)
        answer = (await served.chat("x", max_tokens=2)).json()
        metrics = (await served.client.get("/metrics")).text

    # Of the 12 layers let through, one ended the step that was held; the next was never begun.
    assert answer["choices"][0]["message"]["content"] == "yz"
    assert 'outcome="cancelled"} 1' in metrics


async def test_a_client_that_leaves_during_prefill_ends_it_between_layers() -> None:
    kernels = held()
    async with serving(kernels, over_socket=True, context=2000) as served:
        async with AsyncExitStack() as stack:
            await begin(stack, served, "a" * 1000)
            await anyio.to_thread.run_sync(kernels.at_gate.wait, PATIENCE_S)
        await served.until_open(0)
        assert kernels.gate is not None
        kernels.gate.release(1000)
        await served.chat("xy", max_tokens=1)

    lengths = [len(tokens) for _, tokens in kernels.calls]
    assert sum(lengths) <= 8 + 4


async def test_a_client_that_leaves_the_queue_is_never_computed() -> None:
    kernels = held()
    async with serving(kernels, over_socket=True) as served, AsyncExitStack() as first:
        response = await begin(first, served, "a")
        async with AsyncExitStack() as second:
            await begin(second, served, "m")
            await served.until_open(2)
        await served.until_open(1)
        kernels.skip_end = False
        assert kernels.gate is not None
        kernels.gate.release(1000)
        text = streamed_text(payloads((await response.aread()).decode()))

    assert text == LETTERS[1:-1]
    assert not any(LETTERS.index("m") in tokens and start == 0 for start, tokens in kernels.calls)


async def test_a_client_that_leaves_a_plain_request_frees_the_slot() -> None:
    kernels = held()
    async with serving(kernels, over_socket=True, context=2000) as served:
        async with anyio.create_task_group() as group:
            group.start_soon(served.chat, "abc")
            await served.until_open(1)
            group.cancel_scope.cancel()
        await served.until_open(0)
        assert kernels.gate is not None
        kernels.gate.release(1000)
        answer = (await served.chat("x", max_tokens=1)).json()

    assert answer["choices"][0]["message"]["content"] == "y"


async def test_requests_that_wait_are_answered_in_order() -> None:
    kernels = held()
    async with serving(kernels, over_socket=True) as served, AsyncExitStack() as stack:
        responses = [await begin(stack, served, letter) for letter in "akp"]
        kernels.skip_end = False
        assert kernels.gate is not None
        kernels.gate.release(1000)
        texts = [streamed_text(payloads((await r.aread()).decode())) for r in responses]

    assert texts == [LETTERS[1:-1], LETTERS[11:-1], LETTERS[16:-1]]


async def test_a_long_silence_is_bridged_by_comments() -> None:
    kernels = held()
    config = ServerConfig(keep_alive_s=0.01)
    async with serving(kernels, over_socket=True, config=config) as served, AsyncExitStack() as stack:
        response = await begin(stack, served, "w")
        seen: list[str] = []
        async for line in response.aiter_lines():
            seen.append(line)
            if seen.count(": keep-alive") == 3:
                kernels.skip_end = False
                assert kernels.gate is not None
                kernels.gate.release(1000)

    assert "data: [DONE]" in seen
    assert seen.index(": keep-alive") < next(i for i, line in enumerate(seen) if '"content":"x"' in line)


async def test_a_defect_while_streaming_ends_with_an_error_frame_and_no_done() -> None:
    kernels = CountingKernels()
    kernels.fail_on = LETTERS.index("d")
    async with serving(kernels, over_socket=True) as served:
        frames = payloads((await served.chat("b", stream=True)).text)
        plain = await served.chat("b")
        after = (await served.chat("x", max_tokens=1)).json()

    assert streamed_text(frames[:-1]) == "cd"
    assert frames[-1]["error"]["code"] == "engine_error"
    assert "[DONE]" not in frames
    assert plain.status_code == 500
    assert after["choices"][0]["message"]["content"] == "y"


async def test_stopping_tells_every_open_stream() -> None:
    kernels = held(passes=4)
    async with serving(kernels, over_socket=True) as served, AsyncExitStack() as stack:
        responses = [await begin(stack, served, text) for text in ("ab", "kl")]
        await served.until_calls(4)
        served.service.worker.cancel_all("the engine is stopping")
        assert kernels.gate is not None
        kernels.gate.release(2)
        frames = [payloads((await r.aread()).decode()) for r in responses]
        late = await served.chat("x")

    assert [f[-1]["error"]["code"] for f in frames] == ["cancelled", "cancelled"]
    assert late.json()["error"]["code"] == "cancelled"


async def test_a_thread_that_ends_leaves_nobody_waiting() -> None:
    kernels = CountingKernels()
    async with serving(kernels, over_socket=True) as served:
        engine = served.service.worker.model().engine
        del engine.meter  # a defect outside what a step guards
        response = await served.chat("abc")
        health = await served.client.get("/health")

    assert (response.status_code, response.json()["error"]["code"]) == (503, "load_failed")
    assert (health.status_code, health.json()["status"]) == (503, "failed")
