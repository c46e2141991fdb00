from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.local_backend.counting_model import CountingKernels
from tests.local_backend.server.served import chat_body, payloads, serving, streamed_text

pytestmark = pytest.mark.anyio


async def test_a_plain_answer_has_text_reason_and_usage() -> None:
    async with serving() as served:
        answer = (await served.chat("abc", max_tokens=4)).json()

    assert answer["object"] == "chat.completion"
    assert answer["model"] == "counting"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "defg", "refusal": None}
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_a_streamed_answer_begins_with_the_role_and_ends_with_done() -> None:
    async with serving() as served:
        response = await served.chat("wx", stream=True)
    frames = payloads(response.text)

    assert response.headers["content-type"].startswith("text/event-stream")
    assert frames[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert streamed_text(frames) == "yz"
    assert [f["choices"][0]["finish_reason"] for f in frames[:-1]] == [None, None, None, "stop"]
    assert frames[-2]["choices"][0]["delta"] == {}
    assert frames[-1] == "[DONE]"
    assert len({f["id"] for f in frames[:-1]}) == 1
    assert not any("usage" in f for f in frames[:-1])


async def test_usage_comes_in_a_frame_of_its_own_when_asked() -> None:
    async with serving() as served:
        await served.chat("abcdef", max_tokens=1)
        response = await served.chat(
            "abcdef", max_tokens=2, stream=True, stream_options={"include_usage": True}
        )
    last = payloads(response.text)[-2]

    assert last["choices"] == []
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 5}
    assert last["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("stop", ["fgh", ["zz", "fgh"]])
@pytest.mark.parametrize("stream", [False, True])
async def test_stop_strings_end_the_text_before_them(stop: Any, stream: bool) -> None:
    async with serving() as served:
        response = await served.chat("ab", stop=stop, stream=stream)

    if stream:
        assert streamed_text(payloads(response.text)) == "cde"
    else:
        choice = response.json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("cde", "stop")


async def test_without_a_limit_the_answer_may_fill_the_context() -> None:
    kernels = CountingKernels()
    kernels.skip_end = True
    async with serving(kernels, context=12) as served:
        answer = (await served.chat("abc")).json()

    assert answer["usage"]["completion_tokens"] == 9
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_max_completion_tokens_goes_before_max_tokens() -> None:
    async with serving() as served:
        answer = (await served.chat("a", max_tokens=9, max_completion_tokens=2)).json()

    assert answer["usage"]["completion_tokens"] == 2


async def test_text_parts_are_joined_and_unknown_fields_ignored() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {"x": 1}}]
    body = chat_body("", max_tokens=1, store=True, metadata={"a": 1}, user="me", parallel_tool_calls=True)
    body["messages"] = [{"role": "user", "content": parts, "weight": 3}]
    async with serving() as served:
        answer = (await served.client.post("/v1/chat/completions", json=body)).json()

    assert answer["choices"][0]["message"]["content"] == "c"
    assert answer["usage"]["prompt_tokens"] == 2


async def test_null_is_the_same_as_absent() -> None:
    nothing = dict.fromkeys(
        ("max_tokens", "stop", "top_p", "seed", "n", "tools", "logprobs", "logit_bias", "response_format")
    )
    async with serving() as served:
        response = await served.chat("wx", **nothing)

    assert response.json()["choices"][0]["message"]["content"] == "yz"


async def test_logprobs_come_with_their_alternatives() -> None:
    async with serving() as served:
        answer = (await served.chat("ab", max_tokens=2, logprobs=True, top_logprobs=2)).json()
        response = await served.chat("ab", max_tokens=2, logprobs=True, top_logprobs=2, stream=True)
    content = answer["choices"][0]["logprobs"]["content"]
    frames = [f for f in payloads(response.text)[:-1] if f["choices"][0].get("logprobs")]

    assert [entry["token"] for entry in content] == ["c", "d"]
    assert content[0]["bytes"] == [ord("c")]
    assert content[0]["logprob"] == pytest.approx(-0.0012, abs=1e-4)
    assert [alternative["token"] for alternative in content[0]["top_logprobs"]] == ["c", "a"]
    assert [f["choices"][0]["logprobs"]["content"][0] for f in frames] == content


async def test_a_seed_makes_sampling_repeatable() -> None:
    async with serving() as served:
        answers = [
            (
                await served.chat("abc", temperature=5, top_k=0, top_p=1, min_p=0, seed=seed, max_tokens=8)
            ).json()
            for seed in (-7, -7, 8)
        ]
    texts = [answer["choices"][0]["message"]["content"] for answer in answers]

    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"n": 2}, "n", "one choice"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": "hello"}, "messages", "list"),
        ({"temperature": -1}, "temperature", "-1"),
        ({"temperature": "hot"}, "temperature", "number"),
        ({"max_tokens": 0}, "max_tokens", "greater"),
        ({"top_logprobs": 3}, "top_logprobs", "logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format", "json_object"),
        ({"logit_bias": {"99": 1}}, "logit_bias", "99"),
        ({"stop": ["x"] * 17}, "stop", "16"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
                ]
            },
            "messages[0].content[0]",
            "image_url",
        ),
    ],
)
async def test_what_cannot_be_served_is_refused_by_name(
    fields: dict[str, Any], param: str, words: str
) -> None:
    async with serving() as served:
        response = await served.client.post("/v1/chat/completions", json=chat_body("ab") | fields)
    error = response.json()["error"]

    assert response.status_code == 400
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert words in error["message"]


async def test_a_body_that_is_not_json_is_refused() -> None:
    async with serving() as served:
        response = await served.client.post(
            "/v1/chat/completions", content=b"{nope", headers={"content-type": "application/json"}
        )

    assert response.status_code == 400
    assert "not JSON" in response.json()["error"]["message"]


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 9}])
async def test_more_than_the_context_holds_is_an_error_with_its_own_code(fields: dict[str, Any]) -> None:
    async with serving(context=12) as served:
        response = await served.chat("abcd" if fields else "a" * 12, stream=True, **fields)

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


async def test_the_openai_client_reads_plain_and_streamed_answers() -> None:
    messages: list[Any] = [{"role": "user", "content": "wx"}]
    async with (
        serving(over_socket=True) as served,
        openai.AsyncOpenAI(base_url=str(served.client.base_url.join("/v1")), api_key="none") as client,
    ):
        plain = await client.chat.completions.create(model="counting", messages=messages, temperature=0)
        stream = await client.chat.completions.create(
            model="counting", messages=messages, temperature=0, stream=True
        )
        deltas = [chunk.choices[0].delta.content or "" async for chunk in stream]

    assert plain.choices[0].message.content == "yz"
    assert "".join(deltas) == "yz"


async def test_a_bound_that_is_to_fit_is_cut_to_the_windows_room() -> None:
    async with serving(context=12) as served:
        fits = await served.chat("abcd", max_tokens=9, fit_max_tokens=True)
        short = await served.chat("abcd", max_tokens=3, fit_max_tokens=True)

    assert fits.json()["usage"]["completion_tokens"] == 8
    assert fits.json()["choices"][0]["finish_reason"] == "length"
    assert short.json()["usage"]["completion_tokens"] == 3
