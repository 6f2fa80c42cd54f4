"""A picture from the clipboard, by whichever program of this machine can give it.

Used by pasting. Each program is asked for a short time and for no more than a provider takes; none is run through a
shell, and none that lies in the current folder.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from kitbag.processes.signals import child_has_exited, signal_child_group
from kitbag.tools.files.read import MOST_IMAGE_BYTES, image_type

SECONDS: Final = 3.0
"""For all of them together."""
_LOOK_SECONDS: Final = 0.01
_TYPES: Final = ("image/png", "image/jpeg", "image/webp", "image/gif")
_APPLE: Final = (
    'set theFile to open for access POSIX file "{0}" with write permission\n'
    "try\nwrite (the clipboard as «class PNGf») to theFile\nend try\nclose access theFile"
)
_NONE: Final = "there is no picture in the clipboard"


class Clip(NamedTuple):
    data: bytes = b""
    media_type: str = ""
    problem: str = ""
    """Why there is no picture."""


def read_clipboard(environment: Mapping[str, str] | None = None) -> Clip:
    """Blocks for a few seconds at most."""
    given = os.environ if environment is None else environment
    path = os.pathsep.join(part for part in given.get("PATH", "").split(os.pathsep) if os.path.isabs(part))
    deadline = time.monotonic() + SECONDS
    asked = False
    for words in _ways(given):
        program = shutil.which(words[0], path=path)
        if program is None:
            continue
        asked = True
        data = _output([program, *words[1:]], given, deadline)
        if len(data) > MOST_IMAGE_BYTES:
            return Clip(problem="the picture in the clipboard is too large: more than 3.7 MB")
        if media_type := image_type(data):
            return Clip(data, media_type)
    if not asked and (program := shutil.which("osascript", path=path)):
        return _apple(program, given, deadline)
    if not asked:
        return Clip(problem="pictures can't be pasted here: it needs wl-paste, xclip or pngpaste")
    return Clip(problem=_NONE)


def _ways(environment: Mapping[str, str]) -> list[list[str]]:
    ways: list[list[str]] = []
    if environment.get("WAYLAND_DISPLAY"):
        ways += [["wl-paste", "--no-newline", "--type", kind] for kind in _TYPES]
    if environment.get("DISPLAY"):
        ways += [["xclip", "-selection", "clipboard", "-target", kind, "-out"] for kind in _TYPES]
    return [*ways, ["pngpaste", "-"]]


def _output(words: list[str], environment: Mapping[str, str], deadline: float) -> bytes:
    """What it prints, as far as it is of use; nothing where it fails or takes too long."""
    try:
        with (
            tempfile.TemporaryFile() as file,
            subprocess.Popen(  # noqa: S603 - words of ours, read by no shell
                words,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                start_new_session=True,
            ) as process,
        ):
            try:
                while not child_has_exited(process.pid):
                    if time.monotonic() >= deadline or os.fstat(file.fileno()).st_size > MOST_IMAGE_BYTES:
                        break
                    time.sleep(_LOOK_SECONDS)
            finally:
                # Before it is waited for, so that the group's number can't belong to anybody else yet.
                signal_child_group(process.pid, signal.SIGKILL)
            return os.pread(file.fileno(), MOST_IMAGE_BYTES + 1, 0)
    except OSError:
        return b""


def _apple(program: str, environment: Mapping[str, str], deadline: float) -> Clip:
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "picture.png")
        _output([program, "-e", _APPLE.format(place)], environment, deadline)
        try:
            with open(place, "rb") as file:
                data = file.read(MOST_IMAGE_BYTES + 1)
        except OSError:
            return Clip(problem=_NONE)
    if len(data) > MOST_IMAGE_BYTES:
        return Clip(problem="the picture in the clipboard is too large: more than 3.7 MB")
    return Clip(data, kind) if (kind := image_type(data)) else Clip(problem=_NONE)
