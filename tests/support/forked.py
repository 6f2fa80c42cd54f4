"""The real program in a process of its own, without the cost of importing it each time.

`Forkserver` starts one process that has imported Kitbag; each run is a fork of it, with the arguments, environment,
directory and pipes that the test gives. Run as a script, this module is that process. What depends on how the
interpreter itself starts (options, PYTHON variables) needs a process of the usual kind.
"""

import array
import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from typing import Any

if __name__ == "__main__":
    sys.path[0] = os.path.dirname(sys.path[0])  # the folder of this script was there

from support.waiting import TEST_TIMEOUT
from support.warm import forget_sandbox, warm_up

_LONGEST = 1 << 20


class Forkserver:
    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()
        self._process.wait()  # the server itself is a grandchild: tests look at what their own process has started

    def run(
        self,
        arguments: list[str],
        cwd: str,
        env: dict[str, str],
        stdin: str = "",
        timeout: float = TEST_TIMEOUT,
        before: str = "",
    ) -> "subprocess.CompletedProcess[str]":
        """As subprocess.run with text and captured output. `before`: Python that is run in the process first."""
        pipes = [os.pipe() for _ in range(3)]
        (theirs_in, ours_in), (ours_out, theirs_out), (ours_error, theirs_error) = pipes
        with self._lock:
            order = json.dumps({"arguments": arguments, "cwd": cwd, "env": env, "before": before}).encode(
                "utf-8", "surrogatepass"
            )
            self._socket.sendall(len(order).to_bytes(4, "big"))
            rights = array.array("i", [theirs_in, theirs_out, theirs_error])
            self._socket.sendmsg([order[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            self._socket.sendall(order[1:])
            for theirs in (theirs_in, theirs_out, theirs_error):
                os.close(theirs)
            pid = int.from_bytes(_exactly(self._socket, 8), "big")
            texts = [b"", b""]

            def read(number: int, descriptor: int) -> None:
                with open(descriptor, "rb") as file:
                    texts[number] = file.read()

            def write() -> None:
                with contextlib.suppress(BrokenPipeError), open(ours_in, "wb") as file:
                    file.write(stdin.encode())

            threads = [
                threading.Thread(target=read, args=(0, ours_out)),
                threading.Thread(target=read, args=(1, ours_error)),
            ]
            threads.append(threading.Thread(target=write))
            for thread in threads:
                thread.start()
            self._socket.settimeout(timeout)
            try:
                status = int.from_bytes(_exactly(self._socket, 8), "big", signed=True)
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._socket.settimeout(None)
                _exactly(self._socket, 8)
                raise subprocess.TimeoutExpired(["kitbag", *arguments], timeout) from None
            finally:
                self._socket.settimeout(None)
            for thread in threads:
                thread.join()
        said, problem = (text.decode() for text in texts)
        return subprocess.CompletedProcess(["kitbag", *arguments], status, said, problem)

    def close(self) -> None:
        self._socket.close()


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the fork server has ended")
        data += more
    return data


# --- the process that forks ---------------------------------------------------------------------------------------


def _retry_soon() -> None:
    """What a provider asks for is waited for as ever."""
    import msgspec

    from kitbag.agent import ask_model

    wait = ask_model._retry_delay

    def short_delay(error: Any, policy: Any, attempt: int) -> float:
        return wait(error, msgspec.structs.replace(policy, first_wait=0.001), attempt)

    ask_model._retry_delay = short_delay


def _child(order: dict[str, Any], descriptors: list[int]) -> int:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", closefd=False, errors="backslashreplace", buffering=1)  # noqa: SIM115
    os.chdir(order["cwd"])
    forget_sandbox(order["env"].get("PATH"))
    os.environ.clear()
    os.environ.update(order["env"])
    from kitbag.cli import main
    from kitbag.store import fault_points

    importlib.reload(fault_points)  # reads the environment
    sys.argv = ["kitbag", *order["arguments"]]
    exec(order["before"], {})  # a test's own text
    try:
        main()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
        return 1
    return 0


def _fork(order: dict[str, Any], descriptors: list[int], connection: socket.socket) -> int:
    assert len(os.listdir("/proc/self/task")) == 1  # a lock that another thread holds stays locked in a child
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        connection.close()
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        status = _child(order, descriptors)
        threading._shutdown()  # type: ignore[attr-defined]
        import atexit

        atexit._run_exitfuncs()
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(status)


def _serve(connection: socket.socket) -> None:
    _retry_soon()
    warm_up()
    while True:
        try:
            size = int.from_bytes(_exactly(connection, 4), "big")
        except ConnectionError:
            return
        first, rights, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(12))
        descriptors = array.array("i")
        descriptors.frombytes(rights[0][2][:12])
        order = json.loads((first + _exactly(connection, size - 1)).decode("utf-8", "surrogatepass"))
        pid = _fork(order, list(descriptors), connection)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(pid.to_bytes(8, "big"))
        _, status = os.waitpid(pid, 0)
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "big", signed=True))


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    _serve(socket.socket(fileno=int(sys.argv[1])))
