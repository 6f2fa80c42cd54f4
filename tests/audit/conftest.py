"""A skill of one file, audited, for many small cases."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kitbag.audit.findings import AuditFinding
from kitbag.audit.run import run_audit

Check = Callable[..., list[AuditFinding]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """check("body") or check("code", file="scripts/x.sh"): the findings that are not suppressed."""

    def run(
        text: str | bytes, file: str = "SKILL.md", description: str = "Helps with work.", head: str = ""
    ) -> list[AuditFinding]:
        skill = tmp_path / "some-skill"
        skill.mkdir(exist_ok=True)
        body = text if file == "SKILL.md" and isinstance(text, str) else "Run the script."
        (skill / "SKILL.md").write_text(
            f"---\nname: some-skill\ndescription: {description}\n{head}---\n# Title\n\n{body}\n"
        )
        if file != "SKILL.md":
            target = skill / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text if isinstance(text, bytes) else text.encode())
        return run_audit((str(skill),)).findings

    return run
