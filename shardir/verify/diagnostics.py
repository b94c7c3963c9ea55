"""Diagnostics of the verifier: each fault with its line of IR text, the faulty part underlined."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Loc, Op, Value
from shardir.text.printer import Printer, unique_names


@dataclass(frozen=True)
class Fault:
    """A violated rule: a message, the function, and the line of text.

    `op` and `value` are the operation and value concerned, if any; `width` characters of `line`
    from `start` on are underlined.
    """

    message: str
    function: str
    line: str
    start: int
    width: int
    op: Op | None = None
    value: Value | None = None

    @property
    def loc(self) -> Loc | None:
        return self.op.loc if self.op else None

    def __str__(self) -> str:
        subject = f"@{self.function}" if self.function else "the module"
        origin = f", from {self.loc}" if self.loc else ""
        underline = f"{' ' * self.start}{'^' * max(self.width, 1)}"
        return f"{self.message}\n --> {subject}{origin}\n  |\n  | {self.line}\n  | {underline}"


class Faults:
    """Collects the faults of one function."""

    def __init__(self, function: Function, meshes: Mapping[str, Mesh]) -> None:
        self.function, self.meshes = function, meshes
        self.faults: list[Fault] = []

    def name_of(self, value: Value) -> str:
        """Return the name of a value in the text, where names are unique."""
        return self.unique_names[value]

    @cached_property
    def unique_names(self) -> Mapping[Value, str]:
        return unique_names(self.function)

    @cached_property
    def printer(self) -> Printer:
        return Printer(tuple(self.meshes.values()))

    def add_at_op(
        self, message: str, op: Op, part: str = "name", index: int = 0, value: Value | None = None
    ) -> None:
        """Add a fault about a part of an operation, such as one of its `results`."""
        line = self.printer.op(op, self.unique_names)
        start, width = line.span(part, index)
        self.add(message, str(line), start, width, op, value)

    def add_at_block(
        self, message: str, block: Block, owner: Op | None, part: str, index: int
    ) -> None:
        """Add a fault about a parameter of a block or a value that it returns."""
        values = block.params if part == "params" else block.returns
        if part == "params":
            pieces = [self.printer.param(p, self.unique_names) for p in values]
            before, after = ("(", ") =>") if owner else (f"func @{self.function.name}(", ")")
        else:
            pieces = [self.name_of(v) for v in values]
            before, after = ("yield " if owner else "return "), ""
        self.add(message, *_locate_part(before, pieces, after, index), owner, values[index])

    def add_at_signature(self, message: str, index: int | None = None) -> None:
        """Add a fault about the results that the function's signature declares."""
        pieces = self.printer.results(self.function)
        before = f"func @{self.function.name}(...) -> ("
        if index is None:
            self.add(message, f"{before}{', '.join(pieces)})", 5, len(self.function.name) + 1)
        else:
            self.add(message, *_locate_part(before, pieces, ")", index))

    def add(
        self,
        message: str,
        line: str,
        start: int,
        width: int,
        op: Op | None = None,
        value: Value | None = None,
    ) -> None:
        self.faults.append(Fault(message, self.function.name, line, start, width, op, value))


def _locate_part(before: str, pieces: list[str], after: str, index: int) -> tuple[str, int, int]:
    """Return a line made of comma-separated parts, and the start and width of one of them."""
    start = len(before) + sum(len(piece) + 2 for piece in pieces[:index])
    return f"{before}{', '.join(pieces)}{after}", start, len(pieces[index])
