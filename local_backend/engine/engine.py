"""The engine: :meth:`Engine.step` is schedule, forward, sample, emit. One thread owns it.

Knows tokens and bytes of a vocabulary; not templates, HTTP, files, nor who listens to its events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from local_backend.engine.events import Event, Failed, Finished, Prefilled, Usage, Written
from local_backend.engine.forward import ForwardContext, compute, last_logits
from local_backend.engine.sampler import choose
from local_backend.engine.sampling import Choice
from local_backend.engine.scheduler import Admit, Decode, Prefill, Progress, next_work
from local_backend.engine.sequence import FinishReason, GenerationRequest, Sequence, SequenceState
from local_backend.engine.speed import SpeedMeter
from local_backend.engine.validation import validate
from local_backend.errors import Cancelled, EngineError
from local_backend.kernels.base import FloatArray
from local_backend.kv_cache.sequence_cache import CacheError, SequenceCache

__all__ = ["Engine", "TokenTable"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TokenTable:
    """What the engine must know of tokens: how many, their bytes, and which of them end an answer."""

    size: int
    token_bytes: Callable[[int], bytes]
    end_tokens: frozenset[int]


class Engine:
    """One slot with a queue. Every method is called from the one thread that owns the engine."""

    def __init__(
        self,
        context: ForwardContext,
        tokens: TokenTable,
        cache: SequenceCache,
        *,
        prefill_chunk: int,
        clock: Callable[[], float],
    ) -> None:
        self._context = context
        self._tokens = tokens
        self._cache = cache
        self._prefill_chunk = prefill_chunk
        self._clock = clock
        self._waiting: list[Sequence] = []
        self._running: Sequence | None = None
        self.meter = SpeedMeter()

    @property
    def context_tokens(self) -> int:
        """Positions of the cache: prompt and answer together."""
        return self._cache.capacity

    @property
    def idle(self) -> bool:
        """Whether a step would do nothing."""
        return self._running is None and not self._waiting

    @property
    def ahead(self) -> tuple[Progress, ...]:
        """Progress of the running sequence and of those that wait, in order."""
        running = () if self._running is None else (self._running.progress,)
        return (*running, *(sequence.progress for sequence in self._waiting))

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request. Raises ``InvalidRequest`` or ``ContextOverflow`` and queues nothing."""
        validate(request, self._tokens.size, self._cache.capacity)
        self._waiting.append(Sequence(request, self._clock()))

    def cancel(self, request_id: str) -> list[Event]:
        """End a request wherever it is; an unknown id is one that ended already."""
        sequence = next((s for s in self._sequences if s.request.request_id == request_id), None)
        return [] if sequence is None else [self._finish(sequence, FinishReason.CANCELLED)]

    def step(self, interrupted: Callable[[str], bool] = lambda _: False) -> list[Event]:
        """Do one piece of work and return what happened: schedule, forward, sample, emit.

        ``interrupted`` is asked between layers whether the request of this step should end.
        """
        work = next_work(*self._progress(), self._prefill_chunk)
        if work is None:
            return []
        if isinstance(work, Admit) or self._running is None:
            return [self._admit()]
        sequence = self._running
        try:
            return self._advance(sequence, work, lambda: interrupted(work.request_id))
        except Cancelled:
            return [self._finish(sequence, FinishReason.CANCELLED)]
        except EngineError as error:
            return [self._fail(sequence, error)]
        except Exception as error:  # noqa: BLE001 - one request's defect must not end the engine
            _log.exception("request %s failed in a step", work.request_id)
            return [self._fail(sequence, EngineError(f"{type(error).__name__} while computing: {error}"))]

    def close(self) -> None:
        """Stop the kernels' workers."""
        self._context.kernels.close()

    def forget(self) -> None:
        """Empty the cache, so that the next request computes all of its prompt. Only while idle."""
        if self.idle:
            self._cache.truncate(0)

    def check_integrity(self, *, rows: bool = True) -> None:
        """Raise ``CacheError`` when the cache's books and the running sequence do not agree."""
        self._cache.check_integrity(rows=rows)
        running = self._running
        if running is None:
            return
        # The newest token is chosen but not computed, so it has no row yet.
        expected = running.computed + max(0, len(running.generated) - 1)
        if self._cache.length != expected:
            msg = f"the running sequence stands at {expected}, the cache at {self._cache.length}"
            raise CacheError(msg)

    @property
    def _sequences(self) -> list[Sequence]:
        return self._waiting if self._running is None else [self._running, *self._waiting]

    def _progress(self) -> tuple[Progress | None, list[str]]:
        running = None if self._running is None else self._running.progress
        return running, [sequence.request.request_id for sequence in self._waiting]

    def _admit(self) -> Event:
        sequence = self._waiting.pop(0)
        reused = self._cache.reusable(sequence.request.prompt)
        self._cache.truncate(reused)
        sequence.admit(reused)
        self._running = sequence
        return self._prefilled(sequence)

    def _advance(
        self, sequence: Sequence, work: Prefill | Decode, interrupted: Callable[[], bool]
    ) -> list[Event]:
        logits = self._forward(sequence, work, interrupted)  # [V]
        if logits is None:
            return [self._prefilled(sequence)]
        sampling = sequence.request.sampling
        choice = choose(logits, sampling, sequence.prompt_ids, sequence.counts, sequence.rng)
        return self._emit(sequence, choice)

    def _forward(
        self, sequence: Sequence, work: Prefill | Decode, interrupted: Callable[[], bool]
    ) -> FloatArray | None:
        """Compute this step's tokens; logits [V], or ``None`` while the prompt is not complete."""
        started = self._clock()
        if isinstance(work, Decode):
            hidden = compute(self._context, sequence.generated[-1:], self._cache, interrupted)  # [1, E]
            logits = last_logits(self._context, hidden)  # [V]
            self.meter.decoded(self._clock() - started)
            return logits
        chunk = sequence.request.prompt[work.start : work.start + work.count]
        hidden = compute(self._context, chunk, self._cache, interrupted)  # [T, E]
        first = last_logits(self._context, hidden) if work.last else None  # [V]
        sequence.advance(work.count)
        self.meter.prefilled(work.count, self._clock() - started)
        return first

    def _emit(self, sequence: Sequence, choice: Choice) -> list[Event]:
        request = sequence.request
        sequence.accept(choice)
        if choice.token in self._tokens.end_tokens and not request.ignore_end:
            written = Written(request.request_id, choice, "", is_end=True)
            return [written, self._finish(sequence, FinishReason.STOP)]
        text = sequence.text.push(self._tokens.token_bytes(choice.token))
        written = Written(request.request_id, choice, text)
        if sequence.text.stopped:
            return [written, self._finish(sequence, FinishReason.STOP)]
        if len(sequence.generated) >= request.max_tokens:
            return [written, self._finish(sequence, FinishReason.LENGTH)]
        return [written]

    def _prefilled(self, sequence: Sequence) -> Event:
        request = sequence.request
        return Prefilled(request.request_id, sequence.computed, len(request.prompt), sequence.cached_tokens)

    def _finish(self, sequence: Sequence, reason: FinishReason) -> Event:
        self._release(sequence)
        return Finished(
            request_id=sequence.request.request_id,
            reason=reason,
            text=sequence.text.finish(),
            usage=Usage(
                prompt_tokens=len(sequence.request.prompt),
                cached_tokens=sequence.cached_tokens,
                completion_tokens=len(sequence.generated),
            ),
        )

    def _fail(self, sequence: Sequence, error: EngineError) -> Event:
        self._release(sequence)
        # Whatever went wrong may have left rows that look valid; nobody should build on them.
        self._cache.truncate(0)
        return Failed(sequence.request.request_id, error)

    def _release(self, sequence: Sequence) -> None:
        sequence.state = SequenceState.FINISHED
        if sequence is self._running:
            self._running = None
        else:
            self._waiting.remove(sequence)
