"""Names: which are usable, when two are one, and what a person meant."""

import unicodedata
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitbag.errors import AmbiguousError, NotFoundError
from kitbag.library.names import (
    MAX_NAME,
    UNNAMED,
    Namespace,
    confusable_skeleton,
    normalize_name,
    sanitize_name,
    slugify,
)
from kitbag.library.scopes import Root
from kitbag.text.hidden_characters import find_hidden
from support.cost import steps

PROJECT = Root("/project", "skills", "project", "kitbag", (1, 0))
USER = Root("/user", "skills", "user", "kitbag", (2, 0))
PLUGINS = Root("/plugins", "skills", "plugin", "claude", (5, 0))


class Thing(NamedTuple):
    name: str
    full_name: str
    root: Root = USER

    @property
    def path(self) -> str:
        return f"{self.root.path}/{self.full_name}"


def names(*full: str, root: Root = USER) -> Namespace[Thing]:
    space: Namespace[Thing] = Namespace("skill")
    space.add_all(thing(name, root) for name in full)
    return space


def thing(full: str, root: Root = USER) -> Thing:
    return Thing(full.replace("/", ":").rpartition(":")[2], full, root)


# -- which names are usable ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["deploy", "code_review", "C# Expert", "数据库迁移", "обзор-кода", "café", "3000", "on"]
)
def test_an_ordinary_name_is_kept_as_it_is(name: str) -> None:
    assert sanitize_name(name, "folder") == (name, "")


def test_no_name_at_all_means_the_folder_s_without_complaint() -> None:
    assert sanitize_name(None, "folder") == ("folder", "")


@pytest.mark.parametrize(
    "written",
    ["", "   ", ".", "..", "../../x", "a/../b", "..\\..\\x", "null", "~", "None", "---", "a\0b", ["a"], {"a": "b"}],
)
def test_what_can_t_be_a_name_is_replaced_by_the_folder_s_and_said(written: object) -> None:
    name, wrong = sanitize_name(written, "folder")  # type: ignore[arg-type]
    assert name == "folder"
    assert "`name`" in wrong


@pytest.mark.parametrize(
    ("written", "name", "wrong"),
    [
        ("/etc/passwd", "etc-passwd", "characters that are not allowed"),
        ("plugin:stolen", "plugin-stolen", "characters that are not allowed"),
        ("a\\b", "a-b", "characters that are not allowed"),
        ("two\nlines", "two lines", "characters that are not allowed"),
        ("red\x1b[31m", "red[31m", "U+001B"),
        ("zero\u200bwidth", "zerowidth", "U+200B"),
        ("turn\u202eed", "turned", "U+202E"),
        ("tag\U000e0041", "tag", "U+E0041"),
        ("x" * 300, "x" * MAX_NAME, "longer than 64"),
    ],
)
def test_what_is_hostile_is_made_harmless_and_said(written: str, name: str, wrong: str) -> None:
    usable, problem = sanitize_name(written, "folder")
    assert usable == name
    assert wrong in problem


@pytest.mark.parametrize("folder", ["---", "...", "\u200b", ""])
def test_even_a_folder_without_a_usable_name_gives_one(folder: str) -> None:
    assert sanitize_name(None, folder)[0] == UNNAMED
    assert sanitize_name("..", folder)[0] == UNNAMED


@settings(deadline=None)
@given(st.one_of(st.none(), st.text(max_size=100)), st.text(max_size=80))
def test_whatever_is_written_a_name_is_one_short_visible_line_without_separators(
    written: str | None, folder: str
) -> None:
    name, _ = sanitize_name(written, folder)
    assert 0 < len(name) <= MAX_NAME
    assert name == name.strip()
    assert name not in (".", "..")
    assert not set(name) & set("/\\:\n\r\t\0")
    assert find_hidden(name) == []
    assert sanitize_name(name, "folder") == (name, "") or name.casefold() in ("null", "none", "~")


# -- when two names are one ------------------------------------------------------------------------


def test_names_are_found_in_any_case() -> None:
    space = names("Deploy", "straße", "ΣΊΣΥΦΟΣ")
    for wanted in ("deploy", "DEPLOY", " Deploy "):
        assert space.get(wanted).name == "Deploy"
    assert space.get("STRASSE").name == "straße"
    assert space.get("σίσυφος").name == "ΣΊΣΥΦΟΣ"


def test_an_accent_can_be_stored_in_two_ways_and_is_one_name() -> None:
    composed, decomposed = unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café")
    assert composed != decomposed
    space = names(composed, decomposed)
    assert len(space) == 1
    assert [loser.name for _, loser in space.shadowed] == [decomposed]
    assert names(decomposed).get(composed).name == decomposed
    assert names(f"plugin:{decomposed}").get(composed).name == decomposed


def test_the_first_one_added_holds_the_name_and_the_others_are_kept_as_losers() -> None:
    space: Namespace[Thing] = Namespace("skill")
    first, second, third = thing("deploy", PROJECT), thing("Deploy", USER), thing("DEPLOY", PLUGINS)
    space.add_all([first])
    space.add_all([second])
    space.add(third)
    assert space.get("deploy") is first
    assert space.shadowed == [(first, second), (first, third)]


def test_all_are_listed_in_sorted_order_whatever_the_order_they_came_in() -> None:
    assert [t.full_name for t in names("b", "C", "a", "é")] == ["a", "b", "C", "é"]


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("abAB éÉe\u0301-_"), min_size=1, max_size=4), max_size=12))
def test_adding_many_at_once_is_adding_each(full: list[str]) -> None:
    things = [thing(name.strip() or "x") for name in full]
    one_by_one: Namespace[Thing] = Namespace("skill")
    for item in things:
        one_by_one.add(item)
    at_once: Namespace[Thing] = Namespace("skill")
    at_once.add_all(things)
    assert list(at_once) == list(one_by_one)
    assert at_once.shadowed == one_by_one.shadowed
    assert len(at_once) + len(at_once.shadowed) == len(things)


@settings(deadline=None)
@given(st.text(max_size=30))
def test_keys_and_slugs_are_stable(name: str) -> None:
    assert normalize_name(normalize_name(name)) == normalize_name(name)
    assert slugify(slugify(name)) == slugify(name)


# -- what a person meant ---------------------------------------------------------------------------


def test_a_name_with_blanks_and_signs_is_found_by_what_a_person_types() -> None:
    space = names("C# Expert", "plug:Deploy To Production")
    for wanted in ("c# expert", "C-Expert", "c_expert", "c expert"):
        assert space.get(wanted).name == "C# Expert"
    assert space.get("deploy-to-production").full_name == "plug:Deploy To Production"
    assert space.get("plug deploy to production").full_name == "plug:Deploy To Production"


def test_a_dash_and_an_underscore_make_two_names_that_both_stay() -> None:
    space = names("code_review", "code-review")
    assert space.get("code_review").name == "code_review"
    assert space.get("code-review").name == "code-review"
    with pytest.raises(AmbiguousError) as raised:
        space.get("code review")
    assert "code-review, code_review" in raised.value.problem


def test_a_short_name_is_enough_when_only_one_has_it() -> None:
    space = names("git:commit", "hg:record")
    assert space.get("commit").full_name == "git:commit"


def test_a_short_name_that_is_written_exactly_so_beats_one_that_only_reads_like_it() -> None:
    space = names("a:code-review", "b:code_review")
    assert space.get("code-review").full_name == "a:code-review"
    assert space.get("code_review").full_name == "b:code_review"


def test_a_short_name_that_several_have_is_an_error_with_all_full_names() -> None:
    space = names("git:commit", "hg:commit", "team/commit")
    with pytest.raises(AmbiguousError) as raised:
        space.get("Commit")
    assert raised.value.problem == "'Commit' is ambiguous; it matches git:commit, hg:commit, team/commit"
    assert raised.value.fix == "use the full name"
    assert raised.value.exit_code == 5


def test_a_full_name_beats_the_short_names_of_others() -> None:
    assert names("commit", "git:commit").get("commit").full_name == "commit"


def test_an_unknown_name_is_an_error_with_the_close_ones() -> None:
    space = names("deploy-service", "git:commit", "review")
    with pytest.raises(NotFoundError) as raised:
        space.get("deploy-servce")
    assert raised.value.problem == "no skill named 'deploy-servce'"
    assert raised.value.fix == "did you mean deploy-service?"
    assert space.suggest("comit") == ["git:commit"]
    assert space.suggest("service")[0] == "deploy-service"
    with pytest.raises(NotFoundError) as raised:
        space.get("zzzzzz")
    assert raised.value.fix == "run `kitbag skills list` to see all names"


@pytest.mark.parametrize("wanted", ["", " ", "!!!", "-", "..", "🚀🚀"])
def test_a_name_without_a_letter_means_nothing_by_accident(wanted: str) -> None:
    with pytest.raises(NotFoundError):
        names("🚀", "☃", "deploy").get(wanted)
    assert names("🚀").get("🚀").name == "🚀"


def test_an_endless_name_makes_no_endless_message() -> None:
    with pytest.raises(NotFoundError) as raised:
        names("deploy").get("x" * 1_000_000)
    assert len(raised.value.problem) < 200


def test_a_name_is_looked_up_among_ten_thousand_as_among_a_few() -> None:
    def taken(number: int) -> int:
        space = names(*(f"plugin:skill-{n:05d}" for n in range(number)))
        space.get("skill-00001")
        return steps(lambda: space.get("skill-00007"))

    assert taken(10_000) == taken(10)


@settings(deadline=None)
@given(st.lists(st.text(st.characters(categories=("L", "N")), min_size=1, max_size=6), min_size=1, max_size=8))
def test_every_item_is_found_by_its_own_full_name(full: list[str]) -> None:
    space = names(*(f"plug:{name}" for name in full))
    for item in space:
        assert space.get(item.full_name) is item
        assert item in space.candidates(item.name)


# -- names that look like another's ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "looks_like"),
    [
        ("dеploy", "deploy"),  # Cyrillic е
        ("Вash", "bash"),  # Cyrillic В, a capital
        ("ΑΒΕ", "abe"),  # Greek
        ("revιew", "review"),  # Greek ι
        ("ｄｅｐｌｏｙ", "deploy"),  # full width
        ("𝐝𝐞𝐩𝐥𝐨𝐲", "deploy"),  # mathematical bold
        ("ɡit", "git"),
    ],
)
def test_letters_of_other_scripts_that_look_latin_are_seen_through(written: str, looks_like: str) -> None:
    assert confusable_skeleton(written) == confusable_skeleton(looks_like)
    found = names(looks_like, written).find_confusables()
    assert [(d.severity, d.code, d.file) for d in found] == [("warning", "look-alike", f"/user/{written}")]
    assert f"/user/{looks_like}" in found[0].problem
    assert "U+" in found[0].problem


@pytest.mark.parametrize(("original", "copy"), [(USER, PROJECT), (PROJECT, USER), (USER, PLUGINS), (USER, USER)])
def test_the_imitation_is_the_one_that_is_warned_of_wherever_it_lies(original: Root, copy: Root) -> None:
    space: Namespace[Thing] = Namespace("skill")
    space.add_all([thing("deploy", original), thing("dеploy", copy)])
    assert [d.file for d in space.find_confusables()] == [f"{copy.path}/dеploy"]


def test_of_two_strange_names_the_later_one_is_warned_of() -> None:
    space: Namespace[Thing] = Namespace("skill")
    space.add_all([thing("déploy", USER), thing("déplоy", PLUGINS)])  # the second with a Cyrillic о
    assert [d.file for d in space.find_confusables()] == ["/plugins/dépl\u043ey"]


@pytest.mark.parametrize(
    "ordinary",
    [
        ["обзор-кода", "сборка", "тесты", "review"],
        ["代码审查", "数据库", "部署", "deploy"],
        ["ανάλυση", "έλεγχος", "analysis"],
        ["café", "cafe", "naïve"],
        ["re1ease", "release"],
    ],
)
def test_ordinary_names_of_any_language_are_not_suspected(ordinary: list[str]) -> None:
    assert names(*ordinary).find_confusables() == []
