"""Servers that send too much, too slowly, too little, or nonsense."""

import gzip
import itertools
import socket
import threading
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kitbag.net.errors import FetchError
from kitbag.net.exchange import NetworkRoute
from kitbag.net.fetch import fetch_sync
from kitbag.net.policy import FetchLimits, HostPolicy
from support.matrix import examples
from support.servers import Everywhere, Get, Serve, reply
from support.waiting import TEST_TIMEOUT

MEGA = 1024 * 1024
OK = b"HTTP/1.1 200 OK\r\n"


def test_two_gigabytes_are_cut_at_the_limit_and_not_kept(serve: Serve, get: Get) -> None:
    def flood(path: str, to: socket.socket) -> None:
        to.sendall(OK + b"Content-Type: text/plain\r\nContent-Length: 2147483648\r\n\r\n")
        for _ in range(2048):
            to.sendall(b"x" * MEGA)

    server = serve(flood)
    tracemalloc.start()
    try:
        fetched = get(f"http://docs.example:{server.port}/", server, limits=FetchLimits(body_bytes=MEGA))
        assert tracemalloc.get_traced_memory()[1] < 8 * MEGA
    finally:
        tracemalloc.stop()
    assert fetched.text == "x" * MEGA
    assert fetched.truncated
    assert "exceeds 1,048,576 bytes" in fetched.truncation_reason
    assert server.closed_by_client.wait(TEST_TIMEOUT)
    with pytest.raises(FetchError) as caught:
        get(f"http://docs.example:{server.port}/", server, limits=FetchLimits(body_bytes=MEGA, on_excess="refuse"))
    assert caught.value.kind == "limit"


@pytest.mark.parametrize("size", [0, 1, 999, 1000])
@pytest.mark.parametrize("framing", ["length", "chunks", "close"])
def test_a_body_of_just_the_limit_is_whole(size: int, framing: str, serve: Serve, get: Get) -> None:
    body = b"x" * size
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (size, body) if size else b"0\r\n\r\n"
    sent = {
        "length": reply(body),
        "chunks": OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
        "close": OK + b"\r\n" + body,
    }
    server = serve(sent[framing])
    fetched = get(f"http://docs.example:{server.port}/", server, limits=FetchLimits(body_bytes=1000, wire_bytes=1000))
    assert (fetched.body, fetched.truncation_reason) == (body, "")


@pytest.mark.parametrize("limits", [FetchLimits(body_bytes=1000), FetchLimits(wire_bytes=1000)])
def test_a_body_without_end_is_cut(limits: FetchLimits, serve: Serve, get: Get) -> None:
    def endless(path: str, to: socket.socket) -> None:
        to.sendall(OK + (b"\r\n" if path == "/" else b"Transfer-Encoding: chunked\r\n\r\n"))
        while True:
            to.sendall(b"x" * 100_000 if path == "/" else b"1;" + b"e" * 5000 + b"\r\nx\r\n")

    server = serve(endless)
    for path in ("/", "/chunks"):
        fetched = get(f"http://docs.example:{server.port}{path}", server, limits=limits)
        assert fetched.truncated
        assert len(fetched.body) <= 200_000


def test_a_gzip_bomb_does_not_go_off(serve: Serve, get: Get) -> None:
    server = serve(reply(gzip.compress(b"\0" * (50 * MEGA)), "200 OK", "Content-Encoding: gzip"))
    tracemalloc.start()
    try:
        fetched = get(f"http://docs.example:{server.port}/", server, limits=FetchLimits(body_bytes=MEGA))
        assert tracemalloc.get_traced_memory()[1] < 8 * MEGA
    finally:
        tracemalloc.stop()
    assert len(fetched.body) == MEGA
    assert fetched.truncated


def test_a_bomb_in_two_wrappings_is_refused(serve: Serve, get: Get) -> None:
    bomb = gzip.compress(gzip.compress(b"\0" * (10 * MEGA)))
    for headers in (["Content-Encoding: gzip, gzip"], ["Content-Encoding: gzip", "Content-Encoding: gzip"]):
        server = serve(reply(bomb, "200 OK", *headers))
        with pytest.raises(FetchError) as caught:
            get(f"http://docs.example:{server.port}/", server)
        assert caught.value.kind == "response"


def drip(first: bytes, drop: bytes = b"x") -> "tuple[threading.Event, object]":
    """A server that sends a byte now and then, until it is told to stop or the client goes."""
    stop = threading.Event()

    def answer(path: str, to: socket.socket) -> None:
        to.sendall(first)
        while not stop.wait(0.02):
            to.sendall(drop)

    return stop, answer


def test_a_slow_drip_ends_with_the_time_and_what_came_is_kept(serve: Serve, get: Get) -> None:
    stop, answer = drip(OK + b"Content-Length: 1000000\r\n\r\nbegin")
    server = serve(answer)
    fetched = get(f"http://docs.example:{server.port}/", server, limits=FetchLimits(total_timeout=2))
    assert fetched.body.startswith(b"begin")
    assert "2 seconds" in fetched.truncation_reason
    assert server.closed_by_client.wait(TEST_TIMEOUT)
    with pytest.raises(FetchError):
        get(f"http://docs.example:{server.port}/", server, limits=FetchLimits(total_timeout=0.5, on_excess="refuse"))
    stop.set()


@pytest.mark.parametrize(
    ("first", "drop"), [(b"", b"H"), (b"HTTP/1.1 200 OK\r\nX: ", b"x"), (b"", b"HTTP/1.1 100 Continue\r\n\r\n")]
)
def test_a_head_that_drips_ends_with_the_time(first: bytes, drop: bytes, serve: Serve, get: Get) -> None:
    stop, answer = drip(first, drop)
    server = serve(answer)
    with pytest.raises(FetchError) as caught:
        get(f"http://docs.example:{server.port}/?q", server, limits=FetchLimits(total_timeout=0.5))
    assert caught.value.kind in ("time", "response")
    stop.set()


def test_silence_ends_before_the_whole_time(serve: Serve, get: Get) -> None:
    stop = threading.Event()

    def silent(path: str, to: socket.socket) -> None:
        if path == "/body":
            to.sendall(OK + b"Content-Length: 10\r\n\r\nabc")
        stop.wait(TEST_TIMEOUT)

    server = serve(silent)
    limits = FetchLimits(total_timeout=TEST_TIMEOUT, idle_timeout=1.0)
    with pytest.raises(FetchError) as caught:
        get(f"http://docs.example:{server.port}/head", server, limits=limits)
    assert caught.value.kind == "time"
    fetched = get(f"http://docs.example:{server.port}/body", server, limits=limits)
    assert (fetched.body, fetched.truncated) == (b"abc", True)
    stop.set()


@pytest.mark.parametrize(
    "lines",
    [
        itertools.repeat(b"X-Header: value\r\n", 1000),
        itertools.repeat(b"X-Long: " + b"x" * 10_000 + b"\r\n", 100),
        [b"X-Endless: ", *[b"x" * 10_000] * 1000],
        itertools.chain([b"X-Folded: a\r\n"], itertools.repeat(b" b\r\n", 100_000)),
    ],
)
def test_a_flood_of_headers_is_refused(lines: "itertools.repeat[bytes]", serve: Serve, get: Get) -> None:
    def flood(path: str, to: socket.socket) -> None:
        to.sendall(OK)
        for line in lines:
            to.sendall(line)
        to.sendall(b"Content-Length: 0\r\n\r\n")

    server = serve(flood)
    with pytest.raises(FetchError) as caught:
        get(f"http://docs.example:{server.port}/", server)
    assert caught.value.kind == "limit"


def test_a_flood_of_answers_before_the_answer_is_refused(serve: Serve, get: Get) -> None:
    def flood(path: str, to: socket.socket) -> None:
        while True:
            to.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

    server = serve(flood)
    with pytest.raises(FetchError) as caught:
        get(f"http://docs.example:{server.port}/", server)
    assert caught.value.kind == "limit"


def test_trailers_without_end_are_not_read(serve: Serve, get: Get) -> None:
    def flood(path: str, to: socket.socket) -> None:
        to.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n")
        while True:
            to.sendall(b"X-Trailer: value\r\n" * 1000)

    server = serve(flood)
    fetched = get(f"http://docs.example:{server.port}/", server)
    assert (fetched.body, fetched.truncated) == (b"abc", True)


CUT = {
    "chunked, cut in a chunk": b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
    "chunked, without an end": b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "chunked, size is nonsense": b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
    "chunked, size is negative": b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n-3\r\n",
    "chunked, size is huge": b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nffffffffffffffffffff\r\n",
    "chunked, longer than its size": b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
    "shorter than its length": b"Content-Length: 10\r\n\r\nabc",
}


@pytest.mark.parametrize("case", CUT)
def test_a_body_that_ends_early_is_kept_and_marked_or_refused(case: str, serve: Serve, get: Get) -> None:
    server = serve(OK + CUT[case])
    fetched = get(f"http://docs.example:{server.port}/", server)
    assert (fetched.body, fetched.truncation_reason) == (b"abc", "ended early")
    with pytest.raises(FetchError):
        get(f"http://docs.example:{server.port}/", server, limits=FetchLimits(on_excess="refuse"))


def test_compressed_data_that_ends_early_is_marked_though_its_length_is_right(serve: Serve, get: Get) -> None:
    server = serve(reply(gzip.compress(b"x" * 5000)[:-10], "200 OK", "Content-Encoding: gzip"))
    assert get(f"http://docs.example:{server.port}/", server).truncated


UNCLEAR = {
    "two lengths": b"Content-Length: 3\r\nContent-Length: 5\r\n\r\nabcde",
    "a list of lengths": b"Content-Length: 3, 5\r\n\r\nabcde",
    "a negative length": b"Content-Length: -3\r\n\r\nabc",
    "a length with a sign": b"Content-Length: +3\r\n\r\nabc",
    "a huge length": b"Content-Length: " + b"9" * 50 + b"\r\n\r\nabc",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "an unknown coding": b"Transfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "a space before the colon": b"Content-Length : 3\r\n\r\nabc",
    "a NUL in a header": b"X: a\0b\r\nContent-Length: 3\r\n\r\nabc",
    "a folded first header": b" folded\r\nContent-Length: 3\r\n\r\nabc",
}


@pytest.mark.parametrize("case", UNCLEAR)
def test_an_answer_that_could_be_read_in_two_ways_is_refused(case: str, serve: Serve, get: Get) -> None:
    server = serve(OK + UNCLEAR[case])
    with pytest.raises(FetchError) as caught:
        get(f"http://docs.example:{server.port}/", server)
    assert caught.value.kind == "response"


def test_a_second_answer_behind_the_first_is_nobodys(serve: Serve, get: Get) -> None:
    server = serve(reply(b"first") + reply(b"second"))
    for _ in range(2):
        assert get(f"http://docs.example:{server.port}/", server).body == b"first"
    assert len(server.heads) == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\r\n",
        b"hello",
        b"SSH-2.0-OpenSSH_9.0\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused(answer: bytes, serve: Serve, get: Get) -> None:
    server = serve(answer)
    with pytest.raises(FetchError) as caught:
        get(f"http://docs.example:{server.port}/", server)
    assert caught.value.kind in ("response", "network")


def test_a_port_where_nobody_listens_can_not_be_connected_to(serve: Serve, get: Get) -> None:
    server = serve(b"")
    server.close()
    with pytest.raises(FetchError) as caught:
        get(f"http://docs.example:{server.port}/", server)
    assert caught.value.kind == "network"


PIECES = [
    OK,
    b"HTTP/1.1 302 Found\r\n",
    b"HTTP/1.0 200\r\n",
    b"\r\n",
    b"\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Encoding: gzip\r\n",
]
PIECES += [
    b"Location: /x\r\n",
    b"Content-Type: text/html; charset=x\r\n",
    b"3\r\nabc\r\n",
    b"0\r\n\r\n",
    b"\r\n\r\n",
    b"\x1f\x8b\x08\0",
    b"\0",
    b"\xff" * 9,
    b"HTTP/1.1 100 C\r\n\r\n",
]


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), max_size=12).map(b"".join))
def test_any_answer_is_a_result_or_a_fetch_error(serve: Serve, answer: bytes) -> None:
    server = serve(answer)
    policy = HostPolicy(allow_private=[f"docs.example:{server.port}"])
    url, limits = f"http://docs.example:{server.port}/", FetchLimits(total_timeout=TEST_TIMEOUT)
    try:
        shown = fetch_sync(url, policy=policy, limits=limits, route=NetworkRoute(resolver=Everywhere())).text or ""
    except FetchError as error:
        shown = error.problem
    finally:
        server.close()
    assert isinstance(shown, str)
