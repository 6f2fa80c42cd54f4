"""Scans shell text like bash and finds every simple command in it, at any depth.

One linear pass with a stack of frames, no recursion. Never fails: anything uncertain is recorded as an ambiguity, and
commands found so far are kept. `analysis` combines it with `tree_sitter_check`.
"""

import re
from typing import Final

from kitbag.shell.quotes import TOKEN, UNTERMINATED, WordScanner
from kitbag.shell.scan_model import ScanFrame, ScannedCommand, ScannedLoop, ScannedRedirect, ShellScan

MAX_COMMANDS: Final = 200
_COMPOUND_BEGINS = frozenset({"if", "then", "elif", "else", "while", "until", "do", "{"})
_BODIES = frozenset({"{", "if", "while", "until", "for", "select", "case", "[["})
_COMPOUND_ENDS = frozenset({"fi", "done", "}"})
_OTHER_RESERVED = frozenset({"!", "time", "coproc", "function", "esac", "in"})
_RESERVED = _COMPOUND_BEGINS | _BODIES | _COMPOUND_ENDS | _OTHER_RESERVED

ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?\+?=", re.ASCII)
_OPEN_SUBSCRIPT = re.compile(r"[A-Za-z_]\w*\[[^\]]*\Z", re.ASCII)
_FUNCTION_PARENTHESES = re.compile(r"\([ \t]*\)")
_DESCRIPTOR = re.compile(r"[0-9]+|(\{[A-Za-z_]\w*\})", re.ASCII)
_TIMES_A_COMPOUND = re.compile(
    r"(?:[ \t]+-p)?(?:[ \t]+--)?[ \t]+(?:[({!<>]|[0-9]+[<>]|\[\[|(?:if|while|until|for|case|select|time|function)\b"
    r"|[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=)"
)


def scan(text: str, start: int = 0, end: int = -1, heredoc: bool = False) -> ShellScan:
    """`heredoc`: the span is the body of a here document, where only `$` and backticks are special."""
    return _CommandScanner(text, start, len(text) if end < 0 else end, heredoc).run()


class _CommandScanner(WordScanner):
    __slots__ = ()

    def run(self) -> ShellScan:
        steps = {
            "list": self._in_list,
            "array": self.in_array,
            "double": self.in_double,
            "heredoc": self.in_double,
            "parameter": self.in_parameter,
            "arithmetic": self.in_arithmetic,
        }
        while self.position < self.end and not self.is_stopped:
            frame = self.stack[-1]
            self.position = steps[frame.mode](frame, self.position)
        if len(self.stack) > 1:
            self.add_ambiguity(UNTERMINATED)
        while self.stack:
            frame = self.stack.pop()
            if frame.mode == "list":
                self._end_word(frame, self.position)
                self._end_command(frame, "")
                if frame.cases or frame.test or frame.loop or frame.heredocs or frame.redirect or not frame.can_end:
                    self.add_ambiguity(UNTERMINATED)
        self.result.commands.sort(key=lambda command: command.start)
        return self.result

    # --- Commands ---

    def _in_list(self, frame: ScanFrame, at: int) -> int:
        match = TOKEN.match(self.text, at, self.end)
        assert match is not None  # the alternatives cover every character
        kind, after = match.lastgroup, match.end()
        if kind == "plain" or (kind == "hash" and frame.word >= 0):
            return self._begin_word(frame, at, after)
        if kind == "blank":
            self._end_word(frame, at)
        elif kind == "newline":
            self._end_word(frame, at)
            return self._newline(frame, after)
        elif kind == "join":
            # Bash joins lines before anything else, so `$\` + `(` is `$(`.
            if at > self.start and self.text[at - 1] not in " \t\n":
                self.add_ambiguity("line continuation inside a word")
        elif kind == "hash":
            newline = self.text.find("\n", at, self.end)
            return self.end if newline < 0 else newline
        elif kind == "process":
            self._begin_word(frame, at, after)
            self.push("list", ")")
        elif kind == "redirect":
            self._redirect(frame, match.group(), at)
        elif kind == "operator":
            self._end_word(frame, at)
            self._operator(frame, match.group())
        elif kind == "open":
            return self._open(frame, at)
        elif kind == "close":
            self._close(frame, at)
        else:
            self._begin_word(frame, at, at)
            return self.piece(frame, at)
        return after

    def _begin_word(self, frame: ScanFrame, at: int, after: int) -> int:
        if frame.word < 0:
            frame.word = at
        return after

    def _end_word(self, frame: ScanFrame, at: int) -> None:
        if frame.word < 0:
            return
        span, frame.word = (frame.word, at), -1
        raw = self.text[span[0] : at]
        if frame.redirect:
            self._redirect_target(frame, span, raw)
        elif frame.test:
            if frame.command is not None:
                frame.command.words.append(span)
                frame.command.end = at
            if raw == "]]":
                frame.test = False
        elif frame.cases and frame.cases[-1] != "body":
            self._case_word(frame, raw)
        elif frame.loop:
            self._loop_word(frame, raw, span)
        elif frame.function:
            frame.function, frame.body = False, True
        elif frame.command is None and self._reserved(frame, raw, at):
            self._check_body(frame, raw)
        else:
            self._check_body(frame, raw)
            command = self._command(frame, span[0])
            if not command.words and ASSIGNMENT.match(raw):
                command.assignments.append(span)
            elif not command.words and command.redirects and raw in _RESERVED:
                # Bash rewrites a substitution before it runs it, with redirections last: the word is then reserved.
                self.add_ambiguity("reserved word after a redirection")
                command.words.append(span)
            elif not command.words and _OPEN_SUBSCRIPT.match(raw):
                # Bash reads up to the closing bracket, including spaces.
                self.add_ambiguity("array subscript that contains spaces")
                command.words.append(span)
            else:
                command.words.append(span)
            command.end = at

    def _check_body(self, frame: ScanFrame, raw: str) -> None:
        if frame.body and raw not in _BODIES:
            self.add_ambiguity("function without a body")
        frame.body = False

    def _command(self, frame: ScanFrame, at: int) -> ScannedCommand:
        if frame.command is None:
            frame.command = ScannedCommand(at, frame, frame.connector)
            frame.filled = True
        return frame.command

    def _reserved(self, frame: ScanFrame, raw: str, at: int) -> bool:
        """Whether it is a reserved word at a position where a command can start."""
        if frame.timed and raw in ("-p", "--"):
            return True
        frame.timed = False
        if raw in _COMPOUND_BEGINS:
            frame.compound, frame.filled = True, False
            if raw in ("while", "until"):
                frame.loops.append(None)
        elif raw in _COMPOUND_ENDS:
            frame.compound, frame.filled = True, True
            if raw == "done" and frame.loops and (loop := frame.loops.pop()) is not None:
                loop.end = at
        elif raw == "esac":
            frame.filled = True
            if frame.cases:
                frame.cases.pop()
            else:
                self.add_ambiguity("unexpected reserved word")
        elif raw in ("for", "select"):
            frame.compound, frame.loop = True, "name"
            frame.loops.append(None)
        elif raw == "case":
            frame.compound = True
            frame.cases.append("word")
        elif raw == "function":
            frame.compound = frame.function = self.result.has_functions = True
        elif raw == "[[":
            command = self._command(frame, at - 2)
            command.words.append((at - 2, at))
            frame.test = True
        elif raw == "coproc":
            self.add_ambiguity("`coproc` with an ambiguous command")
        elif raw == "!":
            frame.compound, frame.filled = True, False
        elif raw == "time":
            frame.timed = _TIMES_A_COMPOUND.match(self.text, at, self.end) is not None
            return frame.timed
        else:
            return False
        return True

    def _case_word(self, frame: ScanFrame, raw: str) -> None:
        state = frame.cases[-1]
        if state == "word":
            frame.cases[-1] = "in"
        elif state == "in":
            if raw != "in":
                self.add_ambiguity("`case` without `in`")
            frame.cases[-1] = "pattern"
        elif state == "pattern" and raw == "esac":
            frame.cases.pop()
            frame.filled = True
        else:
            frame.cases[-1] = "more pattern"

    def _loop_word(self, frame: ScanFrame, raw: str, span: tuple[int, int]) -> None:
        loop = frame.loops[-1] if frame.loops else None
        if loop is not None:
            loop.body = loop.end = span[1]
        if frame.loop == "name":
            self.result.assigned.add(raw)
            # What `select` assigns is unknown.
            is_for = self.text[self.start : span[0]].rstrip().endswith("for")
            loop = ScannedLoop(raw if is_for else "", span[1], frame)
            frame.loops[-1:] = [loop]
            self.result.loops.append(loop)
            frame.loop = "in"
        elif frame.loop == "words" and loop is not None and loop.words is not None:
            loop.words.append(span)
        elif frame.loop == "in":
            frame.loop = "words" if raw == "in" else ""
            frame.filled = False
            if loop is not None and raw == "in":
                loop.words = []
            if raw not in ("in", "do"):
                self.add_ambiguity("malformed loop")

    def _operator(self, frame: ScanFrame, operator: str) -> None:
        if frame.test:
            if operator not in ("&&", "||", "|"):
                self.add_ambiguity("unexpected operator inside [[ ]]")
            return
        if frame.cases and frame.cases[-1] != "body":
            if operator != "|" or frame.cases[-1] != "more pattern":
                self.add_ambiguity("unexpected operator in a `case` pattern")
            return
        if frame.loop:
            if operator != ";" or frame.loop == "name":
                self.add_ambiguity("malformed loop")
            frame.loop, frame.connector, frame.filled = "", ";", False
            return
        ends_item = operator in (";;", ";&", ";;&")
        if not frame.filled and not ends_item:
            self.add_ambiguity("operator without a command")
        if ends_item and not frame.cases:
            self.add_ambiguity("`;;` outside a `case`")
        self._end_command(frame, operator)
        if ends_item and frame.cases:
            frame.cases[-1] = "pattern"
        frame.can_end = operator not in ("&&", "||", "|", "|&")

    def _end_command(self, frame: ScanFrame, operator: str) -> None:
        if frame.redirect:
            self.add_ambiguity("redirection without a target")
            frame.redirect = ""
        if frame.test:
            self.add_ambiguity(UNTERMINATED)
            frame.test = False
        if frame.command is not None:
            frame.command.after = operator
            self.result.commands.append(frame.command)
            frame.command = None
            if len(self.result.commands) == MAX_COMMANDS:
                self.add_ambiguity("too many commands to analyze")
        if frame.filled:
            frame.can_end = True
        if operator:
            frame.connector, frame.filled = operator, False

    def _newline(self, frame: ScanFrame, after: int) -> int:
        if frame.test or (frame.cases and frame.cases[-1] != "body"):
            return after
        if frame.loop == "words":
            frame.loop, frame.filled = "", False
        if frame.filled or frame.redirect:
            self._end_command(frame, ";")
        if any(outer.heredocs for outer in self.stack[:-1]):
            self.add_ambiguity("here-document that starts inside another construct")
        for operator, delimiter, command in frame.heredocs:
            after = self._heredoc(operator, delimiter, command, after)
        frame.heredocs.clear()
        return after

    def _open(self, frame: ScanFrame, at: int) -> int:
        word = self.text[frame.word : at] if frame.word >= 0 else ""
        assigns = ASSIGNMENT.fullmatch(word) is not None
        if assigns and not frame.redirect and not frame.test:
            self.push("array", ")")
            return at + 1
        self._end_word(frame, at)
        if frame.test or (frame.cases and frame.cases[-1] == "pattern"):
            return at + 1
        arithmetic = self.text.startswith("((", at)
        if frame.loop == "name" and arithmetic:
            frame.loop = "in"
            self.push("arithmetic", "))")
            return at + 2
        parentheses = _FUNCTION_PARENTHESES.match(self.text, at, self.end)
        command = frame.command
        if parentheses is not None:
            if command is not None and len(command.words) == 1 and not command.assignments and not command.redirects:
                frame.command, frame.filled = None, False
            elif command is not None or not frame.body:
                self.add_ambiguity("unexpected parenthesis")
            frame.compound = frame.body = self.result.has_functions = True
            return parentheses.end()
        if command is not None or frame.redirect or frame.filled:
            self.add_ambiguity("unexpected parenthesis")
            self._end_command(frame, ";")
        frame.filled, frame.body = True, False
        if arithmetic:
            self.add_uncertainty("arithmetic command (( ))")
            self.push("arithmetic", "))")
            return at + 2
        self.push("list", ")", subshell=True)
        return at + 1

    def _close(self, frame: ScanFrame, at: int) -> None:
        self._end_word(frame, at)
        if frame.test:
            return
        if frame.cases and frame.cases[-1] in ("pattern", "more pattern"):
            frame.cases[-1] = "body"
            frame.connector, frame.filled = ";", False
            return
        ended_well = frame.filled or frame.can_end
        self._end_command(frame, ";")
        if frame.closer != ")" or frame.cases or frame.loop or frame.heredocs or not ended_well:
            self.add_ambiguity("unbalanced parentheses")
        if frame.closer == ")":
            self.stack.pop()

    # --- Redirections and here documents ---

    def _redirect(self, frame: ScanFrame, operator: str, at: int) -> None:
        if frame.test and operator in ("<", ">"):
            self._end_word(frame, at)
            return
        raw = self.text[frame.word : at] if frame.word >= 0 else ""
        descriptor = _DESCRIPTOR.fullmatch(raw) if raw and not operator.startswith("&") else None
        if descriptor is not None and not frame.redirect:
            if descriptor.group(1):
                self.add_uncertainty("redirection that assigns a variable")
            start, frame.word = frame.word, -1
        else:
            self._end_word(frame, at)
            start = at
        if frame.redirect or frame.test or frame.loop or (frame.cases and frame.cases[-1] != "body"):
            self.add_ambiguity("unexpected redirection")
        frame.redirect = operator
        self._command(frame, start)

    def _redirect_target(self, frame: ScanFrame, span: tuple[int, int], raw: str) -> None:
        operator, frame.redirect = frame.redirect, ""
        command = self._command(frame, span[0])
        command.end = span[1]
        if operator in ("<<", "<<-"):
            frame.heredocs.append((operator, raw, command))
            if len(frame.heredocs) > 8:
                self.add_ambiguity("too many here-documents")
        else:
            command.redirects.append(ScannedRedirect(operator, span))

    def _heredoc(self, operator: str, delimiter: str, command: ScannedCommand, at: int) -> int:
        """Return the index after the body."""
        quoted = any(character in delimiter for character in "'\"\\")
        if "`" in delimiter or "$" in delimiter or "\n" in delimiter:
            self.add_ambiguity("here-document with an unusual delimiter")
        end_marker = re.sub(r"""['"]|\\(?=.)""", "", delimiter)
        line, joined = at, False
        while line < self.end:
            newline = self.text.find("\n", line, self.end)
            stop = self.end if newline < 0 else newline
            content = self.text[line:stop]
            if not joined and (content.lstrip("\t") if operator == "<<-" else content) == end_marker:
                self._heredoc_body(command, at, line, quoted)
                return min(stop + 1, self.end)
            # In an unquoted body a trailing backslash joins lines before bash looks for the delimiter.
            joined = not quoted and (len(content) - len(content.rstrip("\\"))) % 2 == 1
            if joined:
                self.add_ambiguity("line continuation in a here-document")
            line = stop + 1
        self.add_ambiguity("unterminated here-document")
        self._heredoc_body(command, at, self.end, quoted)
        return self.end

    def _heredoc_body(self, command: ScannedCommand, start: int, end: int, quoted: bool) -> None:
        command.input.append(self.text[start:end])
        if not quoted and ("$" in self.text[start:end] or "`" in self.text[start:end]):
            self.result.bodies.append((start, end))
            command.expands_input = True
