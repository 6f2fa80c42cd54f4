"""Which words of a message are files."""

import pytest

from kitbag.library.routing.mentioned_files import find_mentioned_files
from support.cost import processor_limit


@pytest.mark.parametrize(
    ("message", "files"),
    [
        ("look at db/schema.sql, please", ["db/schema.sql"]),
        ("fix `src/a.py:12:3` and (b.ts).", ["src/a.py", "b.ts"]),
        ("see [the guide](docs/guide.md) and ./x.md#L10-L20", ["docs/guide.md", "./x.md"]),
        ("@src/app/[id]/page.tsx is wrong", ["src/app/[id]/page.tsx"]),
        ("請看看db/schema.sql文件。谢谢", ["db/schema.sql"]),
        ("ändere größe.css", ["größe.css"]),
        ("the file 'my notes.md' is old", ["notes.md", "my notes.md"]),
        ("C:\\work\\a.cs", ["C:/work/a.cs"]),
        (".env and .github/workflows/ci.yml", [".env", ".github/workflows/ci.yml"]),
        ("e.g. version 3.5, at 9 p.m. see https://a.com/b.sql or me@a.com; we use Node.js", []),
        ("What's up? Nothing... really.", []),
    ],
)
def test_files_are_found_by_their_form(message: str, files: list[str]) -> None:
    assert sorted(find_mentioned_files(message).files) == sorted(files)


def test_a_name_without_extension_is_a_path_or_has_a_capital() -> None:
    assert find_mentioned_files("check the Dockerfile in src/api now").names == ("Dockerfile", "src/api")


@pytest.mark.parametrize("message", ["a/" * 500_000, "." * 1_000_000, "a.b" * 300_000, '"' * 500_000, "文a" * 300_000])
def test_a_hostile_message_costs_little(message: str) -> None:
    with processor_limit():
        find_mentioned_files(message)
