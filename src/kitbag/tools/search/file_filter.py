"""Decides by path which files Grep's `glob` and `type` select.

Used by grep and search_process, so that both engines search the same files, and by list_files. Imports nothing of
Kitbag but glob_patterns.
"""

import re
from collections.abc import Iterable
from typing import Final

from kitbag.text.glob_patterns import GlobError, expand_braces, glob_regex

FILE_TYPES: Final[dict[str, str]] = {
    "c": "*.c *.h",
    "config": "*.cfg *.conf *.config *.ini",
    "cpp": "*.cc *.cpp *.cxx *.c++ *.h *.hh *.hpp *.hxx *.inl",
    "cs": "*.cs",
    "css": "*.css *.scss *.sass *.less",
    "csv": "*.csv *.tsv",
    "dart": "*.dart",
    "docker": "*Dockerfile* *.dockerfile Containerfile*",
    "elixir": "*.ex *.exs *.eex *.heex",
    "erlang": "*.erl *.hrl",
    "go": "*.go",
    "graphql": "*.graphql *.graphqls *.gql",
    "haskell": "*.hs *.lhs",
    "html": "*.html *.htm *.xhtml",
    "java": "*.java *.jsp *.properties",
    "js": "*.js *.jsx *.mjs *.cjs *.vue",
    "json": "*.json *.jsonc *.json5 *.jsonl *.ipynb",
    "julia": "*.jl",
    "kotlin": "*.kt *.kts",
    "log": "*.log",
    "lua": "*.lua",
    "make": "[Mm]akefile GNUmakefile *.mk *.mak",
    "md": "*.md *.markdown *.mdx *.mdown *.mkd",
    "nix": "*.nix",
    "ocaml": "*.ml *.mli *.mll *.mly",
    "perl": "*.pl *.pm *.perl *.t",
    "php": "*.php *.phtml",
    "proto": "*.proto",
    "ps": "*.ps1 *.psm1 *.psd1",
    "py": "*.py *.pyi",
    "r": "*.R *.r *.Rmd *.Rnw",
    "rst": "*.rst",
    "ruby": "*.rb *.gemspec *.rake Gemfile Rakefile .irbrc",
    "rust": "*.rs",
    "scala": "*.scala *.sbt",
    "sh": "*.sh *.bash *.zsh *.fish *.ksh",
    "sql": "*.sql *.psql",
    "svelte": "*.svelte",
    "swift": "*.swift",
    "tex": "*.tex *.ltx *.sty *.cls *.bib",
    "tf": "*.tf *.tfvars",
    "toml": "*.toml",
    "ts": "*.ts *.tsx *.cts *.mts",
    "txt": "*.txt",
    "vue": "*.vue",
    "xml": "*.xml *.xsd *.xsl *.xslt *.svg",
    "yaml": "*.yaml *.yml",
    "zig": "*.zig",
}
_TYPE_ALIASES: Final = {
    "python": "py", "javascript": "js", "jsx": "js", "typescript": "ts", "tsx": "ts", "markdown": "md", "rb": "ruby",
    "rs": "rust", "golang": "go", "c++": "cpp", "csharp": "cs", "shell": "sh", "bash": "sh", "yml": "yaml",
    "kt": "kotlin", "dockerfile": "docker", "makefile": "make", "htm": "html", "terraform": "tf", "ex": "elixir",
    "hs": "haskell", "powershell": "ps", "protobuf": "proto", "text": "txt",
}  # fmt: skip
_SIMPLE_NAME = re.compile(r"[\w*.+@-]+")
"""Without `?`, which matches one byte in ripgrep and one character here."""


class FileFilter:
    def __init__(self, glob: str = "", file_type: str = "", prefix: str = "") -> None:
        """`glob` may be several globs separated by spaces or commas; `!` excludes. A glob with a slash is relative to
        the searched folder, or to the working directory, from which `prefix` leads to the searched folder. Raises
        GlobError."""
        self._prefix = prefix
        type_name = _TYPE_ALIASES.get(file_type.lower(), file_type.lower())
        if file_type and type_name not in FILE_TYPES:
            raise GlobError(f"unknown type {file_type[:80]!r}; known types: {', '.join(FILE_TYPES)}")
        globs = _split_globs(glob)
        self._type_globs = FILE_TYPES[type_name].split() if file_type else []
        self._globs = [one for one in globs if not one.startswith("!")]
        self._type = _compile_globs(self._type_globs)
        self._included = _compile_globs(self._globs)
        self._excluded = _compile_globs([one[1:] for one in globs if one.startswith("!")])

    def matches(self, path: str) -> bool:
        """`path` is relative to the searched folder."""
        paths = (path, self._prefix + path) if self._prefix else (path,)
        if self._type and not self._type.fullmatch(path):
            return False
        if self._included and not any(self._included.fullmatch(one) for one in paths):
            return False
        return not (self._excluded and any(self._excluded.fullmatch(one) for one in paths))

    def name_patterns(self) -> tuple[str, ...]:
        """Simple patterns that match the name of every selected file; empty if there are none."""
        ends = [one.rpartition("/")[2] for glob in self._globs for one in expand_braces(glob)] or self._type_globs
        return simple_name_patterns(ends)


def simple_name_patterns(ends: Iterable[str]) -> tuple[str, ...]:
    """The last parts of globs, as ripgrep type globs; empty if one of them is more than letters and `*`."""
    patterns = tuple(dict.fromkeys(ends))
    return patterns if all(_SIMPLE_NAME.fullmatch(end) and end.strip("*") for end in patterns) else ()


def ripgrep_type_options(names: tuple[str, ...]) -> list[str]:
    """Options that make ripgrep search only files with these names. Types only narrow the search, while `--glob` would
    also include files that git ignores."""
    return [*(f"--type-add=wanted:{name}" for name in names), "--type=wanted"] if names else []


def _split_globs(glob: str) -> list[str]:
    """Splits at spaces and commas outside of braces."""
    parts, depth = [""], 0
    for char in glob:
        depth = max(0, depth + (char == "{") - (char == "}"))
        if char in " ," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part for part in parts if part]


def _compile_globs(globs: list[str]) -> re.Pattern[str] | None:
    if not globs:
        return None
    anchored = [glob.removeprefix("./").removeprefix("/") if "/" in glob else f"**/{glob}" for glob in globs]
    anchored += [f"{glob.rstrip('/')}/**" for glob in anchored if glob.endswith("/")]
    return re.compile("|".join(glob_regex(glob, hidden=True) for glob in anchored))
