"""The token estimate beside counts made once with the vocabularies cl100k and o200k."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.text.tokens import estimate_tokens
from support.cost import steps

ENGLISH = (
    "Read the change as a whole before you judge a line of it, and say what you did not read. A reviewer who names the "
    "three things that matter helps more than one who lists thirty that do not. When a test is missing, say which case "
    "it should cover and why somebody would care.\n"
)
MARKDOWN = (
    "# Release notes\n\nUse when somebody asks for a changelog.\n\n1. Run `git log --oneline v1.2.0..HEAD`.\n"
    "2. Group by *feature*, *fix* and *chore*.\n3. Write one line each; link issues as "
    "[#12](https://example.org/issues/12).\n\n| kind | prefix |\n|---|---|\n| feature | `feat:` |\n| fix | `fix:` |\n"
)
PYTHON = (
    'def slug(name: str) -> str:\n    """Lower case, words joined by hyphens."""\n'
    '    words = re.findall(r"[a-z0-9]+", name.lower())\n    return "-".join(words) or "unnamed"\n\n\n'
    "class Registry:\n    def __init__(self, roots: list[Path]) -> None:\n        self.roots = roots\n"
    "        self._by_name: dict[str, Skill] = {}\n"
)
JSON = (
    '{"name": "code-review", "version": "1.2.0", "tags": ["review", "quality"], "limits": {"tokens": 15000, "depth": 3},'
    ' "enabled": true, "path": "/home/ann/.kitbag/skills/code-review/SKILL.md"}\n'
)
CHINESE = (
    "在评审之前先完整地阅读这次修改，并说明哪些部分没有看。指出最重要的三个问题，比列出三十个小问题更有帮助。"
    "如果缺少测试，请说明应该覆盖哪种情况以及原因。"
)
JAPANESE = "変更を一行ずつ判断する前に、まず全体を読んでください。読んでいない部分があれば、それを明記します。"
RUSSIAN = (
    "Прежде чем судить о строке, прочитайте изменение целиком и скажите, чего вы не читали. Три важных замечания "
    "полезнее тридцати мелких."
)


@pytest.mark.parametrize(
    ("text", "cl100k", "o200k", "within"),
    [
        pytest.param(ENGLISH, 60, 60, 0.10, id="English"),
        pytest.param(MARKDOWN, 92, 93, 0.15, id="Markdown"),
        pytest.param(PYTHON, 89, 89, 0.15, id="Python"),
        pytest.param(JSON, 66, 66, 0.15, id="JSON"),
        pytest.param(CHINESE, 74, 49, 0.25, id="Chinese"),
        pytest.param(JAPANESE, 45, 35, 0.15, id="Japanese"),
        pytest.param(RUSSIAN, 60, 38, 0.30, id="Russian"),
    ],
)
def test_the_estimate_is_near_what_vocabularies_count(text: str, cl100k: int, o200k: int, within: float) -> None:
    least, most = sorted((cl100k, o200k))
    assert least * (1 - within) <= estimate_tokens(text) <= most * (1 + within)


def test_nothing_costs_nothing_and_anything_costs_something() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens(" ") == 1
    assert estimate_tokens("\u0301") == 1


def test_pictures_cost_more_than_letters() -> None:
    assert estimate_tokens("🎉" * 100) > estimate_tokens("é" * 100) > estimate_tokens("e" * 100)


@given(st.text(max_size=400), st.text(max_size=400))
def test_more_text_never_costs_less(text: str, more: str) -> None:
    assert estimate_tokens(text + more) >= estimate_tokens(text)


def test_a_long_text_takes_no_more_steps_than_a_short_one() -> None:
    text = MARKDOWN * 20 + CHINESE * 10
    assert steps(lambda: estimate_tokens(text * 100)) < steps(lambda: estimate_tokens(text)) + 500
