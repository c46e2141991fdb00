"""The bytes of one chat-completions answer → events, and the judgement whether the answer was whole.

Sans-IO: any split of the same bytes gives the same events. Reads an event stream, and also the one JSON
body that some upstreams send although a stream was asked for. Knows no HTTP, no time and nobody's health.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

import orjson

from router.chat.openai_wire import event_from_frame
from router.chat.types import ChatEvent, FinishDelta, FinishReason, JsonValue, UsageDelta
from router.errors import UpstreamBrokenStream, UpstreamEmpty, UpstreamInBandError
from router.providers.credentials import NO_KEYS, ProviderKeys
from router.providers.event_stream import EventStreamParser, ServerSentEvent
from router.providers.upstream_errors import find_error_object, find_flat_error_object, in_band_error

__all__ = ["MAXIMUM_BODY_BYTES", "AnswerReader"]

MAXIMUM_BODY_BYTES: Final = 16 << 20

_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = b" \t\r\n"
_DONE: Final = b"[DONE]"


class _Form(Enum):
    UNKNOWN = auto()
    EVENT_STREAM = auto()
    JSON_BODY = auto()


class AnswerReader:
    """Reads one answer: :meth:`feed` its bytes as they come, then :meth:`end`.

    An answer is whole when every choice that began has its finish reason; ``[DONE]`` may be missing then,
    but it does not stand for a finish reason, since relays write it after a break too.
    """

    __slots__ = ("_body", "_choices", "_form", "_head", "_keys", "_parser", "_spoke", "_unfinished", "done")

    def __init__(self, keys: ProviderKeys = NO_KEYS) -> None:
        self._keys = keys
        self._parser = EventStreamParser()
        self._form = _Form.UNKNOWN
        self._head = b""
        self._body = bytearray()
        self._choices: dict[int, FinishReason | None] = {}
        self._unfinished = 0
        self._spoke = False
        self.done = False
        """Whether the upstream said ``[DONE]``: nothing that follows is part of the answer."""

    @property
    def finished(self) -> bool:
        """Whether every choice that began has ended, so that only usage and ``[DONE]`` may follow."""
        return bool(self._choices) and not self._unfinished

    @property
    def is_json_body(self) -> bool:
        """Whether this is one JSON body, of which nothing can be said until it is whole."""
        return self._form is _Form.JSON_BODY

    def feed(self, data: bytes) -> Iterator[ChatEvent]:
        """Yield the events that these bytes complete.

        Raises
        ------
        UpstreamInBandError
            An error object, or the finish reason ``error``.
        UpstreamBrokenStream
            A frame that is not what the wire promises, or one that is too long.

        """
        if self._form is _Form.UNKNOWN:
            data = self._recognise(data)
        if self._form is _Form.JSON_BODY:
            self._body += data
            if len(self._body) > MAXIMUM_BODY_BYTES:
                raise UpstreamBrokenStream(f"the answer's body is longer than {MAXIMUM_BODY_BYTES} bytes")
        elif self._form is _Form.EVENT_STREAM:
            yield from self._events(self._parser.feed(data))

    def end(self) -> Iterator[ChatEvent]:
        """Yield what the end of the bytes completes, and judge the whole.

        Raises
        ------
        UpstreamBrokenStream
            The answer is not whole.
        UpstreamEmpty
            It is whole and says nothing.
        UpstreamInBandError
            As :meth:`feed`.

        """
        if self._form is _Form.JSON_BODY:
            yield from self._whole_body()
        elif not self.done:
            yield from self._events(self._parser.flush())
        self._judge()

    def _recognise(self, data: bytes) -> bytes:
        """Tell an event stream from a JSON body by the first byte that is not white space."""
        head = self._head + data
        start = head.removeprefix(_BOM).lstrip(_SPACE)
        if not start or _BOM.startswith(head):
            self._head = head[:64]
            return b""
        if start.startswith(b"<"):
            raise UpstreamBrokenStream("a page of markup instead of an answer: is base_url right?")
        self._form = _Form.JSON_BODY if start[:1] in (b"{", b"[") else _Form.EVENT_STREAM
        self._head = b""
        return start if self._form is _Form.JSON_BODY else head

    def _events(self, frames: list[ServerSentEvent]) -> Iterator[ChatEvent]:
        for frame in frames:
            if self.done:
                return
            data = frame.data.strip()
            if data == _DONE:
                self.done = True
                return
            # A quoted "error" is a key or a whole value: text that speaks of errors has its quotes escaped.
            if b'"error"' in data or frame.event == "error":
                self._refuse_error(data, named_error=frame.event == "error")
            if data:
                yield self._observed(self._decoded(data))

    def _decoded(self, data: bytes) -> ChatEvent:
        try:
            return event_from_frame(data)
        except ValueError as error:
            raise UpstreamBrokenStream(f"a frame that is not a chat completion chunk: {error}") from error

    def _observed(self, event: ChatEvent) -> ChatEvent:
        """Note what an event says of the answer's wholeness."""
        for delta in event.deltas:
            if isinstance(delta, UsageDelta):
                continue
            if not isinstance(delta, FinishDelta):
                if self._choices.setdefault(delta.choice, None) is None:
                    self._unfinished = sum(reason is None for reason in self._choices.values())
                continue
            if delta.reason is FinishReason.ERROR:
                raise UpstreamInBandError("the upstream ended its answer with the finish reason error")
            self._choices[delta.choice] = delta.reason
            self._unfinished = sum(reason is None for reason in self._choices.values())
        self._spoke = self._spoke or event.is_semantic
        return event

    def _refuse_error(self, data: bytes, *, named_error: bool) -> None:
        try:
            value: JsonValue = orjson.loads(data)
        except orjson.JSONDecodeError:
            value = {"error": data.decode("utf-8", "replace")} if named_error else None
        found = find_flat_error_object(value) if named_error else find_error_object(value)
        if found is not None:
            raise in_band_error(found, keys=self._keys)

    def _whole_body(self) -> Iterator[ChatEvent]:
        try:
            value: JsonValue = orjson.loads(self._body)
        except orjson.JSONDecodeError as error:
            raise UpstreamBrokenStream(f"the answer's JSON body is not whole: {error}") from error
        has_choices = isinstance(value, dict) and isinstance(value.get("choices"), list)
        found = find_error_object(value) if has_choices else find_flat_error_object(value)
        if found is not None:
            raise in_band_error(found, keys=self._keys)
        if not isinstance(value, dict) or not has_choices:
            raise UpstreamBrokenStream("a JSON body that is not a chat completion")
        yield self._observed(self._decoded(orjson.dumps(_as_chunk(value))))

    def _judge(self) -> None:
        if not self.finished:
            if not self._choices and self.done:
                raise UpstreamEmpty("the stream ended without any choice")
            reason = (
                "[DONE] came without a finish reason" if self.done else "the stream ended without its ending"
            )
            raise UpstreamBrokenStream(reason)
        if self._spoke:
            return
        reasons = set(self._choices.values())
        if FinishReason.CONTENT_FILTER in reasons:
            raise UpstreamInBandError(
                "the upstream filtered the whole answer", upstream_code=FinishReason.CONTENT_FILTER.value
            )
        if FinishReason.LENGTH not in reasons:
            # With "length" the bound was reached within reasoning that is not shown: the answer is what it
            # is.
            raise UpstreamEmpty("a complete answer without text, reasoning, refusal or tool call")


def _as_chunk(completion: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Write a ``chat.completion`` as the one ``chat.completion.chunk`` that says the same."""
    choices: list[JsonValue] = []
    listed = completion.get("choices")
    for position, choice in enumerate(listed if isinstance(listed, list) else []):
        if not isinstance(choice, dict):
            raise UpstreamBrokenStream("a choice that is not an object")
        rest = {name: value for name, value in choice.items() if name != "message"}
        message = choice.get("message")
        delta = dict(message) if isinstance(message, dict) else {}
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            delta["tool_calls"] = [
                {"index": index, **call} if isinstance(call, dict) else call
                for index, call in enumerate(calls)
            ]
        choices.append({"index": position, **rest, "delta": delta})
    return {**completion, "object": "chat.completion.chunk", "choices": choices}
