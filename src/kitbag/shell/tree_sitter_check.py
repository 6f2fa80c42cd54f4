"""Where tree-sitter's bash grammar sees commands begin, as a check on the scanner.

`analysis` compares it with the result of `scan`; if they differ, the text is ambiguous. Called only for text that the
scanner could read, because the grammar's error recovery takes quadratic time.
"""

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Language

# These nodes begin with a keyword instead of a name.
_WITH_KEYWORD = frozenset({"declaration_command", "unset_command", "test_command"})
_RESERVED_WORDS = frozenset({"time", "coproc"})
_NOT_ASCII = re.compile("[^\\x00-\\x7f]")


class GrammarReading(NamedTuple):
    starts: frozenset[int]
    """Start of the first word of each command."""
    optional: frozenset[int]
    """Where a command may start: the words after `time`."""
    has_errors: bool
    """The text doesn't parse."""


@cache
def _language() -> "Language":
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


def read_with_grammar(text: str) -> GrammarReading:
    """Offsets count characters of the text."""
    from tree_sitter import Parser

    # The grammar's scanner looks characters up in C tables that end at 255 and crashes beyond. For bash, a non-ASCII
    # character is part of a word that can't be a name; so is `%`.
    source = _NOT_ASCII.sub("%", text).encode()
    root = Parser(_language()).parse(source).root_node
    starts: set[int] = set()
    optional: set[int] = set()
    has_errors = root.has_error
    cursor = root.walk()
    descending = True
    while True:
        if descending:
            node = cursor.node
            if node is not None:
                if node.is_error or node.is_missing:
                    has_errors = True
                if node.type in _WITH_KEYWORD:
                    starts.add(node.start_byte)
                elif node.type == "command":
                    name = node.child_by_field_name("name")
                    if name is not None:
                        starts.add(name.start_byte)
                        if source[name.start_byte : name.end_byte].decode() in _RESERVED_WORDS:
                            optional.add(name.start_byte)
                            optional.update(child.start_byte for child in node.children)
            if cursor.goto_first_child():
                continue
        if cursor.goto_next_sibling():
            descending = True
        elif cursor.goto_parent():
            descending = False
        else:
            break
    return GrammarReading(frozenset(starts), frozenset(optional), has_errors)
