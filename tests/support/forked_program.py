"""Stands for a program that is forked from a process that has imported it (`forked.Forkserver.command`): passes on its
standard streams, environment, directory and arguments, then the signals that it gets, and ends as the program does.

Run as a script, with nothing imported that takes long.
"""

import array
import json
import os
import signal
import socket
import sys


def _read_number(connection: socket.socket) -> int:
    data = connection.recv(8, socket.MSG_WAITALL)
    return int.from_bytes(data, "big", signed=True) if len(data) == 8 else 1


def main(path: str, *arguments: str) -> int:
    order = {"arguments": arguments, "cwd": os.getcwd(), "env": dict(os.environ), "before": ""}
    text = json.dumps(order).encode("utf-8", "surrogatepass")
    passed_on = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)  # until there is a process to pass them on to
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(len(text).to_bytes(4, "big"))
        rights = array.array("i", [0, 1, 2])
        connection.sendmsg([text[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        connection.sendall(text[1:])
        pid = _read_number(connection)
        for number in (0, 1, 2):
            os.close(number)  # the other side sees when the program closes them
        for each in passed_on:
            signal.signal(each, lambda number, _: os.kill(pid, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
        return _read_number(connection)


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
