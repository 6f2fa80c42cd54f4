"""The vectors of a library's skills, and how similar a message is to each.

Used by search_index.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kitbag.library.routing.vectors.text_vectors import TextVectors

if TYPE_CHECKING:
    from kitbag.library.routing.vectors.embeddings_endpoint import EmbeddingsEndpoint
    from kitbag.library.routing.vectors.sentence_encoder import SentenceEncoder
    from kitbag.library.skills import Skill


class SkillVectors(TextVectors):
    def __init__(
        self, encoder: "SentenceEncoder | EmbeddingsEndpoint", kitbag_home: str, skills: "Sequence[Skill]"
    ) -> None:
        super().__init__(encoder, kitbag_home, [f"{skill.name.replace('-', ' ')}. {skill.summary}" for skill in skills])
