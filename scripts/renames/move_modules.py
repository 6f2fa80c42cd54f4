"""Moves modules as modules.txt says and follows the moves in every import, dotted name and path of the repository."""

import ast
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = TOP / "src" / "kitbag"


def read_map(path: pathlib.Path) -> dict[str, str]:
    rows = [line.split(" -> ") for line in path.read_text().splitlines() if " -> " in line and not line.startswith("#")]
    return {f"kitbag.{old.strip()}": f"kitbag.{new.strip()}" for old, new in rows}


def file_of(module: str) -> pathlib.Path:
    path = TOP / "src" / pathlib.Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() and (path / "__init__.py").exists() else path.with_suffix(".py")


def rewritten(text: str, modules: dict[str, str]) -> str:
    """The text of a Python file with its imports following the moves."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    edits: list[tuple[int, int, int, int, str]] = []
    local: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            submodules = {alias: f"{node.module}.{alias.name}" for alias in node.names}
            moved = {alias: full for alias, full in submodules.items() if full in modules and is_module.get(full)}
            stays = [alias for alias in node.names if alias not in moved]
            statements: list[str] = []
            for alias, full in moved.items():
                parent, _, name = modules[full].rpartition(".")
                if alias.asname or name == alias.name:
                    statements.append(f"from {parent} import {name}" + (f" as {alias.asname}" if alias.asname else ""))
                elif bound_elsewhere(tree, alias.name, node) or bound_elsewhere(tree, name, node):
                    statements.append(f"from {parent} import {name} as {alias.name}")
                else:
                    statements.append(f"from {parent} import {name}")
                    local[alias.name] = name
            if stays and (moved or node.module in modules):
                names = ", ".join(a.name + (f" as {a.asname}" if a.asname else "") for a in stays)
                statements.append(f"from {modules.get(node.module, node.module)} import {names}")
            if statements:
                indent = " " * node.col_offset
                edits.append(
                    (
                        node.lineno,
                        node.col_offset,
                        node.end_lineno or 0,
                        node.end_col_offset or 0,
                        f"\n{indent}".join(statements),
                    )
                )
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in modules:
                    raise SystemExit(f"import {alias.name} as a name is not supported")
    if local:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in local:
                edits.append(
                    (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0, local[node.id])
                )
    for start, column, end, end_column, new in sorted(edits, reverse=True):
        first, last = lines[start - 1].encode(), lines[end - 1].encode()
        lines[start - 1 : end] = [first[:column].decode() + new + last[end_column:].decode()]
    return "".join(lines)


def bound_elsewhere(tree: ast.AST, name: str, by: ast.AST) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.arg) and node.arg == name:
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            return True
        if isinstance(node, ast.ImportFrom | ast.Import) and node is not by:
            if any((a.asname or a.name) == name for a in node.names):
                return True
    return False


def main() -> None:
    global is_module
    modules = read_map(TOP / "scripts" / "renames" / sys.argv[1])
    is_module = {old: file_of(old).exists() for old in modules}
    missing = [old for old, there in is_module.items() if not there]
    if missing:
        raise SystemExit(f"no such module: {missing}")
    tracked = subprocess.run(["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    texts = [
        TOP / name
        for name in tracked
        if name
        and not name.startswith("scripts/renames")
        and not (name.startswith("tests/recorded") and not name.endswith(".py"))
    ]
    dotted = re.compile(
        r"\b("
        + "|".join(re.escape(m) for m in sorted(modules, key=len, reverse=True))
        + r")(?![a-z_0-9]|\.[a-z_]+\.md)"
    )
    paths = {old.replace(".", "/"): new.replace(".", "/") for old, new in modules.items()}
    path = re.compile(
        r"(?<=src/)(" + "|".join(re.escape(p) for p in sorted(paths, key=len, reverse=True)) + r")(?=\.py\b)"
    )
    for file in texts:
        if not file.is_file():
            continue
        try:
            old_text = file.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        text = old_text
        if file.suffix == ".py" or file.name in ("faults",):
            text = rewritten(text, modules)
        quoted = (
            re.compile(r"""(?<=["'`])""" + dotted.pattern + r"|(?<=import )" + dotted.pattern)
            if file.suffix == ".py"
            else dotted
        )
        text = quoted.sub(lambda found: modules[found[0]], text)
        if file == PACKAGE / "__init__.py":  # its table has names below kitbag
            for old, new in modules.items():
                text = text.replace(f'"{old[7:]}":', f'"{new[7:]}":')
        text = path.sub(lambda found: paths[found[1]], text)
        if text != old_text:
            file.write_text(text, "utf-8")
    sources = {old: file_of(old) for old in modules}
    parked = {}
    for number, (old, source) in enumerate(
        sources.items()
    ):  # parked first: a module may move into a package of its name
        parked[old] = TOP / "src" / f"parked{number}.py"
        subprocess.run(["git", "mv", source, parked[old]], cwd=TOP, check=True)
    for old, new in modules.items():
        package_init = sources[old].name == "__init__.py"
        target = TOP / "src" / pathlib.Path(*new.split("."))
        target = target / "__init__.py" if package_init else target.with_suffix(".py")
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", parked[old], target], cwd=TOP, check=True)
    for folder in sorted(PACKAGE.rglob("*")):
        if (
            folder.is_dir()
            and "builtin" not in folder.parts
            and folder.name != "__pycache__"
            and list(folder.glob("*.py"))
        ):
            if not (folder / "__init__.py").exists():
                print("no __init__:", folder)


main()
