"""Resolving references: SECURITY.md D27 to D35 with real files, real processes and a tripwire, and the limits."""

import os
import re
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import World
from kitbag.errors import Diagnostic
from kitbag.library.scopes import Places, Scope
from kitbag.packing.references import plan as plan_module
from kitbag.packing.references.paths import WalkBudget, expand_pattern, parse_path_pattern
from kitbag.packing.references.permissions import ReferencePermissions
from kitbag.packing.references.resolve import (
    CommandFailedError,
    ReferenceCounts,
    ReferenceDecision,
    ReferenceDeniedError,
    ReferenceLimits,
    ReferencePolicy,
    ReferenceRequest,
    ReferenceSource,
    ReferenceUntrustedError,
    ResolvedText,
    resolve_references,
)
from kitbag.packing.references.shell_quoting import fill_command
from kitbag.processes.command_runner import (
    MARKER_VARIABLE,
    CommandResult,
    CommandStart,
    ProgressCallback,
    ShellCommand,
    run_command,
    run_supervised,
)
from kitbag.settings import Settings
from kitbag.text.sections import parse_sections
from support.cost import bytes_read, steps
from support.inserted_files import without_fences
from support.matrix import examples, long
from support.waiting import TEST_TIMEOUT

NAMES = frozenset(("CANARY", "PLAIN", "EMPTY", "UNSET"))
USUAL = ReferenceLimits()
HOSTILE = "!`touch $CANARY` @/etc/passwd ${CANARY_SECRET} {{OTHER}}\n```!\ntouch $CANARY\n```"


class Case:
    """One text in a workspace, resolved by a policy, with a tripwire that no test may touch."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.mark = uuid.uuid4().hex
        self.environment = {
            "PATH": os.environ["PATH"],
            "CANARY": str(world.canary),
            "CANARY_SECRET": "hunter2",
            "TRIPWIRE": self.mark,
            "PLAIN": "plain value",
            "EMPTY": "",
        }

    def source(self, text: str, scope: Scope = "user", first_line: int = 1) -> ReferenceSource:
        workspace = str(self.world.workspace)
        return ReferenceSource(
            text=text, path=f"{workspace}/SKILL.md", scope=scope, base=workspace, root=workspace, first_line=first_line
        )

    def rights(self, **options: Any) -> ReferencePermissions:
        """The policy of `kitbag pack` in this world."""
        return ReferencePermissions(
            self.world.places(), Settings(str(self.world.home / ".kitbag" / "settings.toml")), **options
        )

    def open(self, names: frozenset[str] = NAMES) -> ReferencePermissions:
        """Everything is allowed that a person can allow on the command line."""
        return self.rights(allow_commands=True, allow_environment=names, trust_workspace=True)

    def resolve(
        self,
        text: str,
        policy: ReferencePolicy | None = None,
        limits: ReferenceLimits = USUAL,
        *,
        scope: Scope = "user",
        values: Mapping[str, str] | None = None,
        first_line: int = 1,
        **options: Any,
    ) -> ResolvedText:
        source = self.source(text, scope, first_line)
        # What becomes of a command is what these tests are about; sandboxes have their own.
        options = {"environment": self.environment, "runner": run_command, **options}
        return resolve_references(source, values or {}, policy or self.open(), limits, **options)

    def leftovers(self) -> list[str]:
        """Processes that carry the mark of this test's environment."""
        found: list[str] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if self.mark.encode() in (entry / "environ").read_bytes():
                        found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
                except OSError:
                    continue
        return found


@pytest.fixture
def case(world: World) -> Case:
    return Case(world)


def codes(warnings: tuple[Diagnostic, ...]) -> list[tuple[str, int]]:
    return [(warning.code, warning.line) for warning in warnings]


# --- the five forms -----------------------------------------------------------------------------------------


def test_each_form_is_replaced_by_what_it_stands_for(case: Case) -> None:
    case.world.write("docs/spec.md", "The spec.\n")
    text = "A @docs/spec.md, {{TASK}}, ${PLAIN}, !`printf hi`\n\n```!\necho one\necho two\n```\nZ"
    done = case.resolve(text, values={"TASK": "T1"})
    assert done.text == ("A [file: docs/spec.md]\n```md\nThe spec.\n```\n, T1, plain value, hi\n\none\ntwo\nZ")
    assert done.warnings == ()
    inserted = sum(insertion.bytes for insertion in done.insertions)
    assert done.counts == ReferenceCounts(found=5, resolved=5, files=1, commands=2, bytes=inserted)


def test_insertions_say_where_they_are_and_where_they_come_from(case: Case) -> None:
    path = case.world.write("a.md", "späte Änderung")
    done = case.resolve("x @a.md {{N}} !`echo out` y", values={"N": "v"})
    pieces = [
        (i.kind, i.origin, done.text[i.offset : i.offset + i.length], i.bytes, i.omitted_bytes) for i in done.insertions
    ]
    assert [piece[2] for piece in pieces if piece[0] == "marker"] == ["[file: a.md]\n```md\n", "\n```", "\n"]
    assert [piece for piece in pieces if piece[0] != "marker"] == [
        ("file", str(path), "späte Änderung", 16, 0),
        ("variable", "N", "v", 1, 0),
        ("command", "echo out", "out", 3, 0),
    ]


def test_no_file_can_close_the_fence_it_stands_in(case: Case) -> None:
    case.world.write("a.md", "```\n````py\nx\n````\n## Not a heading\n`````")
    done = case.resolve("See @a.md\n\n## After")
    assert done.text.startswith("See [file: a.md]\n``````md\n```\n")
    assert done.text.endswith("\n`````\n``````\n\n## After")
    assert [section.title for section in parse_sections(done.text)] == ["", "After"]


def test_an_unknown_value_stays_and_is_a_warning_with_its_line(case: Case) -> None:
    done = case.resolve("a\n{{WHO}}\n", first_line=10)
    assert done.text == "a\n{{WHO}}\n"
    assert codes(done.warnings) == [("no-value", 11)]
    assert done.warnings[0].file.endswith("SKILL.md")


def test_a_relative_path_starts_at_the_file_and_then_at_the_workspace(case: Case) -> None:
    world = case.world
    world.write("skills/s/near.md", "near")
    world.write("near.md", "far")
    world.write("docs/top.md", "top")
    source = ReferenceSource(
        text="@near.md @docs/top.md",
        path="f",
        scope="project",
        base=str(world.workspace / "skills/s"),
        root=str(world.workspace),
    )
    assert without_fences(resolve_references(source, {}, case.rights()).text) == "near top"


def test_a_users_skill_reads_its_own_folder(case: Case) -> None:
    path = case.world.write("~/.kitbag/skills/s/references/a.md", "mine")
    base = str(path.parent.parent)
    source = ReferenceSource(
        text="@references/a.md", path=f"{base}/SKILL.md", scope="user", base=base, root=str(case.world.workspace)
    )
    assert without_fences(resolve_references(source, {}, case.rights()).text) == "mine"


def test_packages_mentions_and_aliases_that_are_no_files_stay(case: Case) -> None:
    text = "@scope/pkg @types/node @app.route @someone a@b.c @/components/Button.tsx"
    done = case.resolve(text)
    assert done.text == text
    assert [warning.severity for warning in done.warnings] == ["info"]


def test_a_name_without_an_ending_is_a_file_when_there_is_one(case: Case) -> None:
    case.world.write("src/Dockerfile", "FROM x")
    assert case.resolve("@src/Dockerfile").text == "[file: src/Dockerfile]\n```\nFROM x\n```"


# --- D27: what is inserted is never scanned ----------------------------------------------------------------


def test_D27_values_files_globs_and_output_appear_literally(case: Case) -> None:
    case.world.write("hostile.md", HOSTILE)
    case.world.write("many/a.md", HOSTILE)
    case.environment["PLAIN"] = HOSTILE
    text = "1 {{ARG}}\n\n2 @hostile.md\n\n3 @many/*.md\n\n4 !`cat hostile.md`\n\n5 ${PLAIN}\n"
    done = case.resolve(text, values={"ARG": HOSTILE, "OTHER": "other"})
    assert done.text.count(HOSTILE) == 5
    assert "hunter2" not in done.text
    assert "root:" not in done.text
    assert not case.world.canary.exists()


def test_D27_a_value_next_to_text_makes_no_token(case: Case) -> None:
    done = case.resolve(
        "{{BANG}}`touch $CANARY` @{{PATH}} {{{{X}}", values={"BANG": "!", "PATH": "/etc/passwd", "X": "}}"}
    )
    assert done.text.startswith("!`touch $CANARY` @/etc/passwd")
    assert not case.world.canary.exists()


def test_D27_files_that_include_themselves_or_each_other_are_read_once(case: Case) -> None:
    case.world.write("SKILL.md", "me @SKILL.md")
    case.world.write("a.md", "a @b.md")
    case.world.write("b.md", "b @a.md")
    done = case.resolve("@SKILL.md | @a.md | @b.md")
    assert without_fences(done.text) == "me @SKILL.md | a @b.md | b @a.md"
    assert done.counts.files == 3


TEXTS = st.text(
    alphabet=st.one_of(st.sampled_from("@!`{}$\\<>-\n #~./*\"'VX"), st.characters(codec="utf-8")), max_size=60
)
EMPTY = ReferenceSource(text="", path="f.md", scope="user", base="/nonexistent", root="/nonexistent")
NOWHERE = ReferencePermissions(Places("/nonexistent", "/nonexistent", "/nonexistent", ()), Settings("/nonexistent"))


@settings(max_examples=examples(200))
@given(TEXTS)
def test_D27_a_value_appears_literally_whatever_it_contains(value: str) -> None:
    done = resolve_references(msgspec.structs.replace(EMPTY, text="<{{V}}|{{V}}>"), {"V": value, "X": "wrong"}, NOWHERE)
    assert done.text == f"<{value}|{value}>"
    assert done.counts.resolved == done.counts.found == 2


@settings(max_examples=examples(300))
@given(TEXTS.map(lambda text: re.sub(r"[@!\\]|\{\{|\$\{", "", text)))
def test_a_text_without_tokens_comes_back_byte_for_byte(text: str) -> None:
    done = resolve_references(msgspec.structs.replace(EMPTY, text=text), {"V": "x"}, NOWHERE)
    nothing = ReferenceCounts(found=0, resolved=0, files=0, commands=0, bytes=0)
    assert done == ResolvedText(text=text, insertions=(), warnings=(), counts=nothing)


@settings(max_examples=examples(200))
@given(
    st.lists(st.sampled_from(["{{V}}", "{{X}}", "\\{{V}}", "@no.md", "`{{V}}`", "```\n", "\n", " ", "a"])).map("".join)
)
def test_no_more_is_resolved_than_was_found(text: str) -> None:
    done = resolve_references(msgspec.structs.replace(EMPTY, text=text), {"V": "{{V}} {{V}} @no.md"}, NOWHERE)
    assert done.counts.resolved <= done.counts.found <= text.count("{{") + text.count("@")
    assert done.counts.resolved == sum(1 for insertion in done.insertions if insertion.kind != "marker")


# --- D28: a value in a command is one word ------------------------------------------------------------------

ARGUMENTS = [
    "x; touch $CANARY", "$(touch $CANARY)", "`touch $CANARY`", "-f /etc/passwd", "a\ntouch $CANARY\n", "it's", '"',
    "'; touch $CANARY; '", '"; touch $CANARY; "', "'\"'\"'$(touch $CANARY)", "\\", "\\'; touch $CANARY #", "$CANARY", "*",
    "~", "{a,b}", "", " ", "&& touch $CANARY", "\\$(touch $CANARY)", "!x", "PATH=/nowhere", "# c", "\x01", "ü",
]  # fmt: skip


@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize(
    "command",
    [
        "printf '<%s>' {{ARG}}",
        "printf '<%s>' \"{{ARG}}\"",
        "printf '<%s>' '{{ARG}}'",
        "x={{ARG}}; printf '<%s>' \"$x\"",
        "printf '<%s>' \"${EMPTY}{{ARG}}\"",
        "echo \\' \\\" 'it''s' >/dev/null; printf '<%s>' {{ ARG }}",
        "cat <<< x >/dev/null; printf '<%s>' {{ARG}}",
        "echo $(printf '<%s>' {{ARG}} | base64 -w0) | base64 -d",
        "if [ -n {{ARG}}x ]; then printf '<%s>' \"{{ARG}}\"; fi # don't",
    ],
)
def test_D28_a_value_is_one_word_in_any_quotes(case: Case, command: str, argument: str) -> None:
    ran = case.resolve(f"```!\n{command}\n```", values={"ARG": argument})
    shown = "" if argument == "\x01" else argument
    assert ran.text == f"<{shown}>", command
    assert not case.world.canary.exists()


@pytest.mark.parametrize(
    "command",
    [
        "cat <<EOF\n{{ARG}}\nEOF",
        "echo `echo {{ARG}}`",
        'echo "$(echo {{ARG}})"',
        "echo $(( {{ARG}} ))",
        "(( {{ARG}} ))",
        "[[ 1 -eq {{ARG}} ]]",
        "a[{{ARG}}]=1",
        "a=([{{ARG}}]=1)",
        "echo ${X:-{{ARG}} }",
        "echo $'{{ARG}}'",
        "true # don't {{ARG}}",
        "echo x\\\n#'\n{{ARG}}",
        'sh -c "echo {{ARG}}"',
        "bash -c 'echo {{ARG}}'",
        "eval echo {{ARG}}",
        "echo x | xargs -I% sh -c {{ARG}}",
        "ssh host {{ARG}}",
    ],
)
def test_D28_where_quotes_do_not_help_the_command_is_refused(case: Case, command: str) -> None:
    with pytest.raises(ReferenceDeniedError) as refused:
        case.resolve(f"!`true`\n\n```!\n{command}\n```", values={"ARG": "a[$(touch $CANARY)]\ntouch $CANARY"})
    assert refused.value.exit_code == 6
    assert "{{ARG}}" in refused.value.problem
    assert not case.world.canary.exists()


def test_D28_policy_and_question_are_given_the_command_as_it_will_run(case: Case) -> None:
    seen: list[str] = []

    def ask(requests: tuple[ReferenceRequest, ...]) -> bool:
        seen.extend(request.subject for request in requests)
        return True

    done = resolve_references(case.source("!`echo {{ARG}}`"), {"ARG": "a; b"}, Asking(), ask=ask)
    assert seen == ["echo 'a; b'"]
    assert (done.text, done.insertions[0].origin) == ("a; b", "echo 'a; b'")


def test_D28_a_command_with_an_unknown_value_does_not_run(case: Case) -> None:
    done = case.resolve("!`touch {{WHO}} $CANARY`")
    assert done.text == "!`touch {{WHO}} $CANARY`"
    assert codes(done.warnings) == [("no-value", 1)]
    assert not case.world.canary.exists()


def test_D28_a_value_with_a_nul_is_refused_by_name() -> None:
    assert "NUL" in fill_command("echo {{A}}", {"A": "x\0y"}).unsafe


# --- D29: all decisions before any action --------------------------------------------------------------------


class Asking:
    """`deny` in a command denies it, `ask` asks, the rest is allowed."""

    def __init__(self, allowed: str = "") -> None:
        self.allowed = allowed

    def read(self, path: str, source: ReferenceSource) -> ReferenceDecision:
        return ReferenceDecision("ask" if "ask" in os.path.basename(path) else "allow", "")

    def environment(self, name: str, source: ReferenceSource) -> ReferenceDecision:
        return ReferenceDecision("deny" if name == "DENIED" else "allow", "because")

    run = staticmethod(run_command)

    def command(self, text: str, source: ReferenceSource) -> ReferenceDecision:
        if "untrusted" in text:
            return ReferenceDecision("untrusted", "no trust")
        if "deny" in text:
            return ReferenceDecision("deny", "a rule denies it")
        return ReferenceDecision("allow" if self.allowed and self.allowed in text else "ask", "a rule asks")


def test_D29_one_denied_command_and_none_runs(case: Case) -> None:
    text = "!`touch $CANARY # free`\n!`touch $CANARY # ask`\n!`touch $CANARY # deny`\n"
    with pytest.raises(ReferenceDeniedError) as refused:
        resolve_references(case.source(text), {}, Asking("free"), environment=case.environment, ask=lambda _: True)
    assert refused.value.problem.startswith(f"{case.world.workspace}/SKILL.md:3: ")
    assert "deny" in refused.value.problem
    assert not case.world.canary.exists()


def test_D29_a_denied_variable_behind_a_command_keeps_it_from_running(case: Case) -> None:
    with pytest.raises(ReferenceDeniedError):
        resolve_references(
            case.source("!`touch $CANARY # free`\n${DENIED}"), {}, Asking("free"), environment=case.environment
        )
    assert not case.world.canary.exists()


def test_D29_one_question_lists_all_and_nothing_runs_before_its_answer(case: Case) -> None:
    case.world.write("ask.md", "file")
    questions: list[list[tuple[str, str, int]]] = []

    def ask(requests: tuple[ReferenceRequest, ...]) -> bool:
        assert not case.world.canary.exists()
        questions.append([(request.kind, os.path.basename(request.subject), request.line) for request in requests])
        return True

    text = "!`touch $CANARY # free`\n!`echo a`\n@ask.md\n!`echo b`\n"
    done = resolve_references(case.source(text), {}, Asking("free"), environment=case.environment, ask=ask)
    assert questions == [[("command", "echo a", 2), ("file", "ask.md", 3), ("command", "echo b", 4)]]
    assert without_fences(done.text) == "\na\nfile\nb\n"
    assert case.world.canary.exists()


def test_D29_nobody_is_asked_about_a_file_that_does_not_exist(case: Case) -> None:
    assert resolve_references(case.source("@ask.md"), {}, Asking()).text == "[missing: ask.md]"


@pytest.mark.parametrize("ask", [None, lambda _: False], ids=["nobody to ask", "the answer is no"])
def test_D29_without_a_yes_nothing_runs(case: Case, ask: object) -> None:
    with pytest.raises(ReferenceDeniedError) as refused:
        resolve_references(case.source("!`touch $CANARY`"), {}, Asking(), environment=case.environment, ask=ask)  # type: ignore[arg-type]
    assert refused.value.exit_code == 6
    assert not case.world.canary.exists()


def test_D29_a_denial_that_trust_would_not_lift_decides_the_exit_code(case: Case) -> None:
    with pytest.raises(ReferenceDeniedError) as refused:
        resolve_references(case.source("!`untrusted`\n!`deny`"), {}, Asking())
    assert refused.value.exit_code == 6
    assert [request.line for request in refused.value.requests] == [2, 1]


# --- D30: where `@` may not lead -----------------------------------------------------------------------------


def test_D30_what_leaves_the_root_is_refused_with_file_and_line(case: Case) -> None:
    world = case.world
    world.write("secret.md", "outside", base=world.outside)
    world.write("~/.ssh/id_rsa", "key")
    (world.workspace / "link-outside.md").symlink_to(world.outside / "secret.md")
    (world.workspace / "dir-link").symlink_to(world.outside)
    sibling = world.workspace.with_name("workspace-x")
    sibling.mkdir()
    (sibling / "a.md").write_text("sibling")
    for path in (
        "../outside/secret.md", "/etc/passwd", "~/.ssh/id_rsa", "link-outside.md", "dir-link/secret.md", "../workspace-x/a.md",
        f"{sibling}/a.md", "docs/../../outside/secret.md", "../*.md", "../workspace-x/*.md", "/etc/*.conf", "dir-link/*.md",
        "../nothing-there.md", "~/nothing", "/proc/self/environ", "/dev/zero", "./../outside/secret.md",
    ):  # fmt: skip
        with pytest.raises(ReferenceDeniedError) as refused:
            case.resolve(f"one\n\ntwo @{path} three", scope="project", first_line=5)
        assert refused.value.problem.startswith(f"{world.workspace}/SKILL.md:7: "), path
        assert refused.value.exit_code == 6


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        ".env.local",
        ".git/config",
        "sub/.ssh/id_rsa",
        "id_ed25519",
        "server.pem",
        ".npmrc",
        ".ENV",
        "env-link.md",
    ],
)
def test_D30_secrets_inside_the_workspace_are_refused(case: Case, path: str) -> None:
    case.world.write("a/.env", "KEY=1")
    (case.world.workspace / "env-link.md").symlink_to("a/.env")
    if path != "env-link.md":
        case.world.write(path, "KEY=1")
    with pytest.raises(ReferenceDeniedError) as refused:
        case.resolve(f'@"{path}"')
    assert ":1: " in refused.value.problem


def test_D30_secrets_are_refused_also_when_they_do_not_exist(case: Case) -> None:
    with pytest.raises(ReferenceDeniedError):
        case.resolve("@.env")


def test_D30_an_example_of_an_env_file_may_be_read(case: Case) -> None:
    case.world.write(".env.example", "KEY=")
    assert without_fences(case.resolve("@.env.example").text) == "KEY="


def test_D30_missing_unreadable_binary_and_directory_leave_markers_and_the_rest_intact(case: Case) -> None:
    world = case.world
    world.write("bin.png", b"\x89PNG\r\n\x1a\n\0\0")
    world.write("odd.md", b"\xff\x01\x02\xfe")
    world.write("good.md", "good")
    (world.workspace / "docs").mkdir()
    os.mkfifo(world.workspace / "pipe.md")
    (world.workspace / "loop.md").symlink_to("loop.md")
    (world.workspace / "dangling.md").symlink_to("nowhere.md")
    names = ["no.md", "bin.png", "odd.md", "docs/", "pipe.md", "loop.md", "dangling.md", "good.md"]
    done = case.resolve("\n".join(f"@{name}" for name in names) + "\nend")
    assert without_fences(done.text).splitlines() == [
        "[missing: no.md]", "[binary: bin.png]", "[binary: odd.md]", "[directory: docs/]", "[unreadable: pipe.md]",
        "[unreadable: loop.md]", "[unreadable: dangling.md]", "good", "end",
    ]  # fmt: skip
    assert [line for _, line in codes(done.warnings)] == [1, 2, 3, 4, 5, 6, 7]
    assert (done.counts.found, done.counts.resolved) == (8, 1)


def test_D30_policy_is_asked_about_the_path_and_about_where_it_leads(case: Case) -> None:
    """So a policy that compares text, and resolves nothing itself, is not led astray by a link."""

    class Textual(Asking):
        def read(self, path: str, source: ReferenceSource) -> ReferenceDecision:
            return ReferenceDecision("deny" if "private" in path else "allow", "it is private")

    case.world.write("private/a.md", "secret")
    (case.world.workspace / "link.md").symlink_to("private/a.md")
    (case.world.workspace / "folder").symlink_to("private")
    for path in ("link.md", "folder/a.md", "private/a.md", "folder/*.md"):
        with pytest.raises(ReferenceDeniedError, match="it is private"):
            resolve_references(case.source(f"@{path}"), {}, Textual())
    for pattern in ("*/a.md", "*.md", "*/../private/a.md"):
        assert "secret" not in resolve_references(case.source(f"@{pattern}"), {}, Textual()).text


def test_D30_a_link_that_stays_inside_is_followed(case: Case) -> None:
    case.world.write("real/a.md", "inside")
    (case.world.workspace / "link.md").symlink_to("real/a.md")
    assert without_fences(case.resolve("@link.md").text) == "inside"


def test_D30_hidden_characters_of_a_file_are_made_visible(case: Case) -> None:
    case.world.write("a.md", "a\u202eb\U000e0041")
    done = case.resolve("@a.md")
    assert without_fences(done.text) == "a[U+202E]b[U+E0041]"
    assert codes(done.warnings) == [("hidden-characters", 1)]


# --- D31: wildcards are bounded and sorted --------------------------------------------------------------------


def test_D31_a_glob_is_sorted_and_names_its_files(case: Case) -> None:
    for name in ("b.md", "a.md", "c.txt", ".hidden.md", "sub/d.md"):
        case.world.write(f"docs/{name}", f"<{name}>")
    assert case.resolve("@docs/*.md").text == (
        "[file: docs/a.md]\n```md\n<a.md>\n```\n\n[file: docs/b.md]\n```md\n<b.md>\n```"
    )
    assert re.findall("<.*>", case.resolve("@docs/**/*.md").text) == ["<a.md>", "<b.md>", "<sub/d.md>"]
    assert re.findall("<.*>", case.resolve("@docs/{b.md,sub/*}").text) == ["<b.md>", "<sub/d.md>"]


@long
def test_D31_a_glob_over_thousands_of_files_reads_a_few_and_says_what_it_left_out(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "WalkBudget", partial(WalkBudget, seconds=TEST_TIMEOUT))
    big = case.world.workspace / "big"
    for folder in range(20):
        (big / f"{folder:02}").mkdir(parents=True)
        for number in range(500):
            (big / f"{folder:02}/{number:04}.md").write_text("x" * 10_000)
    with bytes_read() as read:
        done = case.resolve("@big/**/* and more", limits=ReferenceLimits(files=20))
        assert read() < 1_000_000
    assert done.text.endswith("\n[truncated: 20 of 10000 files]\n and more")
    assert done.counts.files == 20
    names = re.findall(r"\[file: (.*)\]", done.text)
    assert names == [f"big/00/{number:04}.md" for number in range(20)]
    assert codes(done.warnings) == [("limit", 1)]


def test_D31_a_walk_that_is_stopped_says_that_there_is_more(case: Case) -> None:
    for number in range(30):
        case.world.write(f"d/{number:02}/a.md", "a")
    pattern = parse_path_pattern("d/**/*.md")
    matches = expand_pattern(pattern, str(case.world.workspace / "d"), WalkBudget(entries=40))
    assert not matches.is_complete
    assert [target.display_path for target in matches.targets][:2] == ["d/00/a.md", "d/01/a.md"]
    assert not expand_pattern(pattern, str(case.world.workspace / "d"), WalkBudget(seconds=0)).is_complete


@long
def test_D31_a_million_alternatives_are_not_expanded(case: Case) -> None:
    text = f"@{'{a,b}' * 20} end"
    done = case.resolve(text)
    assert steps(lambda: case.resolve(text)) < 100_000
    assert done.text == "[truncated: 64 of 1048576 alternatives] end"
    assert codes(done.warnings) == [("limit", 1)]


def test_D31_a_loop_of_links_ends(case: Case) -> None:
    case.world.write("tree/a.md", "a")
    (case.world.workspace / "tree/loop").symlink_to("..")
    done = case.resolve("@tree/**/*.md")
    assert done.text == "[file: tree/a.md]\n```md\na\n```"


def test_D31_no_match_is_said(case: Case) -> None:
    done = case.resolve("a @nothing/*.md b")
    assert done.text == "a [no-files: nothing/*.md] b"
    assert codes(done.warnings) == [("reference-no-files", 1)]


def test_D31_names_that_are_not_unicode_or_have_line_breaks_do_no_harm(case: Case) -> None:
    folder = os.fsencode(case.world.workspace / "odd")
    os.mkdir(folder)
    for name in (b"\xff.md", b"new\nline.md", b"ok.md"):
        Path(os.fsdecode(folder + b"/" + name)).write_text(f"<{len(name)}>")
    done = case.resolve("@odd/*.md")
    assert done.text.encode()
    assert re.findall("<.*>", done.text) == ["<11>", "<5>", "<4>"]
    assert "\nline.md" not in done.text


def test_D31_what_a_glob_may_not_read_is_left_out_and_said(case: Case) -> None:
    case.world.write("out.md", "outside", base=case.world.outside)
    case.world.write("docs/a.md", "a")
    case.world.write("docs/server.pem", "key")
    (case.world.workspace / "docs/link.md").symlink_to(case.world.outside / "out.md")
    done = case.resolve("@docs/*")
    assert done.text == "[file: docs/a.md]\n```md\na\n```\n[omitted: 2 files; reading them is not allowed]"
    assert codes(done.warnings) == [("reference-refused", 1)]


def test_D31_a_file_whose_name_has_brackets_is_that_file(case: Case) -> None:
    case.world.write("app/[id]/page.tsx", "page")
    assert without_fences(case.resolve("@app/[id]/page.tsx").text) == "page"


# --- D32: the environment -------------------------------------------------------------------------------------


def test_D32_only_names_that_are_allowed_resolve(case: Case) -> None:
    assert case.resolve("${PLAIN}|${EMPTY}|${EMPTY:-d}|${UNSET:-def}").text == "plain value||d|def"
    for name in ("HOME", "PATH", "TRIPWIRE"):
        with pytest.raises(ReferenceDeniedError) as refused:
            case.resolve(f"${{{name}}}")
        assert case.mark not in str(refused.value)


def test_D32_an_allowed_variable_that_is_not_set_stays_with_a_warning(case: Case) -> None:
    done = case.resolve("${UNSET}")
    assert (done.text, codes(done.warnings)) == ("${UNSET}", [("no-value", 1)])


@pytest.mark.parametrize(
    "name",
    ["ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "GITHUB_TOKEN", "DB_PASSWORD", "MY_SECRET_X", "PGPASSWORD",
     "NPM_AUTH", "DATABASE_URL", "SENTRY_DSN", "CANARY_SECRET"],
)  # fmt: skip
def test_D32_names_that_look_secret_are_refused_even_if_listed(case: Case, name: str) -> None:
    case.environment[name] = "hunter2"
    with pytest.raises(ReferenceDeniedError) as refused:
        case.resolve(f"${{{name}:-x}}", case.open(frozenset((name,))))
    assert "hunter2" not in str(refused.value) + repr(refused.value.requests)


def test_D32_values_are_not_in_insertions_origins_or_warnings(case: Case) -> None:
    case.environment["PLAIN"] = "v" * 200
    done = case.resolve("${PLAIN}", limits=ReferenceLimits(total_bytes=10))
    assert "vvv" not in repr(done.insertions) + repr(done.warnings)
    assert done.text.startswith("v" * 10 + "\n[truncated: 190 bytes")


def test_D32_commands_are_not_given_secrets(case: Case) -> None:
    case.environment |= {"X_API_KEY": "hunter2", "BASH_ENV": str(case.world.write("start.sh", "touch $CANARY"))}
    done = case.resolve("```!\nenv\n```")
    assert "hunter2" not in done.text
    assert "PLAIN=plain value" in done.text
    assert not case.world.canary.exists()


# --- D34: rights follow the scope of the file -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "is_open", "error"),
    [
        ("user", False, ReferenceDeniedError),
        ("extra", False, ReferenceUntrustedError),
        ("built-in", False, ReferenceDeniedError),
        ("project", False, ReferenceUntrustedError),
        ("plugin", False, ReferenceDeniedError),
        ("plugin", True, ReferenceDeniedError),
    ],
)
@pytest.mark.parametrize("token", ["!`touch $CANARY`", "${PLAIN}", "```!\ntouch $CANARY\n```"])
def test_D34_commands_and_environment_are_refused_by_scope(
    case: Case, scope: Scope, is_open: bool, error: type[ReferenceDeniedError], token: str
) -> None:
    policy = case.open() if is_open else case.rights()
    with pytest.raises(ReferenceDeniedError) as refused:
        case.resolve(f"text\n\n{token}", policy, scope=scope)
    assert type(refused.value) is error
    assert refused.value.exit_code == (13 if error is ReferenceUntrustedError else 6)
    assert ":3: " in refused.value.problem
    assert not case.world.canary.exists()


@pytest.mark.parametrize("scope", ["user", "project", "extra", "built-in"])
def test_D34_what_is_allowed_runs_in_every_scope_but_a_plugins(case: Case, scope: Scope) -> None:
    assert case.resolve("!`echo ran` ${PLAIN}", scope=scope).text == "ran plain value"


def test_D34_a_plugin_reads_its_own_directory_and_nothing_else(case: Case) -> None:
    case.world.write("docs/a.md", "the workspace's")
    own = case.world.write("~/plugins/p/skills/s/own.md", "own").parent
    (own.parent.parent / "shared.md").write_text("shared")
    root, workspace = str(own.parent.parent), str(case.world.workspace)
    policy = case.rights()
    source = ReferenceSource(
        text="@own.md @shared.md @../../shared.md", path=f"{own}/SKILL.md", scope="plugin", base=str(own), root=root
    )
    assert without_fences(resolve_references(source, {}, policy).text) == "own shared shared"
    with pytest.raises(ReferenceDeniedError):
        resolve_references(msgspec.structs.replace(source, text=f"@{workspace}/docs/a.md"), {}, policy)
    with pytest.raises(ReferenceDeniedError):
        resolve_references(msgspec.structs.replace(source, text="@../../../other.md"), {}, policy)


# --- D35: commands that misbehave -----------------------------------------------------------------------------


def test_D35_fifty_megabytes_of_output_are_cut_with_a_marker(case: Case) -> None:
    done = case.resolve(
        "!`head -c 52428800 /dev/zero | tr '\\0' x` end", limits=ReferenceLimits(output_characters=1000)
    )
    assert done.text == "x" * 1000 + "\n[truncated: 52427800 more bytes of output] end"
    assert codes(done.warnings) == [("limit", 1)]
    assert case.leftovers() == []


def test_D35_output_without_end_is_stopped(case: Case) -> None:
    done = case.resolve("!`yes`", limits=ReferenceLimits(output_characters=10, command_seconds=TEST_TIMEOUT))
    assert done.text.startswith("[command stopped")
    assert "y\ny\n" in done.text
    assert case.leftovers() == []


def test_D35_invalid_utf8_and_terminal_sequences_are_removed(case: Case) -> None:
    done = case.resolve(
        "```!\nprintf 'a\\377b \\033[31mred\\033[0m \\033]0;title\\007x\\r\\nB\\bb\\000c \\302\\233 \\033]open'\n```"
    )
    assert done.text == "a\ufffdb red x\nbc  open"


def test_D35_what_never_ends_is_killed_with_its_whole_group(case: Case) -> None:
    done = case.resolve(
        "```!\necho begun\ntrap '' TERM\nsleep 600 & sleep 601 & sleep 602\n```",
        limits=ReferenceLimits(command_seconds=0.5),
    )
    assert done.text.removesuffix("\nbegun") == "[command timed out after 0.5 s]"
    assert codes(done.warnings) == [("command-failed", 1)]
    assert case.leftovers() == []


@pytest.mark.parametrize(
    "child",
    [
        "sleep 600 &",
        "setsid sleep 600 &",
        "setsid sleep 600 & sleep 0.3",
        "(setsid sleep 600 >/dev/null 2>&1 </dev/null &) ; sleep 0.3",
        "setsid bash -c 'trap \"\" TERM HUP; sleep 600 & sleep 601' & sleep 0.3",
        "yes &",
    ],
)
def test_D35_a_child_in_the_background_neither_holds_us_nor_stays(case: Case, child: str) -> None:
    done = case.resolve(f"```!\n{child}\necho done\n```", limits=ReferenceLimits(command_seconds=TEST_TIMEOUT))
    assert "done" in done.text or child == "yes &"
    assert not done.text.startswith("[")
    assert case.leftovers() == []


def test_D35_the_exit_status_is_visible_and_packing_goes_on(case: Case) -> None:
    done = case.resolve("a !`echo out; echo err >&2; exit 3` b !`kill -9 $$` c")
    assert done.text == "a [command failed with exit code 3]\nout\nerr b [command killed by SIGKILL] c"
    assert codes(done.warnings) == [("command-failed", 1), ("command-failed", 1)]


def test_D35_strict_stops_with_file_line_and_output(case: Case) -> None:
    with pytest.raises(CommandFailedError, match=r"SKILL\.md:2: .*exit code 3\nwhy") as failed:
        case.resolve("\n!`echo why; exit 3`", strict=True)
    assert failed.value.exit_code == 6


@pytest.mark.parametrize(
    "command",
    ["grep no f.md", "cat f.md | grep no", "test -f no", "true && [ -f no ]", "git diff --no-index f.md /dev/null"],
)
def test_D35_exit_code_one_of_a_search_is_an_answer(case: Case, command: str) -> None:
    case.world.write("f.md", "x")
    done = case.resolve(f"!`{command}`", strict=True)
    assert done.text.startswith("[exit code 1]")


@pytest.mark.parametrize("text", ["!`touch $CANARY`\n!`echo {{NOBODY}}`", "!`touch $CANARY`\n!`true`\n!`true`"])
def test_D35_strict_runs_nothing_when_one_command_can_t_run(case: Case, text: str) -> None:
    with pytest.raises(CommandFailedError, match=r"SKILL\.md:[23]: "):
        case.resolve(text, limits=ReferenceLimits(commands=2), strict=True)
    assert not case.world.canary.exists()


def test_D35_standard_input_is_empty(case: Case) -> None:
    assert case.resolve("!`cat; echo end`").text == "end"


def test_D35_commands_run_in_the_workspace(case: Case) -> None:
    assert case.resolve("!`pwd`").text == str(case.world.workspace)
    assert case.resolve("!`pwd`", workspace=str(case.world.outside)).text == str(case.world.outside)


def test_D35_a_command_that_can_t_start_is_a_failure_with_a_reason(case: Case) -> None:
    done = case.resolve("!`true` x", workspace=str(case.world.workspace / "gone"))
    assert done.text.startswith("[command failed with exit code 126]\ncannot start")
    assert case.resolve(f"!`true {'x' * 200_000}` y").text.endswith(" y")


def test_D35_a_command_that_begins_with_a_dash_is_no_option(case: Case) -> None:
    assert "exit code 127" in case.resolve("!`-x touch $CANARY`").text


def test_a_slow_command_reports_progress_each_second(case: Case) -> None:
    seen: list[tuple[str, float]] = []

    def progress(command: str, seconds: float) -> None:
        seen.append((command, seconds))
        if len(seen) == 2:
            case.world.write("go", "")

    slow = "until [ -e go ]; do sleep 0.02; done"
    case.resolve(f"!`{slow}`", progress=progress)
    assert {command for command, _ in seen} == {slow}
    assert all(seconds >= number for number, (_, seconds) in enumerate(seen, start=1))


def test_D35_a_command_inside_a_command_carries_both_marks(case: Case) -> None:
    case.environment[MARKER_VARIABLE] = "outer"
    assert re.fullmatch("outer:[0-9a-f]{24}", case.resolve(f"!`echo ${MARKER_VARIABLE}`").text)


def test_an_interrupt_leaves_no_process(case: Case) -> None:
    def interrupt(command: str, seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        case.resolve("!`sleep 600 & sleep 601`", progress=interrupt)
    assert case.leftovers() == []


# --- limits: a marker and a warning, never silence --------------------------------------------------------------


def test_a_large_file_is_cut_and_says_so(case: Case) -> None:
    path = case.world.write("big.md", "ü" * 100)
    os.truncate(path, 100 * 1024 * 1024)
    with bytes_read() as read:
        done = case.resolve("@big.md end", limits=ReferenceLimits(file_bytes=101))
        assert read() < 1_000_000
    marker = "[truncated: first 101 of 104857600 bytes of big.md]"
    assert done.text == "[file: big.md]\n```md\n" + "ü" * 50 + f"\n```\n{marker}\n end"
    assert done.insertions[1].omitted_bytes == 100 * 1024 * 1024 - 101
    assert codes(done.warnings) == [("limit", 1)]


def test_the_limit_of_files_counts_all_tokens(case: Case) -> None:
    for name in "abc":
        case.world.write(f"{name}.md", name)
    done = case.resolve("@a.md\n@b.md\n@c.md\n@*.md", limits=ReferenceLimits(files=2))
    assert without_fences(done.text).splitlines() == [
        "a", "b", "[truncated: c.md omitted, more than 2 files]", "[truncated: 0 of 3 files]",
    ]  # fmt: skip
    assert codes(done.warnings) == [("limit", 3), ("limit", 4)]


def test_the_limit_of_bytes_counts_everything_inserted(case: Case) -> None:
    case.world.write("a.md", "a" * 60)
    done = case.resolve("@a.md|{{V}}| !`echo xyz`", limits=ReferenceLimits(total_bytes=80), values={"V": "v" * 30})
    assert [insertion.bytes for insertion in done.insertions if insertion.kind != "marker"] == [60, 20, 0]
    assert done.text.count("[truncated: ") == 2
    assert codes(done.warnings) == [("limit", 1), ("limit", 1)]


def test_the_limits_of_commands_and_of_their_time(case: Case) -> None:
    done = case.resolve("!`echo 1` !`echo 2` !`touch $CANARY`", limits=ReferenceLimits(commands=2))
    assert done.text == "1 2 [not run: more than 2 commands]"
    done = case.resolve("!`sleep 30` !`touch $CANARY`", limits=ReferenceLimits(total_seconds=0.3))
    assert done.text == "[command timed out after 0.3 s] [not run: the timeout for all commands together is 0.3 s]"
    assert not case.world.canary.exists()


def test_a_sandbox_can_take_the_place_of_the_runner(case: Case) -> None:
    def sandbox(command: ShellCommand, tick: ProgressCallback | None, /) -> CommandResult:
        return run_supervised(command, tick, CommandStart(prefix=("/usr/bin/env", "IN_SANDBOX=yes"))).command

    assert case.resolve("!`echo $IN_SANDBOX`", runner=sandbox).text == "yes"
