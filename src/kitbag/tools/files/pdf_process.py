"""A child process that reads a PDF from standard input and prints its text page by page, as lines of JSON.

Started by pdf_text. A PDF may be malicious, so the process has limits on memory and time and, where the kernel has
seccomp, only the system calls for memory, for reading open files and for writing its output. It can't open files, start
processes or use the network, even if the document takes control of it.
"""

import contextlib
import ctypes
import errno
import importlib
import json
import os
import resource
import struct
import sys
from collections.abc import Iterator
from typing import Any, Final

MAX_MEMORY_BYTES: Final = 512 << 20
MAX_CPU_SECONDS: Final = 20
_PASSWORD_ERROR = 4
"""pdfium's code for a document that needs a password."""
_LINE_END_HYPHEN = "\ufffe"
"""What pdfium returns for a hyphen that splits a word at a line end."""

_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _DENY = 0x7FFF0000, 0x00050000 | errno.EPERM
# The audit architecture, and the numbers of: read, write, close, fstat, lseek, mmap, mprotect, munmap, brk,
# rt_sigaction, rt_sigprocmask, rt_sigreturn, pread64, readv, writev, madvise, getpid, exit, exit_group, gettimeofday,
# clock_gettime, mremap, futex, sched_yield, getrandom, sigaltstack.
_ARCHITECTURES: Final = {
    "x86_64": (0xC000003E, (0, 1, 3, 5, 8, 9, 10, 11, 12, 13, 14, 15, 17, 19, 20, 28, 39, 60, 231, 96, 228, 25, 202, 24,
                            318, 131)),
    "aarch64": (0xC00000B7, (63, 64, 57, 80, 62, 222, 226, 215, 214, 134, 135, 139, 67, 65, 66, 233, 172, 93, 94, 169,
                             113, 216, 98, 124, 278, 132)),
}  # fmt: skip


def pdf_command(packages: str, ranges: list[tuple[int, int]], max_chars: int) -> list[str]:
    """The command line. `packages` is the folder where pypdfium2 is installed; a range may end at 0, the last page. The
    process ends when it has printed more than `max_chars`."""
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    start = "import sys; sys.path += sys.argv[1:3]; from kitbag.tools.files.pdf_process import main; main(sys.argv[3])"
    return [sys.executable, "-I", "-S", "-c", start, source, packages, json.dumps((ranges, max_chars))]


def main(text: str) -> None:
    ranges, characters = json.loads(text)
    limit_resources()
    pdfium = importlib.import_module("pypdfium2")
    data = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115 - open as long as the process lives
    "".encode("utf-16-le").decode("utf-16-le")  # loads the codec while files can still be opened
    restrict_system_calls()
    try:
        document = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        _print_record(problem="password" if error.err_code == _PASSWORD_ERROR else "damaged")
        os._exit(0)
    except MemoryError:
        os._exit(3)
    count = len(document)
    _print_record(count=count)
    printed = 0
    for page in _page_numbers(ranges, count):
        found = _page_text(pdfium, document, page)
        _print_record(page=page, text=found if found is None else found[: characters + 1])
        printed += len(found or "")
        if printed > characters:
            break
    os._exit(0)  # no cleanup, which is where a damaged document crashes pdfium


def limit_resources() -> None:
    for kind, limit in (
        (resource.RLIMIT_AS, MAX_MEMORY_BYTES),
        (resource.RLIMIT_CPU, MAX_CPU_SECONDS),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        _, highest = resource.getrlimit(kind)
        with contextlib.suppress(ValueError, OSError):  # not every system has all of them
            resource.setrlimit(kind, (limit if highest == resource.RLIM_INFINITY else min(limit, highest), highest))


def restrict_system_calls() -> bool:
    """From here on, all system calls fail except those listed. False if that is not possible."""
    architecture_calls = _ARCHITECTURES.get(os.uname().machine)
    if architecture_calls is None or sys.platform != "linux":
        return False
    architecture, allowed = architecture_calls
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _DENY), (_LOAD, 0, 0, 0)]
    code += [(_EQUAL, len(allowed) - at, 0, number) for at, number in enumerate(allowed)]
    code += [(_RETURN, 0, 0, _DENY), (_RETURN, 0, 0, _ALLOW)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    program_struct = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(program)))
    system = ctypes.CDLL(None, use_errno=True)
    if system.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    return not system.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program_struct), 0, 0)


def _page_numbers(ranges: list[tuple[int, int]], count: int) -> Iterator[int]:
    for first, last in ranges:
        yield from range(first, min(last or count, count) + 1)


def _page_text(pdfium: Any, document: Any, page: int) -> str | None:
    """None if the page can't be read."""
    try:
        opened = document[page - 1]
        text = opened.get_textpage()
        found = str(text.get_text_range())
        text.close()
        opened.close()
    except (pdfium.PdfiumError, AssertionError, ValueError, IndexError):
        return None
    return (
        found.replace("\r\n", "\n")
        .replace("\r", "\n")
        .replace(f"{_LINE_END_HYPHEN}\n", "")
        .replace(_LINE_END_HYPHEN, "-")
    )


def _print_record(**fields: object) -> None:
    remaining = memoryview(json.dumps(fields).encode() + b"\n")
    while remaining:
        remaining = remaining[os.write(1, remaining) :]
