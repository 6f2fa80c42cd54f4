"""A TCP proxy on loopback between a client and a server, whose connections a test cuts, or whose replies it loses."""

import contextlib
import socket
import threading
from types import TracebackType


class TcpProxy:
    """`drop_replies`: what the client sends arrives, and what the server answers does not."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server((address, 0))
        self.port = int(self._listener.getsockname()[1])
        self._connections: list[socket.socket] = []
        self._lock = threading.Lock()
        self._is_cut = False
        self.drop_replies = False
        self.dropped = threading.Event()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def __enter__(self) -> "TcpProxy":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Ends all connections; new ones end at once."""
        with self._lock:
            self._is_cut = True
            for one in self._connections:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def restore(self) -> None:
        with self._lock:
            self._is_cut, self.drop_replies = False, False

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._server) as server:
            with self._lock:
                if self._is_cut:
                    return
                self._connections += [client, server]
            replies = threading.Thread(target=self._forward, args=(server, client, True), daemon=True)
            replies.start()
            self._forward(client, server, False)
            replies.join()
            with self._lock:
                self._connections = [one for one in self._connections if one not in (client, server)]

    def _forward(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if is_reply and self.drop_replies:
                    self.dropped.set()
                    break
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
