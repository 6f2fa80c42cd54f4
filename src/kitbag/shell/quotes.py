"""Quotes, expansions, arithmetic and arrays: the inside of a word of shell text.

The lower half of the scanner: `scan` extends it with everything between words. It knows what opens and closes, and
which expansions can run or change something; it decides nothing about commands.
"""

import re
from typing import Final

from kitbag.shell.scan_model import NestedText, ScanFrame, ShellScan

MAX_DEPTH: Final = 25
UNTERMINATED: Final = "unterminated shell construct"

TOKEN: Final = re.compile(
    r"(?P<plain>[^ \t\n\\'\"`$;&|()<>#]+)|(?P<blank>[ \t]+)|(?P<newline>\n)|(?P<join>\\\n)"
    r"|(?P<process>[<>]\()|(?P<redirect>&>>|&>|<<<|<<-|<<|<>|<&|<|>>|>\||>&|>)"
    r"|(?P<operator>;;&|;;|;&|;|&&|&|\|\||\|&|\|)|(?P<open>\()|(?P<close>\))|(?P<hash>#)|(?P<piece>[\\'\"`$])"
)
_PLAIN_QUOTED = re.compile(r"[^\"\\`$]+")
_PLAIN_HEREDOC = re.compile(r"[^\\`$]+")
_PLAIN_PARAMETER = re.compile(r"[^}\\'\"`$<>]+")
_PLAIN_ARITHMETIC = re.compile(r"[^()\[\]\\'\"`$]+")
_BACKTICKS = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)
_ANSI = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|[0-9@*#?$!-])", re.ASCII)
_IDENTIFIER = re.compile(r"(?<![\w#])[A-Za-z_]\w*", re.ASCII)
# After `${`: a name, an optional subscript, and the operator.
_PARAMETER = re.compile(r"(?P<sign>[#!]?)(?P<name>[A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?P<index>\[[^\]]*\])?(?P<rest>.{0,2})")
_HARMLESS_INDEX = re.compile(r"\[(?:[0-9]+|[@*])\]")


class WordScanner:
    __slots__ = ("end", "is_stopped", "position", "result", "stack", "start", "text")

    def __init__(self, text: str, start: int, end: int, heredoc: bool) -> None:
        self.text, self.start, self.end = text, start, end
        self.position = start
        self.is_stopped = False
        self.result = ShellScan()
        self.stack = [ScanFrame("heredoc" if heredoc else "list", "", 0, None)]
        self.stack[0].quoted = heredoc
        self.result.frames.append(self.stack[0])

    def add_ambiguity(self, reason: str) -> None:
        if reason not in self.result.ambiguities:
            self.result.ambiguities.append(reason)

    def add_uncertainty(self, reason: str) -> None:
        if reason not in self.result.uncertainties:
            self.result.uncertainties.append(reason)

    def push(self, mode: str, closer: str, subshell: bool = False) -> None:
        outer = self.stack[-1]
        frame = ScanFrame(mode, closer, len(self.result.frames), self.list_frame())
        frame.subshell = subshell
        frame.quoted = mode == "double" or (mode == "parameter" and outer.quoted)
        self.stack.append(frame)
        if mode == "list":
            self.result.frames.append(frame)
        if len(self.stack) > MAX_DEPTH:
            self.add_ambiguity("nested too deeply")
            self.is_stopped = True

    def list_frame(self) -> ScanFrame | None:
        return next((frame for frame in reversed(self.stack) if frame.mode == "list"), None)

    def in_array(self, frame: ScanFrame, at: int) -> int:
        match = TOKEN.match(self.text, at, self.end)
        assert match is not None
        kind = match.lastgroup
        if kind == "close":
            self.stack.pop()
        elif kind in ("blank", "newline"):
            frame.word = -1
        elif kind == "hash" and frame.word < 0:
            newline = self.text.find("\n", at, self.end)
            return self.end if newline < 0 else newline
        elif kind == "process":
            self.push("list", ")")
        elif kind == "piece":
            frame.word = at
            return self.piece(frame, at)
        elif kind == "plain" or kind == "hash":
            frame.word = at
        else:
            self.add_ambiguity("operator inside an array")
        return match.end()

    def in_double(self, frame: ScanFrame, at: int) -> int:
        """Double quotes, or the body of a here document, where `"` is an ordinary character."""
        plain = (_PLAIN_QUOTED if frame.mode == "double" else _PLAIN_HEREDOC).match(self.text, at, self.end)
        if plain is not None:
            return plain.end()
        if self.text[at] == '"':
            self.stack.pop()
            return at + 1
        return self.piece(frame, at)

    def in_parameter(self, frame: ScanFrame, at: int) -> int:
        plain = _PLAIN_PARAMETER.match(self.text, at, self.end)
        if plain is not None:
            return plain.end()
        character = self.text[at]
        if character == "}":
            self.stack.pop()
            return at + 1
        if character in "<>":
            if not frame.quoted and self.text.startswith("(", at + 1):
                self.push("list", ")")
                return at + 2
            return at + 1
        if character == "'" and frame.quoted:
            # Whether it quotes depends on the preceding operator.
            self.add_ambiguity("single quote in an expansion inside double quotes")
            return at + 1
        return self.piece(frame, at)

    def in_arithmetic(self, frame: ScanFrame, at: int) -> int:
        plain = _PLAIN_ARITHMETIC.match(self.text, at, self.end)
        if plain is not None:
            self.result.evaluated.update(_IDENTIFIER.findall(plain.group()))
            return plain.end()
        character = self.text[at]
        if character in "([":
            frame.open += character
            return at + 1
        if character in "'\\":
            self.add_ambiguity("quotes inside arithmetic")
            return at + 1
        if character not in ")]":
            return self.piece(frame, at)
        if frame.open:
            if frame.open[-1] + character not in ("()", "[]"):
                self.add_ambiguity("ambiguous arithmetic expansion")
            frame.open = frame.open[:-1]
            return at + 1
        if not self.text.startswith(frame.closer, at):
            self.add_ambiguity("ambiguous arithmetic expansion")
        self.stack.pop()
        return at + len(frame.closer)

    def piece(self, frame: ScanFrame, at: int) -> int:
        """A quote, a backslash, a backtick or a `$`, in any mode."""
        character = self.text[at]
        if character == "\\":
            if at + 1 >= self.end:
                self.add_ambiguity(UNTERMINATED)
            elif self.text[at + 1] == "\n" and at > self.start and self.text[at - 1] in "$&|<>({`\\":
                self.add_ambiguity("line continuation inside a word")
            return min(at + 2, self.end)
        if character == "'":
            closing = self.text.find("'", at + 1, self.end)
            if closing < 0:
                self.add_ambiguity("unclosed quote")
            return self.end if closing < 0 else closing + 1
        if character == '"':
            self.push("double", '"')
            return at + 1
        if character == "`":
            match = _BACKTICKS.match(self.text, at, self.end)
            if match is None:
                self.add_ambiguity("unclosed backtick")
                return at + 1
            inner = re.sub(r'\\([$`\\"])' if frame.quoted else r"\\([$`\\])", r"\1", match.group(1))
            self.result.nested.append(NestedText(inner, self.list_frame()))
            self.result.backticks.append((at, match.end()))
            return match.end()
        return self._dollar(frame, at)

    def _dollar(self, frame: ScanFrame, at: int) -> int:
        following = self.text[at + 1 : at + 2] if at + 1 < self.end else ""
        if following == "(":
            if self.text.startswith("((", at + 1):
                self.push("arithmetic", "))")
                return at + 3
            self.push("list", ")")
            return at + 2
        if following == "{":
            return self._parameter(at)
        if following == "[":
            self.add_ambiguity("deprecated $[ ] arithmetic")
            self.push("arithmetic", "]")
            return at + 2
        if following in ("'", '"') and following and not frame.quoted and frame.mode != "heredoc":
            if following == '"':
                return at + 1
            match = _ANSI.match(self.text, at, self.end)
            if match is None:
                self.add_ambiguity("unclosed quote")
                return self.end
            return match.end()
        match = _VARIABLE.match(self.text, at, self.end)
        if match is None:
            return at + 1
        if match.group(1) == "IFS":
            self.add_uncertainty("uses $IFS, which changes how words are split")
        return match.end()

    def _parameter(self, at: int) -> int:
        match = _PARAMETER.match(self.text, at + 2, self.end)
        if match is None:
            self.add_ambiguity("unknown form of parameter expansion")
        else:
            rest = match["rest"]
            if match["name"] == "IFS":
                self.add_uncertainty("uses $IFS, which changes how words are split")
            if match["sign"] == "!" or (match["name"] == "!" and rest[:1] not in ("}", ":", "-", "+", "")):
                self.add_uncertainty("indirect variable expansion")
            if rest[:1] == "=" or rest == ":=":
                self.add_uncertainty("expansion that assigns a variable")
            if rest[:1] == "@":
                self.add_uncertainty("expansion that may be evaluated again")
            if rest[:1] == ":" and rest not in (":-", ":+", ":?", ":=") and not re.fullmatch(r":[0-9 ]", rest):
                self.add_uncertainty("expansion that evaluates arithmetic")
            if match["index"] and not _HARMLESS_INDEX.fullmatch(match["index"]):
                self.add_uncertainty("expansion that evaluates arithmetic")
        self.push("parameter", "}")
        return at + 2
