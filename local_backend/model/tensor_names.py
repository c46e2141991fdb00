"""GGUF tensor names and the roles they stand for; the only place that holds those strings.

Source: llama.cpp's naming (gguf-py constants). Knows no shapes and no bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from local_backend.model.weights import TensorRole

__all__ = [
    "TensorPlace",
    "is_ignorable",
    "is_separate_expert",
    "place_of",
    "tensor_name",
]

_SHARED = {
    TensorRole.TOKEN_EMBEDDING: "token_embd.weight",
    TensorRole.OUTPUT_NORM: "output_norm.weight",
    TensorRole.OUTPUT_HEAD: "output.weight",
    TensorRole.ROPE_FREQUENCIES: "rope_freqs.weight",
}
_LAYER = {
    TensorRole.ATTENTION_NORM: "attn_norm.weight",
    TensorRole.ATTENTION_POST_NORM: "post_attention_norm.weight",
    TensorRole.QUERY: "attn_q.weight",
    TensorRole.KEY: "attn_k.weight",
    TensorRole.VALUE: "attn_v.weight",
    TensorRole.ATTENTION_OUTPUT: "attn_output.weight",
    TensorRole.QUERY_BIAS: "attn_q.bias",
    TensorRole.KEY_BIAS: "attn_k.bias",
    TensorRole.VALUE_BIAS: "attn_v.bias",
    TensorRole.ATTENTION_OUTPUT_BIAS: "attn_output.bias",
    TensorRole.QUERY_NORM: "attn_q_norm.weight",
    TensorRole.KEY_NORM: "attn_k_norm.weight",
    TensorRole.ATTENTION_SINKS: "attn_sinks.weight",
    TensorRole.FEED_FORWARD_NORM: "ffn_norm.weight",
    TensorRole.FEED_FORWARD_POST_NORM: "post_ffw_norm.weight",
    TensorRole.GATE_PROJ: "ffn_gate.weight",
    TensorRole.UP_PROJ: "ffn_up.weight",
    TensorRole.DOWN_PROJ: "ffn_down.weight",
    TensorRole.GATING: "ffn_gate_inp.weight",
    TensorRole.GATING_BIAS: "ffn_gate_inp.bias",
    TensorRole.EXPERT_GATE_PROJ: "ffn_gate_exps.weight",
    TensorRole.EXPERT_UP_PROJ: "ffn_up_exps.weight",
    TensorRole.EXPERT_DOWN_PROJ: "ffn_down_exps.weight",
    TensorRole.EXPERT_GATE_BIAS: "ffn_gate_exps.bias",
    TensorRole.EXPERT_UP_BIAS: "ffn_up_exps.bias",
    TensorRole.EXPERT_DOWN_BIAS: "ffn_down_exps.bias",
    TensorRole.SHARED_GATING: "ffn_gate_inp_shexp.weight",
    TensorRole.SHARED_GATE_PROJ: "ffn_gate_shexp.weight",
    TensorRole.SHARED_UP_PROJ: "ffn_up_shexp.weight",
    TensorRole.SHARED_DOWN_PROJ: "ffn_down_shexp.weight",
}
_SHARED_BY_NAME = {name: role for role, name in _SHARED.items()}
_LAYER_BY_NAME = {name: role for role, name in _LAYER.items()}
_LAYER_NAME = re.compile(r"blk\.(0|[1-9]\d{0,4})\.(.+)")
# Old converters stored rotation frequencies that every reader works out itself.
_IGNORABLE = re.compile(r"blk\.\d+\.(attn_rot_embd|attention\.rotary_emb\.inv_freq)(\.weight)?")
_SEPARATE_EXPERT = re.compile(r"blk\.\d+\.ffn_(gate|up|down)\.\d+\.weight")


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """What a tensor is: its role, and its layer where it belongs to one."""

    role: TensorRole
    layer: int | None


def tensor_name(role: TensorRole, layer: int | None = None) -> str:
    """Return the name in the file; ``layer`` is given for the roles of a layer and only for them."""
    return _SHARED[role] if layer is None else f"blk.{layer}.{_LAYER[role]}"


def place_of(name: str) -> TensorPlace | None:
    """Return what a name stands for; ``None`` for a name without a role here."""
    shared = _SHARED_BY_NAME.get(name)
    if shared is not None:
        return TensorPlace(shared, None)
    found = _LAYER_NAME.fullmatch(name)
    role = None if found is None else _LAYER_BY_NAME.get(found[2])
    return None if found is None or role is None else TensorPlace(role, int(found[1]))


def is_ignorable(name: str) -> bool:
    """Whether a tensor may be left aside without changing what the model computes."""
    return _IGNORABLE.fullmatch(name) is not None


def is_separate_expert(name: str) -> bool:
    """Whether a tensor is one expert's matrix, as files from before stacked experts (2024) hold them."""
    return _SEPARATE_EXPERT.fullmatch(name) is not None
