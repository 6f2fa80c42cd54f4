"""One POST after another over real sockets, against servers that are slow, odd and hostile."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from kitbag.models.http.direct import DirectTransport, parse_url
from kitbag.models.http.post import TransportError, has_proxy
from support.waiting import TEST_TIMEOUT, until_true

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


class Server:
    """Answers each request of a connection with the next answer; None: says nothing more."""

    def __init__(self, *answers: bytes | None, close: bool = False) -> None:
        self.answers = list(answers)
        self.close = close
        self.connections = 0
        self.requests: list[bytes] = []
        self.gone = asyncio.Event()
        self.port = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0) if self.answers else None
                if answer is None:
                    await reader.read()
                    return
                writer.write(answer)
                await writer.drain()
                if self.close:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.gone.set()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def serving(server: Server, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    listening = await asyncio.start_server(server, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.port}/v1?x=1"
    finally:
        listening.close()
        await asyncio.wait_for(asyncio.gather(*server.tasks), TEST_TIMEOUT)


async def fetch(post: DirectTransport, url: str, body: bytes = b"{}") -> tuple[int, bytes]:
    async with post.post(url, {"x-key": "k"}, body) as answer:
        return answer.status, b"".join([chunk async for chunk in answer.chunks()])


def run(server: Server, *, times: int = 1) -> list[tuple[int, bytes]]:
    async def go() -> list[tuple[int, bytes]]:
        post = DirectTransport(TEST_TIMEOUT)
        async with serving(server) as url:
            try:
                return [await fetch(post, url) for _ in range(times)]
            finally:
                await post.close()

    return asyncio.run(asyncio.wait_for(go(), TEST_TIMEOUT))


def failure(server: Server) -> TransportError:
    with pytest.raises(TransportError) as caught:
        run(server)
    return caught.value


def test_the_request_is_what_was_asked_for() -> None:
    server = Server(OK)
    assert run(server) == [(200, b"hi")]
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1?x=1 HTTP/1.1"
    assert f"host: 127.0.0.1:{server.port}".encode() in lines
    assert b"x-key: k" in lines
    assert b"content-length: 2" in lines
    assert body == b"{}"


def test_one_connection_serves_many_requests() -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;x=y\r\nhi\r\n0\r\ntrailer: t\r\n\r\n"
    server = Server(OK, chunked, OK)
    assert run(server, times=3) == [(200, b"hi")] * 3
    assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\n\r\nhi",
    ],
)
def test_a_connection_that_ends_with_its_answer_is_not_used_again(answer: bytes) -> None:
    server = Server(answer, answer, close=True)
    assert run(server, times=2) == [(200, b"hi")] * 2
    assert server.connections == 2


def test_a_connection_that_the_server_left_meanwhile_is_not_used_again() -> None:
    async def go() -> int:
        server, post = Server(OK, OK, close=True), DirectTransport(TEST_TIMEOUT)
        async with serving(server) as url:
            assert await fetch(post, url) == (200, b"hi")
            await asyncio.wait_for(server.gone.wait(), TEST_TIMEOUT)
            await until_true(lambda: all(connection.reader.at_eof() for connection in post._idle_connections))
            assert await fetch(post, url) == (200, b"hi")
            await post.close()
        return server.connections

    assert asyncio.run(go()) == 2


def test_an_answer_of_which_the_end_was_not_read_leaves_its_connection_usable() -> None:
    async def go() -> int:
        chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n"
        server, post = Server(chunked, OK), DirectTransport(TEST_TIMEOUT)
        async with serving(server) as url:
            async with post.post(url, {}, b"{}") as answer:
                async for chunk in answer.chunks():
                    assert chunk == b"done"
                    break
            assert await fetch(post, url) == (200, b"hi")
            await post.close()
        return server.connections

    assert asyncio.run(go()) == 1


def test_several_requests_run_at_once() -> None:
    async def go() -> int:
        server, post = Server(*[OK] * 6), DirectTransport(TEST_TIMEOUT)
        async with serving(server) as url:
            found = await asyncio.gather(*(fetch(post, url) for _ in range(3)))
            assert found == [(200, b"hi")] * 3
            await fetch(post, url)
            await post.close()
        return server.connections

    assert asyncio.run(go()) == 3


def test_what_the_server_says_in_between_is_skipped() -> None:
    assert run(Server(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + OK)) == [(200, b"hi")]


def test_a_server_that_refuses_before_it_has_read_all_is_heard() -> None:
    class Refusing(Server):
        async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(b"HTTP/1.1 413 Too large\r\ncontent-length: 4\r\nconnection: close\r\n\r\nlong")
            await writer.drain()
            while await reader.read(1 << 20):
                pass
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self.gone.set()

    async def go() -> tuple[int, bytes]:
        server, post = Refusing(), DirectTransport(TEST_TIMEOUT)
        async with serving(server) as url:
            found = await fetch(post, url, b"x" * 5_000_000)
            await asyncio.wait_for(server.gone.wait(), TEST_TIMEOUT)
            return found

    assert asyncio.run(go()) == (413, b"long")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2, 3\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-length: \xb2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n+2\r\nhi\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nhi\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffff\r\nhi",
        b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 600_000 + b"\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_no_whole_answer_is_an_error(answer: bytes) -> None:
    assert failure(Server(answer, close=True)).kind == "broken"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000 + OK,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 1_000 + b"\r\n",
    ],
)  # fmt: skip
def test_what_could_go_on_forever_ends(answer: bytes) -> None:
    assert failure(Server(answer)).reason.startswith("too many")


def test_where_nobody_listens_nothing_is_reached() -> None:
    async def go() -> TransportError:
        server = Server()
        async with serving(server):
            pass
        with pytest.raises(TransportError) as caught:
            await fetch(DirectTransport(TEST_TIMEOUT), f"http://127.0.0.1:{server.port}/")
        return caught.value

    assert asyncio.run(go()).kind == "unreachable"


def test_leaving_an_answer_that_goes_on_ends_the_connection() -> None:
    async def go() -> None:
        server, post = (
            Server(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n"),
            DirectTransport(TEST_TIMEOUT),
        )
        async with serving(server) as url:
            async with post.post(url, {}, b"{}") as answer:
                async for _ in answer.chunks():
                    break
            assert post._idle_connections == []
            # The server waits for the next request on this connection, and learns that there will be none.
            await asyncio.wait_for(server.gone.wait(), TEST_TIMEOUT)

    asyncio.run(go())


def test_cancelling_ends_the_connection_at_once() -> None:
    async def go() -> None:
        server, post = Server(None), DirectTransport(TEST_TIMEOUT)
        async with serving(server) as url:
            task = asyncio.create_task(fetch(post, url))
            await until_true(lambda: server.requests)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(server.gone.wait(), TEST_TIMEOUT)

    asyncio.run(go())


@pytest.mark.parametrize(
    "url",
    ["", "ftp://h/", "http://", "http://h:99999/", "http://h:x/", "http://[::1/", "http://a b/", "http://\x00/", "h"],
)
def test_what_is_no_address_is_said_to_be_none(url: str) -> None:
    with pytest.raises(TransportError) as caught:
        parse_url(url)
    assert caught.value.kind == "address"


def test_an_address_is_taken_apart() -> None:
    url = parse_url("https://example.com/v1/é x?q=1")
    assert (*url.origin, url.target) == ("https", "example.com", 443, "/v1/%C3%A9%20x?q=1")
    assert parse_url("http://[::1]:8080").host_header == "[::1]:8080"
    assert parse_url("http://bücher.example/").host == "xn--bcher-kva.example"
    assert parse_url("http://a%40b:p%3A@h/").authorization == "Basic YUBiOnA6"


def test_a_header_can_not_bring_another() -> None:
    async def go() -> None:
        async with DirectTransport(TEST_TIMEOUT).post("http://127.0.0.1:9/", {"x-key": "a\r\nevil: b"}, b""):
            pass

    with pytest.raises(TransportError) as caught:
        asyncio.run(go())
    assert caught.value.kind == "address"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        " -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run([*command.split(), "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


@pytest.fixture
def over_tls(certificate: tuple[Path, Path]) -> Callable[[], list[tuple[int, bytes]]]:
    def go() -> list[tuple[int, bytes]]:
        async def both() -> list[tuple[int, bytes]]:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            post = DirectTransport(TEST_TIMEOUT)
            async with serving(Server(OK, OK), context) as url:
                try:
                    return [await fetch(post, url), await fetch(post, url)]
                finally:
                    await post.close()

        return asyncio.run(both())

    return go


def test_a_certificate_that_the_user_trusts_is_accepted(
    over_tls: Callable[[], list[tuple[int, bytes]]], certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    assert over_tls() == [(200, b"hi")] * 2


def test_a_certificate_that_nobody_vouches_for_is_refused(over_tls: Callable[[], list[tuple[int, bytes]]]) -> None:
    with pytest.raises(TransportError) as caught:
        over_tls()
    assert caught.value.kind == "certificate"


@pytest.mark.parametrize(
    ("environment", "proxied"),
    [
        ({}, False),
        ({"HTTPS_PROXY": "http://p:3128"}, True),
        ({"https_proxy": ""}, False),
        ({"all_proxy": "socks5://p"}, True),
        ({"NO_PROXY": "*"}, False),
    ],
)
def test_a_proxy_is_seen_in_the_environment(environment: dict[str, str], proxied: bool) -> None:
    assert has_proxy(environment) == proxied
