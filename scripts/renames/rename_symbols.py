"""Renames symbols as maps say (`module:Class.member -> name`), with references found by pyright's language server."""

import ast
import json
import pathlib
import re
import subprocess
import sys
import threading
import time
from typing import Any
from urllib.parse import quote, unquote

TOP = pathlib.Path(__file__).resolve().parents[2]
SRC = TOP / "src"


class Server:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [str(TOP / ".venv/bin/pyright-langserver"), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, cwd=TOP,
        )
        self.next = 0
        self.replies: dict[int, Any] = {}
        self.arrived = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def read(self) -> None:
        out = self.process.stdout
        while True:
            length = 0
            while line := out.readline().strip():
                if line.lower().startswith(b"content-length"):
                    length = int(line.split(b":")[1])
            message = json.loads(out.read(length))
            if "method" in message and "id" in message:
                result: Any = None
                if message["method"] == "workspace/configuration":
                    result = [self.settings(item.get("section", "")) for item in message["params"]["items"]]
                self.send({"id": message["id"], "result": result})
            elif "id" in message:
                with self.arrived:
                    self.replies[message["id"]] = message
                    self.arrived.notify_all()

    def settings(self, section: str) -> Any:
        return {"pythonPath": str(TOP / ".venv/bin/python")} if section == "python" else {}

    def ask(self, method: str, params: Any, seconds: float = 900) -> Any:
        self.next += 1
        number = self.next
        self.send({"id": number, "method": method, "params": params})
        with self.arrived:
            if not self.arrived.wait_for(lambda: number in self.replies, seconds):
                raise SystemExit(f"no answer to {method}")
            message = self.replies.pop(number)
        if "error" in message:
            return {"error": message["error"]}
        return message["result"]

    def tell(self, method: str, params: Any) -> None:
        self.send({"method": method, "params": params})


def uri(path: pathlib.Path) -> str:
    return "file://" + quote(str(path))


def file_of(module: str) -> pathlib.Path:
    path = SRC / pathlib.Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def bodies(node: ast.AST) -> Any:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If | ast.Try | ast.With | ast.For):
            yield from bodies(child)
        else:
            yield child


def position(text: str, tree: ast.Module, name: str) -> tuple[int, int, str]:
    """Line and column (bytes) of a symbol, and the name as it stands there."""
    parameter = re.fullmatch(r"(.*)\((\*{0,2}\w+)\)", name)
    parts = (parameter[1] if parameter else name).split(".")
    scope: ast.AST = tree
    found: tuple[int, int] | None = None
    node: ast.AST | None = None
    for depth, part in enumerate(parts):
        node, found = None, None
        for child in bodies(scope):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and child.name == part:
                line = text.splitlines()[child.lineno - 1]
                column = line.encode().index(part.encode(), child.col_offset + (4 if not isinstance(child, ast.ClassDef) else 6))
                node, found = child, (child.lineno, column)
                break
            targets = child.targets if isinstance(child, ast.Assign) else [child.target] if isinstance(child, ast.AnnAssign) else []
            for target in targets:
                for one in ast.walk(target):
                    if isinstance(one, ast.Name) and one.id == part:
                        node, found = child, (one.lineno, one.col_offset)
            if found:
                break
        if found is None and isinstance(scope, ast.ClassDef):
            for one in ast.walk(scope):
                if isinstance(one, ast.Attribute) and one.attr == part and isinstance(one.ctx, ast.Store) and isinstance(one.value, ast.Name) and one.value.id == "self":
                    node, found = one, (one.end_lineno or 0, (one.end_col_offset or 0) - len(part.encode()))
                    break
        if found is None:
            raise KeyError(name)
        scope = node  # type: ignore[assignment]
    if parameter:
        wanted = parameter[2].lstrip("*")
        for one in ast.walk(scope):
            if isinstance(one, ast.arg) and one.arg == wanted:
                return one.lineno, one.col_offset, wanted
        raise KeyError(name)
    assert found
    return found[0], found[1], parts[-1]


def main() -> None:
    rows: list[tuple[str, str, str]] = []
    for path in sys.argv[1:]:
        for line in pathlib.Path(path).read_text().splitlines():
            line = line.partition("#")[0].strip()
            found = re.fullmatch(r"(kitbag[\w.]*):([\w.]+(?:\(\*{0,2}\w+\))?)\s*->\s*(\w+)", line)
            if found:
                rows.append((found[1], found[2], found[3]))
            elif line:
                print("unreadable:", path, line)
    config = TOP / "pyrightconfig.json"
    config.write_text(json.dumps({"include": ["src", "tests", "bench"], "extraPaths": ["tests"], "typeCheckingMode": "off",
                                  "venvPath": ".", "venv": ".venv"}))
    server = Server()
    server.ask("initialize", {"processId": None, "rootUri": uri(TOP), "capabilities": {"workspace": {"configuration": True, "workspaceEdit": {"documentChanges": True}}},
                              "workspaceFolders": [{"uri": uri(TOP), "name": "kitbag"}]})
    server.tell("initialized", {})
    texts: dict[pathlib.Path, str] = {}
    trees: dict[pathlib.Path, ast.Module] = {}
    edits: dict[pathlib.Path, dict[tuple[int, int, int, int], str]] = {}
    opened: set[pathlib.Path] = set()
    begun = time.time()
    warm_up(server)
    for number, (module, name, new) in enumerate(rows):
        path = file_of(module)
        if path not in texts:
            if not path.exists():
                print("no module:", module)
                continue
            texts[path] = path.read_text()
            trees[path] = ast.parse(texts[path])
        try:
            line, column, old = position(texts[path], trees[path], name)
        except KeyError:
            print("no symbol:", module, name)
            continue
        if old == new:
            continue
        if path not in opened:
            for other in opened:
                server.tell("textDocument/didClose", {"textDocument": {"uri": uri(other)}})
            opened = {path}
            server.tell("textDocument/didOpen", {"textDocument": {"uri": uri(path), "languageId": "python", "version": 1, "text": texts[path]}})
        row = texts[path].splitlines()[line - 1].encode()
        character = len(row[:column].decode().encode("utf-16-le")) // 2
        answer = server.ask("textDocument/rename", {"textDocument": {"uri": uri(path)}, "position": {"line": line - 1, "character": character}, "newName": new})
        if not answer or "error" in answer:
            print("not renamed:", module, name, answer)
            continue
        changes = answer.get("changes") or {c["textDocument"]["uri"]: c["edits"] for c in answer["documentChanges"] if "textDocument" in c}
        count = 0
        for where, list_ in changes.items():
            file = pathlib.Path(unquote(where.removeprefix("file://")))
            if TOP not in file.parents or ".venv" in file.parts:
                print("outside:", file, name)
                continue
            for edit in list_:
                start, end = edit["range"]["start"], edit["range"]["end"]
                key = (start["line"], start["character"], end["line"], end["character"])
                mine = edits.setdefault(file, {})
                if key in mine and mine[key] != edit["newText"]:
                    print("conflict:", file, key, mine[key], edit["newText"], "by", module, name)
                mine[key] = edit["newText"]
                count += 1
        slots(trees[path], path, name, old, new, texts[path], edits)
        if number % 50 == 0 or count == 0:
            print(f"{number}/{len(rows)} {time.time() - begun:.0f} s: {name} -> {new}: {count} places", flush=True)
    config.unlink()
    server.process.kill()
    for file, places in edits.items():
        text = file.read_text()
        lines = text.split("\n")
        for (l1, c1, l2, c2), new in sorted(places.items(), reverse=True):
            assert l1 == l2, (file, l1, l2)
            units = lines[l1].encode("utf-16-le")
            lines[l1] = (units[: 2 * c1] + new.encode("utf-16-le") + units[2 * c2 :]).decode("utf-16-le")
        file.write_text("\n".join(lines))
    print(f"{sum(map(len, edits.values()))} edits in {len(edits)} files, {time.time() - begun:.0f} s")


def warm_up(server: Server) -> None:
    """Until the server has read all files: before, it finds references in few of them."""
    path = SRC / "kitbag/errors.py"
    line, column, _ = position(path.read_text(), ast.parse(path.read_text()), "KitbagError")
    server.tell("textDocument/didOpen", {"textDocument": {"uri": uri(path), "languageId": "python", "version": 1, "text": path.read_text()}})
    for _ in range(120):
        answer = server.ask("textDocument/references", {"textDocument": {"uri": uri(path)}, "position": {"line": line - 1, "character": column}, "context": {"includeDeclaration": True}})
        if answer and len({row["uri"] for row in answer}) > 30:
            break
        time.sleep(1)
    else:
        raise SystemExit("the server does not read the workspace")
    server.tell("textDocument/didClose", {"textDocument": {"uri": uri(path)}})


def slots(tree: ast.Module, path: pathlib.Path, name: str, old: str, new: str, text: str, edits: Any) -> None:
    """`__slots__` names attributes as strings."""
    if name.endswith(")") or name.count(".") != 1:
        return
    owner = name.split(".")[0]
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == owner:
            for child in node.body:
                if isinstance(child, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__slots__" for t in child.targets):
                    for one in ast.walk(child.value):
                        if isinstance(one, ast.Constant) and one.value == old:
                            edits.setdefault(path, {})[(one.lineno - 1, one.col_offset + 1, one.lineno - 1, one.end_col_offset - 1)] = new


main()
