"""The evaluation set of the audit: benign and malicious skills, laid out as directories.

`=== KIND/NAME: DESCRIPTION` starts an item and its SKILL.md, `@@@ PATH [ENCODING]` another file of it; an item without a
description has its frontmatter in the file. Malicious items are of four parts: attacks of known classes in many words,
attacks as incidents describe them, attacks of kinds that no rule was written for, and `blind`: batches by authors who
had not read the rules, with benign items of the same authors. Nothing is learned from the batches that are held out.
docs/audit.md has the rates at first sight. Malicious texts are inert and name reserved hosts.
"""

import base64
import io
import re
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Final, Literal, NamedTuple

from kitbag.audit.findings import AuditFinding
from kitbag.audit.run import run_audit

FOLDER: Final = Path(__file__).parents[1] / "audit" / "evaluation"
HELD_OUT: Final = ("C", "H", "Q")
Label = Literal["benign", "malicious"]
Part = Literal["benign", "known", "incidents", "new", "blind", "held out"]
MALICIOUS_PARTS: Final[tuple[Part, ...]] = ("known", "incidents", "new", "blind")
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
    batch: str = ""

    def write(self, folder: Path) -> None:
        for name, content in self.files.items():
            path = folder / self.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def find_by_item(folder: Path) -> dict[str, list[AuditFinding]]:
    """Findings below a folder with `LABEL/NAME` of each item, by name."""
    findings: dict[str, list[AuditFinding]] = defaultdict(list)
    for finding in run_audit((str(folder),)).findings:
        findings[finding.file.split("/")[1]].append(finding)
    return findings


def is_high(findings: list[AuditFinding]) -> bool:
    return any(finding.severity == "high" for finding in findings)


def read_evaluation_set() -> list[EvaluationItem]:
    items = read_items(FOLDER / "benign.txt", "benign", "benign")
    for part in ("known", "incidents", "new"):
        items += read_items(FOLDER / f"malicious-{part}.txt", "malicious", part)
    batches = sorted({path.name.partition("-")[0] for path in (FOLDER / "batches").iterdir()} - {*HELD_OUT})
    return items + [item for batch in batches for item in read_batch(batch)]


def read_held_out_set() -> list[EvaluationItem]:
    """Batches from which nothing is learned and for which nothing is tuned: only their rates are looked at."""
    return [item for batch in HELD_OUT for item in read_batch(batch)]


def read_batch(batch: str) -> list[EvaluationItem]:
    part: Part = "held out" if batch in HELD_OUT else "blind"
    labels: tuple[Label, ...] = ("malicious", "benign")
    return [
        item._replace(batch=batch)
        for label in labels
        for item in read_items(FOLDER / "batches" / f"{batch}-{label}.txt", label, part)
    ]


def read_items(file: Path, label: Label, part: Part) -> list[EvaluationItem]:
    items: list[EvaluationItem] = []
    for text in re.split(r"^=== ", file.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        head, _, rest = text.partition("\n")
        title, has_description, description = head.partition(": ")
        kind, name = title.split("/")
        if not has_description:
            items.append(EvaluationItem(label, part, kind, name, _read_files(rest)))
            continue
        items.append(EvaluationItem(label, part, kind, name, _files(name, description, rest)))
    return items


def _read_files(text: str) -> dict[str, bytes]:
    parts = re.split(r"^@@@ (.+)\n", text, flags=re.MULTILINE)
    named = [path.partition(" ") for path in parts[1::2]]
    return {path: _encode(content, encoding) for (path, _, encoding), content in zip(named, parts[2::2], strict=True)}


def _files(name: str, description: str, text: str) -> dict[str, bytes]:
    own, mark, rest = re.match(r"(.*?)(^@@@ |\Z)(.*)", text, re.DOTALL | re.MULTILINE).groups()  # type: ignore[union-attr]
    files = {"SKILL.md": own.encode(), **_read_files(mark + rest)}
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
        case "base64":
            return base64.b64decode(text)
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
