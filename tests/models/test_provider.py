"""The pieces of a reply."""

from kitbag.models.provider import CallBegun, TextPiece, ThinkingPiece


def test_pieces_of_different_kinds_are_never_equal() -> None:
    assert TextPiece("x") == TextPiece("x")
    assert TextPiece("x") != ThinkingPiece("x")
    assert CallBegun("c1", "Read") != ("c1", "Read")
