"""https: the name is what is proven, whatever address it leads to."""

import gc
import ssl
from pathlib import Path

import pytest

from kitbag.net.errors import FetchError
from kitbag.net.exchange import NetworkRoute
from kitbag.net.fetch import fetch_sync
from kitbag.net.policy import FetchLimits, HostPolicy
from support.servers import Everywhere, Internet, Names, Serve, redirect, reply


@pytest.fixture
def server_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


@pytest.fixture
def trusting(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate[0]))


def test_the_name_is_sent_and_proven_while_the_address_is_pinned(
    serve: Serve, server_tls: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    server, network = serve(reply(b"safe"), tls=server_tls), Internet()
    route = NetworkRoute(resolver=Names(docs_example=["93.184.216.34"]), network=network, tls=trusting)
    fetched = fetch_sync(f"https://DOCS.example.:{server.port}/", policy=HostPolicy(), route=route)
    assert (fetched.body, fetched.address) == (b"safe", "93.184.216.34")
    assert server.names == ["docs.example"]
    assert f"Host: docs.example:{server.port}\r\n" in server.heads[0]
    assert network.connected == ["93.184.216.34"]


@pytest.mark.parametrize("host", ["other.example", "sub.docs.example", "127.0.0.1"])
def test_a_certificate_for_another_name_is_refused(
    host: str, serve: Serve, server_tls: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    server = serve(reply(b"secret"), tls=server_tls)
    policy = HostPolicy(allow_private=[f"{host}:{server.port}"])
    with pytest.raises(FetchError) as caught:
        fetch_sync(
            f"https://{host}:{server.port}/", policy=policy, route=NetworkRoute(resolver=Everywhere(), tls=trusting)
        )
    assert caught.value.kind == "certificate"
    assert server.heads == []


def test_a_certificate_that_nobody_vouches_for_is_refused(serve: Serve, server_tls: ssl.SSLContext) -> None:
    server = serve(reply(b"secret"), tls=server_tls)
    policy = HostPolicy(allow_private=[f"docs.example:{server.port}"])
    with pytest.raises(FetchError) as caught:
        fetch_sync(f"https://docs.example:{server.port}/", policy=policy, route=NetworkRoute(resolver=Everywhere()))
    assert caught.value.kind == "certificate"
    assert server.heads == []


def test_a_context_that_checks_nothing_is_not_used() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with pytest.raises(ValueError, match="verify certificates"):
        fetch_sync("https://docs.example/", policy=HostPolicy(), route=NetworkRoute(resolver=Everywhere(), tls=context))


def test_a_plain_server_where_tls_is_expected_is_an_error(serve: Serve, trusting: ssl.SSLContext) -> None:
    server = serve(greeting=b"220 mail.example ESMTP\r\n")
    policy = HostPolicy(allow_private=[f"docs.example:{server.port}"])
    with pytest.raises(FetchError) as caught:
        fetch_sync(
            f"https://docs.example:{server.port}/",
            policy=policy,
            route=NetworkRoute(resolver=Everywhere(), tls=trusting),
        )
    assert caught.value.kind == "network"


def test_a_tls_greeting_that_is_never_answered_ends_with_the_time_and_is_closed(
    serve: Serve, trusting: ssl.SSLContext
) -> None:
    server = serve()
    policy = HostPolicy(allow_private=[f"docs.example:{server.port}"])
    for limits in (FetchLimits(total_timeout=0.3), FetchLimits(connect_timeout=0.3)):
        with pytest.raises(FetchError) as caught:
            fetch_sync(
                f"https://docs.example:{server.port}/",
                policy=policy,
                limits=limits,
                route=NetworkRoute(resolver=Everywhere(), tls=trusting),
            )
        assert caught.value.kind == "time"
        del caught
        gc.collect()  # a connection that was forgotten would be a warning, and that an error


def test_a_redirect_from_https_to_http_is_refused(
    serve: Serve, server_tls: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    plain = serve(reply(b"secret"))
    safe = serve(redirect(f"http://docs.example:{plain.port}/"), tls=server_tls)
    policy = HostPolicy(allow_private=[f"docs.example:{plain.port}", f"docs.example:{safe.port}"])
    with pytest.raises(FetchError, match="https to http"):
        fetch_sync(
            f"https://docs.example:{safe.port}/", policy=policy, route=NetworkRoute(resolver=Everywhere(), tls=trusting)
        )
    assert plain.heads == []


def test_a_redirect_from_http_to_https_is_followed(
    serve: Serve, server_tls: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    safe = serve(reply(b"safe"), tls=server_tls)
    plain = serve(redirect(f"https://docs.example:{safe.port}/"))
    policy = HostPolicy(allow_private=[f"docs.example:{plain.port}", f"docs.example:{safe.port}"])
    fetched = fetch_sync(
        f"http://docs.example:{plain.port}/", policy=policy, route=NetworkRoute(resolver=Everywhere(), tls=trusting)
    )
    assert fetched.body == b"safe"
    assert not fetched.redirects[0].is_cross_host
