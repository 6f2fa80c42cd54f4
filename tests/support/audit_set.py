"""The evaluation set of the audit: benign and malicious skills, laid out as directories.

`=== KIND/NAME: DESCRIPTION` starts an item and its SKILL.md, `@@@ PATH [ENCODING]` another file of it. Of each kind,
every second item is held out: rules are tuned on the others only. The `fresh` files were written after the rules had
been tuned on the first ones, the `late` files after tuning on those. Then came `classes`, known attacks in other words,
`novel`, attacks of new kinds, `wild` and `last`, attacks as incidents describe them, `gate`, and `round` to `fifth`, new
kinds and languages again. docs/audit.md has the rates at first sight. Malicious texts are inert and name reserved hosts.
"""

import io
import re
import zipfile
from pathlib import Path
from typing import Final, Literal, NamedTuple

FOLDER: Final = Path(__file__).parents[1] / "audit" / "evaluation"
Label = Literal["benign", "malicious"]
Half = Literal[
    "tuning",
    "held-out",
    "fresh tuning",
    "fresh held-out",
    "late",
    "classes",
    "novel",
    "wild",
    "last",
    "gate tuning",
    "gate held-out",
    "round",
    "second",
    "third",
    "fourth",
    "fifth",
]
HALVES: Final[tuple[Half, ...]] = (
    "tuning",
    "held-out",
    "fresh tuning",
    "fresh held-out",
    "late",
    "classes",
    "novel",
    "wild",
    "last",
    "gate tuning",
    "gate held-out",
    "round",
    "second",
    "third",
    "fourth",
    "fifth",
)
_PNG: Final = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000002000001000500010d0a2db40000000049454e44ae426082"
)
_JPEG: Final = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffdb000400ffd9")
_ESCAPE: Final = re.compile(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")


class EvaluationItem(NamedTuple):
    label: Label
    half: Half
    kind: str
    name: str
    files: dict[str, bytes]

    def write(self, folder: Path) -> None:
        for name, content in self.files.items():
            path = folder / self.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def read_evaluation_set() -> list[EvaluationItem]:
    return [
        *_read("benign.txt", "benign", "tuning", "held-out"),
        *_read("malicious.txt", "malicious", "tuning", "held-out"),
        *_read("fresh-benign.txt", "benign", "fresh tuning", "fresh held-out"),
        *_read("fresh-malicious.txt", "malicious", "fresh tuning", "fresh held-out"),
        *_read("late-benign.txt", "benign", "late", "late"),
        *_read("late-malicious.txt", "malicious", "late", "late"),
        *_read("classes-malicious.txt", "malicious", "classes", "classes"),
        *_read("novel-malicious.txt", "malicious", "novel", "novel"),
        *_read("wild-malicious.txt", "malicious", "wild", "wild"),
        *_read("last-malicious.txt", "malicious", "last", "last"),
        *_read("gate-malicious.txt", "malicious", "gate tuning", "gate held-out"),
        *_read("round-malicious.txt", "malicious", "round", "round"),
        *_read("second-malicious.txt", "malicious", "second", "second"),
        *_read("third-benign.txt", "benign", "third", "third"),
        *_read("third-malicious.txt", "malicious", "third", "third"),
        *_read("fourth-malicious.txt", "malicious", "fourth", "fourth"),
        *_read("fifth-malicious.txt", "malicious", "fifth", "fifth"),
    ]


def _read(file: str, label: Label, first: Half, second: Half) -> list[EvaluationItem]:
    items: list[EvaluationItem] = []
    seen: dict[str, int] = {}
    for text in re.split(r"^=== ", (FOLDER / file).read_text("utf-8"), flags=re.MULTILINE)[1:]:
        head, _, rest = text.partition("\n")
        title, _, description = head.partition(": ")
        kind, name = title.split("/")
        seen[kind] = seen.get(kind, -1) + 1
        items.append(
            EvaluationItem(label, second if seen[kind] % 2 else first, kind, name, _files(name, description, rest))
        )
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
