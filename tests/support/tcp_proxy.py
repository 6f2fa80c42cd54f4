"""A TCP proxy on loopback between a client and a server, whose connections a test cuts, pauses or loses replies of."""

import contextlib
import socket
import threading
from types import TracebackType


class TcpProxy:
    """`drop_replies`: what the client sends arrives, and what the server answers does not."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        """`port`: of the server."""
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server((address, 0))
        self.port = int(self._listener.getsockname()[1])
        self.connections = 0
        """All that there ever were."""
        self.received = 0
        """Bytes from the server."""
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._is_cut = False
        self._passes = threading.Event()
        self._passes.set()
        self.drop_replies = False
        self.dropped = threading.Event()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def __enter__(self) -> "TcpProxy":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.resume()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Ends all connections; new ones end at once."""
        with self._lock:
            self._is_cut = True
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def restore(self) -> None:
        with self._lock:
            self._is_cut, self.drop_replies = False, False

    def pause(self) -> None:
        """Connections stay open, and nothing passes, as when a network drops packets."""
        self._passes.clear()

    def resume(self) -> None:
        self._passes.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._server) as server:
            with self._lock:
                if self._is_cut:
                    return
                self._open += [client, server]
            replies = threading.Thread(target=self._forward, args=(server, client, True), daemon=True)
            replies.start()
            self._forward(client, server, False)
            replies.join()
            with self._lock:
                self._open = [one for one in self._open if one not in (client, server)]

    def _forward(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._passes.wait()
                if is_reply and self.drop_replies:
                    self.dropped.set()
                    break
                self.received += len(data) if is_reply else 0
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
