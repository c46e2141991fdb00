"""The vocabulary of a file: its tokens, their kinds, merges and special ids, checked against each other.

Anything that does not fit is a ``BadModelFile`` that names the key. Knows no text to split and no model.

Source: the GGUF specification (``tokenizer.ggml.*``), llama.cpp's defaults where a key is absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

from local_backend.errors import UnsupportedModel
from local_backend.gguf.metadata import Metadata
from local_backend.model.pre_tokenizers import PRE_TOKENIZERS

__all__ = ["TokenKind", "TokenizerModel", "Vocabulary", "read_vocabulary"]

_TOKENS_KEY = "tokenizer.ggml.tokens"
_KINDS_KEY = "tokenizer.ggml.token_type"
_SCORES_KEY = "tokenizer.ggml.scores"
_MERGES_KEY = "tokenizer.ggml.merges"
_MODEL_KEY = "tokenizer.ggml.model"
_PRE_KEY = "tokenizer.ggml.pre"
_MOST_NAMELESS = 1 << 21

# Tokens that end an answer in some family, whatever the file's end-of-sequence id says; the last lines end
# a file or a repository in models of code.
_END_TEXTS = frozenset(
    {
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eom_id|>",
        "<|EOT|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<end_of_turn>",
        "<turn|>",
        "<end_of_utterance>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
        "<|fim_pad|>",
        "<fim-pad>",
        "<fim_pad>",
        "<|fim_repo|>",
        "<|repo_name|>",
        "<fim-repo>",
        "<reponame>",
        "<|file_sep|>",
    }
)

# The marks of OpenAI's harmony format (gpt-oss). An answer there has several messages: <|end|> ends one of
# them and not the answer, and without its marks nobody could tell the messages apart.
_HARMONY_ENDS = frozenset({"<|return|>", "<|call|>"})
_HARMONY_SHOWN = frozenset({"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"})


class TokenizerModel(StrEnum):
    """How text becomes tokens: byte-level BPE by merges, SentencePiece by scores, or not at all."""

    BYTE_LEVEL = "gpt2"
    SENTENCE_PIECE = "llama"
    NONE = "none"


class TokenKind(IntEnum):
    """What a token is, by its number in ``tokenizer.ggml.token_type``."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id. ``scores`` decide in SentencePiece, ``merges`` in byte-level BPE.

    ``end_tokens`` are all tokens that end an answer.
    """

    model: TokenizerModel
    pre: str
    tokens: tuple[str, ...]
    kinds: NDArray[np.int8]
    scores: NDArray[np.float64]
    merges: tuple[tuple[str, str], ...]
    bos: int | None
    eos: int | None
    unknown: int | None
    end_tokens: frozenset[int]
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    def text_of(self, token: int | None) -> str:
        """Return a special token's text, the empty string where there is none."""
        return "" if token is None else self.tokens[token]


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    """Read and check the vocabulary.

    Raises ``BadModelFile`` where its parts do not fit, ``UnsupportedModel`` for a tokenizer or a
    pre-tokenizer that is not known.
    """
    model = _model(metadata)
    if model is TokenizerModel.NONE:
        return _nameless(metadata)
    pre = metadata.optional_text(_PRE_KEY) or "default"
    if model is TokenizerModel.BYTE_LEVEL and pre not in PRE_TOKENIZERS:
        raise UnsupportedModel(metadata.path, f"pre-tokenizer {pre!r}", tuple(PRE_TOKENIZERS))
    tokens = _tokens(metadata)
    ids = _ids(metadata, tokens)
    kinds = _kinds(metadata, tokens)
    eos = _special(
        metadata, "eos", len(tokens), default=2 if model is TokenizerModel.SENTENCE_PIECE else None
    )
    ends = {eos, _special(metadata, "eot", len(tokens)), _special(metadata, "eom", len(tokens))}
    ends |= {ids[text] for text in _END_TEXTS if text in ids}
    shown = {ids[text] for text in _HARMONY_SHOWN if text in ids} if ids.keys() >= _HARMONY_ENDS else set()
    sentence_piece = model is TokenizerModel.SENTENCE_PIECE
    end_tokens = frozenset(token for token in ends - shown if token is not None)
    kinds[list(end_tokens)] = TokenKind.CONTROL
    kinds[list(shown)] = TokenKind.USER_DEFINED
    return Vocabulary(
        model=model,
        pre=pre,
        tokens=tokens,
        kinds=kinds,
        scores=_scores(metadata, len(tokens), required=sentence_piece),
        merges=() if sentence_piece else _merges(metadata, ids),
        bos=_special(metadata, "bos", len(tokens), default=1 if sentence_piece else None),
        eos=eos,
        unknown=_special(metadata, "unknown", len(tokens), default=0 if sentence_piece else None),
        end_tokens=end_tokens,
        add_bos=metadata.flag("tokenizer.ggml.add_bos_token", default=_default_bos(model, pre)),
        add_eos=metadata.flag("tokenizer.ggml.add_eos_token", default=False),
        add_space_prefix=metadata.flag("tokenizer.ggml.add_space_prefix", default=sentence_piece),
    )


def _model(metadata: Metadata) -> TokenizerModel:
    name = metadata.text(_MODEL_KEY)
    try:
        return TokenizerModel(name)
    except ValueError:
        raise UnsupportedModel(metadata.path, f"tokenizer {name!r}", tuple(TokenizerModel)) from None


def _nameless(metadata: Metadata) -> Vocabulary:
    """Make a vocabulary of ids alone, as files for measurements have: whoever asks must speak in ids."""
    architecture = metadata.text("general.architecture")
    size = metadata.integer(f"{architecture}.vocab_size", least=1, most=_MOST_NAMELESS)
    return Vocabulary(
        model=TokenizerModel.NONE,
        pre="default",
        tokens=tuple(f"[{token}]" for token in range(size)),
        kinds=np.full(size, TokenKind.UNUSED, dtype=np.int8),
        scores=np.zeros(size),
        merges=(),
        bos=None,
        eos=None,
        unknown=None,
        end_tokens=frozenset(),
        add_bos=False,
        add_eos=False,
        add_space_prefix=False,
    )


def _default_bos(model: TokenizerModel, pre: str) -> bool:
    return model is TokenizerModel.SENTENCE_PIECE or PRE_TOKENIZERS[pre].add_bos


def _tokens(metadata: Metadata) -> tuple[str, ...]:
    tokens = metadata.strings(_TOKENS_KEY)
    if not tokens:
        metadata.fail(_TOKENS_KEY, "is empty")
    # An empty token cannot be told from another empty one; files hold them as padding.
    return tuple(text or f"[EMPTY_{index}]" for index, text in enumerate(tokens))


def _ids(metadata: Metadata, tokens: tuple[str, ...]) -> dict[str, int]:
    ids = {text: index for index, text in enumerate(tokens)}
    if len(ids) != len(tokens):
        index = next(index for index, text in enumerate(tokens) if ids[text] != index)
        metadata.fail(_TOKENS_KEY, f"tokens {index} and {ids[tokens[index]]} are the same: {tokens[index]!r}")
    return ids


def _kinds(metadata: Metadata, tokens: tuple[str, ...]) -> NDArray[np.int8]:
    values = metadata.optional_integers(_KINDS_KEY)
    if values is None:
        return np.full(len(tokens), TokenKind.NORMAL, dtype=np.int8)
    if len(values) != len(tokens):
        metadata.fail(_KINDS_KEY, f"has {len(values)} entries for {len(tokens)} tokens")
    if min(values) < TokenKind.UNDEFINED or max(values) > TokenKind.BYTE:
        bad = next(index for index, value in enumerate(values) if not 0 <= value <= TokenKind.BYTE)
        metadata.fail(_KINDS_KEY, f"has the unknown kind {values[bad]} for token {bad}")
    return np.array(values, dtype=np.int8)


def _scores(metadata: Metadata, count: int, *, required: bool) -> NDArray[np.float64]:
    scores = metadata.optional_numbers(_SCORES_KEY)
    if scores is None:
        if required:
            metadata.fail(_SCORES_KEY, "is missing; a SentencePiece vocabulary needs it")
        return np.zeros(count)
    if len(scores) != count:
        metadata.fail(_SCORES_KEY, f"has {len(scores)} entries for {count} tokens")
    if not np.isfinite(scores).all():
        metadata.fail(_SCORES_KEY, f"is not finite for token {int(np.argmin(np.isfinite(scores)))}")
    return scores


def _merges(metadata: Metadata, ids: dict[str, int]) -> tuple[tuple[str, str], ...]:
    merges: list[tuple[str, str]] = []
    for index, line in enumerate(metadata.strings(_MERGES_KEY)):
        cut = line.find(" ", 1)
        left, right = line[:cut], line[cut + 1 :]
        if cut < 0 or not right:
            metadata.fail(_MERGES_KEY, f"entry {index} is {line!r}; expected two tokens with a space between")
        for part in (left, right, left + right):
            if part not in ids:
                metadata.fail(_MERGES_KEY, f"entry {index} ({line!r}) needs {part!r}, which is not a token")
        merges.append((left, right))
    return tuple(merges)


def _special(metadata: Metadata, name: str, count: int, default: int | None = None) -> int | None:
    token = metadata.optional_integer(f"tokenizer.ggml.{name}_token_id", most=count - 1)
    if token is None and default is not None and default < count:
        return default
    return token
