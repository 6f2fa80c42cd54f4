"""Decides whether an `@` word without a matching file was meant as a file: `src/old.py` was, `@app.route` was not.

Used by mentions to warn about typos only.
"""

import re
from typing import Final

_EXTENSION_LIST = """
    adoc asm astro avif awk bash bat bib bmp c cc cfg cjs clj cmake cmd conf cpp cs css csv cts cu cxx d dart db diff
    doc docx dockerfile dts ejs el elm env erb erl ex exs f90 fish fs gemspec gif go gql gradle graphql groovy h hbs hcl
    hpp hrl hs htm html hxx ico inc ini ipynb java jl jpeg jpg js json json5 jsonc jsonl jsx kt kts less lhs
    lock log lua m4 mak markdown md mdc mdx mjs mk ml mli mm mts nim nix odt org parquet patch pdf
    pem php pl plist pm png po ppt pptx prisma properties proto ps1 psd py pyi pyx r rake rb rego rkt rmd rs rst rtf s
    sass sbt scala scm scss sh sol sql sqlite srt svelte svg swift tcl tex tf tfvars tif tiff toml ts tsv tsx txt v vb
    vim vtt vue wasm webp xls xlsx xml xsd xsl yaml yml zig zip zsh
"""
_EXTENSIONS: Final = frozenset(_EXTENSION_LIST.split())
_PLAIN_PATH = re.compile(r"[\w./~+@%=, -]+")
_PATH_PREFIXES: Final = ("./", "../", "~/", "/")


def looks_like_file(word: str, *, is_quoted: bool = False, has_top_folder: bool = False) -> bool:
    """`has_top_folder`: a folder with the name of the first component exists."""
    if not _PLAIN_PATH.fullmatch(word):
        return False
    name = word.rpartition("/")[2]
    stem, dot, extension = name.rpartition(".")
    if dot and stem and extension.lower() in _EXTENSIONS:
        return True
    # One slash and no extension may also be a package: `@types/node`.
    return has_top_folder or word.startswith(_PATH_PREFIXES) or word.count("/") > 1 or (is_quoted and "/" in word)
