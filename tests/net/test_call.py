"""A request to an interface that the user named: what is sent goes there and nowhere else."""

import asyncio
import socket

import pytest

from kitbag.net.errors import FetchError
from kitbag.net.fetch import FetchResult, call_api
from kitbag.net.policy import HostPolicy
from support.servers import Serve, Server, redirect, reply


def send(server: Server, body: bytes | None = None, opened: bool = True) -> FetchResult:
    policy = HostPolicy(allow_private=[f"127.0.0.1:{server.port}"] if opened else [])
    headers = (("X-Key", "k1"), ("User-Agent", "mine"))
    return asyncio.run(call_api(f"http://127.0.0.1:{server.port}/a?b=c", policy=policy, headers=headers, body=body))


def test_headers_and_a_body_arrive(serve: Serve) -> None:
    bodies: list[bytes] = []

    def answer(_path: str, connection: socket.socket) -> None:
        body = server.heads[0].encode("latin-1").partition(b"\r\n\r\n")[2]
        while len(body) < 7:
            body += connection.recv(100)
        bodies.append(body)
        connection.sendall(reply(b"fine", "201 Created"))

    server = serve(answer)
    fetched = send(server, b'{"a":1}')
    assert (fetched.status, fetched.body) == (201, b"fine")
    assert bodies == [b'{"a":1}']
    head = server.heads[0]
    assert head.startswith("POST /a?b=c HTTP/1.1\r\n")
    for line in ("X-Key: k1", "User-Agent: mine", "Content-Length: 7", f"Host: 127.0.0.1:{server.port}"):
        assert f"{line}\r\n" in head
    assert head.lower().count("user-agent") == 1


def test_without_a_body_it_is_a_get(serve: Serve) -> None:
    server = serve(reply(b"fine"))
    assert send(server).body == b"fine"
    assert server.heads[0].startswith("GET /a?b=c HTTP/1.1\r\n")
    assert "content-length" not in server.heads[0].lower()


def test_no_redirect_is_followed(serve: Serve) -> None:
    server = serve(redirect("/elsewhere"))
    with pytest.raises(FetchError, match="was not followed") as raised:
        send(server, b"{}")
    assert raised.value.kind == "redirect"
    assert len(server.heads) == 1


def test_it_goes_where_a_fetch_may_go(serve: Serve) -> None:
    server = serve(reply(b"fine"))
    with pytest.raises(FetchError) as raised:
        send(server, b"{}", opened=False)
    assert raised.value.kind == "address"
    assert server.heads == []
