"""Turns texts into vectors whose cosine says how similar they are: a BERT encoder with mean pooling, in numpy.

Used by skill_vectors. Reads any folder with a BERT-style model, such as all-MiniLM-L6-v2. Needs the extra `semantic`.
"""

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kitbag.library.routing.terms import analyze_word, split_raw_words
from kitbag.library.routing.vectors.model_weights import (
    ModelFilesError,
    import_numpy,
    read_config,
    read_tensors,
    read_vocabulary,
)
from kitbag.library.routing.vectors.wordpiece import VocabularyError, WordPieceTokenizer

if TYPE_CHECKING:
    from numpy import ndarray

_BATCH: Final = 16
_SKILL_CHARACTERS, _SKILL_TOKENS = 2_000, 96
_MAX_CHARACTERS, _MESSAGE_TOKENS, _PART_TOKENS = 20_000, 64, 32
_WORD_TOKENS: Final = 24
"""Of a word: a text without spaces is one."""


class SentenceEncoder:
    def __init__(self, folder: str) -> None:
        """Raises ModelFilesError if the folder has no usable model, and ImportError without numpy."""
        self.numpy = import_numpy()
        self._config = read_config(folder)
        try:
            self._tokenizer = WordPieceTokenizer(read_vocabulary(folder))
        except VocabularyError as error:
            raise ModelFilesError(f"vocab.txt: {error}") from error
        if self._tokenizer.size > self._config.vocab_size:
            raise ModelFilesError("vocab.txt has more tokens than the model")
        self._weights = read_tensors(folder, self._config)
        self._dense_weights = {
            name.removesuffix(".weight"): self.numpy.ascontiguousarray(self._weights.pop(name).T)
            for name in list(self._weights)
            if name.endswith(".weight") and "encoder." in name and "LayerNorm" not in name
        }
        self.dimensions = self._config.hidden_size
        self._last_message: tuple[tuple[tuple[int, ...], ...], ndarray[Any, Any] | None] = ((), None)
        """Tokens and vectors of the last message: several searches ask for the same one."""
        status = os.stat(os.path.join(folder, "model.safetensors"))
        identity = f"{os.path.realpath(folder)} {status.st_size} {status.st_mtime_ns}"
        self.fingerprint = hashlib.blake2b(identity.encode("utf-8", "replace"), digest_size=8).hexdigest()

    def encode_skills(self, texts: Sequence[str]) -> "ndarray[Any, Any]":
        """One row of length 1 for each text."""
        return self._encode([self._tokenizer.tokenize(text[:_SKILL_CHARACTERS])[:_SKILL_TOKENS] for text in texts])

    def encode_message(self, message: str, weights: Mapping[str, float]) -> "ndarray[Any, Any] | None":
        """One row, or two for a long message, of which only the words with the highest weights are encoded: each token
        costs time. None if it has no words. `weights`: of its terms, by key."""
        tokens = self._tokenizer.tokenize(message[:_MAX_CHARACTERS])
        if not tokens:
            return None
        if len(tokens) <= _MESSAGE_TOKENS:
            chunks = (tuple(tokens),)
        else:
            tokens = self._select_tokens(message[:_MAX_CHARACTERS], weights)
            chunks = (tuple(tokens[:_PART_TOKENS]), tuple(tokens[_PART_TOKENS:]))
        known, vectors = self._last_message
        if known != chunks:
            vectors = self._encode([chunk for chunk in chunks if chunk])
            self._last_message = (chunks, vectors)
        return vectors

    def _select_tokens(self, text: str, weights: Mapping[str, float]) -> list[int]:
        """The tokens of the words with the highest weights, each word once, in the order of the text."""
        words = list(dict.fromkeys(split_raw_words(text)))
        ranks = [max((weights.get(term.key, 0.0) for term in analyze_word(word)), default=0.0) for word in words]
        chosen: dict[int, list[int]] = {}
        left = _MESSAGE_TOKENS
        for at in sorted(range(len(words)), key=lambda at: -ranks[at]):
            found = self._tokenizer.tokenize(words[at].decode("utf-8", "replace"))[: min(left, _WORD_TOKENS)]
            chosen[at] = found
            left -= len(found)
            if not left:
                break
        return [token for at in sorted(chosen) for token in chosen[at]]

    def _encode(self, texts: "Sequence[Sequence[int]]") -> "ndarray[Any, Any]":
        np = self.numpy
        result = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        for start in range(0, len(order), _BATCH):
            some = order[start : start + _BATCH]
            result[some] = self._encode_batch([texts[at] for at in some])
        return result

    def _encode_batch(self, texts: "Sequence[Sequence[int]]") -> "ndarray[Any, Any]":
        np = self.numpy
        limit = self._config.max_position_embeddings - 2
        rows = [[self._tokenizer.start, *text[:limit], self._tokenizer.end] for text in texts]
        length = max(map(len, rows))
        tokens = np.zeros((len(rows), length), dtype=np.int64)
        mask = np.zeros((len(rows), length), dtype=np.float32)
        for at, row in enumerate(rows):
            tokens[at, : len(row)], mask[at, : len(row)] = row, 1.0
        weights = self._weights
        state = (
            weights["embeddings.word_embeddings.weight"][tokens]
            + weights["embeddings.position_embeddings.weight"][:length]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        state = self._normalize(state, "embeddings.LayerNorm")
        blocked = (1.0 - mask)[:, None, None, :] * -1e9
        for layer in range(self._config.num_hidden_layers):
            state = self._run_layer(state, blocked, f"encoder.layer.{layer}")
        pooled = (state * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-9)

    def _run_layer(self, state: "ndarray[Any, Any]", blocked: "ndarray[Any, Any]", layer: str) -> "ndarray[Any, Any]":
        np = self.numpy
        rows, length, hidden = state.shape
        heads = self._config.num_attention_heads

        def split(name: str) -> "ndarray[Any, Any]":
            return self._dense(state, f"{layer}.attention.self.{name}").reshape(rows, length, heads, -1).swapaxes(1, 2)

        scores = split("query") @ split("key").swapaxes(2, 3) / math.sqrt(hidden // heads) + blocked
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        attended = (scores @ split("value")).swapaxes(1, 2).reshape(rows, length, hidden)
        attended = self._dense(attended, f"{layer}.attention.output.dense")
        state = self._normalize(state + attended, f"{layer}.attention.output.LayerNorm")
        inner = self._dense(state, f"{layer}.intermediate.dense")
        curve = inner * inner
        curve *= 0.044715 * 0.7978845608
        curve += 0.7978845608
        curve *= inner
        np.tanh(curve, out=curve)
        curve += 1.0
        curve *= 0.5
        inner *= curve  # the usual approximation of GELU
        return self._normalize(state + self._dense(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")

    def _dense(self, state: "ndarray[Any, Any]", name: str) -> "ndarray[Any, Any]":
        return state @ self._dense_weights[name] + self._weights[f"{name}.bias"]

    def _normalize(self, state: "ndarray[Any, Any]", name: str) -> "ndarray[Any, Any]":
        np = self.numpy
        centered = state - state.mean(axis=-1, keepdims=True)
        variance = (centered * centered).mean(axis=-1, keepdims=True)
        scaled = centered / np.sqrt(variance + self._config.layer_norm_eps)
        return scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
