"""What a model file holds, for people and for programs, also where the model cannot be run.

A file that is not what it claims is still refused by ``BadModelFile``; what this engine lacks is listed.
Knows headers; reads no weights.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from local_backend.errors import UnsupportedModel
from local_backend.gguf.metadata import Metadata
from local_backend.gguf.reader import TensorInfo
from local_backend.gguf.shards import TensorArchive, open_archive
from local_backend.model.hyperparameters import family_of
from local_backend.model.loader import CHAT_TEMPLATE_KEY, check_model
from local_backend.model.quantities import bytes_text, count_text, table_text
from local_backend.model.tensor_names import place_of
from local_backend.model.vocabulary import read_vocabulary
from local_backend.model.weights import TensorRole

__all__ = ["ModelInspection", "TypeUse", "inspect_model"]

_EXPERT_ROLES = frozenset(
    {TensorRole.EXPERT_GATE_PROJ, TensorRole.EXPERT_UP_PROJ, TensorRole.EXPERT_DOWN_PROJ}
)


@dataclass(frozen=True, slots=True)
class TypeUse:
    """How much of a model is stored in one block type."""

    type: str
    tensors: int
    parameters: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ModelInspection:
    """A model file in numbers. ``None`` stands for what the file does not say.

    ``active_parameters`` are those a token is computed with: all but the experts not chosen.
    ``unsupported`` names what this engine lacks for the model; empty means that it runs. ``slow_types`` are
    block types that only the NumPy reference computes; whoever knows the kernels fills them in.
    """

    path: str
    files: int
    file_bytes: int
    name: str
    architecture: str
    parameters: int
    active_parameters: int
    layers: int | None
    hidden_size: int | None
    heads: int | None
    kv_heads: int | None
    experts: int
    experts_used: int
    context_tokens: int | None
    tokenizer: str
    vocabulary_size: int
    has_chat_template: bool
    tensor_types: tuple[TypeUse, ...]
    unsupported: tuple[str, ...]
    slow_types: tuple[str, ...] = ()

    @property
    def is_supported(self) -> bool:
        """Whether this engine can run the model."""
        return not self.unsupported

    def to_json(self) -> str:
        """All fields as a JSON object."""
        return json.dumps(dataclasses.asdict(self) | {"is_supported": self.is_supported}, indent=2)

    def to_text(self) -> str:
        """Return a table for people."""
        rows = [
            ("model", self.name),
            ("file", f"{self.path} ({bytes_text(self.file_bytes)}{self._files_text()})"),
            ("architecture", self.architecture),
            ("parameters", self._parameters_text()),
            ("layers", f"{_known(self.layers)}, hidden size {_known(self.hidden_size)}"),
            ("attention", f"{_known(self.heads)} heads, {_known(self.kv_heads)} for keys and values"),
            (
                "experts",
                f"{self.experts} a layer, {self.experts_used} used" if self.experts else "none (dense)",
            ),
            ("context", f"{_known(self.context_tokens)} tokens"),
            ("vocabulary", f"{self.vocabulary_size} tokens, tokenizer {self.tokenizer}"),
            ("chat template", "in the file" if self.has_chat_template else "none in the file"),
            ("runs here", self._runs_text()),
        ]
        types = [("type", "tensors", "parameters", "bytes")]
        types += [
            (use.type, str(use.tensors), count_text(use.parameters), bytes_text(use.bytes))
            for use in self.tensor_types
        ]
        return table_text(rows) + "\n\n" + table_text(types, right=frozenset({1, 2, 3}))

    def _runs_text(self) -> str:
        if self.unsupported:
            return "no: " + "; ".join(self.unsupported)
        if self.slow_types:
            return f"yes, but slowly: there are no native kernels for {', '.join(self.slow_types)}"
        return "yes"

    def _files_text(self) -> str:
        return f" in {self.files} files" if self.files > 1 else ""

    def _parameters_text(self) -> str:
        if self.active_parameters == self.parameters:
            return count_text(self.parameters)
        return f"{count_text(self.parameters)}, {count_text(self.active_parameters)} a token"


def inspect_model(path: Path) -> ModelInspection:
    """Read a model's headers. Raises ``BadModelFile`` where they cannot be trusted."""
    archive = open_archive(path)
    try:
        return _inspect(archive)
    finally:
        archive.close()


def _inspect(archive: TensorArchive) -> ModelInspection:
    metadata = archive.metadata
    architecture = metadata.optional_text("general.architecture") or "unknown"
    tensors = list(archive.tensors.values())
    layers = metadata.optional_integer(f"{architecture}.block_count", least=1)
    experts = metadata.optional_integer(f"{architecture}.expert_count") or 0
    used = metadata.optional_integer(f"{architecture}.expert_used_count") or 0
    return ModelInspection(
        path=str(archive.path),
        files=len(archive.files),
        file_bytes=archive.size,
        name=metadata.optional_text("general.name") or archive.path.stem,
        architecture=architecture,
        parameters=sum(tensor.elements for tensor in tensors),
        active_parameters=_active_parameters(tensors, experts, used),
        layers=layers,
        hidden_size=metadata.optional_integer(f"{architecture}.embedding_length"),
        heads=_largest(metadata, f"{architecture}.attention.head_count", layers),
        kv_heads=_largest(metadata, f"{architecture}.attention.head_count_kv", layers),
        experts=experts,
        experts_used=used,
        context_tokens=metadata.optional_integer(f"{architecture}.context_length"),
        tokenizer=_tokenizer(metadata),
        vocabulary_size=_vocabulary_size(metadata, architecture),
        has_chat_template=CHAT_TEMPLATE_KEY in metadata,
        tensor_types=_tensor_types(tensors),
        unsupported=_unsupported(archive),
    )


def _active_parameters(tensors: list[TensorInfo], experts: int, used: int) -> int:
    total = 0
    for tensor in tensors:
        place = place_of(tensor.name)
        is_expert = place is not None and place.role in _EXPERT_ROLES and experts > 0
        total += tensor.elements * used // experts if is_expert else tensor.elements
    return total


def _largest(metadata: Metadata, key: str, layers: int | None) -> int | None:
    if key not in metadata or layers is None:
        return None
    return max(metadata.per_layer(key, layers))


def _vocabulary_size(metadata: Metadata, architecture: str) -> int:
    tokens = metadata.optional_strings("tokenizer.ggml.tokens")
    if tokens is not None:
        return len(tokens)
    return metadata.optional_integer(f"{architecture}.vocab_size") or 0


def _tokenizer(metadata: Metadata) -> str:
    model = metadata.optional_text("tokenizer.ggml.model") or "none"
    pre = metadata.optional_text("tokenizer.ggml.pre")
    return f"{model} ({pre})" if pre else model


def _tensor_types(tensors: list[TensorInfo]) -> tuple[TypeUse, ...]:
    uses: list[TypeUse] = []
    for kind in {tensor.type for tensor in tensors}:
        own = [tensor for tensor in tensors if tensor.type is kind]
        uses.append(TypeUse(kind.name, len(own), sum(t.elements for t in own), sum(t.size for t in own)))
    return tuple(sorted(uses, key=lambda use: (-use.bytes, use.type)))


def _unsupported(archive: TensorArchive) -> tuple[str, ...]:
    """Name everything that keeps the model from running, as far as it shows from the headers."""
    found: list[str] = []
    checks: tuple[Callable[[], object], ...] = (
        lambda: family_of(archive.metadata),
        lambda: read_vocabulary(archive.metadata),
        lambda: check_model(archive),
    )
    for check in checks:
        try:
            check()
        except UnsupportedModel as error:
            if error.feature not in found:
                found.append(error.feature)
    return tuple(found)


def _known(value: int | None) -> str:
    return "unknown" if value is None else str(value)
