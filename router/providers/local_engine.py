"""An engine on this machine that the gateway starts and watches: kind ``engine``.

Speaks the OpenAI wire to whatever :mod:`router.providers.engine_process` keeps running. Its slots are a
resource: requests wait for them in a lane, are sent elsewhere where that is quicker, and an identical request
joins the one that runs. Knows nothing of what the engine computes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Final

import httpx
import orjson
import structlog

from router.catalog.catalog import Deployment, EngineLaunch
from router.chat.types import ChatEvent, ChatRequest
from router.clock import Clock
from router.errors import UpstreamBrokenStream, UpstreamError, UpstreamStatus, UpstreamUnreachable
from router.providers.base import AttemptDeadlines, ProviderStatus
from router.providers.credentials import ProviderKeys
from router.providers.engine_process import EngineAddress, EnginePhase, EngineProcess
from router.providers.exchange import UpstreamCall, exchange
from router.providers.generation import Generation, GenerationReader
from router.providers.generations import Generations, JoinRules
from router.providers.local_lane import EngineFigures, LocalLane
from router.providers.openai_compatible import chat_body, chat_headers
from router.providers.prompt_memory import PromptMemory
from router.providers.wait_estimate import Job

__all__ = ["LocalEngineProvider"]

_log = structlog.get_logger(__name__)

_UNAVAILABLE: Final = 503
_LOADING_RETRY_S: Final = 5.0
# How long a request that nobody else can serve is held while the engine starts or loads.
_HELD_WHILE_LOADING_S: Final = 60.0
_LOOK_EVERY_S: Final = 1.0
_LOOK_AGAIN_S: Final = 0.1
_LOOK_TIMEOUT_S: Final = 2.0
_LEAST_S: Final = 0.001


class LocalEngineProvider:
    """One engine with its process. The application runs :meth:`run` in its task group."""

    def __init__(
        self, launch: EngineLaunch, *, process: EngineProcess, client: httpx.AsyncClient, clock: Clock
    ) -> None:
        self.process = process
        self._launch = launch
        self._client = client
        self._clock = clock
        self._memory = PromptMemory(launch.slots)
        self._lane = LocalLane(launch.slots, launch.queue_limit, clock=clock, on_waiting=self._give_way)
        self._generations = Generations(
            JoinRules(launch.join_grace_s, launch.join_window_s),
            is_contended=lambda: self._lane.is_contended,
        )
        self._doubted = False
        self._task: asyncio.Task[object] | None = None

    async def run(self) -> None:
        """Keep the engine running until cancelled, or until :meth:`aclose`; then it is gone."""
        self._task = asyncio.current_task()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._generations.run())
                group.create_task(self._watch())
                await self.process.run()
        finally:
            self._task = None

    def stream(
        self,
        request: ChatRequest,
        deployment: Deployment,
        deadlines: AttemptDeadlines,
        *,
        key_label: str | None = None,  # noqa: ARG002 - the engine's one token is made anew at every start
    ) -> AsyncIterator[ChatEvent]:
        """See :class:`~router.providers.base.Provider`; the stream is a ``SlotStream``."""
        return _SlotStream(self, request, deployment, deadlines)

    def joinable(self, request: ChatRequest) -> str | None:
        """See :class:`~router.providers.base.JoiningProvider`."""
        if not self._generations.running and not self._generations.kept:
            return None
        generation = self._generations.find(_join_key(request))
        return generation.deployment_id if generation is not None else None

    def status(self) -> ProviderStatus:
        """See :class:`~router.providers.base.Provider`."""
        ready = self.process.phase is EnginePhase.READY
        lane = replace(self._lane.figures(), joined=self._generations.joined, kept=self._generations.kept)
        return ProviderStatus(
            configured=True,
            ready=ready,
            detail=self.process.detail,
            expected_wait_s=self._lane.wait_s() if ready else 0.0,
            lane=lane,
        )

    async def aclose(self) -> None:
        """Stop the engine, where its task group has not done so, and close the connections."""
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait({task})
        await self._client.aclose()

    async def answer(
        self, told: _SlotStream, request: ChatRequest, deployment: Deployment, deadlines: AttemptDeadlines
    ) -> AsyncGenerator[ChatEvent]:
        """Yield the answer: that of a generation at work on the same request, else one of its own."""
        key = _join_key(request)
        # Whoever fails while others wait with it leaves one of them to begin anew; the others join that one.
        while (shared := self._shared(key, deployment, request, told)) is not None:
            async with aclosing(shared):
                beginning = await _beginning(shared)
                for event in beginning:
                    yield event
                async for event in shared:
                    yield event
            if beginning:
                return
            told.joined = ""
        reader = self._generations.start(
            key,
            request.caller.request_id,
            deployment.id,
            lambda made: self._generate(made, request, deployment, deadlines),
        )
        async with aclosing(self._read(reader, request)) as events:
            async for event in events:
                told.waited_s = reader.generation.waited_s
                yield event

    def _shared(
        self, key: bytes | None, deployment: Deployment, request: ChatRequest, told: _SlotStream
    ) -> AsyncGenerator[ChatEvent] | None:
        """Return the events of the generation that works on the same request, where there is one."""
        generation = self._generations.find(key)
        if generation is None or generation.deployment_id != deployment.id:
            return None
        told.joined = generation.request_id or "unnamed"
        return self._read(self._generations.join(generation), request)

    async def _read(self, reader: GenerationReader, request: ChatRequest) -> AsyncGenerator[ChatEvent]:
        seen = False
        try:
            while (event := await reader.next()) is not None:
                seen = seen or (request.stream and event.is_semantic)
                yield event
        finally:
            await self._generations.leave(reader, may_return=not seen)

    async def _generate(
        self,
        generation: Generation,
        request: ChatRequest,
        deployment: Deployment,
        deadlines: AttemptDeadlines,
    ) -> AsyncGenerator[ChatEvent]:
        """Wait for the slot and ask the engine."""
        began = self._clock.monotonic()
        if deadlines.slot_wait_s is not None and self._address() is None:
            raise self._loading()
        known = self._memory.look(request)
        bounded = _bounded(request, deployment)
        job = Job(known.tokens_to_compute(deployment.tokens_per_character), bounded.max_output_tokens)
        async with self._lane.slot(
            job,
            request.caller.priority,
            worth_s=deadlines.slot_wait_s,
            most_s=deadlines.total_s,
            gives_way=lambda: not generation.readers,
        ) as place:
            address = await self._ready_address(deadlines)
            self._memory.remember(known)
            waited = self._clock.monotonic() - began
            generation.waited_s, generation.has_slot = waited, True
            left = replace(deadlines, total_s=max(_LEAST_S, deadlines.total_s - waited))
            call = UpstreamCall(
                url=f"{address.url}/chat/completions",
                headers=chat_headers(address.token),
                body=chat_body(bounded, deployment),
                keys=ProviderKeys({"engine": address.token}),
            )
            try:
                async with aclosing(exchange(self._client, call, left, self._clock)) as events:
                    async for event in events:
                        place.observe(event, self._clock.monotonic())
                        yield event
            except (UpstreamUnreachable, UpstreamBrokenStream):
                # Whoever is next must not run into the same closed door.
                self._doubted = True
                raise
            self._lane.complete(place)

    def _address(self) -> EngineAddress | None:
        return self.process.address if self.process.phase is EnginePhase.READY else None

    async def _ready_address(self, deadlines: AttemptDeadlines) -> EngineAddress:
        """Return where the engine is spoken to; waits while it starts, unless others could serve."""
        address = self._address()
        if address is not None and await self._lives(address):
            return address
        if deadlines.slot_wait_s is None:
            try:
                async with asyncio.timeout(min(_HELD_WHILE_LOADING_S, deadlines.total_s)):
                    return await self._until_ready()
            except TimeoutError:
                pass
        raise self._loading()

    async def _until_ready(self) -> EngineAddress:
        while True:
            await self.process.until_settled()
            address = self._address()
            if address is None:
                raise self._loading()
            if await self._lives(address):
                return address
            # It is gone, and its end is about to be noticed.
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _lives(self, address: EngineAddress) -> bool:
        """Whether the engine answers, where the last request gave reason to doubt it."""
        if self._doubted:
            self._doubted = not await self._answers(address)
        return not self._doubted

    async def _answers(self, address: EngineAddress) -> bool:
        try:
            response = await self._client.get(_health_of(address), timeout=_LOOK_TIMEOUT_S)
        except httpx.HTTPError:
            return False
        return response.is_success

    def _loading(self) -> UpstreamStatus:
        return UpstreamStatus(
            self.process.detail or "the engine does not answer",
            upstream_status=_UNAVAILABLE,
            upstream_code="engine_loading",
            retry_after_s=_LOADING_RETRY_S,
        )

    def _give_way(self) -> None:
        self._generations.give_way()

    async def _watch(self) -> None:
        """Ask the engine how far it is, once a second while somebody has its slot, and once afterwards."""
        while True:
            await self._lane.until_busy()
            await self._look()
            await asyncio.sleep(_LOOK_EVERY_S)
            if not self._lane.in_flight:
                # Short answers are over before anything was measured of them.
                await self._look()

    async def _look(self) -> None:
        address = self._address()
        try:
            figures = await self._figures(address) if address is not None else None
            if figures is not None:
                self._lane.take_figures(figures)
        except Exception:  # noqa: BLE001 - an estimate is not worth the engine
            _log.exception("engine.figures_failed", engine=self.process.name)

    async def _figures(self, address: EngineAddress) -> EngineFigures | None:
        try:
            response = await self._client.get(_health_of(address), timeout=_LOOK_TIMEOUT_S)
            body = orjson.loads(response.content)
        except (httpx.HTTPError, orjson.JSONDecodeError):
            return None
        return EngineFigures.read(body) if isinstance(body, dict) else None


class _SlotStream:
    """The stream of one request; see :class:`~router.providers.base.SlotStream`."""

    def __init__(
        self,
        provider: LocalEngineProvider,
        request: ChatRequest,
        deployment: Deployment,
        deadlines: AttemptDeadlines,
    ) -> None:
        self.waited_s = 0.0
        self.joined = ""
        self._events = provider.answer(self, request, deployment, deadlines)

    def __aiter__(self) -> AsyncIterator[ChatEvent]:
        return self

    async def __anext__(self) -> ChatEvent:
        return await anext(self._events)

    async def aclose(self) -> None:
        """Stop reading; where nobody else reads, the engine stops too."""
        await self._events.aclose()


async def _beginning(events: AsyncGenerator[ChatEvent]) -> list[ChatEvent]:
    """Read up to the first event that says something or ends the answer; nothing where it fails before."""
    beginning: list[ChatEvent] = []
    try:
        async for event in events:
            beginning.append(event)
            if event.is_semantic or event.is_final:
                return beginning
    except UpstreamError:
        return []
    return beginning


def _health_of(address: EngineAddress) -> str:
    return f"{address.url.removesuffix('/v1')}/health"


def _bounded(request: ChatRequest, deployment: Deployment) -> ChatRequest:
    """Give an answer without a bound the deployment's: one that never ends would hold the slot for ever."""
    if request.max_output_tokens is not None:
        return request
    # Cut to what the window has room for, where that is less; other engines do so anyway.
    body = {**request.body, "fit_max_tokens": True}
    return replace(request, body=body, max_output_tokens=deployment.max_output_tokens)


def _join_key(request: ChatRequest) -> bytes | None:
    """Return what two requests must have in common to share an answer; ``None``: it is shared with nobody."""
    several = request.body.get("n") not in {None, 1}
    if not request.caller.may_join or several:
        return None
    key = hashlib.sha256(request.caller.principal.encode())
    key.update(b"\0")
    key.update(request.wire.encode())
    key.update(orjson.dumps(request.body, option=orjson.OPT_SORT_KEYS))
    return key.digest()
