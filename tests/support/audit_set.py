"""The evaluation set of the audit: benign and malicious skills, laid out as directories.

`=== KIND/NAME: DESCRIPTION` starts an item and its SKILL.md, `@@@ PATH [ENCODING]` another file of it. Malicious items
are of three parts: attacks of known classes in many words, attacks as incidents describe them, and attacks of kinds that
no rule was written for when they were written. docs/audit.md has the rates at first sight. Malicious texts are inert and
name reserved hosts.
"""

import io
import re
import zipfile
from pathlib import Path
from typing import Final, Literal, NamedTuple

FOLDER: Final = Path(__file__).parents[1] / "audit" / "evaluation"
Label = Literal["benign", "malicious"]
Part = Literal["benign", "known", "incidents", "new"]
MALICIOUS_PARTS: Final[tuple[Part, ...]] = ("known", "incidents", "new")
_PNG: Final = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000002000001000500010d0a2db40000000049454e44ae426082"
)
_JPEG: Final = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffdb000400ffd9")
_ESCAPE: Final = re.compile(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")


class EvaluationItem(NamedTuple):
    label: Label
    part: Part
    kind: str
    name: str
    files: dict[str, bytes]

    def write(self, folder: Path) -> None:
        for name, content in self.files.items():
            path = folder / self.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def read_evaluation_set() -> list[EvaluationItem]:
    items = read_items(FOLDER / "benign.txt", "benign", "benign")
    for part in MALICIOUS_PARTS:
        items += read_items(FOLDER / f"malicious-{part}.txt", "malicious", part)
    return items


def read_items(file: Path, label: Label, part: Part) -> list[EvaluationItem]:
    items: list[EvaluationItem] = []
    for text in re.split(r"^=== ", file.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        head, _, rest = text.partition("\n")
        title, _, description = head.partition(": ")
        kind, name = title.split("/")
        items.append(EvaluationItem(label, part, kind, name, _files(name, description, rest)))
    return items


def _files(name: str, description: str, text: str) -> dict[str, bytes]:
    parts = re.split(r"^@@@ (.+)\n", text, flags=re.MULTILINE)
    files = {"SKILL.md": parts[0].encode()}
    for path, content in zip(parts[1::2], parts[2::2], strict=True):
        path, _, encoding = path.partition(" ")
        files[path] = _encode(content, encoding)
    front = f"---\nname: {name}\ndescription: {description}\n---\n\n"
    files["SKILL.md"] = front.encode() + files["SKILL.md"]
    return files


def _encode(text: str, encoding: str) -> bytes:
    """Content that a text file can't hold: `png` and `jpeg` are images with the text behind them."""
    match encoding:
        case "":
            return text.encode()
        case "escaped":
            return _ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)), text).encode()
        case "png":
            return _PNG + text.encode()
        case "jpeg":
            return _JPEG + text.encode()
        case "locked-zip":
            return _locked_zip(text)
        case _:
            raise ValueError(f"no encoding named {encoding!r}")


def _locked_zip(text: str) -> bytes:
    """A ZIP archive whose only entry has the flag of encrypted entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("setup.exe", (2026, 1, 1, 0, 0, 0)), text)
    data = bytearray(buffer.getvalue())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)
