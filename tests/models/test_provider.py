"""The pieces of a reply."""

from kitbag.models.provider import TextChunk, ThinkingChunk, ToolCallBegun


def test_pieces_of_different_kinds_are_never_equal() -> None:
    assert TextChunk("x") == TextChunk("x")
    assert TextChunk("x") != ThinkingChunk("x")
    assert ToolCallBegun("c1", "Read") != ("c1", "Read")
