"""Text to tokens and back, by the file's own vocabulary, through the ``tokenizers`` package.

Special tokens are cut out of the text first, longest first, as llama.cpp does; what lies between goes
through BPE. Knows a vocabulary; not templates, streams or requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import tokenizers
from tokenizers import Regex, models, pre_tokenizers

from local_backend.errors import InvalidRequest
from local_backend.model.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from local_backend.model.vocabulary import TokenizerModel, TokenKind, Vocabulary

__all__ = ["Tokenizer"]

_SPACE = "\u2581"  # SentencePiece's visible space
_BEGINNING = 3
_HIDDEN_KINDS = frozenset({TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.UNUSED, TokenKind.UNDEFINED})

Fragment: TypeAlias = "str | int"
"""A stretch of text that is still to be split, or a special token."""


class Tokenizer:
    """One vocabulary, ready to split text. Building takes a tenth of a second for 50,000 tokens."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._byte_of = {character: byte for byte, character in enumerate(_byte_characters())}
        self._sentence_piece = vocabulary.model is TokenizerModel.SENTENCE_PIECE
        self._splitter = _splitter(vocabulary)
        # Stable and longest first: where two special tokens begin alike, the longer one is meant.
        special = np.isin(
            vocabulary.kinds, (TokenKind.CONTROL, TokenKind.USER_DEFINED, TokenKind.UNKNOWN)
        ).nonzero()[0]
        self._special = sorted((int(token) for token in special), key=lambda t: -len(vocabulary.tokens[t]))
        self._beginnings = frozenset(vocabulary.tokens[token][:_BEGINNING] for token in self._special)

    @property
    def size(self) -> int:
        """Number of tokens."""
        return self.vocabulary.size

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end an answer."""
        return self.vocabulary.end_tokens

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Split text into token ids.

        ``add_special`` adds the beginning and end tokens that the vocabulary asks for (a beginning that
        the text spells out already is not doubled); ``parse_special`` reads control tokens in the text as
        such, as a rendered chat template needs, otherwise they are plain text. Lone surrogates, which no
        tokenizer can encode, become U+FFFD. Raises ``InvalidRequest`` where the file has no vocabulary.
        """
        sound = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        tokens: list[int] = []
        after_special = True
        for fragment in self._fragments(sound, parse_special):
            if isinstance(fragment, int):
                tokens.append(fragment)
            else:
                tokens += self._split(fragment, after_special)
            after_special = isinstance(fragment, int)
        return self._with_ends(tokens) if add_special else tokens

    def decode(self, tokens: Iterable[int], *, special: bool = False) -> str:
        """Join tokens to text; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self.token_bytes(token, special=special) for token in tokens).decode(errors="replace")

    def token_bytes(self, token: int, *, special: bool = False) -> bytes:
        """Bytes a token stands for: possibly a part of a character; none for control tokens unless asked.

        Raises ``IndexError`` for an id outside the vocabulary.
        """
        if token < 0:
            raise IndexError(token)
        text = self.vocabulary.tokens[token]
        kind = int(self.vocabulary.kinds[token])
        if kind in _HIDDEN_KINDS:
            return text.encode() if special else b""
        if kind == TokenKind.USER_DEFINED:
            return text.encode()
        if kind == TokenKind.BYTE or self._sentence_piece:
            byte = _spelled_byte(text) if kind == TokenKind.BYTE else None
            return text.replace(_SPACE, " ").encode() if byte is None else bytes([byte])
        if all(character in self._byte_of for character in text):
            return bytes(self._byte_of[character] for character in text)
        return text.encode()

    def _with_ends(self, tokens: list[int]) -> list[int]:
        vocabulary = self.vocabulary
        if vocabulary.add_bos and vocabulary.bos is not None and tokens[:1] != [vocabulary.bos]:
            tokens = [vocabulary.bos, *tokens]
        if vocabulary.add_eos and vocabulary.eos is not None:
            tokens = [*tokens, vocabulary.eos]
        return tokens

    def _fragments(self, text: str, parse_special: bool) -> Sequence[Fragment]:
        fragments: list[Fragment] = [text] if text else []
        # Some vocabularies have thousands of special tokens that begin alike; most texts have few beginnings.
        present = {beginning for beginning in self._beginnings if beginning in text}
        for token in self._special if present else ():
            spelling = self.vocabulary.tokens[token]
            if spelling[:_BEGINNING] not in present:
                continue
            if not parse_special and self.vocabulary.kinds[token] != TokenKind.USER_DEFINED:
                continue
            if spelling in text:
                fragments = [piece for part in fragments for piece in _cut(part, spelling, token)]
        return fragments

    def _split(self, text: str, after_special: bool) -> list[int]:
        if self._sentence_piece:
            prefix = " " if after_special and self.vocabulary.add_space_prefix else ""
            text = (prefix + text).replace(" ", _SPACE)
        if self._splitter is None:
            raise InvalidRequest(
                "this model has no vocabulary: give token ids instead of text", param="prompt"
            )
        ids: list[int] = self._splitter.encode(text, add_special_tokens=False).ids
        return ids


def _cut(fragment: Fragment, spelling: str, token: int) -> list[Fragment]:
    """Replace every occurrence of a special token in a stretch of text by its id."""
    if isinstance(fragment, int):
        return [fragment]
    pieces: list[Fragment] = []
    for index, piece in enumerate(fragment.split(spelling)):
        if index:
            pieces.append(token)
        if piece:
            pieces.append(piece)
    return pieces


def _splitter(vocabulary: Vocabulary) -> tokenizers.Tokenizer | None:
    match vocabulary.model:
        case TokenizerModel.BYTE_LEVEL:
            return _byte_level(vocabulary)
        case TokenizerModel.SENTENCE_PIECE:
            return _sentence_piece(vocabulary)
        case TokenizerModel.NONE:
            return None


def _byte_level(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """BPE by merges over bytes written as printable characters (GPT-2)."""
    settings: PreTokenizer = PRE_TOKENIZERS[vocabulary.pre]
    ids = {text: token for token, text in enumerate(vocabulary.tokens)}
    splitter = tokenizers.Tokenizer(
        models.BPE(vocab=ids, merges=list(vocabulary.merges), ignore_merges=settings.whole_words)
    )
    steps: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in settings.patterns
    ]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    splitter.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return splitter


def _sentence_piece(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """BPE by scores: of all neighbours that form a token, the pair with the best score is merged first."""
    ids = {text: token for token, text in enumerate(vocabulary.tokens)}
    order = np.argsort(-vocabulary.scores, kind="stable")
    merges = [
        (text[:cut], text[cut:])
        for text in (vocabulary.tokens[token] for token in order)
        for cut in range(1, len(text))
        if text[:cut] in ids and text[cut:] in ids
    ]
    unknown = None if vocabulary.unknown is None else vocabulary.tokens[vocabulary.unknown]
    return tokenizers.Tokenizer(
        models.BPE(vocab=ids, merges=merges, unk_token=unknown, fuse_unk=False, byte_fallback=True)
    )


def _spelled_byte(text: str) -> int | None:
    """Return the byte that ``<0x0A>`` spells, ``None`` for another text."""
    if len(text) == len("<0x00>") and text.startswith("<0x") and text.endswith(">"):
        try:
            return int(text[3:5], 16)
        except ValueError:
            return None
    return None


def _byte_characters() -> list[str]:
    """Printable characters that stand for bytes 0..255 in byte-level vocabularies (GPT-2)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    characters, spare = [], 0x100
    for byte in range(256):
        characters.append(chr(byte) if byte in printable else chr(spare))
        spare += byte not in printable
    return characters
