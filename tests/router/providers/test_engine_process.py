from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from router.catalog.catalog import EngineLaunch
from router.providers.engine_command import EngineCommand, engine_command
from router.providers.engine_process import EnginePhase, EngineProcess
from router.providers.restart_pauses import HEALTHY_S, RestartPauses
from router.providers.transport import make_client

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="looks at processes the POSIX way"),
]

_STUB = str(Path(__file__).parents[2] / "fakes" / "engine_stub.py")
RNG = random.Random(7)  # noqa: S311 - pauses are no secrets
_ROOT = Path(__file__).parents[3]


def stub(*options: str) -> Callable[[], EngineCommand]:
    """Make commands that run the stub in the place of our engine."""
    environment = {**os.environ, "ROUNDHOUSE_ENGINE_TOKEN": "secret-token"}
    return lambda: EngineCommand((sys.executable, _STUB, *options), environment, "secret-token")


class NoPauses(RestartPauses):
    def next_pause(self, healthy_for_s: float) -> float:
        super().next_pause(healthy_for_s)
        return 0.0


@asynccontextmanager
async def running(
    make_command: Callable[[], EngineCommand], *, grace_s: float = 5.0, pauses: RestartPauses | None = None
) -> AsyncIterator[EngineProcess]:
    async with make_client() as client:
        process = EngineProcess(
            "stub",
            make_command,
            client=client,
            pauses=pauses or RestartPauses(RNG, first_s=600.0, longest_s=600.0),
            grace_s=grace_s,
        )
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            task = group.create_task(process.run())
            yield process
            task.cancel()


def is_gone(pid: int) -> bool:
    """Whether no living process has that id (a zombie that nobody has reaped yet is dead too)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        pass
    else:
        return state == "Z"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def until_gone(pid: int, within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while not is_gone(pid):  # noqa: ASYNC110 - nobody tells of another's child
            await asyncio.sleep(0.01)


async def test_it_becomes_ready_and_says_where_it_listens() -> None:
    async with running(stub()) as process:
        await process.until(EnginePhase.READY)

        assert process.address is not None
        assert process.address.url.startswith("http://127.0.0.1:")
        assert process.detail == ""
        assert "secret-token" not in repr(process.address)


async def test_stopping_leaves_nothing_behind() -> None:
    async with running(stub()) as process:
        await process.until(EnginePhase.READY)
        pid = process.pid
    assert pid is not None

    assert is_gone(pid)
    assert (process.phase, process.address, process.pid) == (EnginePhase.STOPPED, None, None)


async def test_what_the_engine_started_is_stopped_with_it(tmp_path: Path) -> None:
    async with running(stub("--with-child", "--pid-file", str(tmp_path / "pids"))) as process:
        await process.until(EnginePhase.READY)
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert len(pids) == 2

    for pid in pids:
        await until_gone(pid, 2)


async def test_an_engine_that_ignores_the_signal_is_killed_after_the_grace() -> None:
    async with running(stub("--stubborn"), grace_s=0.1) as process:
        await process.until(EnginePhase.READY)
        pid = process.pid
    assert pid is not None

    assert is_gone(pid)


async def test_a_killed_engine_is_started_again() -> None:
    async with running(stub(), pauses=NoPauses(RNG)) as process:
        await process.until(EnginePhase.READY)
        first, address = process.pid, process.address
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await process.until(EnginePhase.STARTING)
        await process.until(EnginePhase.READY)

        assert process.pid != first
        assert process.address != address
        assert process.starts == 2


async def test_an_engine_that_crashes_is_started_after_a_pause_and_says_so() -> None:
    async with running(stub("--mode", "crash")) as process:
        await process.until(EnginePhase.PAUSED)

        assert "exit status 3: the stub crashes" in process.detail
        assert "starts again in" in process.detail
        assert process.address is None


async def test_a_model_that_cannot_be_loaded_is_named_and_its_engine_ended() -> None:
    async with running(stub("--mode", "fail")) as process:
        await process.until(EnginePhase.STARTING)
        await process.until(EnginePhase.PAUSED)

        assert "the model cannot be loaded: m.gguf: header: wrong magic" in process.detail
        assert process.pid is None


async def test_while_the_model_loads_it_is_not_ready() -> None:
    async with running(stub("--mode", "load")) as process:
        await process.until(EnginePhase.LOADING)

        assert process.detail == "the engine is loading the model"


async def test_a_program_that_does_not_exist_is_tried_again_later() -> None:
    async with running(lambda: EngineCommand(("/nowhere/engine",), {}, "t")) as process:
        await process.until(EnginePhase.PAUSED)

        assert "cannot be started: No such file" in process.detail


async def test_a_defect_of_ours_is_a_pause_too() -> None:
    def broken() -> EngineCommand:
        raise RuntimeError("defect")

    async with running(broken) as process:
        await process.until(EnginePhase.PAUSED)

        assert "defect of the gateway" in process.detail


async def test_a_llama_server_compatible_command_is_watched_by_its_health() -> None:
    launch = EngineLaunch(
        model="m.gguf",
        context_tokens=512,
        command=(sys.executable, _STUB, "--mode", "llama", "--port", "{port}"),
    )
    async with running(lambda: engine_command(launch, os.environ)) as process:
        await process.until(EnginePhase.LOADING)
        await process.until(EnginePhase.READY)

        assert process.address is not None
        async with httpx.AsyncClient() as client:
            assert (await client.get(process.address.url.removesuffix("/v1") + "/health")).status_code == 200


@pytest.mark.parametrize("kind", ["announcing", "guarded"])
async def test_killing_the_parent_ends_the_engine_within_two_seconds(kind: str, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    options = ["--pid-file", str(pid_file)]
    if kind == "guarded":
        # Such an engine watches nothing by itself.
        options += ["--mode", "llama", "--stubborn", "--port", "{port}"]
    parent = _start_parent(kind, [sys.executable, _STUB, *options])
    try:
        assert parent.stdout is not None
        while await asyncio.to_thread(parent.stdout.readline) != "ready\n":
            assert parent.poll() is None
        pid = int(pid_file.read_text())
        assert not is_gone(pid)
        parent.kill()
        await until_gone(pid, 2)
    finally:
        parent.kill()
        parent.communicate()


def _start_parent(kind: str, words: list[str]) -> subprocess.Popen[str]:
    """Start a process that supervises an engine and says when it is ready."""
    program = f"""
        import asyncio, os, random
        from router.catalog.catalog import EngineLaunch
        from router.providers.engine_command import EngineCommand, engine_command
        from router.providers.engine_process import EnginePhase, EngineProcess
        from router.providers.restart_pauses import RestartPauses
        from router.providers.transport import make_client

        def command():
            if {kind == "guarded"!r}:
                return engine_command(EngineLaunch("m", 1, command=tuple({words!r})), os.environ)
            return EngineCommand(tuple({words!r}), {{**os.environ, "ROUNDHOUSE_ENGINE_TOKEN": "t"}}, "t")

        async def main():
            process = EngineProcess(
                "stub", command, client=make_client(), pauses=RestartPauses(random.Random(1))
            )
            async with asyncio.TaskGroup() as group:
                group.create_task(process.run())
                await process.until(EnginePhase.READY)
                os.write(1, b"ready\\n")

        asyncio.run(main())
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=_ROOT,
    )


def test_pauses_grow_are_capped_and_start_afresh_after_a_healthy_while() -> None:
    pauses = RestartPauses(RNG, first_s=1.0, longest_s=8.0)

    series = [pauses.next_pause(0.0) for _ in range(6)]
    for pause, most in zip(series, [1, 2, 4, 8, 8, 8], strict=True):
        assert most / 2 <= pause <= most
    assert pauses.failures == 6
    assert pauses.next_pause(HEALTHY_S) <= 1.0
    assert pauses.failures == 1


def test_our_own_engine_gets_a_random_token_and_a_port_of_its_choice() -> None:
    first = engine_command(EngineLaunch("builtin:smollm2", 2048, threads=2, queue_limit=3), {"PATH": "/bin"})
    second = engine_command(EngineLaunch("builtin:smollm2", 2048), {})

    assert first.words[1:] == (
        *("-m", "local_backend", "serve", "builtin:smollm2", "--host", "127.0.0.1", "--port", "0"),
        *("--context", "2048", "--queue", "3", "--threads", "2", "--exit-with-stdin", "--announce"),
    )
    assert first.environment["PATH"] == "/bin"
    assert first.environment["ROUNDHOUSE_ENGINE_TOKEN"] == first.token != second.token
    assert first.announces
    assert first.token not in repr(first)
