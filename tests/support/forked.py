"""The real program in a process of its own, without the cost of importing it each time.

`Forkserver` starts one process that has imported Kitbag; each run is a fork of it, with the arguments, environment,
directory and pipes that the test gives. Run as a script, this module is that process. `command` is for what a test
starts and talks to (forked_program). What depends on how the interpreter itself starts (options, PYTHON variables), or
on who the parent of the program is, needs a process of the usual kind.
"""

import array
import contextlib
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
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
        self._place = ""
        """Of the socket that programs are started through."""

    def command(self, *arguments: str) -> list[str]:
        """For subprocess.Popen: a small process that passes its pipes to a fork and signals on to it, and ends as it
        does. What is in the environment and directory of the one is in those of the other."""
        if not self._place:
            self._place = tempfile.mkdtemp(prefix="kitbag-forked-")
            with self._lock:
                self._send({"listen": f"{self._place}/socket"}, [])
                _exactly(self._socket, 8)
        program = str(Path(__file__).with_name("forked_program.py"))
        return [sys.executable, "-I", "-S", program, f"{self._place}/socket", *arguments]

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
            order = {"arguments": arguments, "cwd": cwd, "env": env, "before": before}
            self._send(order, [theirs_in, theirs_out, theirs_error])
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

    def _send(self, order: dict[str, Any], descriptors: list[int]) -> None:
        text = json.dumps(order).encode("utf-8", "surrogatepass")
        self._socket.sendall(len(text).to_bytes(4, "big"))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        self._socket.sendmsg([text[:1]], rights)
        self._socket.sendall(text[1:])

    def close(self) -> None:
        self._socket.close()
        if self._place:
            shutil.rmtree(self._place)


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


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    size = int.from_bytes(_exactly(connection, 4), "big")
    first, rights, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(12))
    descriptors = array.array("i")
    if rights:
        descriptors.frombytes(rights[0][2][:12])
    return json.loads((first + _exactly(connection, size - 1)).decode("utf-8", "surrogatepass")), list(descriptors)


def _serve(connection: socket.socket) -> None:
    _retry_soon()
    warm_up()
    alive = os.pipe()
    while True:
        try:
            order, descriptors = _receive(connection)
        except ConnectionError:
            return
        if "listen" in order:
            _fork_listener(order["listen"], connection, alive)
            continue
        pid = _fork(order, descriptors, connection)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(pid.to_bytes(8, "big"))
        _, status = os.waitpid(pid, 0)
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "big", signed=True))


# --- the process that programs are forked from which tests start and talk to ----------------------------------------


def _fork_listener(path: str, connection: socket.socket, alive: tuple[int, int]) -> None:
    """A process of its own: it also imports what most runs do without. It ends with this one."""
    with socket.create_server(path, family=socket.AF_UNIX) as listener:
        pid = os.fork()
        if pid == 0:
            connection.close()
            os.close(alive[1])
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who serve a program
            while alive[0] not in select.select([listener, alive[0]], [], [])[0]:
                _start_program(listener.accept()[0], listener)
            os._exit(0)
    connection.sendall(pid.to_bytes(8, "big"))


def _start_program(connection: socket.socket, listener: socket.socket) -> None:
    with connection:
        order, descriptors = _receive(connection)
        if order["arguments"][0] == "mcp":
            importlib.import_module("kitbag.mcp_server.stdio")
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _attend_program(order, descriptors, connection)
    for descriptor in descriptors:
        os.close(descriptor)


def _attend_program(order: dict[str, Any], descriptors: list[int], connection: socket.socket) -> None:
    pid = _fork(order, descriptors, connection)
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(pid.to_bytes(8, "big"))
    ended = os.pidfd_open(pid)
    if ended not in select.select([ended, connection], [], [])[0]:
        os.kill(pid, signal.SIGKILL)  # the process that stands for it was killed
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "big", signed=True))
    os._exit(0)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    _serve(socket.socket(fileno=int(sys.argv[1])))
