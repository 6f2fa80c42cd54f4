"""`kitbag skills test`: runs the test cases beside skills, without a model or with one."""

import errno
import os
from typing import TYPE_CHECKING, Any, Final

import click

from kitbag.cli import output
from kitbag.cli.library_options import json_option, library_options, open_registry
from kitbag.cli.number_types import FloatRange
from kitbag.cli.progress_line import MAX_COMPLETE_INDEX_SECONDS, ProgressLine, wait_for_index
from kitbag.errors import Diagnostic, KitbagError, NotFoundError, UsageError

if TYPE_CHECKING:
    from kitbag.library.registry import Registry
    from kitbag.library.skills import Skill
    from kitbag.packing.skill_case_formats import SkillCase
    from kitbag.packing.skill_tests import CaseResult
    from kitbag.runtime.skill_trials import TrialPlan


MODEL_FAILED: Final = 7


class OverCapError(KitbagError):
    exit_code = 12


@click.command("test")
@click.argument("target", metavar="[PATH]", required=False)
@click.option("--model", default="", metavar="NAME", help="Ask this model.", show_default="none: test the ranking only")
@click.option(
    "--max-cost",
    type=FloatRange(0),
    default=1.0,
    show_default=True,
    metavar="USD",
    help="Spend at most this on the model; 0: no limit.",
)
@click.option("--junit", metavar="FILE", help="Also write a JUnit report.", show_default="none")
@library_options
@json_option
def test(
    target: str | None,
    model: str,
    max_cost: float,
    junit: str | None,
    dirs: tuple[str, ...],
    team: str,
    persona: str,
    as_json: bool,
) -> None:
    """Test whether messages reach their skills. Reads `evals/` beside each skill: of all skills, or of the skill or
    directory at PATH, which competes with the whole library. Exits with 1 if a test fails, 7 if the model fails.

    \b
    evals/evals.json:  [{"query": "fill this form", "should_trigger": true}]
    evals/*.yaml:      the same as YAML; also .jsonl and .csv
    """
    from kitbag.packing.skill_cases import find_contradictions, read_cases
    from kitbag.packing.skill_tests import check_routing

    registry, extra, skills = _select(target, dirs, team, persona)
    files = [read_cases(skill, path) for skill, path in _list_case_files(skills, target)]
    cases = [case for file in files for case in file.cases]
    problems = [problem for file in files for problem in file.problems] + find_contradictions(cases)
    if not cases and not problems:
        fix = 'add evals/evals.json with [{"query": "...", "should_trigger": true}] to a skill'
        raise NotFoundError("no skill tests found", fix)
    if junit:
        _check_writable(junit)
    plan: TrialPlan | None = None
    if model and cases:
        plan, results = _ask_model(cases, model, max_cost, extra, team, persona)
    else:
        wait_for_index(registry, MAX_COMPLETE_INDEX_SECONDS)
        with ProgressLine() as line:
            results = check_routing(registry, cases, lambda done, total: line.count("messages tested", done, total))
    if junit:
        from kitbag.views.junit import junit_report

        _write(junit, junit_report(results, problems))
    _print(results, problems, plan, as_json)
    if any(one.outcome == "error" for one in results):
        raise SystemExit(MODEL_FAILED)
    raise SystemExit(1 if problems or any(one.outcome != "passed" for one in results) else 0)


def _select(
    target: str | None, dirs: tuple[str, ...], team: str, persona: str
) -> "tuple[Registry, tuple[str, ...], list[Skill]]":
    """The library, its extra directories, and the skills to test."""
    registry = open_registry(dirs, team, persona)
    if target is None:
        return registry, dirs, list(registry.skills)
    if not os.path.lexists(target):
        if os.sep in target:
            raise NotFoundError(f"{target}: no such directory", "pass a skill's name or directory")
        return registry, dirs, [registry.find_skill(target)]
    if not os.path.isdir(target):
        target = os.path.dirname(os.path.abspath(target))
    if os.path.basename(os.path.abspath(target)) == "evals":
        target = os.path.dirname(os.path.abspath(target))
    found = _skills_below(registry, target)
    if not found:
        is_skill = any(os.path.lexists(os.path.join(target, name)) for name in ("SKILL.md", "skill.md"))
        dirs = (*dirs, os.path.dirname(os.path.abspath(target)) if is_skill else target)
        registry = open_registry(dirs, team, persona)
        found = _skills_below(registry, target)
    if not found:
        raise NotFoundError(f"{target}: no skills", "pass a skill's name or directory")
    return registry, dirs, found


def _list_case_files(skills: "list[Skill]", target: str | None) -> "list[tuple[Skill, str]]":
    """Of all these skills, or only the file that the user named."""
    from kitbag.packing.skill_cases import find_case_files

    found = [(skill, path) for skill in skills for path in find_case_files(skill)]
    if target is None or not os.path.isfile(target) or os.path.basename(target).lower() == "skill.md":
        return found
    named = [(skill, path) for skill, path in found if os.path.realpath(path) == os.path.realpath(target)]
    if not named:
        raise NotFoundError(f"{target}: not a test file of a skill", "pass a file in a skill's evals/, or the skill")
    return named


def _skills_below(registry: "Registry", directory: str) -> "list[Skill]":
    base = os.path.join(os.path.realpath(directory), "")
    return [skill for skill in registry.skills if os.path.realpath(skill.path).startswith(base)]


def _ask_model(
    cases: "list[SkillCase]", model: str, max_cost: float, extra: tuple[str, ...], team: str, persona: str
) -> "tuple[TrialPlan, list[CaseResult]]":
    from kitbag.library.scopes import find_places
    from kitbag.runtime.skill_trials import TrialOptions, plan_trials, run_trials
    from kitbag.text.human_format import format_cost

    options = TrialOptions(
        model=model, directory=find_places().cwd, max_cost=max_cost, extra=extra, team=team, persona=persona
    )
    plan = plan_trials(cases, options)
    price = "at an unknown price" if plan.cost is None else f"about {format_cost(plan.cost)}"
    cap = f"; cap {f'${max_cost:.2f}' if max_cost >= 0.01 else format_cost(max_cost)}" if max_cost else ""
    asked = output.format_count(len(cases), "message")
    output.remark(f"{plan.model}: {asked}, about {plan.tokens:,} tokens, {price}{cap}")
    if max_cost and plan.cost is None:
        raise OverCapError(
            f"the price of {plan.model} is unknown, so the cap can't be kept",
            "set its price under [models] in your settings, or pass --max-cost 0",
        )
    if max_cost and plan.cost is not None and plan.cost > max_cost:
        raise OverCapError("the tests would cost more than the cap", "raise --max-cost, or test one skill")
    with ProgressLine() as line:
        what = f"messages asked {plan.model}"
        return plan, run_trials(cases, options, lambda done, total: line.count(what, done, total))


def _check_writable(file: str) -> None:
    """Before anything is tested or paid."""
    folder = os.path.dirname(os.path.abspath(file))
    code = 0 if os.path.isdir(folder) else errno.ENOENT
    if os.path.isdir(file):
        code = errno.EISDIR
    elif not code and not os.access(file if os.path.exists(file) else folder, os.W_OK):
        code = errno.EACCES
    if code:
        raise UsageError(f"--junit {file}: {os.strerror(code)}", "use a writable path")


def _write(file: str, text: str) -> None:
    try:
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise UsageError(f"--junit {file}: {error.strerror}", "use a writable path") from error


def _print(results: "list[CaseResult]", problems: list[Diagnostic], plan: "TrialPlan | None", as_json: bool) -> None:
    from kitbag.packing.catalog import shorten
    from kitbag.packing.skill_tests import count_outcomes, find_confusions

    counts, confusions = count_outcomes(results), find_confusions(results)
    claims = sum(result.case.claims for result in results)
    costs = [result.cost for result in results]
    cost = None if None in costs else sum(one or 0.0 for one in costs)
    if as_json:
        summary: dict[str, Any] = {
            "tier": "model" if plan else "ranking",
            "model": plan.model if plan else "",
            "estimated_cost": plan.cost if plan else 0.0,
            "cost": cost,
            **counts,
            "unchecked_assertions": claims,
            "results": [result.to_json() for result in results],
            "confusions": [one.to_json() for one in confusions],
            "problems": [output.diagnostic_json(problem) for problem in problems],
        }
        return output.as_json(summary)
    for problem in problems:
        for line in output.diagnostic_lines(problem):
            output.echo(line)
    skipped: dict[str, int] = {}
    for result in results:
        if result.outcome == "skipped":
            skipped[result.reason] = skipped.get(result.reason, 0) + 1
        elif result.outcome != "passed":
            file = output.shorten_path(result.case.file)
            about = f"{result.case.skill} {result.case.id} ({file}): {result.reason}"
            output.wrapped(f"{output.style(result.outcome, 'red')}: {output.clean(about)}")
            output.wrapped(f"  {output.clean(shorten(result.case.message, 200))}")
    for reason, count in skipped.items():
        mark = output.style("skipped", "yellow")
        output.wrapped(f"{mark}: {output.format_count(count, 'message')}: {output.clean(reason)}")
    if confusions:
        output.echo()
        output.table(
            ("EXPECTED", "CHOSEN", "TIMES", "EXAMPLE"),
            [
                (one.skill or "not this", one.chosen or "none", str(len(one.messages)), one.messages[0])
                for one in confusions
            ],
        )
    counted = [f"{counts['passed']} passed", f"{counts['failed']} failed"]
    counted += [f"{counts['skipped']} skipped"] if counts["skipped"] else []
    counted += [output.format_count(counts["error"], "error")] if counts["error"] else []
    counted += [output.format_count(len(problems), "problem")] if problems else []
    spent = f"; cost {'unknown' if cost is None else f'${cost:.4f}'}" if plan else ""
    output.echo(f"{', '.join(counted)}{spent}")
    if claims:
        output.remark(f"{output.format_count(claims, 'assertion')} about answers not checked: only routing is tested")
    return None
