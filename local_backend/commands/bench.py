"""``bench``: how fast a model runs here. Knows arguments and printing; not how it is measured."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from typing import Any

import orjson

from local_backend.benchmark.measure import Measurement, Rate, decode_rate, measure, prefill_rate
from local_backend.benchmark.process_memory import peak_rss_bytes
from local_backend.commands.options import add_engine_options, add_model, engine_config, positive
from local_backend.engine.loading import LoadedModel, load_model

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
examples:
  roundhouse engine bench builtin:smollm2
  roundhouse engine bench model.gguf --prompt-tokens 2418 --n 256 --runs 3 --json

A prefill rate is stated from 1,000 prompt tokens on, a decode rate from 128 tokens on; below that the
seconds are printed and the reason why they make no rate.
"""


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "bench",
        help="measure prefill and decode",
        description="Measure prefill and decode of one model on random tokens.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser)
    parser.add_argument(
        "--prompt-tokens", type=positive, default=1024, metavar="N", help="default: %(default)s"
    )
    parser.add_argument("--n", type=positive, default=128, help="tokens to decode (default: %(default)s)")
    parser.add_argument("--runs", type=positive, default=1, help="repetitions (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_engine_options(parser)
    parser.set_defaults(run=run, log_level=logging.WARNING)


def run(arguments: argparse.Namespace) -> int:
    """Load, measure, print."""
    started = time.perf_counter()
    model = load_model(arguments.model, engine_config(arguments), lambda _: None)
    load_s = time.perf_counter() - started
    try:
        measurement = measure(
            model.engine,
            vocabulary_size=model.vocabulary_size,
            prompt_tokens=arguments.prompt_tokens,
            decoded_tokens=arguments.n,
            runs=arguments.runs,
            clock=time.perf_counter,
        )
    finally:
        model.engine.close()
    report = _report(model, measurement, load_s)
    text = orjson.dumps(report).decode() if arguments.json else _table(report)
    sys.stdout.write(text + "\n")
    return 0


def _report(model: LoadedModel, measurement: Measurement, load_s: float) -> dict[str, Any]:
    prefill, decode = prefill_rate(measurement), decode_rate(measurement)
    return {
        "model": model.name,
        "kernels": model.kernels,
        "n": len(measurement.prefill_s),
        "prompt_tokens": measurement.prompt_tokens,
        "decoded_tokens": measurement.decoded_tokens,
        "prefill_tok_s": _rounded(prefill),
        "decode_tok_s": _rounded(decode),
        "prefill_refused": prefill.refused,
        "decode_refused": decode.refused,
        "prefill_s": [round(seconds, 6) for seconds in measurement.prefill_s],
        "decode_s": [round(seconds, 6) for seconds in measurement.decode_s],
        "load_s": round(load_s, 3),
        "peak_rss_bytes": peak_rss_bytes(),
    }


def _rounded(rate: Rate) -> float | None:
    return None if rate.tok_s is None else round(rate.tok_s, 2)


def _table(report: dict[str, Any]) -> str:
    peak = report["peak_rss_bytes"]
    lines = [
        f"model     {report['model']}",
        f"kernels   {report['kernels']}",
        f"load      {report['load_s']:.3f} s",
        f"prefill   {_line(report, 'prefill', report['prompt_tokens'])}",
        f"decode    {_line(report, 'decode', report['decoded_tokens'])}",
        "peak RSS  " + ("unknown here" if peak is None else f"{peak / 2**20:.0f} MiB"),
        f"runs      {report['n']} (rates are of the median run)",
    ]
    return "\n".join(lines)


def _line(report: dict[str, Any], what: str, tokens: int) -> str:
    seconds = ", ".join(f"{each:.3f}" for each in report[f"{what}_s"])
    raw = f"{tokens} tokens in {seconds} s"
    refused = report[f"{what}_refused"]
    return f"{raw}; no rate: {refused}" if refused else f"{report[f'{what}_tok_s']:.2f} tokens/s ({raw})"
