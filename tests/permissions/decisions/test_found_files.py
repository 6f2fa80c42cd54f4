"""Many files at once: what is said to be surely readable is what a decision allows, whatever lies there."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.library.dialects.tool_lists import parse_tools
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import Effect, SandboxSupport, Workspace
from kitbag.permissions.rules.rule import PermissionRules, parse_rules
from support.matrix import examples

RULES = (
    "Read", "Read(./secret/**)", "Read(*.md)", "Read(.env)", "Read(sub/)", "Read(~/**)", "Read(//etc/**)", "Read(./a.txt)",
    "Read(limit:5)", "Edit(./sub/**)", "Read(./SUB/**)",
)  # fmt: skip
PATHS = (
    "a.txt", "b.md", "sub/a.txt", "sub/deep/key.py", "secret/x", ".env", ".env.example", "id_rsa", "sub/.ssh/config", "x.pem",
    ".git/config", "Sub/a.txt", "sub/.netrc", ".config/gh/hosts.yml", ".aws/x", "odd\nname", "a b", "wurst-é",
)  # fmt: skip


def make(base: Path) -> Workspace:
    root = base / "work"
    for path in PATHS:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    outside = base / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("x")
    (root / "link.txt").symlink_to("a.txt")
    (root / "leaves.txt").symlink_to(outside / "a.txt")
    (root / "leaves").symlink_to(outside)
    (root / "round").symlink_to("sub")
    os.mkfifo(root / "pipe")
    (base / "other-name").symlink_to(root)
    home = base / "home"
    home.mkdir()
    return Workspace(root=os.path.realpath(root), home=str(home), kitbag_home=str(home / ".kitbag"))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return make(tmp_path_factory.mktemp("found").resolve())


def permissions(workspace: Workspace, mode: PermissionMode, written: list[tuple[Effect, str]]) -> Permissions:
    rules = [rule for effect, text in written for rule in parse_rules(text, effect, "t", "user", workspace.kitbag_home)]
    return Permissions(workspace, mode, PermissionRules(rules), SandboxSupport(kind="none"))


EXTRA = ("link.txt", "leaves.txt", "leaves/a.txt", "round/a.txt", "round/deep/key.py", "pipe", "sub", "gone", "gone/x")
modes = st.sampled_from(["default", "acceptEdits", "plan", "locked", "autonomous"])
written = st.lists(st.tuples(st.sampled_from(["allow", "ask", "deny"]), st.sampled_from(RULES)), max_size=4)
limits = st.sampled_from(["", "Read", "Read(./sub/**)", "Grep", "Read(*.txt), Grep"])
starts = st.sampled_from(["work", "work/sub", "work/round", "other-name", "outside", "work/leaves", ""])


@settings(max_examples=examples(50))
@given(mode=modes, rules=written, limit=limits, start=starts)
def test_what_is_surely_readable_is_allowed(
    workspace: Workspace, mode: PermissionMode, rules: list[tuple[Effect, str]], limit: str, start: str
) -> None:
    made = permissions(workspace, mode, rules)
    made = made.restricted_to(parse_tools(limit)[0], "agent.md") if limit else made
    top = os.path.normpath(f"{workspace.root}/../{start}")
    found = made.search_result_filter(top)
    for path in [*PATHS, *EXTRA, *(f"work/{one}" for one in PATHS[:4])]:
        whole = f"{top}/{path}"
        if found.is_surely_readable(whole):
            assert made.decide("Read", {"file_path": whole}).effect == "allow", whole


@pytest.mark.parametrize("start", ["work", "work/sub"])
def test_plain_files_are_told_apart_at_once(workspace: Workspace, start: str) -> None:
    top = f"{os.path.dirname(workspace.root)}/{start}"
    found = permissions(workspace, "default", [("deny", "Read(./secret/**)")]).search_result_filter(top)
    assert found.is_surely_readable(f"{top}/a.txt")
    assert found.is_surely_readable(f"{top}/{'deep' if start.endswith('sub') else 'sub/deep'}/key.py")


@pytest.mark.parametrize("path", ["link.txt", "leaves.txt", "leaves/a.txt", "pipe", "sub", "gone", ".env", "secret/x"])
def test_whatever_is_not_plain_is_not_sure(workspace: Workspace, path: str) -> None:
    found = permissions(workspace, "default", [("deny", "Read(./secret/**)")]).search_result_filter(workspace.root)
    assert not found.is_surely_readable(f"{workspace.root}/{path}")
