"""What protects is found by trying, and nothing runs without what was asked for."""

import pytest

from conftest import World
from kitbag.sandbox.confine import SandboxError, describe_confinement, detect_sandbox
from kitbag.sandbox.confinement import Confinement
from support import needs
from support.confined import Box


def test_protection_is_what_was_tried_and_stays_the_same(world: World) -> None:
    found = detect_sandbox()
    assert found is detect_sandbox()
    assert found.kind in ("bubblewrap", "sandlock", "none")
    assert found.carve_outs is (found.kind == "bubblewrap")
    assert (found.kind != "none") is found.supports("read-only")
    assert found.carve_outs is found.supports("workspace")
    assert bool(found.version) is (found.kind != "none")


def test_without_a_sandbox_nothing_runs(world: World) -> None:
    box = Box(world)
    with pytest.raises(SandboxError, match="no sandbox profile") as caught:
        box.run("touch ran", "none")
    assert caught.value.exit_code == 6
    assert caught.value.fix
    assert not (box.root / "ran").exists()


def test_it_is_described_in_few_words() -> None:
    needs.bubblewrap()
    assert describe_confinement(Confinement(profile="workspace")) == "bubblewrap, workspace writable, no network"
    assert describe_confinement(Confinement(profile="read-only", network=True)) == "bubblewrap, read-only, network"
    assert describe_confinement(Confinement(profile="none")) == "no sandbox"
