"""Reads the weights of a BERT-style sentence encoder from a folder: config.json, vocab.txt, model.safetensors.

Used by sentence_encoder. Maps the file into memory. Raises ModelFilesError for anything that does not fit together.
"""

import os
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kitbag.text.source_files import SourceError, read_bytes

if TYPE_CHECKING:
    from numpy import ndarray

_MAX_HEADER: Final = 4 * 1024 * 1024
_MAX_TEXT: Final = 8 * 1024 * 1024
_WORDS: Final = "embeddings.word_embeddings.weight"
_TYPES: Final = {"F32": "<f4", "F16": "<f2"}


class ModelFilesError(Exception):
    """The folder has no usable model."""


class EncoderConfig(msgspec.Struct, frozen=True, kw_only=True):
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    vocab_size: int
    layer_norm_eps: float = 1e-12


class _TensorEntry(msgspec.Struct, frozen=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def import_numpy() -> Any:
    """With one thread: several wait for each other longer than they work. Raises ImportError without `semantic`."""
    is_set = "OPENBLAS_NUM_THREADS" in os.environ
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        import numpy as np
    finally:
        if not is_set:
            del os.environ["OPENBLAS_NUM_THREADS"]
    return np


def read_config(folder: str) -> EncoderConfig:
    try:
        config = msgspec.json.decode(_read(folder, "config.json"), type=EncoderConfig)
    except msgspec.MsgspecError as error:
        raise ModelFilesError(f"config.json: {error}") from error
    sizes = (config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.intermediate_size)
    if min(*sizes, config.max_position_embeddings) < 1 or config.hidden_size % config.num_attention_heads:
        raise ModelFilesError("config.json: impossible sizes")
    if max(*sizes, config.max_position_embeddings) > 10_000:
        raise ModelFilesError("config.json: the model is too large")
    return config


def read_vocabulary(folder: str) -> str:
    try:
        return _read(folder, "vocab.txt").decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ModelFilesError("vocab.txt is not UTF-8") from error


def _read(folder: str, name: str) -> bytes:
    try:
        return read_bytes(os.path.join(folder, name), None, _MAX_TEXT)[0]
    except SourceError as error:
        raise ModelFilesError(f"{name}: {error.problem}") from error


def read_tensors(folder: str, config: EncoderConfig) -> "dict[str, ndarray[Any, Any]]":
    """All tensors of the encoder by name, as 32-bit floats, with the shapes that the configuration says."""
    np = import_numpy()
    path = os.path.join(folder, "model.safetensors")
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_MAX_HEADER, size - 8):
                raise ModelFilesError("model.safetensors is damaged: wrong header")
            header = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
        data = np.memmap(path, dtype=np.uint8, mode="r", offset=8 + length)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise ModelFilesError(f"model.safetensors: {error}") from error
    prefix = "bert." if f"bert.{_WORDS}" in header else ""
    tensors: dict[str, ndarray[Any, Any]] = {}
    for name, shape in _expected_shapes(config).items():
        raw = header.get(prefix + name)
        try:
            entry = msgspec.json.decode(raw or b"", type=_TensorEntry)
        except msgspec.MsgspecError as error:
            raise ModelFilesError(f"model.safetensors has no tensor {name}") from error
        start, end = entry.data_offsets
        kind = _TYPES.get(entry.dtype)
        if tuple(entry.shape) != shape or kind is None:
            raise ModelFilesError(f"{name} has the shape {entry.shape} {entry.dtype}, not {list(shape)} F32")
        if not 0 <= start <= end <= len(data) or end - start != int(np.prod(shape)) * np.dtype(kind).itemsize:
            raise ModelFilesError(f"model.safetensors is damaged: {name} is truncated")
        tensor = np.frombuffer(data[start:end], dtype=kind).reshape(shape)
        if name != _WORDS:  # of which a text needs few rows
            tensor = np.array(tensor, dtype=np.float32)  # aligned: numpy multiplies other arrays slowly
            if not np.isfinite(tensor).all():
                raise ModelFilesError(f"model.safetensors is damaged: {name} has values that are no numbers")
        tensors[name] = tensor
    return tensors


def _expected_shapes(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        _WORDS: (config.vocab_size, hidden),
        "embeddings.position_embeddings.weight": (config.max_position_embeddings, hidden),
        "embeddings.token_type_embeddings.weight": (2, hidden),
        "embeddings.LayerNorm.weight": (hidden,),
        "embeddings.LayerNorm.bias": (hidden,),
    }
    for layer in range(config.num_hidden_layers):
        start = f"encoder.layer.{layer}"
        for name, (rows, columns) in {
            "attention.self.query": (hidden, hidden),
            "attention.self.key": (hidden, hidden),
            "attention.self.value": (hidden, hidden),
            "attention.output.dense": (hidden, hidden),
            "intermediate.dense": (inner, hidden),
            "output.dense": (hidden, inner),
        }.items():
            shapes[f"{start}.{name}.weight"] = (rows, columns)
            shapes[f"{start}.{name}.bias"] = (rows,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"{start}.{name}.weight"] = (hidden,)
            shapes[f"{start}.{name}.bias"] = (hidden,)
    return shapes
