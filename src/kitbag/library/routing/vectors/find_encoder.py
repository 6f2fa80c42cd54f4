"""Which encoder the settings choose for vectors, if any.

Used by search_index and description_search. Imports the encoders only if there is a model or an endpoint.
"""

import os
from typing import TYPE_CHECKING, Final

from kitbag.library.registry import Registry

if TYPE_CHECKING:
    from kitbag.library.routing.vectors.embeddings_endpoint import EmbeddingsEndpoint
    from kitbag.library.routing.vectors.sentence_encoder import SentenceEncoder

_MODEL: Final = "all-minilm-l6-v2"


def find_encoder(registry: Registry) -> "SentenceEncoder | EmbeddingsEndpoint | None":
    """The one that the settings name, or the one that `kitbag setup semantic` installed. A folder without a model costs
    one look."""
    settings = registry.settings
    source = str(settings.get("routing.vectors")) or os.path.join(registry.places.kitbag_home, "models", _MODEL)
    is_url = source.startswith(("https://", "http://"))
    if source == "off" or not (is_url or os.path.isfile(os.path.join(source, "model.safetensors"))):
        return None
    from kitbag.library.routing.vectors.text_vectors import open_encoder

    encoder = open_encoder(source, str(settings.get("routing.embedding_model")) if is_url else "")
    return None if isinstance(encoder, str) else encoder
