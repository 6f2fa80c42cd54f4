"""Reads images from the clipboard and copies text to it with a program of this machine (wl-paste, xclip, pbcopy …).

Used by pastes and `/copy`. Programs have a timeout and a size limit, run without a shell, and are never taken from the
current directory.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from kitbag.processes.signals import has_child_exited, signal_child_group
from kitbag.tools.files.read import MAX_IMAGE_BYTES, image_type

TIMEOUT_SECONDS: Final = 3.0
"""For all programs together."""
_POLL_SECONDS: Final = 0.01
_TYPES: Final = ("image/png", "image/jpeg", "image/webp", "image/gif")
_APPLE_SCRIPT: Final = (
    'set theFile to open for access POSIX file "{0}" with write permission\n'
    "try\nwrite (the clipboard as «class PNGf») to theFile\nend try\nclose access theFile"
)
_NO_IMAGE: Final = "no image in the clipboard"


class ClipboardImage(msgspec.Struct, frozen=True, kw_only=True):
    data: bytes = b""
    media_type: str = ""
    problem: str = ""
    """Why there is no image."""


def read_clipboard(environment: Mapping[str, str] | None = None) -> ClipboardImage:
    """Blocks for a few seconds at most."""
    variables = os.environ if environment is None else environment
    path = os.pathsep.join(part for part in variables.get("PATH", "").split(os.pathsep) if os.path.isabs(part))
    deadline = time.monotonic() + TIMEOUT_SECONDS
    has_program = False
    for command in _commands(variables):
        program = shutil.which(command[0], path=path)
        if program is None:
            continue
        has_program = True
        data = _run([program, *command[1:]], variables, deadline)
        if len(data) > MAX_IMAGE_BYTES:
            return ClipboardImage(problem="the clipboard image is too large (limit: 3.7 MB)")
        if media_type := image_type(data):
            return ClipboardImage(data=data, media_type=media_type)
    if not has_program and (program := shutil.which("osascript", path=path)):
        return _read_with_osascript(program, variables, deadline)
    if not has_program:
        return ClipboardImage(problem="can't paste images: install wl-paste, xclip or pngpaste")
    return ClipboardImage(problem=_NO_IMAGE)


def write_clipboard(text: str, environment: Mapping[str, str] | None = None) -> bool:
    """False: no program could do it. Blocks for a few seconds at most."""
    variables = os.environ if environment is None else environment
    path = os.pathsep.join(part for part in variables.get("PATH", "").split(os.pathsep) if os.path.isabs(part))
    commands = [["wl-copy"]] if variables.get("WAYLAND_DISPLAY") else []
    commands += [["xclip", "-selection", "clipboard", "-in"]] if variables.get("DISPLAY") else []
    for command in [*commands, ["pbcopy"], ["clip.exe"]]:
        program = shutil.which(command[0], path=path)
        if program is None:
            continue
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(  # noqa: S603 - fixed arguments, no shell
                [program, *command[1:]],
                input=text.encode("utf-8", "replace"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(variables),
                timeout=TIMEOUT_SECONDS,
                check=True,
            )
            return True
    return False


def _commands(environment: Mapping[str, str]) -> list[list[str]]:
    commands: list[list[str]] = []
    if environment.get("WAYLAND_DISPLAY"):
        commands += [["wl-paste", "--no-newline", "--type", kind] for kind in _TYPES]
    if environment.get("DISPLAY"):
        commands += [["xclip", "-selection", "clipboard", "-target", kind, "-out"] for kind in _TYPES]
    return [*commands, ["pngpaste", "-"]]


def _run(command: list[str], environment: Mapping[str, str], deadline: float) -> bytes:
    """The program's output, truncated just above the size limit; empty if it fails or times out."""
    try:
        with (
            tempfile.TemporaryFile() as file,
            subprocess.Popen(  # noqa: S603 - fixed arguments, no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                start_new_session=True,
            ) as process,
        ):
            try:
                while not has_child_exited(process.pid):
                    if time.monotonic() >= deadline or os.fstat(file.fileno()).st_size > MAX_IMAGE_BYTES:
                        break
                    time.sleep(_POLL_SECONDS)
            finally:
                # Before waiting for the process, so that its group id can't be reused yet.
                signal_child_group(process.pid, signal.SIGKILL)
            return os.pread(file.fileno(), MAX_IMAGE_BYTES + 1, 0)
    except OSError:
        return b""


def _read_with_osascript(program: str, environment: Mapping[str, str], deadline: float) -> ClipboardImage:
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "picture.png")
        _run([program, "-e", _APPLE_SCRIPT.format(target)], environment, deadline)
        try:
            with open(target, "rb") as file:
                data = file.read(MAX_IMAGE_BYTES + 1)
        except OSError:
            return ClipboardImage(problem=_NO_IMAGE)
    if len(data) > MAX_IMAGE_BYTES:
        return ClipboardImage(problem="the clipboard image is too large (limit: 3.7 MB)")
    return (
        ClipboardImage(data=data, media_type=kind) if (kind := image_type(data)) else ClipboardImage(problem=_NO_IMAGE)
    )
