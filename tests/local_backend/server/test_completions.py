from __future__ import annotations

from typing import Any

import pytest

from tests.local_backend.counting_model import encode
from tests.local_backend.server.served import payloads, serving

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("prompt", ["abc", ["abc"], encode("abc")])
async def test_a_prompt_may_be_text_or_token_ids(prompt: Any) -> None:
    async with serving() as served:
        answer = (
            await served.client.post(
                "/v1/completions", json={"prompt": prompt, "max_tokens": 2, "temperature": 0}
            )
        ).json()

    assert answer["object"] == "text_completion"
    assert answer["choices"][0]["text"] == "de"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["prompt_tokens"] == 3


async def test_a_stream_of_text_with_usage_and_logprobs() -> None:
    body = {
        "prompt": "w",
        "temperature": 0,
        "stream": True,
        "logprobs": 1,
        "stream_options": {"include_usage": True},
    }
    async with serving() as served:
        frames = payloads((await served.client.post("/v1/completions", json=body)).text)

    choices = [choice for frame in frames[:-1] for choice in frame["choices"]]
    assert "".join(choice["text"] for choice in choices) == "xyz"
    assert choices[0]["logprobs"]["tokens"] == ["x"]
    assert list(choices[0]["logprobs"]["top_logprobs"][0]) == ["x"]
    assert choices[-1]["finish_reason"] == "stop"
    assert frames[-2]["usage"]["completion_tokens"] == 4
    assert frames[-1] == "[DONE]"


async def test_sixteen_tokens_when_nothing_is_said() -> None:
    async with serving() as served:
        answer = (await served.client.post("/v1/completions", json={"prompt": "a", "temperature": 0})).json()

    assert answer["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"echo": True}, "echo"),
        ({"best_of": 2}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"prompt": [999]}, "prompt"),
        ({"prompt": ""}, "prompt"),
    ],
)
async def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    async with serving() as served:
        response = await served.client.post("/v1/completions", json={"prompt": "a"} | fields)

    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
