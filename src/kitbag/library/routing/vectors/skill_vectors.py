"""The vectors of a library's skills, and how similar a message is to each.

Used by skill_search if the extra `semantic` is installed and there is a model. Vectors are computed in a thread, cached
by content; until all are there, ranking does without. Never raises: a model that can't be used is reported once.
"""

import hashlib
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kitbag.library.routing.vectors.model_weights import ModelFilesError
from kitbag.library.routing.vectors.sentence_encoder import SentenceEncoder
from kitbag.library.routing.vectors.vector_cache import HASH_SIZE, VectorCache

if TYPE_CHECKING:
    from numpy import ndarray

    from kitbag.library.skills import Skill

_SKILL_TOKENS, _CHUNK_TOKENS = 96, 64
_MAX_CHUNKS: Final = 4
_MAX_CHARACTERS: Final = 20_000
_SAVED_AT_ONCE: Final = 64
_encoders: dict[str, SentenceEncoder | str] = {}
"""By folder; a text is the reason why the model can't be used."""
_lock = threading.Lock()


def open_encoder(folder: str) -> SentenceEncoder | str:
    """The encoder, or why there is none. Opened once per process."""
    with _lock:
        known = _encoders.get(folder)
        if known is None:
            try:
                known = SentenceEncoder(folder)
            except ImportError:
                known = "numpy is not installed: pip install 'kitbag[semantic]'"
            except (ModelFilesError, OSError, ValueError, MemoryError) as error:
                known = str(error)
            _encoders[folder] = known
        return known


class SkillVectors:
    def __init__(self, encoder: SentenceEncoder, kitbag_home: str, skills: "Sequence[Skill]") -> None:
        self._encoder = encoder
        self._np = encoder.numpy
        path = os.path.join(kitbag_home, "cache", f"{encoder.fingerprint}.vectors")
        self._cache = VectorCache(path, encoder.dimensions, self._np)
        self._texts = [f"{skill.name.replace('-', ' ')}. {skill.summary}" for skill in skills]
        self._hashes = [_hash(text) for text in self._texts]
        self._matrix: ndarray[Any, Any] | None = None
        self._stop = threading.Event()
        known = self._cache.load()
        missing = [at for at, key in enumerate(self._hashes) if key not in known]
        self._filler: threading.Thread | None = None
        if missing:
            self._filler = threading.Thread(
                target=self._fill, args=(known, missing), name="kitbag-skill-vectors", daemon=True
            )
            self._filler.start()
        else:
            self._use(known)

    def _fill(self, known: "dict[bytes, ndarray[Any, Any]]", missing: list[int]) -> None:
        for start in range(0, len(missing), _SAVED_AT_ONCE):
            if self._stop.is_set():
                return
            some = missing[start : start + _SAVED_AT_ONCE]
            tokens = [self._encoder.tokenize(self._texts[at][:2_000])[:_SKILL_TOKENS] for at in some]
            vectors = self._encoder.encode(tokens).astype(self._np.float16)
            new = {self._hashes[at]: vector for at, vector in zip(some, vectors, strict=True)}
            self._cache.append(new)
            known.update(new)
        self._use(known)

    def _use(self, known: "dict[bytes, ndarray[Any, Any]]") -> None:
        if self._hashes:
            self._matrix = self._np.stack([known[key] for key in self._hashes]).astype(self._np.float32)
        self._texts = []

    def stop(self) -> None:
        self._stop.set()

    def wait_until_filled(self, seconds: float) -> None:
        if self._filler is not None:
            self._filler.join(seconds)

    def similarities(self, message: str) -> "ndarray[Any, Any] | None":
        """The cosine of the message and each skill, by position; None as long as vectors are missing. Of a long
        message, the part that is most similar to a skill counts, and all parts together."""
        matrix = self._matrix
        tokens = self._encoder.tokenize(message[:_MAX_CHARACTERS]) if matrix is not None else []
        if matrix is None or not tokens:
            return None
        chunks = [tokens[start : start + _CHUNK_TOKENS] for start in range(0, len(tokens), _CHUNK_TOKENS)]
        if len(chunks) > _MAX_CHUNKS:
            chunks = [*chunks[: _MAX_CHUNKS - 1], tokens[-_CHUNK_TOKENS:]]
        vectors = self._encoder.encode(chunks)
        if len(chunks) > 1:
            together = vectors.sum(axis=0)
            vectors = self._np.vstack([vectors, together / self._np.linalg.norm(together)])
        cosines = matrix @ vectors.T
        return cosines[:, 0] if len(chunks) == 1 else 0.5 * cosines[:, :-1].max(axis=1) + 0.5 * cosines[:, -1]


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=HASH_SIZE).digest()
