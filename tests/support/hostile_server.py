"""An HTTP server on loopback that answers with any bytes, also endless ones, in its own thread."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

PLAIN = "HTTP/1.1 200 OK\r\ncontent-type: {}\r\n{}connection: close\r\n\r\n"

Answer = Callable[[], Iterable[bytes | None]]


def respond(
    body: bytes | str = b"", content_type: str = "text/event-stream", status: int = 200, **headers: str
) -> Answer:
    """A whole response."""
    data = body if isinstance(body, bytes) else body.encode()
    lines = [f"HTTP/1.1 {status} .", f"content-type: {content_type}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return lambda: ["\r\n".join([*lines, "", ""]).encode() + data]


def stream(chunks: Answer) -> Answer:
    """An event stream; the connection's end is its end."""

    def answer() -> Iterator[bytes | None]:
        yield PLAIN.format("text/event-stream", "").encode()
        yield from chunks()

    return answer


def event(data: object, name: str = "") -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


class HostileServer:
    """Each request gets the next answer; the last one again and again. None in an answer: says nothing more."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = answers
        self.requests: list[dict[str, Any]] = []
        self.sent = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def environment(self) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "test-key-anthropic",
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": "test-key-openai",
        }

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closing does not
        self._thread.join(10)
        self._socket.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as reader:
                length = 0
                while (line := reader.readline()) not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                self.requests.append(json.loads(reader.read(length) or b"{}"))
                answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
                for data in answer():
                    if data is None:
                        reader.read(1)  # until the client leaves
                        return
                    connection.sendall(data)
                    self.sent += len(data)
        except (OSError, ValueError):
            pass
