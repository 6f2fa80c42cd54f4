import pytest

from kitbag.shell.analysis import analyze


def labels(text: str) -> list[str]:
    return [part.check.label for part in analyze(text).parts if part.check is not None]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("pytest", "run tests: pytest"),
        ("python3 -m pytest -x tests", "run tests: pytest"),
        ("uv run pytest", "run tests: pytest"),
        ("CI=1 timeout 60 pytest -q", "run tests: pytest"),
        ("npm test -- --watch=false", "run tests: npm test"),
        ("npm run lint", "run linters: npm run lint"),
        ("npx tsc --noEmit", "run linters: tsc"),
        ("make test", "run tests: make test"),
        ("make -s test", ""),
        ("cargo test --all", "run tests: cargo test"),
        ("go test ./...", "run tests: go test"),
        ("cargo fmt -- --check", "run linters: cargo fmt -- --check"),
        ("ruff check . && mypy src", "run linters: ruff check|run linters: mypy"),
    ],
)
def test_tests_and_linters_are_recognized(text: str, label: str) -> None:
    assert "|".join(labels(text)) == label


@pytest.mark.parametrize(
    "text",
    [
        "npm run deploy", "npm run build", "make", "make test deploy", "make test SHELL=./evil", "pytest /tmp/x", "pytest ../x",
        "pytest --basetemp=src", "pytest $x", "pytest *", 'pytest "$(cat x)"', "ruff check --fix", "go test -exec ./evil ./...",
        "go vet -vettool=./evil", "cargo test --config x", "npm test --prefix /tmp/x", "PYTHONPATH=. pytest", "sudo pytest",
        "./pytest", "/tmp/pytest", "tsc -p /tmp/evil", "gradle test publish", "python pytest", "black src",
        "prettier --write .", "env X=1 pytest", "xargs pytest", "npx evil", "uv run evil", "mypy --config-file=~/x src",
    ],
)  # fmt: skip
def test_what_reaches_further_is_an_ordinary_command(text: str) -> None:
    assert labels(text) == []
    assert any(part.kind == "other" for part in analyze(text).parts)
