"""Hosts for processes of a test: each has its own network, host name and process ids, and a link that can be unplugged.

Needs root, `ip` and `unshare`. The only address that a host reaches is this machine's end of its link.
"""

import itertools
import os
import shutil
import subprocess
import sys
from types import TracebackType

import pytest

_numbers = itertools.count(os.getpid() % 8_000 * 4)


class NetworkHost:
    def __init__(self, name: str) -> None:
        number = next(_numbers) % (1 << 14)
        self.name = name
        self._namespace, self._ours, self._theirs = f"kb{number}", f"kbo{number}", f"kbt{number}"
        prefix = f"10.{200 + number // 4096}.{number // 16 % 256}.{number % 16 * 16}"
        base, _, last = prefix.rpartition(".")
        self.gateway = f"{base}.{int(last) + 1}"
        """This machine's end of the link."""
        self._address = f"{base}.{int(last) + 2}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "NetworkHost":
        if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("unshare")):
            pytest.skip("network namespaces need root, ip (iproute2) and unshare (util-linux)")
        try:
            _ip("netns", "add", self._namespace)
            _ip("link", "add", self._ours, "type", "veth", "peer", "name", self._theirs, "netns", self._namespace)
            _ip("address", "add", f"{self.gateway}/28", "dev", self._ours)
            _ip("link", "set", self._ours, "up")
            _ip("-n", self._namespace, "link", "set", "lo", "up")
            _ip("-n", self._namespace, "address", "add", f"{self._address}/28", "dev", self._theirs)
            _ip("-n", self._namespace, "link", "set", self._theirs, "up")
        except subprocess.CalledProcessError as error:
            self._remove()
            pytest.skip(f"network namespaces don't work here: {error.stderr.decode().strip()}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for one in self._processes:
            one.kill()
            one.wait()
        self._remove()

    def _remove(self) -> None:
        _ip("link", "delete", self._ours, check=False)
        _ip("netns", "delete", self._namespace, check=False)

    def start(self, environment: dict[str, str], log: str, *arguments: str) -> None:
        """Runs Kitbag there. With its first process, all others of the host end."""
        isolated = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts"]
        named = ["sh", "-c", 'hostname "$0" && exec "$@"', self.name, sys.executable, "-P", "-m", "kitbag", *arguments]
        with open(log, "ab") as output:
            command = ["ip", "netns", "exec", self._namespace, *isolated, *named]
            self._processes.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output))

    def unplug(self) -> None:
        _ip("link", "set", self._ours, "down")

    def plug_in(self) -> None:
        _ip("link", "set", self._ours, "up")


def _ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], capture_output=True, check=check)
