"""Which skills a file is for, by their `paths`: for files that a message names or that tools used before it.

Used by retrieval; search_index fills it. The cost for one message is bounded.
"""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kitbag.library.path_patterns import PathPattern, base_directories, matches_file, parse_patterns
from kitbag.library.routing.mentioned_files import MentionedFiles
from kitbag.library.scopes import Places, Root
from kitbag.text.glob_patterns import GlobError, expand_braces, has_wildcard

_SECONDS: Final = 0.1
"""CPU time, so that load on the machine does not change the result."""


class PathIndex:
    def __init__(self, places: Places) -> None:
        self._places = places
        self._positions: dict[tuple[tuple[str, ...], Root], list[int]] = {}
        """By the patterns and the root."""
        self._patterns: dict[tuple[str, ...], tuple[PathPattern, ...]] = {}
        self._bases: dict[Root, tuple[str, ...]] = {}
        self._literals: set[str] = set()
        """Parts of patterns without wildcards."""

    def add(self, position: int, root: Root, globs: tuple[str, ...]) -> None:
        self._positions.setdefault((globs, root), []).append(position)
        for glob in globs:
            try:
                parts = [part for one in expand_braces(glob) for part in one.split("/")]
            except GlobError:
                continue
            self._literals.update(part for part in parts if part and not has_wildcard(part))

    def find_mentioned(self, mentioned: MentionedFiles) -> list[int]:
        """The positions of the skills that the mentioned files are for."""
        if not self._positions:
            return []
        names = [name for name in mentioned.names if not self._literals.isdisjoint(name.split("/"))]
        return list(self.find((*mentioned.files, *names)))

    def find(self, files: Sequence[str]) -> Mapping[int, str]:
        """The positions, each with the first of these files that it is for."""
        found: dict[int, str] = {}
        if not self._positions or not files:
            return found
        located = [(file, self._locate(file)) for file in files]
        deadline = time.thread_time() + _SECONDS
        for (globs, root), positions in list(self._positions.items()):
            if time.thread_time() >= deadline:
                break
            patterns = self._patterns.get(globs)
            if patterns is None:
                patterns = self._patterns[globs] = tuple(parse_patterns(globs))
            if root not in self._bases:
                self._bases[root] = base_directories(root, self._places)
            for file, paths in located:
                if matches_file(patterns, self._bases[root], paths):
                    found.update(dict.fromkeys(positions, file))
                    break
        return found

    def _locate(self, file: str) -> tuple[str, ...]:
        """The absolute names that a file may have. Links are followed inside the project only."""
        names: list[str] = []
        for base in dict.fromkeys((self._places.cwd, self._places.project)):
            path = os.path.normpath(os.path.join(base, os.path.expanduser(file)))
            if path.startswith(os.path.join(self._places.project, "")):
                resolved = os.path.realpath(self._places.project)
                inside = os.path.join(resolved, os.path.relpath(path, self._places.project))
                names += [inside, os.path.realpath(inside)]
            else:
                names.append(path)
        return tuple(dict.fromkeys(names))


def list_globs(lines: Iterable[str]) -> tuple[str, ...]:
    """The patterns among lines as in `text_store.keyword_lines`."""
    return tuple(line[1:] for line in lines if line[:1] == "/")
