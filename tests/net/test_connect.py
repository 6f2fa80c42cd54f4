"""Connections go to addresses that were checked, and nowhere else."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from kitbag.net.connect import ByteMeter, GuardedNetwork, resolve_host
from kitbag.net.errors import FetchError
from kitbag.net.exchange import NetworkRoute
from kitbag.net.fetch import fetch_sync
from kitbag.net.policy import FetchLimits, HostPolicy
from kitbag.net.urls import parse_url
from support.servers import Internet, Names, Serve, reply

PUBLIC, PUBLIC6 = "93.184.216.34", "2606:4700::1111"


def test_the_connection_goes_to_the_address_that_was_checked(serve: Serve) -> None:
    server, network, names = serve(reply(b"hello")), Internet(), Names(docs_example=[PUBLIC])
    fetched = fetch_sync(
        f"http://docs.example:{server.port}/", policy=HostPolicy(), route=NetworkRoute(resolver=names, network=network)
    )
    assert fetched.body == b"hello"
    assert fetched.address == PUBLIC
    assert network.connected == [PUBLIC]
    assert names.asked == ["docs.example"]
    assert f"Host: docs.example:{server.port}\r\n" in server.heads[0]


def test_a_name_that_turns_private_is_blocked_when_it_is_connected_to_again(serve: Serve) -> None:
    server, network = serve(reply(b"hello")), Internet()
    route = NetworkRoute(resolver=Names(docs_example=[[PUBLIC], ["127.0.0.1"]]), network=network)
    url = f"http://docs.example:{server.port}/"
    assert fetch_sync(url, policy=HostPolicy(), route=route).status == 200
    with pytest.raises(FetchError) as caught:
        fetch_sync(url, policy=HostPolicy(), route=route)
    assert caught.value.kind == "address"
    assert network.connected == [PUBLIC]


def test_a_name_that_turns_private_between_two_redirects_is_blocked(serve: Serve) -> None:
    server = serve(lambda path, to: to.sendall(reply(b"", "302 Found", "Location: /next")))
    network = Internet()
    route = NetworkRoute(resolver=Names(docs_example=[[PUBLIC], ["169.254.169.254"]]), network=network)
    with pytest.raises(FetchError) as caught:
        fetch_sync(f"http://docs.example:{server.port}/", policy=HostPolicy(), route=route)
    assert caught.value.kind == "address"
    assert network.connected == [PUBLIC]
    assert server.paths == ["/"]


@pytest.mark.parametrize(
    "answer",
    [
        ["127.0.0.1"],
        [PUBLIC, "127.0.0.1"],
        ["10.0.0.1", PUBLIC],
        [PUBLIC, PUBLIC6, "::ffff:10.0.0.1"],
        [PUBLIC6, "64:ff9b::7f00:1"],
        ["fe80::1%eth0"],
        [PUBLIC, "fe80::1%1"],
        ["0.0.0.0"],
        ["::"],
        ["255.255.255.255"],
        [*[f"93.184.216.{number}" for number in range(200)], "192.168.1.1"],
        ["not an address"],
        [],
    ],
)
def test_one_bad_address_in_an_answer_refuses_them_all(answer: Sequence[str], serve: Serve) -> None:
    server, network = serve(reply(b"secret")), Internet()
    with pytest.raises(FetchError):
        fetch_sync(
            f"http://docs.example:{server.port}/",
            policy=HostPolicy(),
            route=NetworkRoute(resolver=Names(docs_example=answer), network=network),
        )
    assert network.connected == []
    assert server.heads == []


def test_a_connection_that_ends_somewhere_else_is_dropped_before_anything_is_sent(serve: Serve) -> None:
    server, network = serve(reply(b"secret")), Internet(honest=True)
    route = NetworkRoute(resolver=Names(docs_example=[PUBLIC]), network=network)
    with pytest.raises(FetchError) as caught:
        fetch_sync(f"http://docs.example:{server.port}/", policy=HostPolicy(), route=route)
    assert caught.value.kind == "address"
    assert network.connected == [PUBLIC]
    assert server.heads == []


def test_this_machine_is_not_reached_by_its_own_public_address(serve: Serve) -> None:
    server = serve(reply(b"secret"))
    route = NetworkRoute(resolver=Names(docs_example=[PUBLIC]), network=Internet(own=PUBLIC))
    for url in (f"http://docs.example:{server.port}/", f"http://{PUBLIC}:{server.port}/"):
        with pytest.raises(FetchError) as caught:
            fetch_sync(url, policy=HostPolicy(), route=route)
        assert caught.value.kind == "address"
    assert server.heads == []
    policy = HostPolicy(allow_private=[f"docs.example:{server.port}"])
    assert fetch_sync(f"http://docs.example:{server.port}/", policy=policy, route=route).body == b"secret"


def test_the_next_address_is_tried_when_one_is_dead_the_families_in_turn(serve: Serve) -> None:
    server = serve(reply(b"hello"))
    dead = [PUBLIC6, "2606:4700::2", "2606:4700::3"]
    network = Internet(dead=dead)
    route = NetworkRoute(resolver=Names(docs_example=[*dead, PUBLIC]), network=network)
    assert fetch_sync(f"http://docs.example:{server.port}/", policy=HostPolicy(), route=route).address == PUBLIC
    assert network.connected == [PUBLIC6, PUBLIC]


def test_a_host_with_only_dead_addresses_can_not_be_connected_to(serve: Serve) -> None:
    dead = [f"93.184.216.{number}" for number in range(50)]
    network = Internet(dead=dead)
    with pytest.raises(FetchError) as caught:
        fetch_sync(
            "http://docs.example/",
            policy=HostPolicy(),
            route=NetworkRoute(resolver=Names(docs_example=dead), network=network),
        )
    assert caught.value.kind == "network"
    assert network.connected == dead[:4]


def test_an_unknown_name_is_an_error_with_its_spelling() -> None:
    with pytest.raises(FetchError, match=r"other\.example") as caught:
        fetch_sync("http://other.example/?hunter2", policy=HostPolicy(), route=NetworkRoute(resolver=Names()))
    assert caught.value.kind == "network"
    assert "hunter2" not in str(caught.value)


def test_a_guard_connects_to_nothing_but_its_own_target() -> None:
    network = Internet()
    guard = GuardedNetwork(
        parse_url("http://docs.example/"), HostPolicy(), ByteMeter(1), Names(docs_example=[PUBLIC]), network
    )
    for host, port in (("docs.example", 81), ("other.example", 80), (PUBLIC, 80)):
        with pytest.raises(FetchError):
            asyncio.run(guard.connect_tcp(host, port))
    with pytest.raises(FetchError):
        asyncio.run(guard.connect_unix_socket("/run/docker.sock"))
    assert network.connected == []


def test_an_ipv6_server_is_reached_by_its_address(serve: Serve) -> None:
    try:
        server = serve(reply(b"six"), host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    policy = HostPolicy(allow_private=[f"[::1]:{server.port}"])
    fetched = fetch_sync(f"http://[0:0::1]:{server.port}/", policy=policy)
    assert (fetched.body, fetched.address, fetched.url) == (b"six", "::1", f"http://[::1]:{server.port}/")
    assert f"Host: [::1]:{server.port}\r\n" in server.heads[0]


def test_the_systems_resolver_is_asked_for_a_local_name() -> None:
    assert set(asyncio.run(resolve_host("localhost"))) <= {"127.0.0.1", "::1"}
    with pytest.raises(OSError):
        asyncio.run(resolve_host("no-such-name.invalid"))


def test_a_lookup_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()

    def never(*_: object, **__: object) -> list[object]:
        end.wait()
        return []

    monkeypatch.setattr("socket.getaddrinfo", never)
    with pytest.raises(FetchError) as caught:
        fetch_sync("http://docs.example/", policy=HostPolicy(), limits=FetchLimits(connect_timeout=0.1))
    assert caught.value.kind == "time"
    end.set()
