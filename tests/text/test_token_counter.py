"""The estimate against counts of a real tokenizer, and the choice between the two."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.text.tokens import estimate_tokens, exact_counter, token_counter
from support.cost import steps

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench" / "tokens.py"

# Counted with o200k, so that the check needs no tokenizer.
EXACT = {
    "Markdown skill": 519,
    "JavaScript": 527,
    "shell": 666,
    "JSON": 2365,
    "JSON, compact": 1396,
    "Chinese": 509,
    "Japanese": 558,
    "Korean": 436,
    "Russian": 367,
    "Arabic": 379,
}
EXACT_LICENSE = 2262


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    if not BENCH.exists():
        pytest.skip("the benchmarks are not part of this copy")
    spec = importlib.util.spec_from_file_location("bench_tokens", BENCH)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", EXACT)
def test_the_estimate_is_within_a_tenth_of_the_exact_count(bench: ModuleType, kind: str) -> None:
    text = bench.samples()[kind]
    assert len(text.encode()) > 2048
    assert estimate_tokens(text) == pytest.approx(EXACT[kind], rel=0.1)


def test_the_estimate_of_english_prose_is_within_a_tenth() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert estimate_tokens(text) == pytest.approx(EXACT_LICENSE, rel=0.1)


def test_no_sample_is_without_a_count(bench: ModuleType) -> None:
    assert bench.samples().keys() == EXACT.keys()


@given(st.text())
def test_any_text_has_an_estimate_and_only_the_empty_one_costs_nothing(text: str) -> None:
    tokens = estimate_tokens(text)
    assert (tokens == 0) == (text == "")
    assert tokens <= 3 * len(text)


@given(st.text(), st.text())
def test_more_text_hardly_ever_costs_less(text: str, more: str) -> None:
    # Where two texts meet, words join: that saves a token or two, never more.
    assert estimate_tokens(text + "\n" + more) >= max(estimate_tokens(text), estimate_tokens(more)) - 2


def test_lone_halves_of_characters_are_counted() -> None:
    assert estimate_tokens("a \ud83d b \udc00") >= 2


def test_an_endless_word_is_not_one_token() -> None:
    assert estimate_tokens("a" * 8000) >= 1000


def test_the_estimate_looks_at_no_character_by_itself() -> None:
    text = "Some words, and a number 42.\n"
    assert steps(lambda: estimate_tokens(text * 35_000)) == steps(lambda: estimate_tokens(text * 1_000))


def test_the_estimate_is_used_when_asked_for() -> None:
    counter = token_counter(exact=False)
    assert (counter.name, counter.exact) == ("estimate", False)
    assert counter.count("two words") == estimate_tokens("two words")


def test_without_a_tokenizer_the_estimate_is_used_and_an_exact_count_is_an_error_that_says_what_to_install() -> None:
    # -S leaves out installed packages, so that this holds wherever the test runs.
    program = (
        "from kitbag.text.tokens import exact_counter, token_counter\n"
        "assert exact_counter() is None\n"
        "assert token_counter().name == 'estimate'\n"
        "try:\n    token_counter(exact=True)\nexcept RuntimeError as error:\n    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "no tokenizer is installed: pip install 'kitbag[tokens]'\n"


def test_importing_the_estimate_imports_no_tokenizer() -> None:
    program = "import sys, kitbag.text.tokens; print('splintr' in sys.modules, 're' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", program], env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True
    )
    assert ran.stdout.startswith("False")


class TestWithTheExtra:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("splintr", reason="needs kitbag[tokens]")

    def test_the_best_counter_is_exact(self) -> None:
        counter = token_counter()
        assert (counter.name, counter.exact) == ("splintr o200k", True)
        assert counter.count("hello world") == 2
        assert counter.count("") == 0

    def test_no_text_has_more_tokens_than_the_upper_bound(self, bench: ModuleType) -> None:
        counter = token_counter()
        for text in (*bench.samples().values(), "\ud800<|endoftext|>", "\u0000\U0010ffff" * 20, ""):
            assert counter.count(text) <= counter.upper_bound(text)

    def test_the_recorded_counts_are_right(self, bench: ModuleType) -> None:
        count = exact_counter()
        assert count
        assert {kind: count(text) for kind, text in bench.samples().items()} == EXACT

    def test_prose_and_code_of_the_standard_library_are_within_a_tenth(self, bench: ModuleType) -> None:
        count = exact_counter()
        assert count
        for kind, text in bench.library_samples().items():
            assert estimate_tokens(text) == pytest.approx(count(text), rel=0.1), kind

    def test_the_name_of_a_control_token_is_plain_text(self) -> None:
        count = exact_counter()
        assert count
        assert count("<|endoftext|>") > 1
        assert count("\ud800 <|endoftext|>") > 1
        assert count("\ud800") >= 1
