from __future__ import annotations

import orjson

from router.api.sse import data_frame, error_frame
from router.errors import StreamInterrupted


def test_a_frame_is_relayed_byte_for_byte() -> None:
    assert data_frame(b'{"a": "\xc3\xa9"}') == b'data: {"a": "\xc3\xa9"}\n\n'


def test_a_line_break_inside_becomes_a_second_data_line() -> None:
    assert data_frame(b'{\n"a": 1}') == b'data: {\ndata: "a": 1}\n\n'


def test_an_error_in_the_middle_has_openais_shape() -> None:
    frame = error_frame(StreamInterrupted("it broke off"), "req_1")

    error = orjson.loads(frame.removeprefix(b"data: "))["error"]
    assert (error["message"], error["code"], error["request_id"]) == (
        "it broke off",
        "stream_interrupted",
        "req_1",
    )
