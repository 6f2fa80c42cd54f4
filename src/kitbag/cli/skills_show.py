"""`kitbag skills show`: a summary for the user, or exactly what a model gets at a level."""

from typing import Any

from kitbag.cli import output
from kitbag.errors import Diagnostic, InvalidError
from kitbag.library.registry import Registry
from kitbag.library.skills import Skill
from kitbag.text.tokens import estimate_tokens
from kitbag.views.skill_card import list_skill_files, skill_card, skill_card_fields, skill_file_rows, skill_level_text


def show_level(registry: Registry, skill: Skill, level: int, as_json: bool) -> None:
    verdict = registry.evaluate(skill)
    if not verdict.is_usable:
        raise InvalidError(
            f"{skill.full_name!r} is not available: {verdict.reason}",
            "enable it with `kitbag skills enable`, or use another --persona",
        )
    text = skill_level_text(registry, skill, level)
    tokens = estimate_tokens(text)
    if as_json:
        details: dict[str, Any] = {"full_name": skill.full_name, "level": level, "tokens": tokens, "text": text}
        if level == 2:
            details["files"] = list_skill_files(skill)
        return output.as_json(details)
    if text:
        output.exact(text)
    elif level == 0:
        output.remark(f"not in the model's catalog: {verdict.reason}")
    else:
        output.remark("no other files")
    return output.echo(output.style(f"(level {level}: {output.format_count(tokens, 'token')})", "dim"))


def show_card(registry: Registry, skill: Skill, as_json: bool) -> None:
    details = skill_card(registry, skill)
    if as_json:
        return output.as_json(details)
    output.echo(output.style(output.clean(skill.full_name), "bold"))
    output.fields(skill_card_fields(registry, skill, details))
    if details["files"]:
        output.echo()
        output.table(("FILE", "BYTES", "TOKENS"), skill_file_rows(details))
    for problem in details["problems"]:
        for line in output.diagnostic_lines(Diagnostic(**problem)):
            output.echo(line)
    return None
