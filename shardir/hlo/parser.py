"""Read the text of an HLO module.

The grammar is that of XLA's printer (https://openxla.org/xla/operation_semantics shows instances):
a line `HloModule name, attributes`, tables of source locations, and computations with one
instruction each line. The reader keeps the texts of attributes; it does not check the instructions.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from shardir.errors import ParseError
from shardir.hlo.module import (
    ArrayShape,
    Computation,
    HloModule,
    Instruction,
    Shape,
    parse_number,
)
from shardir.ir.location import Loc

_INDEX_COMMENT = re.compile(r"/\*index=\d+\*/")
_ARRAY = re.compile(r"([a-z]\w*)\[([^\]]*)\](?:\{[^{}]*\})?")
_COMPUTATION = re.compile(r"(ENTRY\s+)?%?([^\s(={]+)\s*(?:\(.*->.*)?\{")
_INSTRUCTION = re.compile(r"\s*(ROOT\s+)?%?([^\s=]+)\s*=\s*")
_OPCODE = re.compile(r"\s*([a-z][\w\-]*)\(")
_HEADER = re.compile(r"(?:\s|//[^\n]*\n)*HloModule\s")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_TABLE_ROW = re.compile(r"(\d+)\s+(.*)")
MAX_TUPLE_DEPTH = 50
"""The maximum number of tuples inside of each other."""
_OPEN, _CLOSE = "([{", ")]}"


def is_hlo(text: str) -> bool:
    """Return whether a text is an HLO module."""
    return _HEADER.match(text) is not None


def parse_hlo(text: str, file: str = "<hlo>") -> HloModule:
    """Return the module of a text; raise `ParseError` with the line if it is not HLO text."""
    return _Reader(text, file).read()


@dataclass
class _Reader:
    text: str
    file: str
    lines: list[str] = field(default_factory=list)
    number: int = 0
    tables: dict[str, dict[int, str]] = field(default_factory=dict)
    computations: dict[str, Computation] = field(default_factory=dict)

    def read(self) -> HloModule:
        self.lines = self.text.split("\n")
        name, attributes = self._read_header()
        entry = ""
        while self.number < len(self.lines):
            line = self.lines[self.number].strip()
            if not line or line.startswith("//"):
                self.number += 1
            elif line in _TABLES:
                self._read_table(line)
            elif match := _COMPUTATION.fullmatch(line):
                self.number += 1
                self._read_computation(match[2])
                if match[1]:
                    entry = match[2]
            else:
                self._fail("expected a computation, such as `%add (x: f32[], y: f32[]) -> f32[] {`")
        if not entry:
            self.number = len(self.lines) - 1
            self._fail("the module has no ENTRY computation; the text may be truncated")
        return HloModule(name, attributes, self.computations, entry)

    def _read_header(self) -> tuple[str, Mapping[str, str]]:
        header = _HEADER.match(self.text)
        if header is not None:
            self.number = self.text.count("\n", 0, header.end())
        else:
            self._fail("expected `HloModule NAME`; write the text with --xla_dump_hlo_as_text")
        name, *parts = split_list(self.lines[self.number].split(None, 1)[1]) or [""]
        self.number += 1
        return name, _attributes(parts)

    def _read_table(self, name: str) -> None:
        self.number += 1
        rows = self.tables[name] = {}
        while self.number < len(self.lines) and (
            row := _TABLE_ROW.fullmatch(self.lines[self.number].strip())
        ):
            rows[parse_number(row[1]) or 0] = row[2]
            self.number += 1

    def _read_computation(self, name: str) -> None:
        instructions: dict[str, Instruction] = {}
        root = ""
        while self.number < len(self.lines):
            line = self.lines[self.number].strip()
            if line.startswith("}"):
                if not instructions:
                    self._fail("a computation has at least one instruction")
                self.number += 1
                self.computations[name] = Computation(
                    name, instructions, root or next(reversed(instructions))
                )
                return
            if line:
                instruction, is_root = self._read_instruction()
                instructions[instruction.name] = instruction
                root = instruction.name if is_root else root
            self.number += 1
        self.number = len(self.lines) - 1
        self._fail(f"the computation {name} has no end; the text may be truncated")

    def _read_instruction(self) -> tuple[Instruction, bool]:
        """Read the instruction that starts at the current line, and stop at its last line."""
        first = self.number
        line = _INDEX_COMMENT.sub("", self.lines[first])
        depth = _depth(line)
        parts = [line]
        while depth > 0 and self.number + 1 < len(self.lines):  # Constants may span several lines.
            self.number += 1
            more = self.lines[self.number]
            depth += _depth(more)
            parts.append(more)
        line = "\n".join(parts)
        head = _INSTRUCTION.match(line)
        if head is None or depth != 0:
            self.number = first
            self._fail("expected an instruction, such as `%y = f32[8] add(%a, %b)`")
        shape, end = _read_shape(line, head.end())
        opcode = None if shape is None else _OPCODE.match(line, end)
        if shape is None or opcode is None:
            self.number = first
            self._fail("expected a shape and an operation, such as `f32[8] add(...)`")
        close = _closing_bracket(line, opcode.end() - 1)
        operands = (
            operand.split()[-1].lstrip("%")
            for operand in split_list(line[opcode.end() : close])
            if operand.strip()
        )
        attributes = _attributes(split_list(line[close + 1 :].lstrip(", ")))
        metadata = _attributes(_split_words(attributes.get("metadata", "")[1:-1]))
        instruction = Instruction(
            head[2],
            shape,
            opcode[1],
            tuple(operands),
            attributes,
            self._location(metadata),
            _unquote(metadata.get("op_name", "")),
        )
        return instruction, bool(head[1])

    def _location(self, metadata: Mapping[str, str]) -> Loc | None:
        """Return the line of the user's program; frames of installed packages are left out."""
        if "source_file" in metadata:
            return Loc(_unquote(metadata["source_file"]), _number(metadata, "source_line"), 1)
        frame = _number(metadata, "stack_frame_id")
        innermost = None
        for _ in range(len(self.tables.get("StackFrames", ()))):
            row = self._row("StackFrames", frame)
            location = self._row("FileLocations", _number(row, "file_location_id"))
            name = self.tables.get("FileNames", {}).get(_number(location, "file_name_id"))
            if name is None:
                break
            line, column = _number(location, "line"), _number(location, "column")
            loc = Loc(_unquote(name), line, column + 1)
            if "site-packages" not in loc.file:
                return loc
            innermost = innermost or loc
            parent = _number(row, "parent_frame_id")
            if parent == frame:
                break
            frame = parent
        return innermost

    def _row(self, table: str, number: int) -> Mapping[str, str]:
        return _attributes(self.tables.get(table, {}).get(number, "{}")[1:-1].split())

    def _fail(self, message: str) -> NoReturn:
        line = self.lines[self.number]
        indent = len(line) - len(line.lstrip())
        raise ParseError(
            message, self.text, self.number + 1, indent + 1, max(len(line.strip()), 1), self.file
        )


def split_list(text: str) -> list[str]:
    """Split a text at commas outside of brackets and strings."""
    return [part.strip() for part in _split(text, ",") if part.strip()]


def _split_words(text: str) -> Iterator[str]:
    return (part for part in _split(text, " ") if part.strip())


def _split(text: str, separator: str) -> Iterator[str]:
    depth, start = 0, 0
    for position, character in _outside_strings(text):
        if character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif character == separator and depth == 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]


_SPECIAL = re.compile(r"""["'(\[{)\]}, ]""")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def _outside_strings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the positions of brackets and separators outside of strings in double quotes."""
    position = 0
    while match := _SPECIAL.search(text, position):
        position = match.end()
        if match[0] == '"':
            string = _STRING.match(text, match.start())
            position = string.end() if string else len(text)
        elif match[0] != "'":
            yield match.start(), match[0]


def _depth(line: str) -> int:
    """Return the number of brackets that a line opens and does not close."""
    return sum(
        1 if character in _OPEN else -1 if character in _CLOSE else 0
        for _, character in _outside_strings(line)
    )


def _closing_bracket(text: str, start: int) -> int:
    depth = 0
    for position, character in _outside_strings(text[start:]):
        depth += 1 if character in _OPEN else -1 if character in _CLOSE else 0
        if depth == 0:
            return start + position
    return len(text)


def _read_shape(text: str, start: int, depth: int = 0) -> tuple[Shape | None, int]:
    """Return the shape at a position and the position after it; `None` if there is none."""
    if text[start : start + 1] == "(" and depth < MAX_TUPLE_DEPTH:
        end = _closing_bracket(text, start)
        shapes = [_read_shape(part, 0, depth + 1)[0] for part in split_list(text[start + 1 : end])]
        complete_shapes = tuple(shape for shape in shapes if shape is not None)
        return (complete_shapes if len(complete_shapes) == len(shapes) else None), end + 1
    match = _ARRAY.match(text, start)
    if match is None:
        return None, start
    sizes = [size.strip().removeprefix("<=") for size in match[2].split(",") if size.strip()]
    numbers = [number for size in sizes if (number := parse_number(size)) is not None]
    if len(numbers) < len(sizes):
        return None, start
    return ArrayShape(match[1], tuple(numbers)), match.end()


def _attributes(parts: object) -> dict[str, str]:
    assert isinstance(parts, Iterator | list)
    pairs = (str(part).partition("=") for part in parts)
    return {name.strip(): value.strip() for name, sign, value in pairs if sign}


def _number(entries: Mapping[str, str], name: str) -> int:
    """Return a number of a table or of metadata; 0 if it is missing."""
    return parse_number(entries.get(name, "")) or 0


def _unquote(text: str) -> str:
    return text[1:-1] if text.startswith('"') and text.endswith('"') else text
