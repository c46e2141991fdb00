"""Keeps one local engine running: starts it, reads what it announces, starts it again when it dies.

:meth:`EngineProcess.run` is to be run in a task group of the application; whichever way it ends, the engine
is gone afterwards. Against a gateway that is killed the engine protects itself: its standard input is a
pipe that only this process holds (see also :mod:`router.providers.engine_guard`). Knows processes; no
requests, no models.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import anyio
import httpx
import orjson
import structlog

from router.providers.engine_command import EngineCommand
from router.providers.restart_pauses import RestartPauses

__all__ = ["EngineAddress", "EnginePhase", "EngineProcess"]

_log = structlog.get_logger(__name__)

_GRACE_S: Final = 5.0
_LISTENS_WITHIN_S: Final = 60.0
_POLL_S: Final = 0.25
_POLL_READY_S: Final = 5.0
_POLL_TIMEOUT_S: Final = 2.0
_LAST_WORDS_S: Final = 1.0
_LONGEST_LINE: Final = 64 << 10
_HTTP_OK: Final = 200


class EnginePhase(StrEnum):
    """Where the engine is in its life."""

    STOPPED = "stopped"
    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Where a running engine is spoken to."""

    url: str
    token: str = field(repr=False)


class _Ended(Exception):
    """One life of the engine is over; the text says why."""


class EngineProcess:
    """One engine. ``make_command`` is asked anew for every start, so that port and token are fresh."""

    def __init__(
        self,
        name: str,
        make_command: Callable[[], EngineCommand],
        *,
        client: httpx.AsyncClient,
        pauses: RestartPauses,
        grace_s: float = _GRACE_S,
    ) -> None:
        self.name = name
        self.phase = EnginePhase.STOPPED
        self.detail = "not started"
        self.address: EngineAddress | None = None
        self.pid: int | None = None
        self.starts = 0
        self._make_command = make_command
        self._client = client
        self._pauses = pauses
        self._grace_s = grace_s
        self._changed = asyncio.Condition()
        self._ready_since: float | None = None
        self._last_error = ""

    async def run(self) -> None:
        """Keep the engine running until cancelled."""
        try:
            while True:
                reason = await self._life_without_defects()
                pause = self._pauses.next_pause(self._healthy_for())
                failures = self._pauses.failures
                times = f", {failures} times in a row" if failures > 1 else ""
                await self._enter(
                    EnginePhase.PAUSED,
                    f"the engine stopped ({reason}){times}; it starts again in {pause:.1f} s",
                )
                _log.warning("engine.stopped", engine=self.name, reason=reason, pause_s=round(pause, 2))
                await asyncio.sleep(pause)
        finally:
            self.phase, self.detail, self.address = EnginePhase.STOPPED, "stopped", None

    async def until(self, phase: EnginePhase) -> None:
        """Wait until the engine is in ``phase``."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.phase is phase)

    async def until_settled(self) -> None:
        """Wait until the engine is ready, or nothing speaks for its becoming so soon."""
        async with self._changed:
            await self._changed.wait_for(self._is_settled)

    def _is_settled(self) -> bool:
        hopeless = self.phase is EnginePhase.PAUSED and self._pauses.failures > 1
        return self.phase in {EnginePhase.READY, EnginePhase.STOPPED} or hopeless

    async def _life_without_defects(self) -> str:
        try:
            return await self._one_life()
        except Exception:  # noqa: BLE001 - the gateway goes on, and so does this loop
            _log.exception("engine.defect", engine=self.name)
            return "a defect of the gateway's own, see its log"

    async def _one_life(self) -> str:
        """Start the engine and stay with it to its end; return why it ended."""
        command = self._make_command()
        self._ready_since, self._last_error = None, ""
        self.starts += 1
        await self._enter(EnginePhase.STARTING, "the engine is starting")
        try:
            process = await asyncio.create_subprocess_exec(
                *command.words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(command.environment),
                limit=_LONGEST_LINE,
                # A terminal's Ctrl-C is for the gateway, which then stops the engine in order.
                start_new_session=True,
            )
        except OSError as error:
            return f"it cannot be started: {error.strerror or error}"
        self.pid = process.pid
        _log.info("engine.started", engine=self.name, pid=process.pid)
        try:
            return await self._accompany(process, command)
        finally:
            self.address, self.pid = None, None
            with anyio.CancelScope(shield=True):
                await self._stop(process)

    async def _accompany(self, process: asyncio.subprocess.Process, command: EngineCommand) -> str:
        reason = ""
        try:
            async with asyncio.TaskGroup() as group:
                words = [
                    group.create_task(self._log_lines(_lines(process.stderr))),
                    group.create_task(self._read_announcements(_lines(process.stdout), command)),
                ]
                watch = self._expect_listening() if command.announces else self._poll_health(command)
                watching = group.create_task(watch)
                status = await process.wait()
                # The last lines often say why; but something that the engine started may hold the pipes open.
                await asyncio.wait(words, timeout=_LAST_WORDS_S)
                reason = _ending(status, self._last_error)
                for task in (*words, watching):
                    task.cancel()
        except* _Ended as ended:
            reason = str(ended.exceptions[0])
        return reason

    async def _log_lines(self, lines: AsyncIterator[str]) -> None:
        async for line in lines:
            self._last_error = line
            _log.info("engine.says", engine=self.name, line=line)

    async def _read_announcements(self, lines: AsyncIterator[str], command: EngineCommand) -> None:
        async for line in lines:
            try:
                said = orjson.loads(line)
            except orjson.JSONDecodeError:
                said = None
            if not command.announces or not isinstance(said, dict):
                _log.info("engine.says", engine=self.name, line=line)
                continue
            await self._announced(said, command)

    async def _announced(self, said: dict[str, object], command: EngineCommand) -> None:
        match said:
            case {"event": "listening", "host": str(host), "port": int(port)}:
                self.address = EngineAddress(f"http://{host}:{port}/v1", command.token)
                await self._enter(EnginePhase.LOADING, "the engine is loading the model")
            case {"event": "ready"}:
                await self._become_ready()
            case {"event": "failed", **rest}:
                raise _Ended(f"the model cannot be loaded: {rest.get('error') or 'no reason given'}")
            case _:
                _log.info("engine.says", engine=self.name, line=str(said))

    async def _expect_listening(self) -> None:
        """End a life in which the engine does not even come to listen."""
        await asyncio.sleep(_LISTENS_WITHIN_S)
        if self.phase is EnginePhase.STARTING:
            raise _Ended(f"it did not listen within {_LISTENS_WITHIN_S:.0f} s")

    async def _poll_health(self, command: EngineCommand) -> None:
        """Watch an engine that announces nothing by its ``/health``, as ``llama-server`` has it."""
        root = f"http://{command.host}:{command.port}"
        while True:
            try:
                status = (await self._client.get(f"{root}/health", timeout=_POLL_TIMEOUT_S)).status_code
            except httpx.HTTPError:
                status = None
            if status == _HTTP_OK and self.phase is not EnginePhase.READY:
                self.address = EngineAddress(f"{root}/v1", command.token)
                await self._become_ready()
            elif status is not None and status != _HTTP_OK and self.phase is not EnginePhase.LOADING:
                await self._enter(EnginePhase.LOADING, "the engine is loading the model")
            await asyncio.sleep(_POLL_READY_S if self.phase is EnginePhase.READY else _POLL_S)

    async def _become_ready(self) -> None:
        self._ready_since = asyncio.get_running_loop().time()
        await self._enter(EnginePhase.READY, "")
        _log.info("engine.ready", engine=self.name)

    async def _enter(self, phase: EnginePhase, detail: str) -> None:
        self.phase, self.detail = phase, detail
        async with self._changed:
            self._changed.notify_all()

    def _healthy_for(self) -> float:
        return asyncio.get_running_loop().time() - self._ready_since if self._ready_since is not None else 0.0

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        """End the engine and everything it started: softly, then hard."""
        if process.stdin is not None:
            process.stdin.close()
        if process.returncode is None:
            _signal_group(process, signal.SIGTERM)
            try:
                async with asyncio.timeout(self._grace_s):
                    await process.wait()
            except TimeoutError:
                _log.warning("engine.killed", engine=self.name, grace_s=self._grace_s)
        # Also where the engine itself is gone: what it started may still be there.
        _signal_group(process, _KILL)
        await process.wait()
        await _drain(process.stdout, process.stderr)


async def _drain(*streams: asyncio.StreamReader | None) -> None:
    """Read to the end, so that the pipes are closed before the event loop may be."""
    try:
        async with asyncio.timeout(_LAST_WORDS_S):
            for stream in streams:
                while stream is not None and await stream.read(_LONGEST_LINE):
                    pass
    except TimeoutError:
        return


async def _lines(stream: asyncio.StreamReader | None) -> AsyncIterator[str]:
    """Yield lines without their ending; one that is too long is left out."""
    while stream is not None:
        try:
            line = await stream.readline()
        except ValueError:
            continue
        if not line:
            return
        yield line.decode("utf-8", "replace").rstrip()


def _ending(status: int, last_line: str) -> str:
    if status < 0:
        try:
            how = f"killed by {signal.Signals(-status).name}"
        except ValueError:
            how = f"killed by signal {-status}"
    else:
        how = f"exit status {status}"
    return f"{how}: {last_line}" if last_line and status else how


if sys.platform == "win32":
    _KILL: Final = signal.SIGTERM

    def _signal_group(process: asyncio.subprocess.Process, _number: signal.Signals) -> None:
        """End the process; the system has no softer way, and the closed standard input went before."""
        if process.returncode is None:
            process.kill()
else:
    _KILL: Final = signal.SIGKILL

    def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
        """Signal the engine's session: itself and whatever it started."""
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        except PermissionError:
            # macOS says so of a group in which only the dead are left.
            return
