"""What texts cost that were written to take long: tests bound it, here it is measured.

    python bench/hostile.py

For each kind of text the most expensive of those that the tests use: processor time, and that for each character. The
floor is `str.split`, which looks at each character once. Goal: a second, whatever somebody has written.
"""

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

sys.path.pop(0)  # some benchmarks are named like folders of tests
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from kitbag.library.dialects.field_names import KNOWN_FIELDS
from kitbag.shell.analysis import analyze
from kitbag.store.redaction import Redactor
from kitbag.text.frontmatter_fields import parse_metadata
from kitbag.text.reference_syntax import find_references
from kitbag.text.sections import parse_sections
from kitbag.text.source_files import FRONTMATTER_LIMIT
from shell import test_analysis as shell
from store import test_redaction as secrets
from text import hostile_heads as heads
from text import test_reference_syntax as references
from text import test_sections as sections
from tools.web import test_html_to_markdown as pages

GOAL = 1.0
ROUNDS = 3


class Kind(NamedTuple):
    name: str
    read: Callable[[str], object]
    texts: Iterable[str]


def kinds() -> list[Kind]:
    redactor = Redactor([])
    return [
        Kind(
            "frontmatter",
            lambda text: parse_metadata(text, 2, KNOWN_FIELDS, []),
            cut(heads.HEADS.values(), FRONTMATTER_LIMIT),
        ),
        Kind("references", find_references, repeated(references.HOSTILE, 100_000)),
        Kind("sections", parse_sections, sections.HOSTILE.values()),
        Kind("commands", analyze.__wrapped__, repeated(shell.HOSTILE, 10_000)),
        Kind("secrets", redactor.redact_text, repeated(secrets.HOSTILE, 1_000_000)),
        Kind("web pages", pages.read, repeated(pages.DEEP, 100_000)),
    ]


def cut(texts: Iterable[str], length: int) -> list[str]:
    return [text[:length] for text in texts]


def repeated(pieces: Iterable[str], length: int) -> list[str]:
    return [piece * (length // len(piece)) for piece in pieces]


def least(work: Callable[[str], object], text: str) -> float:
    best = 1e9
    for _ in range(ROUNDS):
        begun = time.process_time()
        work(text)
        best = min(best, time.process_time() - begun)
    return best


def main() -> None:
    print(f"{'kind':<14}{'worst':>12}{'a character':>16}{'floor':>12}   begins with")
    for kind in kinds():
        cost, text = max((least(kind.read, text), text) for text in kind.texts)
        missed = "" if cost < GOAL else "  MISSED"
        each, floor = cost / len(text) * 1e9, least(str.split, text)
        print(f"{kind.name:<14}{cost * 1e3:9.1f} ms{each:13.0f} ns{floor * 1e3:9.2f} ms   {text[:24]!r}{missed}")


if __name__ == "__main__":
    main()
