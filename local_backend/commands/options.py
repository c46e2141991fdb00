"""Arguments that several subcommands share, and how they become a configuration. Runs nothing."""

from __future__ import annotations

import argparse

from local_backend.config import ActivationPreference, EngineConfig, KernelPreference

__all__ = ["add_engine_options", "add_model", "engine_config", "positive", "token_ids"]


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the model's argument."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="path of a GGUF file (the first one of a split model), or builtin:smollm2",
    )


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add what decides how a model runs."""
    parser.add_argument(
        "--context",
        type=positive,
        metavar="N",
        help="tokens of prompt and answer together (default: the model's own, at most 32768)",
    )
    parser.add_argument(
        "--threads",
        type=positive,
        metavar="N",
        help="threads of the native kernels (default: all processors)",
    )
    parser.add_argument(
        "--kernels",
        type=KernelPreference,
        choices=list(KernelPreference),
        default=KernelPreference.AUTO,
        help="arithmetic: native (C++), reference (NumPy, slow), or native where it can (default: auto)",
    )
    parser.add_argument(
        "--activations",
        type=ActivationPreference,
        choices=list(ActivationPreference),
        default=ActivationPreference.AUTO,
        help="bits that the native kernels keep of an activation: 8 is faster, 16 as good as exact "
        "(default: auto, 16 for models of fewer than a billion parameters a token)",
    )


def engine_config(arguments: argparse.Namespace) -> EngineConfig:
    """Collect the options of :func:`add_engine_options`."""
    return EngineConfig(
        context_tokens=arguments.context,
        threads=arguments.threads,
        kernels=arguments.kernels,
        activations=arguments.activations,
    )


def positive(text: str) -> int:
    """Read an integer of at least 1."""
    value = int(text)
    if value < 1:
        msg = f"{value} is not at least 1"
        raise argparse.ArgumentTypeError(msg)
    return value


def token_ids(text: str) -> tuple[int, ...]:
    """Read ids separated by commas, e.g. ``1,2,3``."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        msg = f"{text!r} is not a list of token ids like 1,2,3"
        raise argparse.ArgumentTypeError(msg) from error
