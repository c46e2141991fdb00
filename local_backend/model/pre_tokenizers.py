"""How byte-level vocabularies cut text before merging, by the name in ``tokenizer.ggml.pre``.

The patterns are those that the models were trained with. Knows no vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PRE_TOKENIZERS", "PreTokenizer"]

_CONTRACTIONS = r"'s|'t|'re|'ve|'m|'ll|'d"
_ANY_CASE = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_GPT2 = _CONTRACTIONS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _ANY_CASE + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + _REST
_QWEN2 = _ANY_CASE + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + _REST
_QWEN35 = (
    _ANY_CASE
    + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# GPT-4o (o200k): words end at a change from lower to upper case, and keep their contraction.
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ANY_CASE}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ANY_CASE}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEFAULT = (
    r"[\p{P}\$\+<=>\^~\|]+",
    _CONTRACTIONS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    "[0-9][0-9][0-9]",
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Patterns applied one after another; what one matches, and what lies between, goes on separately.

    ``whole_words``: a piece that is a token as it stands is taken whole, without merging.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False


PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": PreTokenizer(_DEFAULT),
    "gpt-2": PreTokenizer((_GPT2,)),
    "phi-2": PreTokenizer((_GPT2,)),
    "olmo": PreTokenizer((_GPT2,)),
    "smollm": PreTokenizer((r"\p{N}", _GPT2)),
    "starcoder": PreTokenizer((r"\p{N}", _GPT2)),
    "refact": PreTokenizer((r"\p{N}", _GPT2)),
    "command-r": PreTokenizer((r"\p{N}", _GPT2)),
    "llama-bpe": PreTokenizer((_LLAMA3,), whole_words=True, add_bos=True),
    "llama3": PreTokenizer((_LLAMA3,), whole_words=True, add_bos=True),
    "llama-v3": PreTokenizer((_LLAMA3,), whole_words=True, add_bos=True),
    "qwen2": PreTokenizer((_QWEN2,)),
    "deepseek-r1-qwen": PreTokenizer((_QWEN2,)),
    "qwen35": PreTokenizer((_QWEN35,)),
    "gpt-4o": PreTokenizer((_GPT4O,)),
}
"""Known names. The empty name and an absent key mean ``default``."""
