"""The vectors of descriptions of skills, agents and tools, and how similar a message is to each.

Used if the extra `semantic` is installed and there is a model or an endpoint. Vectors are computed in a thread, cached
by content; until all are there, ranking does without. Never raises.
"""

import contextlib
import hashlib
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kitbag.library.routing.vectors.embeddings_endpoint import EmbeddingsEndpoint, EndpointError
from kitbag.library.routing.vectors.model_weights import ModelFilesError
from kitbag.library.routing.vectors.sentence_encoder import SentenceEncoder
from kitbag.library.routing.vectors.vector_cache import HASH_SIZE, VectorCache

if TYPE_CHECKING:
    from numpy import ndarray

_SAVED_AT_ONCE: Final = 64
_encoders: "dict[str, SentenceEncoder | EmbeddingsEndpoint | str]" = {}
"""By folder or URL and model; a text is the reason why it can't be used."""
_lock = threading.Lock()


def open_encoder(source: str, model: str = "") -> "SentenceEncoder | EmbeddingsEndpoint | str":
    """The encoder, or why there is none. Opened once per process. `source`: a folder, or the URL of an endpoint for
    `model`."""
    with _lock:
        known = _encoders.get(f"{source} {model}")
        if known is None:
            try:
                known = (
                    EmbeddingsEndpoint(source, model)
                    if source.startswith(("https://", "http://"))
                    else SentenceEncoder(source)
                )
            except ImportError:
                known = "numpy is not installed: pip install 'kitbag[semantic]'"
            except (ModelFilesError, OSError, ValueError, MemoryError) as error:
                known = str(error)
            _encoders[f"{source} {model}"] = known
        return known


class TextVectors:
    def __init__(self, encoder: "SentenceEncoder | EmbeddingsEndpoint", kitbag_home: str, texts: Sequence[str]) -> None:
        self._encoder = encoder
        self._np = encoder.numpy
        self._path = os.path.join(kitbag_home, "cache", f"{encoder.fingerprint}.vectors")
        self._texts = list(texts)
        self._hashes = [_hash(text) for text in self._texts]
        self._matrix: ndarray[Any, Any] | None = None
        self._stop = threading.Event()
        self._filler: threading.Thread | None = None
        if encoder.dimensions:
            known = VectorCache(self._path, encoder.dimensions, self._np).load()
            if known.keys() >= set(self._hashes):
                self._use(known)
                return
        self._filler = threading.Thread(target=self._fill, name="kitbag-text-vectors", daemon=True)
        self._filler.start()

    def _fill(self) -> None:
        with contextlib.suppress(EndpointError):
            if not self._encoder.dimensions:
                self._encoder.encode_skills(self._texts[:1])
            cache = VectorCache(self._path, self._encoder.dimensions, self._np)
            known = cache.load()
            missing = [at for at, key in enumerate(self._hashes) if key not in known]
            for start in range(0, len(missing), _SAVED_AT_ONCE):
                if self._stop.is_set():
                    return
                some = missing[start : start + _SAVED_AT_ONCE]
                vectors = self._encoder.encode_skills([self._texts[at] for at in some]).astype(self._np.float16)
                new = {self._hashes[at]: vector for at, vector in zip(some, vectors, strict=True)}
                cache.append(new)
                known.update(new)
            self._use(known)

    def _use(self, known: "dict[bytes, ndarray[Any, Any]]") -> None:
        if self._hashes:
            matrix = self._np.stack([known[key] for key in self._hashes]).astype(self._np.float32)
            self._matrix = matrix if self._np.isfinite(matrix).all() else None
        self._texts = []

    def stop(self) -> None:
        self._stop.set()

    def wait_until_filled(self, seconds: float) -> None:
        if self._filler is not None:
            self._filler.join(seconds)

    def similarities(self, message: str, weights: Mapping[str, float]) -> "ndarray[Any, Any] | None":
        """The cosine of the message and each text, by position; None as long as vectors are missing. Of a long
        message, the part that is most similar to a text counts, and all parts together. `weights`: of its terms, by
        key."""
        matrix = self._matrix
        vectors = self._encoder.encode_message(message, weights) if matrix is not None else None
        if matrix is None or vectors is None or vectors.shape[1] != matrix.shape[1]:
            return None
        if not self._np.isfinite(vectors).all():  # damaged weights
            return None
        if len(vectors) == 1:
            return matrix @ vectors[0]
        together = vectors.sum(axis=0)
        cosines = matrix @ self._np.vstack([vectors, together / self._np.linalg.norm(together)]).T
        return 0.5 * cosines[:, :-1].max(axis=1) + 0.5 * cosines[:, -1]


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=HASH_SIZE).digest()
