"""Fetching, redirects and what is sent."""

import asyncio
import re
import socket
import subprocess
import sys
from typing import Any

import pytest

from kitbag.errors import UsageError
from kitbag.net.errors import FetchError
from kitbag.net.exchange import NetworkRoute
from kitbag.net.fetch import fetch, fetch_sync
from kitbag.net.policy import FetchLimits, HostPolicy
from support.servers import Everywhere, Get, Internet, Names, Serve, redirect, reply
from support.waiting import TEST_TIMEOUT

SECRET = "hunter2"


def test_a_page_comes_back_as_text_with_where_it_came_from(serve: Serve, get: Get) -> None:
    server = serve(
        reply(
            "größe".encode("latin-1"),
            "200 OK",
            "Content-Type: text/HTML; charset=iso-8859-1",
            "ETag: x",
            "Set-Cookie: a=b",
        )
    )
    fetched = get(f"HTTP://Docs.Example.:{server.port}/a/b?q=ü#part", server)
    assert fetched.url == f"http://docs.example:{server.port}/a/b?q=%C3%BC"
    assert (fetched.status, fetched.content_type, fetched.text) == (200, "text/html", "größe")
    assert fetched.headers == (
        ("content-type", "text/HTML; charset=iso-8859-1"),
        ("content-length", "5"),
        ("etag", "x"),
    )
    assert (fetched.redirects, fetched.truncated, fetched.address) == ((), False, "127.0.0.1")
    assert 0 <= fetched.timings.first_response <= fetched.timings.total


def test_a_result_that_is_written_out_holds_no_body_and_no_query(serve: Serve, get: Get) -> None:
    server = serve(reply(b"x" * 100_000))
    shown = repr(get(f"http://docs.example:{server.port}/page?{SECRET}", server))
    assert shown == f"<Fetched 200, 100,000 bytes of http://docs.example:{server.port}/page>"


def test_nothing_of_the_user_is_sent(serve: Serve, get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server = serve(
        lambda path, to: to.sendall(
            reply(b"", "302 Found", "Location: /next", "Set-Cookie: id=1") if path == "/" else reply(b"end")
        )
    )
    assert get(f"http://docs.example:{server.port}/", server).body == b"end"
    for head in server.heads:
        names = re.findall(r"^([\w-]+):", head, re.MULTILINE)
        assert sorted(names) == ["Accept", "Accept-Encoding", "Connection", "Host", "User-Agent"]
        assert re.search(r"^User-Agent: kitbag/\d", head, re.MULTILINE)


def test_an_error_status_is_an_answer(serve: Serve, get: Get) -> None:
    server = serve(reply(b"no such page", "404 Not Found"))
    assert get(f"http://docs.example:{server.port}/", server).status == 404


def test_head_asks_without_a_body(serve: Serve, get: Get) -> None:
    server = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nContent-Encoding: br\r\n\r\nsurprise")
    fetched = get(f"http://docs.example:{server.port}/", server, method="HEAD")
    assert (fetched.status, fetched.body, fetched.truncation_reason) == (200, b"", "")
    assert server.heads[0].startswith("HEAD / HTTP/1.1\r\n")


@pytest.mark.parametrize("method", ["POST", "get", "CONNECT", "GET / HTTP/1.1\r\nX: y"])
def test_other_methods_are_not_sent(method: Any) -> None:
    with pytest.raises(UsageError):
        fetch_sync("http://docs.example/", policy=HostPolicy(), method=method)


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_a_redirect_is_followed_and_told(status: str, serve: Serve, get: Get) -> None:
    server = serve(
        lambda path, to: to.sendall(
            reply(b"end") if path == "/end?a=1" else redirect(f"//other.example:{server.port}/end?a=1", status)
        )
    )
    fetched = get(f"http://docs.example:{server.port}/", server)
    assert fetched.body == b"end"
    assert fetched.url == f"http://other.example:{server.port}/end?a=1"
    assert fetched.redirects == ((int(status[:3]), fetched.url, True),)


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"many", "300 Multiple"),
        reply(b"", "304 Not Modified"),
        reply(b"x", "302 Found"),
        redirect("/x", "305 Use Proxy"),
        redirect("/x", "201 Created"),
    ],
)
def test_what_is_no_redirect_is_the_answer(answer: bytes, serve: Serve, get: Get) -> None:
    server = serve(answer)
    assert get(f"http://docs.example:{server.port}/", server).redirects == ()
    assert server.paths == ["/"]


INSIDE = """http://127.0.0.1:{port}/ http://localhost:{port}/ http://[::1]:{port}/ http://10.0.0.1/ http://169.254.169.254/latest/meta-data/
http://100.64.0.1/ http://0.0.0.0:{port}/ http://0:{port}/ http://[::ffff:7f00:1]:{port}/ http://[0:0:0:0:0:ffff:7f00:1]:{port}/
http://2130706433:{port}/ http://0x7f000001:{port}/ http://017700000001:{port}/ http://0x7f.1:{port}/ http://0177.0.0.1:{port}/ http://127.1:{port}/
http://ok@127.0.0.1:{port}/ //127.0.0.1:{port}/ http://a.localhost:{port}/ http://metadata.google.internal/ http://nas.local/ http://inside.example:{port}/
http://[64:ff9b::7f00:1]:{port}/ http://[2002:7f00:1::]:{port}/ http://[fd00::1]/ http://[fe80::1]/ http://192.168.0.1/ http://172.16.0.1/
http://224.0.0.1/ http://255.255.255.255/ http://198.18.0.1/ http://127。0。0。1:{port}/ http://①②⑦.0.0.1:{port}/
file:///etc/passwd data:text/html,x ftp://docs.example/ gopher://127.0.0.1:{port}/_x javascript:1 http:/\\127.0.0.1:{port}/ http:////127.0.0.1:{port}/ http://[::1"""


@pytest.mark.parametrize("location", INSIDE.split())
def test_no_url_and_no_redirect_leads_inside(location: str, serve: Serve) -> None:
    """The page itself is public: only where it leads is not."""
    server = serve(
        lambda path, to: to.sendall(
            redirect(location.format(port=server.port)) if path == "/start" else reply(b"secret")
        )
    )
    network, names = Internet(), Names(docs_example=["93.184.216.34"], inside_example=["127.0.0.1"])
    for url in (location.format(port=server.port), f"http://docs.example:{server.port}/start"):
        with pytest.raises(FetchError) as caught:
            fetch_sync(
                url,
                policy=HostPolicy(),
                limits=FetchLimits(total_timeout=TEST_TIMEOUT),
                route=NetworkRoute(resolver=names, network=network),
            )
        assert caught.value.kind in ("url", "address")
    assert set(server.paths) <= {"/start"}
    assert set(network.connected) <= {"93.184.216.34"}


def test_a_public_host_can_not_lead_to_what_is_only_open_to_the_user(serve: Serve) -> None:
    server = serve(
        lambda path, to: to.sendall(
            redirect(f"http://localhost:{server.port}/admin") if path == "/" else reply(b"secret")
        )
    )
    policy = HostPolicy(allow_private=[f"localhost:{server.port}"])
    route = NetworkRoute(resolver=Names(docs_example=["93.184.216.34"], localhost=["127.0.0.1"]), network=Internet())
    with pytest.raises(FetchError) as caught:
        fetch_sync(f"http://docs.example:{server.port}/", policy=policy, route=route)
    assert caught.value.kind == "redirect"
    assert caught.value.redirects[-1].url == f"http://localhost:{server.port}/admin"
    assert server.paths == ["/"]
    assert fetch_sync(f"http://localhost:{server.port}/admin", policy=policy, route=route).body == b"secret"


@pytest.mark.parametrize(
    "rules", [{"allow": ["docs.example"]}, {"deny": ["other.example"]}, {"deny": ["*.example"], "allow": ["*"]}]
)
def test_the_rules_for_hosts_hold_on_every_redirect(rules: dict[str, list[str]], serve: Serve, get: Get) -> None:
    server = serve(lambda path, to: to.sendall(redirect(f"http://other.example:{server.port}/?{SECRET}")))
    with pytest.raises(FetchError) as caught:
        get(f"http://docs.example:{server.port}/", server, **rules)
    assert caught.value.kind == "policy"
    assert len(server.heads) <= 1
    assert SECRET not in caught.value.problem + caught.value.fix


def test_the_refused_redirect_is_told_with_the_error(serve: Serve, get: Get) -> None:
    server = serve(lambda path, to: to.sendall(redirect(f"http://other.example:{server.port}/x?y")))
    with pytest.raises(FetchError) as caught:
        get(f"http://docs.example:{server.port}/", server, allow=["docs.example"])
    assert caught.value.redirects == ((302, f"http://other.example:{server.port}/x?y", True),)


def test_thirty_redirects_end_after_five(serve: Serve, get: Get) -> None:
    server = serve(
        lambda path, to: to.sendall(redirect(f"/{int(path[1:]) + 1}") if int(path[1:]) < 30 else reply(b"end"))
    )
    with pytest.raises(FetchError) as caught:
        get(f"http://docs.example:{server.port}/0", server)
    assert caught.value.kind == "redirect"
    assert server.paths == [f"/{number}" for number in range(6)]
    assert get(f"http://docs.example:{server.port}/25", server).body == b"end"
    with pytest.raises(FetchError):
        get(f"http://docs.example:{server.port}/29", server, limits=FetchLimits(redirects=0))


@pytest.mark.parametrize("places", [["/a"], ["/b", "/a"], ["/b", "/c", "/b"]])
def test_a_circle_of_redirects_ends(places: list[str], serve: Serve, get: Get) -> None:
    way = dict(zip(["/a", *places], [*places, places[-1]], strict=True))
    server = serve(lambda path, to: to.sendall(redirect(way[path] + "#again")))
    with pytest.raises(FetchError, match="loop"):
        get(f"http://docs.example:{server.port}/a", server)
    assert len(server.heads) <= 4


@pytest.mark.parametrize(
    "headers",
    [
        ["Location: /a", "Location: /b"],
        ["Location: \xff\xfe"],
        ["Location: /\x1b[31m"],
        ["Location: http://[v1.x]/"],
        ["Location: /a b"],
        ["Location: //"],
        ["Location: http://a.com:x/"],
    ],
)
def test_an_unclear_redirect_is_not_followed(headers: list[str], serve: Serve, get: Get) -> None:
    head = "\r\n".join(["HTTP/1.1 302 Found", "Content-Length: 0", *headers, "", ""])
    server = serve(head.encode("latin-1"))
    with pytest.raises(FetchError):
        get(f"http://docs.example:{server.port}/", server)
    assert server.paths == ["/"]


def test_no_error_text_holds_the_query(serve: Serve, get: Get) -> None:
    answers = [
        b"nonsense\r\n\r\n",
        b"",
        b"HTTP/1.1 101 Switch\r\n\r\n",
        redirect(f"/?{SECRET}"),
        redirect(f"file:///{SECRET}"),
        reply(b"x", "200 OK", f"Content-Encoding: {SECRET}"),
    ]
    for answer in answers:
        server = serve(answer)
        with pytest.raises(FetchError) as caught:
            get(f"http://docs.example:{server.port}/page?token={SECRET}", server, limits=FetchLimits(redirects=1))
        assert SECRET not in caught.value.problem + caught.value.fix
        assert caught.value.fix


def test_a_fetch_can_be_cancelled_and_closes_its_connection(serve: Serve) -> None:
    def hold(path: str, to: socket.socket) -> None:
        to.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        asked.set()
        while to.recv(100):
            pass
        raise ConnectionError

    import threading

    asked = threading.Event()
    server = serve(hold)
    policy = HostPolicy(allow_private=[f"docs.example:{server.port}"])

    async def scene() -> None:
        url = f"http://docs.example:{server.port}/"
        task = asyncio.create_task(
            fetch(
                url,
                policy=policy,
                limits=FetchLimits(total_timeout=600, idle_timeout=600),
                route=NetworkRoute(resolver=Everywhere()),
            )
        )
        assert await asyncio.to_thread(asked.wait, TEST_TIMEOUT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, TEST_TIMEOUT)

    asyncio.run(scene())
    assert server.closed_by_client.wait(TEST_TIMEOUT)


def test_many_fetches_run_beside_each_other(serve: Serve) -> None:
    server = serve(lambda path, to: to.sendall(reply(path.encode())))
    policy = HostPolicy(allow_private=[f"docs.example:{server.port}"])

    async def scene() -> list[bytes]:
        base = f"http://docs.example:{server.port}"
        pages = await asyncio.gather(
            *(
                fetch(f"{base}/{number}", policy=policy, route=NetworkRoute(resolver=Everywhere()))
                for number in range(20)
            )
        )
        return [page.body for page in pages]

    assert asyncio.run(scene()) == [f"/{number}".encode() for number in range(20)]


def test_the_blocking_form_is_not_for_asynchronous_code() -> None:
    async def scene() -> None:
        fetch_sync("http://docs.example/", policy=HostPolicy())

    with pytest.raises(UsageError, match="event loop"):
        asyncio.run(scene())


def test_a_proxy_is_used_when_the_caller_names_one_and_names_are_still_checked(serve: Serve) -> None:
    proxy = serve(reply(b"by proxy"))
    route = NetworkRoute(resolver=Names(), proxy=f"http://127.0.0.1:{proxy.port}")
    assert fetch_sync("http://docs.example/x?y", policy=HostPolicy(), route=route).body == b"by proxy"
    assert proxy.heads[0].startswith("GET http://docs.example:80/x?y HTTP/1.1\r\n")
    for url in (
        "http://localhost/",
        "http://127.0.0.1/",
        "http://10.0.0.1/",
        "http://nas.local/",
        "http://[2606:4700::1]/",
    ):
        with pytest.raises(FetchError):
            fetch_sync(url, policy=HostPolicy(), route=route)
    assert len(proxy.heads) == 1


def test_a_proxy_that_refuses_a_tunnel_is_an_error(serve: Serve) -> None:
    proxy = serve(reply(b"no", "403 \x1b[31mForbidden"))
    route = NetworkRoute(resolver=Names(), proxy=f"http://127.0.0.1:{proxy.port}")
    with pytest.raises(FetchError, match="proxy") as caught:
        fetch_sync("https://docs.example/", policy=HostPolicy(), route=route)
    assert "\x1b" not in str(caught.value)
    assert proxy.heads[0].startswith("CONNECT docs.example:443 HTTP/1.1\r\n")


def test_importing_the_package_imports_no_http_library_and_no_event_loop() -> None:
    modules = "kitbag.net, kitbag.net.fetch, kitbag.net.policy, kitbag.net.hosts, kitbag.net.urls"
    heavy = "{'httpx2', 'httpcore2', 'anyio', 'asyncio', 'ssl', 'socket', 'idna', 'zlib'}"
    code = (
        f"import sys; before = set(sys.modules); import {modules}; print(sorted((set(sys.modules) - before) & {heavy}))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TEST_TIMEOUT, check=True
    )
    assert shown.stdout.strip() == "[]"
