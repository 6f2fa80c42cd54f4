"""A TCP proxy on loopback that can be paused: connections stay open, and nothing passes, as when a network drops packets.

It counts the bytes that come from the server.
"""

import contextlib
import selectors
import socket
import threading
from types import TracebackType


class TcpProxy:
    def __init__(self, port: int) -> None:
        """`port`: of the server."""
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self.received = 0
        """Bytes from the server."""
        self._passes = threading.Event()
        self._passes.set()
        self._is_closed = False
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "TcpProxy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True
        self.resume()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def pause(self) -> None:
        self._passes.clear()

    def resume(self) -> None:
        self._passes.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._is_closed:
                client = self._listener.accept()[0]
                self.connections += 1
                server = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [client, server]
                threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with selectors.DefaultSelector() as selector, contextlib.suppress(OSError, ValueError):
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while not self._is_closed:
                for key, _ in selector.select():
                    self._passes.wait()
                    data = key.fileobj.recv(65_536)  # type: ignore[union-attr]
                    self.received += len(data) if key.fileobj is server else 0
                    if not data:
                        return
                    key.data.sendall(data)
        for one in (client, server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
