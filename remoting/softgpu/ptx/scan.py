"""Module scope of a PTX text: header, variables, and where each function's body lies.

Bodies are only delimited here (modules of 28 MB exist); ``body.py`` parses the wanted ones.
"""

from __future__ import annotations

import re

from . import declarations
from .errors import PtxError, invalid
from .literals import IDENT
from .model import Function, Module, Variable

#: Major versions whose meaning of the whitelisted forms is known.
MIN_VERSION = (3, 0)
MAX_MAJOR = 9

_BLANK = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)+", re.S)
_VERSION = re.compile(r"\.version\s+(\d{1,4})\.(\d{1,4})\b")
_TARGET = re.compile(r"\.target\s+([\w$]+(?:\s*,\s*\w+)*)")
_ADDRESS_SIZE = re.compile(r"\.address_size\s+(\d{1,4})\b")
_FILE = re.compile(r'\.file\s+\d+\s+"[^"\n]*"(?:\s*,\s*\d+\s*,\s*\d+)?')
_SECTION = re.compile(r"\.section\s+[.\w$]+[^{};]*\{")
_DWARF_LINE = re.compile(r"@@[^\n]*")
_HEAD = re.compile(r"[^{};]*")
_BRACES = re.compile(r'[{}]|//[^\n]*|/\*.*?\*/|"[^"\n]*"', re.S)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_FUNCTION = re.compile(
    rf"(?P<link>[^(]*?)\.(?P<kind>entry|func)\b\s*(?P<attrs>(?:\.\w+\s*)*)"
    rf"(?:\((?P<returns>[^)]*)\)\s*)?(?P<name>{IDENT})\s*(?:\((?P<params>[^)]*)\))?(?P<tail>.*)$",
    re.S,
)
_TUNING = re.compile(
    r"\.(maxntid|reqntid|minnctapersm|maxnctapersm|maxnreg|noreturn|abi_preserve|abi_preserve_control|"
    r"reqnctapercluster|maxclusterrank|explicitcluster|blocksareclusters|pragma)\b([^.]*)"
)
_VARIABLE = re.compile(
    r"\s*(?:\.(?:visible|extern|weak|common)\s+)*\.(global|const|shared|param)\b"
)
_FUNCTION_WORDS = (".visible", ".extern", ".weak", ".common", ".noreturn")
_ALIAS = re.compile(rf"\.alias\s+({IDENT})\s*,\s*({IDENT})\s*$")


def blank_comments(text: str) -> str:
    """The text with comments replaced by spaces, all line breaks and offsets kept."""

    def spaces(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group(0))

    return _COMMENT.sub(spaces, text)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.module = Module(text)
        self.pos = 0

    def line(self, offset: int | None = None) -> int:
        return self.module.line(self.pos if offset is None else offset)

    def scan(self) -> Module:
        text, end = self.text, len(self.text)
        self._header()
        while True:
            blank = _BLANK.match(text, self.pos)
            if blank:
                self.pos = blank.end()
            if self.pos >= end:
                return self.module
            if text.startswith("/*", self.pos):
                raise invalid("comment is not closed", self.line())
            if not self._skip_debug():
                self._declaration()

    def _header(self) -> None:
        blank = _BLANK.match(self.text)
        self.pos = blank.end() if blank else 0
        match = _VERSION.match(self.text, self.pos)
        if match is None:
            raise invalid("the text does not begin with .version: this is not PTX", self.line())
        version = (int(match.group(1)), int(match.group(2)))
        if version < MIN_VERSION or version[0] > MAX_MAJOR:
            raise PtxError(
                "unsupported_version",
                f".version {version[0]}.{version[1]} is not supported "
                f"(known: {MIN_VERSION[0]}.{MIN_VERSION[1]} to {MAX_MAJOR}.x)",
                self.line(),
            )
        self.module.version = version
        self.pos = match.end()

    def _skip_debug(self) -> bool:
        """Consume a header line or debug content; False when a declaration stands here."""
        text, module = self.text, self.module
        if match := _TARGET.match(text, self.pos):
            module.target = match.group(1).split(",")[0].strip()
        elif match := _ADDRESS_SIZE.match(text, self.pos):
            module.address_size = int(match.group(1))
            if module.address_size != 64:
                raise PtxError("unsupported_form", ".address_size 32 is not supported", self.line())
        elif match := _FILE.match(text, self.pos) or _DWARF_LINE.match(text, self.pos):
            pass
        elif match := _SECTION.match(text, self.pos):
            self.pos = self._block_end(match.end(), "section")
            return True
        elif text.startswith(";", self.pos):
            self.pos += 1
            return True
        else:
            return False
        self.pos = match.end()
        return True

    def _block_end(self, start: int, what: str) -> int:
        """The place after the brace that closes the block whose content begins at ``start``."""
        depth = 1
        for match in _BRACES.finditer(self.text, start):
            token = match.group(0)
            if token == "{":
                depth += 1
            elif token == "}":
                depth -= 1
                if depth == 0:
                    return match.end()
        raise invalid(f"unexpected end of the text inside {what}", self.line(len(self.text)))

    def _head(self) -> tuple[str, int, str]:
        """(Text up to the next brace or semicolon, without comments; its end; what ended it)."""
        parts: list[str] = []
        pos, text = self.pos, self.text
        while True:
            match = re.compile(r'[{};]|//[^\n]*|/\*.*?\*/|"[^"\n]*"', re.S).search(text, pos)
            if match is None:
                raise invalid("unexpected end of the text in a declaration", self.line(len(text)))
            parts.append(text[pos : match.start()])
            token = match.group(0)
            if token in "{};":
                return "".join(parts), match.start(), token
            parts.append(token if token[0] == '"' else " ")
            pos = match.end()

    def _declaration(self) -> None:
        start = self.pos
        head, stop, ender = self._head()
        if ender == "}":
            raise invalid("unexpected '}'", self.line(stop))
        if match := _FUNCTION.match(head):
            self._function(match, start, stop, ender)
        elif _VARIABLE.match(head):
            end = stop if ender == ";" else self._initialiser_end(stop)
            source = blank_comments(self.text[start:end])
            for variable in declarations.parse_variables(source, start, self.line(start)):
                self._add_variable(variable)
            self.pos = end + 1
        elif match := _ALIAS.match(head.strip()):
            self.module.aliases[match.group(1)] = match.group(2)
            self.pos = stop + 1
        elif head.lstrip().startswith(".pragma"):
            self.pos = stop + 1
        else:
            word = head.split()[0] if head.split() else ender
            raise invalid(f"unknown directive {word}", self.line(start))

    def _initialiser_end(self, brace: int) -> int:
        end = self._block_end(brace + 1, "initialiser")
        semicolon = self.text.find(";", end)
        # several variables may follow, each with an initialiser of its own
        following = self.text.find("{", end)
        if 0 <= following < semicolon:
            return self._initialiser_end(following)
        if semicolon < 0:
            raise invalid("unexpected end of the text in a declaration", self.line(len(self.text)))
        return semicolon

    def _add_variable(self, variable: Variable) -> None:
        known = self.module.variables.get(variable.name)
        if known is not None and known.linkage != "extern":
            if variable.linkage == "extern":
                return
            raise invalid(f"{variable.name} is declared twice", self.line(variable.offset))
        self.module.variables[variable.name] = variable

    def _function(self, match: re.Match[str], start: int, stop: int, ender: str) -> None:
        line = self.line(start)
        name, entry = match.group("name"), match.group("kind") == "entry"
        link = match.group("link").split()
        for word in (*link, *match.group("attrs").split()):
            if word not in _FUNCTION_WORDS:
                raise invalid(f"unknown directive {word} at function {name}", line)
        function = Function(name, entry, start, link[0][1:] if link else "")
        for part, place in (("params", function.params), ("returns", function.returns)):
            source = match.group(part)
            if source and source.strip():
                place.extend(declarations.parse_parameters(source, start, line))
        self._tuning(function, match.group("tail"), line)
        if ender == ";":
            self.module.declared.add(name)
            self.pos = stop + 1
            return
        end = self._block_end(stop + 1, f"the body of {name}")
        function.body = (stop + 1, end - 1)
        if name in self.module.functions:
            raise invalid(f"function {name} is defined twice", line)
        self.module.functions[name] = function
        self.pos = end

    @staticmethod
    def _tuning(function: Function, tail: str, line: int) -> None:
        pos = 0
        for match in _TUNING.finditer(tail):
            if tail[pos : match.start()].strip():
                break
            pos = match.end()
            name, argument = match.group(1), match.group(2)
            if name in ("maxntid", "reqntid"):
                numbers = [declarations.whole_number(n, line) for n in re.findall(r"\w+", argument)]
                if not 1 <= len(numbers) <= 3 or max(numbers) >= 1 << 32:
                    raise invalid(f".{name} needs one to three numbers", line)
                triple = (*numbers, 1, 1)[:3]
                if name == "maxntid":
                    function.max_ntid = (triple[0], triple[1], triple[2])
                else:
                    function.req_ntid = (triple[0], triple[1], triple[2])
            elif name == "maxnreg":
                if not argument.strip().isdecimal():
                    raise invalid(".maxnreg needs a number", line)
                function.max_registers = min(int(argument), function.max_registers)
            elif name in ("reqnctapercluster", "explicitcluster", "blocksareclusters"):
                function.broken = f"directive .{name} is not supported"
        rest = tail[pos:].strip()
        if rest:
            raise invalid(f"unknown directive {rest.split()[0]} at function {function.name}", line)


def scan_module(text: str) -> Module:
    """Find everything at module scope.  A trailing NUL, CRLF and comments are accepted anywhere."""
    nul = text.find("\0")
    return _Scanner(text if nul < 0 else text[:nul]).scan()
