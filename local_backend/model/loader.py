"""From a path to a model that can be planned and run: everything checked, nothing copied.

Knows what a file must hold for its specification; not where weights will live or how they compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn, Self

from local_backend.errors import BadModelFile, UnsupportedModel
from local_backend.gguf.dequantize import SUPPORTED_TYPES
from local_backend.gguf.metadata import Metadata
from local_backend.gguf.shards import TensorArchive, open_archive
from local_backend.model.families import Family
from local_backend.model.hyperparameters import family_of, read_specification
from local_backend.model.specification import ModelSpecification
from local_backend.model.tensor_names import is_ignorable, is_separate_expert, place_of, tensor_name
from local_backend.model.tensor_shapes import OPTIONAL_SHARED, Shapes, layer_shapes, shared_shapes
from local_backend.model.vocabulary import Vocabulary, read_vocabulary
from local_backend.model.weights import ModelWeights, TensorRole, Weight

__all__ = ["CHAT_TEMPLATE_KEY", "ModelFile", "check_model", "open_model"]

CHAT_TEMPLATE_KEY = "tokenizer.chat_template"
"""Metadata key of the chat template."""
_MOST_NAMED = 5


class ModelFile:
    """An open model. Owns the mapped files; weights are views of them.

    ``chat_template`` is the template's source, ``None`` where the file has none.
    """

    def __init__(
        self,
        archive: TensorArchive,
        specification: ModelSpecification,
        weights: ModelWeights,
        vocabulary: Vocabulary,
    ) -> None:
        self.archive = archive
        self.specification = specification
        self.weights = weights
        self.vocabulary = vocabulary
        self.chat_template = archive.metadata.optional_text(CHAT_TEMPLATE_KEY)

    @property
    def path(self) -> Path:
        """The file, or the first of several."""
        return self.archive.path

    @property
    def metadata(self) -> Metadata:
        """The file's key-value pairs."""
        return self.archive.metadata

    def close(self) -> None:
        """Unmap the files; views that are still held keep their mapping until they go."""
        self.archive.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_model(path: Path) -> ModelFile:
    """Open and check a model, by its only file or any of its shards.

    Raises ``BadModelFile`` where the file is not what it claims and ``UnsupportedModel`` for a sound file
    that cannot be run; either way nothing stays open.
    """
    archive = open_archive(path)
    try:
        return check_model(archive)
    except BaseException:
        archive.close()
        raise


def check_model(archive: TensorArchive) -> ModelFile:
    """Hold the files of a model against each other; what :func:`open_model` does once they are open."""
    # The family first: of an unknown one, nothing else is worth telling.
    family = family_of(archive.metadata)
    vocabulary = read_vocabulary(archive.metadata)
    specification = read_specification(archive.metadata, archive.tensors, vocabulary.size)
    _refuse_block_types(archive)
    weights = _weights(archive, specification, family)
    return ModelFile(archive, specification, weights, vocabulary)


def _refuse_block_types(archive: TensorArchive) -> None:
    """Refuse block types that nothing here can compute with, all of them in one sentence."""
    lacking: dict[str, list[str]] = {}
    for tensor in archive.tensors.values():
        if tensor.type not in SUPPORTED_TYPES:
            lacking.setdefault(tensor.type.name, []).append(tensor.name)
    if lacking:
        feature = "; ".join(
            f"block type {kind} of {len(names)} tensors ({names[0]} …)" for kind, names in lacking.items()
        )
        raise UnsupportedModel(
            str(archive.path), feature, tuple(sorted(kind.name for kind in SUPPORTED_TYPES))
        )


def _weights(archive: TensorArchive, specification: ModelSpecification, family: Family) -> ModelWeights:
    used: set[str] = set()
    shared = _group(archive, family, shared_shapes(specification), None, used)
    layers = tuple(
        _group(archive, family, layer_shapes(layer, specification.hidden_size), index, used)
        for index, layer in enumerate(specification.layers)
    )
    _refuse_unused(archive, used, len(specification.layers))
    return ModelWeights(shared, layers)


def _group(
    archive: TensorArchive, family: Family, shapes: Shapes, layer: int | None, used: set[str]
) -> Mapping[TensorRole, Weight]:
    """Find the tensors of one layer, or of the whole model, and hold their shapes against the expected."""
    weights: dict[TensorRole, Weight] = {}
    for role, expected in shapes.items():
        name = tensor_name(family.named_as.get(role, role), layer)
        tensor = archive.tensors.get(name)
        if tensor is None:
            if role in OPTIONAL_SHARED:
                continue
            _refuse_missing(archive, name)
        if _squeezed(tensor.shape) != _squeezed(expected):
            hint = "; the vocabulary does not match" if role is TensorRole.TOKEN_EMBEDDING else ""
            raise BadModelFile(
                str(tensor.path),
                f"tensor {name}",
                f"has the shape {tensor.shape}; the metadata asks for {expected}{hint}",
            )
        used.add(name)
        weights[role] = Weight(name, tensor.type, expected, archive.data(name))
    return MappingProxyType(weights)


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Drop leading axes of one, which files add or leave out at will."""
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape


def _refuse_missing(archive: TensorArchive, name: str) -> NoReturn:
    path = str(archive.path)
    separate = next((known for known in archive.tensors if is_separate_expert(known)), None)
    if separate is not None:
        raise UnsupportedModel(
            path,
            f"a file with one tensor for each expert ({separate}), as converters wrote them before 2024,",
            ("stacked experts (convert the model anew)",),
        )
    raise BadModelFile(path, f"tensor {name}", "is missing; the metadata asks for it")


def _refuse_unused(archive: TensorArchive, used: set[str], layers: int) -> None:
    """Refuse tensors nobody reads: with them the model computes something else than we would."""
    unused = [name for name in archive.tensors if name not in used and not is_ignorable(name)]
    if not unused:
        return
    for name in unused:
        place = place_of(name)
        if place is not None and place.layer is not None and place.layer >= layers:
            raise BadModelFile(
                str(archive.path), f"tensor {name}", f"belongs to a layer beyond the {layers} of the metadata"
            )
    names = ", ".join(unused[:_MOST_NAMED]) + (" …" if len(unused) > _MOST_NAMED else "")
    raise UnsupportedModel(
        str(archive.path),
        f"a model with the additional tensors {names}",
        ("the tensors its family is known by",),
    )
