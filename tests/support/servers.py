"""Servers on loopback that answer with whatever bytes a test wants, and routes that lead names to them."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any

import httpcore2

from kitbag.net.fetch import FetchResult
from support.waiting import TEST_TIMEOUT

Answer = Callable[[str, socket.socket], None]


def reply(body: bytes = b"", status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    return reply(b"moved", status, f"Location: {location}")


class Server:
    """Takes one request for each connection, remembers it, and answers by its path."""

    def __init__(self, answer: Answer | bytes, tls: ssl.SSLContext | None, host: str, greeting: bytes) -> None:
        self.heads: list[str] = []
        self.names: list[str | None] = []
        """The name in each TLS greeting."""
        self.closed_by_client = threading.Event()
        self._answer = answer
        self._tls = tls
        self._greeting = greeting
        if tls is not None:
            tls.sni_callback = lambda _stream, name, _context: self.names.append(name)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @property
    def paths(self) -> list[str]:
        return [head.split(" ", 2)[1] for head in self.heads]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(TEST_TIMEOUT)
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            connection.sendall(self._greeting)
            head = b""
            while b"\r\n\r\n" not in head:
                piece = connection.recv(65536)
                if not piece:
                    return
                head += piece
            self.heads.append(head.decode("latin-1"))
            if isinstance(self._answer, bytes):
                connection.sendall(self._answer)
            else:
                self._answer(self.paths[-1], connection)
        except OSError:
            self.closed_by_client.set()
        finally:
            # What the client has not read must still reach it: shut down instead of resetting.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(1)
                while connection.recv(65536):
                    pass
            connection.close()


Serve = Callable[..., Server]
Get = Callable[..., FetchResult]


class Names:
    """A resolver: each name has its answers in turn, the last one for ever. Remembers what it was asked."""

    def __init__(self, **answers: Sequence[str] | Sequence[Sequence[str]]) -> None:
        self.asked: list[str] = []
        self._answers = {name.replace("_", "."): list(answer) for name, answer in answers.items()}

    async def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        answers: list[Any] = self._answers.get(host, [])
        if answers and not isinstance(answers[0], str):
            return answers.pop(0) if len(answers) > 1 else answers[0]
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return answers


class Everywhere:
    """A resolver by which every name is this machine."""

    async def __call__(self, host: str) -> Sequence[str]:
        return ["127.0.0.1"]


class _Disguised(httpcore2.AsyncNetworkStream):
    def __init__(self, stream: Any, ends: dict[str, tuple[str, int]]) -> None:
        self._stream = stream
        self._ends = ends
        self.read, self.write, self.aclose = stream.read, stream.write, stream.aclose
        self.start_tls = stream.start_tls

    def get_extra_info(self, info: str) -> Any:
        return self._ends.get(info) or self._stream.get_extra_info(info)


class Internet(httpcore2.AsyncNetworkBackend):
    """A network where every address is the server's, so that public addresses can be tried. Remembers them.

    With `honest` its connections tell who really is at the other end, as a hijacked connection would. `own` is
    the address of the machine itself.
    """

    def __init__(self, honest: bool = False, dead: Sequence[str] = (), own: str = "10.0.0.9") -> None:
        self.connected: list[str] = []
        self._honest = honest
        self._dead = dead
        self._own = own

    async def connect_tcp(self, host: str, port: int, timeout: float | None = None, *_: Any, **__: Any) -> Any:
        self.connected.append(host)
        if host in self._dead:
            raise httpcore2.ConnectError("unreachable")
        stream = await httpcore2.AnyIOBackend().connect_tcp("127.0.0.1", port, timeout)
        return (
            stream if self._honest else _Disguised(stream, {"server_addr": (host, port), "client_addr": (self._own, 5)})
        )
