"""Archives from strangers: what is refused, that nothing is left behind, and what is unpacked."""

import bz2
import gzip
import io
import lzma
import os
import random
import stat
import struct
import subprocess
import sys
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from kitbag.errors import InvalidError, KitbagError, NotFoundError
from kitbag.library.plugins.archives import is_archive, unpack_archive
from support.cost import processor_limit, steps
from support.matrix import long
from support.waiting import TEST_TIMEOUT

TAR_WRITERS = {
    "tar": lambda data: data,
    "tar.gz": gzip.compress,
    "tar.bz2": bz2.compress,
    "tar.xz": lzma.compress,
}


class Place:
    """A directory with a file that must stay as it is, an archive's path and a destination."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.archive = path / "package"
        self.tripwire = path / "outside" / "x"
        self.tripwire.parent.mkdir()
        self.tripwire.write_text("untouched")
        self.destination = path / "inside" / "deep" / "target"
        self.destination.parent.mkdir(parents=True)

    def listing(self) -> dict[str, str]:
        files = sorted(self.path.rglob("*"))
        return {
            str(file.relative_to(self.path)): file.read_text() if file.is_file() else "directory"
            for file in files
            if file != self.archive
        }

    def unpack(self) -> None:
        unpack_archive(str(self.archive), str(self.destination))

    def refused(self, *words: str) -> str:
        before = self.listing()
        with pytest.raises(InvalidError) as caught:
            self.unpack()
        assert self.listing() == before
        for word in words:
            assert word in str(caught.value), str(caught.value)
        assert caught.value.fix
        return str(caught.value)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def zip_of(*entries: tuple[str, bytes], change: Callable[[zipfile.ZipInfo], None] | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            info = zipfile.ZipInfo("placeholder")
            info.filename = info.orig_filename = name
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            info.external_attr = 0o644 << 16
            if change:
                change(info)
            archive.writestr(info, data)
    return buffer.getvalue()


def tar_of(*entries: tuple[str, bytes], change: Callable[[tarfile.TarInfo], None] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in entries:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if change:
                change(info)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


BAD_NAMES = {
    "parent": ("../x", ".."),
    "hidden parent": ("a/../../x", ".."),
    "parent alone": ("..", ".."),
    "absolute": ("/etc/x", "absolute"),
    "double absolute": ("//etc/x", "absolute"),
    "backslash": ("..\\x", "backslash"),
    "drive": ("C:\\x", "backslash"),
    "drive without a slash": ("C:x", "drive"),
    "drive with a slash": ("C:/x", "drive"),
    "network share": ("\\\\host\\x", "backslash"),
    "newline": ("a\nb", "control"),
    "escape": ("a\x1b[31mb", "control"),
    "c1": ("a\x9bb", "control"),
    "delete": ("a\x7fb", "control"),
    "right to left": ("a\u202egpj.exe", "U+202E"),
    "zero width": ("a\u200bb", "U+200B"),
    "empty part": ("a//b", "empty"),
    "dot part": ("a/./b", "`.`"),
    "deep": ("/".join("d" * 21), "deep"),
    "long": ("/".join(["n" * 40] * 10), "longer than 400"),
    "long part": ("é" * 200, "255 bytes"),
}


@pytest.mark.parametrize("case", BAD_NAMES)
@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_a_name_that_leads_out_or_deceives_is_refused(place: Place, case: str, pack: Callable[..., bytes]) -> None:
    name, word = BAD_NAMES[case]
    place.archive.write_bytes(pack(("good.txt", b"good"), (name, b"bad")))
    message = place.refused(word)
    assert message.isprintable()


def test_a_nul_in_a_zip_name_is_refused_and_not_cut_off(place: Place) -> None:
    place.archive.write_bytes(zip_of(("good.txt+/../x", b"")).replace(b"good.txt+", b"good.txt\0"))
    place.refused("control")


def test_a_nul_in_a_tar_name_is_refused(place: Place) -> None:
    def change(info: tarfile.TarInfo) -> None:
        info.pax_headers = {"path": "good\0bad"}

    place.archive.write_bytes(tar_of(("good", b""), change=change))
    place.refused("control")


def test_a_tar_name_that_is_not_utf_8_is_refused(place: Place) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT, encoding="latin-1") as archive:
        archive.addfile(tarfile.TarInfo("caf\xe9"))
    place.archive.write_bytes(buffer.getvalue())
    place.refused("hidden or invalid")


ZIP_KINDS = {
    "symlink": (stat.S_IFLNK | 0o777, "symbolic link"),
    "fifo": (stat.S_IFIFO | 0o644, "pipe"),
    "character device": (stat.S_IFCHR | 0o644, "device"),
    "block device": (stat.S_IFBLK | 0o644, "device"),
    "socket": (stat.S_IFSOCK | 0o644, "socket"),
    "setuid": (stat.S_IFREG | 0o4755, "setuid"),
    "setgid": (stat.S_IFREG | 0o2755, "setgid"),
}


@pytest.mark.parametrize("case", ZIP_KINDS)
@pytest.mark.parametrize("system", [0, 3])
def test_a_zip_entry_that_is_no_plain_file_is_refused(place: Place, case: str, system: int) -> None:
    mode, word = ZIP_KINDS[case]

    def change(info: zipfile.ZipInfo) -> None:
        info.external_attr = mode << 16
        info.create_system = system

    place.archive.write_bytes(zip_of(("thing", b"../../outside/x"), change=change))
    place.refused("'thing'", word)


TAR_KINDS = {
    "symlink": (tarfile.SYMTYPE, 0o777, "symbolic link"),
    "hard link": (tarfile.LNKTYPE, 0o644, "hard link"),
    "fifo": (tarfile.FIFOTYPE, 0o644, "pipe"),
    "character device": (tarfile.CHRTYPE, 0o644, "device"),
    "block device": (tarfile.BLKTYPE, 0o644, "device"),
    "sparse": (tarfile.GNUTYPE_SPARSE, 0o644, "neither"),
    "unknown": (b"V", 0o644, "neither"),
    "setuid": (tarfile.REGTYPE, 0o4755, "setuid"),
    "setgid": (tarfile.REGTYPE, 0o2755, "setgid"),
}


@pytest.mark.parametrize("case", TAR_KINDS)
def test_a_tar_entry_that_is_no_plain_file_is_refused(place: Place, case: str) -> None:
    kind, mode, word = TAR_KINDS[case]

    def change(info: tarfile.TarInfo) -> None:
        info.type, info.mode, info.linkname = kind, mode, "../../outside/x"

    place.archive.write_bytes(tar_of(("thing", b""), change=change))
    place.refused("'thing'", word)


def test_writing_through_a_link_of_the_same_archive_is_impossible(place: Place) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        link = tarfile.TarInfo("dir")
        link.type, link.linkname = tarfile.SYMTYPE, str(place.tripwire.parent)
        archive.addfile(link)
        file = tarfile.TarInfo("dir/x")
        file.size = 4
        archive.addfile(file, io.BytesIO(b"evil"))
    place.archive.write_bytes(buffer.getvalue())
    place.refused("symbolic link")
    assert place.tripwire.read_text() == "untouched"


COLLISIONS = {
    "duplicate": (("a/b", "a/b"), "duplicate"),
    "case of a skill": (("skills/a/SKILL.md", "skills/a/skill.md"), "case-insensitive"),
    "case of a skill at the top": (("SKILL.md", "Skill.md"), "case-insensitive"),
    "case of a script": (("tool.py", "Tool.py"), "case-insensitive"),
    "case of an agent": (("agents/a.md", "Agents/a.md"), "case-insensitive"),
    "case of a text and a directory": (("README.md", "readme.md/a"), "case-insensitive"),
    "case of a directory": (("Skills/a", "skills/b"), "case-insensitive"),
    "sharp s": (("STRASSE", "straße"), "case-insensitive"),
    "unicode form": (
        (unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")),
        "case-insensitive",
    ),
    "file as directory": (("a", "a/b"), "a file and a directory"),
    "directory as file": (("a/b", "a"), "a file and a directory"),
    "duplicate with a dot": (("a", "./a"), "duplicate"),
    "duplicate directory": (("a/", "a/"), "duplicate"),
}


@pytest.mark.parametrize("case", COLLISIONS)
@pytest.mark.parametrize("pack", [zip_of, tar_of])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_collide_are_refused(place: Place, case: str, pack: Callable[..., bytes]) -> None:
    names, word = COLLISIONS[case]

    def change(info: tarfile.TarInfo) -> None:
        info.type = tarfile.DIRTYPE if info.name.endswith("/") else tarfile.REGTYPE

    entries = [(name, b"") for name in names]
    place.archive.write_bytes(pack(*entries) if pack is zip_of else pack(*entries, change=change))
    place.refused(word)


@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_of_texts_that_differ_only_in_case_the_first_is_installed(place: Place, pack: Callable[..., bytes]) -> None:
    names = ("README.md", "readme.MD", "Docs/a.md", "docs/b.md", "docs/A.md", "docs/x.PNG", "DOCS/X.png")
    place.archive.write_bytes(pack(*((name, name.encode()) for name in names)))
    skipped = unpack_archive(str(place.archive), str(place.destination))
    assert skipped == [
        ("readme.MD", "named like README.md except for case"),
        ("docs/A.md", "named like Docs/a.md except for case"),
        ("DOCS/X.png", "named like docs/x.PNG except for case"),
    ]
    files = {path: path.read_text() for path in place.destination.rglob("*") if path.is_file()}
    assert {str(path.relative_to(place.destination)): text for path, text in files.items()} == {
        name: name for name in ("README.md", "Docs/a.md", "docs/b.md", "docs/x.PNG")
    }


def deflated_zeros(size: int) -> bytes:
    """A raw deflate stream of that many zeros, made a megabyte at a time."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = bytes(1 << 20)
    return b"".join([packer.compress(block) for _ in range(size >> 20)] + [packer.flush()])


def zip_around(names: list[str], stream: bytes, declared: int, crc: int = 0) -> bytes:
    """A zip whose entries all hold that stream and declare what they like."""
    body = b""
    directory = b""
    for name in names:
        fields = (20, 0x800, 8, 0, 0, crc, len(stream), declared, len(name.encode()), 0)
        offset = len(body)
        body += b"PK\3\4" + struct.pack("<HHHHHIIIHH", *fields) + name.encode() + stream
        tail = struct.pack("<HHHII", 0, 0, 0, 0o644 << 16, offset)
        directory += b"PK\1\2" + struct.pack("<HHHHHHIIIHH", 20, *fields) + tail + name.encode()
    count = min(len(names), 0xFFFF)
    end = struct.pack("<HHHHIIH", 0, 0, count, count, len(directory), len(body), 0)
    return body + directory + b"PK\5\6" + end


def test_a_zip_bomb_is_refused_by_what_it_declares(place: Place) -> None:
    place.archive.write_bytes(zip_around(["bomb"], b"\3\0", 10_000_000_000 & 0xFFFFFFFF))
    place.refused("bomb", "50 MB")


def test_a_zip_bomb_that_lies_about_its_size_is_refused(place: Place) -> None:
    place.archive.write_bytes(zip_around(["bomb"], deflated_zeros(100 << 20), 10))
    place.refused("bomb")


@long
def test_many_files_that_are_too_much_together_are_refused(place: Place) -> None:
    size = 45 << 20
    stream, crc = deflated_zeros(size), zlib.crc32(bytes(size))
    place.archive.write_bytes(zip_around([f"f{n}" for n in range(6)], stream, size, crc))
    place.refused("200 MB in total")


@pytest.mark.parametrize("kind", TAR_WRITERS)
def test_a_tar_with_a_file_of_ten_gigabytes_is_refused_at_once(place: Place, kind: str) -> None:
    info = tarfile.TarInfo("bomb")
    info.size = 10_000_000_000
    place.archive.write_bytes(TAR_WRITERS[kind](info.tobuf(tarfile.GNU_FORMAT)))
    place.refused("bomb", "50 MB")


def test_a_compressed_tar_that_unpacks_to_too_much_is_refused(place: Place) -> None:
    size = 45 << 20
    with gzip.open(place.archive, "wb", compresslevel=1) as out:
        for number in range(6):
            info = tarfile.TarInfo(f"f{number}")
            info.size = size
            out.write(info.tobuf())
            for _ in range(size >> 20):
                out.write(bytes(1 << 20))
    place.refused("200 MB in total")


@pytest.mark.parametrize("kind", TAR_WRITERS)
def test_endless_data_after_the_end_of_a_tar_is_refused(place: Place, kind: str) -> None:
    place.archive.write_bytes(TAR_WRITERS[kind](tar_of(("a", b"a")) + bytes(5 << 20)))
    place.refused("after the end")


def test_an_xz_header_that_asks_for_gigabytes_of_memory_is_refused(place: Place) -> None:
    data = bytearray(lzma.compress(tar_of(("a", b"a"))))
    # Block header: size, flags, filter id 0x21, one property byte = dictionary of 4 GiB - 1, then its CRC.
    at = data.index(b"\x21\x01", 12)
    data[at + 2] = 40
    size = (data[12] + 1) * 4
    data[12 + size - 4 : 12 + size] = struct.pack("<I", zlib.crc32(data[12 : 12 + size - 4]))
    place.archive.write_bytes(bytes(data))
    place.refused("emory")


def test_a_million_zip_entries_are_refused_before_they_are_read(place: Place) -> None:
    entry = b"PK\1\2" + struct.pack("<HHHHHHIIIHHHHHII", 20, 20, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0)
    directory = b"".join(entry + b"%07d" % number for number in range(1_000_000))
    local = b"PK\3\4" + struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 0, 0, 0, 0, 7, 0) + b"0000000"
    end = struct.pack("<HHHHIIH", 0, 0, 16_960, 16_960, len(directory), len(local), 0)
    place.archive.write_bytes(local + directory + b"PK\5\6" + end)
    assert steps(lambda: place.refused("central directory")) < 100_000


@long
def test_twenty_thousand_zip_entries_are_refused_by_count(place: Place) -> None:
    place.archive.write_bytes(zip_around([f"f{n}" for n in range(20_000)], b"\3\0", 0))
    place.refused("10,000 entries")


@long
def test_a_million_tar_entries_are_refused_when_there_are_too_many(place: Place) -> None:
    with gzip.open(place.archive, "wb", compresslevel=1) as out:
        block = b"".join(tarfile.TarInfo(f"f{number}").tobuf() for number in range(20_000))
        for _ in range(50):
            out.write(block)
    with processor_limit():
        assert steps(lambda: place.refused("10,000 entries")) < 11_000 * 1_000


@long
def test_ten_thousand_entries_are_taken(place: Place) -> None:
    headers = [tarfile.TarInfo(f"d/f{n}").tobuf(tarfile.USTAR_FORMAT) for n in range(10_000)]
    place.archive.write_bytes(b"".join(headers) + bytes(1024))
    place.unpack()
    assert len(os.listdir(place.destination / "d")) == 10_000


def test_an_encrypted_zip_is_refused(place: Place) -> None:
    data = bytearray(zip_of(("secret.md", b"text")))
    for magic, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(magic) + offset] |= 1
    place.archive.write_bytes(bytes(data))
    place.refused("secret.md", "encrypted")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_with_an_unusual_compression_is_refused(place: Place, method: int) -> None:
    def change(info: zipfile.ZipInfo) -> None:
        info.compress_type = method

    place.archive.write_bytes(zip_of(("a", b"text" * 100), change=change))
    place.refused("compression")


@pytest.mark.parametrize("kind", ["zip", *TAR_WRITERS])
def test_an_archive_cut_off_anywhere_is_refused(place: Place, kind: str) -> None:
    entries = [("a/b.md", random.Random(1).randbytes(900)), ("c.md", b"more" * 300)]
    whole = zip_of(*entries) if kind == "zip" else TAR_WRITERS[kind](tar_of(*entries).rstrip(b"\0") + bytes(1024))
    cuts = sorted({*range(0, len(whole) - 512, 97), *range(0, len(whole) - 512, 512), len(whole) // 2})
    for cut in cuts:
        place.archive.write_bytes(whole[:cut])
        place.refused()


@pytest.mark.parametrize("kind", ["zip", *TAR_WRITERS])
def test_an_archive_with_any_bytes_changed_is_unpacked_whole_or_refused(place: Place, kind: str) -> None:
    entries = [("a/b.md", b"one" * 300), ("c.md", b"more" * 300)]
    whole = zip_of(*entries) if kind == "zip" else TAR_WRITERS[kind](tar_of(*entries))
    chance = random.Random(7)
    before = place.listing()
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(min(len(data), 4000))] = chance.randrange(256)
        place.archive.write_bytes(bytes(data))
        try:
            place.unpack()
        except InvalidError:
            assert place.listing() == before
        else:
            for file in sorted(place.destination.rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
            place.destination.rmdir()
            assert place.listing() == before


def test_a_chain_of_extended_headers_is_refused(place: Place) -> None:
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, 11
    header = info.tobuf(tarfile.USTAR_FORMAT) + b"11 path=ab\n".ljust(512, b"\0")
    place.archive.write_bytes(header * 5000 + tar_of(("a", b"a")))
    place.refused("not a valid")


def test_an_extended_header_of_many_megabytes_is_refused(place: Place) -> None:
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, 30 << 20
    place.archive.write_bytes(info.tobuf(tarfile.USTAR_FORMAT) + b"6 a=b\n" * (5 << 20) + tar_of(("a", b"a")))
    place.refused("header")


def test_a_tar_entry_with_a_negative_size_is_refused_and_not_read_for_ever(place: Place) -> None:
    info = tarfile.TarInfo("a")
    info.size = -2048
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    place.archive.write_bytes(tar_of(("b", b"b" * 512)).rstrip(b"\0") + bytes(header) + bytes(1024))
    place.refused()


def test_a_zip_inside_a_zip_is_just_a_file(place: Place) -> None:
    inner = zip_of(("../x", b"evil"))
    place.archive.write_bytes(zip_of(("inner.zip", inner)))
    place.unpack()
    assert (place.destination / "inner.zip").read_bytes() == inner


@pytest.mark.parametrize(
    "data", [b"", b"PK", b"PK\3\4", b"\x1f\x8b", b"BZh9", b"\xfd7zXZ\0", b"hello\n" * 500, bytes(4096)]
)
def test_what_is_no_archive_is_refused(place: Place, data: bytes) -> None:
    place.archive.write_bytes(data)
    if data == bytes(4096):  # an archive of nothing, as tar writes it
        place.unpack()
        assert list(place.destination.iterdir()) == []
    else:
        place.refused("not a valid zip or tar archive")


def test_a_missing_archive_is_not_found_and_a_pipe_does_not_block(place: Place) -> None:
    with pytest.raises(NotFoundError):
        place.unpack()
    os.mkfifo(place.archive)
    with pytest.raises(InvalidError):
        place.unpack()
    assert not is_archive(str(place.archive))


@pytest.mark.parametrize("kind", ["zip", *TAR_WRITERS])
def test_a_good_archive_is_unpacked_whatever_its_name(place: Place, kind: str) -> None:
    entries = [("./top/SKILL.md", "Grüße\n".encode()), ("top/dätä/ü.txt", b"x" * 300_000), ("top/empty", b"")]
    place.archive.write_bytes(zip_of(*entries) if kind == "zip" else TAR_WRITERS[kind](tar_of(*entries)))
    assert is_archive(str(place.archive))
    place.unpack()
    assert (place.destination / "top/SKILL.md").read_text() == "Grüße\n"
    assert (place.destination / "top/dätä/ü.txt").read_bytes() == b"x" * 300_000
    assert (place.destination / "top/empty").read_bytes() == b""
    assert [file.name for file in place.destination.parent.iterdir()] == ["target"]


def test_modes_are_ours_and_only_the_owners_executable_bit_is_kept(place: Place) -> None:
    def change(info: tarfile.TarInfo) -> None:
        info.mode = 0o777 if info.name.endswith(".sh") else 0o666

    place.archive.write_bytes(tar_of(("d/run.sh", b"#!/bin/sh"), ("d/text.md", b""), change=change))
    old = os.umask(0o077)
    try:
        place.unpack()
    finally:
        os.umask(old)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in place.destination.rglob("*")}
    assert modes == {"d": 0o755, "run.sh": 0o744, "text.md": 0o644}


def test_directories_made_by_the_usual_tar_commands_are_taken(place: Place) -> None:
    source = place.path / "source"
    (source / "skills" / "one").mkdir(parents=True)
    (source / "skills" / "one" / "SKILL.md").write_text("text")
    with tarfile.open(place.archive, "w:gz") as archive:
        archive.add(source, arcname=".")
    place.unpack()
    assert (place.destination / "skills/one/SKILL.md").read_text() == "text"


def test_utf_8_names_without_the_flag_are_read_as_their_packers_meant_them(place: Place) -> None:
    data = zip_of(("grüße.md", b""))
    place.archive.write_bytes(data.replace(b"\x14\x00\x00\x08", b"\x14\x00\x00\x00"))
    place.unpack()
    assert os.listdir(place.destination) == ["grüße.md"]


def test_a_destination_with_something_in_it_is_left_alone(place: Place) -> None:
    place.archive.write_bytes(zip_of(("a", b"new")))
    place.destination.mkdir()
    (place.destination / "a").write_text("old")
    before = place.listing()
    with pytest.raises(KitbagError, match="already"):
        place.unpack()
    assert place.listing() == before


def test_a_destination_that_is_a_link_is_refused(place: Place) -> None:
    place.archive.write_bytes(zip_of(("a", b"new")))
    elsewhere = place.path / "elsewhere"
    elsewhere.mkdir()
    place.destination.symlink_to(elsewhere)
    with pytest.raises(KitbagError, match="already"):
        place.unpack()
    assert list(elsewhere.iterdir()) == []


def test_an_empty_destination_is_filled(place: Place) -> None:
    place.archive.write_bytes(zip_of(("a", b"new")))
    place.destination.mkdir()
    place.unpack()
    assert (place.destination / "a").read_text() == "new"


@long
def test_a_hostile_archive_costs_little_memory(place: Place) -> None:
    with bz2.open(place.archive, "wb") as out:
        info = tarfile.TarInfo("f")
        info.size = 49_000_000
        out.write(info.tobuf())
        for _ in range(120):
            out.write(bytes(1 << 20))
    code = (
        "import re, sys\n"
        "from kitbag.library.plugins.archives import unpack_archive\n"
        "try: unpack_archive(sys.argv[1], sys.argv[2])\n"
        "except Exception as error: print(type(error).__name__)\n"
        "print(re.search('VmHWM:\\\\s+([0-9]+)', open('/proc/self/status').read())[1])\n"
    )
    arguments = [sys.executable, "-c", code, str(place.archive), str(place.destination)]
    answer = subprocess.run(arguments, capture_output=True, text=True, timeout=TEST_TIMEOUT, check=True).stdout.split()
    assert answer[0] == "InvalidError"
    assert int(answer[1]) < 100_000
