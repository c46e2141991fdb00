"""Splitting text as llama.cpp does, and joining tokens to bytes again.

``data/tokens.json`` holds what llama.cpp made of ``data/texts.json``; ``record_tokens.py`` wrote it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from local_backend.gguf.metadata import Metadata
from local_backend.gguf.reader import open_gguf
from local_backend.model.default_model import resolve_model
from local_backend.model.tokenizer import Tokenizer
from local_backend.model.vocabulary import read_vocabulary
from tests.local_backend.fetched_models import gemma3
from tests.local_backend.model.tiny_vocabularies import all_vocabularies, byte_level, sentence_piece
from tests.local_backend.tiny_gguf import write_gguf

DATA = Path(__file__).parent / "data"
TEXTS: list[str] = json.loads((DATA / "texts.json").read_text("utf-8"))
TOKENS: dict[str, Any] = json.loads((DATA / "tokens.json").read_text("utf-8"))["vocabularies"]
TINY = [name for name in TOKENS if name not in {"smollm2", "gemma3"}]


def tokenizer_of(path: Path) -> Tokenizer:
    file = open_gguf(path)
    try:
        return Tokenizer(read_vocabulary(file.metadata))
    finally:
        file.close()


@cache
def smollm2() -> Tokenizer:
    return tokenizer_of(resolve_model("builtin:smollm2"))


def tiny(folder: Path, metadata: dict[str, Any]) -> Tokenizer:
    return tokenizer_of(write_gguf(folder / "vocabulary.gguf", metadata))


def check_against_oracle(tokenizer: Tokenizer, name: str, but_for: str | None = None) -> None:
    for key, parse_special in (("special", True), ("plain", False)):
        for text, expected in zip(TEXTS, TOKENS[name][key], strict=True):
            if but_for is not None and but_for in text:
                continue
            bos = tokenizer.vocabulary.bos
            # llama.cpp doubles a beginning that the text spells, and warns; here it is not doubled.
            single = expected[1:] if expected[:2] == [bos, bos] else expected
            assert tokenizer.encode(text, parse_special=parse_special) == single, (key, text)


@pytest.mark.parametrize("name", TINY)
def test_text_is_split_as_llama_cpp_splits_it(tmp_path: Path, name: str) -> None:
    check_against_oracle(tiny(tmp_path, all_vocabularies()[name]), name)


@pytest.mark.model
def test_the_default_model_splits_text_as_llama_cpp_does() -> None:
    check_against_oracle(smollm2(), "smollm2")


@pytest.mark.model
@pytest.mark.slow
def test_gemma3_splits_text_as_llama_cpp_does() -> None:
    # llama.cpp takes </s> for an end token wherever it finds it; here it is HTML, as the file says.
    check_against_oracle(tokenizer_of(gemma3()), "gemma3", but_for="</s>")


@pytest.mark.parametrize("name", TINY)
def test_bytes_of_tokens_are_the_bytes_of_the_text(tmp_path: Path, name: str) -> None:
    tokenizer = tiny(tmp_path, all_vocabularies()[name])
    prefix = b" " if name == "sentence-piece" else b""

    for text in TEXTS:
        tokens = tokenizer.encode(text, add_special=False, parse_special=False)
        # A text that spells SentencePiece's visible space comes back with a space.
        shown = text.replace("\u2581", " ") if prefix else text
        if "<" in text and prefix:
            continue  # user-defined tokens take a space of their own after them
        assert b"".join(map(tokenizer.token_bytes, tokens)) == prefix + shown.encode()


def test_a_character_in_several_tokens_comes_as_its_bytes(tmp_path: Path) -> None:
    metadata = byte_level("gpt-2")
    metadata["tokenizer.ggml.merges"] = metadata["tokenizer.ggml.merges"][:1]
    tokenizer = tiny(tmp_path, metadata)

    pieces = [tokenizer.token_bytes(token) for token in tokenizer.encode("🚂", add_special=False)]

    assert len(pieces) == 4
    assert all(len(piece) == 1 for piece in pieces)
    assert b"".join(pieces).decode() == "🚂"


def test_control_tokens_have_no_bytes_unless_asked(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, byte_level("qwen2"))
    tokens = tokenizer.encode("<|begin|>a<think>b<|end|>")

    assert tokenizer.decode(tokens) == "a<think>b"
    assert tokenizer.decode(tokens, special=True) == "<|begin|>a<think>b<|end|>"


def test_byte_tokens_of_sentence_piece_are_bytes(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, sentence_piece())

    tokens = tokenizer.encode("火", add_special=False)

    assert tokenizer.decode(tokens) == " 火"
    assert [tokenizer.token_bytes(token) for token in tokens[1:]] == [b"\xe7", b"\x81", b"\xab"]


def test_ids_outside_the_vocabulary_are_refused(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, byte_level("qwen2"))

    for token in (-1, tokenizer.size):
        with pytest.raises(IndexError):
            tokenizer.token_bytes(token)


def test_beginning_and_end_are_added_where_the_file_asks(tmp_path: Path) -> None:
    flags = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
    tokenizer = tiny(tmp_path, byte_level("qwen2") | flags)

    assert tokenizer.encode("") == [1, 0]
    assert tokenizer.encode("", add_special=False) == []
    assert tokenizer.encode("a")[0] == 1


def test_a_beginning_that_the_text_spells_is_not_doubled(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, byte_level("qwen2") | {"tokenizer.ggml.add_bos_token": True})

    assert tokenizer.encode("<|begin|>a") == tokenizer.encode("a")


def test_special_tokens_are_text_where_they_are_not_to_be_parsed(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, byte_level("qwen2"))

    assert 0 not in tokenizer.encode("<|end|>", parse_special=False)
    assert tokenizer.encode("<|end|>", parse_special=True) == [0]
    assert 2 in tokenizer.encode("<think>", parse_special=False)


def test_the_longest_of_overlapping_special_tokens_is_meant(tmp_path: Path) -> None:
    metadata = byte_level("qwen2")
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "<|end|>>"]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], 3]
    tokenizer = tiny(tmp_path, metadata)

    assert tokenizer.encode("<|end|>><|end|>") == [tokenizer.size - 1, 0]


def test_lone_surrogates_become_the_replacement_character(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, byte_level("qwen2"))

    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"


def test_a_message_of_harmony_ends_without_ending_the_answer(tmp_path: Path) -> None:
    marks = ["<|return|>", "<|call|>", "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"]
    metadata = byte_level("gpt-4o")
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], *marks]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], *[3] * len(marks)]
    metadata["tokenizer.ggml.eos_token_id"] = len(metadata["tokenizer.ggml.tokens"]) - len(marks)
    tokenizer = tiny(tmp_path, metadata)
    text = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b"

    tokens = tokenizer.encode(text + "<|return|>")

    assert {tokenizer.vocabulary.tokens[token] for token in tokenizer.end_tokens} == {
        "<|return|>",
        "<|call|>",
    }
    assert tokenizer.decode(tokens) == text


@pytest.mark.model
def test_tokens_that_end_an_answer_of_the_default_model() -> None:
    vocabulary = smollm2().vocabulary

    assert {vocabulary.tokens[token] for token in vocabulary.end_tokens} == {
        "<|endoftext|>",
        "<|im_end|>",
        "<reponame>",
    }


def test_metadata_is_not_kept_by_the_tokenizer(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, byte_level("qwen2"))

    assert not any(isinstance(value, Metadata) for value in vars(tokenizer).values())
