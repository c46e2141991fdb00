"""Small vocabularies whose merges cross every boundary, so that a wrong cut of the text shows at once.

The merges are learnt from one text without cutting it into words first.
"""

from __future__ import annotations

import itertools
from collections import Counter
from functools import cache
from typing import Any

from tests.local_backend.tiny_gguf import byte_characters

TEXT = (
    "It's the engine's 1234567 steam, isn't it? IT'S 12 o'clock; they'll've gone!!  Two  spaces,   three.\n\n"
    "\tTabs\tand\n newlines \r\n mixed... We're 99.5% sure: x=y+1; f(a,b){return a<b;} // comment\n"
    "Grüße aus Köln, naïve café, Ünïcödé. 火车在转车台上 一二三 123火车. Паровоз ٣٤٥ 🚂🚃🚃 "
    "e\u0301a\u0300 'Quoted' \"text\"\n"
    "the the the train trains training trained  in in in ing ing 111 222 333 ---- ==== ____ #### ```py\n"
)
WHOLE_WORD = "Ġroundhouse"
PRE_TOKENIZERS = ("default", "gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "gpt-4o")


def learn(pieces: list[str], count: int) -> list[tuple[str, str]]:
    """Merge the most frequent pair, again and again; the first of equally frequent ones."""
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs = Counter(itertools.pairwise(pieces))
        pair, frequency = max(pairs.items(), key=lambda item: item[1])
        if frequency < 2:
            break
        merges.append(pair)
        merged: list[str] = []
        for piece in pieces:
            if merged and (merged[-1], piece) == pair:
                merged[-1] += piece
            else:
                merged.append(piece)
        pieces = merged
    return merges


@cache
def byte_merges() -> list[tuple[str, str]]:
    """Merges of the byte-level vocabularies."""
    characters = byte_characters()
    return learn([characters[byte] for byte in (TEXT * 2).encode()], 300)


def byte_level(pre: str) -> dict[str, Any]:
    """Metadata of a byte-level vocabulary with this pre-tokenizer."""
    merges = byte_merges()
    joined = dict.fromkeys(left + right for left, right in merges)
    tokens = ["<|end|>", "<|begin|>", "<think>", *byte_characters(), *joined, WHOLE_WORD]
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 4] + [1] * (len(tokens) - 3),
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in merges],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
    }


@cache
def sentence_piece() -> dict[str, Any]:
    """Metadata of a SentencePiece vocabulary with byte tokens; some characters are left to the bytes."""
    text = TEXT.replace(" ", "\u2581")
    characters = sorted(set(text) - set("火🚂٣"))
    merges = learn([character for character in text * 2 if character in characters], 300)
    joined = list(dict.fromkeys(left + right for left, right in merges))
    special = ["<unk>", "<s>", "</s>", "<|user|>"]
    spelled = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = [*special, *spelled, *joined, *characters]
    scores = [0.0] * (len(special) + len(spelled)) + [
        -float(rank) for rank in range(len(joined) + len(characters))
    ]
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3, 4] + [6] * 256 + [1] * (len(joined) + len(characters)),
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def all_vocabularies() -> dict[str, dict[str, Any]]:
    """Every vocabulary by name."""
    return {pre: byte_level(pre) for pre in PRE_TOKENIZERS} | {"sentence-piece": sentence_piece()}
