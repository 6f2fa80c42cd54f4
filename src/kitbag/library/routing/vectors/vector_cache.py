"""Caches the vectors of texts in a file, by the hash of the text: one fixed-size record each, only appended.

Used by skill_vectors. One file for each model, below the Kitbag home. A damaged file is started anew; two processes
may append the same vectors. Never raises.
"""

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from numpy import ndarray

HASH_SIZE: Final = 16
_MAGIC: Final = b"kitbag-vectors-1"
_MAX_BYTES: Final = 256 * 1024 * 1024


class VectorCache:
    def __init__(self, path: str, dimensions: int, numpy: Any) -> None:
        self._path = path
        self._np = numpy
        self._record = HASH_SIZE + 2 * dimensions
        self._dimensions = dimensions

    def load(self) -> "dict[bytes, ndarray[Any, Any]]":
        """All vectors by hash, as 16-bit floats."""
        try:
            with open(self._path, "rb") as file:
                data = file.read(_MAX_BYTES)
        except OSError:
            return {}
        if not data.startswith(_MAGIC):
            return {}
        count = (len(data) - len(_MAGIC)) // self._record
        records = self._np.frombuffer(data, dtype=self._np.uint8, offset=len(_MAGIC), count=count * self._record)
        records = records.reshape(count, self._record)
        vectors = records[:, HASH_SIZE:].copy().view("<f2")
        lengths = self._np.linalg.norm(vectors.astype(self._np.float32), axis=1)
        is_valid = self._np.abs(lengths - 1.0) < 0.05  # False for NaN
        return {records[at, :HASH_SIZE].tobytes(): vectors[at] for at in self._np.flatnonzero(is_valid)}

    def append(self, vectors: "dict[bytes, ndarray[Any, Any]]") -> None:
        """Best effort: without the cache, vectors are computed again."""
        data = b"".join(key + vector.astype("<f2").tobytes() for key, vector in vectors.items())
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            descriptor = os.open(self._path, flags, 0o600)
            with os.fdopen(descriptor, "r+b", buffering=0) as file:
                size = os.fstat(descriptor).st_size
                is_whole = size >= len(_MAGIC) and not (size - len(_MAGIC)) % self._record
                if not is_whole or os.pread(descriptor, len(_MAGIC), 0) != _MAGIC:
                    file.truncate(0)
                    data = _MAGIC + data
                file.write(data)
