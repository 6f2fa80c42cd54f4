"""Vectors of texts from a server that speaks the OpenAI embeddings protocol, which the user's settings name.

Used by skill_vectors in place of a sentence encoder. Sends through `net`, in a thread of its own. A message waits at
most a second for its vector; after a failure, messages do without for a minute.
"""

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kitbag.errors import KitbagError
from kitbag.library.routing.vectors.model_weights import import_numpy

if TYPE_CHECKING:
    from numpy import ndarray

KEY_VARIABLE: Final = "KITBAG_EMBEDDINGS_KEY"
_MESSAGE_SECONDS, _BATCH_SECONDS, _PAUSE_SECONDS = 1.0, 60.0, 60.0
_BATCH: Final = 64
_TEXT_CHARACTERS: Final = 2_000
_PART_CHARACTERS, _MAX_PARTS = 1_200, 4
_MAX_DIMENSIONS: Final = 8_192


class EndpointError(Exception):
    """The server gave no usable answer."""


class _Embedding(msgspec.Struct, frozen=True):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct, frozen=True):
    data: list[_Embedding]


class EmbeddingsEndpoint:
    def __init__(self, url: str, model: str) -> None:
        """`url`: up to and including the version, as in https://host/v1. Raises ImportError without numpy."""
        self.numpy = import_numpy()
        self.dimensions = 0
        """0 until the server answered once."""
        self._url = f"{url.rstrip('/')}/embeddings"
        self._model = model
        self._paused_until = 0.0
        identity = f"{self._url} {model}"
        self.fingerprint = hashlib.blake2b(identity.encode("utf-8", "replace"), digest_size=8).hexdigest()

    def encode_skills(self, texts: Sequence[str]) -> "ndarray[Any, Any]":
        """One row of length 1 for each text. For threads. Raises EndpointError."""
        rows = [self._request(texts[at : at + _BATCH], _BATCH_SECONDS) for at in range(0, len(texts), _BATCH)]
        return self.numpy.vstack(rows)

    def encode_message(self, message: str, weights: Mapping[str, float]) -> "ndarray[Any, Any] | None":
        """One row for each part of a long message; None if the server does not answer in time."""
        del weights
        if time.monotonic() < self._paused_until:
            return None
        parts = [message[at : at + _PART_CHARACTERS] for at in range(0, len(message), _PART_CHARACTERS)]
        if len(parts) > _MAX_PARTS:
            parts = [*parts[: _MAX_PARTS - 1], message[-_PART_CHARACTERS:]]
        found: list[ndarray[Any, Any]] = []

        def ask() -> None:
            with contextlib.suppress(EndpointError):
                found.append(self._request(parts, _MESSAGE_SECONDS))

        thread = threading.Thread(target=ask, name="kitbag-embeddings", daemon=True)
        thread.start()
        thread.join(_MESSAGE_SECONDS)
        if not found:
            self._paused_until = time.monotonic() + _PAUSE_SECONDS
            return None
        return found[0]

    def _request(self, texts: Sequence[str], seconds: float) -> "ndarray[Any, Any]":
        body = msgspec.json.encode({"model": self._model, "input": [_sendable(text) for text in texts]})
        answer = _post(self._url, body, seconds)
        try:
            rows = sorted(msgspec.json.decode(answer, type=_Answer).data, key=lambda one: one.index)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise EndpointError(f"{self._url} sent an unexpected reply: {error}") from error
        sizes = {len(row.embedding) for row in rows}
        if len(rows) != len(texts) or len(sizes) != 1 or not 1 <= max(sizes) <= _MAX_DIMENSIONS:
            raise EndpointError(f"{self._url} sent vectors of an unexpected number or size")
        np = self.numpy
        matrix = np.array([row.embedding for row in rows], dtype=np.float64)
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        if matrix.shape[1] != (self.dimensions or matrix.shape[1]):
            raise EndpointError(f"{self._url} sent vectors of an unexpected size")
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise EndpointError(f"{self._url} sent vectors that have no direction")
        self.dimensions = matrix.shape[1]
        return (matrix / lengths).astype(np.float32)


def _sendable(text: str) -> str:
    """The protocol forbids empty texts."""
    return text[:_TEXT_CHARACTERS].encode("utf-8", "replace").decode().strip() or "."


def _post(url: str, body: bytes, seconds: float) -> bytes:
    """For a thread without an event loop."""
    import asyncio

    from kitbag.net.fetch import call_api
    from kitbag.net.policy import FetchLimits, HostPolicy
    from kitbag.net.urls import parse_url

    key = os.environ.get(KEY_VARIABLE, "")
    headers = (("Content-Type", "application/json"), *((("Authorization", f"Bearer {key}"),) if key else ()))
    limits = FetchLimits(total_timeout=seconds, connect_timeout=min(seconds, 10.0), on_excess="refuse")
    try:
        target = parse_url(url)
        policy = HostPolicy(allow=(target.host,), allow_private=(target.host_port,))
        answer = asyncio.run(call_api(url, policy=policy, headers=headers, body=body, limits=limits))
    except (KitbagError, OSError) as error:
        raise EndpointError(str(error)) from error
    if answer.status != 200:
        raise EndpointError(f"{url} answered with status {answer.status}")
    return answer.body
