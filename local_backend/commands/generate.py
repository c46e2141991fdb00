"""``generate``: continue a prompt once and print it. Knows arguments and events; not layers."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import orjson

from local_backend.commands.options import (
    add_engine_options,
    add_model,
    engine_config,
    positive,
    token_ids,
)
from local_backend.engine.events import Failed, Finished, Written
from local_backend.engine.loading import LoadedModel, load_model
from local_backend.engine.sampling import Choice, SamplingParameters
from local_backend.engine.sequence import GenerationRequest

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
examples:
  roundhouse engine generate builtin:smollm2 --chat "What is the capital of France?"
  roundhouse engine generate model.gguf --prompt "Once upon a time" --n 64 --seed 7
  roundhouse engine generate model.gguf --tokens 1,2,3 --n 32 --greedy --json
  roundhouse engine generate model.gguf --prompt "2 + 2 =" --n 4 --greedy --json --logprobs 5
"""


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "generate",
        help="continue a prompt and print the answer",
        description="Continue one prompt: a text, token ids, or one turn of a chat.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser)
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="a text to continue, without the chat template")
    prompt.add_argument("--tokens", type=token_ids, metavar="IDS", help="token ids to continue: 1,2,3")
    prompt.add_argument("--chat", metavar="TEXT", help="a user's message, put into the chat template")
    parser.add_argument("--n", type=positive, default=128, help="tokens at most (default: %(default)s)")
    parser.add_argument("--greedy", action="store_true", help="always the likeliest token")
    defaults = SamplingParameters()
    parser.add_argument(
        "--temperature", type=float, default=defaults.temperature, help="default: %(default)s"
    )
    parser.add_argument("--top-k", type=int, default=defaults.top_k, help="0 is off (default: %(default)s)")
    parser.add_argument("--top-p", type=float, default=defaults.top_p, help="1 is off (default: %(default)s)")
    parser.add_argument("--min-p", type=float, default=defaults.min_p, help="0 is off (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="makes sampling repeatable")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this text")
    parser.add_argument("--ignore-end", action="store_true", help="go on past the model's end token")
    parser.add_argument("--logprobs", type=int, metavar="K", help="the K likeliest tokens of every step")
    parser.add_argument("--json", action="store_true", help="print token ids and figures as JSON")
    add_engine_options(parser)
    parser.set_defaults(run=run, log_level=logging.WARNING)


def run(arguments: argparse.Namespace) -> int:
    """Load, generate, print."""
    model = load_model(arguments.model, engine_config(arguments), lambda _: None)
    try:
        request = _request(arguments, model)
        result = _generate(model, request, echo=not arguments.json)
    finally:
        model.engine.close()
    if arguments.json:
        payload = _report(model, request, result, with_logprobs=arguments.logprobs is not None)
        sys.stdout.write(orjson.dumps(payload).decode() + "\n")
    return 0


@dataclass(slots=True)
class _Result:
    choices: list[Choice] = field(default_factory=list)
    text: str = ""
    reason: str = ""
    prefill_s: float = 0.0
    decode_s: float = 0.0


def _request(arguments: argparse.Namespace, model: LoadedModel) -> GenerationRequest:
    if arguments.tokens is not None:
        prompt = list(arguments.tokens)
    elif arguments.prompt is not None:
        prompt = model.encode_text(arguments.prompt)
    else:
        prompt = model.render_chat([{"role": "user", "content": arguments.chat}], None, {})
    sampling = SamplingParameters(
        temperature=0.0 if arguments.greedy else arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        min_p=arguments.min_p,
        seed=arguments.seed,
        top_logprobs=arguments.logprobs,
    )
    return GenerationRequest(
        request_id="generate",
        prompt=tuple(prompt),
        max_tokens=arguments.n,
        sampling=sampling,
        stops=tuple(arguments.stop),
        ignore_end=arguments.ignore_end,
    )


def _generate(model: LoadedModel, request: GenerationRequest, *, echo: bool) -> _Result:
    result = _Result()
    started = time.perf_counter()
    model.engine.submit(request)
    while not model.engine.idle:
        for event in model.engine.step():
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Written):
                if not result.choices:
                    result.prefill_s = time.perf_counter() - started
                result.choices.append(event.choice)
            if isinstance(event, Finished):
                result.reason = event.reason
            if isinstance(event, (Written, Finished)):
                result.text += event.text
                if echo:
                    sys.stdout.write(event.text)
                    sys.stdout.flush()
    result.decode_s = time.perf_counter() - started - result.prefill_s
    if echo:
        sys.stdout.write("\n")
    return result


def _report(
    model: LoadedModel, request: GenerationRequest, result: _Result, *, with_logprobs: bool
) -> dict[str, Any]:
    report: dict[str, Any] = {
        "model": model.name,
        "kernels": model.kernels,
        "prompt_tokens": request.prompt,
        "tokens": [choice.token for choice in result.choices],
        "text": result.text,
        "finish_reason": result.reason,
        "prefill_s": round(result.prefill_s, 6),
        "decode_s": round(result.decode_s, 6),
    }
    if with_logprobs:
        report["logprobs"] = [
            {
                "token": choice.token,
                "logprob": choice.logprob,
                "top": [{"token": each.token, "logprob": each.logprob} for each in choice.top],
            }
            for choice in result.choices
        ]
    return report
