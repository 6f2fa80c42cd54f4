"""SECURITY.md D27 to D35 through `kitbag pack`: what a text may read, run and learn, by trust, rules, modes and the sandbox."""

import json
import os
import shlex
import subprocess

import pytest

from conftest import World
from support import needs

HOSTILE = "!`touch $CANARY` @/etc/passwd ${CANARY_SECRET} {{OTHER}} $(touch $CANARY) `touch $CANARY` <!-- x"


@pytest.fixture
def packer(world: World) -> World:
    world.write("~/.kitbag/tasks/unused", "")
    world.write(".kitbag/tasks/T1.json", json.dumps({"id": "T1", "title": "Do it"}))
    world.env |= {"CANARY_SECRET": "hunter2-canary", "PLAIN": HOSTILE, "ANTHROPIC_API_KEY": "hunter2-canary"}
    return world


def skill(world: World, body: str, folder: str = "~/.kitbag/skills") -> None:
    """In the user's scope, where rules and answers decide and trust has no part."""
    world.skill(folder, "x", body=body)


def pack(world: World, *options: str) -> "subprocess.CompletedProcess[str]":
    return world.run("pack", "T1", "--skills", "x", *options)


def packed(world: World, *options: str) -> str:
    done = pack(world, *options)
    assert done.returncode == 0, done.stderr
    assert not world.canary.exists()
    assert "hunter2" not in done.stdout + done.stderr
    return done.stdout


def is_refused(world: World, *options: str) -> str:
    done = pack(world, *options)
    assert done.returncode == 6, done.stdout
    assert not world.canary.exists()
    assert "hunter2" not in done.stdout + done.stderr
    return done.stderr


def test_D27_what_is_inserted_is_never_resolved_again(packer: World) -> None:
    needs.bubblewrap()
    packer.write("hostile.md", HOSTILE)
    packer.write("many/a.md", HOSTILE)
    skill(
        packer, "1 {{ARG}}\n\n2 @hostile.md\n\n3 @many/*.md\n\n4 !`cat hostile.md`\n\n5 ${PLAIN}\n\n6 !`echo {{ARG}}`"
    )
    text = packed(packer, "--var", f"ARG={HOSTILE}", "--var", "OTHER=other", "--allow-env", "PLAIN", "--allow-commands")
    assert text.count(HOSTILE) == 6
    assert "root:" not in text


ARGUMENTS = ["x; touch $CANARY", "$(touch $CANARY)", "`touch $CANARY`", "-f /etc/passwd", "a\ntouch $CANARY", "'", '"', "';touch $CANARY;'", '";touch $CANARY;"', "$CANARY", "\\",
             "| touch $CANARY", "& touch $CANARY", "> $CANARY", "$'\\n'touch $CANARY", "!!", "*", "~", "{a,b}", "x\\'; touch $CANARY; \\'"]  # fmt: skip


@pytest.mark.parametrize("quote", ["{{ARG}}", '"{{ARG}}"', "'{{ARG}}'", "--x={{ARG}}"])
def test_D28_an_argument_is_one_word_of_a_command(packer: World, quote: str) -> None:
    needs.bubblewrap()
    names = [f"A{number}" for number in range(len(ARGUMENTS))]
    skill(packer, "\n".join(f"!`printf '%s|' {quote.replace('ARG', name)}`" for name in names))
    given = [word for name, value in zip(names, ARGUMENTS, strict=True) for word in ("--var", f"{name}={value}")]
    text = packed(packer, "--allow-commands", *given)
    for value in ARGUMENTS:
        assert f"{'--x=' if '--x' in quote else ''}{value}|" in text, value


def test_D28_the_rules_see_the_final_command(packer: World) -> None:
    skill(packer, "!`echo {{ARG}}`")
    said = is_refused(packer, "--var", "ARG=b; c", "--deny", "Bash(echo 'b; c')", "--allow-commands")
    assert "echo 'b; c'" in said
    assert "echo 'b; c'" in is_refused(packer, "--var", "ARG=b; c", "--ask", "Bash(echo:*)")


def test_D29_one_that_is_denied_or_unanswered_and_none_runs(packer: World) -> None:
    skill(packer, "!`echo free > made`\n\n!`echo asked > asked`\n\n!`rm -rf x`\n")
    allowed = ("--allow", "Bash(echo free:*)", "--allow", "Edit")
    said = is_refused(packer, *allowed, "--deny", "Bash(rm:*)", "--allow-commands")
    assert "SKILL.md:9: the command `rm -rf x` is denied" in said
    said = is_refused(packer, *allowed)
    assert "interactive terminal" in said
    is_refused(packer, *allowed, "--permission-mode", "locked", "--allow-commands")
    assert sorted(os.listdir(packer.workspace)) == [".git", ".kitbag"]


def test_D30_files_that_are_outside_private_or_denied_are_refused_with_their_line(packer: World) -> None:
    packer.write("secret.md", "outside words", base=packer.outside)
    packer.write("~/.ssh/id_rsa", "key words")
    packer.write(".env", "PASSWORD=env-words")
    packer.write("denied/a.md", "denied words")
    os.symlink(packer.outside, packer.workspace / "link")
    os.symlink("denied/a.md", packer.workspace / "to-denied.md")
    hidden = ("outside words", "key words", "env-words", "denied words", "root:")
    for path in (
        "../../../../../x",
        "/etc/hosts",
        "~/.ssh/id_rsa",
        "link/secret.md",
        ".env",
        "denied/a.md",
        "to-denied.md",
        "../../../../outside/*.md",
        "/proc/self/environ",
    ):
        packer.skill(".kitbag/skills", "x", body=f"One.\n\nSee @{path} now.")
        said = is_refused(packer, "--deny", "Read(./denied/**)")
        assert ".kitbag/skills/x/SKILL.md:7: reading `" in said, path
        assert not any(word in said for word in hidden), path
    packer.skill(".kitbag/skills", "x", body="@no.md @denied/ @bin.png")
    packer.write("bin.png", b"\x89PNG\0")
    text = packed(packer)
    for marker in ("[missing: no.md]", "[directory: denied/]", "[binary: bin.png]"):
        assert marker in text


def test_D31_wildcards_are_bounded_and_say_so(packer: World) -> None:
    for number in range(300):
        packer.write(f"big/{number:03}.md", "x" * 200)
    os.symlink(".", packer.workspace / "big/loop")
    packer.write(b"big/\xff\xfe.md".decode(errors="surrogateescape"), "odd")
    skill(packer, f"A @big/**/* B\n\nC @{'{a,b}' * 20} D\n\nE @nothing/*.md F")
    text = packed(packer)
    assert "[truncated: " in text
    assert "of 1048576 alternatives]" in text
    assert text.index("big/000.md") < text.index("big/001.md") < text.index("big/002.md")
    for word in (" B", " D", " F"):
        assert word in text


def test_D32_only_variables_that_are_allowed_by_name_are_read_and_secrets_never(packer: World) -> None:
    packer.env["HARMLESS"] = "harmless words"
    for name in ("ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "CANARY_SECRET", "GITHUB_TOKEN", "DB_PASSWORD"):
        packer.env[name] = "hunter2-canary"
        skill(packer, f"${{{name}}}")
        assert "looks like a secret" in is_refused(packer, "--allow-env", name), name
    skill(packer, "${HARMLESS}")
    assert "--allow-env" in is_refused(packer)
    assert "harmless words" in packed(packer, "--allow-env", "HARMLESS")
    is_refused(packer, "--permission-mode", "locked")
    skill(packer, "${UNSET_NAME} ${HARMLESS:-def}")
    assert "${UNSET_NAME}" in packed(packer, "--allow-env", "UNSET_NAME", "--allow-env", "HARMLESS")
    # A project can't put a name on the list, trusted or not.
    packer.write(".kitbag/settings.toml", '[pack]\nallow_env = ["CANARY_SECRET", "HARMLESS"]\n')
    packer.skill(".kitbag/skills", "x", body="${HARMLESS}")
    assert pack(packer).returncode == 13
    is_refused(packer, "--trust-workspace")


def test_D33_code_comments_and_look_alikes_are_left_alone(packer: World) -> None:
    body = (
        "```\n!`touch $CANARY`\n@/etc/passwd ${HOME}\n```\n\n~~~sh\n!`touch $CANARY`\n~~~\n\n    !`touch $CANARY`\n\n"
        "`` !`touch $CANARY` `` and `@/etc/passwd` and `${HOME}`\n\n<!-- !`touch $CANARY` @/etc/passwd -->\n\n"
        "\\!`touch $CANARY` \\@/etc/passwd \\${HOME} \\{{X}}\n\nWrite to a@b.c or use @scope/pkg and @types/node.\n"
    )
    skill(packer, body)
    text = packed(packer)
    assert text.count("touch $CANARY") == 6
    assert "root:" not in text
    for word in ("a@b.c", "@scope/pkg", "@types/node", "{{X}}"):
        assert word in text


def test_D34_the_file_that_holds_a_token_decides_and_a_plugin_never_acts(packer: World) -> None:
    needs.bubblewrap()
    plugin = packer.outside / "kit"
    packer.write("skills/p/SKILL.md", "---\nname: p\ndescription: d\n---\n!`touch $CANARY`\n", base=plugin)
    packer.write("skills/q/SKILL.md", "---\nname: q\ndescription: d\n---\n${HARMLESS}\n", base=plugin)
    packer.write("skills/r/SKILL.md", "---\nname: r\ndescription: d\n---\n@../../../../settings.toml\n", base=plugin)
    packer.write("~/.kitbag/settings.toml", "# hunter2\n")
    packer.ok("plugins", "install", str(plugin))
    everything = (
        "--allow",
        "Bash",
        "--allow-commands",
        "--allow-env",
        "HARMLESS",
        "--trust-workspace",
        "--allow",
        "Read(//**)",
    )
    for name in ("p", "q", "r"):
        done = packer.run("pack", "T1", "--skills", f"kit:{name}", *everything)
        assert done.returncode == 6, (name, done.stdout)
        assert "plugin" in done.stderr
    # Named by a user's own agent it is still the plugin's.
    packer.write("~/.kitbag/agents/a.md", "---\nname: a\ndescription: d\nskills: kit:p\n---\nGo.\n")
    done = packer.run("agents", "show", "a", "--prompt")
    assert "!`touch" in done.stdout or done.returncode != 0, done.stdout
    assert "hunter2" not in done.stdout + done.stderr
    assert not packer.canary.exists()
    for folder, code in (("~/.kitbag/skills", 0), (".kitbag/skills", 13), (".claude/skills", 13)):
        packer.skill(folder, "y", body="!`echo ran`")
        done = packer.run("pack", "T1", "--skills", "y", "--allow-commands")
        assert done.returncode == code, (folder, done.stderr)
        if not folder.startswith("~"):
            os.unlink(packer.workspace / folder / "y/SKILL.md")
        else:
            os.unlink(packer.home / folder[2:] / "y/SKILL.md")


def test_D35_a_command_s_output_time_and_children_are_bounded(packer: World) -> None:
    needs.bubblewrap()
    mark = f"kitbag-pack-{os.getpid()}"
    commands = [
        "head -c 50000000 /dev/zero | tr '\\0' x",
        r"printf 'a\377\033[31mb\033]0;x\007'",
        "exit 3",
        "cat; echo end",
        f"(setsid bash -c 'exec -a {mark} sleep 300' &); echo started",
    ]
    skill(packer, "\n\n".join(f"{number}: !`{command}`" for number, command in enumerate(commands)) + "\n")
    text = packed(packer, "--allow-commands", "--budget", "skills=100000")
    assert len(text) < 2_000_000
    assert "truncated" in text
    assert not {"\x1b", "\x07"} & set(text)
    for word in ("3: end", "4: started", "exit code 3"):
        assert word in text, word
    assert not [name for name in os.listdir("/proc") if name.isdigit() and _runs(name, mark)]


def _runs(pid: str, mark: str) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return mark.encode() in file.read().split(b"\0")
    except OSError:
        return False


def test_D23_a_plan_runs_no_command_of_a_text_that_changes_anything(packer: World) -> None:
    needs.bubblewrap()
    skill(packer, "!`touch made`")
    is_refused(packer, "--permission-mode", "plan", "--allow", "Bash", "--allow-commands")
    program = shlex.quote("open('made', 'w')")
    skill(packer, f"!`python3 -c {program}`")
    packed(packer, "--permission-mode", "plan", "--allow", "Bash", "--allow-commands")
    assert not (packer.workspace / "made").exists()
