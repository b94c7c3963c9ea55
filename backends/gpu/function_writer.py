"""Write the functions of an emitted program line by line."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np

from shardir.backends.gpu.identifiers import FunctionNames
from shardir.backends.gpu.kernels.kernel import KernelText
from shardir.backends.gpu.line_wrapping import wrap_code, wrap_line
from shardir.backends.gpu.torch_text import number_text
from shardir.backends.pipeline_programs import PipelineProgram
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import Dense
from shardir.ir.types import NumpyArray
from shardir.ops.shape.create import constant
from shardir.ops.shape.rearrangements import broadcast

MAX_LINE_CHARACTERS = 100
_BRANCH = re.compile(r"elif .*:$|else:$")
MIN_DELETED_BYTES = 1 << 20
"""Minimum size in bytes of a value that the program deletes after its last use."""


@dataclass(eq=False)
class CodeLine:
    """A line of a function: the values it uses and defines; an `is_removable` line is omitted if
    unused."""

    text: str
    depth: int
    comment: str = ""
    uses: tuple[Value, ...] = ()
    defines: tuple[Value, ...] = ()
    is_removable: bool = False


@dataclass(eq=False)
class ProgramNeeds:
    """Definitions that a program needs besides `main`, in the order of first use."""

    precision: str = "ieee"
    """Precision of f32 products."""
    library: dict[str, None] = field(default_factory=dict)
    """Used functions of the library."""
    constants: dict[str, tuple[NumpyArray, str]] = field(default_factory=dict)
    """Constant arrays and their element types, keyed by name."""
    groups: dict[object, str] = field(default_factory=dict)
    """Names of the functions of fused operations, keyed by the computation."""
    functions: list[str] = field(default_factory=list)
    """Texts of the functions of fused operations."""
    imports: dict[str, None] = field(default_factory=dict)
    """Import statements of the functions."""
    kernels: dict[str, None] = field(default_factory=dict)
    """Helper functions that kernels use."""
    pipelines: list[PipelineProgram] = field(default_factory=list)
    """The pipelines that `main` runs."""


class FunctionWriter:
    """Writes the body of one function.

    `lower` writes one operation. It is a parameter because the blocks of an operation are lowered
    by the same rules, which import this class.
    """

    def __init__(
        self,
        names: FunctionNames,
        needs: ProgramNeeds,
        lower: Callable[["FunctionWriter", Op], None],
        mesh: Mesh,
    ) -> None:
        self.names, self.needs, self.mesh, self.depth = names, needs, mesh, 1
        self.lines: list[CodeLine] = []
        self.makers: dict[Value, Op] = {}
        """The operations before the next line, by their results."""
        self._lower = lower
        self._used: dict[Value, None] = {}
        self._literals: dict[Value, NumpyArray] = {}
        self._aliases: dict[Value, Value] = {}

    def name(self, value: Value) -> str:
        """Return the name of a value and record that the next line uses the value."""
        self._used[self._aliases.get(value, value)] = None
        return self.names[value]

    def alias(self, value: Value, as_: Value) -> None:
        """Make `value` an alias of `as_`."""
        other = self._aliases.get(as_, as_)
        if other is value:
            return
        self.names.alias(value, as_)
        self._aliases[value] = other
        if as_ in self._literals:
            self._literals[value] = self._literals[as_]

    def call_library(self, function: str, *arguments: str) -> str:
        """Return a call of a function of the library, and record that the program needs it."""
        self.needs.library[function] = None
        return f"{function}({', '.join(arguments)})"

    def define_kernel(self, kernel: KernelText, name: str, reference: str) -> None:
        """Add a kernel, the function `<name>_reference`, and the launching function `name`."""
        for helper in kernel.helpers:
            self.needs.kernels[helper] = None
        for line in kernel.imports:
            self.needs.imports[line] = None
        launch = wrap_code(kernel.launch_function(name), MAX_LINE_CHARACTERS)
        self.needs.functions.append(f"{kernel.text.rstrip()}\n\n\n{reference}\n\n\n{launch}")

    def uniform_number(self, value: Value) -> NumpyArray | None:
        """Return the number that all elements of a value equal, or `None` if it is not known."""
        return self._literals.get(value)

    def operand_text(self, value: Value) -> str:
        """Return a value as an operand of arithmetic: its uniform number if known, else
        its name.
        """
        number = self.uniform_number(value)
        return self.name(value) if number is None else number_text(number, value.type.dtype)

    def append_line(
        self, text: str, comment: str = "", defines: Sequence[Value] = (), free: bool = False
    ) -> None:
        """Append a line; it uses the values whose names were requested since the last line."""
        used, self._used = tuple(self._used), {}
        made = tuple(self._aliases.get(value, value) for value in defines)
        self.lines.append(CodeLine(text, self.depth, comment, used, made, free))

    def bind(self, op: Op, expression: str, free: bool = False) -> None:
        """Append the line that assigns an expression to the results of an operation."""
        targets = ", ".join(self.names[result] for result in op.results)
        types = ", ".join(str(result.type) for result in op.results)
        self.append_line(f"{targets} = {expression}", f"{op.name}: {types}", op.results, free)
        self._record_uniform_number(op)

    def _record_uniform_number(self, op: Op) -> None:
        """Record the results of which all elements equal one known number."""
        if op.spec is constant and not isinstance(op.attrs["value"], Dense):
            reference = op.spec.reference
            assert reference is not None
            one = op.result.type.with_shape(())
            self._literals[op.result] = np.asarray(reference(value=op.attrs["value"], result=one))
        elif op.spec is broadcast and op.operands[0] in self._literals:
            self._literals[op.result] = self._literals[op.operands[0]]

    def is_uniform_number(self, op: Op) -> bool:
        """Return whether all elements of the operation's result equal one known number."""
        if op.spec is constant:
            return not isinstance(op.attrs["value"], Dense)
        return op.spec is broadcast and op.operands[0] in self._literals

    @contextmanager
    def indent(self) -> Iterator[None]:
        """Indent the lines appended within the context."""
        self.depth += 1
        yield
        self.depth -= 1

    def write_block(self, block: Block) -> None:
        """Write the operations of a block."""
        for op in block.ops:
            self.makers.update(dict.fromkeys(op.results, op))
            self._lower(self, op)

    def text(self, returned: Sequence[Value] = ()) -> str:
        """Return the text of all needed lines; `returned` are the values needed after
        the last one.
        """
        needed = {self._aliases.get(value, value) for value in returned}
        kept: list[CodeLine] = []
        for line in reversed(self.lines):
            if line.is_removable and not needed.intersection(line.defines):
                continue
            needed.update(line.uses)
            kept.append(line)
        kept.reverse()
        lines = _delete_large_values(_fill_empty_blocks(kept), self.names, set(returned))
        return "\n".join(_line_text(line) for line in lines)


def _fill_empty_blocks(lines: Sequence[CodeLine]) -> list[CodeLine]:
    """Return the lines, with `pass` added to empty loops and branches."""
    filled: list[CodeLine] = []
    for line, after in zip_longest(lines, lines[1:]):
        filled.append(line)
        if line.text.endswith(":") and (after is None or after.depth <= line.depth):
            filled.append(CodeLine("pass", line.depth + 1))
    return filled


def _delete_large_values(
    lines: Sequence[CodeLine], names: FunctionNames, kept: set[Value]
) -> Iterator[CodeLine]:
    """Yield the lines, with a `del` after the last use of each large value."""
    steps = _group_statements(lines)
    large = {
        names[value]
        for first, *_ in steps
        for value in first.defines
        if value.type.nbytes >= MIN_DELETED_BYTES
    }
    large -= {names[value] for value in kept}
    last: dict[str, int] = {}
    for number, step in enumerate(steps):
        for line in step:
            for value in (*line.uses, *line.defines):
                if names[value] in large:
                    last[names[value]] = number
    gone: dict[int, list[str]] = {}
    for name, number in last.items():
        gone.setdefault(number, []).append(name)
    for number, step in enumerate(steps):
        yield from step
        if number in gone and number + 1 < len(steps):
            yield CodeLine(f"del {', '.join(gone[number])}", step[0].depth)


def _group_statements(lines: Sequence[CodeLine]) -> list[list[CodeLine]]:
    """Group the lines into statements of the outermost level, each with its nested lines."""
    steps: list[list[CodeLine]] = []
    for line in lines:
        if steps and (line.depth > steps[0][0].depth or _BRANCH.match(line.text)):
            steps[-1].append(line)
        else:
            steps.append([line])
    return steps


def _line_text(line: CodeLine) -> str:
    indent = "    " * line.depth
    plain = f"{indent}{line.text}"
    if not line.comment:
        return plain if len(plain) <= MAX_LINE_CHARACTERS else wrap_line(plain, MAX_LINE_CHARACTERS)
    whole = f"{plain}  # {line.comment}"
    if len(whole) <= MAX_LINE_CHARACTERS:
        return whole
    return f"{indent}# {line.comment}\n{wrap_line(plain, MAX_LINE_CHARACTERS)}"
