"""Bodies are decompressed as they come, and never beyond the limit."""

import contextlib
import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.net.body import ResponseBody
from kitbag.net.errors import FetchError

MEGA = 1024 * 1024


def raw_deflate(data: bytes) -> bytes:
    engine = zlib.compressobj(wbits=-15)
    return engine.compress(data) + engine.flush()


PACKERS = {
    "gzip": gzip.compress,
    "X-GZip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": raw_deflate,
    "": bytes,
    "identity": bytes,
}


@given(
    st.sampled_from(sorted(PACKERS)),
    st.binary(max_size=3000) | st.binary(min_size=1, max_size=3).map(lambda piece: piece * 100_000),
    st.lists(st.integers(1, 5000), max_size=50),
)
def test_a_body_comes_out_whole_however_it_is_cut_on_the_way(coding: str, data: bytes, cuts: list[int]) -> None:
    packed, body = PACKERS[coding](data), ResponseBody(coding, MEGA)
    for size in cuts:
        assert body.feed(packed[:size])
        packed = packed[size:]
    assert body.feed(packed)
    assert bytes(body.content) == data
    assert not body.exceeded_limit
    assert not body.is_incomplete


@pytest.mark.parametrize("coding", ["gzip", "deflate", "Deflate"])
def test_what_zlib_holds_back_when_all_was_given_to_it_comes_too(coding: str) -> None:
    for size in range(64 * 1024 - 2, 64 * 1024 + 260):
        body = ResponseBody(coding, MEGA)
        assert body.feed(PACKERS[coding](b"x" * size))
        assert len(body.content) == size


@given(st.sampled_from(sorted(PACKERS)), st.binary(min_size=1, max_size=2000), st.integers(0, 2000))
def test_no_more_than_the_limit_is_kept(coding: str, data: bytes, limit: int) -> None:
    body = ResponseBody(coding, limit)
    wanted = body.feed(PACKERS[coding](data))
    assert bytes(body.content) == data[:limit]
    assert body.exceeded_limit is (not wanted) is (len(data) > limit)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_bomb_is_stopped_at_the_limit_without_being_unfolded(coding: str) -> None:
    bomb = PACKERS[coding](b"\0" * (50 * MEGA))
    body = ResponseBody(coding, MEGA)
    tracemalloc.start()
    try:
        assert not body.feed(bomb)
        assert tracemalloc.get_traced_memory()[1] < 4 * MEGA
    finally:
        tracemalloc.stop()
    assert len(body.content) == MEGA


def test_a_bomb_in_a_bomb_is_unfolded_once() -> None:
    body = ResponseBody("gzip", MEGA)
    assert body.feed(gzip.compress(gzip.compress(b"\0" * (50 * MEGA))))
    assert len(body.content) < MEGA


def test_members_that_follow_each_other_are_one_body() -> None:
    body = ResponseBody("gzip", MEGA)
    assert body.feed(gzip.compress(b"one ") + gzip.compress(b"") * 5000 + gzip.compress(b"two") + b"\0\0padding")
    assert bytes(body.content) == b"one two"
    assert not body.is_incomplete


@pytest.mark.parametrize(
    "codings", ["br", "zstd", "lzw", "gzip, gzip", "gzip,br", "gzip+deflate", "gzip;q=1", "\x1b[31m"]
)
def test_a_coding_that_was_not_asked_for_is_refused(codings: str) -> None:
    assert ResponseBody(codings, 10).feed(b"")
    with pytest.raises(FetchError) as caught:
        ResponseBody(codings, 10).feed(b"x")
    assert caught.value.kind == "response"
    assert codings not in str(caught.value)


@given(st.sampled_from(["gzip", "deflate"]), st.binary(min_size=1))
def test_damaged_data_is_an_error_or_a_bounded_body(coding: str, data: bytes) -> None:
    body = ResponseBody(coding, 1000)
    with contextlib.suppress(FetchError):
        body.feed(data)
    assert len(body.content) <= 1000


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_data_that_ends_early_is_noticed(coding: str) -> None:
    packed = PACKERS[coding](b"some text that is long enough")
    for end in range(1, len(packed)):
        body = ResponseBody(coding, 1000)
        body.feed(packed[:end])
        assert body.is_incomplete
